"""Sums of products over chosen axes: tensordot."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core import batching
from ..core.binding import as_integer, plain_number
from ..core.declare import linear
from ..core.facts import Structure
from ..core.op import Op
from ..core.terms import Terms, contraction
from ..errors import ArgumentError, ShapeError
from .samples import rejected, sample, values
from .shapes import permute


def _pairs_of_axes(axes: Any, a_ndim: int, b_ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the contracted axes of a and b, numbered from 0 on: a number means the last of a and the first of b."""
    count = as_integer(axes) if type(axes) is bool else plain_number(axes, int)
    if count is not None:
        if not 0 <= count <= min(a_ndim, b_ndim):
            raise ArgumentError(
                f"tensordot: axes={count}, but a has {a_ndim} axes and b has {b_ndim}; give a number of axes that both "
                "have, or a pair of sequences."
            )
        return tuple(range(a_ndim - count, a_ndim)), tuple(range(count))
    first, second = (tuple(as_integer(i) for i in np.atleast_1d(part)) for part in axes)
    for name, part, ndim in (("a", first, a_ndim), ("b", second, b_ndim)):
        for axis in part:
            if not -ndim <= axis < ndim:
                raise ArgumentError(f"tensordot: axis {axis} of {name} is out of bounds for an array of {ndim} axes.")
    return tuple(axis % a_ndim for axis in first), tuple(axis % b_ndim for axis in second)


def _others(ndim: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(ndim) if axis not in axes)


def _tensordot_a(g: Array, a_shape: Shape, b: Array, axes: Any) -> Array:
    # The axes of g are a's free ones, then b's; contracted with b, b's summed axes are left, in b's order.
    a_axes, b_axes = _pairs_of_axes(axes, len(a_shape), len(b.shape))
    a_free, b_free = _others(len(a_shape), a_axes), _others(len(b.shape), b_axes)
    part = tensordot(g, b, axes=(tuple(range(len(a_free), len(a_free) + len(b_free))), b_free))
    places = {axis: i for i, axis in enumerate(a_free)}
    for a_axis, b_axis in zip(a_axes, b_axes, strict=True):
        places[a_axis] = len(a_free) + sorted(b_axes).index(b_axis)
    return permute(part, tuple(places[axis] for axis in range(len(a_shape))))


def _tensordot_b(g: Array, b_shape: Shape, a: Array, axes: Any) -> Array:
    a_axes, b_axes = _pairs_of_axes(axes, len(a.shape), len(b_shape))
    a_free, b_free = _others(len(a.shape), a_axes), _others(len(b_shape), b_axes)
    part = tensordot(a, g, axes=(a_free, tuple(range(len(a_free)))))
    places = {axis: len(a_axes) + i for i, axis in enumerate(b_free)}
    for a_axis, b_axis in zip(a_axes, b_axes, strict=True):
        places[b_axis] = sorted(a_axes).index(a_axis)
    return permute(part, tuple(places[axis] for axis in range(len(b_shape))))


def _tensordot_size(a: Shape, b: Shape, axes: Any = 2) -> int:
    a_axes, b_axes = _pairs_of_axes(axes, len(a), len(b))
    return math.prod([a[i] for i in _others(len(a), a_axes)] + [b[i] for i in _others(len(b), b_axes)])


def _tensordot_terms(out: Shape, a: Shape, b: Shape, axes: Any) -> list[Terms]:
    a_axes, b_axes = _pairs_of_axes(axes, len(a), len(b))
    a_names = [f"a{axis}" for axis in range(len(a))]
    b_names = [f"b{axis}" for axis in range(len(b))]
    for i, j in zip(a_axes, b_axes, strict=True):
        b_names[j] = a_names[i]
    free = [a_names[axis] for axis in _others(len(a), a_axes)] + [b_names[axis] for axis in _others(len(b), b_axes)]
    return [contraction((a_names, b_names), free, (a, b))]


def _tensordot_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    a, b = operands
    if all(batched):
        return batching.loop(op, operands, batched, params)
    a_ndim = len(a.shape) - batched[0]
    a_axes, b_axes = _pairs_of_axes(params["axes"], a_ndim, len(b.shape) - batched[1])
    if batched[0]:
        return tensordot(a, b, axes=(tuple(axis + 1 for axis in a_axes), b_axes))
    out = tensordot(a, b, axes=(a_axes, tuple(axis + 1 for axis in b_axes)))
    front = a_ndim - len(a_axes)
    return permute(out, (front, *(axis for axis in range(len(out.shape)) if axis != front)))


@linear(
    transposes=dict(a=_tensordot_a, b=_tensordot_b),
    cost=lambda out, a, b, axes: (
        2 * math.prod(out) * math.prod(a[axis] for axis in _pairs_of_axes(axes, len(a), len(b))[0])
    ),
    structure=Structure.TERMS,
    size=_tensordot_size,
    terms=_tensordot_terms,
    precision="lower",
    batch=_tensordot_batch,
    numpy=(np.tensordot, np.linalg.tensordot),
    samples=lambda: [
        sample(values(2, 3, 4), values(3, 4, 2, seed=1)),
        sample(values(2, 3), values(3, 4, seed=1), axes=1),
        sample(values(2, 3), values(3, seed=1), axes=0),
        sample(values(2, 3, 4), values(4, 2, 5, seed=1), axes=((2, 0), (0, 1))),
        sample(values(2, 3, 4), values(5, 4, 2, seed=1), axes=((0, -1), (-1, 1))),
        sample(values(3, 2), values(4, 3, seed=1), axes=(0, 1)),
        sample(values(2, 3), values(2, 3, seed=1), axes=2),
        sample(values(2, 0), values(0, 3), axes=1),
        sample(values(), values(seed=1), axes=0),
        sample(values(1, 3), values(1, 3, seed=1), axes=([1, 0], [1, 0])),
        rejected(
            ShapeError,
            "tensordot: a has shape (2, 3) and b has shape (4, 3); axis 1 of a (3) must have the length of axis 0 of b "
            "(4).",
            np.ones((2, 3)),
            np.ones((4, 3)),
            axes=1,
        ),
        rejected(
            ArgumentError,
            "tensordot: axes=3, but a has 2 axes and b has 2; give a number of axes that both have, or a pair of "
            "sequences.",
            np.ones((2, 3)),
            np.ones((2, 3)),
            axes=3,
        ),
        rejected(
            ArgumentError,
            "tensordot: axes names 1 axes of a and 2 of b; both must be as many.",
            np.ones((2, 3)),
            np.ones((2, 3)),
            axes=((0,), (0, 1)),
        ),
        rejected(
            ArgumentError,
            "tensordot: axis 2 of b is out of bounds for an array of 2 axes.",
            np.ones((2, 3)),
            np.ones((2, 3)),
            axes=(0, 2),
        ),
    ],
)
def tensordot(a: Array, b: Array, /, axes: Any = 2) -> Array:
    """Return the sum of products of `a` and `b` over axes of each.

    Args:
        a: any shape.
        b: any shape. The free axes of a, then those of b are the axes of the result.
        axes: the number of last axes of a and first axes of b, or the axes of a and those of b to pair off.

    Example:
        >>> nt.tensordot(np.ones((2, 3)), np.ones((4, 3)), axes=(1, 1)).shape
        (2, 4)
    """
    a_shape, b_shape = np.shape(a), np.shape(b)
    a_axes, b_axes = _pairs_of_axes(axes, len(a_shape), len(b_shape))
    if len(a_axes) != len(b_axes):
        raise ArgumentError(
            f"tensordot: axes names {len(a_axes)} axes of a and {len(b_axes)} of b; both must be as many."
        )
    for i, j in zip(a_axes, b_axes, strict=True):
        if a_shape[i] != b_shape[j]:
            raise ShapeError(
                f"tensordot: a has shape {a_shape} and b has shape {b_shape}; axis {i} of a ({a_shape[i]}) must have "
                f"the length of axis {j} of b ({b_shape[j]})."
            )
    return np.tensordot(a, b, axes=(a_axes, b_axes))
