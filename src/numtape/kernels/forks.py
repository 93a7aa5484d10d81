"""Locks for what must not be under way when the process forks, and what the child does first.

The child has none of the other threads, and would wait for ever for what one of them held.
"""

import os
import threading
from collections.abc import Callable


def lock() -> threading.RLock:
    """Return a lock that forks hold, too."""
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made


def in_child(function: Callable[[], object]) -> None:
    """Let every child that this process forks call a function first."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


#: Held by whoever imports, compiles or loads something.
loading = lock()
