"""Maxima and sums over the windows of the last axes of arrays, and their transposes.

Maxima and sums are taken axis by axis: k + k steps for a kernel of k by k. A maximum's place is found afterwards, by
counting the places before it that differ from it.
"""

import functools
import math
from typing import Any

import numpy as np

from .._typing import NDArray
from .convolution import Ints, Pairs, out_size, taps


def max_pool(x: NDArray, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> NDArray:
    """Return the largest element of each window; NaN if there is one."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    first = x.ndim - len(kernel)
    for axis, place in enumerate(zip(kernel, stride, padding, dilation, strict=True), first):
        x = _along(np.maximum, x, axis, lowest, *place)
    return x


def window_sum(x: NDArray, kernel: Ints, stride: Ints, padding: Pairs) -> NDArray:
    """Return the sum of each window; what lies outside of `x` counts as 0."""
    first = x.ndim - len(kernel)
    if x.shape[first:] == kernel and not any(n for pair in padding for n in pair):
        return np.asarray(x.sum(axis=tuple(range(first, x.ndim)), keepdims=True))
    for axis, place in enumerate(zip(kernel, stride, padding, strict=True), first):
        x = _along(np.add, x, axis, 0, *place, 1)
    return x


def _along(
    combine: np.ufunc,
    x: NDArray,
    axis: int,
    start: float,
    kernel: int,
    stride: int,
    padding: tuple[int, int],
    dilation: int,
) -> NDArray:
    """Combine the elements of each window of one axis; `start` is what combining leaves unchanged."""
    windows = out_size((x.shape[axis],), (kernel,), (stride,), (padding,), (dilation,))
    shape = (*x.shape[:axis], *windows, *x.shape[axis + 1 :])
    before = (slice(None),) * axis
    places = taps((x.shape[axis],), windows, (kernel,), (stride,), (padding,), (dilation,))
    parts = [(out, x[before + where]) for _, out, where in places]
    if len(parts) > 1 and parts[0][1].shape == parts[1][1].shape == shape:
        out = combine(parts[0][1], parts[1][1])
        parts = parts[2:]
    else:
        out = np.full(shape, start, x.dtype)
    for inside, source in parts:
        target = out[before + inside]
        combine(target, source, out=target)
    return np.asarray(out)


def spread_sum(y: NDArray, size: Ints, kernel: Ints, stride: Ints, padding: Pairs) -> NDArray:
    """Return the transpose of `window_sum`: each element of `x` gets the sum of the windows that it is in."""
    first = y.ndim - len(kernel)
    if size == kernel and not any(n for pair in padding for n in pair):
        # One window, and it holds everything.
        return np.broadcast_to(y, (*y.shape[:first], *size)).copy()
    for axis, n in enumerate(size, first):
        i = axis - first
        before = (slice(None),) * axis
        x = np.zeros((*y.shape[:axis], n, *y.shape[axis + 1 :]), y.dtype)
        for _, inside, where in taps((n,), (y.shape[axis],), (kernel[i],), (stride[i],), (padding[i],), (1,)):
            if stride[i] >= kernel[i]:
                x[before + where] = y[before + inside]
            else:
                x[before + where] += y[before + inside]
        y = x
    return y


def max_places(x: NDArray, best: NDArray, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> NDArray:
    """Return where in the last axes, counted in one row, each window has its maximum `best` first."""
    size = x.shape[x.ndim - len(kernel) :]
    windows = best.shape[x.ndim - len(kernel) :]
    has_nan = x.dtype.kind == "f" and bool(np.isnan(best).any())
    places = list(taps(size, windows, kernel, stride, padding, dilation))
    # As long as no place was the maximum's, each adds one to the count. If none before was, the last place is.
    is_left: Any = np.ones(best.shape, bool)
    count: Any = np.zeros(best.shape, np.uint8 if len(places) <= 256 else np.int64)
    before = (slice(None),) * (x.ndim - len(kernel))
    for _, inside, where in places[:-1]:
        source: Any = x[before + where]
        differs: Any = source != best[before + inside]
        if has_nan:
            differs &= source == source
        is_left[before + inside] &= differs
        count += is_left
    steps = [math.prod(size[i + 1 :]) for i in range(len(size))]
    # The position is that of the window's first place, which padding may put outside, and from there to the maximum.
    shifts = np.array([_shift(place, dilation, steps) for place, _, _ in places])
    position: NDArray = shifts.take(count)  # Twice as fast as an index.
    along = zip(windows, stride, padding, steps, strict=True)
    starts = [(np.arange(n) * s - front) * step for n, s, (front, _), step in along]
    position += functools.reduce(np.add.outer, starts)
    return position


def _shift(place: Ints, dilation: Ints, steps: list[int]) -> int:
    """Return how far a place of the kernel is from its first one."""
    return sum(a * d * step for a, d, step in zip(place, dilation, steps, strict=True))


def take_places(x: NDArray, index: NDArray, rank: int) -> NDArray:
    """Return the elements at positions in the last `rank` axes, counted in one row."""
    lead = x.shape[: x.ndim - rank]
    rows = math.prod(lead)
    shape = (*lead, *index.shape[index.ndim - rank :])
    position = np.broadcast_to(index, shape).reshape(rows, math.prod(shape[len(lead) :]))
    flat = x.reshape(rows, math.prod(x.shape[len(lead) :]))
    return np.take_along_axis(flat, position, axis=1).reshape(shape)


def put_places(y: NDArray, index: NDArray, size: Ints, may_repeat: bool) -> NDArray:
    """Return the transpose of `take_places`: zeros with the elements added at their positions."""
    lead = y.shape[: y.ndim - len(size)]
    rows, plane = math.prod(lead), math.prod(size)
    position = np.broadcast_to(index, y.shape).reshape(rows, math.prod(y.shape[len(lead) :]))
    position = (position + (np.arange(rows) * plane)[:, None]).reshape(-1)
    if may_repeat:
        x = np.bincount(position, y.reshape(-1), rows * plane).astype(y.dtype)
    else:
        x = np.zeros(rows * plane, y.dtype)
        x[position] = y.reshape(-1)
    return x.reshape(*lead, *size)
