"""Change the shape or the order of elements; join and split."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core.declare import face_of, linear
from ..core.op import Op, Structure
from ..errors import ShapeError
from .samples import rejected, sample, values


@linear(
    transposes=dict(x=lambda g: g),  # The sweep sums over the axes that were repeated.
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
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
    ],
)
def broadcast_to(x: Array, /, *, shape: Shape) -> Array:
    """Return `x` repeated along new axes and axes of length 1, without copying.

    Example:
        >>> nt.broadcast_to(np.array([1.0, 2.0]), (2, 2))
        array([[1., 2.],
               [1., 2.]])
    """
    return np.broadcast_to(x, shape)


def _concat_part(g: Array, index: int, arrays_shape: tuple[Shape, ...], axis: int) -> Array:
    lengths = [shape[axis] for shape in arrays_shape]
    start = sum(lengths[:index])
    key: list[Any] = [slice(None)] * len(arrays_shape[0])
    key[axis] = slice(start, start + lengths[index])
    return g[tuple(key)]


def _concat_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    size = next(len(x) for x, is_batched in zip(operands, batched, strict=True) if is_batched)
    full = [
        x if is_batched else broadcast_to(x, (size, *x.shape)) for x, is_batched in zip(operands, batched, strict=True)
    ]
    axis = params["axis"]
    return concat(full, axis=axis + 1 if axis >= 0 else axis)


@linear(
    transposes=dict(arrays=_concat_part),
    jointly=True,
    is_variadic=True,
    structure=Structure.MOVES,
    native_half=True,
    batch=_concat_batch,
    cost=lambda out, *shapes, axis: 0,
    numpy=np.concatenate,
    also=("concatenate", "cat"),
    samples=lambda: [
        sample((values(2, 3), values(2, 3, seed=1)), axis=0),
        sample((values(2, 3), values(2, 1, seed=1)), axis=1),
        sample((values(2, 3), values(2, 1, seed=1), values(2, 2, seed=2)), axis=-1),
        sample((values(3), values(2, seed=1))),
        sample((values(3),)),
        sample((values(0), values(2, seed=1))),
        sample((values(2, 2, 2), values(2, 2, 2, seed=1)), axis=2),
        sample((values(1, 3), values(1, 3, seed=1)), axis=-2),
        rejected(
            ShapeError,
            "concat: arrays[1] has shape (3, 2) and arrays[0] has shape (2, 3); all axes but 0 must have the same "
            "length.",
            (np.ones((2, 3)), np.ones((3, 2))),
        ),
    ],
)
def concat(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Return the arrays joined along an axis that they have.

    Example:
        >>> nt.concat([np.array([1.0, 2.0]), np.array([3.0])])
        array([1., 2., 3.])
    """
    first = np.shape(arrays[0])
    for i, x in enumerate(arrays):
        shape = np.shape(x)
        others = [k for k in range(len(first)) if k != axis % len(first)]
        if len(shape) != len(first) or any(shape[k] != first[k] for k in others):
            raise ShapeError(
                f"concat: arrays[{i}] has shape {shape} and arrays[0] has shape {first}; all axes but {axis} must "
                "have the same length."
            )
    return np.concatenate(arrays, axis=axis)


def reshape_target(shape: Shape, size: int) -> Shape:
    """Return `shape` with -1 replaced by what makes it hold `size` elements."""
    if -1 not in shape:
        return shape
    known = math.prod(n for n in shape if n != -1)
    return tuple(size // known if n == -1 and known else n for n in shape)


@linear(
    transposes=dict(x=lambda g, x_shape: g.reshape(x_shape)),
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
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
    ],
)
def _reshape(x: Array, /, *, shape: Shape) -> Array:
    """Return the elements of `x`, in order, in another shape."""
    size = math.prod(x.shape)
    target = reshape_target(shape, size)
    if math.prod(target) != size or any(n < 0 for n in target):
        raise ShapeError(f"reshape: x has shape {x.shape} with {size} elements, which do not fit shape {shape}.")
    return np.reshape(x, target)


def as_shape(shape: tuple[Any, ...]) -> Shape:
    """Return a shape that was given as one tuple or as separate integers."""
    if len(shape) == 1 and not isinstance(shape[0], int | np.integer):
        shape = tuple(shape[0])
    return tuple(int(n) for n in shape)


@face_of(_reshape)
def reshape(x: Array, *shape: Any) -> Array:
    """Return the elements of `x`, in order, in another shape, as a view where that is possible.

    Args:
        x: any shape.
        shape: a tuple, or separate integers; one length may be -1 and follows from the others.

    Example:
        >>> nt.reshape(np.arange(4.0), 2, -1)
        array([[0., 1.],
               [2., 3.]])
    """
    return _reshape(x, as_shape(shape))


def _permute_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    return _permute(x, (0, *(axis % (x.ndim - 1) + 1 for axis in params["axes"])))


@linear(
    transposes=dict(x=lambda g, axes: _permute(g, _inverse(axes))),
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_permute_batch,
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
    ],
)
def _permute(x: Array, /, *, axes: tuple[int, ...]) -> Array:
    """Return a view of `x` with its axes in another order."""
    if sorted(axis % x.ndim for axis in axes) != list(range(x.ndim)):
        raise ShapeError(
            f"permute: x has shape {x.shape} and axes are {axes}; axes must name each of the {x.ndim} axes once."
        )
    return np.transpose(x, axes)


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    order = [axis % len(axes) for axis in axes]
    return tuple(order.index(i) for i in range(len(order)))


@face_of(_permute)
def permute(x: Array, *axes: Any) -> Array:
    """Return a view of `x` with its axes in another order.

    Args:
        x: any shape.
        axes: a tuple, or separate integers, that name each axis once.

    Example:
        >>> nt.permute(np.ones((2, 3, 4)), 2, 0, 1).shape
        (4, 2, 3)
    """
    return _permute(x, as_shape(axes))


def swapaxes(x: Array, axis1: int, axis2: int) -> Array:
    """Return a view of `x` with two axes exchanged.

    Example:
        >>> nt.swapaxes(np.ones((2, 3, 4)), 0, -1).shape
        (4, 3, 2)
    """
    axes = list(range(len(x.shape)))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return _permute(x, tuple(axes))
