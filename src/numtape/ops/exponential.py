"""Exponentials, logarithms and what is made of them."""

import math
from collections.abc import Callable

import numpy as np

from .._typing import Array, NDArray
from ..core.declare import elementwise
from ..errors import OperandError
from .comparisons import equal, greater, logical_and
from .samples import binary_samples, does_not_broadcast, rejected, sample, unary_samples, values
from .selection import where

_LN_2 = math.log(2.0)
_LN_10 = math.log(10.0)


@elementwise(
    np.exp,
    partials={"x": lambda g, out: g * out},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.exp,
    samples=lambda: unary_samples(
        -2,
        2,
        sample(3),
        sample(np.array([0, 0])),
        rejected(OperandError, "exp: operand 'x' is of type str; it must be a tensor, an array or a number.", "text"),
    ),
)
def exp(x: Array, /) -> Array:
    """Return e to the power of x, elementwise.

    Example:
        >>> nt.exp(np.array([0.0, 1.0]))
        array([1.        , 2.71828183])
    """


@elementwise(
    np.exp2,
    partials={"x": lambda g, out: g * out * _LN_2},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.exp2,
    samples=lambda: unary_samples(),
)
def exp2(x: Array, /) -> Array:
    """Return 2 to the power of x, elementwise.

    Example:
        >>> nt.exp2(np.array([-1.0, 3.0]))
        array([0.5, 8. ])
    """


@elementwise(
    np.expm1,
    # Far below 0, out + 1 has no digits left.
    partials={"x": lambda g, x: g * exp(x)},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.expm1,
    samples=lambda: unary_samples(-2, 2, sample(np.array([1e-12, -1e-9, 0.0]))),
)
def expm1(x: Array, /) -> Array:
    """Return ``exp(x) - 1``, elementwise, accurate near 0.

    Example:
        >>> nt.expm1(np.array([0.0, 1e-12]))
        array([0.e+00, 1.e-12])
    """


@elementwise(
    np.log,
    partials={"x": lambda g, x: g / x},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.log,
    domain="x > 0",
    samples=lambda: unary_samples(
        0.2, 3.0, sample(np.array([0.0, -1.0, np.inf]), skip_derivatives="outside of the domain")
    ),
)
def log(x: Array, /) -> Array:
    """Return the natural logarithm, elementwise; -inf at 0 and NaN below.

    Example:
        >>> nt.log(np.array([1.0, np.e]))
        array([0., 1.])
    """


@elementwise(
    np.log2,
    partials={"x": lambda g, x: g / (x * _LN_2)},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.log2,
    domain="x > 0",
    samples=lambda: unary_samples(0.2, 3.0),
)
def log2(x: Array, /) -> Array:
    """Return the logarithm to base 2, elementwise; -inf at 0 and NaN below.

    Example:
        >>> nt.log2(np.array([0.5, 8.0]))
        array([-1.,  3.])
    """


@elementwise(
    np.log10,
    partials={"x": lambda g, x: g / (x * _LN_10)},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.log10,
    domain="x > 0",
    samples=lambda: unary_samples(0.2, 3.0),
)
def log10(x: Array, /) -> Array:
    """Return the logarithm to base 10, elementwise; -inf at 0 and NaN below.

    Example:
        >>> nt.log10(np.array([0.1, 100.0]))
        array([-1.,  2.])
    """


@elementwise(
    np.log1p,
    partials={"x": lambda g, x: g / (x + 1.0)},
    flops=8,
    to_float=True,
    precision="widen",
    numpy=np.log1p,
    domain="x > -1",
    samples=lambda: unary_samples(-0.8, 3.0, sample(np.array([1e-12, -1e-9, 0.0]))),
)
def log1p(x: Array, /) -> Array:
    """Return ``log(1 + x)``, elementwise, accurate near 0; -inf at -1 and NaN below.

    Example:
        >>> nt.log1p(np.array([0.0, 1e-12]))
        array([0.e+00, 1.e-12])
    """


def _sigmoid_reference(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _sigmoid_of(x: NDArray, raised: Callable[..., NDArray] = np.exp) -> NDArray:
    out = np.negative(x, out=np.empty_like(x))
    # 1 / inf = 0 is the value that is wanted.
    with np.errstate(over="ignore"):
        raised(out, out=out)
    out += 1.0
    return np.divide(1.0, out, out=out)


@elementwise(
    # Of the output alone, so that x need not be kept; digits are lost where it is almost 1, as 1 - out has few.
    partials={"x": lambda g, out: g * (out * (1.0 - out))},
    flops=10,
    to_float=True,
    also=("expit",),
    reference=_sigmoid_reference,
    samples=lambda: unary_samples(-4, 4, sample(np.array([-800.0, -30.0, 30.0, 800.0])), sample(np.array([0]))),
)
def sigmoid(x: Array, /) -> Array:
    """Return ``1 / (1 + exp(-x))``, elementwise, without warnings for large arguments.

    Example:
        >>> nt.sigmoid(np.array([0.0, 2.0, -1000.0]))
        array([0.5       , 0.88079708, 0.        ])
    """
    return _sigmoid_of(x)


def _bell_of(x: NDArray, raised: Callable[..., NDArray] = np.exp) -> NDArray:
    """Return ``s(x) s(-x)`` with ``s(x) = 1 / (1 + raised(-x))``, to the last digits also where s is almost 1."""
    out = np.abs(x, out=np.empty_like(x))
    np.negative(out, out=out)
    raised(out, out=out)
    square = out + 1.0
    square *= square
    out /= square
    return out


def _bell_partial(g: Array, x: Array, out: Array, binary: bool) -> Array:
    # (s(x) s(-x))' = s(x) s(-x) (s(-x) - s(x)), and the difference is -tanh(x / 2), exact also near 0.
    if binary:
        return g * (out * _half_tanh(x * _LN_2) * -_LN_2)
    return g * (out * _half_tanh(x) * -1.0)


@elementwise(
    partials={"x": _bell_partial},
    flops=12,
    to_float=True,
    reference=lambda x, binary=False: 0.25 / np.cosh(0.5 * (x * _LN_2 if binary else x)) ** 2,
    samples=lambda: [*unary_samples(-4, 4, sample(np.array([-80.0, 30.0, 80.0]))), sample(values(3), binary=True)],
)
def _bell(x: Array, /, *, binary: bool = False) -> Array:
    """Return the derivative of `sigmoid`, elementwise; if it is binary, with powers of 2 (and without the log of 2).

    Together with `_half_tanh`, in whose derivative it is, its derivatives of all orders are exact far from 0 and near.
    """
    return _bell_of(x, np.exp2 if binary else np.exp)


@elementwise(
    partials={"x": lambda g, x: g * (_bell(x) * 2.0)},
    flops=11,
    to_float=True,
    reference=lambda x: np.tanh(0.5 * x),
    samples=lambda: unary_samples(-4, 4),
)
def _half_tanh(x: Array, /) -> Array:
    """Return ``tanh(x / 2) = s(x) - s(-x)``, elementwise, with s the sigmoid."""
    return np.tanh(x * 0.5)


@elementwise(
    # As sigmoid, of which only x is kept: its rule needs no output.
    partials={"x": lambda g, x, binary: g * (_bell(x, binary=True) * _LN_2) if binary else g * _bell(x)},
    flops=10,
    to_float=True,
    reference=lambda x, binary=False: _sigmoid_reference(x * _LN_2 if binary else x),
    samples=lambda: [
        *unary_samples(-4, 4, sample(np.array([-800.0, -30.0, 30.0, 800.0]))),
        sample(values(3), binary=True),
    ],
)
def _logistic(x: Array, /, *, binary: bool = False) -> Array:
    """Return ``1 / (1 + exp(-x))``, elementwise, for rules that differentiate it again; with exp2 if it is binary."""
    return _sigmoid_of(x, np.exp2 if binary else np.exp)


def _gap(a: Array, b: Array) -> Array:
    """Return ``a - b``; of two infinities of one sign -inf (no share) if they are -inf and 0 (equal shares) if inf."""
    with np.errstate(invalid="ignore"):
        gap = a - b
    if isinstance(gap, np.ndarray) and not np.isnan(gap).any():
        return gap
    # Where the difference is NaN, the sum is not, unless an operand is.
    return where(equal(gap, gap), gap, where(greater(a + b, 0.0), 0.0, a + b))


def _log_of_sum(a: Array, b: Array, raised: Callable[..., NDArray], scale: float) -> NDArray:
    # log(e**a + e**b) = max(a, b) + log(1 + e**-|a - b|): several times faster than np.logaddexp on large arrays.
    peak = np.asarray(np.maximum(a, b))
    with np.errstate(invalid="ignore"):
        out = np.asarray(np.subtract(a, b))
        np.abs(out, out=out)
        np.negative(out, out=out)
        raised(out, out=out)
        np.log1p(out, out=out)
        if scale != 1.0:
            out *= scale
        out += peak
    np.copyto(out, peak, where=np.isinf(peak))
    return out


_INFINITE = sample(
    np.array([-np.inf, -np.inf, 1.0, np.inf, 0.0, np.inf, np.inf]),
    np.array([-np.inf, 1.0, -np.inf, 0.0, np.inf, np.inf, np.nan]),
    skip_derivatives="infinite operands",
)


@elementwise(
    # d = e**a / (e**a + e**b) da = sigmoid(a - b) da
    partials={"a": lambda g, a, b: g * _logistic(_gap(a, b)), "b": lambda g, a, b: g * _logistic(_gap(b, a))},
    flops=20,
    to_float=True,
    precision="widen",
    numpy=np.logaddexp,
    samples=lambda: binary_samples((-2, 2), (-2, 2), _INFINITE, does_not_broadcast("logaddexp")),
)
def logaddexp(a: Array, b: Array, /) -> Array:
    """Return ``log(exp(a) + exp(b))``, elementwise, without overflow. Where both are -inf, the derivative is 0.

    Example:
        >>> nt.logaddexp(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
        array([6.93147181e-01, 1.00069315e+03])
    """
    return _log_of_sum(a, b, np.exp, 1.0)


@elementwise(
    partials={
        "a": lambda g, a, b: g * _logistic(_gap(a, b), binary=True),
        "b": lambda g, a, b: g * _logistic(_gap(b, a), binary=True),
    },
    flops=20,
    to_float=True,
    precision="widen",
    numpy=np.logaddexp2,
    samples=lambda: binary_samples((-2, 2), (-2, 2), _INFINITE, does_not_broadcast("logaddexp2")),
)
def logaddexp2(a: Array, b: Array, /) -> Array:
    """Return ``log2(2**a + 2**b)``, elementwise, without overflow. Where both are -inf, the derivative is 0.

    Example:
        >>> nt.logaddexp2(np.array([0.0, 2000.0]), np.array([0.0, 2000.0]))
        array([1.000e+00, 2.001e+03])
    """
    return _log_of_sum(a, b, np.exp2, 1.0 / _LN_2)


def _unless_both_zero(a: Array, b: Array) -> Array:
    return where(logical_and(equal(a, 0.0), equal(b, 0.0)), 1.0, b)


@elementwise(
    partials={
        "a": lambda g, a, b: g * log(_unless_both_zero(a, b)),
        "b": lambda g, a, b: g * (a / _unless_both_zero(a, b)),
    },
    flops=10,
    linear=("a",),
    to_float=True,
    precision="widen",
    reference=lambda a, b: np.where(np.equal(a, 0) & ~np.isnan(b), 0.0, a * np.log(b)),
    domain="(a == 0) | (b > 0)",
    samples=lambda: binary_samples(
        (-2, 2),
        (0.3, 2),
        sample(np.array([0.0, 0.0, 1.0, 0.0]), np.array([0.0, 2.0, 0.0, np.nan]), skip_derivatives="log(0)"),
        sample(np.array([0.0, 0.5]), np.array([2.0, 0.5])),
        sample(values(3), 2.0),
        sample(3.0, values(3, low=0.3)),
        does_not_broadcast("xlogy"),
    ),
)
def xlogy(a: Array, b: Array, /) -> Array:
    """Return ``a * log(b)``, elementwise, and 0 where a is 0, even for ``b = 0``. Both derivatives are 0 at (0, 0).

    Example:
        >>> nt.xlogy(np.array([0.0, 2.0]), np.array([0.0, np.e]))
        array([0., 2.])
    """
    safe = np.where(np.equal(a, 0) & ~np.isnan(b), 1.0, b)
    return np.multiply(a, np.log(safe), dtype=np.result_type(a, b))


def _logit_partial(g: Array, x: Array) -> Array:
    # d = dx / (x (1 - x)); outside of [0, 1], where the value is NaN, that product is negative.
    product = x * (1.0 - x)
    return g / (where(product < 0, np.nan, 1.0) * product)  # So that second derivatives are NaN there, too.


@elementwise(
    partials={"x": _logit_partial},
    flops=18,
    to_float=True,
    precision="widen",
    reference=lambda x: np.log(x / (1.0 - x)),
    domain="(x > 0) & (x < 1)",
    samples=lambda: unary_samples(0.1, 0.9, sample(np.array([0.0, 1.0]), skip_derivatives="infinite")),
)
def logit(x: Array, /) -> Array:
    """Return ``log(x / (1 - x))``, elementwise: the inverse of `sigmoid`. -inf at 0, inf at 1 and NaN outside.

    Example:
        >>> nt.logit(np.array([0.25, 0.5]))
        array([-1.09861229,  0.        ])
    """
    return np.log(x) - np.log1p(-x)


@elementwise(
    partials={"x": lambda g, x: g * _logistic(x)},
    flops=20,
    to_float=True,
    precision="widen",
    reference=lambda x: np.logaddexp(x, 0.0),
    samples=lambda: unary_samples(-4, 4, sample(np.array([-800.0, -30.0, 30.0, 800.0]))),
)
def softplus(x: Array, /) -> Array:
    """Return ``log(1 + exp(x))``, elementwise, without overflow.

    Example:
        >>> nt.softplus(np.array([0.0, 1000.0]))
        array([6.93147181e-01, 1.00000000e+03])
    """
    # log(1 + e**x) = max(x, 0) + log(1 + e**-|x|)
    out = np.abs(x, out=np.empty_like(x))
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    out += np.maximum(x, 0.0)
    return out
