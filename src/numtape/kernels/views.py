"""Views made with less ceremony than NumPy's own functions, which dominate the time of small arrays."""

import math
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray, Shape

#: Up to how many elements are copied in less time than a view takes.
_FEW = 256


def broadcast_view(x: NDArray, shape: Shape) -> NDArray:
    """Return a read-only view of `x` repeated to `shape`, as ``np.broadcast_to`` does at five times the cost."""
    missing = len(shape) - x.ndim
    strides = [0] * missing
    for length, stride, wanted in zip(x.shape, x.strides, shape[missing:], strict=False):
        if length == wanted:
            strides.append(stride)
        elif length == 1:
            strides.append(0)
        else:
            return np.broadcast_to(x, shape)  # Raises NumPy's error.
    if missing < 0 or not x.flags.c_contiguous or not x.size:
        return np.broadcast_to(x, shape)
    view: NDArray = np.ndarray(shape, x.dtype, x, 0, tuple(strides))
    # To set `view.flags.writeable` looks setflags up by a string made anew, which CPython's cache of lookups may keep.
    view.setflags(write=False)
    return view


def is_repeated_by_view(shape: Shape) -> bool:
    """Say whether `repeated` gives a view; fewer elements are copied in less time."""
    return math.prod(shape) > _FEW


def repeated(x: Any, shape: Shape) -> NDArray:
    """Return an array or a NumPy number repeated to `shape`: a read-only view, or a copy of few elements."""
    if is_repeated_by_view(shape):
        return broadcast_view(np.asarray(x), shape)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def extent(shape: Shape, strides: Shape, itemsize: int) -> tuple[int, int]:
    """Return where the bytes of an array begin and end, from its first element on."""
    if 0 in shape:
        return 0, 0
    steps = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + itemsize


def laid_out(x: NDArray, strides: Shape, dtype: Dtype) -> NDArray:
    """Return an array in another dtype and with other strides: itself if it is so, else in memory of its own."""
    if x.strides == strides and x.dtype == dtype:
        return x
    lowest, end = extent(x.shape, strides, dtype.itemsize)
    is_dense = end - lowest == x.size * dtype.itemsize and not lowest
    memory = None if is_dense else np.empty(end - lowest, np.uint8)
    out: NDArray = np.ndarray(x.shape, dtype, memory, -lowest, strides)
    np.copyto(out, x, casting="same_kind")
    return out


def aligned(x: Any) -> Any:
    """Return an array, or a copy if its numbers lie across words: BLAS does not get these, and others add otherwise."""
    return x.copy(order="K") if isinstance(x, np.ndarray) and not x.flags.aligned else x
