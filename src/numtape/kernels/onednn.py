"""oneDNN as a provider: which products and convolutions it can run fast.

Each function returns None for what it leaves to NumPy. The library is loaded by the first call.
"""

import numpy as np

from .._typing import Dtype, NDArray
from ..dtypes import bfloat16, float16, float32
from . import onednn_convolution, onednn_matmul
from .convolution import Convolution
from .halves import converted
from .onednn_library import Library, Refused, library, why_missing

_LEAST_ROWS = 4


def matmul(a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray | None:
    """Return ``a @ b + bias`` in `dtype`, or None; the operands are of one dtype, float32 or half."""
    if not 2 <= a.ndim == b.ndim <= 6 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    # With few rows or columns the time goes into reading the other matrix, which BLAS does in half of it.
    if bias is not None and bias.shape != b.shape[-1:]:
        return None
    if a.dtype != b.dtype or not a.size or min(a.shape[-2], b.shape[-1]) < _LEAST_ROWS:
        return None
    found = _library(a.dtype)
    if found is None or not (onednn_matmul.can_read(a) and onednn_matmul.can_read(b)):
        return None
    if bias is not None:
        bias = np.ascontiguousarray(bias, float32)
    try:
        return onednn_matmul.matmul(found, a, b, bias, dtype)
    except Refused:
        return None


def rounded_matmul(a: NDArray, b: NDArray, bias: NDArray | None) -> NDArray | None:
    """Return ``a @ b + bias`` in float32, of one matrix of float32, which is rounded, and one of bfloat16, or None."""
    if _library(bfloat16) is None:
        return None
    return matmul(converted(a, bfloat16), converted(b, bfloat16), bias, float32)


def conv(what: Convolution, x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray | None:
    """Return the convolution of `x` with `weight`, plus `bias`, or None."""
    found = _library_for(what)
    try:
        return None if found is None else onednn_convolution.forward(found, what, x, weight, bias)
    except Refused:
        return None


def conv_input(what: Convolution, y: NDArray, weight: NDArray) -> NDArray | None:
    """Return the transpose of `conv` by its input, or None."""
    found = _library_for(what)
    try:
        return None if found is None else onednn_convolution.backward_data(found, what, y, weight)
    except Refused:
        return None


def conv_weight(what: Convolution, x: NDArray, y: NDArray) -> NDArray | None:
    """Return the transpose of `conv` by its weight, or None."""
    found = _library_for(what)
    try:
        return None if found is None else onednn_convolution.backward_weights(found, what, x, y)
    except Refused:
        return None


def _library_for(what: Convolution) -> Library | None:
    if not 3 <= len(what.x) <= 5 or any(n < 0 for pair in what.padding for n in pair):
        return None
    return _library(what.dtype) if what.work() else None


def _library(dtype: Dtype) -> Library | None:
    """Return the library if it is there, and fast with `dtype` on this CPU."""
    if why_missing() is not None:
        return None
    found = library()
    if dtype == bfloat16:
        return found if found.has_fast_bfloat16 else None
    if dtype == float16:
        return found if found.has_float16 else None
    return found if dtype == float32 and found.has_vectors else None
