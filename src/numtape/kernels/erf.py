"""The error function and its complement, by W. J. Cody's rational approximations (Math. Comp. 23, 1969, 631-637).

Numerator and denominator of an approximation have positive coefficients and a positive argument, so nothing cancels:
both come from one table of powers and one matrix product, block by block within the processor's cache.

In float32 shorter approximations suffice, fitted to the least largest relative error: erf(x) = tanh(x P(x * x)), in
which tanh keeps the accuracy near 0 and saturates as erf does, and erfc(x) = exp(-x * x) P(q) / (x + 2) for x >= 0,
with q = (x - 2) / (x + 2).
"""

from collections.abc import Callable

import numpy as np

from .._typing import NDArray

_BLOCK = 8192
_BLOCK32 = 32768
# Up to here erf(x) = x R(x * x) is used, and above it erfc(x) = exp(-x * x) R(x).
_SMALL = 0.46875
# From here on erfc(x) = exp(-x * x) / x (1 / sqrt(pi) - R(1 / (x * x)) / (x * x)).
_LARGE = 4.0
# 1 - erf is below half a unit in the last place from here on, and erfc underflows at the second one.
_ERF_IS_ONE = 6.0
_ERFC_IS_ZERO = 27.3
_INVERSE_SQRT_PI = 0.56418958354775628695

# Rows: numerator, denominator; columns: coefficients from the constant term on.
_SMALL_RATIO = np.array(
    [
        [
            3.20937758913846947e03,
            3.77485237685302021e02,
            1.13864154151050156e02,
            3.16112374387056560e00,
            1.85777706184603153e-1,
        ],
        [2.84423683343917062e03, 1.28261652607737228e03, 2.44024637934444173e02, 2.36012909523441209e01, 1.0],
    ]
)
_MIDDLE_RATIO = np.array(
    [
        [
            1.23033935479799725e03,
            2.05107837782607147e03,
            1.71204761263407058e03,
            8.81952221241769090e02,
            2.98635138197400131e02,
            6.61191906371416295e01,
            8.88314979438837594e00,
            5.64188496988670089e-1,
            2.15311535474403846e-8,
        ],
        [
            1.23033935480374942e03,
            3.43936767414372164e03,
            4.36261909014324716e03,
            3.29079923573345963e03,
            1.62138957456669019e03,
            5.37181101862009858e02,
            1.17693950891312499e02,
            1.57449261107098347e01,
            1.0,
        ],
    ]
)
_LARGE_RATIO = np.array(
    [
        [
            6.58749161529837803e-4,
            1.60837851487422766e-2,
            1.25781726111229246e-1,
            3.60344899949804439e-1,
            3.05326634961232344e-1,
            1.63153871373020978e-2,
        ],
        [
            2.33520497626869185e-3,
            6.05183413124413191e-2,
            5.27905102951428412e-1,
            1.87295284992346725e00,
            2.56852019228982242e00,
            1.0,
        ],
    ]
)

# For float32: coefficients from the constant term on, with relative errors of 1e-7 and 5e-8; erfc(0) is exactly 1.
_ARTANH_OF_ERF = (
    1.1283792,
    0.10276905,
    -1.9183222e-4,
    -6.1978353e-4,
    8.763693e-5,
    -5.6684148e-6,
    1.4184894e-7,
)
_SCALED_ERFC = (
    1.0215828,
    -0.6871611,
    0.27946937,
    -0.036434583,
    -0.021481814,
    0.006434756,
    0.0029743232,
    -7.518173e-4,
    -4.573172e-4,
)
# erf is 1 from the first one on (and its tanh, too, in float32), and erfc is 0 from the second one on.
_ERF32_IS_ONE = 4.5
_ERFC32_IS_ZERO = 10.1


def erf(x: NDArray) -> NDArray:
    """Return the error function of a float32 or float64 array, to a few units in the last place."""
    return _in_blocks(_erf32_block if x.dtype == np.float32 else _erf_block, x)


def erfc(x: NDArray) -> NDArray:
    """Return ``1 - erf(x)`` of a float32 or float64 array, to a small relative error down to where it underflows."""
    return _in_blocks(_erfc32_block if x.dtype == np.float32 else _erfc_block, x)


def _in_blocks(run: Callable[[NDArray, NDArray], None], x: NDArray) -> NDArray:
    out = np.empty(x.shape, x.dtype)
    source, target = x.reshape(-1), out.reshape(-1)
    block = _BLOCK32 if x.dtype == np.float32 else _BLOCK
    for start in range(0, x.size, block):
        run(source[start : start + block], target[start : start + block])
    return out


def _ratio(coefficients: NDArray, x: NDArray) -> NDArray:
    """Return the quotient of the two polynomials whose coefficients are the rows of a table."""
    count = coefficients.shape[1]
    powers = np.empty((count, x.size), x.dtype)
    powers[0] = 1.0
    powers[1] = x
    known = 2
    while known < count:
        more = min(known - 1, count - known)
        np.multiply(powers[1 : 1 + more], powers[known - 1], out=powers[known : known + more])
        known += more
    top, bottom = coefficients.astype(x.dtype, copy=False) @ powers
    top /= bottom
    return np.asarray(top)


def _erf_block(x: NDArray, out: NDArray) -> None:
    size = np.abs(x)
    y = np.minimum(size, _ERF_IS_ONE)
    # 1 - erfc: what rounding y * y does to the exponential is lost in the 1.
    np.multiply(y, y, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    out *= _ratio(_MIDDLE_RATIO, y)
    np.subtract(1.0, out, out=out)
    np.copysign(out, x, out=out)
    _put_small(x, size, out)


def _put_small(x: NDArray, size: NDArray, out: NDArray) -> None:
    """Write erf(x) into `out` where it is small, so that it keeps its relative accuracy."""
    (places,) = np.nonzero(size <= _SMALL)
    if places.size:
        chosen = x[places]
        out[places] = chosen * _ratio(_SMALL_RATIO, chosen * chosen)


def _factors_of_bell(y: NDArray) -> tuple[NDArray, NDArray]:
    """Return exp(-y * y) in two factors, the first of an exact square: rounding y * y would cost up to y * y units."""
    head = y * 16.0
    np.trunc(head, out=head)
    head *= 1.0 / 16.0
    tail = head - y
    tail *= head + y
    np.exp(tail, out=tail)
    head *= head
    np.negative(head, out=head)
    np.exp(head, out=head)
    return head, tail


def _erfc_block(x: NDArray, out: NDArray) -> None:
    size = np.abs(x)
    y = np.minimum(size, _ERFC_IS_ZERO)
    out[...] = _ratio(_MIDDLE_RATIO, y)
    (places,) = np.nonzero(y > _LARGE)
    if places.size:
        far = y[places]
        inverse = 1.0 / (far * far)
        out[places] = (_INVERSE_SQRT_PI - inverse * _ratio(_LARGE_RATIO, inverse)) / far
    head, tail = _factors_of_bell(y)
    out *= head
    out *= tail
    np.subtract(2.0, out, out=out, where=x < 0)
    (places,) = np.nonzero(size <= _SMALL)
    if places.size:
        chosen = x[places]
        out[places] = 1.0 - chosen * _ratio(_SMALL_RATIO, chosen * chosen)


def _polynomial(coefficients: tuple[float, ...], x: NDArray, out: NDArray) -> None:
    """Write a polynomial of `x` into `out`, by Horner's rule in place."""
    *lower, last, highest = coefficients
    np.multiply(x, highest, out=out)
    out += last
    for coefficient in reversed(lower):
        out *= x
        out += coefficient


def _erf32_block(x: NDArray, out: NDArray) -> None:
    y = np.minimum(x, _ERF32_IS_ONE)
    np.maximum(y, -_ERF32_IS_ONE, out=y)
    _polynomial(_ARTANH_OF_ERF, y * y, out)
    out *= y
    np.tanh(out, out=out)


def _erfc32_block(x: NDArray, out: NDArray) -> None:
    y = np.abs(x)
    np.minimum(y, _ERFC32_IS_ZERO, out=y)
    over = y + 2.0
    np.reciprocal(over, out=over)
    _polynomial(_SCALED_ERFC, (y - 2.0) * over, out)
    out *= over
    head, tail = _factors_of_bell(y)
    out *= tail
    out *= head
    # 2 - out where x is negative, without a mask, which would be slow.
    sign = np.copysign(np.float32(1.0), x)
    out *= sign
    np.subtract(1.0, sign, out=sign)
    out += sign
