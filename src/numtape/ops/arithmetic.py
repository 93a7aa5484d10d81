"""Arithmetic: sums, products, quotients, powers, roots and their like."""

import numpy as np

from .._typing import Array
from ..core.declare import elementwise
from ..core.op import ZERO
from .comparisons import equal, greater
from .exponential import log
from .samples import binary_samples, does_not_broadcast, sample, unary_samples, values
from .selection import where


@elementwise(
    np.add,
    partials=dict(a=lambda g: g, b=lambda g: g),
    linear=("a", "b"),
    numpy=np.add,
    samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("add")),
)
def add(a: Array, b: Array, /) -> Array:
    """Return ``a + b``, elementwise.

    Example:
        >>> nt.add(np.array([1.0, 2.0]), 3.0)
        array([4., 5.])
    """


@elementwise(
    np.multiply,
    partials=dict(a=lambda g, b: g * b, b=lambda g, a: g * a),
    linear=("a", "b"),
    numpy=np.multiply,
    also=("multiply",),
    samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("mul")),
)
def mul(a: Array, b: Array, /) -> Array:
    """Return ``a * b``, elementwise.

    Example:
        >>> nt.mul(np.array([1.0, 2.0]), 3.0)
        array([3., 6.])
    """


@elementwise(
    np.subtract,
    partials=dict(a=lambda g: g, b=lambda g: -g),
    linear=("a", "b"),
    numpy=np.subtract,
    also=("subtract",),
    samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("sub")),
)
def sub(a: Array, b: Array, /) -> Array:
    """Return ``a - b``, elementwise.

    Example:
        >>> nt.sub(np.array([1.0, 2.0]), 3.0)
        array([-2., -1.])
    """


@elementwise(
    np.divide,
    partials=dict(a=lambda g, b: g / b, b=lambda g, out, b: -g * out / b),
    linear=("a",),
    to_float=True,
    numpy=np.divide,
    also=("divide", "true_divide"),
    samples=binary_samples((-2, 2), (0.5, 2), does_not_broadcast("div")),
)
def div(a: Array, b: Array, /) -> Array:
    """Return ``a / b``, elementwise; a quotient of integers is a float of the default dtype.

    Example:
        >>> nt.div(np.array([1.0, 2.0]), 4.0)
        array([0.25, 0.5 ])
    """


@elementwise(
    np.negative,
    partials=dict(x=lambda g: -g),
    linear=("x",),
    numpy=np.negative,
    also=("negative",),
    samples=unary_samples(),
)
def neg(x: Array, /) -> Array:
    """Return ``-x``, elementwise.

    Example:
        >>> nt.neg(np.array([1.0, -2.0]))
        array([-1.,  2.])
    """


def _pow_a(g: Array, a: Array, b: Array) -> Array:
    # d(a**b) = b a**(b-1) da; for b = 0 the product is 0 even where a**(b-1) is infinite.
    if isinstance(b, float | int) or not b.shape and not hasattr(b, "node"):
        return g * (b * pow(a, b - 1.0)) if b != 0 else g * 0.0
    return g * where(equal(b, 0.0), 0.0, b * pow(a, where(equal(b, 0.0), 1.0, b - 1.0)))


def _pow_b(g: Array, a: Array, out: Array) -> Array:
    # d(a**b) = a**b log(a) db; at a = 0 the limit is 0.
    safe = where(greater(a, 0.0), a, 1.0)
    return g * out * where(equal(a, 0.0), 0.0, where(greater(a, 0.0), log(safe), np.nan))


@elementwise(
    partials=dict(a=_pow_a, b=_pow_b),
    flops=16,
    numpy=np.power,
    also=("power",),
    samples=binary_samples(
        (0.5, 2),
        (-2, 2),
        does_not_broadcast("pow"),
        sample(values(3, low=-2, high=2), 2),
        sample(values(3, low=-2, high=2), 3.0),
        sample(values(3, low=-2, high=2), 0),
        sample(values(3, low=0.5, high=2), -1.5),
        sample(2.0, values(3)),
    ),
)
def pow(a: Array, b: Array, /) -> Array:
    """Return ``a ** b``, elementwise.

    The derivative by the exponent is 0 at ``a = 0`` and NaN for negative `a`.

    Example:
        >>> nt.pow(np.array([1.0, 2.0, 3.0]), 2)
        array([1., 4., 9.])
    """
    if not np.ndim(b):
        if b == 2:
            return np.square(a)
        if b == 1:
            return np.positive(a)
    return np.power(a, b)


@elementwise(
    np.absolute,
    partials=dict(x=lambda g, x: g * sign(x)),
    kinks="at 0, where the derivative is taken as 0",
    numpy=np.absolute,
    also=("absolute",),
    samples=unary_samples(-2, 2, avoid=(0,)),
)
def abs(x: Array, /) -> Array:
    """Return the absolute value, elementwise. The derivative at 0 is 0.

    Example:
        >>> nt.abs(np.array([-1.5, 2.0]))
        array([1.5, 2. ])
    """


@elementwise(
    np.sign,
    partials=dict(x=ZERO),
    kinks="at 0, where the derivative is taken as 0",
    numpy=np.sign,
    samples=unary_samples(-2, 2, avoid=(0,)),
)
def sign(x: Array, /) -> Array:
    """Return -1, 0 or 1 by the sign of x, elementwise. The derivative is 0.

    Example:
        >>> nt.sign(np.array([-1.5, 0.0, 2.0]))
        array([-1.,  0.,  1.])
    """
