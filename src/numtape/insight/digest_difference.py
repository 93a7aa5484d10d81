"""Where two runs part: the first record in which their digests differ."""

import dataclasses
import os
from itertools import zip_longest
from typing import Any

from ..errors import OperandError
from .digest import Digest, Entry

#: What may differ in a record, in the order in which it is looked at, and what that means.
_MEANINGS = {
    "op": "another op ran",
    "shape": "the output has another shape",
    "dtype": "the output has another dtype",
    "params": "the op got other parameters; for random ops they hold the draw",
    "operands": "the op got other inputs",
    "value": "the same op gave other bits on the same inputs, or its function captures others",
}
#: The backward is looked at once the whole forward is the same: cotangents, newest record first, then gradients.
_BACKWARD_MEANINGS = {
    "backward": "the forward is the same, and one digest only has a backward; take both with the loss, or without",
    "cotangent": "the forward is the same, and another cotangent came back to this op",
    "gradient": "the cotangents are the same, and another gradient came to a leaf that this op read",
}


@dataclasses.dataclass(frozen=True)
class DigestDifference:
    """The first record in which two runs differ; false if there is none."""

    #: "op", "shape", "dtype", "params", "operands", "value", "cotangent" or "gradient" by what differs, "length" if one
    #: run goes on where the other ends, "backward" if one digest only has cotangents, and empty if they are equal.
    kind: str
    #: The number of the record, from 0 on; how many there are if the runs are equal.
    position: int
    #: The record in each run; None where a run has ended, and if they are equal.
    first: Entry | None
    second: Entry | None
    #: What the runs ran on, where that differs: name, first, second.
    machines: tuple[tuple[str, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kind)

    @property
    def op(self) -> str | None:
        """The op that the first run ran there, or the second if the first has ended."""
        entry = self.first or self.second
        return None if entry is None else entry.op

    @property
    def site(self) -> str | None:
        """The line that ran it."""
        entry = self.first or self.second
        return None if entry is None else entry.site

    def __str__(self) -> str:
        if not self.kind and not self.position:
            return "neither run has a record, so nothing was compared; was anything watched?"
        if not self.kind:
            return f"the runs are equal in all {self.position} records"
        lines = [f"the runs part at record %{self.position}: {self._meaning()}"]
        lines += [f"  {name}: {_shown(entry)}" for name, entry in (("first", self.first), ("second", self.second))]
        lines += [f"  they ran on another {name}: {a} and {b}" for name, a, b in self.machines]
        return "\n".join(lines)

    def _meaning(self) -> str:
        if self.kind != "length":
            return {**_MEANINGS, **_BACKWARD_MEANINGS}[self.kind]
        return f"the {'first' if self.first is None else 'second'} run ends, and the other goes on"


def _shown(entry: Entry | None) -> str:
    return "(the end)" if entry is None else str(entry)


def diff_digests(a: Any, b: Any) -> DigestDifference:
    """Return where two runs part: the first op and line at which a value, an op, a shape or the length differs.

    Args:
        a: a `Digest`, or the path of a file that holds one.
        b: the other one.

    Example:
        >>> def run(x):
        ...     with nt.Tape() as tape:
        ...         y = nt.exp(x * 2.0).sum()
        ...     return tape.digest()
        >>> print(nt.diff_digests(run(nt.tensor([1.0])), run(nt.tensor([1.0]))))
        the runs are equal in all 3 records
        >>> difference = nt.diff_digests(run(nt.tensor([1.0])), run(nt.tensor([1.5])))
        >>> difference.op, difference.kind
        ('mul', 'operands')
    """
    first, second = _as_digest(a), _as_digest(b)
    machines = tuple(
        (name, str(value), str(second.machine.get(name)))
        for name, value in first.machine.items()
        if second.machine.get(name) != value
    )
    pairs = list(zip(first, second, strict=False))
    for position, (one, other) in enumerate(pairs):
        kind = next((name for name in _MEANINGS if getattr(one, name) != getattr(other, name)), None)
        if kind is not None:
            return DigestDifference(kind, position, one, other, machines)
    if len(first) != len(second):
        rest = [digest.entries[len(pairs)] if len(pairs) < len(digest) else None for digest in (first, second)]
        return DigestDifference("length", len(pairs), rest[0], rest[1], machines)
    kind, position = _backward_difference(first, second)
    if kind:
        ends = [digest.entries[position] if position < len(digest) else None for digest in (first, second)]
        return DigestDifference(kind, position, ends[0], ends[1], machines)
    return DigestDifference("", len(pairs), None, None, machines)


def _backward_difference(first: Digest, second: Digest) -> tuple[str, int]:
    """Return what differs in the backwards of runs with the same forward, and at which record; "" if nothing does."""
    last = max(len(first) - 1, 0)
    if first.has_cotangents != second.has_cotangents:
        return "backward", last
    for position in range(len(first) - 1, -1, -1):
        if first.entries[position].cotangent != second.entries[position].cotangent:
            return "cotangent", position
    if (first.gradients is None) != (second.gradients is None):
        return "backward", last  # One was written when gradients of leaves were not looked at.
    parting = [pair for pair in zip_longest(first.gradients or (), second.gradients or ()) if pair[0] != pair[1]]
    if parting:
        one, other = parting[-1]
        return "gradient", (one or other)[0]
    return "", 0


def _as_digest(given: Any) -> Digest:
    if isinstance(given, Digest):
        return given
    if isinstance(given, str | os.PathLike):
        return Digest.from_json(given)
    raise OperandError(
        f"diff_digests: wants digests, or paths of files that hold them, not {type(given).__name__}; write "
        "nt.diff_digests(tape.digest(), other_tape.digest())."
    )
