"""Sorting and selection by rank."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import differentiable, discrete, face_of, linear
from ..core.facts import Structure
from ..core.op import NON_DIFFERENTIABLE, Op
from ..errors import ArgumentError, AxisError, OperandError
from .samples import distinct, rejected, sample, values


def _flattened(x: Array, axis: int | None) -> tuple[Array, int]:
    """Return what an axis of None stands for: x flattened, along its only axis."""
    return (x.reshape((-1,)), 0) if axis is None else (x, axis)


def _indexed_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, indices = operands
    if not batched[0]:
        return batching.loop(op, operands, batched, params)
    if not batched[1]:
        indices = indices.reshape((1, *indices.shape))
    return op.face(x, indices, **{**params, "axis": params["axis"] % (len(x.shape) - 1) + 1})


_ORDER = np.array([[2, 0, 1], [1, 2, 0]])


def _placed_back(g: Array, indices: Array, axis: int) -> Array:
    return _take_ranked(g, indices, axis=axis)


@linear(
    transposes={"x": _placed_back, "indices": NON_DIFFERENTIABLE},
    structure=Structure.MOVES,
    native_half=True,
    promoted=("x",),
    batch=_indexed_batch,
    cost=lambda out, *shapes, **params: 0,
    samples=lambda: [
        sample(values(3), np.array([2, 0, 1]), axis=0, length=3),
        sample(values(2), np.array([3, 0]), axis=0, length=4),
        sample(values(2, 3), _ORDER, axis=1, length=3),
        sample(values(2, 3), _ORDER, axis=-1, length=5),
        sample(values(3, 2), _ORDER.T, axis=0, length=4),
        sample(values(2, 1), np.array([[1], [0]]), axis=1, length=2),
        sample(values(0), np.zeros(0, np.intp), axis=0, length=2),
        sample(values(2, 3, 1), _ORDER[:, :, None], axis=1, length=3),
    ],
)
def _put_ranked(x: Array, indices: Array, /, *, axis: int, length: int) -> Array:
    """Return zeros, with `x` at the `indices` of an axis that gets `length`; no index occurs twice in a lane."""
    shape = list(x.shape)
    shape[axis] = length
    out = np.zeros(tuple(shape), x.dtype)
    np.put_along_axis(out, indices, x, axis)
    return out


def _taken_back(g: Array, x_shape: Shape, indices: Array, axis: int) -> Array:
    return _put_ranked(g, indices, axis=axis, length=x_shape[axis])


@linear(
    transposes={"x": _taken_back, "indices": NON_DIFFERENTIABLE},
    structure=Structure.MOVES,
    native_half=True,
    promoted=("x",),
    batch=_indexed_batch,
    cost=lambda out, *shapes, **params: 0,
    reference=np.take_along_axis,
    samples=lambda: [
        sample(values(3), np.array([2, 0, 1]), axis=0),
        sample(values(4), np.array([3, 0]), axis=0),
        sample(values(2, 3), _ORDER, axis=1),
        sample(values(2, 5), _ORDER, axis=-1),
        sample(values(4, 2), _ORDER.T, axis=0),
        sample(values(2, 2), np.array([[1], [0]]), axis=1),
        sample(values(2), np.zeros(0, np.intp), axis=0),
        sample(values(2, 3, 1), _ORDER[:, :, None], axis=1),
    ],
)
def _take_ranked(x: Array, indices: Array, /, *, axis: int) -> Array:
    """Return the elements at the `indices` of an axis; no index occurs twice in a lane."""
    return np.take_along_axis(x, indices, axis)


def _order(x: NDArray, axis: int, descending: bool, stable: bool) -> NDArray:
    """Return the indices that sort x; a stable order keeps equal elements as they were, in both directions."""
    kind: Any = "stable" if stable else None
    if not descending:
        return np.argsort(x, axis, kind=kind)
    order = np.flip(np.argsort(np.flip(x, axis) if stable else x, axis, kind=kind), axis)
    return x.shape[axis] - 1 - order if stable else order


def _sort_vjp(g: Array, x: Array, axis: int | None, descending: bool) -> Array:
    flat, along = _flattened(x, axis)
    order = argsort(flat, axis=along, descending=descending)
    return _put_ranked(g, order, axis=along, length=flat.shape[along]).reshape(x.shape)


def _sort_jvp(t: Array, x: Array, axis: int | None, descending: bool) -> Array:
    x, along = _flattened(x, axis)
    t, _ = _flattened(t, axis)
    return _take_ranked(t, argsort(x, axis=along, descending=descending), axis=along)


def _sort_cost(out: Shape, x: Shape, **params: Any) -> int:
    axis = params["axis"]
    length = math.prod(x) if axis is None else x[axis] if x else 1
    return math.prod(x) * max(1, length).bit_length()


def _sort_samples(name: str) -> list[Any]:
    return [
        sample(distinct(5)),
        sample(distinct(2, 3)),
        sample(distinct(2, 3), axis=0),
        sample(distinct(2, 3), axis=-1, descending=True),
        sample(distinct(2, 3, 4), axis=1),
        sample(distinct(2, 3), axis=None),
        sample(distinct(2, 3), axis=None, descending=True),
        sample(distinct(1)),
        sample(distinct(0)),
        sample(distinct(3, 1), axis=1),
        sample(np.array([2.0, np.nan, 1.0]), skip_derivatives="differences of NaN"),
        rejected(
            AxisError,
            f"{name}: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            axis=2,
        ),
    ]


def _sort_reference(x: Any, axis: int | None = -1, descending: bool = False) -> Any:
    result = np.sort(x, axis)
    return np.flip(result, 0 if axis is None else axis) if descending else result


@differentiable(
    vjps={"x": _sort_vjp},
    jvps={"x": _sort_jvp},
    cost=_sort_cost,
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    kinks="where elements are equal; the derivative follows one of the orders",
    numpy=np.sort,
    reference=_sort_reference,
    samples=lambda: _sort_samples("sort"),
)
def sort(x: Array, /, axis: int | None = -1, descending: bool = False) -> Array:
    """Return the elements in order along `axis`: values only, as in NumPy; NaN counts as the largest.

    Args:
        x: any shape.
        axis: the axis to sort along; None flattens x first.
        descending: the largest first.

    Example:
        >>> nt.sort(np.array([2.0, 3.0, 1.0]), descending=True)
        array([3., 2., 1.])
    """
    out = np.sort(x, axis)
    return np.flip(out, 0 if axis is None else axis) if descending else out


def _argsort_reference(x: Any, axis: int | None = -1, descending: bool = False, stable: bool = False) -> Any:
    if axis is None:
        x, axis = np.ravel(x), 0
    order = np.argsort(-x if descending else x, axis, kind="stable")
    return order if x.dtype.kind != "f" or not np.isnan(x).any() or not descending else np.roll(order, 1, axis)


@discrete(
    cost=_sort_cost,
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    numpy=np.argsort,
    reference=_argsort_reference,
    samples=lambda: [
        *_sort_samples("argsort"),
        sample(np.array([1.0, 0.0, 1.0, 0.0, 1.0]), stable=True),
        sample(np.array([1.0, 0.0, 1.0, 0.0, 1.0]), stable=True, descending=True),
        sample(np.array([[1, 0], [1, 1], [0, 2]]), axis=0, stable=True, descending=True),
    ],
)
def argsort(x: Array, /, axis: int | None = -1, descending: bool = False, *, stable: bool = False) -> Array:
    """Return the indices that sort `x` along `axis`; NaN counts as the largest.

    Args:
        x: any shape.
        axis: the axis to sort along; None flattens x first.
        descending: the largest first.
        stable: keep equal elements in their order.

    Example:
        >>> nt.argsort(np.array([2.0, 3.0, 1.0]))
        array([2, 0, 1])
    """
    x, along = _flattened(np.asarray(x), axis)
    return _order(x, along, descending, stable)


# Of the two results (values, indices) only the values have a derivative: they are x at the indices.
def _selected_vjp(g: tuple[Array, Array], x_shape: Shape, out: tuple[Array, Array], axis: int) -> Array:
    return _put_ranked(g[0], out[1], axis=axis, length=x_shape[axis])


def _selected_jvp(t: Array, out: tuple[Array, Array], axis: int) -> tuple[Array, None]:
    return _take_ranked(t, out[1], axis=axis), None


def _topk_reference(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    order = np.argsort(-x if largest else x, axis, kind="stable")
    indices = np.take(order, range(k), axis)
    return np.take_along_axis(x, indices, axis), indices


@differentiable(
    vjps={"x": _selected_vjp},
    jvps={"x": _selected_jvp},
    cost=lambda out, x, **params: 2 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    kinks="where the last element taken equals one that is not",
    reference=_topk_reference,
    samples=lambda: [
        sample(distinct(5), k=2),
        sample(distinct(5), k=2, largest=False),
        sample(distinct(2, 3), k=1),
        sample(distinct(2, 3), k=3),
        sample(distinct(2, 3), k=1, axis=0, largest=False),
        sample(distinct(4, 3), k=3, axis=0),
        sample(distinct(2, 5, 2), k=2, axis=1),
        sample(distinct(5), k=1, sorted=False),
        sample(distinct(5), k=0),
        sample(distinct(1), k=1),
        sample(np.array([2.0, 1.0, 2.0, 1.0, 2.0]), k=3, skip_derivatives="ties"),
        rejected(
            ArgumentError,
            "topk: k is 4 and axis -1 has length 3; k lies between 0 and the length (x has shape (2, 3)).",
            np.ones((2, 3)),
            k=4,
        ),
        rejected(
            AxisError,
            "topk: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            k=1,
            axis=2,
        ),
    ],
)
def _topk(x: Array, /, *, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """Return the `k` largest or smallest elements along an axis, and their indices."""
    x = np.asarray(x)
    length = x.shape[normalize_axis_index(axis, x.ndim)]
    if not 0 <= k <= length:
        raise ArgumentError(
            f"topk: k is {k} and axis {axis} has length {length}; k lies between 0 and the length "
            f"(x has shape {x.shape})."
        )
    if 0 < k < length:
        part = np.argpartition(x, length - k if largest else k - 1, axis)
        indices = np.take(part, range(length - k, length) if largest else range(k), axis)
    else:
        every = np.arange(k).reshape(tuple(k if a == axis % x.ndim else 1 for a in range(x.ndim)))
        shape = tuple(k if a == axis % x.ndim else n for a, n in enumerate(x.shape))
        indices = np.broadcast_to(every, shape)
    if sorted:
        # From indices in order, a stable sort by value puts the first of equal elements first.
        indices = np.sort(indices, axis)
        order = _order(np.take_along_axis(x, indices, axis), axis, descending=largest, stable=True)
        indices = np.take_along_axis(indices, order, axis)
    return np.take_along_axis(x, indices, axis), indices


@face_of(_topk)
def topk(x: Array, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """Return the `k` largest elements along `axis` and their indices, as PyTorch does.

    Args:
        x: any shape.
        k: how many.
        axis: the axis to select along.
        largest: False for the smallest.
        sorted: whether the results are in order, the largest (or smallest) first.

    Example:
        >>> values, indices = nt.topk(np.array([1.0, 4.0, 2.0, 3.0]), 2)
        >>> values, indices
        (array([4., 3.]), array([1, 3]))
    """
    try:
        count = operator.index(k)
    except TypeError as error:
        raise OperandError(f"topk: k is {k!r}; it must be an integer.") from error
    chosen: tuple[Array, Array] = _topk(x, k=count, axis=axis, largest=largest, sorted=sorted)
    return chosen


@differentiable(
    vjps={"x": _selected_vjp},
    jvps={"x": _selected_jvp},
    cost=lambda out, x, **params: 2 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    kinks="where elements are equal; the derivative follows one of the orders",
    reference=lambda x, ranks, axis=-1: tuple(np.take(f(x, axis), ranks, axis) for f in (np.sort, np.argsort)),
    samples=lambda: [
        sample(distinct(5), ranks=(2,)),
        sample(distinct(5), ranks=(0, 4)),
        sample(distinct(5), ranks=(3, 1)),
        sample(distinct(2, 3), ranks=(1,)),
        sample(distinct(2, 3), ranks=(1, 0), axis=0),
        sample(distinct(2, 4, 2), ranks=(1, 2), axis=1),
        sample(distinct(1), ranks=(0,)),
        sample(distinct(0, 3), ranks=(0,)),
    ],
)
def ranked(x: Array, /, ranks: tuple[int, ...], axis: int = -1) -> tuple[Array, Array]:
    """Return the elements that sorting along `axis` would bring to the places `ranks`, and their indices.

    Args:
        x: any shape.
        ranks: places from 0 on, none of them twice.
        axis: the axis along which elements are ranked.

    Example:
        >>> nt.ranked(np.array([1.0, 4.0, 2.0, 3.0]), ranks=(0, 3))
        (array([1., 4.]), array([0, 1]))
    """
    indices = np.take(np.argpartition(x, ranks, axis), ranks, axis)
    return np.take_along_axis(x, indices, axis), indices
