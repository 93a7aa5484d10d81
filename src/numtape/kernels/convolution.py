"""Convolutions of arrays in any number of dimensions: windows laid out as the columns of matrices, then products.

Shapes: x is (N, C_in, *size), weight (C_out, C_in / groups, *kernel), out (N, C_out, *out_size). Padding is a pair
(before, after) for each axis of `size`; stride and dilation are a number for each.

The matrices are made for a block of samples at a time, in a buffer that stays in the cache and is used again. One
product per sample writes the output in its own layout; where a sample has few windows, the samples of a block are
merged into one product, whose result is then transposed.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .._typing import Dtype, NDArray, Shape

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

#: Bytes of the columns of a block: about the second-level cache.
_BLOCK_BYTES = 1 << 20
#: A merged product has at least this many columns, so that reading the weight pays.
_MERGED_COLUMNS = 1024


class Convolution(NamedTuple):
    """What a convolution is, but for the values."""

    x: Shape
    weight: Shape
    out: Shape
    dtype: Dtype
    stride: Ints
    padding: Pairs
    dilation: Ints
    groups: int

    def work(self) -> int:
        """Return how many multiplications it takes, which is the same for both of its transposes."""
        return math.prod(self.out) * math.prod(self.weight[1:])


def out_size(size: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Ints:
    """Return how many windows there are along each axis."""
    return tuple(
        (n + before + after - d * (k - 1) - 1) // s + 1
        for n, k, s, (before, after), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def taps(
    size: Ints, windows: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints
) -> Iterator[tuple[Ints, tuple[slice, ...], tuple[slice, ...]]]:
    """Yield for each place in the kernel: the place, which windows have it inside of the input, and where there."""
    axes = [
        [_tap(a, *axis) for a in range(k)]
        for k, axis in zip(kernel, zip(size, windows, stride, padding, dilation, strict=True), strict=True)
    ]
    for places in product(*axes):
        yield tuple(p[0] for p in places), tuple(p[1] for p in places), tuple(p[2] for p in places)


def _tap(
    place: int, size: int, windows: int, stride: int, padding: tuple[int, int], dilation: int
) -> tuple[int, slice, slice]:
    # Window i has the place at i * stride + shift.
    shift = place * dilation - padding[0]
    first = max(0, -(shift // stride))
    stop = max(first, min(windows, (size - 1 - shift) // stride + 1))
    start = first * stride + shift
    return place, slice(first, stop), slice(start, start + max(0, (stop - first - 1) * stride + 1), stride)


def conv(
    x: NDArray, weight: NDArray, bias: NDArray | None, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the sum over channels and kernel places of weight times input, for each window, plus `bias`."""
    count, channels, kernel = len(x), len(weight), weight.shape[2:]
    windows = out_size(x.shape[2:], kernel, stride, padding, dilation)
    rows = math.prod(weight.shape[1:])
    is_merged = 2 * math.prod(windows) < rows
    matrix = weight.reshape(groups, channels // groups, rows)
    is_direct = _is_pointwise(kernel, stride, padding) and not is_merged
    if bias is not None and not is_direct:
        # A row of ones below the columns adds the bias within the product.
        matrix = np.concatenate([matrix, bias.reshape(groups, channels // groups, 1)], axis=-1)
    has_ones = matrix.shape[-1] > rows
    out = np.empty((count, groups, channels // groups, math.prod(windows)), x.dtype)
    for part, columns in _blocks(x, kernel, windows, stride, padding, dilation, groups, is_merged, has_ones):
        if is_merged:
            out[part] = _split(np.matmul(matrix, columns), part)
        else:
            np.matmul(matrix, columns, out=out[part])
    if bias is not None and is_direct:
        out += bias.reshape(groups, channels // groups, 1)
    return out.reshape(count, channels, *windows)


def conv_weight(
    x: NDArray, y: NDArray, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the transpose of `conv` by weight: for each place in the kernel, the sum of input times output."""
    count, channels, windows = len(y), y.shape[1], y.shape[2:]
    rows = x.shape[1] // groups * math.prod(kernel)
    is_merged = math.prod(windows) < 2 * rows
    y = y.reshape(count, groups, channels // groups, math.prod(windows))
    total = np.zeros((groups, channels // groups, rows), x.dtype)
    for part, columns in _blocks(x, kernel, windows, stride, padding, dilation, groups, is_merged):
        if is_merged:
            total += np.matmul(_merge(y[part]), columns.swapaxes(-1, -2))
        else:
            total += np.matmul(y[part], columns.swapaxes(-1, -2)).sum(axis=0)
    return total.reshape(channels, x.shape[1] // groups, *kernel)


def conv_input(
    y: NDArray, weight: NDArray, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the transpose of `conv` by input, of the given size."""
    channels, kernel = weight.shape[0] // groups, weight.shape[2:]
    # With stride 1 it is itself a convolution, with the kernel reversed. Copying windows of the output's channels
    # costs about half as much as adding up windows of the input's.
    if set(stride) <= {1} and (channels <= 2 * weight.shape[1] or set(kernel) <= {1}):
        reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        around = tuple((r - before, r - after) for r, (before, after) in zip(reach, padding, strict=True))
        return conv(y, _reversed(weight, groups), None, stride, around, dilation, groups)
    return _add_windows(y, weight, size, stride, padding, dilation, groups)


def _reversed(weight: NDArray, groups: int) -> NDArray:
    """Return a weight with input and output channels exchanged and the kernel reversed along each axis."""
    each = weight.reshape(groups, len(weight) // groups, *weight.shape[1:]).swapaxes(1, 2)
    each = np.flip(each, tuple(range(3, each.ndim)))
    return each.reshape(groups * weight.shape[1], len(weight) // groups, *weight.shape[2:])


def _add_windows(
    y: NDArray, weight: NDArray, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the transpose of `conv` by input: columns by one product per block, added up place by place."""
    count, windows, kernel = len(y), y.shape[2:], weight.shape[2:]
    inputs, outputs = weight.shape[1], len(weight) // groups
    rows = inputs * math.prod(kernel)
    is_merged = 2 * math.prod(windows) < rows
    matrix = weight.reshape(groups, outputs, rows).swapaxes(-1, -2)
    y = y.reshape(count, groups, outputs, math.prod(windows))
    x = np.zeros((count, groups, inputs, *size), y.dtype)
    places = list(taps(size, windows, kernel, stride, padding, dilation))
    for part in _parts(count, groups * rows, math.prod(windows), y.itemsize, is_merged):
        columns = _split(np.matmul(matrix, _merge(y[part])), part) if is_merged else np.matmul(matrix, y[part])
        columns = columns.reshape(len(columns), groups, inputs, *kernel, *windows)
        for place, inside, where in places:
            x[(part, slice(None), slice(None), *where)] += columns[(slice(None),) * 3 + place + inside]
    return x.reshape(count, groups * inputs, *size)


def _merge(samples: NDArray) -> NDArray:
    """Lay the columns of all samples side by side: (n, groups, rows, columns) to (groups, rows, n * columns)."""
    return np.moveaxis(samples, 0, 2).reshape(*samples.shape[1:3], -1)


def _split(merged: NDArray, part: slice) -> NDArray:
    """Undo `_merge`, as a view."""
    return np.moveaxis(merged.reshape(*merged.shape[:2], part.stop - part.start, -1), 2, 0)


def _parts(count: int, rows: int, columns: int, item_bytes: int, is_merged: bool) -> Iterator[slice]:
    """Yield the samples block by block."""
    step = _BLOCK_BYTES // max(1, rows * columns * item_bytes)
    if is_merged:
        step = max(step, _MERGED_COLUMNS // max(1, columns))
    step = max(1, step)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _is_pointwise(kernel: Ints, stride: Ints, padding: Pairs) -> bool:
    """Say whether each window is one element and each element a window: then the input is the matrix."""
    return set(kernel) <= {1} and set(stride) <= {1} and not any(n for pair in padding for n in pair)


def _blocks(
    x: NDArray,
    kernel: Ints,
    windows: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    is_merged: bool,
    has_ones: bool = False,
) -> Iterator[tuple[slice, NDArray]]:
    """Yield blocks of samples and their windows as columns, which are good until the next step.

    Their shape is (n, groups, rows, columns) or, merged, (groups, rows, n * columns); `has_ones` adds a row of ones.
    """
    count, channels = len(x), x.shape[1] // groups
    rows, columns = channels * math.prod(kernel), math.prod(windows)
    if _is_pointwise(kernel, stride, padding) and not is_merged:
        yield slice(0, count), x.reshape(count, groups, channels, columns)
        return
    view = _view(_pad(x, padding), kernel, windows, stride, dilation, groups)
    if is_merged:
        view = np.moveaxis(view, 0, 2 + len(kernel))
    height = rows + has_ones
    parts = list(_parts(count, groups * height, columns, x.itemsize, is_merged))
    longest = parts[0].stop if parts else 0
    buffer = np.empty(groups * height * columns * longest, x.dtype)
    for part in parts:
        length = part.stop - part.start
        block = buffer[: groups * height * columns * length].reshape(
            (groups, height, length * columns) if is_merged else (length, groups, height, columns)
        )
        source = view[(slice(None),) * (2 + len(kernel)) + (part,)] if is_merged else view[part]
        # Only axes are split, so this is a view of the block.
        block[..., :rows, :].reshape(source.shape)[...] = source
        block[..., rows:, :] = 1
        yield part, block


def _view(x: NDArray, kernel: Ints, windows: Ints, stride: Ints, dilation: Ints, groups: int) -> NDArray:
    """Return all windows without copying: (N, groups, channels, *kernel, *windows)."""
    sample, channel, *steps = x.strides
    channels = x.shape[1] // groups
    along_kernel = [d * step for d, step in zip(dilation, steps, strict=True)]
    along_windows = [s * step for s, step in zip(stride, steps, strict=True)]
    return as_strided(
        x,
        (len(x), groups, channels, *kernel, *windows),
        (sample, channels * channel, channel, *along_kernel, *along_windows),
        writeable=False,
    )


def _pad(x: NDArray, padding: Sequence[tuple[int, int]]) -> NDArray:
    """Return `x` with zeros around it, or without what negative padding cuts off."""
    if not any(n for pair in padding for n in pair):
        return x
    size = x.shape[2:]
    cut = tuple(slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(size, padding, strict=True))
    x = x[(slice(None), slice(None), *cut)]
    if all(n <= 0 for pair in padding for n in pair):
        return x
    grown = tuple(n + b + a for n, (b, a) in zip(size, padding, strict=True))
    padded = np.zeros((*x.shape[:2], *grown), x.dtype)
    inner = tuple(slice(max(0, b), max(0, b) + n) for n, (b, _) in zip(x.shape[2:], padding, strict=True))
    padded[(slice(None), slice(None), *inner)] = x
    return padded
