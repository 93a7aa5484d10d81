"""What a tape keeps while it records: the checkpoint strategies, as scopes that drop arrays of the records they see.

Records are taken in stretches. A dropped stretch is a block: its arrays are made again together, from values that were
made before it. Those are pinned where they cross into a later stretch, so a stretch never needs more than itself.

A memory budget works on any of them: under pressure the oldest stretches that are still held are dropped, then
neighbours are merged, which lets go of the values between them.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..config import CheckpointConfig, CheckpointStrategy
from ..core.apply import PICK
from ..core.buffers import Buffers, buffer_of
from ..core.context import Scope
from ..core.op import Op, shape_of
from ..core.recompute import drop
from ..core.record import Block, Record
from ..errors import MemoryBudgetError
from .checkpoint import pin


class Stretch:
    """Consecutive records; `block` stands for their dropped arrays, None while they are held."""

    __slots__ = ("block", "end", "nbytes", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: The number of the last record.
        self.end = 0
        self.nbytes = 0
        self.block: Block | None = None


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
        #: What a plan has decided, by the index of the record that reads.
        self.plan: dict[int, float] = {}
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
        return self.plan.get(reader.index, room)

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
                f"memory_budget_mb: this backward takes {missing / 2**20:.3f} MB more than the budget, at "
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

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Take the time of an op, for the plan's prediction."""
        start = time.perf_counter()
        out = compute(op, arrays, params)
        self._elapsed = time.perf_counter() - start
        given = [buffer_of(array) for array in arrays if isinstance(array, np.ndarray)]
        parts = out if isinstance(out, tuple) else (out,)
        self._is_view = all(any(buffer_of(part) is buffer for buffer in given) for part in parts)
        if not self._is_view:
            self.account.hold(out)
        return out

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Keep what the record needs from earlier stretches, count its bytes, and drop what is to be dropped."""
        if self.open_begins_anew(record):
            self.close()
        self.seconds[record] = self._elapsed
        self._elapsed = 0.0
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
        if self.account.is_short:
            self.make_room(record)

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
        pin(record, operands, self._inside)

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
        return Block(self.account if self.budget is not None else None)

    def drop_stretch(self, stretch: Stretch) -> None:
        """Drop what a closed stretch holds; what later ones read is kept by `pin` when they do, or kept here."""
        stretch.block = self.new_block()
        self._drop(stretch, stretch.block)

    def _drop(self, stretch: Stretch, block: Block) -> None:
        drop([record for record in stretch.records if self._last_use[record] <= stretch.end], block)

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

    def make_room(self, record: Record) -> None:
        """Drop until the budget is met; raise if it cannot be."""
        assert self.budget is not None
        while self.account.is_short and self.thin():
            pass
        live = self.account.buffers.live
        if live > self.budget:
            raise MemoryBudgetError(
                f"memory_budget_mb: at {record.op.name} in {record.site}, {live / 2**20:.3f} MB of values "
                f"cannot be dropped, and {self.budget / 2**20:.3f} MB were given; the least possible up to here is "
                f"{live / 2**20:.3f} MB. Tensors that the program still holds count."
            )


class Blocks(Dropping):
    """Keep every n-th record: the strategy BLOCK."""

    def __init__(self, every: int, budget: float | None) -> None:
        super().__init__(budget)
        self.every = every

    def open_begins_anew(self, record: Record) -> bool:
        """End a stretch after n records."""
        return len(self.open.records) >= self.every

    def settle_down(self, record: Record) -> None:
        """Drop the last stretch when a new one has begun."""
        if self.stretches and self.stretches[-1].block is None:
            self.drop_stretch(self.stretches[-1])


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
    here and there.
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
        self._expensive = 0
        self._block = self.new_block()

    def keep_operands(self, record: Record, operands: Sequence[Any]) -> None:
        """Tell whether a record is cheap; keep the expensive values that a cheap one is made of."""
        cost = _flops(record) + sum(self._cheap[link][0] for link in self._cheap_links(record))
        elements = max(1, record.nbytes // _itemsize(record))
        is_expensive = cost / elements >= self.least_cost
        if not is_expensive or self._is_skipped():
            # What is expensive and skipped all the same does not make what follows it expensive, too.
            self._cheap[record] = (0.0 if is_expensive else cost, self._block)
            pin(record, operands, self._cheap)
        else:
            self._block = self.new_block()

    def settle_down(self, record: Record) -> None:
        """Drop the cheap ones among a record and its operands."""
        for cheap in self._cheap_links(record) | ({record} & self._cheap.keys()):
            if cheap.is_kept:
                drop([cheap], self._cheap[cheap][1])

    def _cheap_links(self, record: Record) -> set[Record]:
        return {link for link in record.inputs if type(link) is Record and link in self._cheap}

    def _is_skipped(self) -> bool:
        """Say whether an expensive value is none of every n-th."""
        self._expensive += 1
        return self._expensive % self.every != 0


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
