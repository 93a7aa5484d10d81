"""A lock for what must not be under way when the process forks: imports, compilers, libraries that are being loaded.

The child has none of the other threads, and would wait for ever for what one of them held.
"""

import os
import threading

#: Held by forks, and by whoever loads something.
loading = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=loading.acquire, after_in_parent=loading.release, after_in_child=loading.release)
