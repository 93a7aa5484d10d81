"""The strategies of checkpointing: which records' arrays a tape drops while it records, and when."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..config import CheckpointConfig, CheckpointStrategy
from ..core.jacobian import size_of
from ..core.recompute import drop
from ..core.record import Block, Record
from ..core.value import Value
from .dropping import Dropping

_index = attrgetter("index")


class Keeping(Dropping):
    """Keep everything, and count it, so that a plan knows what else is held: constants that ops have made above all."""

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Take down what a plan asks for."""
        self.hold_constants(record, operands)
        self.take_down(record)


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

    def forget(self, records: Sequence[Record]) -> None:
        """Forget records that are gone."""
        super().forget(records)
        for record in records:
            self._readers.pop(record, None)

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
        return self.is_large_enough(record, self._size)

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
        self._expensive = 0
        self._block = self.new_block()

    def forget(self, records: Sequence[Record]) -> None:
        """Forget records that are gone."""
        super().forget(records)
        gone = set(records)
        self._pending -= gone
        self._deferred -= gone
        for record in gone:
            self._cheap.pop(record, None)
            self._sources.pop(record, None)

    def new_block(self) -> Block:
        """Return a block for cheap values; without a budget, what it is made of is not made twice."""
        return Block(is_shared=True) if self.budget is None else super().new_block()

    def keep_operands(self, record: Record, operands: Sequence[Any]) -> None:
        """Tell whether a record is cheap; keep the expensive values that a cheap one is made of."""
        self._drop_pending()
        links = self._cheap_links(record)
        cost = float(record.flops)
        for link in links:
            cost += self._cheap[link][0]
        is_expensive = cost >= self.least_cost * max(1, size_of(record))
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
        self._pending = self._cheap_links(record)
        if record in self._cheap:
            self._pending.add(record)

    def _drop_pending(self) -> None:
        """Drop cheap values, unless what is kept only to make them again is as large."""
        for cheap in _oldest_first([cheap for cheap in self._pending if cheap.is_kept]):
            if self.account.size(cheap) and self._sources[cheap] & self.pinned.keys():
                self._deferred.add(cheap)
            else:
                drop([cheap], self._cheap[cheap][1], self._lost)
        if not self._deferred:
            return
        sources = self._sources_of_deferred()
        if sum(source.nbytes for source in sources) < sum(map(self.account.size, self._deferred)):
            for cheap in _oldest_first(list(self._deferred)):
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


def _reads_what_is_rewritten(record: Record) -> bool:
    """Say whether an untracked operand is a tensor that was written in place: a buffer, most likely to be again."""
    for i, link in enumerate(record.inputs):
        if isinstance(link, Value) and link.version is not None and link.version[0].count and not record.needs >> i & 1:
            return True
    return False


def _oldest_first(records: list[Record]) -> list[Record]:
    if len(records) > 1:
        records.sort(key=_index)
    return records


def dropping(config: CheckpointConfig) -> Dropping:
    """Return the scope that does what a configuration says."""
    budget = None if config.memory_budget_mb is None else config.memory_budget_mb * 2**20
    match config.strategy:
        case CheckpointStrategy.BLOCK if config.checkpoint_every_n > 1:
            return Blocks(config.checkpoint_every_n, budget)
        case CheckpointStrategy.FULL:
            return Full(budget)
        case CheckpointStrategy.SELECTIVE:
            return Selective(config.min_compute_cost, config.checkpoint_every_n, budget)
    return Keeping() if budget is None else Dropping(budget)
