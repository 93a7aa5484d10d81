"""Parameter: a tensor that a module learns."""

from typing import Any

import numpy as np

from .._typing import DtypeLike
from ..core.gradients import check_constant
from ..core.value import Value
from ..creation import tensor
from ..dtypes import default_dtype, is_float
from ..tensors import Tensor

#: How to differentiate by parameters.
BY_CALL = "call the model by nt.nn.functional_call(model, params, x)"


class Parameter(Tensor):
    """A leaf that a module registers when it is assigned to one of its attributes; ops on it give plain tensors.

    Args:
        data: a number, nested lists, an array or a tensor; it is copied. Integers take the default dtype.
        requires_grad: whether `backward` delivers a gradient to it.
        name: shown in summaries and errors; a module gives its attribute's name to one without.
        dtype: the dtype, if it is not to follow from the data.

    Example:
        >>> nt.nn.Parameter([1.0, 2.0])
        Parameter containing:
        tensor([1., 2.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, name: str | None = None, dtype: DtypeLike = None) -> None:
        # A parameter starts a graph, whatever the data was computed from.
        check_constant("Parameter", BY_CALL, data)
        made = tensor(data.array if isinstance(data, Value) else data, dtype)
        self.array = made.array if is_float(made.dtype) else made.array.astype(default_dtype())
        self.node = self.version = self.extras = None
        if name is not None:
            self.name = name
        self.requires_grad_(requires_grad)

    @property
    def is_frozen(self) -> bool:
        """Whether it is not to be trained: ``requires_grad`` was taken from it."""
        return not self.requires_grad

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


def blank(shape: tuple[int, ...], dtype: DtypeLike = None) -> Parameter:
    """Return a parameter of zeros, to be initialised."""
    return Parameter(np.zeros(shape, default_dtype()), dtype=dtype)
