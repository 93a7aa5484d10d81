"""Reductions: many elements to one, along axes."""

import math
from typing import Any

import numpy as np

from .._typing import Array, Axis, Shape
from ..core import batching
from ..core.declare import differentiable, linear
from ..core.op import Structure
from ..errors import AxisError
from .samples import distinct, rejected, sample, values
from .shapes import broadcast_to


def positive_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return axes as a tuple of numbers from 0 on; None means all."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def restore_axes(g: Array, shape: Shape, axis: Axis, keepdims: bool) -> Array:
    """Give a reduced array the axes of length 1 that a reduction of an array of `shape` removed."""
    if keepdims:
        return g
    axes = positive_axes(axis, len(shape))
    return g.reshape(tuple(1 if i in axes else n for i, n in enumerate(shape)))


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


@linear(
    transposes=dict(
        x=lambda g, x_shape, axis, keepdims: broadcast_to(restore_axes(g, x_shape, axis, keepdims), x_shape)
    ),
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    numpy=np.sum,
    samples=lambda: [*reduction_samples(), sample(values(0)), sample(values(2, 0), axis=1), axis_out_of_bounds("sum")],
)
def sum(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the sum over `axis` (all axes by default).

    Example:
        >>> nt.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([4., 6.])
    """
    return np.sum(x, axis=axis, keepdims=keepdims)


def _max_partial(g: Array, x: Array, out: Array, axis: Axis, keepdims: bool) -> Array:
    # Ties share the derivative evenly.
    is_max = x == restore_axes(out, x.shape, axis, keepdims)
    return is_max / sum(is_max * 1.0, axis=axis, keepdims=True) * g


@differentiable(
    vjps=dict(
        x=lambda g, x, out, axis, keepdims: _max_partial(
            restore_axes(g, x.shape, axis, keepdims), x, out, axis, keepdims
        )
    ),
    jvps=dict(
        x=lambda t, x, out, axis, keepdims: sum(_max_partial(t, x, out, axis, keepdims), axis=axis, keepdims=keepdims)
    ),
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    kinks="where the maximum is reached more than once; ties share the derivative evenly",
    numpy=np.max,
    also=("amax",),
    samples=lambda: [*reduction_samples(), axis_out_of_bounds("max")],
)
def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the largest element along `axis` (all axes by default). Ties share the derivative evenly.

    Example:
        >>> nt.max(np.array([[1.0, 2.0], [4.0, 3.0]]), axis=1)
        array([2., 4.])
    """
    return np.max(x, axis=axis, keepdims=keepdims)
