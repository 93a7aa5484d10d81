"""Threads that share the work of a kernel, as many as BLAS may use, or might if strict mode did not hold it to one.

They wait at queues that the interpreter itself guards: an interrupt, which may come between any two instructions, then
leaves no lock behind that nobody opens.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from . import blas
from .forks import in_child

#: A kernel, the arguments of a call, what must live until it has ended, and where to say how it did.
_Call = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], "SimpleQueue[BaseException | None]"]

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
    ends: SimpleQueue[BaseException | None] = SimpleQueue()
    others = calls[1:] if _has_workers(len(calls) - 1) else ()
    for arguments in others:
        _calls.put((kernel, arguments, kept, ends))
    failure: BaseException | None = None
    try:
        for arguments in calls if not others else calls[:1]:
            kernel(*arguments)
    except BaseException as error:
        failure = error
    # Nobody leaves while others still write, whatever signals raise meanwhile.
    waiting = len(others)
    while waiting:
        try:
            failure = ends.get() or failure
            waiting -= 1
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure


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
        ends.put(error)
        # What the call was about must not live until the next one.
        del kernel, arguments, kept, ends, error


def _forget() -> None:
    """Begin anew in a forked process, which has none of the threads."""
    global _calls
    _calls = SimpleQueue()
    _workers.clear()


in_child(_forget)
