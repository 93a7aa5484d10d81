"""Differences and integrals of sampled functions."""

import math
from typing import Any
from typing import cast as cast_type

import numpy as np

from .._typing import Array, Axis, Shape
from ..core import batching
from ..core.apply import as_operand
from ..core.declare import composed, face_of, linear, registry
from ..core.facts import Structure
from ..core.op import Op
from ..core.terms import Terms
from ..core.value import Value
from ..dtypes import default_dtype, is_float
from ..errors import ArgumentError, AxisError, ShapeError
from .casting import in_dtype_of
from .joining import concat, with_common_dtype
from .padding import pad_zeros
from .reductions import sum
from .samples import rejected, sample, values
from .scans import cumsum
from .shapes import axes_of, axis_of, broadcast_to, reshape, shape_of, without_lists


def _part(x: Array, axis: int, start: int | None, end: int | None) -> Array:
    """Return a slice along an axis counted from 0."""
    return x[(*(slice(None),) * axis, slice(start, end))]


def _array(x: Array, *beside: Any) -> Array:
    """Return what may be a list as an array of floats, of the dtype of others or the default one if it has none."""
    if isinstance(x, Value | np.ndarray):
        return x
    array = np.asarray(as_operand(cast_type(Op, registry["diff"]), x, 0, beside))
    return array if is_float(array.dtype) else array.astype(default_dtype())


def _diff_back(g: Array, x_shape: Shape, n: int, axis: int) -> Array:
    # The transpose of a difference is minus the difference, with zeros beyond both ends.
    place = axis % len(x_shape)
    if n > x_shape[place]:
        return np.zeros(x_shape, g.dtype)
    widths = tuple((n, n) if i == place else (0, 0) for i in range(len(x_shape)))
    back = _diff(pad_zeros(g, widths=widths), n=n, axis=place)
    return -back if n % 2 else back


def _diff_terms(out: Shape, x: Shape, n: int, axis: int) -> list[Terms]:
    place = axis % len(x)
    before, after = math.prod(out[:place]), math.prod(out[place + 1 :])
    first, i, k, last = np.ogrid[:before, : out[place], : n + 1, :after]
    return [Terms((first * out[place] + i) * after + last, {0: (first * x[place] + i + k) * after + last})]


@linear(
    transposes={"x": _diff_back},
    structure=Structure.TERMS,
    terms=_diff_terms,
    batch=batching.along_axis,
    cost=lambda out, x, n, axis: n * math.prod(x),
    numpy=np.diff,
    samples=lambda: [
        sample(values(5)),
        sample(values(5), n=2),
        sample(values(5), n=3),
        sample(values(5), n=0),
        sample(values(2, 4), axis=0),
        sample(values(2, 4), n=2, axis=1),
        sample(values(2, 3, 4), axis=-2),
        sample(values(1)),
        sample(values(0)),
        sample(values(2), n=2),
        sample(values(2), n=4),
        rejected(ArgumentError, "diff: n is -1; an order is at least 0.", np.ones(3), n=-1),
        rejected(
            AxisError, "diff: axis 1 is out of bounds for array of dimension 1; x has shape (3,).", np.ones(3), axis=1
        ),
    ],
)
def _diff(x: Array, /, *, n: int = 1, axis: int = -1) -> Array:
    """Return the differences of neighbours along an axis, `n` times over."""
    if n < 0:
        raise ArgumentError(f"diff: n is {n}; an order is at least 0.")
    # NumPy returns the array itself for n = 0, which is not ours to share.
    return np.diff(x, n, axis_of("diff", axis, np.shape(x))) if n else np.array(x)


@face_of(_diff)
def diff(x: Array, n: int = 1, axis: int = -1, prepend: Array = None, append: Array = None) -> Array:
    """Return the differences of neighbours along an axis, `n` times over: ``x[i + 1] - x[i]``.

    Args:
        x: at least one axis.
        n: how many times; the axis becomes `n` shorter.
        axis: the axis.
        prepend: what to put before `x` first: a number, or an array with the shape of `x` but for `axis`.
        append: what to put after it.

    Example:
        >>> nt.diff(np.array([1.0, 4.0, 9.0]))
        array([3., 5.])
    """
    if prepend is None and append is None:
        return _diff(x, n=n, axis=axis)
    shape = shape_of(x)
    place = axis_of("diff", axis, shape)
    parts = with_common_dtype("diff", *(part for part in (prepend, x, append) if part is not None))
    edge = (*shape[:place], 1, *shape[place + 1 :])
    whole = concat([part if shape_of(part) else broadcast_to(part, edge) for part in parts], axis=place)
    return _diff(whole, n=n, axis=place)


def _spacing(step: Array, axis: int, shape: Shape) -> Array:
    """Return the distances of neighbours along an axis: a number as it is, or shaped to be multiplied."""
    lengths = shape_of(step)
    if not lengths:
        return step
    if lengths != (shape[axis],):
        raise ShapeError(
            f"gradient: x has shape {shape} and the coordinates along axis {axis} have shape {lengths}; there must be "
            f"{shape[axis]} of them."
        )
    return reshape(_diff(step), (-1, *(1,) * (len(shape) - axis - 1)))


def _gradient_along(x: Array, step: Array, axis: int, edge_order: int) -> Array:
    length = shape_of(x)[axis]
    if length < edge_order + 1:
        raise ShapeError(
            f"gradient: axis {axis} of x has length {length}; with edge_order {edge_order} it must be at least "
            f"{edge_order + 1}."
        )
    h = _spacing(step, axis, shape_of(x))
    is_uniform = not shape_of(h)
    first, last = _part(x, axis, 0, 1), _part(x, axis, -1, None)
    second, second_last = _part(x, axis, 1, 2), _part(x, axis, -2, -1)
    left, right = (h, h) if is_uniform else (_part(h, 0, 0, 1), _part(h, 0, -1, None))
    if edge_order == 1:
        start, end = (second - first) / left, (last - second_last) / right
    else:
        third, third_last = _part(x, axis, 2, 3), _part(x, axis, -3, -2)
        left_next, right_next = (h, h) if is_uniform else (_part(h, 0, 1, 2), _part(h, 0, -2, -1))
        start = _one_sided(first, second, third, left, left_next)
        end = -_one_sided(last, second_last, third_last, right, right_next)
    if length == 2:
        return concat([start, end], axis=axis)
    before, middle, after = _part(x, axis, None, -2), _part(x, axis, 1, -1), _part(x, axis, 2, None)
    if is_uniform:
        inner = (after - before) / (2.0 * h)
    else:
        # The parabola through three points, differentiated at the middle one.
        a, b = _part(h, 0, None, -1), _part(h, 0, 1, None)
        inner = (after * (a / (b * (a + b)))) + middle * ((b - a) / (a * b)) - before * (b / (a * (a + b)))
    return concat([start, inner, end], axis=axis)


def _one_sided(f: Array, f1: Array, f2: Array, a: Array, b: Array) -> Array:
    """Return the derivative at the first of three points, `a` and `b` apart, of the parabola through them."""
    total = a + b
    return f1 * (total / (a * b)) - f * ((a + total) / (a * total)) - f2 * (a / (b * total))


@composed(
    to_float=True,
    rounds_once=True,
    numpy=np.gradient,
    samples=lambda: [
        sample(values(5)),
        sample(values(2)),
        sample(values(5), 0.5),
        sample(values(5), np.array([0.0, 0.5, 1.5, 2.0, 4.0])),
        sample(values(3), np.array([0.0, 0.5, 1.5]), edge_order=2),
        sample(values(3, 4)),
        sample(values(3, 4), 0.5, 2.0),
        sample(values(3, 4), 0.5, np.array([0.0, 1.0, 1.5, 4.0])),
        sample(values(3, 4), axis=1),
        sample(values(3, 4), np.array([0.0, 2.0, 3.0]), axis=0),
        sample(values(3, 4), 2.0, axis=(-1, 0)),
        sample(values(3, 4), edge_order=2),
        sample(values(2, 3, 2), axis=1),
        rejected(
            ShapeError,
            "gradient: axis 0 of x has length 1; with edge_order 1 it must be at least 2.",
            np.ones((1, 3)),
            axis=0,
        ),
        rejected(
            ArgumentError,
            "gradient: 2 spacings were given for 1 axes; give none, one number, or one for each axis.",
            np.ones(3),
            1.0,
            2.0,
        ),
        rejected(
            ShapeError,
            "gradient: x has shape (3,) and the coordinates along axis 0 have shape (2,); there must be 3 of them.",
            np.ones(3),
            np.ones(2),
        ),
        rejected(ArgumentError, "gradient: edge_order is 3; it is 1 or 2.", np.ones(3), edge_order=3),
    ],
)
def gradient(x: Array, *spacing: Array, axis: Axis = None, edge_order: int = 1) -> Array:
    """Return the derivative of a sampled function by differences: central inside, one-sided at the ends.

    Not the derivative that a tape takes; that one is `grad`.

    Args:
        x: the samples.
        spacing: nothing for 1, one number for all axes, or for each axis a number or the coordinates (one axis).
        axis: the axes to differentiate along; None for all.
        edge_order: 1 or 2, how exact the ends are.

    Returns:
        An array with the shape of `x` for one axis, a tuple of them for several.

    Example:
        >>> nt.gradient(np.array([0.0, 1.0, 4.0, 9.0]))
        array([1., 2., 4., 5.])
    """
    x, *steps = without_lists(_array(x, *spacing), *(spacing or (1.0,)))
    shape = shape_of(x)
    axes = tuple(range(len(shape))) if axis is None else axes_of("gradient", axis, shape)
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is {edge_order}; it is 1 or 2.")
    if len(steps) == 1 and not shape_of(steps[0]):
        steps = steps * len(axes)
    if len(steps) != len(axes):
        raise ArgumentError(
            f"gradient: {len(steps)} spacings were given for {len(axes)} axes; give none, one number, or one for each "
            "axis."
        )
    parts = tuple(_gradient_along(x, step, i, edge_order) for i, step in zip(axes, steps, strict=True))
    return parts[0] if len(parts) == 1 else parts


def _trapezoids(name: str, y: Array, x: Array, dx: Array, axis: int) -> Array:
    """Return the areas between neighbouring samples."""
    shape = shape_of(y)
    sums = _part(y, axis, 1, None) + _part(y, axis, None, -1)
    if x is None:
        return sums * (dx * 0.5)
    x = in_dtype_of(y, _array(x, y))
    lengths = shape_of(x)
    if len(lengths) == 1:
        if lengths != (shape[axis],):
            raise ShapeError(
                f"{name}: y has shape {shape} and x has shape {lengths}; x must have {shape[axis]} elements, as axis "
                f"{axis} of y."
            )
        return sums * reshape(_diff(x) * 0.5, (shape[axis] - 1, *(1,) * (len(shape) - axis - 1)))
    return sums * (_diff(x, axis=axis - len(shape)) * 0.5)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    numpy=np.trapezoid,
    also=("trapz",),
    samples=lambda: [
        sample(values(5)),
        sample(values(5), dx=0.5),
        sample(values(5), values(5, seed=1)),
        sample(values(2, 4)),
        sample(values(2, 4), axis=0),
        sample(values(2, 4), values(2, seed=1), axis=0),
        sample(values(2, 4), values(2, 4, seed=1), axis=1),
        sample(values(2, 3, 2), values(3, seed=1), axis=-2),
        sample(values(1)),
        sample(values(2, 0, 3), axis=0),
        rejected(
            ShapeError,
            "trapezoid: y has shape (3,) and x has shape (2,); x must have 3 elements, as axis 0 of y.",
            np.ones(3),
            np.ones(2),
        ),
        rejected(
            AxisError,
            "trapezoid: axis 1 is out of bounds for array of dimension 1; x has shape (3,).",
            np.ones(3),
            axis=1,
        ),
    ],
)
def trapezoid(y: Array, x: Array = None, dx: Array = 1.0, axis: int = -1) -> Array:
    """Return the integral of samples along an axis, by the trapezoidal rule.

    Args:
        y: the samples.
        x: where they were taken: one axis, or the shape of `y`; None if they are `dx` apart.
        dx: the distance of neighbours.
        axis: the axis.

    Example:
        >>> nt.trapezoid(np.array([0.0, 1.0, 2.0]), dx=0.5)
        array(1.)
    """
    y = _array(y, x)
    place = axis_of("trapezoid", axis, shape_of(y))
    return sum(_trapezoids("trapezoid", y, x, dx, place), axis=place)


def _cumulative_reference(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None) -> Any:
    pieces = [
        np.trapezoid(
            np.take(y, range(i + 1), axis),
            None if x is None else np.take(x, range(i + 1), axis if x.ndim > 1 else 0),
            dx,
            axis,
        )
        for i in range(0 if initial is not None else 1, y.shape[axis])
    ]
    return np.stack(pieces, axis)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    reference=_cumulative_reference,
    samples=lambda: [
        sample(values(5)),
        sample(values(5), dx=0.5),
        sample(values(5), values(5, seed=1)),
        sample(values(5), initial=0),
        sample(values(2, 4)),
        sample(values(2, 4), axis=0),
        sample(values(2, 4), values(2, seed=1), axis=0, initial=0.0),
        sample(values(2, 4), values(2, 4, seed=1), axis=1),
        rejected(
            ShapeError,
            "cumulative_trapezoid: y has shape (3,) and x has shape (2,); x must have 3 elements, as axis 0 of y.",
            np.ones(3),
            np.ones(2),
        ),
        rejected(
            ArgumentError,
            "cumulative_trapezoid: initial is 1.0; it is None, or 0 to start with a zero.",
            np.ones(3),
            initial=1.0,
        ),
    ],
)
def cumulative_trapezoid(
    y: Array, x: Array = None, dx: Array = 1.0, axis: int = -1, initial: float | None = None
) -> Array:
    """Return the integral of samples up to each of them, by the trapezoidal rule.

    Args:
        y: the samples.
        x: where they were taken: one axis, or the shape of `y`; None if they are `dx` apart.
        dx: the distance of neighbours.
        axis: the axis, one shorter in the result.
        initial: 0 puts a zero in front, so that the result has the shape of `y`.

    Example:
        >>> nt.cumulative_trapezoid(np.array([0.0, 1.0, 2.0]))
        array([0.5, 2. ])
    """
    if initial:
        raise ArgumentError(f"cumulative_trapezoid: initial is {initial}; it is None, or 0 to start with a zero.")
    y = _array(y, x)
    shape = shape_of(y)
    place = axis_of("cumulative_trapezoid", axis, shape)
    out = cumsum(_trapezoids("cumulative_trapezoid", y, x, dx, place), axis=place)
    if initial is None:
        return out
    return pad_zeros(out, widths=tuple((1, 0) if i == place else (0, 0) for i in range(len(shape))))
