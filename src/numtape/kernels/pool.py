"""Threads that share the work of a kernel, as many as BLAS may use."""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import blas


def threads() -> int:
    """Return how many threads may work at once, the caller's among them."""
    return blas.threads() or 1


def run(kernel: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
    """Call a kernel that lets go of Python's lock, with each of some arguments at once; the first by this thread.

    What they do must not depend on the others, and must not fail.
    """
    others = [_pool().submit(kernel, *arguments) for arguments in calls[1:]]
    kernel(*calls[0])
    for other in others:
        other.result()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads; a forked process, which has none of them, makes its own."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.cache_clear)
    return ThreadPoolExecutor(os.cpu_count(), "numtape")
