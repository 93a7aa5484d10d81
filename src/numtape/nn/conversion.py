"""Give the parameters and buffers of a module another dtype, in place."""

from itertools import chain
from typing import TYPE_CHECKING, Any

from .._typing import DtypeLike
from ..core.value import Value
from ..core.write import mark_unrecorded
from ..devices import check_device, is_device
from ..dtypes import HALF_DTYPES, as_dtype, float32, is_float
from ..errors import DtypeError

if TYPE_CHECKING:
    from .module import Module


def convert(module: "Module", target: DtypeLike) -> None:
    """Convert parameters, their gradients and float buffers; a device is checked to be the only one there is."""
    name = type(module).__name__
    if is_device(target):
        check_device(f"{name}.to", target)
        return
    dtype = target.dtype if isinstance(target, Value) else as_dtype(target)
    if not is_float(dtype):
        raise DtypeError(
            f"{name}.to: {dtype} is not a float dtype; parameters are float16, bfloat16, float32 or float64."
        )
    # A variance of float16 numbers may be as large as 2**32, which float16 cannot hold.
    wide = float32 if dtype in HALF_DTYPES else dtype
    statistics = {id(part.__dict__.get(name)) for part in module.modules() for name in part._statistics}
    buffers = ((buffer, wide if id(buffer) in statistics else dtype) for buffer in module.buffers())
    for value, wanted in chain(((parameter, dtype) for parameter in module.parameters()), buffers):
        if is_float(value.dtype) and value.dtype != wanted:
            _cast(value, wanted)


def _cast(value: Any, dtype: Any) -> None:
    grad = value.grad
    value.array = value.array.astype(dtype)
    # A graph that has read the old contents must notice.
    mark_unrecorded(value)
    if grad is not None:
        value.grad = grad.array.astype(dtype)
