"""Arithmetic: sums, products, quotients, powers, roots and their like."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import Array
from ..core.declare import elementwise
from ..core.op import ZERO, product, same
from ..errors import ArgumentError, OperandError
from ..taylor import quotient
from .bounds import clip as clip
from .bounds import maximum as maximum
from .bounds import minimum as minimum
from .comparisons import equal, isfinite, logical_and
from .exponential import log
from .overflowing import overflows, scaled_down
from .rounding import ceil as ceil
from .rounding import floor as floor
from .rounding import floor_divide as floor_divide
from .rounding import fmod as fmod
from .rounding import remainder as remainder
from .rounding import rint as rint
from .rounding import round as round
from .rounding import trunc as trunc
from .samples import binary_samples, does_not_broadcast, rejected, sample, unary_samples, values
from .selection import where


@elementwise(
    np.add,
    partials={"a": same, "b": same},
    linear=("a", "b"),
    numpy=np.add,
    samples=lambda: binary_samples(
        (-2, 2),
        (-2, 2),
        does_not_broadcast("add"),
        rejected(
            OperandError,
            "add: operand 'b' is of type str; it must be a tensor, an array or a number.",
            np.ones(2),
            "text",
        ),
    ),
)
def add(a: Array, b: Array, /) -> Array:
    """Return ``a + b``, elementwise.

    Example:
        >>> nt.add(np.array([1.0, 2.0]), 3.0)
        array([4., 5.])
    """


@elementwise(
    np.multiply,
    partials={"a": product(lambda g, b: g * b), "b": product(lambda g, a: g * a)},
    linear=("a", "b"),
    numpy=np.multiply,
    also=("multiply",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), does_not_broadcast("mul")),
)
def mul(a: Array, b: Array, /) -> Array:
    """Return ``a * b``, elementwise.

    Example:
        >>> nt.mul(np.array([1.0, 2.0]), 3.0)
        array([3., 6.])
    """


@elementwise(
    np.subtract,
    partials={"a": same, "b": lambda g: -g},
    linear=("a", "b"),
    numpy=np.subtract,
    also=("subtract",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), does_not_broadcast("sub")),
)
def sub(a: Array, b: Array, /) -> Array:
    """Return ``a - b``, elementwise.

    Example:
        >>> nt.sub(np.array([1.0, 2.0]), 3.0)
        array([-2., -1.])
    """


@elementwise(
    np.divide,
    partials={"a": lambda g, b: g / b, "b": lambda g, out, b: -g * out / b},
    linear=("a",),
    series=quotient,
    to_float=True,
    numpy=np.divide,
    also=("divide", "true_divide"),
    domain="b != 0",
    samples=lambda: binary_samples((-2, 2), (0.5, 2), does_not_broadcast("div")),
)
def div(a: Array, b: Array, /) -> Array:
    """Return ``a / b``, elementwise; a quotient of integers is a float of the default dtype.

    Example:
        >>> nt.div(np.array([1.0, 2.0]), 4.0)
        array([0.25, 0.5 ])
    """


@elementwise(
    np.negative,
    partials={"x": lambda g: -g},
    linear=("x",),
    numpy=np.negative,
    also=("negative",),
    samples=lambda: unary_samples(),
)
def neg(x: Array, /) -> Array:
    """Return ``-x``, elementwise.

    Example:
        >>> nt.neg(np.array([1.0, -2.0]))
        array([-1.,  2.])
    """


@elementwise(
    np.positive,
    partials={"x": same},
    linear=("x",),
    numpy=np.positive,
    samples=lambda: unary_samples(),
)
def positive(x: Array, /) -> Array:
    """Return a copy of x, as ``+x`` does.

    Example:
        >>> nt.positive(np.array([1.0, -2.0]))
        array([ 1., -2.])
    """


@elementwise(
    np.square,
    partials={"x": lambda g, x: g * (x + x)},
    precision="widen",
    numpy=np.square,
    samples=lambda: unary_samples(),
)
def square(x: Array, /) -> Array:
    """Return ``x * x``, elementwise.

    Example:
        >>> nt.square(np.array([1.0, -2.0]))
        array([1., 4.])
    """


@elementwise(
    np.sqrt,
    partials={"x": lambda g, out: g * 0.5 / out},
    flops=4,
    to_float=True,
    numpy=np.sqrt,
    domain="x >= 0",
    samples=lambda: unary_samples(
        0.2, 3.0, sample(np.array([0.0, -1.0, np.inf]), skip_derivatives="outside of the domain")
    ),
)
def sqrt(x: Array, /) -> Array:
    """Return the square root, elementwise; NaN below 0. The derivative at 0 is inf.

    Example:
        >>> nt.sqrt(np.array([1.0, 4.0]))
        array([1., 2.])
    """


@elementwise(
    # d x**(-1/2) = -1/2 x**(-3/2) dx
    partials={"x": lambda g, out: g * (square(out) * out * -0.5)},
    flops=5,
    to_float=True,
    precision="widen",
    reference=lambda x: np.power(x, -0.5),
    domain="x > 0",
    samples=lambda: unary_samples(0.2, 3.0),
)
def rsqrt(x: Array, /) -> Array:
    """Return ``1 / sqrt(x)``, elementwise; inf at 0 and NaN below.

    Example:
        >>> nt.rsqrt(np.array([1.0, 4.0]))
        array([1. , 0.5])
    """
    return _inverse_sqrt(x)


@elementwise(
    np.cbrt,
    partials={"x": lambda g, out: g / (square(out) * 3.0)},
    flops=20,
    to_float=True,
    numpy=np.cbrt,
    samples=lambda: unary_samples(-2, 2, avoid=(0,)),
    kinks="at 0, where the derivative is inf",
)
def cbrt(x: Array, /) -> Array:
    """Return the cube root, elementwise; that of a negative number is negative. The derivative at 0 is inf.

    Example:
        >>> nt.cbrt(np.array([8.0, -27.0]))
        array([ 2., -3.])
    """


@elementwise(
    np.reciprocal,
    partials={"x": lambda g, out: -g * square(out)},
    to_float=True,
    precision="widen",
    reference=lambda x: 1.0 / x,
    numpy=np.reciprocal,
    domain="x != 0",
    samples=lambda: unary_samples(0.5, 2, sample(np.array([-4.0, -0.5])), sample(np.array([2, 4]))),
)
def reciprocal(x: Array, /) -> Array:
    """Return ``1 / x``, elementwise; of integers too a float.

    Example:
        >>> nt.reciprocal(np.array([2.0, -4.0]))
        array([ 0.5 , -0.25])
    """


def _inverse_sqrt(a: Array) -> Array:
    out = np.sqrt(a)
    return np.divide(1.0, out, out=out if isinstance(out, np.ndarray) else None)


def _cube(a: Array) -> Array:
    out = np.square(a)
    out *= a
    return out


#: Powers that cost less than a general one.
_QUICK_POWERS: dict[float, Callable[[Any], Any]] = {
    -1.0: lambda a: np.divide(1.0, a),
    -0.5: _inverse_sqrt,
    0.0: lambda a: np.ones(np.shape(a), np.asarray(a).dtype),
    0.5: np.sqrt,
    1.0: np.positive,
    2.0: np.square,
    3.0: _cube,
}


def _is_number(x: Array) -> bool:
    """Say whether x is a number or a constant array of zero dimensions, not a tensor."""
    return isinstance(x, float | int) or (not x.shape and not hasattr(x, "node"))


def _pow_a(g: Array, a: Array, b: Array) -> Array:
    # d(a**b) = b a**(b-1) da; at b = 0 that is 0, even where a**(b-1) is infinite.
    if not _is_number(b):
        return g * (b * pow(a, where(logical_and(equal(a, 0.0), equal(b, 0.0)), 1.0, b - 1.0)))
    exponent = float(b)
    if exponent == 0.0:
        return np.zeros(g.shape, g.dtype)
    if exponent == 1.0:
        return g
    if exponent == 2.0:
        return g * (a + a)
    return g * (exponent * pow(a, exponent - 1.0))


def _pow_b(g: Array, a: Array, out: Array) -> Array:
    # d(a**b) = a**b log(a) db; at a = 0 the limit is 0, or -inf if the power is infinite.
    if _is_number(a) and a > 0:
        return g * (out * math.log(a))
    return g * (out * log(where(logical_and(equal(a, 0.0), isfinite(out)), 1.0, a)))


@elementwise(
    partials={"a": _pow_a, "b": _pow_b},
    flops=16,
    precision="widen",
    numpy=np.power,
    also=("power",),
    domain="(a > 0) | (a < 0) & (b == rint(b)) | (a == 0) & (b >= 0)",
    samples=lambda: binary_samples(
        (0.5, 2),
        (-2, 2),
        does_not_broadcast("pow"),
        *(sample(values(3, low=-2, high=2), n) for n in (2, 3.0, 0, 1, 4, 5.0)),
        *(sample(values(3, low=0.5, high=2), n) for n in (-1.5, -1, -0.5, 0.5, -2, -3.0)),
        sample(values(2, 2), np.array([[0.0, 1.0], [2.0, 3.0]]), skip_derivatives="no derivative by the exponent"),
        sample(np.array([0.0, -1.0, 2.0]), 2),
        sample(np.array([0.0, 0.0, 2.0]), np.array([0.0, 2.0, 3.0]), skip_derivatives="no derivative by the exponent"),
        sample(2.0, values(3)),
        sample(values(1, low=1.0), np.zeros(1)),
        sample(np.array([1, 2, 3]), 2),
        sample(np.array([1, 2, 3]), 0),
        sample(np.array([1, 2, 3]), 3),
        rejected(
            ArgumentError,
            "pow: integers cannot be raised to negative integers; make the base a float, as in a.astype('float64').",
            np.array([1, 2]),
            -1,
        ),
    ),
)
def pow(a: Array, b: Array, /) -> Array:
    """Return ``a ** b``, elementwise.

    The derivative by the exponent is 0 at ``a = 0`` for ``b >= 0``, -inf there for ``b < 0``, and NaN for negative `a`.

    Example:
        >>> nt.pow(np.array([1.0, 2.0, 3.0]), 2)
        array([1., 4., 9.])
    """
    kind = a.dtype.kind if isinstance(a, np.ndarray) else np.asarray(a).dtype.kind
    if kind == "f":
        quick = None if getattr(b, "ndim", 0) else _QUICK_POWERS.get(float(b))
        return np.power(a, b) if quick is None else quick(a)
    if np.asarray(b).dtype.kind == "i" and np.any(np.less(b, 0)):
        raise ArgumentError(
            "pow: integers cannot be raised to negative integers; make the base a float, as in a.astype('float64')."
        )
    return np.power(a, b)


def _hypot_partial(g: Array, side: Array, other: Array, out: Array) -> Array:
    if overflows(out):
        small, other = scaled_down(side, other)
        is_large = equal(out, np.inf)
        out = where(is_large, hypot(small, other), out)
        side = where(is_large, small, side)
    # At (0, 0), where the derivative does not exist, the quotient is 0.
    is_zero = equal(out, 0.0)
    return g * where(is_zero, 0.0, side / where(is_zero, 1.0, out))


@elementwise(
    np.hypot,
    partials={
        "a": lambda g, a, b, out: _hypot_partial(g, a, b, out),
        "b": lambda g, a, b, out: _hypot_partial(g, b, a, out),
    },
    flops=8,
    to_float=True,
    kinks="where a = b = 0, where the derivatives are taken as 0",
    numpy=np.hypot,
    samples=lambda: binary_samples(
        (0.2, 2), (0.2, 2), sample(np.array([-3.0, 3.0]), -4.0), does_not_broadcast("hypot")
    ),
)
def hypot(a: Array, b: Array, /) -> Array:
    """Return ``sqrt(a**2 + b**2)``, elementwise, without overflow. Both derivatives are 0 at (0, 0).

    Example:
        >>> nt.hypot(np.array([3.0, 5.0]), np.array([4.0, 12.0]))
        array([ 5., 13.])
    """


@elementwise(
    np.sign,
    partials={"x": ZERO},
    kinks="at 0, where the derivative is taken as 0",
    numpy=np.sign,
    samples=lambda: unary_samples(-2, 2, avoid=(0,)),
)
def sign(x: Array, /) -> Array:
    """Return -1, 0 or 1 by the sign of x, elementwise. The derivative is 0.

    Example:
        >>> nt.sign(np.array([-1.5, 0.0, 2.0]))
        array([-1.,  0.,  1.])
    """


@elementwise(
    np.absolute,
    partials={"x": lambda g, x: g * sign(x)},
    kinks="at 0, where the derivative is taken as 0",
    numpy=(np.absolute, np.fabs),
    also=("absolute",),
    samples=lambda: unary_samples(-2, 2, avoid=(0,)),
)
def abs(x: Array, /) -> Array:
    """Return the absolute value, elementwise. The derivative at 0 is 0.

    Example:
        >>> nt.abs(np.array([-1.5, 2.0]))
        array([1.5, 2. ])
    """
