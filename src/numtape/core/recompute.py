"""Make dropped values again, from the ops, parameters and links of their records. The only place that does so.

Invariants:
- An op computes what it computed before, bit for bit: its parameters hold its random draws, and what it reads is at
  hand or made again. A value that was overwritten since is an error, never read.
- Values that were dropped together (a `Block`) are made again together, once in a sweep, and dropped behind it.
- Iterative, as every walk here.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..errors import FreedError
from .apply import PICK, compute
from .context import FREED
from .record import Block, Gone, Record
from .value import Value
from .write import check_stamp, stamp_at

Made = dict[Record, Any]


def value(record: Record) -> Any:
    """Return the output of a record, making it and what it needs again where it is not kept. Nothing else changes."""
    return record.array if is_at_hand(record) else remake(missing([record]), {record})[record]


def is_at_hand(record: Record) -> bool:
    """Say whether a record's array is kept and still holds what the record computed."""
    return record.is_kept and (record.version is None or record.version[0].count == record.version[1])


def missing(targets: Iterable[Record]) -> list[Record]:
    """Return the records to run again so that the targets are made, oldest first."""
    found = {target for target in targets if not is_at_hand(target)}
    stack = list(found)
    while stack:
        for link in stack.pop().inputs:
            if type(link) is Record and link not in found and not is_at_hand(link):
                found.add(link)
                stack.append(link)
    return sorted(found, key=lambda record: record.index)


def remake(records: Sequence[Record], wanted: set[Record]) -> Made:
    """Run records again, oldest first, and return the outputs of the wanted ones; others go after their last use."""
    uses: dict[Record, int] = {}
    for record in records:
        for link in record.inputs:
            if type(link) is Record:
                uses[link] = uses.get(link, 0) + 1
    made: Made = {}
    for record in records:
        made[record] = run_again(record, made)
        for link in record.inputs:
            if type(link) is Record:
                uses[link] -= 1
                if not uses[link] and link not in wanted:
                    made.pop(link, None)
    return made


def run_again(record: Record, made: Made) -> Any:
    """Compute the output of a record from its operands: those in `made`, and those at hand."""
    arrays = [_operand(record, position, made) for position in range(len(record.inputs))]
    params = record.params or {}
    return arrays[0][params["position"]] if record.op is PICK else compute(record.op, arrays, params)


def _operand(record: Record, position: int, made: Made) -> Any:
    link = record.inputs[position]
    if type(link) is Record:
        array = made.get(link)
        if array is not None:
            return array
        if link.version is not None:
            check_stamp(record, position, link.version, link.version[1])
        return link.array
    if isinstance(link, Value):
        if link.version is not None:
            check_stamp(record, position, link.version, stamp_at(record, position))
        return link.array
    if type(link) is Gone:
        raise_freed(record)
    return link


class Restorer:
    """Puts dropped arrays back for a sweep, and drops them again behind it."""

    __slots__ = ("_members", "_records", "restored")

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        #: The records of the sweep by the block that their arrays were dropped in; filled on first need.
        self._members: dict[Block, list[Record]] | None = None
        self.restored: dict[Record, Block] = {}

    def restore(self, record: Record) -> Any:
        """Return the output of a record that is not kept. All that was dropped with it is put back with it."""
        block = record.array
        if type(block) is not Block:
            return value(record)
        members = [member for member in self._block(block) if member.array is block]
        if record not in members:  # It belongs to no record of the sweep.
            return value(record)
        wanted = set(members)
        made = remake(missing(members), wanted)
        for member in members:
            member.array = made[member]
            self.restored[member] = block
        return record.array

    def _block(self, block: Block) -> list[Record]:
        if self._members is None:
            self._members = {}
            for record in self._records:
                if type(record.array) is Block:
                    self._members.setdefault(record.array, []).append(record)
        return self._members.get(block, [])

    def drop(self, record: Record) -> None:
        """Drop what was put back in a record."""
        block = self.restored.pop(record, None)
        if block is not None:
            record.array = block

    def drop_all(self) -> None:
        """Drop everything that was put back and is still there."""
        while self.restored:
            record, block = self.restored.popitem()
            if record.cell is not FREED:
                record.array = block


def raise_freed(record: Record) -> NoReturn:
    """Raise for a record whose graph an earlier backward has freed."""
    raise FreedError(
        f"{record.op.name} at {record.site}: an earlier backward has freed the arrays of this graph. Call the first "
        "backward with retain_graph=True, or add the losses and call backward once."
    )
