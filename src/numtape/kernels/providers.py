"""Which library runs matrix products and convolutions: chosen here, once, for all ops."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from .._typing import Dtype, NDArray
from ..dtypes import HALF_DTYPES
from .halves import to_float32, to_half

_pinned: ContextVar[str | None] = ContextVar("numtape_pinned_provider", default=None)


@contextmanager
def pinned(name: str) -> Iterator[None]:
    """Let one provider, "numpy" or "onednn", run everything within the scope, whatever is faster."""
    token = _pinned.set(name)
    try:
        yield
    finally:
        _pinned.reset(token)


def matmul(a: NDArray, b: NDArray, dtype: Dtype | None = None) -> NDArray:
    """Return ``a @ b`` of arrays of one dtype; halves are added up in float32 and rounded once.

    Args:
        a: of shape (..., m, k).
        b: of shape (..., k, n).
        dtype: of the result, for halves: float32, or None for their own.
    """
    if a.dtype not in HALF_DTYPES:
        return np.matmul(a, b)
    product = np.matmul(to_float32(a), to_float32(b))
    return product if dtype is not None and dtype != a.dtype else to_half(product, a.dtype)
