"""Locks for what must not be under way when the process forks.

The child has none of the other threads, and would wait for ever for what one of them held.
"""

import os
import threading


def lock() -> threading.RLock:
    """Return a lock that forks hold, too."""
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made


#: Held by whoever imports, compiles or loads something.
loading = lock()
