"""Foresee what a backward over a checkpointed graph will hold and run again, by walking a copy of it without arrays."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.apply import PICK
from ..core.buffers import buffer_of, held_by_others
from ..core.context import FREED
from ..core.op import Back, Reads, Rule, same
from ..core.recompute import Made, array_of, remake
from ..core.record import Block, Record
from ..core.restoring import Restorer
from ..core.reverse import KEPT
from ..core.value import Value
from ..dtypes import HALF_DTYPES
from ..errors import MemoryBudgetError
from .dropping import Dropping, as_megabytes


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
                f"kept             {self.kept:,} values, {as_megabytes(self.kept_bytes)}",
                f"recomputed       {self.recomputed:,} ops",
                f"predicted peak   {as_megabytes(self.peak_bytes)}",
                f"predicted extra  {self.extra_seconds * 1e3:.3f} ms ({share:.2f} times the forward's ops)",
            ]
        )


class _Count:
    """The bytes of the buffers of a walk that are alive, now and at most, and those of them that cotangents take."""

    __slots__ = ("live", "moved", "peak")

    def __init__(self) -> None:
        self.live = self.moved = self.peak = 0


class _Buffer:
    """Stands for an array and its views in a walk, and is counted as long as it lives."""

    __slots__ = ("__weakref__", "_count", "nbytes")

    def __init__(self, count: _Count, nbytes: int) -> None:
        self._count = count
        self.nbytes = nbytes
        count.live += nbytes
        count.peak = max(count.peak, count.live)

    def __del__(self) -> None:
        self._count.live -= self.nbytes


class _Cotangent(_Buffer):
    """Stands for a cotangent and its views."""

    __slots__ = ()

    def __init__(self, count: _Count, record: Record) -> None:
        is_half = not isinstance(record.dtype, list) and record.dtype in HALF_DTYPES
        super().__init__(count, record.nbytes * 2 if is_half else record.nbytes)  # Halves are carried in float32.
        count.moved += self.nbytes

    def __del__(self) -> None:
        super().__del__()
        self._count.moved -= self.nbytes


class _View:
    """Stands for a cotangent that is a view of another: nothing is added to it in place."""

    __slots__ = ("base",)

    def __init__(self, of: "_Cotangent | _View") -> None:
        self.base: _Cotangent = of.base if isinstance(of, _View) else of


class _Walk:
    """A backward over copies of records, by the code of a real one, in which arrays are only numbers of bytes."""

    def __init__(self, scope: Dropping, records: Sequence[Record], budget: float | None, frees: bool = True) -> None:
        self.scope = scope
        self.budget = budget
        #: Whether the arrays behind the walk are freed.
        self.frees = frees
        self.count = _Count()
        self.recomputed = 0
        self.seconds = 0.0
        #: How much may be used at once for what a record reads, by its index, in the order in which it reads.
        self.decisions: dict[int, list[float]] = {}
        self.originals: dict[Record, Record] = {}
        copies: dict[Record, Record] = {}
        blocks: dict[Block, Block] = {}
        buffers = _Buffers(scope, records, self.count)
        #: What the program holds: it stays, whatever records let go.
        self.held = buffers.held
        for record in reversed(records):  # Oldest first.
            copies[record] = copy = Record()
            self.originals[copy] = record
            copy.op, copy.params, copy.needs, copy.index = record.op, record.params, record.needs, record.index
            copy.shape, copy.dtype, copy.code, copy.lasti = record.shape, record.dtype, record.code, record.lasti
            copy.cell, copy.version, copy.notes = record.cell, record.version, record.notes
            copy.inputs = tuple(copies.get(link, link) if type(link) is Record else link for link in record.inputs)
            block = record.array
            copy.array = buffers.of(array_of(record))
            if type(block) is Block:
                if block not in blocks:
                    blocks[block] = Block(None if budget is None else self, block.is_shared)
                if copy.array is None:
                    copy.array = blocks[block]
                else:
                    blocks[block].drop(copy)
        self.records = [copies[record] for record in records]
        self.kept_bytes = self.count.live
        # What the program holds besides, and what else records hold, stays.
        self.count.live += max(0, scope.account.buffers.live - buffers.known)

    def hold(self, array: object) -> None:
        """Do nothing: a buffer counts itself."""

    def room(self) -> float:
        """Return how many bytes more may be held, beside cotangents."""
        assert self.budget is not None
        return self.budget - (self.count.live - self.count.moved)

    def decide(self, reader: Record, room: float) -> float:
        """Note how much is used."""
        self.decisions.setdefault(reader.index, []).append(room)
        return room

    def size(self, record: Record) -> int:
        """Return the bytes that a record's output takes: none if it is a view."""
        return self.scope.account.size(record)

    def exceed(self, record: Record, missing: float) -> None:
        """Note that all is made at once: it is only so long over what there is room for, and the peak decides."""
        self.decisions[record.index][-1] = math.inf

    def run(self) -> None:
        """Walk backward, once; count what is held and what runs again."""
        try:
            self._run()
        finally:
            # Blocks in the copies refer to the walk. Without this, they would live until garbage is collected, and be
            # taken for records of the program.
            self.records = []
            self.originals = {}

    def _run(self) -> None:
        cotangents: dict[Record, Any] = {}
        restorer = Restorer(self.records, cotangents, self._remake)
        inner = {link for record in self.records for i, link in enumerate(record.inputs) if record.needs >> i & 1}
        self.count.peak = self.count.live
        for record in self.records:
            g = cotangents.pop(record, None)
            if g is None:
                if record in inner:  # Nothing flows to it.
                    continue
                g = _Cotangent(self.count, record)
            for needed in _reads(record):
                if type(needed) is Record and not needed.is_kept:
                    restorer.restore(needed, record, g)
            for position, link in enumerate(record.inputs):
                if type(link) is Record and record.needs >> position & 1:
                    self._pass_on(record, position, link, g, cotangents)
            restorer.drop(record)
            if self.frees:
                record.array = None
                record.cell = FREED

    def _pass_on(self, record: Record, position: int, link: Record, g: Any, cotangents: dict[Record, Any]) -> None:
        """Give an input the cotangent that a record's rule makes of its own: new, or the same memory."""
        if record.op is PICK:
            cotangents.setdefault(link, []).append(g)
            return
        before = cotangents.get(link)
        back = Back.OWN if isinstance(g, list) or before is not None else back_of(record, position)
        if back is Back.SHARED:
            cotangents[link] = g if getattr(record.op.pull(position), "function", None) is same else _View(g)
        elif back is Back.REPEATED:
            cotangents[link] = _View(_Cotangent(self.count, record))
        # A sum is made in place if nobody else holds what it is added to, and that is no view.
        elif before is None or sys.getrefcount(before) != KEPT or isinstance(before, _View):
            cotangents[link] = _Cotangent(self.count, link)

    def _remake(self, records: Sequence[Record], wanted: set[Record], alive: Made) -> Made:
        return remake(records, wanted, alive, self._run_again)

    def _run_again(self, record: Record, made: Made) -> Any:
        """Return what stands for the output of a record, and count that it runs again."""
        self.recomputed += 1
        self.seconds += self.scope.seconds.get(self.originals[record], 0.0)
        is_several = isinstance(record.shape, list)
        if not self.size(record) and record.inputs:
            first = record.inputs[0]
            base: Any = made.get(first, first.array) if type(first) is Record else _Buffer(self.count, 0)
            if record.op is PICK:
                assert record.params is not None
                return base[record.params["position"]]
            return (base,) * len(record.shape) if is_several else base
        if is_several:
            parts = zip(record.shape, record.dtype, strict=True)
            return tuple(_Buffer(self.count, math.prod(shape) * dtype.itemsize) for shape, dtype in parts)
        return _Buffer(self.count, record.made_bytes)


def _arrays(array: Any) -> tuple[Any, ...]:
    """Return the arrays that there are for a record: none, one or several."""
    return () if array is None else array if isinstance(array, tuple) else (array,)


class _Buffers:
    """What stands for the arrays that records keep: one for each buffer, however many arrays are views of it."""

    def __init__(self, scope: Dropping, records: Sequence[Record], count: _Count) -> None:
        self._account = scope.account
        self._count = count
        self._made: dict[int, _Buffer] = {}
        #: The memory of leaves, which does not count.
        self._outside = {
            id(buffer_of(link.array)) for record in records for link in record.inputs if isinstance(link, Value)
        }
        #: The bytes of those buffers that the account counts, too.
        self.known = 0
        kept = [array for record in records if record.is_kept for array in _arrays(record.array)]
        found = [array for record in records if not record.is_kept for array in _arrays(array_of(record))]
        ids = held_by_others(kept, found)
        self.held = [self.of(array) for array in (*kept, *found) if id(buffer_of(array)) in ids]

    def of(self, array: Any) -> Any:
        """Return what stands for an array, or for each of several; None for none."""
        if array is None:
            return None
        if isinstance(array, tuple):
            return tuple(map(self.of, array))
        buffer = buffer_of(array)
        if id(buffer) not in self._made:
            is_known = array in self._account.buffers
            counts = is_known or id(buffer) not in self._outside
            self._made[id(buffer)] = _Buffer(self._count, buffer.nbytes if counts else 0)
            self.known += buffer.nbytes if is_known else 0
        return self._made[id(buffer)]


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


def back_of(record: Record, position: int) -> Back:
    """Return which memory the cotangent of a record's input takes."""
    link, rule = record.inputs[position], record.op.pull(position)
    if record.dtype != link.dtype or not isinstance(rule, Rule):
        return Back.OWN
    if rule.function is same:
        return Back.SHARED if record.shape == link.shape else Back.OWN
    back = record.op.facts.back
    if isinstance(back, Back):
        return back
    argument = record.op.arguments[0 if record.op.is_variadic else position]
    return back(argument, link.shape, **(record.params or {}))


#: What the prediction may exceed a budget by.
_TOLERANCE = 1.02


def plan(scope: Dropping, records: Sequence[Record], frees: bool = True) -> Plan:
    """Return what a backward over records, newest first, will do; `frees` says whether it frees what it passes."""
    walk = _Walk(scope, records, scope.budget, frees)
    walk.run()
    return Plan(
        sum(record.is_kept for record in records),
        walk.kept_bytes,
        walk.recomputed,
        max(walk.count.peak, scope.account.buffers.peak),
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
            least = as_megabytes(_least(scope, records, scope.budget, frees), is_least=True)
            raise MemoryBudgetError(
                f"memory_budget_mb: a backward over {len(records):,} records takes {least} at least, and "
                f"{as_megabytes(scope.budget)} were given; give at least that, or a smaller batch."
            )
    scope.account.plan = walk.decisions


def _walk_within(scope: Dropping, records: Sequence[Record], budget: float, frees: bool) -> _Walk | None:
    """Return a walk that stays within a budget, if there is one."""
    walk = _Walk(scope, records, budget, frees)
    try:
        walk.run()
    except MemoryBudgetError:
        return None
    return walk if walk.count.peak <= budget * _TOLERANCE else None


def _least(scope: Dropping, records: Sequence[Record], low: float, frees: bool) -> float:
    """Return the least budget that a backward over records can stay within, to a hundredth."""
    high = max(low, scope.account.largest) * 2
    while _walk_within(scope, records, high, frees) is None:
        low, high = high, high * 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _walk_within(scope, records, middle, frees) else (middle, high)
    return high
