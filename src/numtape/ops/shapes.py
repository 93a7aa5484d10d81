"""The shape of a tensor and the order of its axes: reshape, broadcast_to, permute and what is made of permute."""

import math
from collections.abc import Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .._typing import Array, Shape
from ..core.binding import as_integer, plain_number
from ..core.declare import composed, face_of, linear, runner
from ..core.facts import Back, Structure
from ..core.op import Op
from ..core.record import shortened
from ..core.value import Value
from ..dtypes import array_beside
from ..errors import ArgumentError, AxisError, OperandError, ShapeError
from ..kernels.views import broadcast_view
from .samples import rejected, sample, values

P = ParamSpec("P")
R = TypeVar("R")


def shape_of(x: Array) -> Shape:
    """Return the shape of a tensor, an array, a number or a nested list."""
    if hasattr(x, "shape"):
        return tuple(x.shape)
    try:
        return np.shape(x)
    except ValueError as error:
        raise _no_array(x, error) from error


def _no_array(x: Any, error: Exception) -> OperandError:
    return OperandError(f"an operand, {shortened(repr(x))}, makes no array ({error}).")


def common_shape(caller: str, **operands: Array) -> Shape:
    """Return the shape that named operands broadcast to, or raise for `caller`."""
    shapes = {name: shape_of(operand) for name, operand in operands.items()}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ShapeError(
            f"{caller}: {listed}; the shapes do not broadcast: from the last axis on, lengths must be equal or 1."
        ) from error


def as_array(x: Any, *beside: Any) -> Any:
    """Return numbers and lists beside other operands as arrays, and arrays and tensors as they are."""
    if isinstance(x, Value | np.ndarray):
        return x
    try:
        return array_beside(x, beside)
    except ValueError as error:
        raise _no_array(x, error) from error


def as_arrays(*operands: Any) -> tuple[Any, ...]:
    """Return operands as arrays or tensors; lists take their dtype from the others."""
    return tuple(as_array(x, *operands) for x in operands)


def without_lists(*operands: Any) -> list[Any]:
    """Return operands with arrays for lists, which take their dtype from the others."""
    return [array_beside(x, operands) if isinstance(x, list | tuple) else x for x in operands]


def axis_of(name: str, axis: Any, shape: Shape, ndim: int | None = None) -> int:
    """Return an axis of an array of `shape` (or, of one with `ndim` axes made of it) as a number from 0 on."""
    ndim = len(shape) if ndim is None else ndim
    try:
        axis = as_integer(axis)
    except TypeError as error:
        raise OperandError(f"{name}: an axis is an integer, not {axis!r}.") from error
    if not -ndim <= axis < ndim:
        raise AxisError(f"{name}: axis {axis} is out of bounds for array of dimension {ndim}; x has shape {shape}.")
    return int(axis % ndim)


def axes_of(name: str, axes: Any, shape: Shape, ndim: int | None = None) -> tuple[int, ...]:
    """Return one axis or several, each given once, as numbers from 0 on."""
    given = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
    plain = tuple(axis_of(name, axis, shape, ndim) for axis in given)
    if len(set(plain)) < len(plain):
        raise ArgumentError(f"{name}: axes {given} name an axis twice.")
    return plain


def as_shape(shape: tuple[Any, ...], name: str = "shape") -> Shape:
    """Return integers (the lengths of a shape, or axes) that were given as one tuple or separately."""
    try:
        if len(shape) == 1 and (type(shape[0]) is tuple or plain_number(shape[0], int) is None):
            shape = tuple(shape[0])
        return tuple(map(as_integer, shape))
    except TypeError as error:
        raise OperandError(f"{name}: wants integers, or one tuple of them, not {shape}.") from error


def _broadcast_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    shape = params["shape"]
    size = x.shape[0]
    aligned = x.reshape((size, *(1,) * (len(shape) - len(x.shape) + 1), *x.shape[1:]))
    return _broadcast_to(aligned, shape=(size, *shape))


@linear(
    transposes={"x": lambda g: g},  # The sweep sums over the axes that were repeated.
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_broadcast_batch,
    numpy=np.broadcast_to,
    samples=lambda: [
        sample(values(3), shape=(2, 3)),
        sample(values(2, 1), shape=(2, 3)),
        sample(values(), shape=(2, 2)),
        sample(values(1), shape=(4,)),
        sample(values(2, 3), shape=(2, 3)),
        sample(values(1, 3, 1), shape=(5, 2, 3, 4)),
        sample(values(1), shape=(0,)),
        sample(values(1, 1), shape=(3, 1)),
        rejected(
            ShapeError,
            "broadcast_to: x has shape (2, 3), which does not broadcast to (3, 2): from the last axis on, lengths must "
            "be equal or 1 in x.",
            np.ones((2, 3)),
            shape=(3, 2),
        ),
    ],
)
def _broadcast_to(x: Array, /, *, shape: Shape) -> Array:
    """Return `x` repeated along new axes and axes of length 1, without copying."""
    try:
        return broadcast_view(x, shape)
    except ValueError as error:
        raise ShapeError(
            f"broadcast_to: x has shape {np.shape(x)}, which does not broadcast to {shape}: from the last axis on, "
            "lengths must be equal or 1 in x."
        ) from error


#: For rules, which know the shape to be a tuple of integers.
spread_to = runner(_broadcast_to)


@face_of(_broadcast_to)
def broadcast_to(x: Array, shape: Any) -> Array:
    """Return `x` repeated along new axes and axes of length 1, without copying.

    Example:
        >>> nt.broadcast_to(np.array([1.0, 2.0]), (2, 2))
        array([[1., 2.],
               [1., 2.]])
    """
    return _broadcast_to(x, shape=as_shape((shape,), "broadcast_to"))


def reshape_target(shape: Shape, size: int) -> Shape:
    """Return `shape` with -1 replaced by what makes it hold `size` elements."""
    if -1 not in shape:
        return shape
    known = math.prod(n for n in shape if n != -1)
    return tuple(size // known if n == -1 and known else n for n in shape)


def _reshape_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    size, *shape = x.shape
    return _reshape(x, shape=(size, *reshape_target(params["shape"], math.prod(shape))))


@linear(
    transposes={"x": lambda g, x_shape: g.reshape(x_shape)},
    back=Back.RESHAPED,
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_reshape_batch,
    numpy=np.reshape,
    samples=lambda: [
        sample(values(2, 3), shape=(3, 2)),
        sample(values(2, 3), shape=(6,)),
        sample(values(2, 3), shape=(-1,)),
        sample(values(6), shape=(2, -1)),
        sample(values(), shape=(1,)),
        sample(values(1, 1), shape=()),
        sample(values(2, 0), shape=(0, 5)),
        sample(values(2, 3, 4), shape=(4, -1, 2)),
        rejected(
            ShapeError,
            "reshape: x has shape (2, 3) with 6 elements, which do not fit shape (4, 2).",
            np.ones((2, 3)),
            shape=(4, 2),
        ),
        rejected(
            ShapeError,
            "reshape: x has shape (1,) with 1 elements, which do not fit shape (-1, -1).",
            np.ones(1),
            shape=(-1, -1),
        ),
    ],
)
def _reshape(x: Array, /, *, shape: Shape) -> Array:
    """Return the elements of `x`, in order, in another shape."""
    size = math.prod(np.shape(x))
    target = reshape_target(shape, size)
    if math.prod(target) != size or any(n < 0 for n in target) or shape.count(-1) > 1:
        raise ShapeError(f"reshape: x has shape {np.shape(x)} with {size} elements, which do not fit shape {shape}.")
    return np.reshape(x, target)


def check_order(name: str, order: Any) -> None:
    """Raise if elements are wanted in another order than the one that there is."""
    if order != "C":
        raise ArgumentError(
            f"{name}: order is {order!r}; elements are taken in order 'C', the last index fastest. For 'F', reverse "
            "the axes before and after: x.T.reshape(*lengths[::-1]).T."
        )


@face_of(_reshape)
def reshape(x: Array, *lengths: Any, shape: Any = None, order: str = "C") -> Array:
    """Return the elements of `x`, in order, in another shape, as a view where that is possible.

    Args:
        x: any shape.
        lengths: a tuple, or separate integers; one length may be -1 and follows from the others.
        shape: the same, by keyword.
        order: "C", the only one: the last index changes fastest.

    Example:
        >>> nt.reshape(np.arange(4.0), 2, -1)
        array([[0., 1.],
               [2., 3.]])
    """
    if order != "C":
        check_order("reshape", order)
    return _reshape(x, shape=as_shape(lengths if shape is None else (shape,), "reshape"))


def _permute_back(g: Array, axes: tuple[int, ...]) -> Array:
    order = [axis % len(axes) for axis in axes]
    return _permute(g, axes=tuple(order.index(i) for i in range(len(order))))


def _permute_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    return _permute(x, axes=(0, *(axis % (len(x.shape) - 1) + 1 for axis in params["axes"])))


@linear(
    transposes={"x": _permute_back},
    back=Back.SHARED,
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_permute_batch,
    also=("permute_dims",),
    reference=np.transpose,
    samples=lambda: [
        sample(values(2, 3), axes=(1, 0)),
        sample(values(2, 3), axes=(0, 1)),
        sample(values(2, 3, 4), axes=(2, 0, 1)),
        sample(values(2, 3, 4), axes=(-1, 1, 0)),
        sample(values(3), axes=(0,)),
        sample(values(), axes=()),
        sample(values(2, 0, 1), axes=(1, 2, 0)),
        sample(values(2, 3, 4, 5), axes=(3, 1, 0, 2)),
        rejected(
            ShapeError,
            "permute: x has shape (2, 3) and axes are (0, 0); axes must name each of the 2 axes once.",
            np.ones((2, 3)),
            axes=(0, 0),
        ),
        rejected(
            ShapeError,
            "permute: x has shape () and axes are (0,); axes must name each of the 0 axes once.",
            np.ones(()),
            axes=(0,),
        ),
    ],
)
def _permute(x: Array, /, *, axes: tuple[int, ...]) -> Array:
    """Return a view of `x` with its axes in another order."""
    ndim = np.ndim(x)
    if len(axes) != ndim or len({axis % ndim for axis in axes}) != ndim:
        raise ShapeError(
            f"permute: x has shape {np.shape(x)} and axes are {axes}; axes must name each of the {ndim} axes once."
        )
    return np.transpose(x, axes)


@face_of(_permute)
def permute(x: Array, *axes: Any, dims: Any = None) -> Array:
    """Return a view of `x` with its axes in another order.

    Args:
        x: any shape.
        axes: a tuple, or separate integers, that name each axis once.
        dims: the same, by PyTorch's keyword.

    Example:
        >>> nt.permute(np.ones((2, 3, 4)), 2, 0, 1).shape
        (4, 2, 3)
    """
    return _permute(x, axes=as_shape(axes if dims is None else (dims,), "permute"))


def _transpose_reference(x: Any, *order: Any, axes: Any = None) -> Any:
    is_swap = len(order) == 2 and x.ndim > 2
    return np.swapaxes(x, *order) if is_swap else x.transpose(*order) if order else np.transpose(x, axes)


@composed(
    numpy=np.transpose,
    reference=_transpose_reference,
    samples=lambda: [
        sample(values(2, 3)),
        sample(values(2, 3, 4)),
        sample(values(3)),
        sample(values()),
        sample(values(2, 0, 1)),
        sample(values(2, 3), (1, 0)),
        sample(values(2, 3), 1, 0),
        sample(values(2, 3), axes=(0, 1)),
        sample(values(2, 3, 4), (2, 0, 1)),
        sample(values(2, 3, 4), 2, 0, 1),
        sample(values(2, 3, 4), 0, -1),
        sample(values(2, 3, 4, 2), -2, 1),
        rejected(
            ArgumentError,
            "transpose: for a matrix, transpose(0, 1) is the matrix itself in NumPy and its transpose in PyTorch; "
            "write x.T for the transpose.",
            np.ones((2, 3)),
            0,
            1,
        ),
        rejected(
            AxisError,
            "transpose: axis 3 is out of bounds for array of dimension 3; x has shape (2, 3, 4).",
            np.ones((2, 3, 4)),
            0,
            3,
        ),
    ],
)
def transpose(x: Array, *order: Any, axes: Any = None) -> Array:
    """Return a view of `x` with its axes reversed, permuted or, of three or more axes, two of them exchanged.

    Args:
        x: any shape.
        order: nothing reverses all axes; a tuple, or as many integers as there are axes, permutes them; two integers
            exchange these axes of a tensor that has three or more.
        axes: a tuple, by keyword.

    Example:
        >>> nt.transpose(np.ones((2, 3, 4)), 0, 1).shape
        (3, 2, 4)
    """
    shape = shape_of(x)
    if len(order) == 1 and order[0] is not None:
        return _permute(x, axes=as_shape(order, "transpose"))
    if not order or order[0] is None:
        return _permute(x, axes=tuple(range(len(shape)))[::-1] if axes is None else as_shape((axes,), "transpose"))
    if len(order) == 2 and len(shape) >= 2:
        pair = tuple(axis_of("transpose", axis, shape) for axis in order)
        if len(shape) > 2:
            return swapaxes(x, *pair)
        if pair == (0, 1):
            raise ArgumentError(
                "transpose: for a matrix, transpose(0, 1) is the matrix itself in NumPy and its transpose in PyTorch; "
                "write x.T for the transpose."
            )
    return _permute(x, axes=as_shape(order, "transpose"))


@composed(
    numpy=np.matrix_transpose,
    samples=lambda: [
        *(sample(values(*s)) for s in ((2, 3), (1, 1), (3, 1), (0, 2), (2, 3, 4), (2, 1, 3), (2, 2, 2, 3), (4, 4))),
        rejected(
            ShapeError,
            "matrix_transpose: x has shape (3,); a matrix has at least two axes.",
            np.ones(3),
        ),
    ],
)
def matrix_transpose(x: Array) -> Array:
    """Return a view of `x` with its last two axes exchanged.

    Example:
        >>> nt.matrix_transpose(np.ones((2, 3, 4))).shape
        (2, 4, 3)
    """
    shape = shape_of(x)
    if len(shape) < 2:
        raise ShapeError(f"matrix_transpose: x has shape {shape}; a matrix has at least two axes.")
    return swapaxes(x, -1, -2)


@composed(
    numpy=np.swapaxes,
    also=("swapdims",),
    samples=lambda: [
        sample(values(2, 3), 0, 1),
        sample(values(2, 3), -1, -2),
        sample(values(2, 3, 4), 0, -1),
        sample(values(2, 3, 4), 1, 1),
        sample(values(3), 0, 0),
        sample(values(2, 0, 3), 1, 2),
        sample(values(1, 3), 0, 1),
        sample(values(2, 3, 2, 2), -3, 2),
        rejected(
            AxisError,
            "swapaxes: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            0,
            2,
        ),
    ],
)
def swapaxes(x: Array, axis1: int, axis2: int) -> Array:
    """Return a view of `x` with two axes exchanged.

    Example:
        >>> nt.swapaxes(np.ones((2, 3, 4)), 0, -1).shape
        (4, 3, 2)
    """
    shape = shape_of(x)
    axes = list(range(len(shape)))
    i, j = axis_of("swapaxes", axis1, shape), axis_of("swapaxes", axis2, shape)
    axes[i], axes[j] = j, i
    return _permute(x, axes=tuple(axes))


@composed(
    numpy=np.moveaxis,
    also=("movedim",),
    samples=lambda: [
        sample(values(2, 3), 0, 1),
        sample(values(2, 3, 4), 0, -1),
        sample(values(2, 3, 4), -1, 0),
        sample(values(2, 3, 4), (0, 1), (1, 2)),
        sample(values(2, 3, 4), (0, 2), (-1, 0)),
        sample(values(3), 0, 0),
        sample(values(2, 0, 1), 2, 1),
        sample(values(2, 3, 4, 2), (3, 1), (0, 2)),
        rejected(
            ArgumentError,
            "moveaxis: source names 2 axes and destination 1; each axis moves to one place.",
            np.ones((2, 3)),
            (0, 1),
            (0,),
        ),
        rejected(
            AxisError,
            "moveaxis: axis 5 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            5,
            0,
        ),
    ],
)
def moveaxis(x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Array:
    """Return a view of `x` with axes moved to other places, the rest in their order.

    Example:
        >>> nt.moveaxis(np.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    shape = shape_of(x)
    sources = axes_of("moveaxis", source, shape)
    places = axes_of("moveaxis", destination, shape)
    if len(sources) != len(places):
        raise ArgumentError(
            f"moveaxis: source names {len(sources)} axes and destination {len(places)}; each axis moves to one place."
        )
    order = [axis for axis in range(len(shape)) if axis not in sources]
    for place, moved in sorted(zip(places, sources, strict=True)):
        order.insert(place, moved)
    return _permute(x, axes=tuple(order))
