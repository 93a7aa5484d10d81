"""Threads that share the work of a kernel, as many as BLAS may use, or might if strict mode did not hold it to one.

They wait at queues that the interpreter itself guards: an interrupt, which may come between any two instructions, then
leaves no lock behind that nobody opens.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from operator import length_hint
from queue import SimpleQueue
from typing import Any

from . import blas
from .forks import in_child

#: A kernel, the arguments of a call, what must live until it has ended, and who waits for that.
_Call = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], "_Ends"]

_calls: SimpleQueue[_Call] = SimpleQueue()
_workers: list[threading.Thread] = []


def threads() -> int:
    """Return how many threads may work at once, the caller's among them."""
    return blas.single_thread.threads()


def run(kernel: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *kept: Any) -> None:
    """Call a kernel that lets go of Python's lock, with each of some arguments at once; the first by this thread.

    Args:
        kernel: what they call.
        calls: the arguments of each call. What one does must not depend on the others.
        kept: what must live until all calls have ended, also if an interrupt lets this thread leave before.
    """
    others = calls[1:] if _has_workers(len(calls) - 1) else ()
    ends = _Ends([(kernel, arguments, kept) for arguments in others])
    # Nobody leaves while others still write, whatever signals raise: also between two instructions, so that one wait is
    # not enough. The second has nothing to wait for if the first one came to its end.
    try:
        try:
            ends.begin()
            for arguments in calls if not others else calls[:1]:
                kernel(*arguments)
        finally:
            ends.wait()
    finally:
        ends.wait()


class _Ends:
    """Calls that workers make, and how they ended. No interrupt comes between what happens and that it is known."""

    def __init__(self, calls: Sequence[tuple[Any, ...]]) -> None:
        self._count = len(calls)
        #: Those that were not given to the workers. Once all were, it holds none of them.
        self._idle = iter([(*call, self) for call in calls])
        self._errors: list[BaseException | None] = []
        self._news: SimpleQueue[None] = SimpleQueue()

    def begin(self) -> None:
        """Give all calls to the workers, in one instruction of the interpreter: all are given, or none."""
        any(map(_calls.put, self._idle))

    def end(self, error: BaseException | None) -> None:
        """Say, as a worker, how a call has ended."""
        self._errors.append(error)
        self._news.put(None)

    def wait(self) -> None:
        """Return when all calls that were given have ended; raise what one of them, or a signal meanwhile, raised."""
        failure: BaseException | None = None
        given = 0 if length_hint(self._idle) else self._count
        while len(self._errors) < given:
            try:
                self._news.get()  # While one has not ended, there is news to come, whatever was taken before.
            except BaseException as error:
                failure = error
        for raised in (failure, *self._errors):
            if raised is not None:
                raise raised


def _has_workers(count: int) -> bool:
    """Start threads until there are so many; say whether there are, and can still work."""
    if sys.is_finalizing():  # They wait for Python's lock, in vain.
        return False
    while len(_workers) < count:
        worker = threading.Thread(target=_work, args=(_calls,), name="numtape", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # There are too many threads, or the interpreter is about to end.
            return False
        _workers.append(worker)
    return True


def _work(calls: SimpleQueue[_Call]) -> None:
    while True:
        kernel, arguments, kept, ends = calls.get()
        error: BaseException | None = None
        try:
            kernel(*arguments)
        except BaseException as caught:
            error = caught
        ends.end(error)
        # What the call was about must not live until the next one.
        del kernel, arguments, kept, ends, error


def _forget() -> None:
    """Begin anew in a forked process, which has none of the threads."""
    global _calls
    _calls = SimpleQueue()
    _workers.clear()


in_child(_forget)
