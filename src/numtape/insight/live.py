"""`live_tapes`: what contexts and tapes of all threads hold now, and which tapes somebody forgot to stop."""

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from ..core.cells import FREED, Cell, Past
from ..core.context import Context, State, Thread, current
from ..core.record import Record
from ..core.tape import RecordingTape
from .leaks import live_records, nbytes_of
from .memory_text import show

_NOBODY = "-"


@dataclass(frozen=True)
class LiveTape:
    """What one place to record holds.

    Attributes:
        thread: the name of the thread that records there.
        name: ``"context 0"``, ``"a tape"``, ...
        records: how many records of it are alive and not freed, with those of tapes that are gone that it lists too.
        nbytes: the bytes of the arrays that they keep, each buffer once.
        is_recording: whether an op that runs in that thread now is recorded there.
        is_forgotten: whether it records since a `start_recording` outside of every ``with`` block.
        line: the line of its oldest record; empty if it has none.
    """

    thread: str
    name: str
    records: int
    nbytes: int
    is_recording: bool
    is_forgotten: bool
    line: str


@dataclass(frozen=True)
class LiveTapes:
    """What `live_tapes` found: a sequence of `LiveTape` that prints as a table."""

    tapes: tuple[LiveTape, ...]

    @property
    def nbytes(self) -> int:
        """The bytes that all of them hold."""
        return sum(tape.nbytes for tape in self.tapes)

    @property
    def forgotten(self) -> list[LiveTape]:
        """The tapes that were started and not stopped."""
        return [tape for tape in self.tapes if tape.is_forgotten]

    def __iter__(self) -> Iterator[LiveTape]:
        return iter(self.tapes)

    def __len__(self) -> int:
        return len(self.tapes)

    def __getitem__(self, position: int) -> LiveTape:
        return self.tapes[position]

    def __str__(self) -> str:
        headings = ("thread", "place", "records", "bytes", "state", "oldest line")
        cells = [(t.thread, t.name, f"{t.records:,}", show(t.nbytes), _state(t), t.line) for t in self.tapes]
        table = [headings, *cells]
        widths = [max(len(row[i]) for row in table) for i in range(len(headings))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _state(tape: LiveTape) -> str:
    if tape.is_forgotten:
        return "recording since start_recording(): call stop_recording()"
    return "recording" if tape.is_recording else ""


class _Place:
    """A context or a tape while it is being looked at."""

    def __init__(self, thread: str, name: str, is_recording: bool, is_forgotten: bool = False) -> None:
        self.thread = thread
        self.name = name
        self.is_recording = is_recording
        self.is_forgotten = is_forgotten
        self.records: list[Record] = []

    def finished(self) -> LiveTape:
        line = self.records[0].site if self.records else ""
        nbytes = nbytes_of(self.records)
        return LiveTape(self.thread, self.name, len(self.records), nbytes, self.is_recording, self.is_forgotten, line)


def live_tapes() -> LiveTapes:
    """Return what each thread's contexts and tapes hold now, in bytes. Slow: it looks at every object of the process.

    First come places to record: the context of each thread, other contexts, tapes. Then what outlived its place: graphs
    of contexts that were cleared and of tapes that are gone, if no other tape lists them, and records that a backward
    has freed, which hold no arrays. A tape that `start_recording` started outside of every ``with`` block, and that
    nobody has stopped, is marked: it watches and lists everything that its thread does. What `gc.freeze` has taken out
    of sight is not seen.

    Example:
        >>> w = nt.ones(1000, requires_grad=True)
        >>> y = nt.exp(w)
        >>> here = nt.live_tapes()[0]
        >>> here.name, here.records, here.nbytes, here.is_recording
        ('context 0', 1, 4000, True)
    """
    current()  # So that this thread has a state.
    items = gc.get_objects()
    states = _innermost([item for item in items if type(item) is State])
    contexts = [item for item in items if type(item) is Context]
    # By the type itself: to ask an object for its class may run code of another library.
    tapes = [item for item in items if issubclass(type(item), RecordingTape)]
    del items
    places: dict[Cell, _Place] = {}
    found: list[_Place] = []
    for context in sorted(contexts, key=lambda context: context.id):
        place = _Place(_thread_of(context, states), f"context {context.id}", _is_current(context, states))
        places[context.cell] = place
        found.append(place)
    #: The place of a tape that lists a record, one that somebody forgot before others.
    listed: dict[Record, _Place] = {}
    for tape in tapes:
        place = _place_of_tape(tape, states)
        places.update(dict.fromkeys(tape.cells, place))
        found.append(place)
        for record in list(tape.records):
            if place.is_forgotten or record not in listed:
                listed[record] = place
    orphans = _Place(_NOBODY, "cleared, or its tape is gone", False)
    freed = _Place(_NOBODY, "freed by a backward", False)
    for record in live_records():
        # What was streamed past belongs to nobody either; it has no links and no arrays.
        is_empty = record.cell is FREED or type(record.cell) is Past
        # Tapes list what is recorded inside of them, also on another tape: that one may go, and they hold it still.
        rest = freed if is_empty else listed.get(record, orphans)
        places.get(record.cell, rest).records.append(record)
    return LiveTapes(
        tuple(place.finished() for place in [*found, *(rest for rest in (orphans, freed) if rest.records)])
    )


def _innermost(states: list[State]) -> list[State]:
    """Leave out the states that scopes will return to."""
    outer = {id(state.outer) for state in states}
    return [state for state in states if id(state) not in outer]


def _place_of_tape(tape: RecordingTape, states: list[State]) -> _Place:
    recording = [state for state in states if tape in state.tapes and not tape.is_ended]
    is_forgotten = any(tape in _base(state).tapes for state in recording)
    thread = _name(recording[0].thread) if recording else _NOBODY
    return _Place(thread, tape.cell.owner, any(state.grad for state in recording), is_forgotten)


def _base(state: State) -> State:
    while state.outer is not None:
        state = state.outer
    return state


def _thread_of(context: Context, states: list[State]) -> str:
    for state in states:
        if state.thread.default_context is context or state.context is context:
            return _name(state.thread)
    return _NOBODY


def _is_current(context: Context, states: list[State]) -> bool:
    # While a tape records, it and not the context has the records.
    return any(state.context is context and not state.tapes and state.grad for state in states)


def _name(thread: Thread) -> str:
    """Return the name of the thread that a state belongs to."""
    if thread is current().thread:
        return threading.current_thread().name
    found = [other.name for other in threading.enumerate() if other.ident == thread.ident]
    return found[0] if found else "a thread that has ended"
