"""Tell whether NumPy arrays that ops have read still hold what they held then, although nobody counts writes to them.

What is computed again from such an array is in doubt, until it can be compared with what was held all the time: the
result that a record or a tensor of the program still has, or a gradient that was delivered.
"""

import gc
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..core.recompute import Made, is_at_hand, run_again, uncounted
from ..core.record import Gone, Record
from ..core.value import Lifted, Value, array_of
from ..errors import NumtapeError
from .birth import first_bad, is_finite
from .replay import Obstacle, Replay, argument_name, is_close

#: How far, in units of the dtype's last digit, the same op on the same operands may be from itself.
TOLERANCE = 64
#: So many numbers do not agree by accident.
_MANY = 16


class Suspect(NamedTuple):
    """An operand of a record that is a NumPy array."""

    record: Record
    position: int

    def __str__(self) -> str:
        name = argument_name(self.record, self.position)
        return f"{name!r}, the NumPy array that {self.record.op.name} read at {self.record.site}"

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.record.inputs[self.position].shape)


def suspects_of(record: Record) -> set[Suspect]:
    """Return the operands of a record that somebody may have written to without a trace."""
    return {Suspect(record, position) for position, link in enumerate(record.inputs) if _is_suspect(link)}


def _is_suspect(link: Any) -> bool:
    if type(link) is Record:
        return False
    array = uncounted(link.operand if type(link) is Gone else link)
    # What is read-only from the beginning is a number that the engine has made an array of.
    return array is not None and (array.flags.writeable or array.base is not None or array.ndim > 0)


def values_in_use(records: Collection[Record], *given: Value) -> Made:
    """Return the outputs of records that tensors still hold: those given and, if arrays are suspect, any others.

    Looking for others takes a pass over all objects.
    """
    wanted = set(records)
    found: Made = {value.node: value.array for value in given if value.node in wanted and is_current(value)}
    if not any(map(suspects_of, records)):
        return found
    for item in gc.get_objects():
        kind = type(item)  # Asking an object for its class may run its code.
        if issubclass(kind, Value) and not issubclass(kind, Lifted):
            node = getattr(item, "node", None)
            if type(node) is Record and node in wanted and is_current(item):
                found[node] = item.array
    return found


def is_current(value: Value) -> bool:
    """Say whether a tensor holds what its record has made."""
    return value.version is None or value.version[0].count == value.version[1]


class Doubts:
    """What went into values that are computed again, and what comparisons say about it."""

    def __init__(self) -> None:
        #: The records whose values are computed again from suspects, without anything to compare them with.
        self._open: set[Record] = set()
        #: For each record that gives something else than what is held, the operands that may be the reason.
        self.differing: dict[Record, set[Suspect]] = {}
        self._cleared: set[Suspect] = set()

    def concern(self, record: Record) -> bool:
        """Say whether a record's value is in doubt if it is computed again."""
        return bool(suspects_of(record)) or any(type(link) is Record and link in self._open for link in record.inputs)

    def behind(self, record: Record) -> set[Suspect]:
        """Return the operands that a record's value is in doubt by if it is computed again."""
        found: set[Suspect] = set()
        seen, stack = {record}, [record]
        while stack:
            each = stack.pop()
            found |= suspects_of(each)
            before = {link for link in each.inputs if type(link) is Record and link in self._open} - seen
            seen |= before
            stack += before
        return found

    def hold(self, record: Record, held: Any, again: Any) -> None:
        """Compare what is held of a record with what it gives when it is computed again; None if it gives nothing."""
        found = self.behind(record)
        if not is_same(again, held):
            self.differing[record] = found
        elif not isinstance(held, tuple):
            self.clear(found, held)

    def clear(self, suspects: Iterable[Suspect], held: NDArray) -> None:
        """Take operands for what they were, if what is held and agrees says enough about them."""
        finite = int(np.count_nonzero(np.isfinite(held)))
        for each in suspects:
            # A sum says little about its terms, and an infinite one nothing.
            if finite >= min(each.size, _MANY) or held.size >= each.size > 1:
                self._cleared.add(each)

    def pass_on(self, record: Record) -> None:
        """Note that a record's value is computed again, and that there is nothing to compare it with."""
        if self.concern(record):
            self._open.add(record)

    def around(self, record: Record, records: Sequence[Record] = ()) -> set[Suspect]:
        """Return the operands that are in doubt behind a record, and behind those of others, oldest first, after it."""
        found = self.behind(record)
        after = {record}
        for each in records:
            if any(type(link) is Record and link in after for link in each.inputs):
                after.add(each)
                found |= suspects_of(each)
        return found - self._cleared

    def obstacle(self, record: Record, held: Any = None) -> Obstacle:
        """Say that the result of a record differs, and which operands may be the reason."""
        found = self.differing[record] - self._cleared or self.differing[record]
        what = f"computed again, the result of {record.op.name} at {record.site} is not what it was"
        return overwritten(what, found, held)


def overwritten(what: str, suspects: Collection[Suspect], held: Any = None) -> Obstacle:
    """Return the obstacle that something is not what it was, `held`, because suspects were overwritten."""
    index, value = (None, None) if is_finite(held) else first_bad(held)
    where = f" ({value:g} at index {index})" if index else ""
    return Obstacle(
        min(suspects, key=_place).record,
        f"{what}{where}: {named(suspects)} was overwritten since",
        "ask before it is written, or give a copy of it to the op.",
        index=index,
        value=value,
    )


def named(suspects: Collection[Suspect]) -> str:
    """Name operands, the oldest first, and not all of many."""
    ordered = sorted(suspects, key=_place)
    return ", or ".join(map(str, ordered[:3])) + (", or another one," if len(ordered) > 3 else ",")


def _place(suspect: Suspect) -> tuple[int, int]:
    return suspect.record.index, suspect.position


def is_same(found: Any, held: Any) -> bool:
    """Say whether outputs are equal but for rounding."""
    if isinstance(held, tuple):
        return isinstance(found, tuple) and all(map(is_same, found, held))
    return found is not None and is_close(found, array_of(held), TOLERANCE)


def find_doubts(records: Sequence[Record], known: Made) -> Doubts | None:
    """Compute records, oldest first, again, and compare them with what is held; None if they read no NumPy arrays."""
    if not any(map(suspects_of, records)):
        return None
    doubts = Doubts()
    replay = Replay(records, known)
    for record, out in replay.walk():
        if record not in known and not is_at_hand(record):
            doubts.pass_on(record)
        elif doubts.concern(record) and replay.obstacle_of(record) is None:
            try:
                again = run_again(record, replay.made)
            except NumtapeError:  # What it reads now is nothing that it could have read.
                again = None
            doubts.hold(record, out, again)
    return doubts
