"""Put dropped arrays back for a sweep: those of one `Block` at a time, in parts if the block's room is small.

A block that is too large is run through once. On the way, the values that cross the borders between its parts are kept,
and the last part is put back whole; each earlier part becomes a block of its own, to be made again from the border
before it when the sweep gets there. Where the borders are, `binomial` decides.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MemoryBudgetError
from .binomial import Part, cut_points
from .context import FREED
from .recompute import Made, missing, remake, value
from .record import Block, Record


class Restorer:
    """Puts dropped arrays back, and drops them again behind the sweep."""

    __slots__ = ("_members", "_records", "_remake", "restored")

    def __init__(self, records: Sequence[Record], remake: Callable[[list[Record], set[Record]], Made] = remake) -> None:
        self._records = records
        self._remake = remake
        #: The records of the sweep by the block that their arrays were dropped in; filled on first need.
        self._members: dict[Block, list[Record]] | None = None
        #: The records that were put back, with what they held before.
        self.restored: dict[Record, Block | None] = {}

    def restore(self, record: Record) -> Any:
        """Return the output of a record that is not kept. What was dropped with it is put back with it."""
        block = record.array
        while type(block) is Block:
            members = [member for member in self._in_block(block) if member.array is block]
            if record not in members:  # It belongs to no record of the sweep.
                break
            self._put_back(block, members)
            if record.is_kept:
                return record.array
            block = record.array
        return value(record)

    def _in_block(self, block: Block) -> list[Record]:
        if self._members is None:
            self._members = {}
            for record in self._records:
                if type(record.array) is Block:
                    self._members.setdefault(record.array, []).append(record)
        return self._members.get(block, [])

    def _put_back(self, block: Block, members: list[Record]) -> None:
        order = missing(members)
        wanted = set(members)
        room = None if block.limit is None else block.limit.room()
        if room is None or sum(record.nbytes for record in members) <= room:
            self._keep(block, self._remake(order, wanted))
            return
        parts = cut_points(order, wanted, room)
        if not parts:
            least = min(record.nbytes for record in members)
            raise MemoryBudgetError(
                f"memory_budget_mb: {room / 2**20:.3f} MB are left to make the values of {members[-1].site} again, "
                f"which takes {least / 2**20:.3f} MB at least; give a larger budget."
            )
        self._keep_last(block, order, wanted, parts)

    def _keep_last(self, block: Block, order: list[Record], wanted: set[Record], parts: list[Part]) -> None:
        """Run through all parts; keep what the last one needs, and what crosses the borders between the others."""
        assert self._members is not None
        last = parts[-1]
        kept = {record for record in order[last.start :] if record in wanted}
        crossing = {record for part in parts for record in part.crossing}
        made = self._remake(order, kept | crossing)
        for part in parts[:-1]:
            inside = [record for record in order[part.start : part.stop] if record in wanted and record not in crossing]
            smaller = Block(block.limit)
            self._members[smaller] = inside
            for record in inside:
                self.restored.setdefault(record, record.array)
                record.array = smaller
        self._keep(block, made)

    def _keep(self, block: Block, made: Made) -> None:
        for record, array in made.items():
            self.restored.setdefault(record, record.array)
            record.array = array
            if block.limit is not None:
                block.limit.hold(array)

    def drop(self, record: Record) -> None:
        """Drop what was put back in a record."""
        if record in self.restored:
            record.array = self.restored.pop(record)

    def drop_all(self) -> None:
        """Drop everything that was put back and is still there."""
        while self.restored:
            record, before = self.restored.popitem()
            if record.cell is not FREED:
                record.array = before
