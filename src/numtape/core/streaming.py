"""Push tangents while ops run, so that forward mode needs no stored tape: memory does not grow with the number of ops.

Ops leave records as ever, since the faces are fast at that. A streaming tape pushes tangents through them in small
batches, then cuts their links: what is left of a record is the tangent of its tensor, and it goes with that tensor. A
reverse sweep that would have to go past a cut raises `StreamedError`, and whoever streams then stores instead.
"""

import math
import sys
import weakref
from typing import Any

import numpy as np

from ..errors import FreedError, StreamedError
from .cells import Past
from .context import current
from .facts import Facts
from .forward import Tangents, push_all
from .graph import begins_tracked, collect
from .op import Op
from .reader import Reader
from .record import Gone, Link, Record, next_index
from .reverse import KEPT
from .tape import RecordingTape
from .value import Value

#: How much may wait to be pushed, in elements; a record counts as some hundred more. Enough to make the sweep's own
#: overhead small, little beside what a function itself holds.
_ROOM = 2**17
_RECORD = 512
_getrefcount = sys.getrefcount


class _Batch(list[Record]):
    """The records of a streaming tape that were not pushed yet."""

    __slots__ = ("room", "tape")

    def __init__(self, tape: "StreamingTape") -> None:
        self.tape = tape
        self.room = _ROOM

    def append(self, record: Record) -> None:
        super().append(record)
        shape = record.shape
        self.room -= _RECORD + (math.prod(shape) if type(shape) is tuple else sum(map(math.prod, shape)))
        if self.room <= 0:
            self.tape.settle()


class StreamingTape(RecordingTape):
    """A tape that pushes tangents through its records and forgets them."""

    __slots__ = (
        "alive",
        "constants",
        "depth",
        "failure",
        "heeded",
        "known_cells",
        "must_be_alone",
        "past",
        "pushed",
        "start",
        "tangents",
        "waiting",
    )

    forgets = True
    tangents: Tangents

    def __init__(self, sources: Tangents, must_be_alone: bool = False) -> None:
        super().__init__(watch_all=False)
        self.records: list[Record] = _Batch(self)
        self.tangents = sources
        #: Whether to raise if what is streamed depends on a tensor that others may differentiate by: they would find
        #: its links cut.
        self.must_be_alone = must_be_alone
        #: The error that ended the stream, which the function may have caught.
        self.failure: BaseException | None = None
        #: The number of transforms around the function that this tape streams.
        self.depth = current().transforms + 1
        #: Nothing older depends on the sources.
        self.start = next_index()
        #: The generations of records that were listed here and have links; other threads make records of others.
        self.known_cells = {self.cell}
        #: The generation of the records whose links were cut.
        self.past = Past()
        #: Older records that lead to nothing that anybody differentiates by.
        self.constants: set[Record] = set()
        #: Tapes that watch something, whether they are entered or not.
        self.heeded: list[weakref.ref[RecordingTape]] = []
        #: What was recorded while there were tapes within, with these: it has links as long as one may need them.
        self.waiting: list[tuple[list[weakref.ref[RecordingTape]], list[Record]]] = []
        #: How many tangents there were when it was last looked which tensors are gone, and what was pushed since.
        self.alive = 0
        self.pushed = 0

    def settle(self) -> None:
        """Push tangents through the records that wait; forget the tangents of tensors that are gone."""
        if not isinstance(self.records, _Batch):
            return  # It has ended, but a generator still holds the state of a block inside.
        batch = self.records[:]
        self.records.clear()
        self.pushed += _ROOM - self.records.room
        self.records.room = _ROOM
        if batch:
            self.known_cells.update([record.cell for record in batch if record.cell is not self.cell])
            try:
                push_all(batch, self.tangents, Reader(None), find=self._find)
            except FreedError as error:
                # Something put an older value into a record, whose array the stream has dropped since.
                raise self._missed("a value is read that a forward derivative has streamed past.") from error
            except BaseException as error:
                self.failure = error
                raise
            self._let_go(batch)
            del batch
        elif self.waiting:
            self._let_go([])
        tangents = self.tangents
        # Not after each of many small batches, while there are many tangents.
        if self.pushed >= max(_ROOM // 2, _RECORD * self.alive):
            # Records that only the dictionary and the loop hold are out of everybody else's reach.
            for link in [link for link in tangents if type(link) is Record and _getrefcount(link) <= KEPT]:
                del tangents[link]
            self.alive, self.pushed = len(tangents), 0

    def _let_go(self, batch: list[Record]) -> None:
        """Cut the links of records that were pushed; not while transforms and tapes within may need them."""
        state = current()
        if state.transforms != self.depth:
            return  # What is computed outside of the transform will have no links to them.
        self.heeded = list(filter(_is_in_need, self.heeded))
        within = [weakref.ref(tape) for tape in state.tapes if tape is not self]
        self.waiting.append(([*within, *self.heeded], batch))
        if within:
            return
        waiting, self.waiting = self.waiting, []
        self.known_cells = {self.cell}
        for tapes, records in waiting:
            if any(map(_is_in_need, tapes)):
                self.waiting.append((tapes, records))
                self.known_cells.update(record.cell for record in records)
                continue
            for record in records:
                _cut(record, self.past)

    def heed(self, tape: RecordingTape) -> None:
        """Leave the links of what is computed from now on, as long as a tape within watches something."""
        self.settle()
        self.heeded.append(weakref.ref(tape))

    def tangent_of(self, link: Link) -> Any:
        """Return the tangent of a value of the function, None if it does not depend on the sources."""
        if self.failure is not None:
            raise self.failure
        tangent = self.tangents.get(link)
        return self._find(link) if tangent is None else tangent

    def _find(self, link: Link) -> Any:
        """Return the tangent of a value that has none yet: another thread may have made it, unlisted here."""
        if type(link) is not Record or link.index <= self.start:
            return self._look_at_other(link)
        if link.cell in self.known_cells or type(link.cell) is Past:
            return None
        records = [record for record in reversed(collect([link])) if type(record.cell) is not Past]
        try:
            push_all(records, self.tangents, Reader(None), find=self._look_at_other)
        except FreedError as error:
            raise self._missed("another thread reads a value that a forward derivative has streamed past.") from error
        return self.tangents.get(link)

    def _look_at_other(self, link: Link) -> None:
        """Raise for a tracked value that does not depend on the sources, if there must be none."""
        if not self.must_be_alone or link in self.constants:
            return
        if type(link) is Record:
            is_other = link.index <= self.start and begins_tracked(([], [link]))
            if not is_other:
                self.constants.add(link)
        else:
            is_other = isinstance(link, Value) and link.node is not None and not self._is_within(link)
        if is_other:
            raise self._missed(
                "a function that captures a tensor which requires a gradient, or which others differentiate by, cannot "
                "be streamed; call jvp with tensors instead of arrays."
            )

    def _is_within(self, leaf: Value) -> bool:
        """Say whether a leaf is the argument of a transform inside of the function: it goes with that."""
        extras = leaf.extras
        return extras is not None and extras.is_argument and (extras.since or 0) > self.start

    def _missed(self, message: str) -> StreamedError:
        """Return the error that ends the stream, and note it: the function may make something else of it."""
        self.past.is_missed = True
        return StreamedError(message)

    def end(self) -> None:
        """Forget everything."""
        self.records = []
        self.tangents = {}
        self.constants = set()
        self.waiting = []
        self.failure = None
        self.past.is_over = True
        super().end()


def _is_in_need(reference: "weakref.ref[RecordingTape]") -> bool:
    """Say whether a tape may still be asked for derivatives of what it saw."""
    tape = reference()
    return tape is not None and bool(tape.records or tape.watched)


def _streamed() -> None:
    """The history of a tensor that a forward derivative has streamed past."""


#: The op of a record whose links were cut, and what stands in their place: neither a record nor a source.
STREAMED = Op(_streamed, _streamed, pulls={}, pushes={}, facts=Facts(cost=lambda out: 0))
_CUT = (Gone((), np.dtype(np.float64)),)


def _cut(record: Record, past: Past) -> None:
    record.op = STREAMED
    record.inputs = _CUT
    record.params = None
    record.needs = 0
    record.array = None
    record.cell = past
