"""Sums of half numbers, correctly rounded: added up in float64, which holds them exactly or nearly so, rounded once."""

import math
from typing import Any

import numpy as np

from .._typing import Axis, Dtype, NDArray
from ..dtypes import bfloat16, float16

# Not by its type, which does not know axes as we write them.
_add_reduce: Any = np.add.reduce

#: The half types, compared and not hashed: where this code is pasted elsewhere, they are NumPy's types.
HALVES = (float16, bfloat16)

#: So many float16 numbers add up exactly in float64, whatever they are: 2**12 times 2**16, in steps of 2**-24.
_EXACT = 4096


def sum_of_halves(x: NDArray, axis: Axis, keepdims: bool) -> NDArray:
    """Return the sums of a half array over `axis`, in its dtype; inf where that overflows."""
    if axis is None and x.size > _EXACT:
        total = np.asarray(_sum_of_all(x.reshape(-1)))
        return rounded(total.reshape((1,) * x.ndim) if keepdims else total, x.dtype)
    return rounded(np.asarray(_add_reduce(x, axis=axis, keepdims=keepdims, dtype=np.float64)), x.dtype)


def _sum_of_all(x: NDArray) -> float:
    cut = x.size // _EXACT * _EXACT
    parts = _add_reduce(x[:cut].reshape(-1, _EXACT), axis=1, dtype=np.float64)
    rest = _add_reduce(x[cut:], dtype=np.float64)
    if not np.isfinite(parts).all():
        return float(parts.sum() + rest)
    return math.fsum((*parts.tolist(), float(rest)))


def rounded(x: NDArray, dtype: Dtype) -> NDArray:
    """Return a float64 array in a half dtype, rounded to nearest and ties to even, once."""
    if dtype != bfloat16:
        return x.astype(dtype)
    # By way of float32, which must not round to a tie: what it cannot hold is cut off, and leaves an odd last bit.
    near = x.astype(np.float32)
    exact = near.astype(np.float64)
    bits = near.view(np.int32)
    is_inexact = np.isfinite(near) & (exact != x)
    odd = (bits - (np.abs(exact) > np.abs(x))) | 1
    return np.where(is_inexact, odd, bits).astype(np.int32).view(np.float32).astype(dtype)
