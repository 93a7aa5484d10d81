"""Read members along an axis by number, and add members up by number: take, segment_sum and what they make."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import composed, discrete, face_of, linear
from ..core.facts import Structure
from ..core.op import NON_DIFFERENTIABLE, Op
from ..core.value import Lifted, Value
from ..errors import ArgumentError, AxisError, IndexingError, ShapeError
from .indexing import add_at
from .samples import rejected, sample, values
from .shapes import axis_of, reshape, shape_of


def as_index(name: str, index: Any) -> NDArray:
    """Return an index as an integer array; an empty list counts as one."""
    array = np.asarray(index)
    if array.dtype.kind not in "iu":
        if array.size:
            raise IndexingError(f"{name}: the index has dtype {array.dtype}; indices are integers.")
        array = array.astype(np.intp)
    return array


def check_index(name: str, index: Any, length: int, axis: Any, shape: Shape, operand: str = "x") -> NDArray:
    """Return an index as an integer array with values from ``-length`` to ``length - 1``."""
    array = as_index(name, index)
    if array.size and not (-length <= array.min() and array.max() < length):
        worst = array.max() if array.max() >= length else array.min()
        raise IndexingError(
            f"{name}: index {worst} is out of bounds for axis {axis} with size {length}; {operand} has shape {shape}."
        )
    return array


def check_from_zero(name: str, index: Any, axis: int, shape: Shape, operand: str = "x") -> None:
    """Raise if an index has negative members, where PyTorch, whose name the function has, refuses them."""
    if isinstance(index, Lifted):
        return
    array = np.asarray(index.array if isinstance(index, Value) else index)
    if array.size and array.dtype.kind == "i" and (least := np.minimum.reduce(array, axis=None)) < 0:
        length = shape[axis_of(name, axis, shape)]
        raise IndexingError(
            f"{name}: index {least} is negative; along axis {axis} of {operand}, which has shape {shape}, indices run "
            f"from 0 to {length - 1}. Add {length} to those that count from the end."
        )


def _take_back(g: Array, x_shape: Shape, indices: Array, axis: int | None) -> Array:
    if axis is None:
        return segment_sum(g, indices, math.prod(x_shape)).reshape(x_shape)
    return segment_sum(g, indices, x_shape[axis], axis % len(x_shape))


def _take_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, indices = operands
    axis = params["axis"]
    if batched[1]:
        return batching.loop(op, operands, batched, params)
    if axis is None:
        return take(x.reshape((x.shape[0], math.prod(x.shape[1:]))), indices, axis=1)
    return take(x, indices, axis=axis % (len(x.shape) - 1) + 1)


@linear(
    transposes={"x": _take_back, "indices": NON_DIFFERENTIABLE},
    structure=Structure.MOVES,
    native_half=True,
    batch=_take_batch,
    numpy=np.take,
    samples=lambda: [
        sample(values(5), np.array([0, 2, 2])),
        sample(values(2, 3), np.array([5, 0, -1])),
        sample(values(2, 3), np.array([1, 1, 0]), axis=0),
        sample(values(2, 3), np.array([[2, -1], [0, 2]]), axis=1),
        sample(values(2, 3, 4), np.array([3, 3]), axis=-1),
        sample(values(2, 3, 4), np.array(1), axis=1),
        sample(values(3), np.array([], np.intp)),
        sample(values(2, 0), np.array([1, 0]), axis=0),
        sample(values(1), np.array([0, 0, -1]), axis=0),
        rejected(
            IndexingError,
            "take: index 3 is out of bounds for axis 0 with size 3; x has shape (3,).",
            np.ones(3),
            np.array([0, 3]),
            axis=0,
        ),
        rejected(
            IndexingError,
            "take: the index has dtype float64; indices are integers.",
            np.ones(3),
            np.array([0.0]),
        ),
        rejected(
            AxisError,
            "take: axis 1 is out of bounds for array of dimension 1; x has shape (3,).",
            np.ones(3),
            np.array([0]),
            axis=1,
        ),
    ],
)
def take(x: Array, indices: Array, /, axis: int | None = None) -> Array:
    """Return the elements of `x` at `indices` along an axis (of the flattened `x` by default).

    The axis is replaced by the axes of `indices`. Negative indices count from the end; an index that occurs several
    times gets the sum of the gradients.

    Example:
        >>> nt.take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1]), axis=1)
        array([[2., 2.],
               [4., 4.]])
    """
    shape = np.shape(x)
    length = math.prod(shape) if axis is None else shape[axis_of("take", axis, shape)]
    index = as_index("take", indices)
    try:
        return np.take(x, index, axis)
    except IndexError:
        check_index("take", index, length, 0 if axis is None else axis, shape)
        raise


def _segment_sum_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    if batched[1]:
        return batching.loop(op, operands, batched, params)
    return segment_sum(operands[0], operands[1], params["count"], params["axis"] + 1)


def _segment_sum_reference(x: Any, segments: Any, count: int, axis: int = 0) -> Any:
    rows = np.moveaxis(x, range(axis, axis + segments.ndim), range(segments.ndim))
    out = np.zeros((count, *rows.shape[segments.ndim :]))
    np.add.at(out, segments, rows)
    return np.moveaxis(out, 0, axis)


@linear(
    transposes={"x": lambda g, segments, axis: take(g, segments, axis=axis), "segments": NON_DIFFERENTIABLE},
    structure=Structure.SCATTERS,
    precision="widen",
    batch=_segment_sum_batch,
    cost=lambda out, x, segments, count, axis: math.prod(x),
    reference=_segment_sum_reference,
    samples=lambda: [
        sample(values(4), np.array([0, 2, 2, 0]), count=3),
        sample(values(4, 2), np.array([0, 2, -1, 0]), count=4),
        sample(values(2, 4), np.array([1, 1, 0, 1]), count=2, axis=1),
        sample(values(2, 3, 2), np.array([1, 1, 0]), count=3, axis=1),
        sample(values(2, 3, 2), np.array([[0, 1, 1], [0, 0, 3]]), count=4),
        sample(values(3, 2), np.array(1), count=2),
        sample(values(0, 2), np.array([], np.intp), count=2),
        sample(values(2, 0), np.array([0, 0]), count=1),
        sample(values(3), np.array([0, 0, 0]), count=1),
        rejected(
            ShapeError,
            "segment_sum: x has shape (3, 2) and segments has shape (2,), which must equal the lengths of x from axis "
            "0 on.",
            np.ones((3, 2)),
            np.array([0, 1]),
            count=2,
        ),
        rejected(
            IndexingError,
            "segment_sum: index 2 is out of bounds for axis 0 with size 2; x has shape (2,).",
            np.ones(2),
            np.array([0, 2]),
            count=2,
        ),
    ],
)
def _segment_sum(x: Array, segments: Array, /, *, count: int, axis: int = 0) -> Array:
    """Return the sums of the members of `x` that belong to each of `count` segments, the transpose of take."""
    shape = np.shape(x)
    index = check_index("segment_sum", segments, count, axis, shape)
    end = axis + index.ndim
    if shape[axis:end] != index.shape:
        raise ShapeError(
            f"segment_sum: x has shape {shape} and segments has shape {index.shape}, which must equal the lengths of x "
            f"from axis {axis} on."
        )
    lead = math.prod(shape[:axis])
    rest = math.prod(shape[end:])
    out = np.zeros((*shape[:axis], count, *shape[end:]), x.dtype)
    if lead != 1:
        index = np.where(index < 0, index + count, index).reshape(-1)
        index = np.arange(lead)[:, None] * count + index
    add_at(out.reshape(lead * count, rest), index, x)
    return out


@face_of(_segment_sum)
def segment_sum(x: Array, segments: Array, count: int, axis: int = 0) -> Array:
    """Return, for each of `count` segments, the sum of the members of `x` along an axis that belong to it.

    Args:
        x: any shape with at least one axis.
        segments: integers, one for each member of `x` along `axis`; with several axes, they stand for as many of `x`.
        count: the number of segments, the length of the axis in the result.
        axis: the axis (the first of them) that the segments replace.

    Example:
        >>> nt.segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), 2)
        array([5., 2.])
    """
    return _segment_sum(x, segments, count=count, axis=axis if axis >= 0 else axis_of("segment_sum", axis, shape_of(x)))


@composed(
    reference=lambda x, axis, index: np.take(x, index, axis),
    samples=lambda: [
        sample(values(5), 0, np.array([0, 2, 2])),
        sample(values(2, 3), 0, np.array([1, 1, 0])),
        sample(values(2, 3), 1, np.array([2, 1])),
        sample(values(2, 3, 4), -1, np.array([3, 3])),
        sample(values(2, 3, 4), 1, np.array([0])),
        sample(values(3), 0, np.array([], np.intp)),
        sample(values(2, 0), 0, np.array([1, 0])),
        sample(values(1), 0, np.array([0, 0])),
        rejected(
            ShapeError,
            "index_select: the index has shape (1, 2); it has one axis (take accepts more).",
            np.ones(3),
            0,
            np.array([[0, 1]]),
        ),
        rejected(
            IndexingError,
            "index_select: index -1 is negative; along axis 0 of x, which has shape (3,), indices run from 0 to 2. Add "
            "3 to those that count from the end.",
            np.ones(3),
            0,
            np.array([0, -1]),
        ),
    ],
)
def index_select(x: Array, axis: int, index: Array) -> Array:
    """Return the members of `x` that `index`, of numbers from 0 on, names along an axis.

    Example:
        >>> nt.index_select(np.array([1.0, 2.0, 3.0]), 0, np.array([2, 0]))
        array([3., 1.])
    """
    if len(shape_of(index)) > 1:
        raise ShapeError(f"index_select: the index has shape {shape_of(index)}; it has one axis (take accepts more).")
    check_from_zero("index_select", index, axis, shape_of(x))
    return take(x, reshape(index, -1) if not shape_of(index) else index, axis=axis)


@discrete(
    cost=lambda out, index, num_classes: 0,
    reference=lambda index, num_classes=-1: np.eye(index.max() + 1 if num_classes < 0 else num_classes)[index],
    samples=lambda: [
        sample(np.array([0, 2, 1]), num_classes=3),
        sample(np.array([0, 2, 1]), num_classes=5),
        sample(np.array([0, 2, 1])),
        sample(np.array([[0, 1], [1, 1]]), num_classes=2),
        sample(np.array(1), num_classes=3),
        sample(np.array([], np.intp), num_classes=3),
        sample(np.array([[[0]]]), num_classes=1),
        sample(np.array([1, 1], np.int32), num_classes=2),
        rejected(
            IndexingError,
            "one_hot: the index runs from 0 to 3; with 3 classes it must lie between 0 and 2.",
            np.array([0, 3]),
            num_classes=3,
        ),
        rejected(
            IndexingError, "one_hot: the index has dtype float64; indices are integers.", np.array([0.0]), num_classes=3
        ),
        rejected(
            ArgumentError,
            "one_hot: an empty index tells no number of classes; give num_classes.",
            np.array([], np.intp),
        ),
    ],
)
def one_hot(index: Array, /, num_classes: int = -1) -> Array:
    """Return integers that are 1 at the index along a new last axis and 0 elsewhere.

    Args:
        index: integers of any shape, from 0 on.
        num_classes: the length of the new axis; -1 for one more than the largest index.

    Example:
        >>> nt.one_hot(np.array([0, 2]), 3)
        array([[1, 0, 0],
               [0, 0, 1]])
    """
    found = as_index("one_hot", index)
    if num_classes < 0:
        if not found.size:
            raise ArgumentError("one_hot: an empty index tells no number of classes; give num_classes.")
        num_classes = int(found.max()) + 1
    if found.size and (found.min() < 0 or found.max() >= num_classes):
        raise IndexingError(
            f"one_hot: the index runs from {found.min()} to {found.max()}; with {num_classes} classes it must lie "
            f"between 0 and {num_classes - 1}."
        )
    out = np.zeros((found.size, num_classes), np.int64)
    out[np.arange(found.size), found.reshape(-1)] = 1
    return out.reshape(*found.shape, num_classes)


@composed(
    reference=lambda index, weight: weight[index],
    samples=lambda: [
        sample(np.array([0, 2, 2]), values(4, 3)),
        sample(np.array([[0, 1], [3, 1]]), values(4, 3)),
        sample(np.array(1), values(4, 3)),
        sample(np.array([], np.intp), values(4, 3)),
        sample(np.array([0, 0, 0]), values(1, 2)),
        sample(np.array([1, 0]), values(2, 1)),
        sample(np.array([[[3]]]), values(4, 2)),
        sample(np.array([1, 1], np.int32), values(3, 2)),
        rejected(
            ShapeError,
            "embedding: the weight has shape (3,); it is a matrix with one row for each index.",
            np.array([0]),
            np.ones(3),
        ),
        rejected(
            IndexingError,
            "embedding: index 3 is out of bounds for axis 0 with size 3; weight has shape (3, 2).",
            np.array([3]),
            np.ones((3, 2)),
        ),
        rejected(
            IndexingError,
            "embedding: the index has dtype float64; indices are integers.",
            np.array([1.0]),
            np.ones((3, 2)),
        ),
        rejected(
            IndexingError,
            "embedding: index -1 is negative; along axis 0 of weight, which has shape (3, 2), indices run from 0 to 2. "
            "Add 3 to those that count from the end.",
            np.array([0, -1]),
            np.ones((3, 2)),
        ),
    ],
)
def embedding(index: Array, weight: Array) -> Array:
    """Return the rows of a table that an index names.

    Args:
        index: integers of any shape, from 0 on.
        weight: of shape (number of rows, length of a row).

    Example:
        >>> nt.embedding(np.array([1, 0, 1]), np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([[3., 4.],
               [1., 2.],
               [3., 4.]])
    """
    if len(shape_of(weight)) != 2:
        raise ShapeError(
            f"embedding: the weight has shape {shape_of(weight)}; it is a matrix with one row for each index."
        )
    check_from_zero("embedding", index, 0, shape_of(weight), "weight")
    try:
        return take(weight, index, axis=0)
    except IndexingError:
        shape = shape_of(weight)
        check_index("embedding", index.array if isinstance(index, Value) else index, shape[0], 0, shape, "weight")
        raise
