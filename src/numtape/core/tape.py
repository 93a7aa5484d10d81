"""What a tape is to the engine: a list of the records made while it is active, and the tensors that it watches."""

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .cells import Cell
from .record import Record, next_index
from .value import Value, extras_of, update_node

if TYPE_CHECKING:
    from .scopes import Scope


class RecordingTape:
    """The records of one tape, newest last, and its watched tensors.

    A watched tensor is a source of gradients until `unwatch`; the tape unwatches when it is consumed, reset, closed
    or dropped. Tensors do not know their tapes, they only count them.
    """

    __slots__ = (
        "__weakref__",
        "cell",
        "cells",
        "is_ended",
        "planners",
        "records",
        "watch_all",
        "watched",
        "watched_by_use",
    )

    #: Whether it lets go of records as it goes, so that its end is nothing to those that tapes inside of it list.
    forgets = False

    def __init__(self, watch_all: bool) -> None:
        #: Watched by the user, and by use while `watch_all` recorded. First, for `__del__` after an interrupt.
        self.watched: dict[int, tuple[Value, bool]] = {}
        self.watched_by_use: dict[int, tuple[Value, bool]] = {}
        self.watch_all = watch_all
        #: Whether nothing more is recorded, although scopes that it was entered in may still be open.
        self.is_ended = False
        self.records: list[Record] = []
        #: The scopes around it that plan for backwards over its records.
        self.planners: tuple[weakref.ref[Scope], ...] = ()
        self.cell = Cell("a tape")
        self.cells = [self.cell]

    def watch(self, value: Value) -> None:
        """Make a tensor a source until this tape ends."""
        _watch(self.watched, value)
        _watching[id(self)] = (weakref.ref(self), threading.get_ident())

    def watch_on_use(self, value: Value) -> None:
        """Make a tensor a source until this tape starts anew or ends."""
        _watch(self.watched_by_use, value)

    def leave_out(self, value: Value) -> None:
        """Let a constant that is used not be watched, until this tape starts anew or ends."""
        self.watched_by_use.setdefault(id(value), (value, False))

    def would_watch(self, value: Value) -> bool:
        """Say whether an op that uses an untracked float tensor now would make it a source."""
        return self.watch_all and not self.is_ended and id(value) not in self.watched_by_use

    def start_cell(self, outer: Iterable[Cell] = ()) -> None:
        """Start a new generation of records, which also dies with `outer` ones, without invalidating the old ones."""
        self.cell = Cell("a tape", outer, self.planners)
        self.cells.append(self.cell)

    def watched_intermediates(self) -> list[Value]:
        """Return the watched tensors that ops computed."""
        return [value for value, _ in self.watched.values() if type(value.node) is Record]

    def start_segment(self) -> None:
        """Forget the records and the tensors watched by use; tensors keep their graphs."""
        self.records = []
        _unwatch(self.watched_by_use)
        self.cell = Cell("a tape", planners=self.planners)
        self.cells = [self.cell]

    def rewind(self, records: int, cells: int) -> None:
        """Invalidate and forget what came after a mark."""
        for cell in self.cells[cells:]:
            cell.kill()
        del self.records[records:]
        del self.cells[cells:]
        self.start_cell()

    def settle(self) -> None:
        """Get ready for a change of the surroundings or a write in place; a tape that only lists has nothing to do."""

    def heed(self, tape: "RecordingTape") -> None:
        """Know of a tape that begins to watch something; one that forgets nothing need not."""

    def unwatch_used(self) -> None:
        """Stop watching what was only watched because it was used; records keep their links to it."""
        _unwatch(self.watched_by_use)

    def unwatch(self) -> None:
        """Stop watching."""
        _unwatch(self.watched_by_use)
        _unwatch(self.watched)
        _watching.pop(id(self), None)

    def end(self) -> None:
        """Invalidate everything recorded, and stop watching."""
        for cell in self.cells:
            cell.kill()
        self.unwatch()
        self.start_segment()

    def __del__(self) -> None:
        self.unwatch()


#: The tapes that watch something because they were told to, by their ids, and the threads that told them.
_watching: dict[int, "tuple[weakref.ref[RecordingTape], int]"] = {}


def watched_by_others(own: RecordingTape) -> list[Value]:
    """Return the tensors that other tapes were told to watch in this thread; not those of tapes that were left."""
    thread = threading.get_ident()
    tapes = [reference() for reference, ident in list(_watching.values()) if ident == thread]
    others = [tape for tape in tapes if tape is not None and tape is not own and not tape.is_ended]
    return [value for tape in others for value, _ in list(tape.watched.values())]


@contextmanager
def watching(values: Iterable[Value]) -> Iterator[None]:
    """Track tensors again that were tracked once and are not any more, for as long as a block runs."""
    recorder = RecordingTape(watch_all=False)
    for value in values:
        if value.node is None:
            recorder.watch(value)
    try:
        yield
    finally:
        recorder.unwatch()


def _watch(watched: dict[int, tuple[Value, bool]], value: Value) -> None:
    """Remember a tensor and whether it was counted: an intermediate is a source by its record."""
    if id(value) in watched:
        return
    is_leaf = type(value.node) is not Record
    watched[id(value)] = (value, is_leaf)
    if is_leaf:
        extras = extras_of(value)
        extras.watchers += 1
        if value.node is None and extras.since is None:
            extras.since = next_index()
        update_node(value)


def _unwatch(watched: dict[int, tuple[Value, bool]]) -> None:
    for value, was_counted in watched.values():
        if was_counted:
            extras_of(value).watchers -= 1
            if type(value.node) is not Record:
                update_node(value)
    watched.clear()
