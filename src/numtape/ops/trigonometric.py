"""Trigonometric and hyperbolic functions and their inverses."""

import math
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core.declare import elementwise, face_of
from ..errors import ArgumentError
from .arithmetic import hypot, sqrt, square
from .comparisons import equal
from .samples import SHAPES, binary_samples, does_not_broadcast, rejected, sample, unary_samples, values
from .selection import where


def _sin_rule(g: Array, x: Array) -> Array:
    return g * cos(x)


@elementwise(
    np.sin,
    partials={"x": _sin_rule},
    flops=10,
    to_float=True,
    numpy=np.sin,
    samples=lambda: unary_samples(-4, 4),
)
def sin(x: Array, /) -> Array:
    """Return the sine of an angle in radians, elementwise.

    Example:
        >>> nt.sin(np.array([0.0, np.pi / 2]))
        array([0., 1.])
    """


@elementwise(
    np.cos,
    partials={"x": lambda g, x: -g * sin(x)},
    flops=10,
    to_float=True,
    numpy=np.cos,
    samples=lambda: unary_samples(-4, 4),
)
def cos(x: Array, /) -> Array:
    """Return the cosine of an angle in radians, elementwise.

    Example:
        >>> nt.cos(np.array([0.0, np.pi]))
        array([ 1., -1.])
    """


@elementwise(
    np.tan,
    partials={"x": lambda g, out: g * (square(out) + 1.0)},
    flops=15,
    to_float=True,
    precision="widen",
    numpy=np.tan,
    samples=lambda: unary_samples(-1.2, 1.2, sample(np.array([2.0, 4.0]))),
)
def tan(x: Array, /) -> Array:
    """Return the tangent of an angle in radians, elementwise.

    Example:
        >>> nt.tan(np.array([0.0, 0.5]))
        array([0.        , 0.54630249])
    """


@elementwise(
    np.arcsin,
    # (1 - x)(1 + x) is 1 - x * x without cancellation near the ends.
    partials={"x": lambda g, x: g / sqrt((1.0 - x) * (1.0 + x))},
    flops=15,
    to_float=True,
    precision="widen",
    numpy=np.arcsin,
    also=("arcsin",),
    domain="abs(x) <= 1",
    samples=lambda: unary_samples(-0.8, 0.8, sample(np.array([-1.0, 1.0]), skip_derivatives="infinite")),
)
def asin(x: Array, /) -> Array:
    """Return the angle between -pi/2 and pi/2 whose sine is x, elementwise; NaN outside of -1 to 1.

    Example:
        >>> nt.asin(np.array([0.0, 1.0]))
        array([0.        , 1.57079633])
    """


@elementwise(
    np.arccos,
    partials={"x": lambda g, x: -g / sqrt((1.0 - x) * (1.0 + x))},
    flops=15,
    to_float=True,
    precision="widen",
    numpy=np.arccos,
    also=("arccos",),
    domain="abs(x) <= 1",
    samples=lambda: unary_samples(-0.8, 0.8, sample(np.array([-1.0, 1.0]), skip_derivatives="infinite")),
)
def acos(x: Array, /) -> Array:
    """Return the angle between 0 and pi whose cosine is x, elementwise; NaN outside of -1 to 1.

    Example:
        >>> nt.acos(np.array([1.0, 0.0]))
        array([0.        , 1.57079633])
    """


@elementwise(
    np.arctan,
    partials={"x": lambda g, x: g / (square(x) + 1.0)},
    flops=15,
    to_float=True,
    numpy=np.arctan,
    also=("arctan",),
    samples=lambda: unary_samples(-3, 3),
)
def atan(x: Array, /) -> Array:
    """Return the angle between -pi/2 and pi/2 whose tangent is x, elementwise.

    Example:
        >>> nt.atan(np.array([0.0, 1.0]))
        array([0.        , 0.78539816])
    """


def _over_square_distance(x: Array, a: Array, b: Array) -> Array:
    """Return ``x / (a * a + b * b)`` without the squares, and 0 at the origin, where the angle has no derivative."""
    distance = hypot(a, b)
    distance = where(equal(distance, 0.0), 1.0, distance)
    return x / distance / distance


@elementwise(
    np.arctan2,
    partials={
        "a": lambda g, a, b: g * _over_square_distance(b, a, b),
        "b": lambda g, a, b: -g * _over_square_distance(a, a, b),
    },
    flops=20,
    to_float=True,
    kinks="at (0, 0), where the derivatives are taken as 0, and across the negative half of the axis a = 0",
    numpy=np.arctan2,
    also=("arctan2",),
    samples=lambda: binary_samples(
        (-2, 2),
        (0.3, 2),
        sample(np.array([1.0, -1.0]), np.array([-1.0, -2.0])),
        sample(np.array([0.0, -0.0]), np.array([0.0, -1.0]), skip_derivatives="at the origin and the cut"),
        does_not_broadcast("atan2"),
    ),
)
def atan2(a: Array, b: Array, /) -> Array:
    """Return the angle from the positive x axis to the point (b, a), between -pi and pi, elementwise.

    Both derivatives are 0 at (0, 0).

    Example:
        >>> nt.atan2(np.array([1.0, -1.0]), np.array([1.0, 0.0]))
        array([ 0.78539816, -1.57079633])
    """


def _sinh_rule(g: Array, x: Array) -> Array:
    return g * cosh(x)


@elementwise(
    np.sinh,
    partials={"x": _sinh_rule},
    flops=10,
    to_float=True,
    precision="widen",
    numpy=np.sinh,
    samples=lambda: unary_samples(),
)
def sinh(x: Array, /) -> Array:
    """Return the hyperbolic sine, elementwise.

    Example:
        >>> nt.sinh(np.array([0.0, 1.0]))
        array([0.        , 1.17520119])
    """


@elementwise(
    np.cosh,
    partials={"x": lambda g, x: g * sinh(x)},
    flops=10,
    to_float=True,
    precision="widen",
    numpy=np.cosh,
    samples=lambda: unary_samples(),
)
def cosh(x: Array, /) -> Array:
    """Return the hyperbolic cosine, elementwise.

    Example:
        >>> nt.cosh(np.array([0.0, 1.0]))
        array([1.        , 1.54308063])
    """


@elementwise(
    np.tanh,
    partials={"x": lambda g, out: g * (1.0 - out * out)},
    flops=10,
    to_float=True,
    numpy=np.tanh,
    samples=lambda: unary_samples(-2, 2, sample(np.array([-400.0, 20.0, 400.0]))),
)
def tanh(x: Array, /) -> Array:
    """Return the hyperbolic tangent, elementwise.

    Example:
        >>> nt.tanh(np.array([0.0, 1.0]))
        array([0.        , 0.76159416])
    """


@elementwise(
    np.arcsinh,
    # As sqrt(x * x + 1), which would overflow.
    partials={"x": lambda g, x: g / hypot(x, 1.0)},
    flops=15,
    to_float=True,
    numpy=np.arcsinh,
    also=("arcsinh",),
    samples=lambda: unary_samples(-3, 3),
)
def asinh(x: Array, /) -> Array:
    """Return the inverse of the hyperbolic sine, elementwise.

    Example:
        >>> nt.asinh(np.array([0.0, 1.0]))
        array([0.        , 0.88137359])
    """


@elementwise(
    np.arccosh,
    partials={"x": lambda g, x: g / (sqrt(x - 1.0) * sqrt(x + 1.0))},
    flops=15,
    to_float=True,
    precision="widen",
    numpy=np.arccosh,
    also=("arccosh",),
    domain="x >= 1",
    samples=lambda: unary_samples(1.2, 3, sample(np.array([1.0, 0.5]), skip_derivatives="outside of the domain")),
)
def acosh(x: Array, /) -> Array:
    """Return the inverse of the hyperbolic cosine, elementwise; NaN below 1.

    Example:
        >>> nt.acosh(np.array([1.0, 2.0]))
        array([0.       , 1.3169579])
    """


@elementwise(
    np.arctanh,
    partials={"x": lambda g, x: g / ((1.0 - x) * (1.0 + x))},
    flops=15,
    to_float=True,
    precision="widen",
    numpy=np.arctanh,
    also=("arctanh",),
    domain="abs(x) < 1",
    samples=lambda: unary_samples(-0.8, 0.8, sample(np.array([-1.0, 1.0]), skip_derivatives="infinite")),
)
def atanh(x: Array, /) -> Array:
    """Return the inverse of the hyperbolic tangent, elementwise; infinite at -1 and 1, NaN outside.

    Example:
        >>> nt.atanh(np.array([0.0, 0.5]))
        array([0.        , 0.54930614])
    """


_DEGREE = math.pi / 180.0


@elementwise(
    np.deg2rad,
    partials={"x": lambda g: g * _DEGREE},
    linear=("x",),
    to_float=True,
    numpy=(np.deg2rad, np.radians),
    also=("radians",),
    samples=lambda: unary_samples(-200, 200),
)
def deg2rad(x: Array, /) -> Array:
    """Return an angle in degrees as radians, elementwise.

    Example:
        >>> nt.deg2rad(np.array([0.0, 180.0]))
        array([0.        , 3.14159265])
    """


@elementwise(
    np.rad2deg,
    partials={"x": lambda g: g / _DEGREE},
    linear=("x",),
    to_float=True,
    numpy=(np.rad2deg, np.degrees),
    also=("degrees",),
    samples=lambda: unary_samples(-4, 4),
)
def rad2deg(x: Array, /) -> Array:
    """Return an angle in radians as degrees, elementwise.

    Example:
        >>> nt.rad2deg(np.array([0.0, np.pi]))
        array([  0., 180.])
    """


def _sinc_series(y: NDArray, order: int, largest: float) -> NDArray:
    """Return the derivative of sin(y) / y by its power series, for arguments up to `largest`."""
    # sin(y) / y = sum of (-1)**k y**(2k) / (2k + 1)!, each term differentiated: y**(2k - n) / ((2k + 1) (2k - n)!).
    first = (order + 1) // 2
    coefficients = []
    for k in range(first, first + 200):
        power = 2 * k - order
        size = 1.0 / ((2 * k + 1) * math.factorial(power))
        coefficients.append(-size if k % 2 else size)
        if size * largest**power < 1e-18:
            break
    squares = y * y
    total = np.full_like(y, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total *= squares
        total += coefficient
    return total * y if order % 2 else total


def _sinc_reference(x: Array, order: int = 0) -> Array:
    """Return the derivative of sinc as an integral: sinc(x) is that of cos(pi x t) over t from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    t = 0.5 * (nodes + 1.0)
    angles = np.pi * np.multiply.outer(x, t) + 0.5 * np.pi * order
    return np.cos(angles) @ (0.5 * weights * (np.pi * t) ** order)


def _sinc_rule(g: Array, x: Array, order: int) -> Array:
    return g * _sinc(x, order=order + 1)


@elementwise(
    partials={"x": _sinc_rule},
    flops=15,
    to_float=True,
    reference=_sinc_reference,
    numpy=np.sinc,
    samples=lambda: [
        *(sample(values(*shape)) for shape in SHAPES),
        sample(np.array([0.0, 1e-9, -1e-4, 0.01])),
        sample(np.array([0.0, 1e-4, -0.01, 0.3, 0.32, 0.5, 1.0, -3.0]), order=1),
        sample(np.array([0.0, 1e-4, -0.01, 0.6, 0.65, 1.0, -3.0]), order=2),
        sample(np.array([0.0, 1e-4, -0.01, 0.9, 1.0, -3.0]), order=3),
        sample(np.array([0.0, 1.1, -3.0]), order=4),
        rejected(ArgumentError, "sinc: order is -1; the order of a derivative is at least 0.", values(2), order=-1),
    ],
)
def _sinc(x: Array, /, *, order: int = 0) -> Array:
    """Return the derivative of ``sin(pi * x) / (pi * x)`` of a given order, elementwise."""
    if order < 0:
        raise ArgumentError(f"sinc: order is {order}; the order of a derivative is at least 0.")
    if order == 0:
        return np.sinc(x)
    y = np.multiply(x, np.pi)
    # Below, the recursion would lose digits to each division; above, the series to cancellation.
    largest = 1.0 + 0.5 * order
    is_small = np.abs(y) < largest
    safe = np.where(is_small, np.asarray(largest, y.dtype), y)
    # f(y) = sin(y) / y: differentiating y f = sin y n times gives y f(n) + n f(n - 1) = sin(y + n pi / 2).
    derivatives: tuple[Any, ...] = (np.sin(safe), np.cos(safe), -np.sin(safe), -np.cos(safe))
    found = derivatives[0] / safe
    for n in range(1, order + 1):
        found = (derivatives[n % 4] - n * found) / safe
    series = _sinc_series(np.where(is_small, y, np.asarray(0.0, y.dtype)), order, largest)
    return np.where(is_small, series, found) * np.pi**order


@face_of(_sinc)
def sinc(x: Array, *, out: Any = None) -> Array:
    """Return ``sin(pi * x) / (pi * x)``, elementwise, and 1 at 0. Derivatives of every order are right at 0.

    Example:
        >>> nt.sinc(np.array([0.0, 0.5]))
        array([1.        , 0.63661977])
    """
    return _sinc(x, out=out)  # type: ignore[call-arg]
