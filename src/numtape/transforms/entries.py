"""What is open in a context, so that tasks and threads may share the object that opened it."""

from contextvars import ContextVar
from typing import Any

#: Who opened something, and what, innermost last. One variable for all: contexts never forget a variable.
_OPEN: ContextVar[tuple[tuple[Any, Any], ...]] = ContextVar("numtape_open_entries", default=())


def push(owner: Any, entry: Any) -> None:
    """Note what an object has opened in this context."""
    _OPEN.set((*_OPEN.get(), (owner, entry)))


def pop(owner: Any) -> Any:
    """Return what an object opened last in this context, and forget it; None if that was in another context."""
    found = _OPEN.get()
    for position in range(len(found) - 1, -1, -1):
        if found[position][0] is owner:
            _OPEN.set(found[:position] + found[position + 1 :])
            return found[position][1]
    return None
