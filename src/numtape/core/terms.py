"""Which elements meet in which products: the terms of ops that are sums of products over axes or windows.

An op's `terms` fact returns a list of `Terms`; the output is their sum. Sparsity patterns follow: an output element
depends on the operand elements of its terms, and not on those that only meet zeros of a constant.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray, Shape


class Terms(NamedTuple):
    """Products of one element of each operand: flat positions, in arrays that broadcast to one entry for each term."""

    #: Where each term is added in the output.
    out: NDArray
    #: For each operand by its position in the call, the factor of each term.
    factors: dict[int, NDArray]


def contraction(inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable], shapes: Sequence[Shape]) -> Terms:
    """Return the terms of a sum of products, given a name for each axis of the operands and of the output.

    Axes of one name run together, those of length 1 aside; a name that the output lacks is summed over.
    """
    lengths: dict[Hashable, int] = {}
    for names, shape in zip(inputs, shapes, strict=True):
        for name, length in zip(names, shape, strict=True):
            lengths[name] = length if lengths.get(name, 1) == 1 else lengths[name]
    order = list(lengths)

    def places(names: Sequence[Hashable], shape: Shape) -> NDArray:
        flat: Any = np.zeros((1,) * len(order), np.int64)
        stride = 1
        for name, length in zip(reversed(names), reversed(shape), strict=True):
            if length != 1:
                along = [1] * len(order)
                along[order.index(name)] = length
                flat = flat + stride * np.arange(length).reshape(along)
            stride *= length
        total: NDArray = flat
        return total

    out = places(output, tuple(lengths[name] for name in output))
    factors = {i: places(names, shape) for i, (names, shape) in enumerate(zip(inputs, shapes, strict=True))}
    # A name that nobody needs any more still counts its terms where it has no length at all.
    if 0 in lengths.values():
        out = np.zeros((0,) * len(order), np.int64)
        factors = dict.fromkeys(factors, out)
    return Terms(out, factors)


def windows(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> tuple[NDArray, NDArray, NDArray]:
    """Return for each element of each window: the window, the place in the kernel, and the place in what it slides on.

    Places beyond the edges, in the padding, are left out.
    """
    grids = []
    for n, k, s, (before, after), d in zip(size, kernel, stride, padding, dilation, strict=True):
        count = max(0, (n + before + after - d * (k - 1) - 1) // s + 1)
        grids.append(np.arange(count)[:, None] * s + np.arange(k)[None] * d - before)
    counts, rank = tuple(len(grid) for grid in grids), len(grids)
    # Axes: one for each of the windows', then one for each of the kernel's.
    at: Any = np.zeros((1,) * (2 * rank), np.int64)
    is_inside: Any = np.ones((1,) * (2 * rank), bool)
    for axis, (grid, n) in enumerate(zip(grids, size, strict=True)):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = grid.shape
        at = at * n + grid.reshape(shape)
        is_inside = is_inside & ((grid >= 0) & (grid < n)).reshape(shape)
    full = (math.prod(counts), math.prod(kernel))
    is_inside = np.broadcast_to(is_inside, (*counts, *kernel)).reshape(full)
    window, tap = np.nonzero(is_inside)
    return window, tap, np.broadcast_to(at, (*counts, *kernel)).reshape(full)[is_inside]
