"""What functions change besides their results: random streams move on, running statistics follow the batch.

A transform that has to run a function again takes both back first, so that it leaves what one run would have left.
"""

import weakref
from collections.abc import Iterable
from typing import Any

from .._typing import NDArray
from .context import current
from .record import Record, note
from .stream import Stream, thread_stream
from .value import Value


class effects:
    """Watches what a function changes, so that it can be undone: ``with effects() as seen: ...; seen.undo()``."""

    __slots__ = ("_outer", "_place", "_stream", "_updated")

    def __enter__(self) -> "effects":
        thread = current().thread
        self._stream: Stream = thread_stream()
        self._place = self._stream.place()
        #: By id, arrays that hold state, and what they held before.
        self._updated: dict[int, tuple[NDArray, NDArray]] = {}
        self._outer, thread.updated = thread.updated, self._updated
        return self

    def __exit__(self, *exc: object) -> None:
        current().thread.updated = self._outer
        if self._outer is not None:
            for key, pair in self._updated.items():
                self._outer.setdefault(key, pair)

    def undo(self) -> None:
        """Take back what was changed."""
        current().thread.stream = self._stream
        self._stream.go_to(self._place)
        for array, before in self._updated.values():
            array[...] = before


def note_update(result: Any, before: Iterable[tuple[Value, NDArray]]) -> None:
    """Note at the record of a result what held other numbers before the op, for a step that is skipped later."""
    node = result.node if isinstance(result, Value) else None
    if type(node) is Record:
        note(node).updates = tuple((weakref.ref(value), array) for value, array in before)


def will_update(array: Any) -> None:
    """Tell whoever watches effects that an array which holds state is about to be written to."""
    updated = current().thread.updated
    if updated is not None and id(array) not in updated:
        updated[id(array)] = (array, array.copy())
