"""Walk through a backward over a checkpointed graph without arrays, to see what it will hold and run again."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.apply import PICK
from ..core.binomial import Run
from ..core.cells import FREED
from ..core.context import entered
from ..core.facts import Back
from ..core.graph import Way
from ..core.op import Reads, Rule, same, shape_of
from ..core.reader import Reader
from ..core.recompute import Made, array_if_alive, remake
from ..core.record import Block, Link, Record
from ..core.restoring import Restorer
from ..core.reverse import KEPT
from ..core.value import Value
from .dropping import Dropping
from .layouts import Strides, computed, imagined, in_rows, reshaped, strides_of
from .stand_ins import Buffer, Cotangent, Count, KeptBuffers, View


@dataclass(frozen=True)
class Backward:
    """A backward that is planned for."""

    #: Those that it passes, newest first.
    records: Sequence[Record]
    #: Whether it frees what it passes.
    frees: bool = True
    #: The records, and leaves, whose cotangents stay.
    keeps: Set[Link] = frozenset()
    #: Whether it is recorded itself, for higher orders.
    is_recorded: bool = False
    #: The way to the sources that are wanted, in the records.
    way: Way = (None, None)


class Outcome(NamedTuple):
    """What a walk through a backward has found. It holds nothing of it."""

    #: The most bytes that were held at once, and those that records keep before it begins.
    peak: int
    kept_bytes: int
    #: How many records ran again, and how long that takes, by what their ops took the first time.
    recomputed: int
    seconds: float
    #: How much may be used at once for what a record reads, by its index, in the order in which it reads.
    decisions: dict[int, list[float]]
    #: Whether the walk came to its end, and was not given up for what it would hold.
    is_whole: bool


#: How many records there may be in all runs that are known.
_MOST_KNOWN = 100_000


class Known:
    """What walks through the same backward have found, for those that come after them."""

    def __init__(self) -> None:
        self._runs: dict[Any, Run] = {}
        self._total = 0
        #: The step that all of them have taken: none.
        self.start = Step()

    def as_run(self, order: list[Record], wanted: set[Record], size: Callable[[Record], int]) -> Run:
        """Return the run of some records, which knows the ways to cut it that were tried before."""
        key = tuple([(record.index, record in wanted) for record in order])
        run = self._runs.get(key)
        if run is None:
            run = Run(order, wanted, size)
            self._total += len(order)
            if self._total <= _MOST_KNOWN:
                self._runs[key] = run
        return run


class Step:
    """What walks have in common that have made the same again so far: the ways on, and what they hold at least."""

    __slots__ = ("_next", "peak")

    def __init__(self) -> None:
        self._next: dict[Any, Step] = {}
        self.peak = 0

    def to(self, order: Sequence[Record], kept: Set[Record]) -> "Step":
        """Return the next step: to make records again and keep some."""
        # Of the records that are still to be made again, those that come next are told by their last and their number.
        key = order[-1].index, len(order), tuple([record.index for record in order if record in kept])
        return self._next.setdefault(key, Step())


class _GivenUpError(Exception):
    """A walk holds more than it may."""


class Walk:
    """A backward over copies of records, in which arrays are only numbers of bytes.

    What is made again, and when it is dropped, the code of a real one decides: `Restorer` and `remake`. The rest is its
    mirror image, and changes with it: `_run` and `_pulled` that of the loop of `reverse`, `_pass_on` of `accumulate`,
    `back_of` of `fit` and of what rules return, `_reads` of `Rule.run`, `_run_again` of `recompute.run_again`.

    Args:
        scope: what the tape keeps.
        backward: the backward.
        budget: what it may use; it takes more where it cannot do with less. None for no bound.
        most: the walk ends where more than this is held.
        is_tight: records run again in what is left beside the cotangent that their reader gives later. With less room
            they keep less on the way, which may turn out to be better.
        known: what others have found that set out from the same; None for nothing.
    """

    def __init__(
        self,
        scope: Dropping,
        backward: Backward,
        budget: float | None,
        most: float = math.inf,
        is_tight: bool = False,
        known: Known | None = None,
    ) -> None:
        self.scope = scope
        self.backward = backward
        self.budget = budget
        self.most = most
        self.is_tight = is_tight
        self.known = Known() if known is None else known
        self._step = self.known.start
        self.count = Count()
        self.recomputed = 0
        self.seconds = 0.0
        self.decisions: dict[int, list[float]] = {}
        self.originals: dict[Record, Record] = {}
        copies: dict[Record, Record] = {}
        blocks: dict[Block, Block] = {}
        records = backward.records
        buffers = KeptBuffers(scope, records, self.count)
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
            copy.array = buffers.of(array_if_alive(record))
            if type(block) is Block:
                if block not in blocks:
                    is_bounded = budget is not None and block.limit is not None
                    blocks[block] = Block(self if is_bounded else None, block.is_shared, block.is_unread)
                if copy.array is None:
                    copy.array = blocks[block]
                else:
                    blocks[block].drop(copy)
        self.records = [copies[record] for record in records]
        #: How many bytes what a record runs itself takes, and how many it lets go.
        self._inside: dict[Record, tuple[int, int]] = {}
        for copy in self.records:
            if copy.op.facts.inside is not None:
                inside = copy.op.facts.inside(**(copy.params or {}))
                self._inside[copy] = inside.nbytes, buffers.bytes_besides(inside.let_go)
        #: The record whose rule was asked last, and what it gave.
        self._asked: tuple[Record | None, Any] = (None, None)
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
        """Note how much is used: of what is left for a reader's cotangent first, then while records run again."""
        decided = self.decisions.setdefault(reader.index, [])
        if self.is_tight and len(decided) % 2:
            room = decided[-1]
        decided.append(room)
        return room

    def size(self, record: Record) -> int:
        """Return the bytes that a record's output takes: none if it is a view."""
        return self.scope.account.size(record)

    def exceed(self, record: Record, missing: float) -> None:
        """Leave it: the peak decides."""

    @property
    def peak(self) -> int:
        """The most bytes that were held at once."""
        return self.count.peak

    def run(self) -> Outcome:
        """Walk backward, once; return what is held and what runs again."""
        is_whole = False
        try:
            # Nobody looks at rules that are only asked.
            with entered(scopes=(), observers=()), contextlib.suppress(_GivenUpError):
                self._run()
                is_whole = True
            return Outcome(self.peak, self.kept_bytes, self.recomputed, self.seconds, self.decisions, is_whole)
        finally:
            # Blocks in the copies refer to the walk. Without this, they would live until garbage is collected, and be
            # taken for records of the program.
            self.records = []
            self.originals = {}
            self._inside = {}
            self._asked = (None, None)

    def _run(self) -> None:
        cotangents: dict[Record, Any] = {}
        kept: list[Any] = []
        leaves: set[Any] = set()
        of_leaves: list[Cotangent] = []
        restorer = Restorer(self.records, cotangents, self._remake, as_run=self.known.as_run)
        inner = {link for record in self.records for i, link in enumerate(record.inputs) if record.needs >> i & 1}
        useful = self.backward.way[0]
        self.count.peak = self.count.live
        for record in self.records:
            g = cotangents.pop(record, None)
            if g is None:
                if record in inner:  # Nothing flows to it.
                    continue
                g = Cotangent(self.count, record)
            if not isinstance(g, list) and self.originals[record] in self.backward.keeps:
                kept.append(g)
                g.stay()
            if useful is not None and self.originals[record] not in useful:
                continue
            if record in self._inside:
                nbytes, let_go = self._inside[record]
                self.count.peak = max(self.count.peak, self.count.live + nbytes)
                if self.backward.frees:
                    self.count.live -= let_go
            positions = self._pulled(record)
            for needed in _reads(record, positions):
                if type(needed) is Record and not needed.is_kept:
                    restorer.restore(needed, record, g)
            for position in positions:
                link = record.inputs[position]
                if type(link) is Record:
                    self._pass_on(record, position, link, g, cotangents)
                elif link not in leaves:  # What comes later is added.
                    leaves.add(link)
                    if not isinstance(g, list) and back_of(record, position) in (Back.SHARED, Back.RESHAPED):
                        of_leaves.append(getattr(g, "base", g))
            of_leaves = self._let_leaves_go(of_leaves, cotangents)
            self._give_up_beyond_most()
            restorer.drop(record)
            if self.backward.frees:
                record.array = None
                record.cell = FREED

    def _let_leaves_go(self, of_leaves: list[Cotangent], cotangents: dict[Record, Any]) -> list[Cotangent]:
        """Count no more what became the gradient of a leaf, and return those of them that records wait for, too."""
        if not of_leaves:
            return of_leaves
        parts = (part for g in cotangents.values() for part in (g if isinstance(g, list) else (g,)))
        waiting = {id(getattr(part, "base", part)) for part in parts}
        for g in of_leaves:
            if id(g) not in waiting:
                g.leave()
        return [g for g in of_leaves if id(g) in waiting]

    def _pulled(self, record: Record) -> list[int]:
        """Return the positions of the operands to which a sweep pulls the cotangent of a record."""
        tracked = [i for i in range(len(record.inputs)) if record.needs >> i & 1]
        useful, wanted = self.backward.way
        if useful is None or record.op.plans.get(record.needs) is None:  # As `reverse` does.
            return tracked
        known: dict[Any, Any] = self.originals
        links = {i: known.get(record.inputs[i], record.inputs[i]) for i in tracked}
        return [i for i, link in links.items() if link in useful or (wanted is not None and link in wanted)]

    def _pass_on(self, record: Record, position: int, link: Record, g: Any, cotangents: dict[Record, Any]) -> None:
        """Give an input the cotangent that a record's rule makes of its own: new, or the same memory."""
        if record.op is PICK:
            cotangents.setdefault(link, []).append(g)
            return
        before = cotangents.get(link)
        back = Back.OWN if isinstance(g, list) else back_of(record, position)
        if before is not None:
            # A sum is made in place if nobody else holds what it is added to, and that is no view.
            if sys.getrefcount(before) != KEPT or isinstance(before, View):
                added = self._strides_given(record, position, link, g, back) or in_rows(link.shape)
                strides = computed(link.shape, (before.strides, added))
                del before, cotangents[link]  # Both are there only while the op runs.
                cotangents[link] = Cotangent(self.count, link, strides)
            return
        if back is Back.SHARED and getattr(record.op.pull(position), "function", None) is same:
            cotangents[link] = g
            return
        given = self._strides_given(record, position, link, g, back)
        if back is Back.OWN or given is None:
            cotangents[link] = Cotangent(self.count, link, given)
        else:
            cotangents[link] = View(Cotangent(self.count, record) if back is Back.REPEATED else g, given)

    def _strides_given(self, record: Record, position: int, link: Record, g: Any, back: Back) -> Strides | None:
        """Return how the cotangent lies that a record's rule gives; None if it is new and lies in order."""
        if back is Back.RESHAPED:
            return reshaped(record.shape, g.strides, link.shape)
        if back is not Back.OWN:
            return self._strides_of_view(record, position, g)
        if not record.op.is_elementwise or isinstance(g, list) or link.shape != record.shape:
            return None
        reads = [self._strides_of(read) for read in _reads(record, [position]) if shape_of(read) == record.shape]
        return computed(record.shape, (g.strides, *reads))

    def _strides_of_view(self, record: Record, position: int, g: Any) -> Strides:
        """Return how the view lies that a record's rule gives of a cotangent: the rule itself is asked."""
        rule = record.op.pull(position)
        assert isinstance(rule, Rule)
        is_joint = record.op.joint is not None and rule.function is record.op.joint.function
        if not is_joint or record is not self._asked[0]:
            self._asked = record, rule.run(imagined(record.shape, g.strides), record, Reader(None), position)
        found = self._asked[1]
        return strides_of(found[position] if is_joint else found)

    def _strides_of(self, read: Any) -> Strides:
        """Return how what a rule reads lies, or lay before it was dropped."""
        if type(read) is not Record:
            array = read.array if isinstance(read, Value) else read
            return strides_of(array) if isinstance(array, np.ndarray) else in_rows(shape_of(read))
        array = array_if_alive(self.originals.get(read, read))
        known = self.scope.account.strides.get(read.index)
        return strides_of(array) if isinstance(array, np.ndarray) else known or in_rows(read.shape)

    def _give_up_beyond_most(self) -> None:
        if self.peak > self.most:
            self._step.peak = self.peak
            raise _GivenUpError

    def _remake(self, records: Sequence[Record], wanted: set[Record], alive: Made) -> Made:
        if records:
            self._step = self._step.to(records, wanted)
        self.count.peak = max(self.count.peak, self._step.peak)
        self._give_up_beyond_most()
        return remake(records, wanted, alive, self._run_again)

    def _run_again(self, record: Record, made: Made) -> Any:
        """Return what stands for the output of a record, and count that it runs again."""
        self.recomputed += 1
        self.seconds += self.scope.seconds.get(self.originals[record], 0.0)
        is_several = isinstance(record.shape, list)
        if not self.size(record) and record.inputs:
            first = record.inputs[0]
            base: Any = made.get(first, first.array) if type(first) is Record else Buffer(self.count, 0)
            if record.op is PICK:
                assert record.params is not None
                return base[record.params["position"]]
            return (base,) * len(record.shape) if is_several else base
        if is_several:
            parts = zip(record.shape, record.dtype, strict=True)
            return tuple(Buffer(self.count, math.prod(shape) * dtype.itemsize) for shape, dtype in parts)
        return Buffer(self.count, record.made_bytes)


def _reads(record: Record, positions: Sequence[int]) -> Iterator[Any]:
    """Yield what the rules of a record for some operands read, in the order in which they do."""
    op = record.op
    for rule in [op.joint] if op.joint is not None else [op.pull(i) for i in positions]:
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
    return back(record.op.argument(position), link.shape, **(record.params or {}))
