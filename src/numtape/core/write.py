"""In-place writes: they are records, and they bump a version that all views of a buffer share.

Invariants:
- A buffer that was never written and never viewed has no version: plain code pays nothing.
- A record's value is valid while its stamp equals its buffer's count; each recorded write makes a new record for the
  tensor it went through, with a new stamp, and so leaves every older name of the buffer behind.
- A name without history may be used after writes that were not recorded: it takes the new contents, and the record
  that reads it remembers the count in its notes. After a recorded write through another name it has lost history: it
  counts as tracked, and no write that is not recorded gives it a history back.
"""

import sys
import weakref
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .._typing import NDArray
from ..errors import LeafWriteError, OverwrittenError
from .context import current, settle
from .record import Record, call_site, describe_site, note
from .value import LEAF, Stamp, Value, Version, has_lost_history, is_element

if TYPE_CHECKING:
    from .op import Op


def version_of(value: Value) -> Version:
    """Return the version of a value's buffer, made on first need and shared with the node that computed it."""
    if value.version is None:
        node = value.node
        if type(node) is Record and node.version is not None:
            value.version = node.version
        else:
            value.version = (Version(), 0)
            if type(node) is Record:
                node.version = value.version
    return value.version[0]


def link_version(base: Value, view: Value, is_view: bool = False) -> None:
    """Let a result that is a view of `base` share its version. A result with memory of its own is left alone.

    `is_view` says that memory is known to be shared, where the arrays themselves may not tell.
    """
    array = base.array
    owner = view.array.base
    if owner is not array and (owner is None or owner is not array.base) and view.array is not array and not is_view:
        return
    stamp = base.version
    if stamp is None:
        version_of(base)
        stamp = base.version
        assert stamp is not None
    version, count = stamp
    if base.node is LEAF and not (version.leaves and version.leaves[-1]() is base):
        others = [leaf for leaf in version.leaves if leaf() is not None and leaf() is not base]
        version.leaves = (*others, weakref.ref(base))
    if count != version.count:
        stamp = (version, version.count)
    view.version = stamp
    node = view.node
    if type(node) is Record:
        node.version = stamp


def read_stamp(op: "Op", value: Value) -> int:
    """Return the write count at which an op reads a value; raise if the value lost history by a write elsewhere."""
    assert value.version is not None
    version, stamp = value.version
    if version.count != stamp:
        check_history(op.name, value)
        value.version = (version, version.count)
    return version.count


def check_history(name: str, value: Value) -> None:
    """Raise if the history of a value, which somebody wants to differentiate, no longer tells its contents."""
    if value.version is None or value.version[0].count == value.version[1]:
        return
    version, node = value.version[0], value.node
    if type(node) is not Record and not has_lost_history(value):
        return
    made = f"computed at {node.site}" if type(node) is Record else "made without history"
    how, repair = "through another view", "through the tensor itself (x[0, 1] = v instead of x[0][1] = v)"
    if version.writer() is value:
        if type(node) is Record:
            how, repair = "without being recorded", "outside of no_grad"
        else:
            how = "through another view, before it was written itself"
    raise OverwrittenError(
        f"{name}: this tensor was {made} and its memory was overwritten {how} at "
        f"{describe_site(version.code, version.lasti)}; its history no longer tells its contents. Write "
        f"{repair}, or clone() before the write."
    )


def raise_overwritten(reader: Record, name: str, version: Version) -> NoReturn:
    """Raise for a rule that would read a value after it was overwritten."""
    raise OverwrittenError(
        f"{reader.op.name}: the derivative needs {name}, saved at {reader.site}, but it was overwritten in place at "
        f"{describe_site(version.code, version.lasti)}. Write the result to a new tensor (y = y + 1 instead of "
        "y += 1), or clone() before the write."
    )


def stamp_at(record: Record, position: int) -> int:
    """Return the write count at which a record read a leaf or an untracked operand."""
    notes = record.notes
    stamps = notes.stamps if notes is not None else None
    return (stamps[position] or 0) if stamps is not None else 0


def check_stamp(record: Record, position: int, version: Stamp, stamp: int) -> None:
    """Raise if what a record read at a write count was overwritten since."""
    if version[0].count != stamp:
        name = record.op.argument(position)
        raise_overwritten(record, f"the value of {name!r}", version[0])


def check_writable(name: str, target: Value, is_recording: bool) -> None:
    """Raise if `target` must not be written now."""
    settle(current())
    leaf = _leaf_of(target)
    if _is_argument(target, leaf, is_recording):
        what = "an argument" if leaf is target or type(target.node) is Record else "a view of an argument"
        raise LeafWriteError(
            f"{name}: {what} of a function that is being differentiated cannot be written in place, since that would "
            "change what the caller holds; clone() it first."
        )
    if is_recording and leaf is not None:
        what = "a leaf" if leaf is target else "a view of a leaf"
        raise LeafWriteError(
            f"{name}: {what} that requires a gradient or is watched cannot be written in place while gradients are "
            "recorded; use `with nt.no_grad():` for an update, or compute a new tensor."
        )
    if is_element(target):
        raise OverwrittenError(
            f"{name}: an element that was taken out of a tensor is a copy, as in NumPy, and cannot be written; "
            "write x[i] = v, or x[i] += v, or clone() it first."
        )
    if not target.array.flags.writeable:
        raise OverwrittenError(f"{name}: the tensor's memory is read-only; use clone() to get memory of its own.")


def _is_argument(target: Value, leaf: Value | None, is_recording: bool) -> bool:
    """Say whether a write to `target` would change what a transform that is running differentiates by.

    What is tracked outside of the transform may be written where that is recorded. A buffer of the caller's, of which
    the argument is a part, is the caller's to write.
    """
    node = target.node
    if type(node) is Record and node.notes is not None and node.notes.is_argument:
        return not is_recording
    if leaf is None or leaf.extras is None:
        return False
    return leaf.extras.is_argument and target.array.size <= leaf.array.size


def _leaf_of(target: Value) -> Value | None:
    """Return the leaf that a write to `target` changes, if there is one."""
    if target.node is LEAF or target.version is None:
        return target if target.node is LEAF else None
    for alive in target.version[0].leaves:
        leaf = alive()
        # A part of the buffer that is none of the leaf's has the same version.
        if leaf is not None and leaf.node is LEAF and np.may_share_memory(leaf.array, target.array):
            return leaf
    return None


def mark_written(target: Value, node: Record | None) -> None:
    """Note that the contents of `target` changed and make `node` its history; older names of the buffer are stale.

    `node` is the record of the write, or None if the new contents depend on nothing tracked.
    """
    version = _count_write(target)
    before = target.node
    target.node = node
    target.version = (version, version.count)
    if node is not None:
        node.version = target.version
        version.recorded = version.count
        if type(before) is Record and before.notes is not None and before.notes.retained is not None:
            note(node).retained, before.notes.retained = before.notes.retained, None


def mark_unrecorded(target: Value) -> None:
    """Note that the contents of `target` changed behind the tape's back: one without history takes the new ones.

    Any other is stale from now on, like every other name of the buffer.
    """
    is_stale = type(target.node) is Record or has_lost_history(target)
    version = _count_write(target)
    if not is_stale:
        target.version = (version, version.count)


def replace_memory(target: Value, array: NDArray) -> None:
    """Give `target` other memory with other contents; views and records of what it had keep that."""
    version_of(target)
    assert target.version is not None
    version, stamp = target.version
    target.array, target.version = array, (version.parted(), stamp)
    mark_unrecorded(target)


def forget_history(target: Value) -> None:
    """Make `target` a constant of the same memory; records that read it go on to notice writes to that."""
    version = version_of(target)
    target.node, target.version = None, (version, version.count)


def _count_write(target: Value) -> Version:
    version = version_of(target)
    version.count += 1
    version.code, version.lasti = call_site(sys._getframe())
    version.writer = weakref.ref(target)
    return version
