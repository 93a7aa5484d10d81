"""Foresee what a backward over a checkpointed graph will hold and run again, by walking a copy of it without arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.context import FREED
from ..core.recompute import Made
from ..core.record import Block, Record
from ..core.restoring import Restorer
from ..errors import MemoryBudgetError
from .dropping import Dropping


@dataclass(frozen=True)
class Plan:
    """What a tape keeps, and what its backward will do. `str` shows it as a small table."""

    #: The records whose values are kept at the end of the forward, and their bytes.
    kept: int
    kept_bytes: int
    #: The records that will run again, counted as often as they do.
    recomputed: int
    #: The most that values kept, made again and carried back took so far and will take.
    peak_bytes: int
    #: The time that running again will take, by what the ops took the first time.
    extra_seconds: float
    #: The time that the forward's ops took.
    forward_seconds: float

    def __str__(self) -> str:
        share = self.extra_seconds / self.forward_seconds if self.forward_seconds else 0.0
        return "\n".join(
            [
                f"kept             {self.kept:,} values, {self.kept_bytes / 2**20:.3f} MB",
                f"recomputed       {self.recomputed:,} ops",
                f"predicted peak   {self.peak_bytes / 2**20:.3f} MB",
                f"predicted extra  {self.extra_seconds * 1e3:.3f} ms ({share:.2f} times the forward's ops)",
            ]
        )


class _Walk:
    """A backward over copies of records, in which arrays are only numbers of bytes."""

    def __init__(self, scope: Dropping, records: Sequence[Record], budget: float | None) -> None:
        self.scope = scope
        self.budget = budget
        self.live = 0
        self.peak = 0
        self.recomputed = 0
        self.seconds = 0.0
        #: The bytes of the cotangents.
        self._beside = 0
        copies: dict[Record, Record] = {}
        blocks: dict[Block, Block] = {}
        for record in reversed(records):  # Oldest first.
            copies[record] = copy = Record()
            copy.op, copy.params, copy.needs, copy.index = record.op, record.params, record.needs, record.index
            copy.shape, copy.dtype, copy.code, copy.lasti = record.shape, record.dtype, record.code, record.lasti
            copy.cell, copy.version, copy.notes = record.cell, None, None
            copy.inputs = tuple(copies.get(link, link) if type(link) is Record else link for link in record.inputs)
            array = record.array
            if type(array) is Block:
                array = blocks.setdefault(array, Block(None if budget is None else self))
            elif array is not None:
                array = _HELD
                self.live += self._own_bytes(copy)
            copy.array = array
        self.kept_bytes = self.live
        self.originals = {copy: record for record, copy in copies.items()}
        self.records = [copies[record] for record in records]

    def hold(self, array: object) -> None:
        """Do nothing: `remake` has counted it."""

    def room(self) -> float:
        """Return how many bytes more may be held."""
        assert self.budget is not None
        return self.budget - self.live - self.scope.account.reserve

    def _own_bytes(self, record: Record) -> int:
        """Return the bytes that a value adds: a view adds none to what it is a view of."""
        return 0 if record.op.facts.aliases else record.nbytes

    def run(self) -> None:
        """Walk backward; count what is held and what runs again."""
        restorer = Restorer(self.records, self.remake)
        cotangents: dict[Record, int] = {}
        self._rise(0)
        for record in self.records:
            held = cotangents.pop(record, record.nbytes)
            self._beside = sum(cotangents.values()) + held
            positions, reads_out = record.op.kept(record.needs)
            links = record.inputs if positions is None else [record.inputs[i] for i in positions]
            for needed in [*links, *([record] if reads_out else [])]:
                if type(needed) is Record and not needed.is_kept:
                    restorer.restore(needed)
            for position, link in enumerate(record.inputs):
                if type(link) is Record and record.needs >> position & 1 and link not in cotangents:
                    cotangents[link] = link.nbytes
            self._rise(sum(cotangents.values()) + held)
            if record.is_kept:
                self.live -= self._own_bytes(record)
            record.array = None
            record.cell = FREED

    def remake(self, records: Sequence[Record], wanted: set[Record]) -> Made:
        """Count what running records again takes."""
        last_use = {link: i for i, record in enumerate(records) for link in record.inputs if type(link) is Record}
        passing: dict[Record, int] = {}
        for i, record in enumerate(records):
            self.recomputed += 1
            self.seconds += self.scope.seconds.get(self.originals[record], 0.0)
            if record in wanted:
                self.live += self._own_bytes(record)
            else:
                passing[record] = self._own_bytes(record)
            self._rise(self._beside + sum(passing.values()))
            for link in record.inputs:
                if type(link) is Record and last_use[link] == i:
                    passing.pop(link, None)
        return dict.fromkeys((record for record in records if record in wanted), _HELD)

    def _rise(self, beside: int) -> None:
        self.peak = max(self.peak, self.live + beside)


#: Stands for an array in a copy.
_HELD = object()


#: What the prediction may exceed a budget by.
_TOLERANCE = 1.02


def plan(scope: Dropping, records: Sequence[Record]) -> Plan:
    """Return what a backward over records, newest first, will do."""
    walk = _Walk(scope, records, scope.budget)
    walk.run()
    return Plan(
        sum(record.is_kept for record in records),
        walk.kept_bytes,
        walk.recomputed,
        max(walk.peak, scope.account.buffers.peak),
        walk.seconds,
        sum(scope.seconds.get(record, 0.0) for record in records),
    )


def prepare(scope: Dropping, records: Sequence[Record]) -> None:
    """Drop more, if a backward over records, newest first, would not stay within the budget as it is.

    Raise if it cannot, and name the least budget that it can stay within.
    """
    assert scope.budget is not None
    while not _fits(scope, records, scope.budget):
        if not scope.thin():
            least = _least(scope, records, scope.budget)
            raise MemoryBudgetError(
                f"memory_budget_mb: a backward over {len(records):,} records takes {least / 2**20:.3f} MB at least, "
                f"and {scope.budget / 2**20:.3f} MB were given; give at least that, or a smaller batch."
            )


def _fits(scope: Dropping, records: Sequence[Record], budget: float) -> bool:
    walk = _Walk(scope, records, budget)
    try:
        walk.run()
    except MemoryBudgetError:
        return False
    return walk.peak <= budget * _TOLERANCE


def _least(scope: Dropping, records: Sequence[Record], low: float) -> float:
    """Return the least budget that a backward over records can stay within, to a hundredth."""
    high = max(low, scope.account.largest) * 2
    while not _fits(scope, records, high):
        low, high = high, high * 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _fits(scope, records, middle) else (middle, high)
    return high
