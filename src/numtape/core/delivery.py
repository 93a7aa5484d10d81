"""From cotangents to gradients: what hooks make of them, memory of their own, and ``.grad``."""

import sys
from typing import Any

import numpy as np

from .._typing import NDArray
from ..dtypes import HALF_DTYPES, float32
from ..errors import GradientError
from ..kernels.silence import silent
from .recompute import check_reads
from .record import Notes, Record
from .value import Lifted, Value, extras_of, wrap
from .write import mark_written

_getrefcount = sys.getrefcount
_ndarray = np.ndarray


def _count_passed() -> int:
    value = object()
    return _count_given(value)


def _count_given(value: Any) -> int:
    return _getrefcount(value)


# What getrefcount says of an object that nobody else holds is measured, as in `reverse.py`: until Python 3.13 every
# variable and argument counts, 3.14 lets arguments borrow the reference of the variable that is passed.
#: If its giver's variable, or nothing but our argument, holds it. A giver that goes on to use its variable must not
#: rely on this count: where arguments borrow, it is the same for every depth of calls.
_EXCLUSIVE = _count_passed()
#: The same if nothing but our argument can hold it, since the giver has no variable.
PASSED_ON = _count_given(object())


def noted(record: Record, g: Any, delivers: bool) -> Any:
    """Do what the notes of a record want done with its cotangent, and return what goes on."""
    notes = record.notes
    assert notes is not None
    check_reads(record)
    g = hooked_by(notes, g)
    value = notes.retained() if delivers and notes.retained is not None else None
    if value is not None:
        # The sweep goes on with g, so its memory must not become the gradient's: a view is always copied.
        deliver(value, g if isinstance(g, Value) else _read_only(g))
    return g


def hooked_by(notes: Notes, g: Any) -> Any:
    """Return a cotangent as the hooks of a record's tensor leave it."""
    return g if notes.hooks is None else hooked(*notes.hooks, g)


def hooked(hooks: dict[int, Any], cls: type[Value], g: Any) -> Any:
    """Return a cotangent as hooks leave it. Batches, which whole Jacobians are made of, pass by."""
    if isinstance(g, Lifted):
        return g
    is_recorded = isinstance(g, Value)
    for hook in list(hooks.values()):
        given = g if isinstance(g, Value) else wrap(cls, _read_only(g))
        result = hook(given)
        if result is None:
            continue
        if not isinstance(result, Value) or result.shape != given.shape or result.dtype != given.dtype:
            shown = f"{type(result).__name__} of shape {np.shape(result)}"
            raise GradientError(
                f"register_hook: {getattr(hook, '__name__', 'a hook')} returned {shown} for a gradient of shape "
                f"{given.shape} and dtype {given.dtype}; a hook returns None or a tensor like the gradient."
            )
        g = result if is_recorded else result.array
    return g


def _read_only(g: Any) -> Any:
    """Return a view that cannot be written: other tensors may have the same memory for their gradient."""
    view = np.asarray(g).view()
    view.setflags(write=False)
    return view


def deliver(value: Value, cotangent: Any, is_unscaled: bool = False) -> None:
    """Add a cotangent to a tensor's ``.grad``: untracked, contiguous, with memory of its own.

    What was unscaled stays float32 for a half tensor: the half type may not hold what scaling has saved.
    """
    extras = extras_of(value)
    if isinstance(cotangent, Value):
        cotangent = cotangent.array
    is_wide = is_unscaled and value.dtype in HALF_DTYPES
    if extras.grad is None:
        extras.grad = wrap(value.plain, own_array(cotangent, cotangent if is_wide else value))
    else:
        total = extras.grad.array
        # A gradient that was widened, because a half would not hold it, stays so.
        is_kept = total.dtype == value.dtype or (value.dtype in HALF_DTYPES and total.dtype == float32)
        widens = is_wide and total.dtype != float32
        if total.flags.writeable and is_kept and not widens:
            with silent():  # As the sweep that it ends.
                np.add(total, cotangent, out=total, casting="same_kind")
            mark_written(extras.grad, None)
        else:
            like = cotangent if widens else extras.grad if is_kept else value
            with silent():
                extras.grad = wrap(value.plain, own_array(total + cotangent, like))


def own_array(array: Any, like: Any, most: int = _EXCLUSIVE) -> NDArray:
    """Return `array` in the dtype of `like`, as memory that nobody else holds; copied only if need be.

    A caller that passes ``found.pop(link)`` on, and has no variable of its own, says so by `PASSED_ON`.
    """
    if (
        type(array) is _ndarray
        and array.dtype == like.dtype
        and array.base is None
        and array.flags.carray  # Contiguous and writable.
        and _getrefcount(array) <= most
    ):
        return array
    if array.dtype == like.dtype:
        return np.array(array, order="C")
    with silent():  # As the sweep that it ends: beyond the range of halves is infinity.
        return np.array(array, dtype=like.dtype, order="C")
