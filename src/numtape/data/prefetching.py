"""Prefetching: one thread makes items ahead of who takes them, and ends with him."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

from ..core.context import current
from ..core.scopes import Scope

_END = object()
_process = os.getpid()


def is_forked() -> bool:
    """Say whether this process is a fork of the one that loaded this file; threads are not started in forks."""
    return os.getpid() != _process


class Prefetched:
    """An iterator over items that a thread makes in advance, with the same bits as where the iterator was made.

    The thread holds the queues and not this object, so dropping this object ends it. Queues of this kind may be put to
    from a destructor, at any moment, in any thread, which semaphores and events may not.

    Args:
        items: makes the items; only the thread touches it.
        ahead: how many items there may be that were not taken.
    """

    def __init__(self, items: Iterator[Any], ahead: int) -> None:
        self._permits: SimpleQueue[bool] = SimpleQueue()
        self._ready: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._closed = [False]
        for _ in range(ahead):
            self._permits.put(True)
        # Other scopes look at what their own thread does, and are not made for two.
        scopes = [scope for scope in current().scopes if scope.is_strict is not None]
        arguments = (items, scopes, self._permits, self._ready, self._closed)
        # A daemon: an iterator that somebody still holds at exit must not keep the process alive.
        threading.Thread(target=_produce, args=arguments, name="numtape-prefetch", daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._closed[0]:
            raise StopIteration
        item, error = self._ready.get()
        if item is not _END:
            self._permits.put(True)
            return item
        self.close()
        if error is None:
            raise StopIteration
        try:
            raise error  # With the traceback that it got in the thread.
        finally:
            del error  # The traceback holds this frame.

    def close(self) -> None:
        """Let the thread end after the item that it is making."""
        self._closed[0] = True
        self._permits.put(False)

    def __del__(self) -> None:
        self.close()


def _produce(items: Iterator[Any], scopes: Sequence[Scope], permits: Any, ready: Any, closed: list[bool]) -> None:
    """Make items inside of scopes, each with a permit, until they end or nobody wants them."""
    try:
        while True:
            permits.get()
            if closed[0]:
                return
            ready.put((_next(items, scopes), None))
    except StopIteration:
        ready.put((_END, None))
    except BaseException as error:
        ready.put((_END, error))


def _next(items: Iterator[Any], scopes: Sequence[Scope]) -> Any:
    """Return the next item, made inside of scopes; they act on the whole process, so they are left while it waits."""
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(scope)
        return next(items)
