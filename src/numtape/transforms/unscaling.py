"""What loss scaling does to single gradients, and what it asks about optimizers and parameters."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.gradients import link_of
from ..core.reverse import collect
from ..core.value import Value, wrap
from ..core.write import mark_written
from ..dtypes import HALF_DTYPES
from ..errors import OperandError
from ..kernels.halves import to_float32
from .overflow import is_finite


def unscale_gradient(parameter: Value, factor: float) -> bool:
    """Multiply the gradient of a parameter by a factor, that of a half one in float32; say whether it is finite."""
    assert parameter.extras is not None
    gradient = parameter.extras.grad
    array = gradient.array
    if not is_finite(array):
        return False
    if array.dtype in HALF_DTYPES or not array.flags.writeable:
        wide = to_float32(array) if array.dtype in HALF_DTYPES else array
        parameter.extras.grad = wrap(parameter.plain, wide * factor)
    elif factor != 1.0:
        np.multiply(array, factor, out=array)
        mark_written(gradient, None)
    return True


def parameters_of(title: str, optimizer: Any) -> list[Any]:
    """Return the parameters of an optimizer."""
    groups = getattr(optimizer, "param_groups", None)
    if groups is None or not callable(getattr(optimizer, "step", None)):
        raise OperandError(f"{title}: wants an optimizer, not {type(optimizer).__name__}.")
    found = [parameter for group in groups for parameter in group["params"]]
    if not found:
        raise OperandError(
            f"{title}: this {type(optimizer).__name__} has no parameters of its own, whose gradients could be "
            "unscaled; make it with model.parameters()."
        )
    return found


def parameters_behind(losses: Sequence[Value]) -> list[tuple[weakref.ref[Value], int]]:
    """Return weak references to the leaves that losses send gradients to, and how often each was written to."""
    links = [link_of(loss) for loss in losses]
    leaves: list[Any] = list(links)
    collect(links, leaves)
    found = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Value) and leaf.requires_grad}
    return [(weakref.ref(leaf), writes_to(leaf)) for leaf in found.values()]


def writes_to(value: Value) -> int:
    """Return how often the memory of a tensor was written to."""
    return value.version[0].count if value.version is not None else 0


def name_of(parameter: Value) -> str:
    """Return what errors call a parameter."""
    name = parameter.extras.name if parameter.extras is not None else None
    return f"parameter {name!r}" if name else f"a parameter of shape {parameter.shape}"
