"""Split a tensor along an axis, into views."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core.binding import integers_of, plain_number
from ..core.declare import composed, linear
from ..core.facts import Structure
from ..core.op import Op
from ..errors import ArgumentError, AxisError, OperandError
from .joining import along, concat, stack
from .samples import rejected, sample, values
from .shapes import axis_of, shape_of


def _bounds(indices: tuple[int, ...], length: int) -> list[tuple[int, int]]:
    """Return start and end of the parts that cuts at `indices` give, as slices of an axis of `length` do."""
    cuts = (None, *indices, None)
    spans = [slice(start, end).indices(length) for start, end in itertools.pairwise(cuts)]
    return [(start, max(start, end)) for start, end, _ in spans]


def _cut_transpose(g: tuple[Any, ...], x_shape: Shape, indices: tuple[int, ...], axis: int) -> Array:
    # Where no cotangent arrived it is zero. Cuts out of order make parts overlap, so that concat would not do.
    bounds = _bounds(indices, x_shape[axis])
    dtype = next(part.dtype for part in g if part is not None)
    is_partition = [start for start, _ in bounds[1:]] == [end for _, end in bounds[:-1]]
    if not is_partition:
        return _sum_parts(g, bounds, x_shape, axis)
    shapes = [(*x_shape[:axis], end - start, *x_shape[axis + 1 :]) for start, end in bounds]
    return concat(
        [np.zeros(shape, dtype) if part is None else part for part, shape in zip(g, shapes, strict=True)], axis=axis
    )


def _sum_parts(g: tuple[Any, ...], bounds: list[tuple[int, int]], x_shape: Shape, axis: int) -> Array:
    total: Any = None
    for part, (start, end) in zip(g, bounds, strict=True):
        if part is not None:
            before, after = list(x_shape), list(x_shape)
            before[axis], after[axis] = start, x_shape[axis] - end
            zeros = [np.zeros(before, part.dtype), np.zeros(after, part.dtype)]
            whole = concat([zeros[0], part, zeros[1]], axis=axis)
            total = whole if total is None else total + whole
    return total


def _cut_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _cut(operands[0], indices=params["indices"], axis=params["axis"] + 1)


@linear(
    transposes={"x": _cut_transpose},
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_cut_batch,
    reference=lambda x, indices, axis: np.split(x, indices, axis),
    samples=lambda: [
        sample(values(6), indices=(2, 4), axis=0),
        sample(values(6), indices=(1,), axis=0),
        sample(values(6), indices=(), axis=0),
        sample(values(2, 3), indices=(1, 2), axis=1),
        sample(values(2, 3, 4), indices=(3,), axis=2),
        sample(values(4), indices=(0, 2, 9), axis=0),
        sample(values(4), indices=(-1,), axis=0),
        sample(values(4), indices=(3, 1), axis=0),
        sample(values(0, 2), indices=(1,), axis=1),
    ],
)
def _cut(x: Array, /, *, indices: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Return the parts of `x` between cuts along an axis, as views."""
    return tuple(x[along(axis, slice(start, end))] for start, end in _bounds(indices, x.shape[axis]))


def _even_cuts(length: int, sections: int) -> tuple[int, ...]:
    """Return the cuts into parts whose lengths differ by at most one, longer ones first."""
    size, longer = divmod(length, sections)
    return tuple(i * size + min(i, longer) for i in range(1, sections))


def _parts(name: str, x: Array, indices_or_sections: Any, axis: Any, is_even: bool) -> tuple[Array, ...]:
    shape = shape_of(x)
    place = axis_of(name, axis, shape)
    if isinstance(indices_or_sections, float) and indices_or_sections.is_integer():
        indices_or_sections = int(indices_or_sections)  # As NumPy has it.
    cuts = integers_of(indices_or_sections)
    if cuts is None:
        raise OperandError(
            f"{name}: indices_or_sections is {indices_or_sections!r}; it must be a number of parts, or a list of "
            "indices to cut at, as integers."
        )
    sections = plain_number(indices_or_sections, int)
    if sections is None:
        return _cut(x, indices=cuts, axis=place)
    if sections < 1 or (is_even and shape[place] % sections):
        hint = " evenly; array_split and chunk allow a shorter part" if sections > 0 else ""
        raise ArgumentError(
            f"{name}: axis {axis} of x has length {shape[place]} and cannot be cut into {sections} parts{hint}."
        )
    return _cut(x, indices=_even_cuts(shape[place], sections), axis=place)


@composed(
    numpy=np.split,
    samples=lambda: [
        sample(values(6), 3),
        sample(values(6), 1),
        sample(values(6), [2, 3]),
        sample(values(6), np.array([1, 5])),
        sample(values(2, 4), 2, axis=1),
        sample(values(2, 4), 2, axis=-1),
        sample(values(2, 3, 4), [1, 1], axis=1),
        sample(values(0), 2),
        sample(values(3), []),
        rejected(
            ArgumentError,
            "split: axis 0 of x has length 5 and cannot be cut into 2 parts evenly; array_split and chunk allow a "
            "shorter part.",
            np.ones(5),
            2,
        ),
        rejected(ArgumentError, "split: axis 0 of x has length 5 and cannot be cut into 0 parts.", np.ones(5), 0),
        rejected(
            AxisError,
            "split: axis 1 is out of bounds for array of dimension 1; x has shape (4,).",
            np.ones(4),
            2,
            axis=1,
        ),
    ],
)
def split(x: Array, indices_or_sections: Any, axis: int = 0) -> tuple[Array, ...]:
    """Return the parts of `x` along an axis, as views.

    Args:
        x: at least one axis.
        indices_or_sections: a number of equal parts, or the indices at which to cut (NumPy's meaning; PyTorch's
            number is the length of a part).
        axis: the axis to cut.

    Example:
        >>> nt.split(np.arange(4.0), 2)
        (array([0., 1.]), array([2., 3.]))
    """
    return _parts("split", x, indices_or_sections, axis, is_even=True)


@composed(
    numpy=np.array_split,
    samples=lambda: [
        sample(values(7), 3),
        sample(values(6), 3),
        sample(values(2), 3),
        sample(values(6), [2, 3]),
        sample(values(2, 5), 2, axis=1),
        sample(values(2, 5), 4, axis=-1),
        sample(values(2, 3, 4), 2, axis=1),
        sample(values(0), 2),
        rejected(ArgumentError, "array_split: axis 0 of x has length 5 and cannot be cut into 0 parts.", np.ones(5), 0),
    ],
)
def array_split(x: Array, indices_or_sections: Any, axis: int = 0) -> tuple[Array, ...]:
    """Return the parts of `x` along an axis, as views; lengths differ by at most one, longer parts first.

    Example:
        >>> [len(part) for part in nt.array_split(np.arange(7.0), 3)]
        [3, 2, 2]
    """
    return _parts("array_split", x, indices_or_sections, axis, is_even=False)


def _chunk_cuts(length: int, chunks: int) -> tuple[int, ...]:
    size = -(-length // chunks)
    return tuple(range(size, length, size)) if size else (0,) * (chunks - 1)


@composed(
    reference=lambda x, chunks, axis=0: np.split(x, _chunk_cuts(x.shape[axis], chunks), axis),
    samples=lambda: [
        sample(values(7), 3),
        sample(values(6), 3),
        sample(values(5), 4),
        sample(values(2), 3),
        sample(values(2, 5), 2, axis=1),
        sample(values(2, 5), 4, axis=-1),
        sample(values(2, 3, 4), 2, axis=1),
        sample(values(0), 2),
        rejected(ArgumentError, "chunk: chunks is 0; give at least 1.", np.ones(5), 0),
    ],
)
def chunk(x: Array, chunks: int, axis: int = 0) -> tuple[Array, ...]:
    """Return at most `chunks` parts of `x` along an axis, as views: all of one length but the last.

    Example:
        >>> [len(part) for part in nt.chunk(np.arange(7.0), 3)]
        [3, 3, 1]
    """
    if chunks < 1:
        raise ArgumentError(f"chunk: chunks is {chunks}; give at least 1.")
    shape = shape_of(x)
    place = axis_of("chunk", axis, shape)
    return _cut(x, indices=_chunk_cuts(shape[place], chunks), axis=place)


def _unbind_transpose(g: tuple[Any, ...], x_shape: Shape, axis: int) -> Array:
    place = axis % len(x_shape)
    dtype = next(part.dtype for part in g if part is not None)
    zeros = np.zeros(x_shape[:place] + x_shape[place + 1 :], dtype)
    return stack([zeros if part is None else part for part in g], axis=place)


def _unbind_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    axis = params["axis"]
    return unbind(operands[0], axis=axis if axis < 0 else axis + 1)


@linear(
    transposes={"x": _unbind_transpose},
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_unbind_batch,
    numpy=np.unstack,
    also=("unstack",),
    reference=lambda x, axis=0: [np.take(x, i, axis) for i in range(x.shape[axis])],
    samples=lambda: [
        sample(values(3)),
        sample(values(1)),
        sample(values(2, 3)),
        sample(values(2, 3), axis=1),
        sample(values(2, 3), axis=-1),
        sample(values(2, 3, 4), axis=1),
        sample(values(2, 0)),
        sample(values(1, 2, 1), axis=-2),
        rejected(
            AxisError, "unbind: axis 1 is out of bounds for array of dimension 1; x has shape (2,).", np.ones(2), axis=1
        ),
        rejected(AxisError, "unbind: axis 0 is out of bounds for array of dimension 0; x has shape ().", np.ones(())),
    ],
)
def unbind(x: Array, /, axis: int = 0) -> tuple[Array, ...]:
    """Return the members of `x` along an axis, as views without that axis.

    Example:
        >>> nt.unbind(np.array([[1.0, 2.0], [3.0, 4.0]]))
        (array([1., 2.]), array([3., 4.]))
    """
    place = axis_of("unbind", axis, np.shape(x))
    # The Ellipsis makes views of numbers as well.
    return tuple(x[(*along(place, i), ...)] for i in range(np.shape(x)[place]))
