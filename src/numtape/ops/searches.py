"""Questions about elements: whether, where and how many; nothing flows back through the answers."""

from typing import Any, Literal

import numpy as np

from .._typing import Array, Axis, NDArray
from ..core import batching
from ..core.declare import discrete
from ..core.facts import Structure
from ..errors import ArgumentError, ShapeError
from .reductions import axis_out_of_bounds, reduction_cost, reduction_samples
from .samples import distinct, rejected, sample, values


def _flags(x: NDArray) -> NDArray:
    return x > 0.0


def _truth_samples(name: str) -> list[Any]:
    return [
        *(sample(_flags(s.args[0]), **s.params) for s in reduction_samples()),
        sample(np.array([[0.0, 0.0], [0.0, 2.0], [1.0, -3.0]]), axis=1),
        sample(np.array([[0, 0], [0, 2], [1, 3]]), axis=0),
        sample(np.ones((2, 0), bool), axis=1),
        axis_out_of_bounds(name),
    ]


@discrete(
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    numpy=(np.any, np.logical_or.reduce),
    samples=lambda: _truth_samples("any"),
)
def any(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return whether some element along `axis` (all axes by default) is true or not zero.

    Example:
        >>> nt.any(np.array([[False, True], [False, False]]), axis=1)
        array([ True, False])
    """
    return np.any(x, axis=axis, keepdims=keepdims)


@discrete(
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    numpy=(np.all, np.logical_and.reduce),
    samples=lambda: _truth_samples("all"),
)
def all(x: Array, /, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return whether all elements along `axis` (all axes by default) are true or not zero.

    Example:
        >>> nt.all(np.array([[True, True], [False, True]]), axis=1)
        array([ True, False])
    """
    return np.all(x, axis=axis, keepdims=keepdims)


@discrete(
    cost=reduction_cost,
    structure=Structure.LANES,
    batch=batching.along_axis,
    numpy=np.count_nonzero,
    samples=lambda: _truth_samples("count_nonzero"),
)
def count_nonzero(x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Return how many elements along `axis` (all axes by default) are not zero.

    Example:
        >>> nt.count_nonzero(np.array([[0.0, 2.0], [1.0, 3.0]]), axis=1)
        array([1, 2])
    """
    return np.count_nonzero(x, axis=axis, keepdims=keepdims)


def _arg_samples(name: str) -> list[Any]:
    return [
        sample(distinct(5)),
        sample(distinct(2, 3)),
        sample(distinct(2, 3), axis=0),
        sample(distinct(2, 3), axis=-1, keepdims=True),
        sample(distinct(2, 3, 4), axis=1),
        sample(distinct(2, 3), keepdims=True),
        sample(distinct()),
        sample(distinct(1)),
        sample(distinct(3, 1), axis=1),
        sample(np.array([1.0, 3.0, 3.0, 1.0])),
        sample(np.array([[1, 2], [2, 1]]), axis=1),
        axis_out_of_bounds(name),
        rejected(
            ArgumentError,
            f"{name}: attempt to get {name} of an empty sequence (x has shape (0,)).",
            np.ones(0),
        ),
    ]


@discrete(cost=reduction_cost, structure=Structure.LANES, numpy=np.argmax, samples=lambda: _arg_samples("argmax"))
def argmax(x: Array, /, axis: int | None = None, keepdims: bool = False) -> Array:
    """Return the index of the largest element along `axis`, the first if there are several.

    Args:
        x: any shape.
        axis: the axis to search along; None counts through x flattened.
        keepdims: keep the reduced axis with length 1.

    Example:
        >>> nt.argmax(np.array([[1.0, 3.0], [4.0, 2.0]]), axis=1)
        array([1, 0])
    """
    return np.argmax(x, axis=axis, keepdims=keepdims)


@discrete(cost=reduction_cost, structure=Structure.LANES, numpy=np.argmin, samples=lambda: _arg_samples("argmin"))
def argmin(x: Array, /, axis: int | None = None, keepdims: bool = False) -> Array:
    """Return the index of the smallest element along `axis`, the first if there are several.

    Args:
        x: any shape.
        axis: the axis to search along; None counts through x flattened.
        keepdims: keep the reduced axis with length 1.

    Example:
        >>> nt.argmin(np.array([[1.0, 3.0], [4.0, 2.0]]), axis=1)
        array([0, 1])
    """
    return np.argmin(x, axis=axis, keepdims=keepdims)


@discrete(
    numpy=np.searchsorted,
    samples=lambda: [
        sample(np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0, 9.0])),
        sample(np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0, 9.0]), side="right"),
        sample(np.array([1.0, 2.0, 2.0, 3.0]), np.array(2.0)),
        sample(np.array([1.0, 2.0, 2.0, 3.0]), 2.0, side="right"),
        sample(np.array([1.0, 2.0]), values(2, 3)),
        sample(np.zeros(0), values(3)),
        sample(np.array([1.0]), np.zeros(0)),
        sample(np.array([1, 5, 7]), np.array([5, 6])),
        rejected(
            ShapeError,
            "searchsorted: a has shape (2, 2); it is one sorted axis.",
            np.ones((2, 2)),
            np.ones(2),
        ),
        rejected(
            ArgumentError,
            "searchsorted: side is 'middle'; it is 'left' or 'right'.",
            np.ones(2),
            np.ones(2),
            side="middle",
        ),
    ],
)
def searchsorted(a: Array, v: Array, /, side: Literal["left", "right"] = "left") -> Array:
    """Return the indices at which `v` would be inserted into the sorted `a` to keep it sorted.

    Args:
        a: one axis, in rising order.
        v: the values to find places for, of any shape.
        side: before ("left") or after ("right") the elements that are equal.

    Example:
        >>> nt.searchsorted(np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0]))
        array([0, 1])
    """
    if np.ndim(a) != 1:
        raise ShapeError(f"searchsorted: a has shape {np.shape(a)}; it is one sorted axis.")
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side is {side!r}; it is 'left' or 'right'.")
    return np.searchsorted(a, v, side=side)
