"""Sums along axes: as np.add.reduce gives them, but faster where what lies side by side is short, and more accurate."""

import math
from collections.abc import Set
from typing import Any

import numpy as np

from .._typing import Axis, NDArray

# Not by its type, which does not know axes as we write them.
_add_reduce: Any = np.add.reduce

#: How many axes np.einsum can tell apart.
MOST_LABELS = 52
#: How many float32 numbers may be added one by one, as NumPy does but along the axis of neighbours.
FEW = 256
#: The addends of a block, where there are more.
_BLOCK = 64
#: Up to how many elements side by side np.einsum is faster, which calls less for each of them, ...
_SHORT = 128
#: ... and from how many elements in all.
_MANY = 2048


def add_reduce(x: Any, axis: Axis, keepdims: bool) -> Any:
    """Return sums of an array over an axis, several, or all; a tensor sums itself."""
    if not isinstance(x, np.ndarray):
        return x.sum(axis=axis, keepdims=keepdims)
    if x.size <= FEW or x.ndim < (1 if axis is None else 2) or x.dtype.char not in "fd":
        return _add_reduce(x, axis=axis, keepdims=keepdims)
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = {a % x.ndim for a in given if -x.ndim <= a < x.ndim}
    if len(axes) != len(given) or not axes:
        return _add_reduce(x, axis=axis, keepdims=keepdims)  # There is nothing to sum, or it raises.
    out = _by_einsum(x, axes) if x.size >= _MANY and x.ndim <= MOST_LABELS else None
    if out is None and x.dtype.char == "f":
        out = _accurate(x, axes)
    if out is None:
        return _add_reduce(x, axis=axis, keepdims=keepdims)
    return out if keepdims else out.reshape([n for a, n in enumerate(x.shape) if a not in axes])[()]


def _neighbours(x: NDArray) -> int:
    """Return the axis along which elements are next to each other in memory, whatever their order."""
    return min((a for a in range(x.ndim) if x.shape[a] > 1), key=lambda a: abs(x.strides[a]))


def _by_einsum(x: NDArray, axes: Set[int]) -> NDArray | None:
    """Return sums with all axes kept, if np.einsum is faster and as accurate; None otherwise."""
    inner = _neighbours(x)
    # Both add one by one then, or there is little to add.
    is_plain = x.dtype.char == "d" and inner not in axes
    if x.shape[inner] > _SHORT or not (is_plain or math.prod(x.shape[a] for a in axes) <= _SHORT):
        return None
    out = np.asarray(np.einsum(x, range(x.ndim), [a for a in range(x.ndim) if a not in axes]))
    # It says nothing about overflow, which np.errstate may ask for.
    return out.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if np.isfinite(out).all() else None


def _accurate(x: NDArray, axes: Set[int]) -> NDArray:
    """Return float32 sums with all axes kept, of which none adds many numbers one by one."""
    repeated = [a for a in axes if x.strides[a] == 0 and x.shape[a] > 1]
    if repeated:
        once = x[tuple(slice(1) if a in repeated else slice(None) for a in range(x.ndim))]
        sums = _accurate(once, axes) if once.size > FEW else _add_reduce(once, axis=tuple(axes), keepdims=True)
        return np.asarray(sums * np.float32(math.prod(x.shape[a] for a in repeated)))
    inner = _neighbours(x)
    outer = sorted((a for a in axes if a != inner), key=lambda a: x.shape[a])
    if math.prod(x.shape[a] for a in outer) <= FEW:
        return np.asarray(_add_reduce(x, axis=tuple(axes), keepdims=True))
    long = outer[-1]
    sums = _by_blocks(x, long) if x.shape[long] > FEW else _add_reduce(x, axis=long, keepdims=True)
    return np.asarray(add_reduce(sums, tuple(axes), True))


def _by_blocks(x: NDArray, axis: int) -> NDArray:
    """Return the sums of blocks along an axis."""
    count = x.shape[axis] // _BLOCK
    before = (slice(None),) * axis
    blocks = x[(*before, slice(count * _BLOCK))]
    sums = _add_reduce(blocks.reshape((*x.shape[:axis], count, _BLOCK, *x.shape[axis + 1 :])), axis=axis + 1)
    rest = _add_reduce(x[(*before, slice(count * _BLOCK, None))], axis=axis, keepdims=True)
    return np.concatenate((sums, rest), axis=axis)


def dot_channels(a: NDArray, b: NDArray) -> NDArray:
    """Return the sum of the products of two arrays for each index of axis 1 of three."""
    is_near = a.shape[2] == 1 or abs(a.strides[2]) <= min(map(abs, a.strides))
    if a.dtype.char != "f" or (len(a) <= FEW and (is_near or a.shape[0] * a.shape[2] <= FEW)):
        return np.asarray(np.einsum("ncs,ncs->c", a, b))
    # One by one would be too many for float32.
    return np.asarray(add_reduce(a * b, (0, 2), False))


def weighted_sum(weights: NDArray, rows: NDArray) -> NDArray:
    """Return the sum of the rows of a matrix, each times a weight."""
    count = len(rows) // FEW
    if rows.dtype.char != "f" or count < 2:
        return np.asarray(weights @ rows)
    # BLAS adds one by one.
    cut = count * FEW
    sums = weights[:cut].reshape(count, 1, FEW) @ rows[:cut].reshape(count, FEW, rows.shape[1])
    return np.asarray(add_reduce(sums[:, 0], 0, False) + weights[cut:] @ rows[cut:])
