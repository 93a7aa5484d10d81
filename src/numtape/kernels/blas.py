"""The threads of the BLAS library that NumPy multiplies matrices with: how many there are, and just one for a while.

A product's bits depend on how many threads share its sums. The number belongs to the process, so all that ask for one
thread are counted: the first sets it, and the last to leave puts back what was there before. SciPy brings a library of
its own, which is held to one thread as well where it is loaded.
"""

import ctypes
import functools
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ..counts import is_count
from ..errors import ArgumentError
from . import forks

#: How libraries call the functions that set and return their threads. Builds rename OpenBLAS' own by a prefix and a
#: suffix, so that several can live in one process.
_SPELLINGS = [
    *(
        (f"{prefix}openblas_set_num_threads{suffix}", f"{prefix}openblas_get_num_threads{suffix}")
        for prefix in ("scipy_", "")
        for suffix in ("64_", "_64", "")
    ),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
]
#: The variables that fix the threads of libraries whose functions are not known, before they are loaded.
_VARIABLES = ("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NAMES = re.compile(r"(openblas|mkl_rt|blis)[^/\\]*$", re.IGNORECASE)


class Library(NamedTuple):
    """What is used of a BLAS library."""

    path: str
    set_threads: Callable[[int], object]
    threads: Callable[[], int]
    #: The CPU that its kernels were chosen for, such as "SkylakeX"; empty if it does not say.
    core: str


@functools.cache
def library() -> Library | None:
    """Return the library that NumPy uses, or None if its threads cannot be set from here."""
    for path in _candidates():
        try:
            found = _opened(path)
        except OSError:
            continue
        if found is not None:
            return found
    return None


def _candidates() -> Iterator[str]:
    """Yield the files that may be NumPy's BLAS: those that came with it, and then what else the process has loaded."""
    yield from _came_with(np.__file__)
    try:
        with open("/proc/self/maps") as file:
            maps = file.read()
    except OSError:  # Not Linux.
        return
    yield from sorted({path for path in re.findall(r"/.*$", maps, re.MULTILINE) if _NAMES.search(path)})


@functools.cache
def _came_with(file: str) -> list[str]:
    """Return the files of BLAS libraries in the wheel of a package, given its `__file__`."""
    home = os.path.dirname(file)  # Not by pathlib, which takes 3 ms of the import.
    folders = (f"{home}.libs", os.path.join(home, ".dylibs"))
    names = [(folder, name) for folder in folders if os.path.isdir(folder) for name in sorted(os.listdir(folder))]
    return [os.path.join(folder, name) for folder, name in names if _NAMES.search(name)]


def _libraries() -> list[Library]:
    """Return the library that NumPy uses and that of SciPy, which may not be loaded yet, or ever."""
    file = getattr(sys.modules.get("scipy"), "__file__", None)
    found = [library(), *(_opened_if_loaded(path) for path in (_came_with(file) if file else ()))]
    return [each for each in found if each is not None]


#: What was found to be loaded, by path.
_loaded: dict[str, Library | None] = {}


def _opened_if_loaded(path: str) -> Library | None:
    """Return a library unless nobody has loaded it; Windows cannot say, but SciPy loads it at once there."""
    if path not in _loaded:
        with suppress(OSError):
            _loaded[path] = _opened(path, getattr(os, "RTLD_NOLOAD", 0))
    return _loaded.get(path)


def _opened(path: str, mode: int = ctypes.DEFAULT_MODE) -> Library | None:
    with forks.loading:
        handle = ctypes.CDLL(path, mode)
    for setter, getter in _SPELLINGS:
        if hasattr(handle, setter) and hasattr(handle, getter):
            core = getattr(handle, setter.replace("set_num_threads", "get_corename"), None)
            if core is not None:
                core.restype = ctypes.c_char_p
            return Library(path, getattr(handle, setter), getattr(handle, getter), (core() if core else b"").decode())
    return None


def threads() -> int | None:
    """Return how many threads BLAS may use now, or None if it cannot be asked."""
    found = library()
    return None if found is None else found.threads()


def get_num_threads() -> int:
    """Return how many threads matrix products and numtape's own kernels may use.

    Example:
        >>> nt.get_num_threads() >= 1
        True
    """
    return threads() or 1


def set_num_threads(count: int) -> None:
    """Let matrix products and numtape's own kernels use at most so many threads, in all of the process.

    Threads of NumPy's BLAS and ours are meant; those of oneDNN are set by OMP_NUM_THREADS. While some thread is in
    strict mode (`nt.deterministic`) there is one; the number is that after it.

    Example:
        >>> before = nt.get_num_threads()
        >>> nt.set_num_threads(1)
        >>> nt.get_num_threads()
        1
        >>> nt.set_num_threads(before)
    """
    if not is_count(count):
        raise ArgumentError(f"set_num_threads: the number of threads is {count!r}; it must be a positive integer.")
    if library() is None:
        raise ArgumentError(
            "set_num_threads: the BLAS library that NumPy uses does not let its threads be set; set "
            "OPENBLAS_NUM_THREADS, or what it is called there, before Python starts."
        )
    single_thread.set_threads(int(count))


def can_be_single() -> bool:
    """Say whether BLAS can be held to one thread, or was held to it when the process began."""
    return library() is not None or any(os.environ.get(name) == "1" for name in _VARIABLES)


class SingleThread:
    """Counts those that want BLAS to use one thread; they may be in several threads, and leave in any order."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        #: How often each thread wants it, by its number.
        self._holders: Counter[int] = Counter()
        #: The libraries that are held, by path, and how many threads each used before.
        self._before: dict[str, tuple[Library, int]] = {}
        forks.in_child(self._forget_others)

    def hold(self) -> None:
        """Let BLAS use one thread until `release`."""
        with self._lock:
            self._holders[threading.get_ident()] += 1
            self.catch_up()

    def catch_up(self) -> None:
        """Hold libraries that were loaded since the first `hold`, too."""
        with self._lock:
            for found in _libraries() if self._holders.total() else ():
                if found.path not in self._before:
                    self._before[found.path] = found, found.threads()
                    found.set_threads(1)

    def set_threads(self, count: int) -> None:
        """Let NumPy's BLAS use so many threads, as soon as nobody wants just one."""
        found = library()
        with self._lock:
            if found is not None and found.path in self._before:
                self._before[found.path] = found, count
            elif found is not None:
                found.set_threads(count)

    def is_held(self) -> bool:
        """Say whether anybody wants one thread."""
        return bool(self._before)

    def threads(self) -> int:
        """Return how many threads NumPy's BLAS may use, or would if nobody wanted just one."""
        found = library()
        if found is None:
            return 1
        with self._lock:
            return self._before[found.path][1] if found.path in self._before else found.threads()

    def release(self) -> int:
        """Undo a `hold`; return how many threads BLAS was using, which is 1 unless somebody set another number."""
        with self._lock:
            self._holders[threading.get_ident()] -= 1
            used = max((found.threads() for found, _ in self._before.values()), default=1)
            if not self._holders.total():
                self._end()
            return used

    def _end(self) -> None:
        """Put back what was there before, unless somebody set another number."""
        for found, before in self._before.values():
            if found.threads() == 1:
                found.set_threads(before)
        self._holders.clear()
        self._before.clear()

    def _forget_others(self) -> None:
        """Count only the thread that forked: the child has none of the others, and nobody leaves for them."""
        own = self._holders[threading.get_ident()]
        self._holders = Counter({threading.get_ident(): own})
        if not own:
            self._end()


#: The count of this process.
single_thread = SingleThread()
