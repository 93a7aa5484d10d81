"""Variances, weighted averages, and sums that leave out NaN."""

import math
from typing import Any

import numpy as np

from .._typing import Array, Axis, NDArray, Shape
from ..core import batching
from ..core.declare import composed, differentiable
from ..core.facts import Structure
from ..core.value import array_of
from ..errors import ArgumentError, ShapeError
from ..kernels.half_sums import HALVES, sum_of_halves
from ..kernels.sums import add_reduce
from .casting import in_dtype_of
from .overflowing import overflows, scaled_down
from .reductions import (
    axis_out_of_bounds,
    mean,
    reduced_count,
    reduction_cost,
    reduction_samples,
    restore_axes,
    sum,
)
from .samples import distinct, rejected, sample, values
from .selection import where
from .shapes import axis_of


def _freedom(name: str, shape: Shape, axis: Axis, ddof: float, correction: float | None) -> float:
    """Return the number that squared deviations are divided by; not below 0, as in NumPy."""
    if correction is not None:
        if ddof != 0:
            raise ArgumentError(f"{name}: ddof is {ddof} and correction is {correction}; they mean the same, give one.")
        ddof = correction
    left = reduced_count(shape, axis) - ddof
    return left if left > 0 else 0


def _mean_square_deviation(x: NDArray, axis: Axis, freedom: float, keepdims: bool) -> NDArray:
    # Two passes: the mean of squares less the square of the mean would cancel.
    count = reduced_count(x.shape, axis)
    deviation = x - add_reduce(x, axis, True) / count
    # Deviations from a rounded mean do not sum to 0: sum((x - m)^2) = sum((x - c)^2) - sum(x - c)^2 / n.
    left: NDArray = add_reduce(deviation, axis, keepdims)
    deviation *= deviation
    squares: NDArray = add_reduce(deviation, axis, keepdims)
    return np.maximum(squares - left * (left / max(count, 1)), 0.0) / freedom


def _var_slope(weight: Array, x: Array, axis: Axis, ddof: float, correction: float | None) -> Array:
    # d var = 2 / (n - ddof) sum((x - mean) dx): the mean's own change drops out, as deviations sum to 0.
    return (x - mean(x, axis=axis, keepdims=True)) * (weight * 2.0 / _freedom("var", x.shape, axis, ddof, correction))


def _var_vjp(g: Array, x: Array, axis: Axis, ddof: float, keepdims: bool, correction: float | None) -> Array:
    return _var_slope(restore_axes(g, x.shape, axis, keepdims), x, axis, ddof, correction)


def _var_jvp(t: Array, x: Array, axis: Axis, ddof: float, keepdims: bool, correction: float | None) -> Array:
    return sum(_var_slope(t, x, axis, ddof, correction), axis=axis, keepdims=keepdims)


def _deviation_samples(name: str) -> list[Any]:
    def is_degenerate(s: Any) -> bool:
        return name == "std" and reduced_count(np.shape(s.args[0]), s.params.get("axis")) == 1

    return [
        *(s for s in reduction_samples() if not is_degenerate(s)),
        sample(distinct(1), skip_derivatives="the deviation is 0"),
        sample(distinct(3, 1, 2), axis=1, skip_derivatives="the deviation is 0"),
        sample(np.full((2, 3), 0.5), axis=1, skip_derivatives="the deviation is 0"),
        sample(distinct(2, 3), axis=1, ddof=1),
        sample(distinct(2, 3), axis=0, correction=0.5, keepdims=True),
        sample(distinct(4) + 1e4, skip_derivatives="differences lose too many digits"),
        sample(values(0, 3), axis=1),
        axis_out_of_bounds(name),
        rejected(
            ArgumentError,
            f"{name}: ddof is 1 and correction is 2; they mean the same, give one.",
            np.ones(3),
            ddof=1,
            correction=2,
        ),
    ]


@differentiable(
    vjps={"x": _var_vjp},
    jvps={"x": _var_jvp},
    cost=lambda out, x, **params: 4 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    to_float=True,
    numpy=np.var,
    samples=lambda: _deviation_samples("var"),
)
def var(
    x: Array, /, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False, correction: float | None = None
) -> Array:
    """Return the variance over `axis` (all axes by default): ``sum((x - mean) ** 2) / (n - ddof)``.

    Args:
        x: any shape.
        axis: the axes to reduce.
        ddof: 0 as in NumPy; 1 for the unbiased estimate, PyTorch's default.
        keepdims: keep the reduced axes with length 1.
        correction: another name of `ddof`.

    Example:
        >>> nt.var(np.array([[1.0, 3.0], [2.0, 6.0]]), axis=1)
        array([1., 4.])
    """
    return _mean_square_deviation(x, axis, _freedom("var", x.shape, axis, ddof, correction), keepdims)


def _std_slope(
    weight: Array, x: Array, out: Array, axis: Axis, ddof: float, keepdims: bool, correction: float | None
) -> Array:
    # d std = sum((x - mean) dx) / ((n - ddof) std), and 0 where std is 0.
    out = restore_axes(out, x.shape, axis, keepdims)
    if overflows(out):
        (small,) = scaled_down(x)
        is_large = out == np.inf
        out = where(is_large, std(small, axis=axis, ddof=ddof, keepdims=True, correction=correction), out)
        x = where(is_large, small, x)
    is_zero = out == 0.0
    scale = weight / (where(is_zero, 1.0, out) * _freedom("std", x.shape, axis, ddof, correction))
    return (x - mean(x, axis=axis, keepdims=True)) * where(is_zero, 0.0, scale)


def _std_vjp(
    g: Array, x: Array, out: Array, axis: Axis, ddof: float, keepdims: bool, correction: float | None
) -> Array:
    return _std_slope(restore_axes(g, x.shape, axis, keepdims), x, out, axis, ddof, keepdims, correction)


def _std_jvp(
    t: Array, x: Array, out: Array, axis: Axis, ddof: float, keepdims: bool, correction: float | None
) -> Array:
    return sum(_std_slope(t, x, out, axis, ddof, keepdims, correction), axis=axis, keepdims=keepdims)


@differentiable(
    vjps={"x": _std_vjp},
    jvps={"x": _std_jvp},
    cost=lambda out, x, **params: 4 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    to_float=True,
    kinks="where all elements are equal; the derivative is taken as 0",
    numpy=np.std,
    samples=lambda: _deviation_samples("std"),
)
def std(
    x: Array, /, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False, correction: float | None = None
) -> Array:
    """Return the standard deviation over `axis` (all axes by default). Where it is 0, so is the derivative.

    Args:
        x: any shape.
        axis: the axes to reduce.
        ddof: 0 as in NumPy; 1 for the square root of the unbiased variance, PyTorch's default.
        keepdims: keep the reduced axes with length 1.
        correction: another name of `ddof`.

    Example:
        >>> nt.std(np.array([[1.0, 3.0], [2.0, 6.0]]), axis=1)
        array([1., 2.])
    """
    return np.sqrt(_mean_square_deviation(x, axis, _freedom("std", x.shape, axis, ddof, correction), keepdims))


def _without_nan(weight: Array, x: Array) -> Array:
    return where(x == x, weight, 0.0)


def _nan_count(x: Array, axis: Axis, dtype: Any) -> Array:
    return sum(x == x, axis=axis, keepdims=True).astype(dtype)


def _nansum_vjp(g: Array, x: Array, axis: Axis, keepdims: bool) -> Array:
    return _without_nan(restore_axes(g, x.shape, axis, keepdims), x)


def _nansum_jvp(t: Array, x: Array, axis: Axis, keepdims: bool) -> Array:
    return sum(_without_nan(t, x), axis=axis, keepdims=keepdims)


def _nan_samples(name: str) -> list[Any]:
    x = values(3, 4)
    x[0, 1] = x[1, 0] = x[1, 3] = np.nan
    return [
        *reduction_samples(),
        sample(x),
        sample(x, axis=0),
        sample(x, axis=-1, keepdims=True),
        sample(x[None], axis=(0, 2)),
        axis_out_of_bounds(name),
    ]


@differentiable(
    vjps={"x": _nansum_vjp},
    jvps={"x": _nansum_jvp},
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    native_half=True,
    numpy=np.nansum,
    samples=lambda: [*_nan_samples("nansum"), sample(np.full((2, 3), np.nan), axis=1), sample(values(0))],
)
def nansum(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the sum over `axis` (all axes by default) of the elements that are not NaN; 0 if there are none.

    That of half numbers is correctly rounded. Elements that are NaN have the gradient 0.

    Example:
        >>> nt.nansum(np.array([1.0, np.nan, 2.0]))
        array(3.)
    """
    numbers = np.where(np.isnan(x), np.zeros((), x.dtype), x)
    return sum_of_halves(numbers, axis, keepdims) if x.dtype in HALVES else add_reduce(numbers, axis, keepdims)


def _nanmean_vjp(g: Array, x: Array, axis: Axis, keepdims: bool) -> Array:
    return _without_nan(restore_axes(g, x.shape, axis, keepdims) / _nan_count(x, axis, g.dtype), x)


def _nanmean_jvp(t: Array, x: Array, axis: Axis, keepdims: bool) -> Array:
    return sum(_without_nan(t / _nan_count(x, axis, t.dtype), x), axis=axis, keepdims=keepdims)


@differentiable(
    vjps={"x": _nanmean_vjp},
    jvps={"x": _nanmean_jvp},
    cost=lambda out, x, **params: 2 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    to_float=True,
    numpy=np.nanmean,
    samples=lambda: _nan_samples("nanmean"),
)
def nanmean(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the mean over `axis` (all axes by default) of the elements that are not NaN; NaN if there are none.

    Elements that are NaN have the gradient 0.

    Example:
        >>> nt.nanmean(np.array([1.0, np.nan, 2.0]))
        array(1.5)
    """
    is_number = x == x
    total = add_reduce(np.where(is_number, x, 0.0), axis, keepdims)
    return total / add_reduce(is_number, axis, keepdims).astype(x.dtype)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    numpy=np.average,
    samples=lambda: [
        sample(values(2, 3)),
        sample(values(2, 3), 0),
        sample(values(2, 3), None, values(2, 3, low=0.5)),
        sample(values(2, 3), 1, values(2, 3, low=0.5)),
        sample(values(2, 3), 1, values(3, low=0.5)),
        sample(values(2, 3), 0, values(2, low=0.5)),
        sample(values(2, 3, 2), -2, values(3, low=0.5)),
        sample(values(2, 3, 2), (0, 2), values(2, 3, 2, low=0.5), keepdims=True),
        sample(values(4), None, values(4, low=0.5)),
        sample(values(1), 0, values(1, low=0.5)),
        rejected(
            ShapeError,
            "average: x has shape (2, 3), axis is None and weights have shape (3,); weights have the shape of x, or "
            "the length of the one axis that is given.",
            np.ones((2, 3)),
            weights=np.ones(3),
        ),
        rejected(
            ShapeError,
            "average: x has shape (2, 3), axis is 0 and weights have shape (3,); weights have the shape of x, or the "
            "length of the one axis that is given.",
            np.ones((2, 3)),
            axis=0,
            weights=np.ones(3),
        ),
    ],
)
def average(x: Array, axis: Axis = None, weights: Array | None = None, *, keepdims: bool = False) -> Array:
    """Return the weighted average over `axis` (all axes by default): ``sum(x * weights) / sum(weights)``.

    Args:
        x: any shape.
        axis: the axes to reduce.
        weights: of the shape of x, or of the length of `axis`; None weighs all elements alike.
        keepdims: keep the reduced axes with length 1.

    Example:
        >>> nt.average(np.array([1.0, 2.0, 4.0]), weights=np.array([1.0, 1.0, 2.0]))
        array(2.75)
    """
    if weights is None:
        return mean(x, axis=axis, keepdims=keepdims)
    weights = in_dtype_of(x, weights)
    shape, given = np.shape(x), np.shape(weights)
    if given != shape:
        if not isinstance(axis, int) or given != (shape[axis_of("average", axis, shape)],):
            raise ShapeError(
                f"average: x has shape {shape}, axis is {axis} and weights have shape {given}; weights have the shape "
                "of x, or the length of the one axis that is given."
            )
        weights = (weights if hasattr(weights, "shape") else np.asarray(weights)).reshape(
            tuple(n if i == axis % len(shape) else 1 for i, n in enumerate(shape))
        )
    total = mean(weights, axis=axis, keepdims=True)
    if np.any(array_of(total) == 0):
        raise ArgumentError("average: the weights sum to zero; there is no average.")
    # Means instead of sums keep halves within range.
    return mean(x * (weights / total), axis=axis, keepdims=keepdims)
