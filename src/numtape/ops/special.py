"""Special functions: the error function, the gamma function and their relatives."""

import importlib
import math
from typing import Any

import numpy as np

from .._typing import Array
from ..core.declare import elementwise, face_of
from ..errors import ArgumentError, MissingExtraError, OperandError
from ..kernels import erf as kernels
from .arithmetic import square
from .exponential import exp
from .samples import rejected, sample, unary_samples, values

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


def _scipy(name: str) -> Any:
    """Return scipy.special, which is optional, for the op `name`."""
    try:
        return importlib.import_module("scipy.special")
    except ImportError as error:
        raise MissingExtraError(f"{name}: needs SciPy; pip install numtape[scipy]") from error


@elementwise(
    partials={"x": lambda g, x: g * (exp(-square(x)) * _TWO_OVER_SQRT_PI)},
    flops=30,
    to_float=True,
    reference=lambda x: np.vectorize(math.erf, otypes=[float])(x),
    samples=lambda: unary_samples(
        -2,
        2,
        sample(np.array([-5.0, -1.2, 0.0, 1e-9, 0.4687, 0.4688, 3.9, 4.1, 7.0])),
        sample(np.array([-np.inf, np.inf, np.nan, 1e300]), skip_derivatives="infinite"),
        sample(values(20, 30, low=-6, high=6), skip_derivatives="values only"),
    ),
)
def erf(x: Array, /) -> Array:
    """Return the error function, the integral of ``2 / sqrt(pi) * exp(-t * t)`` over t from 0 to x, elementwise.

    Example:
        >>> nt.erf(np.array([0.0, 1.0]))
        array([0.        , 0.84270079])
    """
    return kernels.erf(x)


@elementwise(
    partials={"x": lambda g, x: g * (exp(-square(x)) * -_TWO_OVER_SQRT_PI)},
    flops=40,
    to_float=True,
    reference=lambda x: np.vectorize(math.erfc, otypes=[float])(x),
    samples=lambda: unary_samples(
        -2,
        2,
        sample(np.array([-5.0, -1.2, 0.0, 1e-9, 0.4687, 0.4688, 3.9, 4.1, 7.0])),
        sample(np.array([-np.inf, np.inf, np.nan, 1e300, 28.0]), skip_derivatives="infinite"),
        sample(values(20, 30, low=-6, high=6), skip_derivatives="values only"),
    ),
)
def erfc(x: Array, /) -> Array:
    """Return ``1 - erf(x)``, elementwise, accurate also where it is tiny.

    Example:
        >>> nt.erfc(np.array([0.0, 10.0]))
        array([1.00000000e+00, 2.08848758e-45])
    """
    return kernels.erfc(x)


@elementwise(
    partials={"x": lambda g, out: g * (exp(square(out)) / _TWO_OVER_SQRT_PI)},
    flops=40,
    to_float=True,
    precision="widen",
    domain="abs(x) < 1",
    samples=lambda: unary_samples(-0.9, 0.9, sample(np.array([-1.0, 1.0, 1.5]), skip_derivatives="infinite")),
)
def erfinv(x: Array, /) -> Array:
    """Return the inverse of `erf`, elementwise; infinite at -1 and 1, NaN outside. Needs SciPy.

    Example:
        >>> nt.erfinv(np.array([0.0, 0.5]))
        array([0.        , 0.47693628])
    """
    return _scipy("erfinv").erfinv(x)


def _lgamma_rule(g: Array, x: Array) -> Array:
    return g * digamma(x)


@elementwise(
    partials={"x": _lgamma_rule},
    flops=40,
    to_float=True,
    precision="widen",
    reference=lambda x: np.vectorize(math.lgamma, otypes=[float])(x),
    also=("gammaln",),
    domain="(x > 0) | (x != rint(x))",
    samples=lambda: unary_samples(0.5, 5, sample(np.array([-0.5, -1.3, 30.0])), sample(np.array([1, 2]))),
)
def lgamma(x: Array, /) -> Array:
    """Return the logarithm of the absolute value of the gamma function, elementwise. Needs SciPy.

    Example:
        >>> nt.lgamma(np.array([1.0, 5.0]))
        array([0.        , 3.17805383])
    """
    return _scipy("lgamma").gammaln(x)


def _digamma_rule(g: Array, x: Array) -> Array:
    return g * _polygamma(x, n=1)


@elementwise(
    partials={"x": _digamma_rule},
    flops=40,
    to_float=True,
    precision="widen",
    also=("psi",),
    domain="(x > 0) | (x != rint(x))",
    samples=lambda: unary_samples(0.5, 5, sample(np.array([-0.5, -1.3, 30.0]))),
)
def digamma(x: Array, /) -> Array:
    """Return the derivative of `lgamma`, elementwise. Needs SciPy.

    Example:
        >>> nt.digamma(np.array([1.0, 2.0]))
        array([-0.57721566,  0.42278434])
    """
    return _scipy("digamma").digamma(x)


def _polygamma_rule(g: Array, x: Array, n: int) -> Array:
    return g * _polygamma(x, n=n + 1)


def _polygamma_reference(x: Any, n: int) -> Any:
    """Sum (-1)**(n + 1) n! / (x + k)**(n + 1) over k, the far part by the formula of Euler and Maclaurin."""
    x = np.asarray(x)
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
    far = x + 30.0
    sign = -1.0 if n % 2 == 0 else 1.0
    scale = sign * math.factorial(n)
    near = sum((x + k) ** -(n + 1.0) for k in range(30))
    if n == 0:
        tail = np.log(far) - 0.5 / far - sum(b / (2 * j) * far ** (-2.0 * j) for j, b in enumerate(bernoulli, 1))
        return tail - near
    tail = far ** -float(n) / n + 0.5 * far ** -(n + 1.0)
    for j, b in enumerate(bernoulli, 1):
        rising = math.factorial(2 * j + n - 1) / math.factorial(n) / math.factorial(2 * j)
        tail = tail + b * rising * far ** -(2.0 * j + n)
    return scale * (near + tail)


@elementwise(
    partials={"x": _polygamma_rule},
    flops=60,
    to_float=True,
    precision="widen",
    reference=_polygamma_reference,
    domain="(x > 0) | (x != rint(x))",
    samples=lambda: [
        *(sample(values(*shape, low=0.7, high=4.0), n=1) for shape in ((), (3,), (2, 3), (0,), (1,))),
        sample(values(3, low=0.7, high=4.0), n=0),
        sample(values(3, low=0.7, high=4.0), n=2),
        sample(values(2, 2, low=0.7, high=4.0), n=3),
        sample(np.array([25.0, 100.0]), n=1),
        rejected(ArgumentError, "polygamma: n is -1; the order is an integer from 0 on.", values(2), n=-1),
        rejected(OperandError, "polygamma: n is 1.5; it must be an integer.", values(2), n=1.5),
    ],
)
def _polygamma(x: Array, /, *, n: int) -> Array:
    """Return the derivative of `digamma` of order `n`, elementwise."""
    if n < 0:
        raise ArgumentError(f"polygamma: n is {n}; the order is an integer from 0 on.")
    return np.asarray(_scipy("polygamma").polygamma(n, x), x.dtype)


@face_of(_polygamma)
def polygamma(n: int, x: Array, *, out: Any = None) -> Array:
    """Return the derivative of `digamma` of order `n`, elementwise, for positive x. Needs SciPy.

    Args:
        n: the order, an integer from 0 on; 0 is `digamma` itself.
        x: any shape.
        out: a tensor or array to write the result to.

    Example:
        >>> nt.polygamma(1, np.array([1.0, 2.0]))
        array([1.64493407, 0.64493407])
    """
    return _polygamma(x, n=n, out=out)  # type: ignore[call-arg]
