"""Read and write parts of a tensor: basic, integer-array and boolean indexing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import face_of, linear, runner
from ..core.faces import on_arrays
from ..core.facts import Back, Structure
from ..core.inplace import is_own_write, write_part
from ..core.op import Op
from ..core.value import Value, single_array
from ..dtypes import can_store, plain_array
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from .samples import rejected, sample, values
from .selection import where
from .shapes import broadcast_to

Key = tuple[Any, ...]
_BOUNDS = frozenset({int, type(None)})
# As tuples: a union would be made anew for each question.
_INTEGERS = (int, np.integer, np.bool_)
_MASKS_AND_ARRAYS = (np.ndarray, np.bool_, bool)


def as_key(key: Any, name: str = "getitem") -> Key:
    """Return an index as a tuple without tensors; lists become arrays."""
    if type(key) is int:
        return (key,)
    if (
        type(key) is slice
        and type(key.start) in _BOUNDS
        and type(key.stop) in _BOUNDS
        and (key.step is None or type(key.step) is int)
    ):
        return (key,)
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(_as_part(part, name) for part in parts)


def _as_part(part: Any, name: str) -> Any:
    if part is None or part is Ellipsis or isinstance(part, _INTEGERS):
        return part
    if isinstance(part, slice):
        return slice(
            *(None if bound is None else _as_bound(bound, name) for bound in (part.start, part.stop, part.step))
        )
    if isinstance(part, Value):
        part = part.array
    try:
        # A copy: the derivative reads the index later, and it may be written until then.
        array = np.array(part)
    except (ValueError, TypeError) as error:
        raise IndexingError(
            f"{name}: an index is {part!r}, which makes no array; indices are integers, bools, slices, None and `...`."
        ) from error
    if array.size == 0 and not isinstance(part, np.ndarray):
        array = array.astype(np.intp)
    if array.dtype.kind not in "biu":
        raise IndexingError(
            f"{name}: an index has dtype {array.dtype}; indices are integers, bools, slices, None and `...`."
        )
    return array


def _as_bound(bound: Any, name: str) -> int:
    try:
        return int(bound.__index__())
    except (AttributeError, TypeError) as error:
        raise IndexingError(f"{name}: a slice bound is {bound!r}; bounds are integers.") from error


def is_basic(key: Key) -> bool:
    """Say whether an index takes a view."""
    if len(key) == 1:
        kind = type(key[0])
        if kind is slice or kind is int:
            return True
    return not any(isinstance(part, _MASKS_AND_ARRAYS) for part in key)


def is_simple(key: Key) -> bool:
    """Say whether a slice put in front of a key leaves the axes that the key gives in their order.

    So it is unless index arrays (integers beside them count) are separated by slices: then NumPy moves their axes to
    the front. A single bool has an axis of its own and is left out as well.
    """
    if is_basic(key):
        return True
    places = [i for i, part in enumerate(key) if isinstance(part, (np.ndarray, *_INTEGERS))]
    has_single_bool = any(isinstance(part, bool | np.bool_) or np.shape(part) == () for part in _arrays(key))
    return not has_single_bool and places[-1] - places[0] == len(places) - 1


def _arrays(key: Key) -> list[Any]:
    return [part for part in key if isinstance(part, _MASKS_AND_ARRAYS)]


def _getitem_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    if not is_simple(params["key"]):
        return batching.loop(op, operands, batched, params)
    return on_arrays(op, tuple(operands), {"key": (slice(None), *params["key"])})


def _put_back(g: Array, x_shape: Shape, key: Key) -> Array:
    if type(g) is np.ndarray and is_basic(key):
        # The op without the ceremony: small slices are everywhere.
        out = np.zeros(x_shape, g.dtype)
        out[key] = g
        return out
    return _run_put(g, {"key": key, "shape": x_shape})


def _add_back(total: NDArray, g: Any, key: Key) -> None:
    if is_basic(key) and type(part := total[key]) is np.ndarray:
        np.add(part, g, part)  # Into the view; ``total[key] += g`` would also store it once more.
    elif _names_each_once(key):
        total[key] += g
    elif total.flags.c_contiguous:
        _add_at_arrays(total, key, g)
    else:
        np.add.at(total, key, g)


@linear(
    transposes={"x": _put_back},
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    add_back=_add_back,
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
        sample(values(4, 5), key=(slice(3, 0, -2), None, slice(None, None, -3))),
        sample(values(2, 3, 4), key=(np.array([1, 0, 1]), slice(None), np.array([3, 3, 0]))),
        sample(values(2, 3, 4), key=(1, slice(None), np.array([3, 3]))),
        sample(values(2, 3, 4), key=(Ellipsis, np.array([[0, -1], [2, 0]]))),
        sample(values(2, 3, 4), key=(slice(None), np.array([0, 2]), np.array([[1], [1]]))),
        sample(values(2, 3, 4), key=(slice(None), np.array([True, False, True]))),
        sample(values(2, 3, 4), key=(np.array([True, False]), None, 2)),
        sample(values(2, 3), key=(np.array([True, True]), np.array([0, 0]))),
        sample(values(2, 3), key=(True,)),
        sample(values(3), key=(np.array(1),)),
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
        raise IndexingError(f"getitem: x has shape {np.shape(x)}; {error}.") from error


_run_getitem = runner(_getitem)


@face_of(_getitem)
def getitem(x: Array, key: Any) -> Array:
    """Return ``x[key]``: a view for slices and integers, a copy for single elements, index arrays and masks.

    Example:
        >>> nt.getitem(np.arange(5.0), slice(1, 3))
        array([1., 2.])
    """
    found = _run_getitem(x, {"key": as_key(key)})
    if type(key) is not slice:  # Which gives no element, and is most common.
        array = getattr(found, "array", None)
        if array is not None and not array.ndim and array.base is None:
            array.setflags(write=False)  # A copy of one element. As NumPy's, it cannot be written.
    return found


def _put_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    if not is_simple(params["key"]):
        return batching.loop(op, operands, batched, params)
    return _put(x, key=(slice(None), *params["key"]), shape=(x.shape[0], *params["shape"]))


@linear(
    transposes={"x": lambda g, key: _getitem(g, key=key)},
    back=lambda argument, x_shape, key, shape: Back.SHARED if x_shape and is_basic(key) else Back.OWN,
    structure=Structure.SCATTERS,
    batch=_put_batch,
    size=lambda x, key, shape: math.prod(shape),
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
        sample(values(3), key=(np.array([True, False, True, True]),), shape=(4,)),
        sample(values(3, 3), key=(np.array([1, 0, 1]), slice(None), np.array([3, 3, 3])), shape=(2, 3, 4)),
        sample(values(2), key=(np.array([True, True]), np.array([0, 0])), shape=(2, 3)),
        sample(values(3), key=(np.array([0, 2, 2]), np.array([1, -1, 3])), shape=(3, 4)),
        sample(values(1, 2, 3), key=(True,), shape=(2, 3)),
        sample(values(), key=(np.array(1),), shape=(3,)),
    ],
)
def _put(x: Array, /, *, key: Key, shape: Shape) -> Array:
    """Return zeros of `shape` with `x` added where `key` points, the transpose of getitem."""
    out = np.zeros(shape, x.dtype)
    if _names_each_once(key):
        out[key] = x
    else:
        _add_at_arrays(out, key, x)
    return out


def _names_each_once(key: Key) -> bool:
    """Say whether an index has slices, integers and masks only, which name no element twice."""
    return is_basic(key) or all(np.asarray(part).dtype.kind == "b" for part in _arrays(key))


def _add_at_arrays(out: NDArray, key: Key, x: Any) -> None:
    """Add `x` to the elements of a contiguous array that an index with arrays names, several times if it does."""
    arrays = _arrays(key)
    if len(arrays) == len(key) == 1:
        add_at(out, arrays[0], x)
    elif out.size <= 4 * x.size + 65536:
        add_at(out.reshape(-1), np.arange(out.size).reshape(out.shape)[key], x)
    else:
        np.add.at(out, key, x)


_run_put = runner(_put)

#: A complex number is a pair of floats, so adding one adds two.
_PAIRS = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}


def add_at(out: NDArray, index: NDArray, rows: NDArray) -> None:
    """Add `rows` to the rows of a contiguous array that `index` names, several times if it does.

    NumPy adds fast at flat positions only: several times faster than row by row.
    """
    length = math.prod(out.shape[1:])
    index = np.asarray(index, np.intp).reshape(-1)
    target, added = out.reshape(-1), np.ascontiguousarray(rows).reshape(-1)
    if length > 1:
        if length % 2 == 0 and out.dtype in _PAIRS and added.dtype == out.dtype:
            length //= 2
            target, added = target.view(_PAIRS[out.dtype]), added.view(_PAIRS[out.dtype])
        index = (np.where(index < 0, index + out.shape[0], index)[:, None] * length + np.arange(length)).reshape(-1)
    if length:
        np.add.at(target, index, added)


def _last_writes(shape: Shape, key: Key, written: Shape) -> NDArray | None:
    """Say for each written element if no later one of the same write replaced it; None if none can."""
    if _names_each_once(key):
        return None
    order = np.arange(math.prod(written)).reshape(written)
    board = np.full(shape, -1)
    board[key] = order
    return np.asarray(board[key] == order)


def _setitem_x(g: Array, key: Key) -> Array:
    return _setitem(g, 0.0, key=key)


def _setitem_part(g: Array, x_shape: Shape, part_shape: Shape, key: Key) -> Array:
    part = _getitem(g, key=key)
    last = _last_writes(x_shape, key, part.shape)
    if last is not None:
        part = where(last, part, 0.0)
    # A value may have more axes than x[key], of length 1.
    extra = len(part_shape) - len(part.shape)
    return part.reshape((1,) * extra + part.shape) if extra > 0 else part


def _setitem_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, part = operands
    key = params["key"]
    if not is_simple(key):
        return batching.loop(op, operands, batched, params)
    size = x.shape[0] if batched[0] else part.shape[0]
    x = x if batched[0] else broadcast_to(x, (size, *x.shape))
    if batched[1]:
        # The members' axes line up at the end with those of x[key], behind the batch axis.
        ndim = np.broadcast_to(0, x.shape[1:])[key].ndim
        lengths = part.shape[1:][-ndim:] if ndim else ()
        part = part.reshape((size, *(1,) * (ndim - len(lengths)), *lengths))
    return _setitem(x, part, key=(slice(None), *key))


@linear(
    transposes={"x": _setitem_x, "part": _setitem_part},
    back=lambda argument, shape, key: Back.SHARED if argument == "part" and shape and is_basic(key) else Back.OWN,
    jointly=True,
    # A write never changes the dtype of what is written to.
    promoted=("x",),
    structure=Structure.MOVES,
    native_half=True,
    batch=_setitem_batch,
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
        sample(values(4, 5), values(5, seed=1), key=(slice(3, 0, -2), slice(None, None, -1))),
        sample(values(2, 3, 4), values(3, seed=1), key=(np.array([1, 0]), slice(None), np.array([3, 0]))),
        sample(values(2, 3, 4), values(2, 1, seed=1), key=(Ellipsis, np.array([[0, -1], [2, 0]]))),
        sample(values(4), values(3, seed=1), key=(np.array([True, False, True, True]),)),
        sample(values(2, 3), values(2, seed=1), key=(np.array([True, True]), np.array([0, 0]))),
        sample(values(3), values(seed=1), key=(np.array([1, 1]),)),
        sample(values(4, 5), values(1, 5, seed=1), key=(0,)),
        sample(values(), values(seed=1), key=()),
        sample(values(), values(seed=1), key=(Ellipsis,)),
        sample(values(), values(1, seed=1), key=(None,)),
        sample(values(), values(seed=1), key=(np.array(True),)),
        rejected(
            IndexingError,
            "setitem: x has shape (4,); index 5 is out of bounds for axis 0 with size 4.",
            np.ones(4),
            np.ones(()),
            key=(5,),
        ),
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
        raise IndexingError(f"setitem: x has shape {np.shape(x)}; {error}.") from error
    except ValueError as error:
        raise ShapeError(
            f"setitem: x[key] has shape {np.shape(x[key])} and the value to store has shape {np.shape(part)}, which "
            "does not broadcast to it."
        ) from error
    except OverflowError as error:
        raise ArgumentError(f"setitem: {error}; use a wider dtype, or a float one.") from error


def setitem(x: Value, key: Any, part: Array) -> None:
    """Write ``x[key] = part`` in place, recorded."""
    key = as_key(key, "setitem")
    array = single_array(x)
    value = single_array(part) if isinstance(part, Value) else part
    if isinstance(value, np.ndarray):
        value = plain_array("setitem: the value", value)
    elif not isinstance(value, np.generic | float | int | bool):
        value = np.asarray(value)
    kind = np.result_type(value) if isinstance(value, float) else getattr(value, "dtype", None)
    if kind is not None and not can_store(kind, array.dtype):
        raise DtypeError(f"setitem: a value of {kind} cannot be stored in a tensor of {array.dtype}.")
    try:
        is_last_step = is_basic(key) and is_own_write(x, part, array[key])
    except IndexError as error:
        raise IndexingError(f"setitem: x has shape {array.shape}; {error}.") from error
    op = _setitem.op  # type: ignore[attr-defined]
    is_alike = array.flags.c_contiguous
    if is_last_step:
        # The last step of x[key] += v: the memory holds the result, and x is as it was but for this part.
        assert x.version is not None
        x.version = (x.version[0], x.version[0].count)
        write_part(x, op, (x, part), {"key": key}, lambda: None, is_alike)
        return
    # A value that overlaps the target would change under the write.
    if isinstance(value, np.ndarray) and np.may_share_memory(value, array):
        value = value.copy()
    write_part(x, op, (x, part), {"key": key}, lambda: _store(array, key, value), is_alike)
