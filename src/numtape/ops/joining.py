"""Join tensors along an axis."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Dtype, Shape
from ..core.declare import composed, linear
from ..core.facts import Back, Structure
from ..core.op import Op
from ..core.value import Value
from ..dtypes import as_integers, is_float, promote
from ..errors import ArgumentError, AxisError, OperandError, ShapeError
from .casting import cast
from .reshaping import atleast_1d, atleast_2d, unsqueeze
from .samples import rejected, sample, values
from .shapes import axis_of, broadcast_to, reshape, shape_of, without_lists


def along(axis: int, part: Any) -> tuple[Any, ...]:
    """Return the key that takes `part` of an axis counted from 0, and all of the others."""
    return (*(slice(None),) * axis, part)


def _all_batched(operands: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Give every operand of a variadic op the batch axis that some have."""
    size = next(len(x) for x, is_batched in zip(operands, batched, strict=True) if is_batched)
    return [
        x if is_batched else broadcast_to(x, (size, *shape_of(x)))
        for x, is_batched in zip(operands, batched, strict=True)
    ]


def _concat_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    axis = params["axis"]
    full = _all_batched(operands, batched)
    if axis is None:
        return concat([reshape(x, len(x), -1) for x in full], axis=1)
    return concat(full, axis=axis + 1 if axis >= 0 else axis)


def _concat_parts(g: Array, arrays_shape: tuple[Shape, ...], axis: int | None) -> list[Array]:
    """Cut a cotangent at the joints."""
    parts = []
    start = 0
    for shape in arrays_shape:
        length = math.prod(shape) if axis is None else shape[axis]
        if axis is None:
            parts.append(g[start : start + length].reshape(shape))
        else:
            parts.append(g[along(axis % len(shape), slice(start, start + length))])
        start += length
    return parts


@linear(
    transpose=_concat_parts,
    back=Back.SHARED,
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
        sample((values(2, 3), values(), values(2, seed=1)), axis=None),
        rejected(
            ShapeError,
            "concat: arrays[1] has shape (3, 2) and arrays[0] has shape (2, 3); all axes but 0 must have the same "
            "length.",
            (np.ones((2, 3)), np.ones((3, 2))),
        ),
        rejected(
            ShapeError,
            "concat: arrays[0] has no axes; use stack to join numbers.",
            (np.ones(()), np.ones(())),
        ),
        rejected(
            AxisError,
            "concat: axis 1 is out of bounds for array of dimension 1; x has shape (2,).",
            (np.ones(2), np.ones(2)),
            axis=1,
        ),
        rejected(ArgumentError, "concat: the sequence is empty; give at least one tensor or array.", ()),
        rejected(OperandError, "concat: wants a sequence of tensors or arrays, not float.", 1.0),
    ],
)
def concat(arrays: Sequence[Array], /, axis: int | None = 0) -> Array:
    """Return the arrays joined along an axis that they have; None flattens them first.

    Example:
        >>> nt.concat([np.array([1.0, 2.0]), np.array([3.0])])
        array([1., 2., 3.])
    """
    if axis is not None:
        first = np.shape(arrays[0])
        if not first:
            raise ShapeError("concat: arrays[0] has no axes; use stack to join numbers.")
        place = axis_of("concat", axis, first)
        others = first[:place] + first[place + 1 :]
        for i, x in enumerate(arrays):
            shape = np.shape(x)
            if len(shape) != len(first) or shape[:place] + shape[place + 1 :] != others:
                raise ShapeError(
                    f"concat: arrays[{i}] has shape {shape} and arrays[0] has shape {first}; all axes but {axis} must "
                    "have the same length."
                )
    return np.concatenate(arrays, axis=axis)


def _stack_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    axis = params["axis"]
    return stack(_all_batched(operands, batched), axis=axis + 1 if axis >= 0 else axis)


@linear(
    transposes={"arrays": lambda g, index, axis: g[along(axis % len(g.shape), index)]},
    back=lambda argument, shape, axis: Back.SHARED if shape else Back.OWN,  # NumPy makes numbers of elements.
    jointly=True,
    is_variadic=True,
    structure=Structure.MOVES,
    native_half=True,
    batch=_stack_batch,
    cost=lambda out, *shapes, axis: 0,
    numpy=np.stack,
    samples=lambda: [
        sample((values(2, 3), values(2, 3, seed=1))),
        sample((values(2, 3), values(2, 3, seed=1)), axis=1),
        sample((values(2, 3), values(2, 3, seed=1), values(2, 3, seed=2)), axis=-1),
        sample((values(), values(seed=1))),
        sample((values(3),)),
        sample((values(0), values(0)), axis=1),
        sample((values(2, 1), values(2, 1, seed=1)), axis=-3),
        sample((values(2, 2, 2), values(2, 2, 2, seed=1)), axis=2),
        rejected(
            ShapeError,
            "stack: arrays[1] has shape (3,) and arrays[0] has shape (2,); all must have the same shape.",
            (np.ones(2), np.ones(3)),
        ),
        rejected(
            AxisError,
            "stack: axis 2 is out of bounds for array of dimension 2; x has shape (2,).",
            (np.ones(2), np.ones(2)),
            axis=2,
        ),
    ],
)
def stack(arrays: Sequence[Array], /, axis: int = 0) -> Array:
    """Return arrays of one shape joined along a new axis.

    Example:
        >>> nt.stack([np.array([1.0, 2.0]), np.array([3.0, 4.0])], axis=1)
        array([[1., 3.],
               [2., 4.]])
    """
    first = np.shape(arrays[0])
    for i, x in enumerate(arrays):
        if np.shape(x) != first:
            raise ShapeError(
                f"stack: arrays[{i}] has shape {np.shape(x)} and arrays[0] has shape {first}; all must have the same "
                "shape."
            )
    return np.stack(arrays, axis=axis_of("stack", axis, first, len(first) + 1))


def _sequence(name: str, arrays: Any) -> list[Any]:
    """Return a sequence of arrays as a list; raise as the ops do if it is none."""
    if not hasattr(arrays, "__iter__") or (hasattr(arrays, "shape") and not arrays.shape):
        raise OperandError(f"{name}: wants a sequence of tensors or arrays, not {type(arrays).__name__}.")
    found = list(arrays)
    if not found:
        raise ArgumentError(f"{name}: the sequence is empty; give at least one tensor or array.")
    return with_common_dtype(name, *found)


def with_common_dtype(name: str, *operands: Any) -> list[Any]:
    """Return operands that will be joined; the dtype of those without axes, which does not count, is that of all."""
    found = without_lists(*operands)
    dtype = promote(found)
    return found if dtype is None else [x if shape_of(x) else _in_dtype(name, x, dtype) for x in found]


def _in_dtype(name: str, x: Any, dtype: Dtype) -> Any:
    if not isinstance(x, Value):
        return np.asarray(x, dtype) if is_float(dtype) else as_integers(name, x, dtype)
    return x if x.dtype == dtype else cast(x, dtype)


@composed(
    numpy=np.vstack,
    also=("row_stack",),
    samples=lambda: [
        sample((values(3), values(3, seed=1))),
        sample((values(2, 3), values(3, seed=1))),
        sample((values(2, 3), values(1, 3, seed=1))),
        sample((values(), values(seed=1))),
        sample((values(3),)),
        sample((values(0, 2), values(2, seed=1))),
        sample((values(2, 3, 2), values(1, 3, 2, seed=1))),
        sample((values(1), values(1, seed=1), values(seed=2))),
        rejected(ArgumentError, "vstack: the sequence is empty; give at least one tensor or array.", ()),
    ],
)
def vstack(arrays: Sequence[Array]) -> Array:
    """Return the arrays joined along axis 0; vectors count as rows.

    Example:
        >>> nt.vstack([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
        array([[1., 2.],
               [3., 4.]])
    """
    return concat([atleast_2d(x) for x in _sequence("vstack", arrays)], axis=0)


@composed(
    numpy=np.hstack,
    samples=lambda: [
        sample((values(3), values(2, seed=1))),
        sample((values(2, 3), values(2, 1, seed=1))),
        sample((values(), values(seed=1))),
        sample((values(3),)),
        sample((values(), values(2, seed=1))),
        sample((values(2, 0), values(2, 2, seed=1))),
        sample((values(2, 3, 2), values(2, 1, 2, seed=1))),
        sample((values(0), values(0))),
        rejected(ArgumentError, "hstack: the sequence is empty; give at least one tensor or array.", ()),
    ],
)
def hstack(arrays: Sequence[Array]) -> Array:
    """Return the arrays joined along axis 1; vectors are joined end to end.

    Example:
        >>> nt.hstack([np.array([1.0, 2.0]), np.array([3.0])])
        array([1., 2., 3.])
    """
    parts = [atleast_1d(x) for x in _sequence("hstack", arrays)]
    return concat(parts, axis=0 if len(parts[0].shape) == 1 else 1)


@composed(
    numpy=np.dstack,
    samples=lambda: [
        sample((values(3), values(3, seed=1))),
        sample((values(2, 3), values(2, 3, seed=1))),
        sample((values(2, 3), values(2, 3, 2, seed=1))),
        sample((values(), values(seed=1))),
        sample((values(3),)),
        sample((values(0), values(0))),
        sample((values(2, 1, 1), values(2, 1, 3, seed=1))),
        sample((values(1), values(1, 1, seed=1))),
        rejected(ArgumentError, "dstack: the sequence is empty; give at least one tensor or array.", ()),
    ],
)
def dstack(arrays: Sequence[Array]) -> Array:
    """Return the arrays joined along axis 2; vectors count as rows of a matrix.

    Example:
        >>> nt.dstack([np.array([1.0, 2.0]), np.array([3.0, 4.0])]).shape
        (1, 2, 2)
    """
    parts = [atleast_2d(x) for x in _sequence("dstack", arrays)]
    return concat([unsqueeze(x, 2) if len(x.shape) == 2 else x for x in parts], axis=2)


@composed(
    numpy=np.column_stack,
    samples=lambda: [
        sample((values(3), values(3, seed=1))),
        sample((values(2, 3), values(2, seed=1))),
        sample((values(2, 3), values(2, 1, seed=1))),
        sample((values(2), values(2, 2, seed=1), values(2, seed=2))),
        sample((values(3),)),
        sample((values(1), values(1, seed=1))),
        sample((values(0), values(0))),
        sample((values(2, 0), values(2, seed=1))),
        rejected(ArgumentError, "column_stack: the sequence is empty; give at least one tensor or array.", ()),
    ],
)
def column_stack(arrays: Sequence[Array]) -> Array:
    """Return vectors as the columns of a matrix; matrices are joined along axis 1.

    Example:
        >>> nt.column_stack([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
        array([[1., 3.],
               [2., 4.]])
    """
    parts = [
        reshape(x, -1 if math.prod(shape_of(x)) else 0, 1) if len(shape_of(x)) < 2 else x
        for x in _sequence("column_stack", arrays)
    ]
    return concat(parts, axis=1)
