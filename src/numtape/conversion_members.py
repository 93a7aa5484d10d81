"""Methods of tensors that return them in another dtype, on another device or in another order of memory."""

from typing import Any, Self

import numpy as np

from . import ops
from .core.value import Lifted, Value
from .devices import check_device, is_device
from .dtypes import as_dtype, bfloat16, float16, float32, float64, int32, int64
from .errors import ArgumentError


class ConversionMembers(Value):
    """Conversions, in PyTorch's spelling; `astype` is NumPy's."""

    __slots__ = ()

    def to(
        self, *target: Any, dtype: Any = None, device: Any = None, non_blocking: Any = False, copy: Any = False
    ) -> Self:
        """Return the tensor in another dtype, or itself for the device "cpu" and for its own dtype.

        Args:
            target: a dtype, a tensor whose dtype is meant, a device, or both as in ``to("cpu", nt.float64)``.
            dtype: a dtype, in place of `target` or beside a device.
            device: "cpu", the only one.
            non_blocking: accepted for PyTorch's sake.
            copy: whether to return a copy instead of the tensor itself.
        """
        for each in (*filter(is_device, target), device):
            check_device("to", each)
        dtypes = [each for each in (*target, dtype) if each is not None and not is_device(each)]
        if len(dtypes) > 1:
            raise ArgumentError(f"to: the dtype was given twice, as {dtypes[0]!r} and as {dtypes[1]!r}.")
        for each in dtypes:
            wanted = each.dtype if isinstance(each, Value) else as_dtype(each)
            if wanted != self.dtype:
                cast: Self = ops.cast(self, wanted)
                return cast
        return ops.clone(self) if copy else self

    def type_as(self, other: Any) -> Self:
        """Return the tensor in the dtype of another one."""
        return self.to(other.dtype)

    def cpu(self) -> Self:
        """Return the tensor itself: there is no other device."""
        return self

    def cuda(self, device: Any = None, non_blocking: Any = False) -> Self:
        """Raise, since there is no such device."""
        return self.to("cuda")

    def is_contiguous(self) -> Any:
        """Say whether the elements lie in memory in the order of the axes."""
        return not isinstance(self, Lifted) and self.array.flags.c_contiguous

    def contiguous(self) -> Self:
        """Return the tensor itself if its elements lie in the order of its axes, and else a copy for which they do."""
        if self.is_contiguous():
            return self
        copied: Self = ops.clone(self)
        return copied

    def half(self) -> Self:
        """Return the tensor as float16."""
        return self.to(float16)

    def bfloat16(self) -> Self:
        """Return the tensor as bfloat16."""
        return self.to(bfloat16)

    def float(self) -> Self:
        """Return the tensor as float32."""
        return self.to(float32)

    def double(self) -> Self:
        """Return the tensor as float64."""
        return self.to(float64)

    def int(self) -> Self:
        """Return the tensor as int32."""
        return self.to(int32)

    def long(self) -> Self:
        """Return the tensor as int64."""
        return self.to(int64)

    def bool(self) -> Self:
        """Return the tensor as bools."""
        return self.to(np.bool_)
