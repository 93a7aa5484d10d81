"""Read and write elements by index arrays along an axis, each lane by itself: gather and scatter."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import composed, face_of, linear
from ..core.facts import Structure
from ..core.op import NON_DIFFERENTIABLE, Op
from ..core.value import Value
from ..errors import IndexingError, ShapeError
from .indexing import _put
from .samples import rejected, sample, values
from .selection import where
from .shapes import axis_of, broadcast_to, shape_of
from .taking import check_from_zero, check_index, take


def _places(shape: Shape, axis: int) -> tuple[Any, ...]:
    """Return an open grid of the positions of a shape, with a gap for the index along `axis`."""
    ndim = len(shape)
    return tuple(
        None if i == axis else np.arange(n).reshape((1,) * i + (n,) + (1,) * (ndim - i - 1))
        for i, n in enumerate(shape)
    )


def _key(name: str, x: Shape, index: Any, axis: int) -> tuple[Any, ...]:
    """Return the key of the elements that gather reads and scatter writes, checked."""
    place = axis_of(name, axis, x)
    found = check_index(name, index, x[place], axis, x)
    if found.ndim != len(x) or any(m > n for i, (m, n) in enumerate(zip(found.shape, x, strict=True)) if i != place):
        raise ShapeError(
            f"{name}: x has shape {x} and the index has shape {found.shape}; it must have as many axes and, but for "
            f"axis {axis}, be no longer."
        )
    return tuple(found if part is None else part for part in _places(found.shape, place))


def _gather_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, index = operands
    if batched[1] or len(x.shape) == 1:
        return batching.loop(op, operands, batched, params)
    shape = (x.shape[0], *shape_of(index))
    return _gather(x, broadcast_to(index, shape), axis=params["axis"] % (len(x.shape) - 1) + 1)


def _gather_back(g: Array, x_shape: Shape, index: Array, axis: int) -> Array:
    return _scatter_add(np.zeros(x_shape, g.dtype), index, g, axis=axis)


def _gather_samples() -> list[Any]:
    """Return operands x and index with an axis, of gather, scatter and scatter_add."""
    return [
        (values(4), np.array([0, 2, 2]), 0),
        (values(3, 4), np.array([[0, 1, 2, 0], [2, 2, 2, -1]]), 0),
        (values(3, 4), np.array([[3, 3], [0, 1], [2, 2]]), 1),
        (values(3, 4), np.array([[3, 3], [0, 1]]), -1),
        (values(2, 3, 2), np.array([[[1, 0]], [[1, 1]]]), 1),
        (values(1, 1), np.array([[0]]), 0),
        (values(2, 3), np.zeros((0, 3), np.intp), 0),
        (values(2, 2, 2), np.ones((2, 1, 2), np.intp), -3),
    ]


@linear(
    transposes={"x": _gather_back, "index": NON_DIFFERENTIABLE},
    structure=Structure.MOVES,
    native_half=True,
    batch=_gather_batch,
    reference=lambda x, index, axis: np.take_along_axis(
        x[tuple(slice(None) if i == axis % x.ndim else slice(n) for i, n in enumerate(index.shape))], index, axis
    ),
    samples=lambda: [
        *(sample(x, index, axis=axis) for x, index, axis in _gather_samples()),
        rejected(
            ShapeError,
            "gather: x has shape (2, 3) and the index has shape (2,); it must have as many axes and, but for axis 0, "
            "be no longer.",
            np.ones((2, 3)),
            np.array([0, 1]),
            axis=0,
        ),
        rejected(
            IndexingError,
            "gather: index 2 is out of bounds for axis 0 with size 2; x has shape (2, 3).",
            np.ones((2, 3)),
            np.array([[2]]),
            axis=0,
        ),
    ],
)
def _gather(x: Array, index: Array, /, *, axis: int) -> Array:
    """Return the elements of `x` that `index` names along an axis, each in its own lane."""
    return x[_key("gather", np.shape(x), index, axis)]


@face_of(_gather)
def gather(x: Array, axis: int, index: Array) -> Array:
    """Return ``out[i, j] = x[index[i, j], j]`` for axis 0, ``x[i, index[i, j]]`` for axis 1, and so on.

    Args:
        x: at least one axis.
        axis: the axis that the index runs along.
        index: integers from 0 on, with as many axes as `x`, along the others no longer than it. Negative ones are
            refused, as in PyTorch; in `take_along_axis` they count from the end.

    Example:
        >>> nt.gather(np.array([[1.0, 2.0], [3.0, 4.0]]), 1, np.array([[1], [0]]))
        array([[2.],
               [3.]])
    """
    check_from_zero("gather", index, axis, shape_of(x))
    return _gather(x, index, axis=axis)


@composed(
    numpy=np.take_along_axis,
    # NumPy has a default axis from version 2.3 on.
    reference=lambda x, indices, axis=-1: np.take_along_axis(x, indices, axis),
    samples=lambda: [
        sample(values(4), np.array([0, 2, 2]), axis=0),
        sample(values(3, 4), np.array([[0, 1, 2, 0], [2, 2, 2, -1]]), axis=0),
        sample(values(3, 4), np.array([[3, 3], [0, 1], [2, 2]]), axis=1),
        sample(values(3, 4), np.array([[3, 0]]), axis=-1),
        sample(values(1, 4), np.array([[3, 0], [1, 1]]), axis=1),
        sample(values(2, 3, 2), np.array([[[1, 0]], [[1, 1]]]), axis=1),
        sample(values(2, 3), np.array([5, 0, 0]), axis=None),
        sample(values(2, 3), np.array([[1], [0]])),
        sample(values(2, 3), np.zeros((2, 0), np.intp), axis=1),
        rejected(
            ShapeError,
            "take_along_axis: x has shape (2, 3) and indices have shape (3, 1); but for axis 1 the shapes must "
            "broadcast.",
            np.ones((2, 3)),
            np.zeros((3, 1), np.intp),
            axis=1,
        ),
        rejected(
            ShapeError,
            "take_along_axis: x has shape (2, 3) and indices have shape (3,); they must have as many axes.",
            np.ones((2, 3)),
            np.zeros(3, np.intp),
            axis=1,
        ),
    ],
)
def take_along_axis(x: Array, indices: Array, axis: int | None = -1) -> Array:
    """Return the elements of `x` that `indices` name along an axis, each in its own lane: what argsort gives, sorts.

    Args:
        x: at least one axis.
        indices: integers, with as many axes as `x`; but for `axis`, lengths are equal or 1.
        axis: the axis that the indices run along; None flattens `x`.

    Example:
        >>> x = np.array([[3.0, 1.0, 2.0]])
        >>> nt.take_along_axis(x, np.argsort(x, axis=1), axis=1)
        array([[1., 2., 3.]])
    """
    if axis is None:
        return take(x, indices)
    shape, wanted = shape_of(x), shape_of(indices)
    place = axis_of("take_along_axis", axis, shape)
    if len(shape) != len(wanted):
        raise ShapeError(
            f"take_along_axis: x has shape {shape} and indices have shape {wanted}; they must have as many axes."
        )
    if shape[:place] + shape[place + 1 :] == wanted[:place] + wanted[place + 1 :]:
        return _gather(x, indices, axis=place)
    try:
        others = np.broadcast_shapes(shape[:place] + shape[place + 1 :], wanted[:place] + wanted[place + 1 :])
    except ValueError as error:
        raise ShapeError(
            f"take_along_axis: x has shape {shape} and indices have shape {wanted}; but for axis {axis} the shapes "
            "must broadcast."
        ) from error
    x = broadcast_to(x, (*others[:place], shape[place], *others[place:]))
    return _gather(x, broadcast_to(indices, (*others[:place], wanted[place], *others[place:])), axis=place)


def _scatter_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, index, src = operands
    if batched[1]:
        return batching.loop(op, operands, batched, params)
    size = shape_of(x if batched[0] else src)[0]
    wanted = (size, *shape_of(index))
    x = x if batched[0] else broadcast_to(x, (size, *shape_of(x)))
    if not batched[2]:
        src = broadcast_to(src, (size, *shape_of(src))) if shape_of(src) else src
    elif len(shape_of(src)) == 1:
        src = broadcast_to(src.reshape((size, *(1,) * (len(wanted) - 1))), wanted)
    return op.face(x, broadcast_to(index, wanted), src, axis=params["axis"] % (len(wanted) - 1) + 1)


def _part_of(name: str, src: Any, index: Shape) -> Any:
    """Return the part of `src` that `index` covers; a number is for all of it."""
    shape = np.shape(src)
    if not shape:
        return src
    if len(shape) != len(index) or any(m > n for m, n in zip(index, shape, strict=True)):
        raise ShapeError(
            f"{name}: src has shape {shape} and the index has shape {index}; src must have as many axes and be at "
            "least as long along each."
        )
    return src[tuple(slice(n) for n in index)]


def _pad_to(part: Array, shape: Shape) -> Array:
    """Return the cotangent of a `src` of `shape`, zero where the index did not reach."""
    if not shape or part.shape == shape:
        return part
    return _put(part, key=tuple(slice(n) for n in part.shape), shape=shape)


def _scatter_src(g: Array, index: Array, src_shape: Shape, axis: int) -> Array:
    part = _gather(g, index, axis=axis)
    return _pad_to(where(_last_of(g.shape, index, axis), part, 0.0), src_shape)


def _last_of(shape: Shape, index: Any, axis: int) -> NDArray:
    """Say for each element that scatter writes if no later one replaced it."""
    key = _key("scatter", shape, index.array if isinstance(index, Value) else index, axis)
    order = np.arange(math.prod(shape_of(index))).reshape(shape_of(index))
    board = np.full(shape, -1)
    board[key] = order
    return np.asarray(board[key] == order)


def _scatter_x(g: Array, index: Array, axis: int) -> Array:
    return _scatter(g, index, 0.0, axis=axis)


def _scatter_samples(name: str) -> list[Any]:
    return [
        *(sample(x, index, values(*index.shape, seed=1), axis=axis) for x, index, axis in _gather_samples()),
        sample(values(3, 4), np.array([[3, 3], [0, 1]]), values(3, 3, seed=1), axis=1),
        sample(values(3), np.array([0, 2, 0]), values(seed=1), axis=0),
        rejected(
            ShapeError,
            f"{name}: src has shape (1,) and the index has shape (2,); src must have as many axes and be at least as "
            "long along each.",
            np.ones(3),
            np.array([0, 1]),
            np.ones(1),
            axis=0,
        ),
        rejected(
            IndexingError,
            f"{name}: index -4 is out of bounds for axis 0 with size 3; x has shape (3,).",
            np.ones(3),
            np.array([0, -4]),
            np.ones(2),
            axis=0,
        ),
    ]


def _scatter_reference(x: Any, index: Any, src: Any, axis: int) -> Any:
    out = np.array(x)
    for place in np.ndindex(index.shape):
        target = list(place)
        target[axis] = index[place]
        out[tuple(target)] = src[place] if np.ndim(src) else src
    return out


@linear(
    transposes={"x": _scatter_x, "index": NON_DIFFERENTIABLE, "src": _scatter_src},
    jointly=True,
    structure=Structure.MOVES,
    native_half=True,
    batch=_scatter_batch,
    cost=lambda out, x, index, src, axis: 0,
    reference=_scatter_reference,
    samples=lambda: _scatter_samples("scatter"),
)
def _scatter(x: Array, index: Array, src: Array, /, *, axis: int) -> Array:
    """Return `x` with elements of `src` where `index` points along an axis."""
    key = _key("scatter", np.shape(x), index, axis)
    out = x.copy()
    out[key] = _part_of("scatter", src, np.shape(index))
    return out


@face_of(_scatter)
def scatter(x: Array, axis: int, index: Array, src: Array) -> Array:
    """Return `x` with ``out[index[i, j], j] = src[i, j]`` for axis 0, and so on; `x` itself is not changed.

    Where an index occurs several times in a lane, the last one counts, and only it has a gradient.

    Args:
        x: at least one axis.
        axis: the axis that the index runs along.
        index: integers from 0 on, with as many axes as `x`, along the others no longer than it.
        src: a number, or at least as long as the index along each axis.

    Example:
        >>> nt.scatter(np.zeros((2, 3)), 1, np.array([[2], [0]]), np.array([[5.0], [6.0]]))
        array([[0., 0., 5.],
               [6., 0., 0.]])
    """
    check_from_zero("scatter", index, axis, shape_of(x))
    return _scatter(x, index, src, axis=axis)


def _scatter_add_reference(x: Any, index: Any, src: Any, axis: int) -> Any:
    out = np.array(x)
    for place in np.ndindex(index.shape):
        target = list(place)
        target[axis] = index[place]
        out[tuple(target)] += src[place] if np.ndim(src) else src
    return out


def _scatter_add_src(g: Array, index: Array, src_shape: Shape, axis: int) -> Array:
    return _pad_to(_gather(g, index, axis=axis), src_shape)


@linear(
    transposes={"x": lambda g: g, "index": NON_DIFFERENTIABLE, "src": _scatter_add_src},
    jointly=True,
    structure=Structure.SCATTERS,
    precision="widen",
    batch=_scatter_batch,
    cost=lambda out, x, index, src, axis: math.prod(index),
    reference=_scatter_add_reference,
    samples=lambda: _scatter_samples("scatter_add"),
)
def _scatter_add(x: Array, index: Array, src: Array, /, *, axis: int) -> Array:
    """Return `x` with elements of `src` added where `index` points along an axis."""
    shape = np.shape(x)
    key = _key("scatter_add", shape, index, axis)
    part = _part_of("scatter_add", src, np.shape(index))
    out = np.array(x, order="C")
    # NumPy adds fast at flat positions only.
    flat = np.ravel_multi_index(np.broadcast_arrays(*key), shape, mode="wrap").reshape(-1)
    np.add.at(out.reshape(-1), flat, np.broadcast_to(part, np.shape(index)).reshape(-1))
    return out


@face_of(_scatter_add)
def scatter_add(x: Array, axis: int, index: Array, src: Array) -> Array:
    """Return `x` with ``out[index[i, j], j] += src[i, j]`` for axis 0, and so on; `x` itself is not changed.

    Args:
        x: at least one axis.
        axis: the axis that the index runs along.
        index: integers from 0 on, with as many axes as `x`, along the others no longer than it.
        src: a number, or at least as long as the index along each axis.

    Example:
        >>> nt.scatter_add(np.zeros(3), 0, np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]))
        array([4., 0., 2.])
    """
    check_from_zero("scatter_add", index, axis, shape_of(x))
    return _scatter_add(x, index, src, axis=axis)
