"""Views with other axes, made of reshape and broadcast_to: flatten, squeeze, expand and their like."""

import math
from typing import Any

import numpy as np

from .._typing import Array, Axis, Shape
from ..core.declare import composed
from ..core.value import Lifted, array_of
from ..errors import ArgumentError, AxisError, OperandError, ShapeError
from .casting import own_memory
from .samples import rejected, sample, values
from .shapes import as_arrays, as_shape, axes_of, axis_of, broadcast_to, check_order, reshape, shape_of, without_lists


@composed(
    reference=lambda x, *lengths: np.reshape(x, as_shape(lengths)),
    samples=lambda: [
        sample(values(6), 3, 2),
        sample(values(6), (2, -1)),
        sample(values(12), 2, -1, 3),
        sample(values(2, 3), 2, 1, 3),
        sample(values(2, 3), -1, 3),
        sample(values(), 1),
        sample(values(1, 1)),
        sample(values(2, 0), 0, 5),
        sample(values(2, 3, 4), 6, 4, skip_derivatives="operands with other strides have no such view"),
        rejected(
            ShapeError,
            "view: x has shape (3, 2) and strides (8, 24), of which shape (6,) cannot be a view; use reshape, which "
            "copies.",
            np.ones((2, 3)).T,
            6,
        ),
    ],
)
def view(x: Array, *lengths: Any) -> Array:
    """Return the elements of `x`, in order, in another shape, never copied.

    Raises:
        ShapeError: if that is not possible with the strides of `x`; `reshape` copies then.

    Example:
        >>> nt.view(np.arange(4.0), 2, 2)
        array([[0., 1.],
               [2., 3.]])
    """
    shape = as_shape(lengths, "view")
    out = reshape(x, shape)
    if isinstance(x, Lifted):
        return out
    array, viewed = array_of(x), array_of(out)
    if isinstance(array, np.ndarray) and array.size and not np.may_share_memory(array, viewed):
        raise ShapeError(
            f"view: x has shape {array.shape} and strides {array.strides}, of which shape {shape} cannot be a view; "
            "use reshape, which copies."
        )
    return out


_RAVELLED: tuple[Shape, ...] = ((2, 3), (6,), (), (1,), (0,), (2, 0), (2, 3, 4), (1, 1, 1))


@composed(
    numpy=np.ravel,
    samples=lambda: [sample(values(*shape)) for shape in _RAVELLED],
)
def ravel(x: Array, order: str = "C") -> Array:
    """Return the elements of `x`, in order, in one axis.

    Args:
        x: any shape.
        order: "C", the only one: the last index changes fastest.

    Example:
        >>> nt.ravel(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([1., 2., 3., 4.])
    """
    check_order("ravel", order)
    return reshape(x, (math.prod(shape_of(x)),))


@composed(
    reference=lambda x, start_dim=0, end_dim=-1: np.reshape(
        x, (*x.shape[:start_dim], -1, *x.shape[x.ndim + end_dim + 1 :]) if x.ndim else (1,)
    ),
    samples=lambda: [
        sample(values(2, 3)),
        sample(values(2, 3, 4)),
        sample(values(2, 3, 4), start_dim=1),
        sample(values(2, 3, 4), end_dim=-2),
        sample(values(2, 3, 4, 2), 1, -2),
        sample(values()),
        sample(values(3)),
        sample(values(2, 0)),
        sample(values(1, 1), start_dim=1),
        rejected(
            ArgumentError,
            "flatten: start_dim 1 comes after end_dim 0; x has shape (2, 3).",
            np.ones((2, 3)),
            start_dim=1,
            end_dim=0,
        ),
        rejected(
            AxisError,
            "flatten: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            start_dim=2,
        ),
    ],
)
def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Return `x` with the axes from `start_dim` to `end_dim` made into one.

    Example:
        >>> nt.flatten(np.ones((2, 3, 4)), start_dim=1).shape
        (2, 12)
    """
    shape = shape_of(x)
    if not shape:
        return reshape(x, (1,))
    start, end = axis_of("flatten", start_dim, shape), axis_of("flatten", end_dim, shape)
    if start > end:
        raise ArgumentError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}; x has shape {shape}.")
    return reshape(x, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@composed(
    numpy=np.squeeze,
    samples=lambda: [
        sample(values(1, 3, 1)),
        sample(values(1, 3, 1), axis=0),
        sample(values(1, 3, 1), axis=-1),
        sample(values(1, 3, 1), axis=(0, 2)),
        sample(values(2, 3)),
        sample(values()),
        sample(values(1, 1)),
        sample(values(0, 1), axis=1),
        rejected(
            ShapeError,
            "squeeze: x has shape (1, 3) and axis 1 has length 3; only axes of length 1 can be removed.",
            np.ones((1, 3)),
            axis=1,
        ),
        rejected(
            AxisError,
            "squeeze: axis 2 is out of bounds for array of dimension 2; x has shape (1, 3).",
            np.ones((1, 3)),
            axis=2,
        ),
    ],
)
def squeeze(x: Array, axis: Axis = None) -> Array:
    """Return `x` without the given axes of length 1 (all of them by default).

    Example:
        >>> nt.squeeze(np.ones((1, 3, 1)), axis=0).shape
        (3, 1)
    """
    shape = shape_of(x)
    if axis is None:
        return reshape(x, tuple(n for n in shape if n != 1))
    removed = axes_of("squeeze", axis, shape)
    for i in removed:
        if shape[i] != 1:
            raise ShapeError(
                f"squeeze: x has shape {shape} and axis {i} has length {shape[i]}; only axes of length 1 can be "
                "removed."
            )
    return reshape(x, tuple(n for i, n in enumerate(shape) if i not in removed))


@composed(
    numpy=np.expand_dims,
    also=("expand_dims",),
    samples=lambda: [
        sample(values(3), 0),
        sample(values(3), -1),
        sample(values(2, 3), 1),
        sample(values(2, 3), axis=(0, -1)),
        sample(values(2, 3), axis=(1, 2)),
        sample(values(), 0),
        sample(values(0), 1),
        sample(values(1, 1), -2),
        rejected(
            AxisError,
            "unsqueeze: axis 2 is out of bounds for array of dimension 2; x has shape (3,).",
            np.ones(3),
            axis=2,
        ),
    ],
)
def unsqueeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    """Return `x` with new axes of length 1, at the places they have in the result.

    Example:
        >>> nt.unsqueeze(np.ones(3), 0).shape
        (1, 3)
    """
    shape = shape_of(x)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = axes_of("unsqueeze", axis, shape, len(shape) + count)
    lengths = iter(shape)
    return reshape(x, tuple(1 if i in new else next(lengths) for i in range(len(shape) + count)))


@composed(
    reference=lambda x, *lengths: np.broadcast_to(
        x, [n if m == -1 else m for m, n in zip(lengths, (1,) * (len(lengths) - x.ndim) + x.shape, strict=True)]
    ),
    samples=lambda: [
        sample(values(3, 1), 3, 4),
        sample(values(3, 1), -1, 4),
        sample(values(1, 3), 2, -1),
        sample(values(3), 2, -1),
        sample(values(1), 0),
        sample(values(), 2, 2),
        sample(values(2, 1, 3), 4, -1, 2, -1),
        sample(values(2, 3), -1, -1),
        rejected(
            ShapeError,
            "expand: x has shape (3,) and the lengths are (-1, 3); -1 keeps a length that x has, and axis 0 is new.",
            np.ones(3),
            -1,
            3,
        ),
        rejected(
            ShapeError,
            "expand: x has shape (2, 3) and the lengths are (3,); give at least 2 lengths.",
            np.ones((2, 3)),
            3,
        ),
    ],
)
def expand(x: Array, *lengths: Any) -> Array:
    """Return `x` repeated to the given lengths, without copying; -1 keeps a length.

    Example:
        >>> nt.expand(np.array([[1.0], [2.0]]), -1, 3)
        array([[1., 1., 1.],
               [2., 2., 2.]])
    """
    target = as_shape(lengths, "expand")
    shape = shape_of(x)
    new = len(target) - len(shape)
    if new < 0:
        raise ShapeError(
            f"expand: x has shape {shape} and the lengths are {target}; give at least {len(shape)} lengths."
        )
    if -1 in target[:new]:
        raise ShapeError(
            f"expand: x has shape {shape} and the lengths are {target}; -1 keeps a length that x has, and axis "
            f"{target.index(-1)} is new."
        )
    kept = (*target[:new], *(n if m == -1 else m for m, n in zip(target[new:], shape, strict=True)))
    return broadcast_to(x, kept)


_SMALL: tuple[Shape, ...] = ((), (1,), (3,), (0,), (2, 3), (1, 2), (2, 0), (2, 3, 4))


def _at_least(x: Array, ndim: int) -> Array:
    shape = shape_of(x)
    return reshape(x, (1,) * (ndim - len(shape)) + shape)


@composed(
    numpy=np.atleast_1d,
    samples=lambda: [*(sample(values(*shape)) for shape in _SMALL), sample(values(), values(2, 3))],
)
def atleast_1d(*arrays: Array) -> Array:
    """Return each array with at least one axis; several arrays give a tuple.

    Example:
        >>> nt.atleast_1d(2.0)
        array([2.])
    """
    parts = tuple(_at_least(x, 1) for x in without_lists(*arrays))
    return parts[0] if len(parts) == 1 else parts


@composed(
    numpy=np.atleast_2d,
    samples=lambda: [*(sample(values(*shape)) for shape in _SMALL), sample(values(), values(3))],
)
def atleast_2d(*arrays: Array) -> Array:
    """Return each array with at least two axes, new ones in front; several arrays give a tuple.

    Example:
        >>> nt.atleast_2d(np.array([1.0, 2.0]))
        array([[1., 2.]])
    """
    parts = tuple(_at_least(x, 2) for x in without_lists(*arrays))
    return parts[0] if len(parts) == 1 else parts


def _grid_reference(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> Any:
    return np.meshgrid(*arrays, indexing=indexing, sparse=sparse)  # type: ignore[call-overload]


@composed(
    numpy=np.meshgrid,
    reference=_grid_reference,
    samples=lambda: [
        sample(values(3), values(2, seed=1)),
        sample(values(3), values(2, seed=1), indexing="ij"),
        sample(values(3), values(2, seed=1), values(4, seed=2)),
        sample(values(3), values(2, seed=1), values(4, seed=2), indexing="ij"),
        sample(values(3), values(2, seed=1), sparse=True),
        sample(values(3)),
        sample(values(), values(2)),
        sample(values(0), values(2)),
        sample(values(1), values(1, seed=1)),
        rejected(
            ArgumentError,
            "meshgrid: indexing is 'ab'; it is 'xy' (columns first) or 'ij' (rows first).",
            np.ones(2),
            np.ones(2),
            indexing="ab",
        ),
        rejected(
            ShapeError, "meshgrid: array 1 has shape (2, 2); coordinates have one axis.", np.ones(2), np.ones((2, 2))
        ),
    ],
)
def meshgrid(*arrays: Array, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    """Return the coordinates of a grid's points, one array per axis, from the coordinates along each axis.

    Args:
        arrays: one-dimensional coordinates.
        copy: False for views of the arrays, which cannot be written to.
        sparse: leave each result at length 1 along the other axes.
        indexing: "xy" makes the first coordinate vary along axis 1, "ij" along axis 0.

    Example:
        >>> [grid.tolist() for grid in nt.meshgrid(np.array([1.0, 2.0]), np.array([3.0]))]
        [[[1.0, 2.0]], [[3.0, 3.0]]]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is {indexing!r}; it is 'xy' (columns first) or 'ij' (rows first).")
    for i, x in enumerate(arrays):
        try:
            shape = shape_of(x)
        except OperandError as error:
            raise ShapeError(
                f"meshgrid: array {i} is a list whose parts differ in length; give the coordinates of each axis by "
                "themselves, as in meshgrid(*arrays)."
            ) from error
        if len(shape) > 1:
            raise ShapeError(f"meshgrid: array {i} has shape {shape}; coordinates have one axis.")
    arrays = as_arrays(*arrays)
    ndim = len(arrays)
    places = [1, 0, *range(2, ndim)] if indexing == "xy" and ndim > 1 else list(range(ndim))
    lengths = [math.prod(shape_of(x)) for x in arrays]
    full = [1] * ndim
    for place, length in zip(places, lengths, strict=True):
        full[place] = length
    thin = [
        reshape(x, tuple(length if i == place else 1 for i in range(ndim)))
        for x, place, length in zip(arrays, places, lengths, strict=True)
    ]
    grids = thin if sparse else [broadcast_to(x, tuple(full)) for x in thin]
    return tuple(own_memory(grid, x) for grid, x in zip(grids, arrays, strict=True)) if copy else tuple(grids)
