"""Sums along axes: as np.add.reduce gives them, but faster where what lies side by side is short, and more accurate."""

import math
from typing import Any

import numpy as np

from .._typing import Axis, NDArray

# Not by its type, which does not know axes as we write them.
_add_reduce: Any = np.add.reduce

#: How many axes np.einsum can tell apart.
MOST_LABELS = 52
#: Elements that float32 sums add one by one, where NumPy does not add pairwise: along axes other than the last.
_BLOCK = 64
#: Fewer elements than this are NumPy's: so many may be added one by one.
FEW = 8 * _BLOCK
#: Up to how many elements side by side np.einsum is faster, which calls less for each of them, ...
_SHORT = 128
#: ... and from how many elements in all.
_MANY = 2048


def add_reduce(x: Any, axis: Axis, keepdims: bool) -> Any:
    """Return sums of an array over an axis, several, or all."""
    if axis is None or not isinstance(x, np.ndarray) or x.size < FEW or x.ndim < 2 or x.dtype.char not in "fd":
        return _add_reduce(x, axis=axis, keepdims=keepdims)
    axes = {a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)) if -x.ndim <= a < x.ndim}
    if len(axes) != (len(axis) if isinstance(axis, tuple) else 1) or not axes:
        return _add_reduce(x, axis=axis, keepdims=keepdims)  # There is nothing to sum, or it raises.
    if x.size >= _MANY and x.ndim <= MOST_LABELS:
        side_by_side = min((a for a in range(x.ndim) if x.shape[a] > 1), key=lambda a: abs(x.strides[a]))
        # Both add one by one then, or there is little to add.
        is_plain = x.dtype.char == "d" and side_by_side not in axes
        if x.shape[side_by_side] <= _SHORT and (is_plain or math.prod(x.shape[a] for a in axes) <= _SHORT):
            kept = [a for a in range(x.ndim) if a not in axes]
            out = np.asarray(np.einsum(x, range(x.ndim), kept))
            # It says nothing about overflow, which np.errstate may ask for.
            if np.isfinite(out).all():
                return out.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else out
    if x.dtype.char == "f":
        for a in axes:
            if x.shape[a] >= FEW and x.strides[a] > x.itemsize:
                return _sum_by_blocks(x, a, axis, keepdims)
    return _add_reduce(x, axis=axis, keepdims=keepdims)


def _sum_by_blocks(x: NDArray, long: int, axis: Axis, keepdims: bool) -> Any:
    """Sum the blocks of axis `long`, then their sums along it, then along the other axes."""
    count = x.shape[long] // _BLOCK
    before = (slice(None),) * long
    blocks = x[(*before, slice(count * _BLOCK))]
    blocks = blocks.reshape((*x.shape[:long], count, _BLOCK, *x.shape[long + 1 :]))
    sums = _add_reduce(blocks, axis=long + 1)
    rest = _add_reduce(x[(*before, slice(count * _BLOCK, None))], axis=long, keepdims=True)
    return add_reduce(np.concatenate((sums, rest), axis=long), axis, keepdims)


def dot_channels(a: NDArray, b: NDArray) -> NDArray:
    """Return the sum of the products of two arrays for each index of axis 1 of three."""
    if a.dtype.char != "f" or len(a) < FEW:
        return np.asarray(np.einsum("ncs,ncs->c", a, b))
    # One by one along axis 0 would be too many for float32.
    count = len(a) // _BLOCK
    blocks = [x[: count * _BLOCK].reshape((count, _BLOCK, *x.shape[1:])) for x in (a, b)]
    sums = add_reduce(np.einsum("kncs,kncs->kc", *blocks), 0, False)
    return np.asarray(sums + np.einsum("ncs,ncs->c", a[count * _BLOCK :], b[count * _BLOCK :]))
