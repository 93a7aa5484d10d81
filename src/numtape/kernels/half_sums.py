"""Sums of half numbers, correctly rounded: added up without error in float64, and rounded once.

Half numbers of similar size add up exactly in float64, which is checked by their largest and smallest. Others are cut
into layers that do (the extraction of Rump, Ogita and Oishi), and the sums of the layers are added with their errors.
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
#: Where all numbers do not add up exactly, so many of them may.
_BLOCK = 256


def sum_of_halves(x: NDArray, axis: Axis, keepdims: bool) -> NDArray:
    """Return the sums of a half array over `axis`, in its dtype; inf where that overflows."""
    plain = np.asarray(_add_reduce(x, axis=axis, keepdims=keepdims, dtype=np.float64))
    count = x.size // plain.size if plain.size else 0
    if not _adds_exactly(x, count):
        wide = _sums_of_blocks(x, axis)
        wide[~np.isfinite(wide)] = 0.0
        exact = _exact_sums(wide, wide.size // plain.size, axis, keepdims)
        # What is not finite is right already, and so is the sign of a zero.
        plain = np.where(np.isfinite(plain) & (plain != exact), exact, plain)
    return rounded(plain, x.dtype)


def _adds_exactly(x: NDArray, count: int) -> bool:
    """Say whether any `count` of the numbers add up in float64 without rounding, in any order."""
    is_bfloat16 = x.dtype == bfloat16
    if count < 2 or (count <= _EXACT and not is_bfloat16):
        return True
    digits = 7 if is_bfloat16 else 10
    patterns = np.ascontiguousarray(x).view(np.uint16) & np.uint16(0x7FFF)
    largest = int(patterns.max()) >> digits
    # Zeros do not count: less 1, they wrap around to the largest pattern.
    smallest = (int((patterns - np.uint16(1)).min()) + 1) >> digits
    # Below the smallest normal number, steps are those of the smallest normal numbers.
    bits = largest + 1 - max(smallest, 1) + digits
    return bits + (count - 1).bit_length() <= 53


def _sums_of_blocks(x: NDArray, axis: Axis) -> NDArray:
    """Return fewer numbers in float64 with the same sums over `axis`: those of blocks, where these add up exactly."""
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    longest = max(axes, key=lambda each: x.shape[each])
    length = x.shape[longest]
    if length <= _BLOCK or not _adds_exactly(x, _BLOCK):
        return x.astype(np.float64)
    return np.add.reduceat(x, range(0, length, _BLOCK), axis=longest, dtype=np.float64)


def _exact_sums(x: NDArray, count: int, axis: Axis, keepdims: bool) -> NDArray:
    """Return the sums of float64 numbers, rounded to odd; `x` is used up."""
    layers = []
    while (top := max(float(x.max()), -float(x.min()))) > 0.0:
        # Adding this rounds to so few digits that `count` of them add up exactly; subtracting it leaves them.
        cut = 2.0 ** (math.frexp(top)[1] + (count + 1).bit_length())
        layer = x + cut
        layer -= cut
        x -= layer
        layers.append(np.asarray(_add_reduce(layer, axis=axis, keepdims=keepdims)))
    return _sum_to_odd(layers) if layers else np.asarray(_add_reduce(x, axis=axis, keepdims=keepdims))


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
