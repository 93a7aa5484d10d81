"""Random streams for users: counter-based, splittable, saved and restored exactly."""

from typing import Any, Self

import numpy as np

from .core.context import current
from .core.stream import Stream, key_from
from .errors import ArgumentError


class Generator(Stream):
    """A random stream of its own: a 128-bit key from a seed, and a counter.

    The same seed gives the same numbers on every machine. Random functions take it as ``rng=``.

    Example:
        >>> rng = nt.Generator(0)
        >>> a, b = rng.split(2)
        >>> bool((nt.rand(3, rng=a) == nt.rand(3, rng=b)).any())
        False
    """

    __slots__ = ()

    def __init__(self, seed: int = 0) -> None:
        super().__init__(key_from(_checked("Generator", seed)))

    def split(self, n: int = 2) -> list["Generator"]:
        """Return `n` independent streams; this one moves on, so a second split gives others."""
        if not isinstance(n, int | np.integer) or n < 0:
            raise ArgumentError(f"Generator.split: n is {n!r}; it is the number of streams to make.")
        key, counter = self.take(1)
        return [_from_state(key_from(key, counter, i), 0) for i in range(n)]

    def state_dict(self) -> dict[str, int]:
        """Return all that is needed to go on from here."""
        return {"key": self.key, "counter": self.counter}

    def load_state_dict(self, state: dict[str, int]) -> Self:
        """Go on from a saved state."""
        if not isinstance(state, dict) or set(state) != {"key", "counter"}:
            got = sorted(state) if isinstance(state, dict) else type(state).__name__
            raise ArgumentError(
                f"Generator.load_state_dict: wants a dict with 'key' and 'counter', as state_dict() gives, not {got}."
            )
        for name, value in state.items():
            if not isinstance(value, int | np.integer):
                raise ArgumentError(f"Generator.load_state_dict: {name!r} is {value!r}; it must be an integer.")
        self.key, self.counter = int(state["key"]), int(state["counter"])
        return self

    def __repr__(self) -> str:
        return f"Generator(key={self.key:#034x}, counter={self.counter})"

    def __reduce__(self) -> Any:
        return _from_state, (self.key, self.counter)


def _checked(name: str, seed: Any) -> int:
    """Return a seed, or raise if it is none."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
        raise ArgumentError(f"{name}: the seed is {seed!r}; seeds are integers.")
    if not -(2**255) <= seed < 2**255:
        raise ArgumentError(f"{name}: the seed has {int(seed).bit_length()} bits; seeds have 255 at most.")
    return int(seed)


def _from_state(key: int, counter: int) -> Generator:
    return Generator().load_state_dict({"key": key, "counter": counter})


def seed(n: int) -> Generator:
    """Start the thread's random stream anew from a seed, and return it.

    Example:
        >>> _ = nt.seed(0); a = nt.rand(2)
        >>> _ = nt.seed(0); b = nt.rand(2)
        >>> bool((a == b).all())
        True
    """
    generator = Generator(_checked("seed", n))
    current().thread.stream = generator
    return generator
