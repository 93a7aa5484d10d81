"""Put dropped arrays back for a sweep: those of one `Block` at a time, in parts if the block's limit is narrow.

A block that is too large is run through once. The last part of it is put back whole; each earlier part becomes a block
of its own, to be made again when the sweep gets there, of values from before it that are kept on the way. Where the
parts begin, `binomial` decides.

Threads may sweep one graph at once. Each holds what it has put back, and does not rely on the records for it: these
show it to observers and to other sweeps, which may take it, replace it or drop it. So nobody waits, and nothing is
locked.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import HALF_DTYPES
from .binomial import Parts, Run
from .buffers import buffer_of
from .cells import FREED
from .recompute import Made, is_unwritten, missing, remake
from .record import Block, Limit, Record
from .value import array_of

#: What may be put back before the sweep needs it, as a share of what the records keep.
_AHEAD = 0.05


class Restorer:
    """Puts dropped arrays back, and drops them again behind the sweep.

    Args:
        records: those of the sweep.
        moved: the cotangents that the sweep holds, which need room as well.
        remake: runs records again.
        as_run: makes a run of records, to be cut.
        restored: the records that were put back, with what they held before: filled as they are.
        warns: whether to say that a budget is exceeded.
    """

    __slots__ = (
        "_ahead",
        "_as_run",
        "_members",
        "_most_ahead",
        "_moved",
        "_own",
        "_records",
        "_remake",
        "_swept",
        "_warns",
        "restored",
    )

    def __init__(
        self,
        records: Sequence[Record],
        moved: Mapping[Any, Any],
        remake: Callable[[list[Record], set[Record], Made], Made] = remake,
        restored: dict[Record, Block | None] | None = None,
        as_run: Callable[[list[Record], set[Record], Callable[[Record], int]], Run] = Run,
        warns: bool = True,
    ) -> None:
        self._records = records
        self._warns = warns
        self._moved = moved
        self._remake = remake
        self._as_run = as_run
        #: The records of the sweep by the block that their arrays were dropped in, and all; filled on first need.
        self._members: dict[Block, list[Record]] | None = None
        self._swept: frozenset[Record] = frozenset()
        self.restored = {} if restored is None else restored
        #: Their arrays.
        self._own: Made = {}
        #: The records that were put back before the sweep needed them, and how many bytes these may have.
        self._ahead: set[Record] = set()
        self._most_ahead = 0.0

    def restore(self, record: Record, reader: Record, current: Any) -> Any:
        """Return the output of a record that is not kept; what was dropped with it is put back with it.

        Args:
            record: whose output is read.
            reader: the record whose rule reads it.
            current: the cotangent that the rule is given.
        """
        while record not in self._own:
            block = record.array
            members = self._in_block(block, record) if type(block) is Block else []
            if record not in members:  # It belongs to no record of the sweep, or another one has put it back.
                order, found = missing([record], self._own)
                return self._remake(order, {record}, found)[record]
            self._put_back(block, members, reader, current)
        return self._own[record]

    def _in_block(self, block: Block, record: Record) -> list[Record]:
        """Return the records of the sweep whose arrays a block stands for, which are found when a record is needed."""
        if self._members is None:
            self._swept = frozenset(self._records)
            self._most_ahead = _AHEAD * sum(each.nbytes for each in self._records if each.is_kept)
        if self._members is None or (record in self._swept and record not in self._members.get(block, ())):
            self._members = {}
            for each in self._records:
                if type(before := each.array) is Block:
                    self._members.setdefault(before, []).append(each)
        return [member for member in self._members.get(block, ()) if member.array is block]

    def _put_back(self, block: Block, members: list[Record], reader: Record, current: Any) -> None:
        order, found = missing(members, self._own)
        wanted = {*members, *self._met_on_the_way(order, block)}
        parts: Parts | None = None
        if block.limit is not None:
            run = self._as_run(order, wanted, block.limit.size)
            moved, given = self._moved_bytes(reader, current)
            room = block.limit.room() - moved
            # What the rule gives is not there yet while records run again, and takes the place of what these let go.
            rest = block.limit.decide(reader, room - given)
            room = block.limit.decide(reader, room)
            parts, peak = run.cut_within(room, room - rest)
            if peak > room and self._warns:
                block.limit.exceed(reader, peak - room)
        if parts is not None:
            self._keep_last(block, order, wanted, found, parts)
        else:
            self._keep(block, order, self._remake(order, wanted, found))

    def _met_on_the_way(self, order: list[Record], block: Block) -> list[Record]:
        """Return the latest of what is made of shared blocks besides one, as far as there is room for it."""
        room = self._most_ahead - sum(record.nbytes for record in self._ahead)
        found = []
        for record in reversed(order):
            if type(other := record.array) is Block and other.is_shared and other is not block:
                room -= record.nbytes
                if room < 0:
                    break
                found.append(record)
        self._ahead.update(found)
        return found

    def _moved_bytes(self, reader: Record, current: Any) -> tuple[int, int]:
        """Return the bytes of cotangents, and how many more these are when a rule has given its own."""
        given = {link for i, link in enumerate(reader.inputs) if type(link) is Record and reader.needs >> i & 1}
        waiting = {link: g for link, g in self._moved.items() if type(link) is Record}
        now = _bytes_of([*waiting.values(), current])
        others = _bytes_of([*(g for link, g in waiting.items() if link not in given), current])
        return now, others + sum(map(cotangent_bytes, given)) - now

    def _keep_last(self, block: Block, order: list[Record], wanted: set[Record], found: Made, parts: Parts) -> None:
        """Run through all parts; keep what the last one needs, and what the others are made again of."""
        assert self._members is not None
        kept = {order[place] for place in parts.kept}
        made = self._remake(order, kept, found)
        for start, stop in itertools.pairwise(parts.ends[:-1]):
            inside = [record for record in order[start:stop] if record in wanted and record not in kept]
            smaller = Block(block.limit)
            self._members[smaller] = inside
            for record in inside:
                self._put(block, record, smaller)
        self._keep(block, order, made)

    def _keep(self, block: Block, order: list[Record], made: Made) -> None:
        inside = set(order)
        for record, array in made.items():
            self._own[record] = array
            self._put(block, record, array)
            if block.limit is not None and _owner(record, block.limit) in inside:
                block.limit.hold(array)

    def _put(self, block: Block, record: Record, array: Any) -> None:
        """Put an array, or a smaller block, into a record, and remember what it held before any sweep did so."""
        if record not in self.restored:
            before = record.array
            is_others = before is not None and type(before) is not Block and is_unwritten(record)
            self.restored[record] = block if is_others else before
        record.array = array

    def drop(self, record: Record) -> None:
        """Drop what was put back in a record."""
        if record in self.restored:
            record.array = self.restored[record]
            del self.restored[record]
            self._own.pop(record, None)
            self._ahead.discard(record)

    def drop_all(self) -> None:
        """Drop everything that was put back and is still there."""
        for record, before in self.restored.items():
            if record.cell is not FREED:
                record.array = before
        self.restored.clear()
        self._own.clear()


def _owner(record: Record, limit: Limit) -> Any:
    """Return the record, or what else, whose memory the output of a record lies in."""
    owner: Any = record
    while type(owner) is Record and owner.inputs and not limit.size(owner):
        owner = owner.inputs[0]
    return owner if type(owner) is Record else None


def cotangent_bytes(record: Record) -> int:
    """Return the bytes of the cotangent of a record's output: that of halves is carried in float32."""
    is_half = not isinstance(record.dtype, list) and record.dtype in HALF_DTYPES
    return record.nbytes * 2 if is_half else record.nbytes


def _bytes_of(moved: list[Any]) -> int:
    """Return the bytes of cotangents; those that are views of the same memory take it once."""
    parts = [part for g in moved for part in (g if isinstance(g, tuple | list) else (g,))]
    buffers = {id(b): b for b in map(_buffer_of, parts)}
    return sum(getattr(buffer, "nbytes", 0) for buffer in buffers.values())


def _buffer_of(part: Any) -> Any:
    """Return what holds the memory of a cotangent: of an array, a tensor, or what stands for one in a plan."""
    part = array_of(part)
    return buffer_of(part) if isinstance(part, np.ndarray) else getattr(part, "base", part)
