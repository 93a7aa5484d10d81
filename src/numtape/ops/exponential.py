"""Exponentials, logarithms and what is made of them."""

import numpy as np

from .._typing import Array
from ..core.declare import elementwise
from .samples import unary_samples


@elementwise(
    np.exp,
    partials=dict(x=lambda g, out: g * out),
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.exp,
    samples=unary_samples(),
)
def exp(x: Array, /) -> Array:
    """Return e to the power of x, elementwise.

    Example:
        >>> nt.exp(np.array([0.0, 1.0]))
        array([1.        , 2.71828183])
    """


@elementwise(
    np.log,
    partials=dict(x=lambda g, x: g / x),
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.log,
    samples=unary_samples(0.2, 3.0),
)
def log(x: Array, /) -> Array:
    """Return the natural logarithm, elementwise; -inf at 0 and NaN below.

    Example:
        >>> nt.log(np.array([1.0, np.e]))
        array([0., 1.])
    """
