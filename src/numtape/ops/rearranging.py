"""Flip, roll, repeat, tile and pad: elements of one tensor at new places."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Axis, NDArray, Shape
from ..core.declare import composed, face_of, linear
from ..core.op import Op, Structure
from ..errors import ArgumentError, AxisError, OperandError, ShapeError
from .samples import rejected, sample, values
from .selection import where
from .shapes import accepts_dim, as_shape, axes_of, axis_of, broadcast_to, reshape, shape_of
from .taking import take


def _flip_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _flip(operands[0], axes=tuple(axis + 1 for axis in params["axes"]))


def _flip_back(g: Array, axes: tuple[int, ...]) -> Array:
    return _flip(g, axes=axes)


@linear(
    transposes=dict(x=_flip_back),
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
    ],
)
def _flip(x: Array, /, *, axes: tuple[int, ...]) -> Array:
    """Return a view of `x` with the elements along axes, counted from 0, in reverse order."""
    return x[(*(slice(None, None, -1 if i in axes else 1) for i in range(np.ndim(x))), ...)]


@face_of(_flip)
@accepts_dim
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
    transposes=dict(x=_roll_back),
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
    ],
)
def _roll(x: Array, /, *, shift: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Return `x` with elements moved along axes, those that leave coming back at the other end."""
    return np.roll(x, shift, axes)


@face_of(_roll)
@accepts_dim
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
    return g.reshape(split).sum(axis=axis + 1)


def _repeat_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _repeat(operands[0], repeats=params["repeats"], axis=params["axis"] + 1)


@linear(
    transposes=dict(x=_repeat_back),
    structure=Structure.MOVES,
    native_half=True,
    batch=_repeat_batch,
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
    ],
)
def _repeat(x: Array, /, *, repeats: int, axis: int) -> Array:
    """Return `x` with each member along an axis, counted from 0, `repeats` times in a row."""
    return np.repeat(x, repeats, axis)


@face_of(_repeat)
@accepts_dim
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
    shape, copies = shape_of(x), as_shape((reps,), "tile")
    if any(n < 0 for n in copies):
        raise ArgumentError(f"tile: the numbers of copies are {copies}; each is at least 0.")
    ndim = max(len(shape), len(copies))
    shape = (1,) * (ndim - len(shape)) + shape
    copies = (1,) * (ndim - len(copies)) + copies
    # Each axis becomes a pair (copies, length), repeated without copying and joined in one go.
    thin = reshape(x, tuple(n for length in shape for n in (1, length)))
    full = broadcast_to(thin, tuple(n for pair in zip(copies, shape, strict=True) for n in pair))
    return reshape(full, tuple(m * n for m, n in zip(copies, shape, strict=True)))


Widths = tuple[tuple[int, int], ...]


def _inside(shape: Shape, widths: Widths) -> tuple[slice, ...]:
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


def _pad_zeros_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return pad_zeros(operands[0], widths=((0, 0), *params["widths"]))


@linear(
    transposes=dict(x=lambda g, x_shape, widths: g[(*_inside(x_shape, widths), ...)]),
    structure=Structure.MOVES,
    native_half=True,
    batch=_pad_zeros_batch,
    reference=lambda x, widths: np.pad(x, widths) if x.ndim else x,
    samples=lambda: [
        sample(values(3), widths=((1, 2),)),
        sample(values(3), widths=((0, 2),)),
        sample(values(3), widths=((0, 0),)),
        sample(values(2, 3), widths=((1, 0), (0, 2))),
        sample(values(2, 3, 2), widths=((1, 1), (2, 0), (0, 0))),
        sample(values(), widths=()),
        sample(values(0), widths=((1, 1),)),
        sample(values(1, 1), widths=((1, 1), (1, 1))),
    ],
)
def pad_zeros(x: Array, /, *, widths: Widths) -> Array:
    """Return `x` with zeros around it: for each axis, how many before and after.

    Example:
        >>> nt.pad_zeros(np.array([1.0, 2.0]), widths=((1, 0),))
        array([0., 1., 2.])
    """
    shape = np.shape(x)
    out = np.zeros(tuple(before + n + after for n, (before, after) in zip(shape, widths, strict=True)), x.dtype)
    out[_inside(shape, widths)] = x
    return out


def _pairs(name: str, given: Any, ndim: int, shape: Shape) -> NDArray:
    """Return one number, a pair for all axes, a pair for each axis or a dict of pairs as an array of pairs."""
    if isinstance(given, dict):
        found = np.zeros((ndim, 2), np.asarray(list(given.values())).dtype)
        for axis, pair in given.items():
            found[axis_of("pad", axis, shape)] = pair
        return found
    array = np.asarray(given)
    try:
        return np.broadcast_to(array, (ndim, 2))
    except ValueError as error:
        raise ArgumentError(
            f"pad: {name} has shape {array.shape} and x has shape {shape}; give a number, a pair (before, after), or a "
            "pair for each axis."
        ) from error


_MODES = ("constant", "reflect", "symmetric", "edge", "wrap")


@composed(
    numpy=np.pad,
    samples=lambda: [
        sample(values(3), 1),
        sample(values(3), (1, 2)),
        sample(values(2, 3), ((1, 0), (0, 2))),
        sample(values(2, 3), 1, constant_values=1.5),
        sample(values(2, 3), ((1, 1), (2, 0)), constant_values=((1, 2), (3, 4))),
        sample(values(2, 3), {-1: (1, 2)}),
        sample(values(4), (2, 3), mode="reflect"),
        sample(values(2, 3), ((1, 3), (2, 4)), mode="reflect"),
        sample(values(2, 3), ((1, 0), (2, 2)), mode="symmetric"),
        sample(values(2, 3), ((1, 0), (2, 2)), mode="edge"),
        sample(values(2, 3), ((1, 3), (2, 7)), mode="wrap"),
        sample(values(1, 3), ((2, 1), (0, 1)), mode="reflect"),
        sample(values(2, 0), ((1, 1), (0, 0)), mode="edge"),
        sample(values(0), 2),
        sample(values(3), 0, mode="wrap"),
        rejected(
            ArgumentError,
            "pad: mode is 'mean'; the modes are constant, reflect, symmetric, edge, wrap.",
            np.ones(3),
            1,
            mode="mean",
        ),
        rejected(
            ArgumentError,
            "pad: pad_width has shape (3,) and x has shape (2, 3); give a number, a pair (before, after), or a pair "
            "for each axis.",
            np.ones((2, 3)),
            (1, 2, 3),
        ),
        rejected(ArgumentError, "pad: pad_width is -1; widths are integers from 0 on.", np.ones(3), -1),
        rejected(
            ShapeError,
            "pad: axis 0 of x has length 0, which mode 'edge' cannot extend; use mode 'constant'.",
            np.ones(0),
            1,
            mode="edge",
        ),
    ],
)
def pad(x: Array, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Array:
    """Return `x` with elements around it.

    Args:
        x: any shape.
        pad_width: a number, a pair (before, after) for all axes, a pair for each axis (NumPy's order, first axis
            first), or a dict of axes and pairs.
        mode: "constant", "reflect" (without the edge), "symmetric" (with it), "edge" or "wrap".
        constant_values: what "constant" puts, in the same forms as `pad_width`; no gradient flows to it.

    Example:
        >>> nt.pad(np.array([1.0, 2.0, 3.0]), (1, 2), mode="reflect")
        array([2., 1., 2., 3., 2., 1.])
    """
    if mode not in _MODES:
        raise ArgumentError(f"pad: mode is {mode!r}; the modes are {', '.join(_MODES)}.")
    shape = shape_of(x)
    pairs = _pairs("pad_width", pad_width, len(shape), shape)
    if (pairs.size and pairs.dtype.kind not in "iu") or (pairs < 0).any():
        raise ArgumentError(f"pad: pad_width is {pad_width!r}; widths are integers from 0 on.")
    widths = tuple((int(before), int(after)) for before, after in pairs)
    if mode == "constant":
        return _pad_constant(x, shape, widths, constant_values)
    for axis, (n, width) in enumerate(zip(shape, widths, strict=True)):
        if width != (0, 0):
            if not n:
                raise ShapeError(
                    f"pad: axis {axis} of x has length 0, which mode {mode!r} cannot extend; use mode 'constant'."
                )
            x = take(x, np.pad(np.arange(n), width, mode=mode), axis=axis)  # type: ignore[call-overload]
    return x if any(width != (0, 0) for width in widths) else pad_zeros(x, widths=widths)


def _pad_constant(x: Array, shape: Shape, widths: Widths, constant_values: Any) -> Array:
    out = pad_zeros(x, widths=widths)
    constants = _pairs("constant_values", constant_values, len(shape), shape)
    if not constants.any():
        return out
    pairs = tuple((before, after) for before, after in constants)
    fill = np.pad(np.zeros(shape), widths, constant_values=pairs).astype(out.dtype)
    inside = np.zeros(out.shape, bool)
    inside[_inside(shape, widths)] = True
    return where(inside, out, fill)
