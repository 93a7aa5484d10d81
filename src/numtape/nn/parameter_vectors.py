"""What PyTorch has in `nn.utils`: clipping of gradients, and parameters as one vector."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.gradients import check_constant
from ..core.value import Value, array_of
from ..errors import OperandError, ShapeError
from ..grad_mode import no_grad
from ..gradient_clipping import clip_grad_norm_ as clip_grad_norm_
from ..gradient_clipping import clip_grad_value_ as clip_grad_value_
from ..ops import concat, reshape
from .parameter import BY_CALL


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """Return all elements of parameters, one parameter after another, as one vector that depends on them.

    Example:
        >>> nt.nn.utils.parameters_to_vector(nt.nn.Linear(2, 3).parameters()).shape
        (9,)
    """
    found = list(parameters)
    if not found or not all(isinstance(each, Value) for each in found):
        raise OperandError("parameters_to_vector: takes tensors, such as model.parameters(), and at least one.")
    return concat([reshape(each, (-1,)) for each in found])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Write the elements of a vector into parameters, one parameter after another.

    The write is not recorded: to differentiate by the vector, call the model by `nt.nn.functional_call`.

    Raises:
        NotDifferentiableError: in a function that is being differentiated by what the vector depends on.

    Example:
        >>> line = nt.nn.Linear(1, 1)
        >>> nt.nn.utils.vector_to_parameters(nt.tensor([2.0, 3.0]), line.parameters())
        >>> line(nt.tensor([[1.0]])).item()
        5.0
    """
    found = list(parameters)
    check_constant("vector_to_parameters", BY_CALL, vec)
    array = np.asarray(array_of(vec))
    count = sum(each.size for each in found)
    if array.shape != (count,):
        raise ShapeError(
            f"vector_to_parameters: the vector has shape {array.shape} and the parameters have {count} elements; it "
            f"must have shape ({count},)."
        )
    start = 0
    with no_grad():
        for each in found:
            each[...] = array[start : start + each.size].reshape(each.shape).astype(each.dtype)
            start += each.size
