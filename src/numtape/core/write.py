"""In-place writes: they are records, and they bump a version that all views of a buffer share.

Invariants:
- A buffer that was never written and never viewed has no version: plain code pays nothing.
- A record's value is valid while its stamp equals its buffer's count; each recorded write makes a new record for the
  tensor it went through, with a new stamp, and so leaves every older name of the buffer behind.
- A leaf or untracked tensor has no history to contradict: using it after a write takes the new contents, and the
  record that reads it remembers the count in its notes.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import LeafWriteError, OverwrittenError
from .record import Record, call_site, describe_site
from .value import LEAF, Value, Version

if TYPE_CHECKING:
    from .op import Op


def version_of(value: Value) -> Version:
    """Return the version of a value's buffer, made on first need and then shared with the node that computed it."""
    if value.version is None:
        value.version = (Version(), 0)
        if type(value.node) is Record:
            value.node.version = value.version
    return value.version[0]


def link_version(base: Value, view: Value) -> None:
    """Let a result that is a view of `base` share its version. A result with memory of its own is left alone."""
    owner = view.array.base
    if owner is None or owner is not base.array and owner is not base.array.base:
        return
    stamp = base.version
    if stamp is None:
        stamp = base.version = (Version(), 0)
        if type(base.node) is Record:
            base.node.version = stamp
    elif stamp[0].count != stamp[1]:
        stamp = (stamp[0], stamp[0].count)
    view.version = stamp
    if type(view.node) is Record:
        view.node.version = stamp


def read_stamp(op: "Op", value: Value) -> int:
    """Return the write count at which a recorded op reads a value; raise if the value was overwritten."""
    assert value.version is not None
    version, stamp = value.version
    if version.count != stamp:
        if type(value.node) is Record:
            raise OverwrittenError(
                f"{op.name}: this tensor was computed at {value.node.site} and its memory was overwritten through "
                f"another view at {describe_site(version.code, version.lasti)}; its history no longer tells its "
                "contents. Use clone() before the write, or the tensor that was written."
            )
        value.version = (version, version.count)
    return version.count


def raise_overwritten(reader: Record, name: str, version: Version) -> NoReturn:
    """Raise for a rule that would read a value after it was overwritten."""
    raise OverwrittenError(
        f"{reader.op.name}: the derivative needs {name}, saved at {reader.site}, but it was overwritten in place at "
        f"{describe_site(version.code, version.lasti)}. Write the result to a new tensor (y = y + 1 instead of "
        "y += 1), or clone() before the write."
    )


def check_writable(name: str, target: Value, is_recording: bool) -> None:
    """Raise if `target` must not be written now."""
    if target.node is LEAF and is_recording:
        raise LeafWriteError(
            f"{name}: a leaf that requires a gradient or is watched cannot be written in place while gradients are "
            "recorded; use `with nt.no_grad():` for an update, or compute a new tensor."
        )
    if not target.array.flags.writeable:
        raise OverwrittenError(f"{name}: the tensor's memory is read-only; use clone() to get memory of its own.")


def mark_written(target: Value, node: Any) -> None:
    """Note that the contents of `target` changed and make `node` its history; older names of the buffer are stale.

    `node` is the record of the write, None if the new contents depend on nothing tracked, or the target's own node
    if the write is not recorded.
    """
    version = version_of(target)
    version.count += 1
    version.code, version.lasti = call_site()
    if node is target.node and type(node) is Record:
        return  # Written behind the tape's back: the target is stale like every other name.
    target.node = node
    target.version = (version, version.count)
    if type(node) is Record:
        node.version = target.version
