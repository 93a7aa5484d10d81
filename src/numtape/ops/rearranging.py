"""Flip, roll, repeat and tile: elements of one tensor at new places."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Axis, Shape
from ..core.declare import composed, face_of, linear
from ..core.facts import Back, Structure
from ..core.op import Op
from ..errors import ArgumentError, AxisError, OperandError, ShapeError
from ..kernels.sums import add_reduce
from .casting import own_memory
from .samples import rejected, sample, values
from .shapes import as_array, as_shape, axes_of, axis_of, broadcast_to, reshape, shape_of
from .taking import take


def _axis_rejected(name: str, **params: Any) -> Any:
    message = f"{name}: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3)."
    return rejected(AxisError, message, np.ones((2, 3)), **params)


def _flip_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _flip(operands[0], axes=tuple(axis + 1 for axis in params["axes"]))


def _flip_back(g: Array, axes: tuple[int, ...]) -> Array:
    return _flip(g, axes=axes)


@linear(
    transposes={"x": _flip_back},
    back=Back.SHARED,
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_flip_batch,
    numpy=np.flip,
    reference=lambda x, axes: np.flip(x, axes),
    samples=lambda: [
        sample(values(3), axes=(0,)),
        sample(values(2, 3), axes=(0,)),
        sample(values(2, 3), axes=(1,)),
        sample(values(2, 3), axes=(0, 1)),
        sample(values(2, 3, 4), axes=(2, 0)),
        sample(values(), axes=()),
        sample(values(0, 2), axes=(0,)),
        sample(values(1, 1), axes=(1,)),
        _axis_rejected("flip", axes=(0, 2)),
    ],
)
def _flip(x: Array, /, *, axes: tuple[int, ...]) -> Array:
    """Return a view of `x` with the elements along axes, counted from 0, in reverse order."""
    return np.flip(x, axes) if np.ndim(x) else x[...]


@face_of(_flip)
def flip(x: Array, axis: Axis = None) -> Array:
    """Return a view of `x` with the elements along `axis` (all axes by default) in reverse order.

    Example:
        >>> nt.flip(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1)
        array([[2., 1.],
               [4., 3.]])
    """
    shape = shape_of(x)
    return _flip(x, axes=tuple(range(len(shape))) if axis is None else axes_of("flip", axis, shape))


@composed(
    numpy=np.flipud,
    samples=lambda: [
        *(sample(values(*shape)) for shape in ((3,), (1,), (0,), (2, 3), (2, 0), (1, 3), (2, 3, 4), (4, 1))),
        rejected(AxisError, "flipud: axis 0 is out of bounds for array of dimension 0; x has shape ().", np.ones(())),
    ],
)
def flipud(x: Array) -> Array:
    """Return a view of `x` with its rows (axis 0) in reverse order.

    Example:
        >>> nt.flipud(np.array([[1.0], [2.0]]))
        array([[2.],
               [1.]])
    """
    return _flip(x, axes=(axis_of("flipud", 0, shape_of(x)),))


@composed(
    numpy=np.fliplr,
    samples=lambda: [
        *(sample(values(*s)) for s in ((2, 3), (3, 1), (1, 1), (2, 0), (0, 2), (1, 3), (2, 3, 4), (4, 2))),
        rejected(AxisError, "fliplr: axis 1 is out of bounds for array of dimension 1; x has shape (3,).", np.ones(3)),
    ],
)
def fliplr(x: Array) -> Array:
    """Return a view of `x` with its columns (axis 1) in reverse order.

    Example:
        >>> nt.fliplr(np.array([[1.0, 2.0]]))
        array([[2., 1.]])
    """
    return _flip(x, axes=(axis_of("fliplr", 1, shape_of(x)),))


def _roll_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _roll(operands[0], shift=params["shift"], axes=tuple(axis + 1 for axis in params["axes"]))


def _roll_back(g: Array, shift: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    return _roll(g, shift=tuple(-n for n in shift), axes=axes)


@linear(
    transposes={"x": _roll_back},
    structure=Structure.MOVES,
    native_half=True,
    batch=_roll_batch,
    numpy=np.roll,
    reference=lambda x, shift, axes: np.roll(x, shift, axes),
    samples=lambda: [
        sample(values(5), shift=(2,), axes=(0,)),
        sample(values(5), shift=(-1,), axes=(0,)),
        sample(values(5), shift=(7,), axes=(0,)),
        sample(values(2, 3), shift=(1,), axes=(1,)),
        sample(values(2, 3), shift=(1, 2), axes=(0, 1)),
        sample(values(2, 3), shift=(1, 1), axes=(1, 1)),
        sample(values(0), shift=(1,), axes=(0,)),
        sample(values(1, 1), shift=(3,), axes=(0,)),
        sample(values(2, 3, 4), shift=(0,), axes=(2,)),
        _axis_rejected("roll", shift=(1,), axes=(2,)),
    ],
)
def _roll(x: Array, /, *, shift: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Return `x` with elements moved along axes, those that leave coming back at the other end."""
    return np.roll(x, shift, axes)


@face_of(_roll)
def roll(x: Array, shift: int | tuple[int, ...], axis: Axis = None) -> Array:
    """Return `x` with elements moved along axes, those that leave coming back at the other end.

    Args:
        x: any shape.
        shift: by how many places, for all axes or for each.
        axis: the axes; None rolls the flattened elements.

    Example:
        >>> nt.roll(np.array([1.0, 2.0, 3.0]), 1)
        array([3., 1., 2.])
    """
    shape = shape_of(x)
    if axis is None:
        flat = _roll(reshape(x, -1 if math.prod(shape) else 0), shift=(sum(_numbers("roll", shift)),), axes=(0,))
        return reshape(flat, shape)
    axes = tuple(axis_of("roll", a, shape) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    shifts = _numbers("roll", shift)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: shift has {len(shifts)} numbers and axis {len(axes)}; give as many.")
    return _roll(x, shift=shifts, axes=axes)


def _numbers(name: str, given: Any) -> tuple[int, ...]:
    return as_shape((given,), name)


def _repeat_back(g: Array, x_shape: Shape, repeats: int, axis: int) -> Array:
    split = (*x_shape[: axis + 1], repeats, *x_shape[axis + 1 :])
    return add_reduce(g.reshape(split), axis + 1, False)


def _repeat_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _repeat(operands[0], repeats=params["repeats"], axis=params["axis"] + 1)


@linear(
    transposes={"x": _repeat_back},
    structure=Structure.MOVES,
    native_half=True,
    batch=_repeat_batch,
    size=lambda x, repeats, axis: math.prod(x) * repeats,
    numpy=np.repeat,
    samples=lambda: [
        sample(values(3), repeats=2, axis=0),
        sample(values(3), repeats=1, axis=0),
        sample(values(3), repeats=0, axis=0),
        sample(values(2, 3), repeats=2, axis=0),
        sample(values(2, 3), repeats=3, axis=1),
        sample(values(2, 3, 2), repeats=2, axis=1),
        sample(values(0), repeats=2, axis=0),
        sample(values(1, 1), repeats=4, axis=1),
        _axis_rejected("repeat", repeats=2, axis=2),
    ],
)
def _repeat(x: Array, /, *, repeats: int, axis: int) -> Array:
    """Return `x` with each member along an axis, counted from 0, `repeats` times in a row."""
    return np.repeat(x, repeats, axis)


@face_of(_repeat)
def repeat(x: Array, repeats: Any, axis: int | None = None) -> Array:
    """Return `x` with each member along an axis several times in a row (NumPy's repeat; PyTorch's is `tile`).

    Args:
        x: any shape.
        repeats: an integer, or one for each member.
        axis: the axis; None flattens `x` first.

    Example:
        >>> nt.repeat(np.array([1.0, 2.0]), [1, 2])
        array([1., 2., 2.])
    """
    if axis is None:
        x, axis = reshape(x, (math.prod(shape_of(x)),)), 0
    shape = shape_of(x)
    place = axis_of("repeat", axis, shape)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or (counts.size and counts.min() < 0):
        raise OperandError(f"repeat: repeats are integers from 0 on, not {repeats!r}.")
    if counts.size == 1:
        return _repeat(x, repeats=int(counts.reshape(())), axis=place)
    if counts.shape != (shape[place],):
        raise ShapeError(
            f"repeat: repeats has shape {counts.shape} and axis {axis} of x has length {shape[place]}; give one "
            "number, or one for each member."
        )
    return take(x, np.repeat(np.arange(shape[place]), counts), axis=place)


@composed(
    numpy=np.tile,
    samples=lambda: [
        sample(values(3), 2),
        sample(values(3), (2, 2)),
        sample(values(2, 3), 2),
        sample(values(2, 3), (2, 1)),
        sample(values(2, 3), (2, 3, 2)),
        sample(values(), (2, 2)),
        sample(values(3), 0),
        sample(values(0, 2), (2, 2)),
        sample(values(2, 3, 1), (3,)),
        rejected(ArgumentError, "tile: the numbers of copies are (-1,); each is at least 0.", np.ones(2), -1),
    ],
)
def tile(x: Array, reps: int | tuple[int, ...]) -> Array:
    """Return `x` laid side by side along each axis.

    Args:
        x: any shape.
        reps: how many copies along each axis; the shorter of it and the shape is filled up with ones in front.

    Example:
        >>> nt.tile(np.array([1.0, 2.0]), (2, 2))
        array([[1., 2., 1., 2.],
               [1., 2., 1., 2.]])
    """
    x = as_array(x)
    shape, copies = x.shape, as_shape((reps,), "tile")
    if any(n < 0 for n in copies):
        raise ArgumentError(f"tile: the numbers of copies are {copies}; each is at least 0.")
    ndim = max(len(shape), len(copies))
    shape = (1,) * (ndim - len(shape)) + shape
    copies = (1,) * (ndim - len(copies)) + copies
    # Each axis becomes a pair (copies, length), repeated without copying and joined in one go.
    thin = reshape(x, tuple(n for length in shape for n in (1, length)))
    full = broadcast_to(thin, tuple(n for pair in zip(copies, shape, strict=True) for n in pair))
    return own_memory(reshape(full, tuple(m * n for m, n in zip(copies, shape, strict=True))), x)
