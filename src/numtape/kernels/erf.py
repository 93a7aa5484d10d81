"""The error function and its complement, by W. J. Cody's rational approximations (Math. Comp. 23, 1969, 631-637).

Numerator and denominator of an approximation have positive coefficients and a positive argument, so nothing cancels:
both come from one table of powers and one matrix product, block by block within the processor's cache.
"""

from collections.abc import Callable

import numpy as np

from .._typing import NDArray

_BLOCK = 8192
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


def erf(x: NDArray) -> NDArray:
    """Return the error function of a float32 or float64 array, to a few units in the last place."""
    return _in_blocks(_erf_block, x)


def erfc(x: NDArray) -> NDArray:
    """Return ``1 - erf(x)`` of a float32 or float64 array, to a small relative error down to where it underflows."""
    if x.dtype == np.float32:
        # The squares in the exponent need more than float32 holds.
        return _in_blocks(_erfc_block, x.astype(np.float64)).astype(np.float32)
    return _in_blocks(_erfc_block, x)


def _in_blocks(run: Callable[[NDArray, NDArray], None], x: NDArray) -> NDArray:
    out = np.empty(x.shape, x.dtype)
    source, target = x.reshape(-1), out.reshape(-1)
    for start in range(0, x.size, _BLOCK):
        run(source[start : start + _BLOCK], target[start : start + _BLOCK])
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


def _erfc_block(x: NDArray, out: NDArray) -> None:
    size = np.abs(x)
    y = np.minimum(size, _ERFC_IS_ZERO)
    out[...] = _ratio(_MIDDLE_RATIO, y)
    (places,) = np.nonzero(y > _LARGE)
    if places.size:
        far = y[places]
        inverse = 1.0 / (far * far)
        out[places] = (_INVERSE_SQRT_PI - inverse * _ratio(_LARGE_RATIO, inverse)) / far
    # exp(-y * y) in two factors, the first with an exact square: rounding y * y would cost up to y * y units.
    head = np.trunc(y * 16.0) / 16.0
    tail = (head - y) * (head + y)
    np.multiply(head, head, out=head)
    np.negative(head, out=head)
    out *= np.exp(head)
    out *= np.exp(tail)
    np.subtract(2.0, out, out=out, where=x < 0)
    (places,) = np.nonzero(size <= _SMALL)
    if places.size:
        chosen = x[places]
        out[places] = 1.0 - chosen * _ratio(_SMALL_RATIO, chosen * chosen)
