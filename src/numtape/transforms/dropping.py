"""What a tape keeps while it records: the checkpoint strategies, as scopes that drop arrays of the records they see.

Records are taken in stretches. A dropped stretch is a block: its arrays are made again together, from values that were
made before it. Those are pinned where they cross into a later stretch, so a stretch never needs more than itself.

A memory budget works on any of them: under pressure the oldest stretches that are still held are dropped, then
neighbours are merged, which lets go of the values between them.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..config import CheckpointConfig, CheckpointStrategy
from ..core.apply import PICK
from ..core.buffers import Buffers, buffer_of
from ..core.context import Scope
from ..core.op import Op, shape_of
from ..core.recompute import drop, note_arrays
from ..core.record import Block, Record
from ..core.value import Value
from ..errors import MemoryBudgetError
from .checkpoint import pin

#: What an op may exceed a budget by until something is dropped.
_TOLERANCE = 1.05


def as_megabytes(nbytes: float, is_least: bool = False) -> str:
    """Return bytes as text, to three decimals and at least four digits; a least number is rounded up to be enough."""
    megabytes = nbytes / 2**20
    decimals = max(3, 3 - math.floor(math.log10(megabytes))) if megabytes else 3
    if is_least:
        megabytes = math.ceil(megabytes * 10**decimals) / 10**decimals
    text = f"{megabytes:.{decimals}f} MB"
    return text if megabytes >= 0.1 else f"{text} ({math.ceil(nbytes):,} bytes)"


class Stretch:
    """Consecutive records; `block` stands for their dropped arrays, None while they are held."""

    __slots__ = ("block", "end", "nbytes", "pins", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: The number of the last record.
        self.end = 0
        self.nbytes = 0
        self.block: Block | None = None
        #: The pinned values that its records read.
        self.pins: set[Record] = set()


class Account:
    """What is held, and how much more may be. It knows no records, since their blocks know it."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        #: The outputs of ops that are alive, whoever holds them.
        self.buffers = Buffers()
        #: The bytes of the largest output of an op.
        self.largest = 0
        #: The indices of records whose outputs are views.
        self.views: set[int] = set()
        #: What a plan has decided, by the index of the record that reads, in the order in which it does.
        self.plan: dict[int, list[float]] = {}
        self._has_exceeded = False

    @property
    def is_short(self) -> bool:
        """Whether the budget, if there is one, might not hold another output as large as the largest."""
        return self.budget is not None and self.buffers.live > self.budget - self.largest

    def room(self) -> float:
        """Return how many bytes more may be held."""
        assert self.budget is not None
        return self.budget - self.buffers.live

    def decide(self, reader: Record, room: float) -> float:
        """Do as planned, if it was planned for: to use more, because it happens to be free, would be missed later."""
        planned = self.plan.get(reader.index)
        return planned.pop(0) if planned else room

    def size(self, record: Record) -> int:
        """Return the bytes that a record's output takes: none if it is a view."""
        return 0 if record.op is PICK or record.index in self.views else record.nbytes

    def hold(self, array: Any) -> None:
        """Count an array, or each of several, as long as it lives."""
        for part in array if isinstance(array, tuple | list) else (array,):
            if isinstance(part, np.ndarray):
                self.buffers.hold(part)

    def exceed(self, record: Record, missing: float) -> None:
        """Warn, once: a backward that nobody planned for needs more than the budget."""
        if not self._has_exceeded:
            self._has_exceeded = True
            warnings.warn(
                f"memory_budget_mb: this backward takes {as_megabytes(missing)} more than the budget, at "
                f"{record.site}; call backward() of the tape, which plans for it.",
                stacklevel=2,
            )


class Dropping(Scope):
    """Sees records and drops arrays. This one drops what does not fit its budget: the strategy AUTO."""

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        self.restart()

    def restart(self) -> None:
        """Forget the records."""
        self.stretches: list[Stretch] = []
        self.open = Stretch()
        self.account = Account(self.budget)
        #: The time that each record's op took.
        self.seconds: dict[Record, float] = {}
        self._elapsed = 0.0
        #: For each record, the number of the last one that reads it; its own before that.
        self._last_use: dict[Record, int] = {}
        #: The records of the open stretch, and those of them whose bytes were counted.
        self._inside: set[Record] = set()
        self._counted: set[Record] = set()
        self._is_view = False
        #: The values that are kept only to make others again, with what their records held before.
        self.pinned: dict[Record, Block | None] = {}

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Take the time of an op, for the plan's prediction."""
        start = time.perf_counter()
        out = compute(op, arrays, params)
        self._elapsed = time.perf_counter() - start
        self._is_view = _is_view(out, arrays)
        if not self._is_view:
            self.account.hold(out)
        return out

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Keep what the record needs from earlier stretches, count its bytes, and drop what is to be dropped."""
        live = self.account.buffers.live
        if self.open_begins_anew(record):
            self.close()
        self.seconds[record] = self._elapsed
        self._elapsed = 0.0
        note_arrays(record)
        self.keep_what_rules_read(record)
        self.keep_operands(record, operands)
        self.open.records.append(record)
        self.open.end = len(self.seconds)
        self._inside.add(record)
        if self._is_view:
            self.account.views.add(record.index)
            self._is_view = False
        self.account.largest = max(self.account.largest, record.nbytes)
        for link in (*record.inputs, record):
            if type(link) is Record:
                self._last_use[link] = self.open.end
        self.open.nbytes += self._newly_kept(record)
        self.settle_down(record)
        if self.budget is not None and (self.account.is_short or live > self.budget):
            self.make_room(record, live)

    def _newly_kept(self, record: Record) -> int:
        """Return the bytes that the stretch keeps more since a record was made: its own, and those that it reads."""
        total = 0
        for link in (*record.inputs, record):
            if type(link) is Record and link in self._inside and link not in self._counted and link.is_kept:
                self._counted.add(link)
                total += self.account.size(link)
        return total

    def keep_operands(self, record: Record, operands: Sequence[Any]) -> None:
        """Pin what a record reads from stretches before its own."""
        self.pin(record, operands, self._inside)

    def pin(self, record: Record, operands: Sequence[Any], inside: "set[Record] | dict[Record, Any]") -> None:
        """Pin what a record reads from outside of some records, and take down what no rule has read so far."""
        links = [link for link in record.inputs if type(link) is Record]
        absent = {link: link.array for link in links if not link.is_kept}
        pin(record, operands, inside)
        self.pinned.update((link, before) for link, before in absent.items() if link.is_kept)

    def unpin(self, pins: Iterable[Record]) -> None:
        """Let go of values that were pinned."""
        for link in pins:
            link.array = self.pinned.pop(link)

    def keep_what_rules_read(self, record: Record) -> None:
        """Take what the rules of a record read for kept, whether it was pinned before or not."""
        positions, _ = record.op.kept(record.needs)
        links = record.inputs if positions is None else [record.inputs[position] for position in positions]
        for link in links:
            if type(link) is Record:
                self.pinned.pop(link, None)

    def open_begins_anew(self, record: Record) -> bool:
        """Say whether a stretch ends before a record. Under a budget, stretches are a small part of it."""
        return self.budget is not None and self.open.nbytes > self.budget / 16

    def settle_down(self, record: Record) -> None:
        """Drop what the strategy does not keep."""

    def close(self) -> None:
        """End the open stretch."""
        if self.open.records:
            self.stretches.append(self.open)
            self.open = Stretch()
            self._inside = set()
            self._counted = set()

    def new_block(self) -> Block:
        """Return a block for values that are dropped together."""
        return Block(None if self.budget is None else self.account)

    def drop_stretch(self, stretch: Stretch) -> None:
        """Drop what a closed stretch holds; what later ones read is kept by `pin` when they do, or kept here."""
        stretch.block = self.new_block()
        self._drop(stretch, stretch.block)

    def _drop(self, stretch: Stretch, block: Block) -> None:
        drop([record for record in stretch.records if self._last_use[record] <= stretch.end], block)

    def _droppable(self, stretch: Stretch) -> list[Record]:
        """Return the records whose values a stretch holds and no later one has read."""
        return [record for record in stretch.records if record.is_kept and self._last_use[record] <= stretch.end]

    def merge(self, position: int) -> None:
        """Make one of a dropped stretch and the next, and drop what only crossed between them."""
        first, second = self.stretches[position : position + 2]
        first.records += second.records
        first.nbytes += second.nbytes
        first.end = second.end
        del self.stretches[position + 1]
        block = self.new_block()
        for record in first.records:
            if type(record.array) is Block:
                record.array = block
        first.block = block
        self._drop(first, block)

    def thin(self) -> bool:
        """Drop the oldest stretch that is held, or else merge two, or else end the open one; say whether it could."""
        held = next((stretch for stretch in self.stretches if stretch.block is None), None)
        if held is not None:
            self.drop_stretch(held)
        elif len(self.stretches) > 1:
            sizes = [a.nbytes + b.nbytes for a, b in itertools.pairwise(self.stretches)]
            self.merge(int(np.argmin(sizes)))
        elif len(self.open.records) > 1:
            self.close()
        else:
            return False
        return True

    def make_room(self, record: Record, before: int) -> None:
        """Drop until the budget is met; raise if it cannot be, or if what lived when the op had run exceeds it."""
        assert self.budget is not None
        while self.account.is_short and self.thin():
            pass
        live = self.account.buffers.live
        if live > self.budget:
            found = f"{as_megabytes(live)} of values cannot be dropped"
        elif before > self.budget * _TOLERANCE:
            live = before
            found = f"{as_megabytes(live)} of values are alive at once"
        else:
            return
        raise MemoryBudgetError(
            f"memory_budget_mb: at {record.op.name} in {record.site}, {found}, and {as_megabytes(self.budget)} were "
            f"given; the least possible up to here is {as_megabytes(live, is_least=True)}. Tensors that the program "
            "still holds count."
        )


class Blocks(Dropping):
    """Keep every n-th record: the strategy BLOCK. A stretch that needs no less from before than it holds is kept."""

    def __init__(self, every: int, budget: float | None) -> None:
        super().__init__(budget)
        self.every = every

    def restart(self) -> None:
        """Forget the records."""
        super().restart()
        #: How many stretches read each value that is pinned.
        self._readers: dict[Record, int] = {}

    def keep_operands(self, record: Record, operands: Sequence[Any]) -> None:
        """Pin what a record reads from stretches before its own, and count it."""
        super().keep_operands(record, operands)
        for link in record.inputs:
            if type(link) is Record and link in self.pinned and link not in self.open.pins:
                self.open.pins.add(link)
                self._readers[link] = self._readers.get(link, 0) + 1

    def open_begins_anew(self, record: Record) -> bool:
        """End a stretch after n records."""
        return len(self.open.records) >= self.every

    def settle_down(self, record: Record) -> None:
        """Drop the last stretch when a new one has begun, if that saves anything."""
        if self.stretches and self.stretches[-1].block is None and len(self.open.records) == 1:
            last = self.stretches[-1]
            pins = {link for link in last.pins if link in self.pinned and self._readers[link] == 1}
            if sum(link.nbytes for link in pins) < sum(map(self.account.size, self._droppable(last))):
                self.drop_stretch(last)
            else:
                self.unpin(pins)
                for link in last.pins:
                    self._readers[link] -= 1


class Full(Dropping):
    """Keep inputs, and as few values in between as it takes to make any other again once: the strategy FULL.

    The stretches grow as the tape does: what crosses between them is never much more than what the largest one holds.
    """

    def restart(self) -> None:
        """Forget the records."""
        super().restart()
        self._size = 0

    def open_begins_anew(self, record: Record) -> bool:
        """End a stretch when it is as large as they are to be now."""
        self._size = max(self._size, self.account.largest)
        return self.open.nbytes >= self._size

    def settle_down(self, record: Record) -> None:
        """Drop the last stretch; merge neighbours if too much crosses."""
        if self.stretches and self.stretches[-1].block is None:
            self.drop_stretch(self.stretches[-1])
            if self._crossing() > self._size:
                self._size *= 2
                position = 0
                while position < len(self.stretches) - 1:
                    pair = self.stretches[position : position + 2]
                    if pair[0].nbytes + pair[1].nbytes <= self._size * 1.25:
                        self.merge(position)
                    position += 1

    def _crossing(self) -> int:
        """Return the bytes that dropped stretches keep for later ones."""
        return sum(self.account.size(r) for s in self.stretches for r in s.records if r.is_kept)


class Selective(Dropping):
    """Keep what is expensive to make again, and drop what is cheap: the strategy SELECTIVE.

    The cost of a value is that of its op and of the dropped values that it is made of, so chains of cheap ops are kept
    here and there. What no rule reads, and is kept only to make cheap values again, must be less than these: else they
    are kept instead.
    """

    def __init__(self, least_cost: float, every: int, budget: float | None) -> None:
        self.least_cost = least_cost
        self.every = every
        super().__init__(budget)

    def restart(self) -> None:
        """Forget the records."""
        super().restart()
        #: What it costs to make dropped values again, and the block of each.
        self._cheap: dict[Record, tuple[float, Block]] = {}
        #: The pinned values that each cheap one is made of.
        self._sources: dict[Record, set[Record]] = {}
        #: The cheap values to drop when the next record is there: an operand may be overwritten until then.
        self._pending: set[Record] = set()
        #: The cheap values that are not dropped yet, since what is kept to make them again is not less.
        self._deferred: set[Record] = set()
        self._lost: set[Record] = set()
        self._expensive = 0
        self._block = self.new_block()

    def new_block(self) -> Block:
        """Return a block for cheap values; without a budget, what it is made of is not made twice."""
        return Block(is_shared=True) if self.budget is None else super().new_block()

    def keep_operands(self, record: Record, operands: Sequence[Any]) -> None:
        """Tell whether a record is cheap; keep the expensive values that a cheap one is made of."""
        self._drop_pending()
        links = self._cheap_links(record)
        cost = _flops(record) + sum(self._cheap[link][0] for link in links)
        elements = max(1, record.nbytes // _itemsize(record))
        is_expensive = cost / elements >= self.least_cost
        if _reads_what_is_rewritten(record) or (is_expensive and not self._is_skipped()):
            self._keep_deferred()
            self._block = self.new_block()
            return
        # What is expensive and skipped all the same does not make what follows it expensive, too.
        self._cheap[record] = (0.0 if is_expensive else cost, self._block)
        self.pin(record, operands, self._cheap)
        pins = {link for link in record.inputs if type(link) is Record and link in self.pinned}
        sources = [self._sources[link] for link in links]
        self._sources[record] = sources[0] if len(sources) == 1 and not pins else pins.union(*sources)

    def settle_down(self, record: Record) -> None:
        """Take down the cheap ones among a record and its operands, to be dropped."""
        self._pending = self._cheap_links(record) | ({record} & self._cheap.keys())

    def _drop_pending(self) -> None:
        """Drop cheap values, unless what is kept only to make them again is as large."""
        for cheap in sorted(self._pending, key=lambda cheap: cheap.index):
            if cheap.is_kept:
                if self.account.size(cheap) and self._sources[cheap] & self.pinned.keys():
                    self._deferred.add(cheap)
                else:
                    drop([cheap], self._cheap[cheap][1], self._lost)
        if not self._deferred:
            return
        sources = self._sources_of_deferred()
        if sum(source.nbytes for source in sources) < sum(map(self.account.size, self._deferred)):
            for cheap in sorted(self._deferred, key=lambda cheap: cheap.index):
                drop([cheap], self._cheap[cheap][1], self._lost)
            for source in sources:
                del self.pinned[source]
            self._deferred.clear()

    def _keep_deferred(self) -> None:
        """Keep the cheap values that did not become more than what they are made of, and that no longer."""
        self.unpin(self._sources_of_deferred())
        for cheap in self._deferred:
            del self._cheap[cheap]
        self._deferred.clear()

    def _sources_of_deferred(self) -> set[Record]:
        return self.pinned.keys() & set().union(*(self._sources[cheap] for cheap in self._deferred))

    def _cheap_links(self, record: Record) -> set[Record]:
        return {link for link in record.inputs if type(link) is Record and link in self._cheap}

    def _is_skipped(self) -> bool:
        """Say whether an expensive value is none of every n-th."""
        self._expensive += 1
        return self._expensive % self.every != 0


def _is_view(out: Any, arrays: tuple[Any, ...]) -> bool:
    """Say whether an output, or each of several, lies in the memory of an operand."""
    if isinstance(out, np.ndarray) and out.base is None:
        return any(out is array for array in arrays)
    given = [buffer_of(array) for array in arrays if isinstance(array, np.ndarray)]
    parts = out if isinstance(out, tuple) else (out,)
    return all(any(buffer_of(part) is buffer for buffer in given) for part in parts)


def _reads_what_is_rewritten(record: Record) -> bool:
    """Say whether an untracked operand is a tensor that was written in place: a buffer, most likely to be again."""
    return any(
        isinstance(link, Value) and not record.needs >> i & 1 and link.version is not None and link.version[0].count
        for i, link in enumerate(record.inputs)
    )


def _itemsize(record: Record) -> int:
    dtype = record.dtype[0] if isinstance(record.dtype, list) else record.dtype
    return int(dtype.itemsize)


def _flops(record: Record) -> float:
    op = record.op
    shapes = [shape_of(link) for link in record.inputs]
    return float(op.facts.cost(record.shape, *shapes, **(record.params or {})))


def dropping(config: CheckpointConfig) -> Dropping | None:
    """Return the scope that does what a configuration says; None if it keeps everything."""
    budget = None if config.memory_budget_mb is None else config.memory_budget_mb * 2**20
    match config.strategy:
        case CheckpointStrategy.BLOCK if config.checkpoint_every_n > 1:
            return Blocks(config.checkpoint_every_n, budget)
        case CheckpointStrategy.FULL:
            return Full(budget)
        case CheckpointStrategy.SELECTIVE:
            return Selective(config.min_compute_cost, config.checkpoint_every_n, budget)
    return None if budget is None else Dropping(budget)
