"""What functions change besides their results: random streams move on, statistics and counters follow the batch.

A transform that has to run a function again takes both back, so that it leaves what one run would have left. A step
that is skipped takes the statistics back, which the records behind its loss tell.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .._typing import NDArray
from .buffers import buffer_of
from .context import current
from .record import Record, note
from .stream import Drawn, Stream, thread_stream
from .value import Value, Version, array_of, epoch
from .write import mark_unrecorded, version_of


class _Saved(weakref.ref[Any]):
    """A buffer that was written to, and what it held before."""

    __slots__ = ("before", "key", "targets", "version")

    key: int
    before: NDArray
    #: That of the tensors which the buffer belongs to; None if it was written as the state that it is.
    version: Version | None
    #: The tensors without history that a recorded write has given one, and `recorded` of the version before.
    targets: "list[tuple[weakref.ref[Value], int]]"


class Written:
    """What was written to while somebody watched, and what it held before. It holds nothing: what dies is forgotten."""

    def __init__(self) -> None:
        self._saved: dict[int, _Saved] = {}
        self._forget = _forgetter(weakref.ref(self))

    def note(self, target: Value, is_recorded: bool) -> None:
        """Save what a tensor holds that is about to be written to."""
        if is_recorded and target.node is not None:
            return  # It was computed here, or its record tells what it held.
        version = version_of(target)
        saved = self._save(target.array, version)
        if is_recorded:
            saved.targets.append((weakref.ref(target), version.recorded))

    def note_state(self, array: NDArray) -> None:
        """Save what an array holds that is state, and is about to be written to."""
        self._save(array, None)

    def _save(self, array: NDArray, version: Version | None) -> _Saved:
        buffer = buffer_of(array)
        saved = self._saved.get(id(buffer))
        if saved is None:
            saved = self._put(buffer, buffer.copy(), version, [])
        return saved

    def _put(
        self,
        buffer: NDArray,
        before: NDArray,
        version: Version | None,
        targets: "list[tuple[weakref.ref[Value], int]]",
    ) -> _Saved:
        saved = _Saved(buffer, self._forget)
        saved.key, saved.before, saved.version, saved.targets = id(buffer), before, version, targets
        self._saved[saved.key] = saved
        return saved

    def join(self, inner: "Written") -> None:
        """Take over what was written to while somebody inside watched."""
        for key, saved in list(inner._saved.items()):
            buffer = saved()
            if buffer is not None and key not in self._saved:
                self._put(buffer, saved.before, saved.version, saved.targets)

    def take_back(self, since: int) -> None:
        """Let everything hold what it held before, unless it was written for the first time in the epoch `since`."""
        for saved in list(self._saved.values()):
            buffer = saved()
            if buffer is None or (saved.version is not None and saved.version.born >= since):
                continue
            buffer[...] = saved.before
            for target_ref, recorded in saved.targets:
                target = target_ref()
                if target is not None and saved.version is not None:
                    target.node, saved.version.recorded = None, recorded
                    mark_unrecorded(target)


def _forgetter(owner: "weakref.ref[Written]") -> Callable[[Any], None]:
    """Return what is called when a buffer dies. It does not hold what it is saved in, which holds it."""

    def forget(saved: _Saved) -> None:
        written = owner()
        if written is not None and written._saved.get(saved.key) is saved:
            del written._saved[saved.key]

    return forget


class effects:
    """Watches what a function changes, so that it can be undone: ``with effects() as seen: ...; seen.undo()``."""

    __slots__ = ("_epoch", "_outer", "_place", "_stream", "_written", "drawn")

    def __enter__(self) -> "effects":
        thread = current().thread
        self._stream: Stream = thread_stream()
        self._place = self._stream.place()
        #: The random streams that were drawn from, and where each stood before. Nobody draws from one that is gone, as
        #: that of an integer seed after its draw.
        self.drawn: Drawn = weakref.WeakKeyDictionary()
        self._written = Written()
        epoch[0] += 1
        self._epoch = epoch[0]
        self._outer = thread.drawn, thread.written
        thread.drawn, thread.written = self.drawn, self._written
        return self

    def __exit__(self, *exc: object) -> None:
        thread = current().thread
        thread.drawn, thread.written = self._outer
        if thread.drawn is not None:  # Those around see all that is seen inside.
            thread.drawn.update({stream: place for stream, place in self.drawn.items() if stream not in thread.drawn})
        if thread.written is not None:
            thread.written.join(self._written)

    def undo(self, keeps_new: bool = False) -> None:
        """Take back what was changed.

        Args:
            keeps_new: whether results of the function go on to be used, and with them the tensors that it has made and
                written to: only what was known before is taken back. Of a function that has run before, that is what it
                wrote to then and has written to again.
        """
        for stream, place in self.drawn.items():
            stream.go_to(place)
        current().thread.stream = self._stream  # Which a seed may have replaced.
        self._stream.go_to(self._place)
        self._written.take_back(since=self._epoch if keeps_new else epoch[0] + 1)


@contextmanager
def undoing(keeps_new: bool = False) -> Iterator[effects]:
    """Take back at the end what functions change inside: another run does, or has done, the same; see `undo`."""
    with effects() as seen:
        try:
            yield seen
        finally:
            seen.undo(keeps_new)


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
    written = current().thread.written
    if written is not None:
        written.note_state(array)
