"""Sums of half numbers, correctly rounded: added up in float64, and rounded once.

How much a float64 sum may be off is known from the largest number. Most sums are so far from the middle between two
half numbers that it does not matter. Others are cut into layers that add up without error (the extraction of Rump,
Ogita and Oishi), block by block, and the sums of the layers are added with their errors.
"""

import math
from typing import Any

import numpy as np

from .._typing import Axis, Dtype, NDArray
from ..dtypes import bfloat16, float16

# Not by its type, which does not know axes as we write them.
_add_reduce: Any = np.add.reduce

#: The half types, compared and not hashed: where this code is pasted elsewhere, they are NumPy's types.
HALVES = (float16, bfloat16)

#: So many float16 numbers add up exactly in float64, whatever they are: 2**13 times 2**16, in steps of 2**-24.
_EXACT = 8192
#: Sums over all of an array are those of rows of so many numbers: no number goes through many additions.
_ROW = 4096
#: The numbers of a block that is cut into layers: a float64 each, they stay in the cache.
_BLOCK = 1 << 16


def sum_of_halves(x: NDArray, axis: Axis, keepdims: bool) -> NDArray:
    """Return the sums of a half array over `axis`, in its dtype; inf where that overflows."""
    if axis is None and x.size > 2 * _ROW and (x.flags.c_contiguous or x.flags.f_contiguous):
        plain = _sum_by_rows(x.ravel(order="K")).reshape((1,) * x.ndim if keepdims else ())
        count, additions = x.size, _ROW + x.size // _ROW + 2
    else:
        plain = np.asarray(_add_reduce(x, axis=axis, keepdims=keepdims, dtype=np.float64))
        count = additions = x.size // plain.size if plain.size else 0
        if count < 2 or (count <= _EXACT and x.dtype != bfloat16):
            return rounded(plain, x.dtype)
    # Each addition is off by 2**-53 of a sum that is at most `count` times the largest number; twice that to be sure.
    error = 2.0**-52 * additions * count * _largest(x)
    is_sure = (rounded(plain - error, x.dtype) == rounded(plain + error, x.dtype)) | ~np.isfinite(plain)
    if not is_sure.all():
        exact, near = _exact_sums(_lanes_of(x, axis, ~is_sure)), plain[~is_sure]
        plain[~is_sure] = np.where(exact == near, near, exact)  # The sign of a zero is right already.
    return rounded(plain, x.dtype)


def _sum_by_rows(flat: NDArray) -> NDArray:
    """Return the sum of a vector in float64, by rows."""
    whole = flat.size // _ROW * _ROW
    rows = _add_reduce(flat[:whole].reshape(-1, _ROW), axis=1, dtype=np.float64)
    total: NDArray = np.asarray(_add_reduce(rows) + _add_reduce(flat[whole:], dtype=np.float64))
    return total


def _largest(x: NDArray) -> float:
    """Return the largest absolute value of those that are finite, or more."""
    # As integers, half numbers above 0 are ordered, and those below 0 as unsigned ones.
    above, below = int(x.view(np.int16).max()), int(x.view(np.uint16).max())
    pattern = max(above, below & 0x7FFF if below > 0x7FFF else 0, 0)
    infinite = 0x7F80 if x.dtype == bfloat16 else 0x7C00
    found = np.array(min(pattern, infinite - 1), np.uint16).view(x.dtype)
    return float(found)


def _lanes_of(x: NDArray, axis: Axis, chosen: NDArray) -> NDArray:
    """Return the numbers behind chosen sums over `axis`, in a row for each."""
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [each % x.ndim for each in given]
    kept = [each for each in range(x.ndim) if each not in axes]
    moved = x.transpose([*kept, *axes])
    if not chosen.all():
        moved = moved[chosen.reshape([x.shape[each] for each in kept])]
    lanes: NDArray = moved.reshape(np.count_nonzero(chosen), -1)
    return lanes


def _exact_sums(lanes: NDArray) -> NDArray:
    """Return the sums of rows of finite half numbers in float64, rounded to odd."""
    size, count = lanes.shape
    bits = (count + 1).bit_length()
    first = math.frexp(_largest(lanes))[1]
    # Halves are multiples of their smallest number; each layer takes the bits of float64 that are left for it.
    layers = (first - (-133 if lanes.dtype == bfloat16 else -24)) // (53 - bits) + 2
    totals = [np.zeros(size) for _ in range(layers)]
    columns = min(count, _BLOCK)
    rows = max(1, _BLOCK // columns)
    for i in range(0, size, rows):
        for j in range(0, count, columns):
            rest = lanes[i : i + rows, j : j + columns].astype(np.float64)
            exponent = first
            for total in totals:
                # Adding this rounds to so few digits that `count` of them add up exactly; subtracting it leaves them.
                cut = 2.0 ** (exponent + bits)
                layer = rest + cut
                layer -= cut
                total[i : i + rows] += _add_reduce(layer, axis=1)
                rest -= layer
                if not rest.any():
                    break
                exponent += bits - 53
    return _sum_to_odd(totals)


def _sum_to_odd(terms: list[NDArray]) -> NDArray:
    """Return the sum of float64 arrays; what it cannot hold is cut off, and leaves an odd last bit.

    An odd bit so far behind is no tie of a shorter type, so that rounding it again is as good as rounding once.
    """
    changes = len(terms) > 1
    while changes:
        # Each sum takes the place of its larger term and its error that of the other, until nothing moves.
        changes = False
        for i in range(len(terms) - 1, 0, -1):
            a, b = terms[i - 1], terms[i]
            total = a + b
            part = total - a
            terms[i - 1], terms[i] = total, (a - (total - part)) + (b - part)
            changes = changes or bool((total != a).any())
    if len(terms) == 1:
        return terms[0]
    near, error = terms[:2]
    bits = near.view(np.int64)
    odd = (bits - ((near > 0.0) != (error > 0.0))) | 1
    return np.where(error != 0.0, odd, bits).view(np.float64)


def rounded(x: NDArray, dtype: Dtype) -> NDArray:
    """Return a float64 array in a half dtype, rounded to nearest and ties to even, once."""
    if dtype != bfloat16:
        with np.errstate(over="ignore"):  # Infinity is right.
            return x.astype(dtype)
    # By way of float32, which must not round to a tie: what it cannot hold is cut off, and leaves an odd last bit.
    near = x.astype(np.float32)
    exact = near.astype(np.float64)
    bits = near.view(np.int32)
    is_inexact = np.isfinite(near) & (exact != x)
    odd = (bits - (np.abs(exact) > np.abs(x))) | 1
    return np.where(is_inexact, odd, bits).astype(np.int32).view(np.float32).astype(dtype)
