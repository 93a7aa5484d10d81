"""Smooth activation functions; the piecewise linear ones are in rectifiers.py."""

import math
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core.declare import composed, elementwise
from ..errors import ArgumentError, AxisError, ShapeError
from ..kernels import erf as kernels
from .arithmetic import abs
from .bounds import minimum
from .exponential import _bell as bell
from .exponential import _logistic as logistic
from .exponential import exp, sigmoid
from .rectifiers import slope
from .samples import SHAPES, rejected, sample, unary_samples, values
from .shapes import as_array
from .trigonometric import tanh

#: The fixed points of selu: outputs keep mean 0 and variance 1.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _check_positive(name: str, parameter: str, value: float) -> None:
    if not value > 0:
        raise ArgumentError(f"{name}: {parameter} is {value}; it must be positive.")


def _elu_partial(g: Array, x: Array, alpha: float) -> Array:
    # For x <= 0, d out = alpha exp(x) dx; out + alpha would lose all digits of it far below 0.
    raised = exp(minimum(x, 0.0))
    return g * (raised if alpha == 1 else raised * slope(x > 0, alpha, g))


@elementwise(
    partials={"x": _elu_partial},
    flops=12,
    to_float=True,
    precision="widen",
    kinks="at 0 unless alpha is 1; the derivative there is taken as alpha",
    reference=lambda x, alpha=1.0: np.where(x > 0, x, alpha * (np.exp(x) - 1)),
    samples=lambda: [
        *(sample(values(*shape, avoid=(0,))) for shape in SHAPES),
        sample(values(5, avoid=(0,)), alpha=0.3),
        sample(values(5, avoid=(0,)), alpha=2),
        sample(np.array([-1000.0, 1000.0])),
        rejected(ArgumentError, "elu: alpha is -1.0; it must be positive.", values(2), alpha=-1.0),
    ],
)
def elu(x: Array, /, alpha: float = 1.0) -> Array:
    """Return x where it is positive and ``alpha * (exp(x) - 1)`` elsewhere.

    Example:
        >>> nt.elu(np.array([-1.0, 2.0]))
        array([-0.63212056,  2.        ])
    """
    _check_positive("elu", "alpha", alpha)
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


@elementwise(
    partials={"x": lambda g, x: g * (exp(minimum(x, 0.0)) * (slope(x > 0, _SELU_ALPHA, g) * _SELU_SCALE))},
    flops=12,
    to_float=True,
    precision="widen",
    kinks="at 0, where the derivative is taken as that from below",
    reference=lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * (np.exp(x) - 1)),
    samples=lambda: unary_samples(-2, 2, sample(np.array([-1000.0, 1000.0])), avoid=(0,)),
)
def selu(x: Array, /) -> Array:
    """Return the scaled elu, elementwise: constants for which outputs keep mean 0 and variance 1.

    Example:
        >>> nt.selu(np.array([-1.0, 2.0]))
        array([-1.11133074,  2.10140197])
    """
    return _SELU_SCALE * np.maximum(x, 0) + (_SELU_SCALE * _SELU_ALPHA) * np.expm1(np.minimum(x, 0))


@elementwise(
    # For x <= 0, d out = exp(x / alpha) dx: smooth at 0 for every alpha.
    partials={"x": lambda g, x, alpha: g * exp(minimum(x, 0.0) / alpha)},
    flops=12,
    to_float=True,
    precision="widen",
    reference=lambda x, alpha=1.0: np.where(x > 0, x, alpha * (np.exp(x / alpha) - 1)),
    samples=lambda: [
        *(sample(values(*shape, avoid=(0,))) for shape in SHAPES),
        sample(values(5, avoid=(0,)), alpha=0.3),
        sample(values(5, avoid=(0,)), alpha=2),
        rejected(ArgumentError, "celu: alpha is 0; it must be positive.", values(2), alpha=0),
    ],
)
def celu(x: Array, /, alpha: float = 1.0) -> Array:
    """Return x where it is positive and ``alpha * (exp(x / alpha) - 1)`` elsewhere.

    Example:
        >>> nt.celu(np.array([-1.0, 2.0]), alpha=0.5)
        array([-0.43233236,  2.        ])
    """
    _check_positive("celu", "alpha", alpha)
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha)


@elementwise(
    # d out = dx / (1 + |x|)^2; (1 - |out|)^2 would lose digits far from 0.
    partials={"x": lambda g, x: g * (1.0 / (abs(x) + 1.0)) ** 2},
    flops=3,
    to_float=True,
    reference=lambda x: np.where(x > 0, 1 - 1 / (1 + np.abs(x)), 1 / (1 + np.abs(x)) - 1),
    samples=lambda: unary_samples(-2, 2, avoid=(0,)),
)
def softsign(x: Array, /) -> Array:
    """Return ``x / (1 + |x|)``, elementwise.

    Example:
        >>> nt.softsign(np.array([-1.0, 3.0]))
        array([-0.5 ,  0.75])
    """
    return x / (1.0 + np.abs(x))


def _logistic(x: NDArray) -> NDArray:
    """Return ``1 / (1 + exp(-x))`` of an array."""
    with np.errstate(over="ignore"):  # 1 / (1 + inf) = 0 is right.
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _silu_partial(g: Array, x: Array) -> Array:
    # d(x s(x)) = s (1 + x (1 - s)) dx
    s = logistic(x)
    if isinstance(s, np.ndarray):
        return g * (s * (1.0 + x * (1.0 - s)))
    # The derivatives of 1 - s lose their digits far above 0, those of s (1 - s) in one piece do not.
    return g * (s + x * bell(x))


@elementwise(
    partials={"x": _silu_partial},
    flops=11,
    to_float=True,
    also=("swish",),
    reference=lambda x: x * 0.5 * (1 + np.tanh(x / 2)),
    samples=lambda: unary_samples(-4, 4, sample(np.array([-1000.0, 1000.0]))),
)
def silu(x: Array, /) -> Array:
    """Return ``x * sigmoid(x)``, elementwise.

    Example:
        >>> nt.silu(np.array([-1.0, 0.0, 1.0]))
        array([-0.26894142,  0.        ,  0.73105858])
    """
    return x * _logistic(x)


#: sqrt(2 / pi) and the coefficient of the cube in gelu's approximation by tanh.
_GELU_SCALE = math.sqrt(2.0 / math.pi)
_GELU_CUBE = 0.044715
#: From here on the slope is 0 or 1: a larger square would change nothing, and overflow.
_GELU_FAR = 30.0**2


def _is_tanh(approximate: Any) -> bool:
    if approximate in ("tanh", True):
        return True
    if approximate in ("none", False):
        return False
    raise ArgumentError(f"gelu: approximate is {approximate!r}; it must be 'none' or 'tanh'.")


def _gelu_partial(g: Array, x: Array, approximate: Any) -> Array:
    if _is_tanh(approximate):
        # (1 + tanh(u / 2)) / 2 = sigmoid(u), with u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
        square = minimum(x * x, _GELU_FAR)
        u = x * (square * (2.0 * _GELU_SCALE * _GELU_CUBE) + 2.0 * _GELU_SCALE)
        s = logistic(u)
        slope = square * (6.0 * _GELU_SCALE * _GELU_CUBE) + 2.0 * _GELU_SCALE
        if isinstance(s, np.ndarray):
            return g * (s + x * (s * (1.0 - s) * slope))
        return g * (s + x * bell(u) * slope)
    # d(x F(x)) = (F(x) + x F'(x)) dx, with F the normal distribution function.
    return g * (_normal_cdf(x) + x * _density(x))


def _density(x: Array) -> Array:
    """Return the density of a standard normal number at x."""
    return exp(x * x * -0.5) * (0.5 * _GELU_SCALE)


#: Below, 1 + erf has lost so many digits that erfc is worth its time. Few numbers are there.
_FAR_LEFT = -4.0


def _cdf(x: NDArray) -> NDArray:
    out = kernels.erf(x * math.sqrt(0.5))
    out *= 0.5
    out += 0.5
    (places,) = (x < _FAR_LEFT).reshape(-1).nonzero()
    if places.size:
        out.reshape(-1)[places] = 0.5 * kernels.erfc(x.reshape(-1)[places] * -math.sqrt(0.5))
    return out


@elementwise(
    _cdf,
    partials={"x": lambda g, x: g * _density(x)},
    flops=20,
    to_float=True,
    reference=lambda x: 0.5 * np.vectorize(math.erfc, otypes=[float])(-x / np.sqrt(2)),
    samples=lambda: unary_samples(-3, 3, sample(np.array([-1000.0, -8.0, 0.0, 1000.0]))),
)
def _normal_cdf(x: Array, /) -> Array:
    """Return the probability that a standard normal number is below x, elementwise."""


def _gelu_reference(x: Array, approximate: Any = "none") -> Array:
    if approximate in ("tanh", True):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2)))


@elementwise(
    partials={"x": _gelu_partial},
    flops=20,
    to_float=True,
    reference=_gelu_reference,
    samples=lambda: [
        *(sample(values(*shape)) for shape in SHAPES),
        *(sample(values(*shape), approximate="tanh") for shape in ((), (3,), (2, 3), (0,))),
        sample(values(4, low=-6, high=6), approximate=True),
        sample(values(4, low=-6, high=6), approximate=False),
        sample(np.array([-1000.0, 0.0, 1000.0])),
        sample(np.array([-1000.0, 0.0, 1000.0]), approximate="tanh"),
        rejected(
            ArgumentError,
            "gelu: approximate is 'erf'; it must be 'none' or 'tanh'.",
            values(2),
            approximate="erf",
        ),
    ],
)
def gelu(x: Array, /, approximate: str | bool = "none") -> Array:
    """Return x times the probability that a standard normal number is below x.

    Args:
        x: any shape.
        approximate: "none" (or False) for the exact function; "tanh" (or True) for
            ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2``.

    Raises:
        ArgumentError: if approximate is anything else.

    Example:
        >>> nt.gelu(np.array([-1.0, 0.0, 1.0]))
        array([-0.15865525,  0.        ,  0.84134475])
    """
    if _is_tanh(approximate):
        return x * _logistic(x * (x * x * (2.0 * _GELU_SCALE * _GELU_CUBE) + 2.0 * _GELU_SCALE))
    return x * _cdf(x)


def _gate(x: NDArray) -> NDArray:
    # tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2); from x = 20 on it is 1.
    e = np.exp(np.minimum(x, 20.0))
    n = e * (e + 2.0)
    return np.asarray(n / (n + 2.0))


def _gate_slope(x: Array) -> Array:
    # d tanh(log(1 + exp(x))) = 4 s(x) q^2 / (1 + q^2)^2 dx with q = s(-x): no term cancels another far from 0.
    square = logistic(-x) ** 2
    return logistic(x) * 4.0 * square / (square + 1.0) ** 2


@elementwise(
    _gate,
    partials={"x": lambda g, x: g * _gate_slope(x)},
    flops=13,
    to_float=True,
    reference=lambda x: np.tanh(np.logaddexp(x, 0)),
    samples=lambda: unary_samples(-4, 4, sample(np.array([-1000.0, 0.0, 1000.0]))),
)
def _mish_gate(x: Array, /) -> Array:
    """Return ``tanh(log(1 + exp(x)))``, elementwise: the share of x that `mish` lets pass."""


def _mish_partial(g: Array, x: Array) -> Array:
    # d(x w) = (w + x w') dx with the gate w
    if not isinstance(x, np.ndarray):
        return g * (_mish_gate(x) + x * _gate_slope(x))
    # The same with one exponential: where q = 1 - s loses digits, the second term is a small part of the sum.
    s = _logistic(x)
    square = (1.0 - s) ** 2
    share = s / (square + 1.0)
    return g * (share * (2.0 - s) + x * (share * (4.0 * square / (square + 1.0))))


@elementwise(
    partials={"x": _mish_partial},
    flops=16,
    to_float=True,
    reference=lambda x: x * np.tanh(np.logaddexp(x, 0)),
    samples=lambda: unary_samples(-4, 4, sample(np.array([-1000.0, 0.0, 1000.0]))),
)
def mish(x: Array, /) -> Array:
    """Return ``x * tanh(log(1 + exp(x)))``, elementwise.

    Example:
        >>> nt.mish(np.array([-1.0, 0.0, 1.0]))
        array([-0.30340146,  0.        ,  0.86509839])
    """
    return x * _gate(x)


@elementwise(
    partials={"x": lambda g, x: g * logistic(-x)},
    flops=20,
    to_float=True,
    precision="widen",
    also=("log_sigmoid",),
    reference=lambda x: -np.logaddexp(-x, 0),
    samples=lambda: unary_samples(-4, 4, sample(np.array([-1000.0, 0.0, 1000.0]))),
)
def logsigmoid(x: Array, /) -> Array:
    """Return ``log(sigmoid(x))``, elementwise, exact also where sigmoid is 0 or 1 in its dtype.

    Example:
        >>> nt.logsigmoid(np.array([-1000.0, 0.0]))
        array([-1.00000000e+03, -6.93147181e-01])
    """
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _tanhshrink_partial(g: Array, x: Array) -> Array:
    # d (x - tanh(x)) = tanh(x)^2 dx
    t = tanh(x)
    return g * (t * t)


@elementwise(
    partials={"x": _tanhshrink_partial},
    flops=9,
    to_float=True,
    reference=lambda x: x - np.tanh(x),
    samples=lambda: unary_samples(),
)
def tanhshrink(x: Array, /) -> Array:
    """Return ``x - tanh(x)``, elementwise.

    Example:
        >>> nt.tanhshrink(np.array([0.0, 1.0]))
        array([0.        , 0.23840584])
    """
    return x - np.tanh(x)


def _glu_reference(x: Array, axis: int = -1) -> Array:
    a, b = np.split(x, 2, axis=axis)
    return a * 0.5 * (1 + np.tanh(b / 2))


@composed(
    rounds_once=True,
    reference=_glu_reference,
    samples=lambda: [
        sample(values(4)),
        sample(values(2, 6)),
        sample(values(2, 3), axis=0),
        sample(values(2, 4, 3), axis=1),
        sample(values(2, 4, 3), axis=-3),
        sample(values(3, 2)),
        sample(values(0)),
        sample(values(0, 2)),
        rejected(
            ShapeError,
            "glu: x has shape (2, 3); axis -1 has length 3, which cannot be halved.",
            np.ones((2, 3)),
        ),
        rejected(
            AxisError,
            "glu: axis 2 is out of bounds for an operand of 2 axes; x has shape (2, 3).",
            np.ones((2, 3)),
            axis=2,
        ),
    ],
)
def glu(x: Array, axis: int = -1) -> Array:
    """Return ``a * sigmoid(b)``, where a and b are the first and the second half of x along `axis`.

    Args:
        x: any shape with an axis of even length.
        axis: the axis to halve.

    Raises:
        ShapeError: if the axis has an odd length.

    Example:
        >>> nt.glu(np.array([3.0, 4.0, 0.0, 1000.0]))
        array([1.5, 4. ])
    """
    x = as_array(x)
    ndim = len(x.shape)
    if not -ndim <= axis < ndim:
        raise AxisError(f"glu: axis {axis} is out of bounds for an operand of {ndim} axes; x has shape {x.shape}.")
    half, odd = divmod(x.shape[axis], 2)
    if odd:
        raise ShapeError(f"glu: x has shape {x.shape}; axis {axis} has length {x.shape[axis]}, which cannot be halved.")
    before = (slice(None),) * (axis % ndim)
    return x[(*before, slice(None, half))] * sigmoid(x[(*before, slice(half, None))])
