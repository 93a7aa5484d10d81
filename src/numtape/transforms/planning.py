"""Foresee what a backward over a checkpointed graph will hold and run again, by walking a copy of it without arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core.binomial import Run
from ..core.context import FREED
from ..core.op import Reads, Rule, Structure
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

    def __init__(self, scope: Dropping, records: Sequence[Record], budget: float | None, frees: bool = True) -> None:
        self.scope = scope
        self.budget = budget
        #: Whether the arrays behind the walk are freed.
        self.frees = frees
        self.live = 0
        self.peak = 0
        self.recomputed = 0
        self.seconds = 0.0
        #: How much may be used at once for what a record reads, by its index.
        self.decisions: dict[int, float] = {}
        #: The bytes of the cotangents.
        self._beside = 0
        #: The bytes that each record holds.
        self._held: dict[Record, int] = {}
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
                self._held[copy] = self.size(copy)
                self.live += self._held[copy]
            copy.array = array
        self.kept_bytes = self.live
        # What the program holds besides, and what else records hold, stays.
        self.live = max(self.live, scope.account.buffers.live)
        self.originals = {copy: record for record, copy in copies.items()}
        self.records = [copies[record] for record in records]

    def hold(self, array: object) -> None:
        """Do nothing: `remake` has counted it."""

    def room(self) -> float:
        """Return how many bytes more may be held."""
        assert self.budget is not None
        return self.budget - self.live

    def decide(self, reader: Record, room: float) -> float:
        """Note how much is used."""
        self.decisions[reader.index] = room
        return room

    def size(self, record: Record) -> int:
        """Return the bytes that a record's output takes: none if it is a view."""
        return self.scope.account.size(record)

    def exceed(self, record: Record, missing: float) -> None:
        """Raise: there is no way within the budget."""
        raise MemoryBudgetError(f"memory_budget_mb: {missing:,.0f} bytes are missing at {record.site}.")

    def run(self) -> None:
        """Walk backward; count what is held and what runs again."""
        cotangents: dict[Record, _Cotangent] = {}
        restorer = Restorer(self.records, cotangents, self.remake)
        self._rise(0)
        for record in self.records:
            held = cotangents.pop(record, _Cotangent(record.nbytes)).nbytes
            self._beside = sum(g.nbytes for g in cotangents.values()) + held
            for needed in _reads(record):
                if type(needed) is Record and not needed.is_kept:
                    restorer.restore(needed, record, _Cotangent(held))
            for position, link in enumerate(record.inputs):
                if type(link) is Record and record.needs >> position & 1 and link not in cotangents:
                    cotangents[link] = _Cotangent(record.nbytes if _repeats(record) else link.nbytes)
            self._rise(sum(g.nbytes for g in cotangents.values()) + held)
            if record.is_kept and (self.frees or record in restorer.restored):
                self.live -= self._held.pop(record, 0)
            if self.frees:
                record.array = None
                record.cell = FREED
            else:
                restorer.drop(record)

    def remake(self, records: Sequence[Record], wanted: set[Record]) -> Made:
        """Count what running records again takes."""
        run = Run(records, wanted, self.size)
        self._rise(self._beside + run.peak)
        for record in records:
            self.recomputed += 1
            self.seconds += self.scope.seconds.get(self.originals[record], 0.0)
        # A view holds what it is a view of, if nobody else does.
        owners: set[Record] = set()
        inside = set(records)
        for record in records:
            if record in wanted:
                owner = record
                while not self.size(owner) and type(owner.inputs[0]) is Record and owner.inputs[0] in inside:
                    owner = owner.inputs[0]
                self._held[record] = 0 if owner in owners else self.size(owner)
                self.live += self._held[record]
                owners.add(owner)
        return dict.fromkeys((record for record in records if record in wanted), _HELD)

    def _rise(self, beside: int) -> None:
        self.peak = max(self.peak, self.live + beside)


def _reads(record: Record) -> Iterator[Any]:
    """Yield what the rules of a record read, in the order in which they do."""
    op = record.op
    tracked = [i for i in range(len(record.inputs)) if record.needs >> i & 1]
    for rule in [op.joint] if op.joint is not None else [op.pull(i) for i in tracked]:
        for kind, key in rule.reads if isinstance(rule, Rule) else ():
            if kind is Reads.OPERAND:
                yield record.inputs[key]
            elif kind is Reads.OPERANDS:
                yield from record.inputs
            elif kind is Reads.OUT:
                yield record


def _repeats(record: Record) -> bool:
    """Say whether the cotangent of a record's input is its own, repeated without a copy: so it is of a sum."""
    facts = record.op.facts
    return facts.structure is Structure.LANES and bool(facts.linear) and len(record.inputs) == 1


class _Cotangent(NamedTuple):
    """Stands for a cotangent."""

    nbytes: int


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


def prepare(scope: Dropping, records: Sequence[Record], frees: bool) -> None:
    """Drop more, if a backward over records, newest first, would not stay within the budget as it is.

    Raise if it cannot, and name the least budget that it can stay within. `frees` says whether it frees what it passes.
    """
    assert scope.budget is not None
    while (walk := _walk_within(scope, records, scope.budget, frees)) is None:
        if not scope.thin():
            # With room for one value more: what a rule needs inside of it is not foreseen.
            least = _least(scope, records, scope.budget, frees) + scope.account.largest
            raise MemoryBudgetError(
                f"memory_budget_mb: a backward over {len(records):,} records takes {least / 2**20:.3f} MB at least, "
                f"and {scope.budget / 2**20:.3f} MB were given; give at least that, or a smaller batch."
            )
    scope.account.plan = walk.decisions


def _walk_within(scope: Dropping, records: Sequence[Record], budget: float, frees: bool) -> _Walk | None:
    """Return a walk that stays within a budget, if there is one."""
    walk = _Walk(scope, records, budget, frees)
    try:
        walk.run()
    except MemoryBudgetError:
        return None
    return walk if walk.peak <= budget * _TOLERANCE else None


def _least(scope: Dropping, records: Sequence[Record], low: float, frees: bool) -> float:
    """Return the least budget that a backward over records can stay within, to a hundredth."""
    high = max(low, scope.account.largest) * 2
    while _walk_within(scope, records, high, frees) is None:
        low, high = high, high * 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _walk_within(scope, records, middle, frees) else (middle, high)
    return high
