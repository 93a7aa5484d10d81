"""What functions change besides their results: random streams move on, statistics and counters follow the batch.

A transform that has to run a function again takes both back first, so that it leaves what one run would have left. A
step that is skipped takes the statistics back, which the records behind its loss tell.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .._typing import NDArray
from .context import current
from .record import Record, note
from .stream import Drawn, Stream, thread_stream
from .value import Value, array_of
from .write import mark_unrecorded


class effects:
    """Watches what a function changes, so that it can be undone: ``with effects() as seen: ...; seen.undo()``."""

    __slots__ = ("_outer", "_place", "_stream", "_updated", "drawn")

    def __enter__(self) -> "effects":
        thread = current().thread
        self._stream: Stream = thread_stream()
        self._place = self._stream.place()
        #: The random streams that were drawn from, and where each stood before. Nobody draws from one that is gone, as
        #: that of an integer seed after its draw.
        self.drawn: Drawn = weakref.WeakKeyDictionary()
        #: By id, arrays that hold state, and what they held before.
        self._updated: dict[int, tuple[NDArray, NDArray]] = {}
        self._outer = thread.drawn, thread.updated
        thread.drawn, thread.updated = self.drawn, self._updated
        return self

    def __exit__(self, *exc: object) -> None:
        thread = current().thread
        thread.drawn, thread.updated = self._outer
        if thread.drawn is not None:  # Those around see all that is seen inside.
            thread.drawn.update({stream: place for stream, place in self.drawn.items() if stream not in thread.drawn})
        if thread.updated is not None:
            thread.updated.update({key: pair for key, pair in self._updated.items() if key not in thread.updated})

    def undo(self) -> None:
        """Take back what was changed."""
        for stream, place in self.drawn.items():
            stream.go_to(place)
        current().thread.stream = self._stream  # Which a seed may have replaced.
        self._stream.go_to(self._place)
        for array, before in self._updated.values():
            array[...] = before


@contextmanager
def undoing() -> Iterator[effects]:
    """Take back at the end what functions change inside: another run does, or has done, the same."""
    with effects() as seen:
        try:
            yield seen
        finally:
            seen.undo()


class Update(NamedTuple):
    """A running statistic that has moved on the way to a result, and what it held before."""

    #: A weak reference to its holder: the tensor or the array itself, or an object that has it as an attribute.
    holder: "weakref.ref[Any]"
    before: NDArray
    #: The name of the attribute, which may be another tensor by now; None for the tensor or array itself.
    name: str | None = None

    def put_back(self) -> None:
        """Give the statistic what it held before, if it is still there."""
        holder = self.holder()
        statistic = holder if holder is None or self.name is None else getattr(holder, self.name, None)
        if statistic is not None:
            array_of(statistic)[...] = self.before
            if isinstance(statistic, Value):
                mark_unrecorded(statistic)


def note_updates(result: Any, updates: Iterable[Update]) -> None:
    """Note at the record of a result what statistics held before, for a step that is skipped later."""
    node = result.node if isinstance(result, Value) else None
    if type(node) is Record:
        notes = note(node)
        notes.updates = (*notes.updates, *updates)


def will_update(array: Any) -> None:
    """Tell whoever watches effects that an array which holds state is about to be written to."""
    updated = current().thread.updated
    if updated is not None and id(array) not in updated:
        updated[id(array)] = (array, array.copy())
