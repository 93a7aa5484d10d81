"""Reductions: many elements to one, along axes."""

import math
from typing import Any

import numpy as np

from .._typing import Array, Axis, NDArray, Shape
from ..core import batching
from ..core.declare import differentiable, linear
from ..core.facts import Back, Structure
from ..core.value import array_of
from ..dtypes import float32, float64
from ..errors import ArgumentError, AxisError
from ..kernels.half_sums import HALVES, rounded, sum_of_halves
from ..kernels.sums import add_reduce
from ..kernels.views import is_repeated_by_view, repeated
from .comparisons import logical_or
from .samples import distinct, rejected, sample, values
from .scans import exclusive_cumprod
from .selection import where
from .shapes import spread_to
from .softmax import lane_max, softmax

# The ufuncs' own reductions skip a layer of Python that np.sum and its like have.
_plain_add_reduce: Any = np.add.reduce
_multiply_reduce: Any = np.multiply.reduce
_maximum_reduce: Any = np.maximum.reduce
_minimum_reduce: Any = np.minimum.reduce


def positive_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return axes as a tuple of numbers from 0 on; None means all."""
    if axis is None:
        return tuple(range(ndim))
    # NumPy takes a number for an array of one element on one axis.
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,))) if ndim else ()


def restore_axes(g: Array, shape: Shape, axis: Axis, keepdims: bool) -> Array:
    """Give a reduced array the axes of length 1 that a reduction of an array of `shape` removed."""
    if keepdims:
        return g
    axes = positive_axes(axis, len(shape))
    return g.reshape(tuple(1 if i in axes else n for i, n in enumerate(shape)))


def reduced_count(shape: Shape, axis: Axis) -> int:
    """Return how many elements of an array of `shape` become one."""
    return math.prod(shape) if axis is None else math.prod(shape[a] for a in positive_axes(axis, len(shape)))


def reduction_cost(out: Shape, x: Shape, **params: Any) -> int:
    """Count one operation per element of the operand."""
    return math.prod(x)


def reduction_samples() -> list[Any]:
    """Return samples of a reduction with `axis` and `keepdims`, without ties."""
    return [
        sample(distinct(2, 3)),
        sample(distinct(2, 3), axis=0),
        sample(distinct(2, 3), axis=-1, keepdims=True),
        sample(distinct(2, 3, 4), axis=(0, 2)),
        sample(distinct(2, 3, 4), axis=(-1, 0), keepdims=True),
        sample(distinct(5)),
        sample(distinct(1)),
        sample(distinct()),
        sample(distinct(3, 1, 2), axis=1),
        sample(distinct(2, 3), keepdims=True),
    ]


def axis_out_of_bounds(name: str) -> Any:
    """Return the rejected sample that every reduction has."""
    return rejected(
        AxisError,
        f"{name}: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
        np.ones((2, 3)),
        axis=2,
    )


def _spread(g: Array, x_shape: Shape, axis: Axis, keepdims: bool) -> Array:
    # What was reduced over all axes broadcasts as it is. NumPy makes numbers of arrays without axes.
    if axis is None and (type(g) is np.ndarray or isinstance(g, np.generic)):
        return repeated(g, x_shape)
    return spread_to(g if axis is None else restore_axes(g, x_shape, axis, keepdims), {"shape": x_shape})


def _is_spread_by_view(shape: Shape, axis: Axis) -> bool:
    """Say whether `_spread` copies nothing."""
    return axis is not None or is_repeated_by_view(shape)


@linear(
    transposes={"x": _spread},
    back=lambda argument, shape, axis, keepdims: Back.SHARED if _is_spread_by_view(shape, axis) else Back.OWN,
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    native_half=True,
    numpy=(np.sum, np.add.reduce),
    samples=lambda: [*reduction_samples(), sample(values(0)), sample(values(2, 0), axis=1), axis_out_of_bounds("sum")],
)
def sum(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the sum over `axis` (all axes by default). That of half numbers is correctly rounded.

    Example:
        >>> nt.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([4., 6.])
    """
    dtype = getattr(x, "dtype", None)
    if dtype is not float64 and dtype is not float32 and dtype in HALVES:
        return sum_of_halves(x, axis, keepdims)
    return add_reduce(x, axis, keepdims)


@linear(
    transposes={
        "x": lambda g, x_shape, axis, keepdims: _spread(g / reduced_count(x_shape, axis), x_shape, axis, keepdims)
    },
    back=lambda argument, shape, axis, keepdims: Back.REPEATED if _is_spread_by_view(shape, axis) else Back.OWN,
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    native_half=True,
    to_float=True,
    numpy=np.mean,
    samples=lambda: [*reduction_samples(), sample(values(0, 3), axis=1), axis_out_of_bounds("mean")],
)
def mean(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the mean over `axis` (all axes by default); NaN of no elements.

    Example:
        >>> nt.mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([2., 3.])
    """
    count = reduced_count(x.shape, axis)
    if x.dtype in HALVES:
        # The mean of bfloat16 numbers is in range where their sum is beyond that of float32.
        total = np.asarray(_plain_add_reduce(x, axis=axis, keepdims=keepdims, dtype=np.float64))
        return rounded(total / count, x.dtype)
    return add_reduce(x, axis, keepdims) / count


def _others(x: Array, axes: tuple[int, ...]) -> Array:
    """Return for each element the product of all others of its lane."""
    if not axes:
        return np.ones(x.shape, x.dtype)
    if type(x) is np.ndarray and x.dtype in (np.float32, np.float64):
        # Divide only where nothing is lost: no zeros, no overflow, no underflow.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            out = _multiply_reduce(x, axis=axes, keepdims=True)
        size = np.abs(out)
        if bool(np.all((size >= np.finfo(x.dtype).tiny) & (size < np.inf))):
            return out / x
    # Those of the lane along the first axis, times the products of the other such lanes.
    first, *rest = axes
    within = exclusive_cumprod(x, first) * exclusive_cumprod(x, first, reverse=True)
    return within * _others(prod(x, axis=first, keepdims=True), tuple(rest)) if rest else within


def _prod_vjp(g: Array, x: Array, axis: Axis, keepdims: bool) -> Array:
    return restore_axes(g, x.shape, axis, keepdims) * _others(x, positive_axes(axis, len(x.shape)))


def _prod_jvp(t: Array, x: Array, axis: Axis, keepdims: bool) -> Array:
    return sum(t * _others(x, positive_axes(axis, len(x.shape))), axis=axis, keepdims=keepdims)


def _with_zeros() -> NDArray:
    """Return lanes with none, one, two and only zeros."""
    x = values(4, 3, avoid=(0,))
    x[1, 0] = x[2, 0] = x[2, 2] = 0.0
    x[3] = 0.0
    return x


@differentiable(
    vjps={"x": _prod_vjp},
    jvps={"x": _prod_jvp},
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    numpy=(np.prod, np.multiply.reduce),
    samples=lambda: [
        *reduction_samples(),
        sample(values(0)),
        sample(values(2, 0), axis=1),
        sample(_with_zeros(), axis=1),
        sample(_with_zeros(), axis=-1, keepdims=True),
        sample(_with_zeros(), axis=0),
        sample(np.array([[1.5, 0.0], [-0.5, 2.0]])),
        sample(np.array([[[1.5, 0.0], [-0.5, 2.0]], [[0.0, 3.0], [1.0, 0.5]]]), axis=(0, 2)),
        axis_out_of_bounds("prod"),
    ],
)
def prod(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the product over `axis` (all axes by default). The derivative is right with any number of zeros.

    Example:
        >>> nt.prod(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([3., 8.])
    """
    return _multiply_reduce(x, axis=axis, keepdims=keepdims)


def share_among_ties(weight: Array, x: Array, out: Array, axis: Axis) -> Array:
    """Return `weight`, divided evenly, at the elements that equal `out` (of kept axes), and 0 elsewhere."""
    # NaN is the extreme of a lane that holds it; it is not hidden by the gradient 0.
    is_reached = logical_or(x == out, x != x)
    count = sum(is_reached, axis=axis, keepdims=True)
    return where(is_reached, weight / count.astype(weight.dtype), 0.0)


def _extreme_vjp(g: Array, x: Array, out: Array, axis: Axis, keepdims: bool) -> Array:
    g, out = (restore_axes(y, x.shape, axis, keepdims) for y in (g, out))
    return share_among_ties(g, x, out, axis)


def _extreme_jvp(t: Array, x: Array, out: Array, axis: Axis, keepdims: bool) -> Array:
    out = restore_axes(out, x.shape, axis, keepdims)
    return sum(share_among_ties(t, x, out, axis), axis=axis, keepdims=keepdims)


def _extreme_samples(name: str, ufunc: str) -> list[Any]:
    return [
        *reduction_samples(),
        sample(np.array([[1.0, 1.0, 1.0], [2.0, 3.0, 2.0]]), axis=1, skip_derivatives="ties"),
        axis_out_of_bounds(name),
        rejected(
            ArgumentError,
            f"{name}: zero-size array to reduction operation {ufunc} which has no identity (x has shape (0,)).",
            np.ones(0),
        ),
    ]


@differentiable(
    vjps={"x": _extreme_vjp},
    jvps={"x": _extreme_jvp},
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    kinks="where the maximum is reached more than once; ties share the derivative evenly",
    numpy=(np.max, np.amax, np.maximum.reduce),
    also=("amax",),
    samples=lambda: _extreme_samples("max", "maximum"),
)
def max(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the largest element along `axis` (all axes by default). Ties share the derivative evenly.

    Example:
        >>> nt.max(np.array([[1.0, 2.0], [4.0, 3.0]]), axis=1)
        array([2., 4.])
    """
    return _maximum_reduce(x, axis=axis, keepdims=keepdims)


@differentiable(
    vjps={"x": _extreme_vjp},
    jvps={"x": _extreme_jvp},
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    kinks="where the minimum is reached more than once; ties share the derivative evenly",
    numpy=(np.min, np.amin, np.minimum.reduce),
    also=("amin",),
    samples=lambda: _extreme_samples("min", "minimum"),
)
def min(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the smallest element along `axis` (all axes by default). Ties share the derivative evenly.

    Example:
        >>> nt.min(np.array([[1.0, 2.0], [4.0, 3.0]]), axis=1)
        array([1., 3.])
    """
    return _minimum_reduce(x, axis=axis, keepdims=keepdims)


def _weights(x: Array, out: Array, axis: Axis, keepdims: bool) -> Array:
    if not np.isneginf(array_of(out)).any():
        return softmax(x, axis)
    # Of a lane of -inf alone no element has a say. Its softmax is NaN, and so would be what second derivatives read.
    is_nothing = restore_axes(out, x.shape, axis, keepdims) == -np.inf
    return where(is_nothing, 0.0, softmax(where(is_nothing, 0.0, x), axis))


@differentiable(
    vjps={
        "x": lambda g, x, out, axis, keepdims: (
            restore_axes(g, x.shape, axis, keepdims) * _weights(x, out, axis, keepdims)
        )
    },
    jvps={
        "x": lambda t, x, out, axis, keepdims: sum(t * _weights(x, out, axis, keepdims), axis=axis, keepdims=keepdims)
    },
    cost=lambda out, x, **params: 10 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    to_float=True,
    reference=lambda x, axis=None, keepdims=False: np.logaddexp.reduce(x, axis=axis, keepdims=keepdims),
    samples=lambda: [
        *reduction_samples(),
        sample(np.array([[1000.0, 1000.5], [-1000.0, -1001.0]]), axis=1),
        sample(np.array([[-np.inf, 0.5], [1.0, -np.inf]]), axis=1),
        sample(np.array([[-np.inf, -np.inf], [0.5, 1.0]]), axis=1, skip_derivatives="the sum is -inf"),
        sample(np.array([np.inf, 1.0]), skip_derivatives="the sum is inf"),
        sample(values(2, 0), axis=1, skip_derivatives="the sum is -inf"),
        axis_out_of_bounds("logsumexp"),
    ],
)
def logsumexp(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return ``log(sum(exp(x)))`` over `axis` (all axes by default), without overflow.

    The largest element is subtracted first. A lane of -inf alone gives -inf, with the gradient 0.

    Example:
        >>> nt.logsumexp(np.array([1000.0, 1000.0]))
        array(1000.69314718)
    """
    peak = lane_max(x, axis)
    is_finite = np.isfinite(peak)
    all_finite = bool(is_finite.all())
    if not all_finite:
        peak = np.where(is_finite, peak, 0.0)
    weights = np.subtract(x, peak, out=np.empty(x.shape, x.dtype))
    np.exp(weights, out=weights)
    total = np.asarray(add_reduce(weights, axis, keepdims))
    peak = peak.reshape(total.shape)
    with np.errstate(divide="warn" if all_finite else "ignore"):
        out = np.log(total)
    # Beside a peak near 0, the logarithm of a sum near 1 is all there is, and the sum has lost its digits.
    is_lost = (total >= 1.0) & (total < 1.0625) & (np.abs(peak) < 1.0)
    if is_lost.any():
        weights[weights == 1.0] = 0.0
        out = np.where(is_lost, np.log1p(add_reduce(weights, axis, keepdims)), out)
    return out + peak
