"""Count the bytes of arrays while they live: each buffer once, however many arrays are views of it."""

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray


def buffer_of(array: NDArray) -> NDArray:
    """Return the array that owns the memory that an array is a view of."""
    while True:
        base = getattr(array, "base", None)  # The bytes of a file have none.
        if not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # What `as_strided` puts between a view and its array.
        if not isinstance(base, np.ndarray):
            return array
        array = base


def is_view_of(out: Any, arrays: Sequence[Any]) -> bool:
    """Say whether an output, or each of several, lies in the memory of an operand."""
    if isinstance(out, np.ndarray):
        buffer = out if out.base is None else buffer_of(out)
        for array in arrays:
            if isinstance(array, np.ndarray) and (array is buffer or buffer_of(array) is buffer):
                return True
    if not isinstance(out, tuple | list):
        return False
    given = {id(buffer_of(array)) for array in arrays if isinstance(array, np.ndarray)}
    return given.issuperset([id(buffer_of(part)) for part in out])


def whereabouts(array: Any) -> Callable[[], Any]:
    """Return a function that finds an array as long as its memory lives, also if only views of that are left."""
    if not isinstance(array, np.ndarray) or array.base is None:  # It is its own memory, or stands for some.
        return weakref.ref(array)
    return _Place(array)


class _Place:
    """Where an array lies in the memory of another."""

    __slots__ = ("_buffer", "_layout")

    def __init__(self, array: NDArray) -> None:
        buffer = buffer_of(array)
        start = array.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
        self._buffer = weakref.ref(buffer)
        self._layout = array.shape, array.dtype, start, array.strides

    def __call__(self) -> NDArray | None:
        buffer = self._buffer()
        if buffer is None:
            return None
        shape, dtype, start, strides = self._layout
        # In the order of memory, and as bytes: NumPy lends no memory of half types.
        return np.ndarray(shape, dtype, buffer.ravel(order="K").view(np.uint8), start, strides)


def held_by_others(kept: Sequence[NDArray], found: Sequence[NDArray]) -> set[int]:
    """Return the ids of those buffers of arrays that somebody else holds as well, as reference counts tell.

    Args:
        kept: arrays that the caller holds, besides in this list; one that it holds twice is here twice.
        found: arrays that the caller holds in this list alone.
    """
    known: dict[int, Any] = {}
    references: dict[int, int] = {}
    for array in kept:
        _refer_to(array, 2, known, references)
    for array in found:
        _refer_to(array, 1, known, references)
    array = None  # type: ignore[assignment]  # It refers to the last one.
    return {id(buffer_of(known[key])) for key in known if _count_references(known, key) - references[key] > _IDLE}


def held_elsewhere(objects: Sequence[Any]) -> set[int]:
    """Return the ids of objects that others hold, besides the caller, who holds each as often as it is here."""
    known = {id(x): x for x in objects}
    counts = Counter(map(id, objects))
    return {key for key in known if _count_references(known, key) - 2 * counts[key] > _IDLE}


def _refer_to(array: Any, count: int, known: dict[int, Any], references: dict[int, int]) -> None:
    """Note that there are references to an array and, if it was not known, one to what it is a view of."""
    while array is not None:
        key = id(array)
        references[key] = references.get(key, 0) + count
        if key in known:
            return
        known[key] = array
        array, count = getattr(array, "base", None), 1


def _count_references(known: dict[int, Any], key: int) -> int:
    found = known[key]
    return sys.getrefcount(found)


#: The references to what only a dictionary holds, as they are counted: that differs from one Python to the next.
_IDLE = _count_references({0: object()}, 0)


class Strays:
    """NumPy arrays that records hold, until nobody else does: then their memory is the graph's own.

    While an op runs, its caller holds the operands, so that those of one record are looked at when the next is made.
    """

    #: What was used so many arrays ago is the program's.
    _MOST = 64

    def __init__(self) -> None:
        #: By id, each with how many records hold it.
        self._waiting: dict[int, tuple[weakref.ref[Any], int]] = {}

    def add(self, array: NDArray) -> None:
        """Note that one record more holds an array."""
        reference, links = self._waiting.pop(id(array), (None, 0))
        if reference is None or reference() is not array:
            reference, links = weakref.ref(array), 0
        self._waiting[id(array)] = reference, links + 1
        if len(self._waiting) > self._MOST:
            del self._waiting[next(iter(self._waiting))]

    def own(self) -> list[NDArray]:
        """Return the arrays that only records hold, each once."""
        found: list[NDArray] = []
        for key, (reference, links) in list(self._waiting.items()):
            kept = [array for array in [reference()] if array is not None] * links  # Held by this list alone.
            if not kept or not held_by_others(kept, []):
                del self._waiting[key]
                found += kept[:1]
        return found


class _Held(weakref.ref[Any]):
    """A buffer that is counted until it dies."""

    __slots__ = ("key", "nbytes")

    key: int
    nbytes: int


class Buffers:
    """The bytes of the arrays that were shown to it and are still alive, now and at most.

    Arrays are not held: a buffer leaves the count at the moment in which its memory is freed, whoever held it last.
    """

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self._held: dict[int, _Held] = {}
        self._forget = _forgetter(weakref.ref(self))

    def hold(self, array: Any) -> None:
        """Count an array (or each of a tuple), unless its buffer is counted already."""
        if type(array) is tuple:
            for part in array:
                self.hold(part)
            return
        buffer = array if array.base is None else buffer_of(array)
        key = id(buffer)
        if key in self._held:
            return
        held = _Held(buffer, self._forget)
        held.key = key
        held.nbytes = buffer.nbytes
        self._held[key] = held
        self.live += held.nbytes
        if self.live > self.peak:
            self.peak = self.live

    def hold_all(self, out: Any) -> None:
        """Count what an op has given: an array, or each of several; what else it gives is none."""
        if type(out) is np.ndarray:
            self.hold(out)
            return
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, np.ndarray):
                self.hold(part)

    def __contains__(self, array: NDArray) -> bool:
        return id(buffer_of(array)) in self._held


def _forgetter(owner: "weakref.ref[Buffers]") -> Callable[[Any], None]:
    """Return what is called when a buffer dies. It does not hold the count, which holds it."""

    def forget(held: _Held) -> None:
        buffers = owner()
        if buffers is not None and buffers._held.get(held.key) is held:
            del buffers._held[held.key]
            buffers.live -= held.nbytes

    return forget


#: The arrays in whose memory tensors were made: whoever has them may write to them, and nobody counts that.
shared_with_numpy = Buffers()
