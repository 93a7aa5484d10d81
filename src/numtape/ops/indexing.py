"""Read and write parts of a tensor: basic, integer-array and boolean indexing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core.declare import face_of, linear
from ..core.inplace import is_own_write, write_part
from ..core.op import Op, Structure
from ..core.value import Value
from ..errors import IndexingError, OperandError, ShapeError
from .samples import rejected, sample, values

Key = tuple[Any, ...]


def as_key(key: Any) -> Key:
    """Return an index as a tuple without tensors; lists become arrays."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(_as_part(part) for part in parts)


def _as_part(part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, int | np.integer | np.bool_):
        return part
    if isinstance(part, slice):
        return slice(*(None if bound is None else _as_bound(bound) for bound in (part.start, part.stop, part.step)))
    if isinstance(part, Value):
        part = part.array
    array = np.asarray(part)
    if array.size == 0 and not isinstance(part, np.ndarray):
        array = array.astype(np.intp)
    if array.dtype.kind not in "biu":
        raise IndexingError(
            f"getitem: an index has dtype {array.dtype}; indices are integers, bools, slices, None and `...`."
        )
    return array


def _as_bound(bound: Any) -> int:
    try:
        return int(bound.__index__())
    except (AttributeError, TypeError) as error:
        raise IndexingError(f"getitem: a slice bound is {bound!r}; bounds are integers.") from error


def is_basic(key: Key) -> bool:
    """Say whether an index takes a view."""
    return not any(isinstance(part, np.ndarray | np.bool_ | bool) for part in key)


def _indexing_error(x: Any, key: Key, error: Exception) -> IndexingError:
    return IndexingError(f"getitem: x has shape {np.shape(x)}; {error}.")


def _getitem_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    from ..core.batching import loop

    if not is_basic(params["key"]):
        return loop(op, operands, batched, params)
    return _getitem(operands[0], (slice(None), *params["key"]))


@linear(
    transposes=dict(x=lambda g, x_shape, key: _put(g, key, x_shape)),
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_getitem_batch,
    cost=lambda out, x, key: 0,
    samples=lambda: [
        sample(values(5), key=(slice(1, 4),)),
        sample(values(5), key=(2,)),
        sample(values(4, 5), key=(slice(None, None, -1), slice(0, 5, 2))),
        sample(values(4, 5), key=(Ellipsis, None, 1)),
        sample(values(4, 5), key=(np.array([0, 2, 2]),)),
        sample(values(4, 5), key=(np.array([[0], [3]]), np.array([1, 1]))),
        sample(values(4, 5), key=(values(4, 5) > 0,)),
        sample(values(4, 5), key=(slice(1, 3), np.array([-1, 0]))),
        sample(values(4, 5), key=()),
        sample(values(), key=(None,)),
        sample(values(3), key=(np.array([], np.intp),)),
        rejected(
            IndexingError,
            "getitem: x has shape (3,); index 5 is out of bounds for axis 0 with size 3.",
            np.ones(3),
            key=(5,),
        ),
    ],
)
def _getitem(x: Array, /, *, key: Key) -> Array:
    """Return the elements that `key` selects."""
    try:
        return x[key]
    except IndexError as error:
        raise _indexing_error(x, key, error) from error


@face_of(_getitem)
def getitem(x: Array, key: Any) -> Array:
    """Return ``x[key]``: a view for slices and integers, a copy for index arrays and masks.

    Example:
        >>> nt.getitem(np.arange(5.0), slice(1, 3))
        array([1., 2.])
    """
    return _getitem(x, as_key(key))


@linear(
    transposes=dict(x=lambda g, key: _getitem(g, key)),
    structure=Structure.SCATTERS,
    cost=lambda out, x, key, shape: math.prod(x),
    samples=lambda: [
        sample(values(3), key=(slice(1, 4),), shape=(5,)),
        sample(values(), key=(2,), shape=(5,)),
        sample(values(4, 3), key=(slice(None, None, -1), slice(0, 5, 2)), shape=(4, 5)),
        sample(values(4, 1), key=(Ellipsis, None, 1), shape=(4, 5)),
        sample(values(3, 5), key=(np.array([0, 2, 2]),), shape=(4, 5)),
        sample(values(2, 2), key=(np.array([[0], [3]]), np.array([1, 1])), shape=(4, 5)),
        sample(values(2, 2), key=(slice(1, 3), np.array([-1, 0])), shape=(4, 5)),
        sample(values(0), key=(np.array([], np.intp),), shape=(3,)),
    ],
)
def _put(x: Array, /, *, key: Key, shape: Shape) -> Array:
    """Return zeros of `shape` with `x` added where `key` points, the transpose of getitem."""
    out = np.zeros(shape, x.dtype)
    if is_basic(key):
        out[key] = x
    else:
        np.add.at(out, key, x)
    return out


def _last_writes(shape: Shape, key: Key, written: Shape) -> Any:
    """Return 1 for each written element that was not overwritten by a later one of the same write."""
    if not any(isinstance(part, np.ndarray) and part.dtype.kind != "b" for part in key):
        return 1.0
    order = np.arange(math.prod(written)).reshape(written)
    board = np.full(shape, -1)
    board[key] = order
    return (board[key] == order) * 1.0


def _setitem_part(g: Array, x_shape: Shape, key: Key) -> Array:
    part = _getitem(g, key)
    mask = _last_writes(x_shape, key, part.shape)
    return part if isinstance(mask, float) else part * mask.astype(part.dtype)


@linear(
    transposes=dict(x=lambda g, key: _setitem(g, 0.0, key), part=_setitem_part),
    jointly=True,
    structure=Structure.MOVES,
    cost=lambda out, x, part, key: 0,
    samples=lambda: [
        sample(values(5), values(3, seed=1), key=(slice(1, 4),)),
        sample(values(5), values(seed=1), key=(2,)),
        sample(values(4, 5), values(3, seed=1), key=(slice(None), slice(0, 5, 2))),
        sample(values(4, 5), values(4, 1, seed=1), key=(Ellipsis, None, 1)),
        sample(values(4, 5), values(3, 5, seed=1), key=(np.array([0, 2, 2]),)),
        sample(values(4, 5), values(seed=1), key=(values(4, 5) > 0,)),
        sample(values(4, 5), values(2, 2, seed=1), key=(slice(1, 3), np.array([-1, 0]))),
        sample(values(3), values(3, seed=1), key=()),
        rejected(
            ShapeError,
            "setitem: x[key] has shape (2,) and the value to store has shape (3,), which does not broadcast to it.",
            np.ones(4),
            np.ones(3),
            key=(slice(0, 2),),
        ),
    ],
)
def _setitem(x: Array, part: Array, /, *, key: Key) -> Array:
    """Return `x` with `part` where `key` points: what ``x[key] = part`` leaves in x."""
    out = x.copy()
    _store(out, key, part)
    return out


def _store(x: Any, key: Key, part: Any) -> None:
    try:
        x[key] = part
    except IndexError as error:
        raise _indexing_error(x, key, error) from error
    except ValueError as error:
        raise ShapeError(
            f"setitem: x[key] has shape {np.shape(x[key])} and the value to store has shape {np.shape(part)}, which "
            "does not broadcast to it."
        ) from error


def setitem(x: Value, key: Any, part: Array) -> None:
    """Write ``x[key] = part`` in place, recorded."""
    key = as_key(key)
    array = x.array
    value = part.array if isinstance(part, Value) else part
    if not isinstance(value, np.ndarray | np.generic | float | int | bool):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and not np.can_cast(value.dtype, array.dtype, "same_kind"):
        raise OperandError(f"setitem: a value of {value.dtype} cannot be stored in a tensor of {array.dtype}.")
    if is_basic(key) and is_own_write(x, part, array[key]):
        # The last step of x[key] += v: the memory holds the result, and x is as it was but for this part.
        assert x.version is not None
        x.version = (x.version[0], x.version[0].count)
        write_part(x, _setitem.op, (x, part), {"key": key}, lambda: None)  # type: ignore[attr-defined]
        return
    # A value that overlaps the target would change under the write.
    if isinstance(value, np.ndarray) and np.may_share_memory(value, array):
        value = value.copy()
    write_part(x, _setitem.op, (x, part), {"key": key}, lambda: _store(array, key, value))  # type: ignore[attr-defined]
