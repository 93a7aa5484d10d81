"""A random stream: a key and a counter. Random ops record both, so that they can be computed again exactly."""

import os
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import ArgumentError, OperandError
from ..kernels import forks
from ..kernels.random import counters
from .context import current

#: Threads that share a stream must not draw the same.
taking = forks.lock()


def key_from(*parts: int | bytes) -> int:
    """Return a 128-bit key that depends on every part."""
    import hashlib  # Slow to import, and not needed before the first draw.

    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else int(part).to_bytes(32, "little", signed=True)
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


class Stream:
    """A key and the counter of the next draw."""

    __slots__ = ("__weakref__", "counter", "key")

    def __init__(self, key: int, counter: int = 0) -> None:
        self.key = key
        self.counter = counter

    def take(self, words: int) -> tuple[int, int]:
        """Reserve a block of counters for a draw of `words` words; return key and first counter."""
        self._note_draw()
        count = counters(words)
        with taking:
            counter = self.counter
            self.counter = counter + count
        return self.key, counter

    def _note_draw(self) -> None:
        """Tell whoever notes draws that this stream is about to be drawn from."""
        drawn = current().thread.drawn
        if drawn is not None and self not in drawn:
            drawn[self] = self.place()

    def place(self) -> dict[str, Any]:
        """Return where the stream stands, as what a file can hold: numbers of 128 bits stand in it as text."""
        return {"key": str(self.key), "counter": str(self.counter)}

    def go_to(self, place: dict[str, Any]) -> None:
        """Go on from a place."""
        if set(place) != {"key", "counter"}:
            raise ArgumentError(
                "the saved random stream has operation_seeds, and this one has none; go on with the settings of the "
                "first run."
            )
        self.key, self.counter = int(place["key"]), int(place["counter"])

    def copy(self) -> "Stream":
        """Return another stream that draws what this one is about to."""
        return Stream(self.key, self.counter)


#: Streams, and where each stood before it was drawn from.
Drawn = WeakKeyDictionary[Stream, dict[str, Any]]


class Unseeded(Stream):
    """A stream that starts from the system's randomness."""

    __slots__ = ()


def thread_stream() -> Stream:
    """Return the thread's stream; without `seed`, it starts from the system's randomness."""
    thread = current().thread
    if thread.stream is None:
        thread.stream = Unseeded(key_from(os.urandom(16)))
    stream: Stream = thread.stream
    return stream


def stream_of(rng: Any) -> Stream:
    """Return the stream that an ``rng=`` argument means: a stream itself, a seed, or the thread's for None."""
    if rng is None:
        return thread_stream()
    if isinstance(rng, Stream):
        return rng
    if isinstance(rng, Integral) and not isinstance(rng, bool):
        rng = int(rng)
        if not -(2**255) <= rng < 2**255:
            raise ArgumentError(f"rng: the seed has {rng.bit_length()} bits; seeds have 255 at most.")
        return Stream(key_from(rng))
    raise OperandError(f"rng must be an nt.Generator, an integer seed or None, not {type(rng).__name__}.")
