"""The random streams of a `DeterministicConfig`: one for all draws, or numbers of its own for every place in a model.

With seeds by operation a draw follows from the seed, the path of the module that draws, the op, and how often that op
has drawn there. So a layer more or less leaves the numbers of the others as they are.
"""

import inspect
import sys
from itertools import pairwise
from types import CodeType
from typing import Any

from ..config import DeterministicConfig, Draws
from ..core.stream import Stream, key_from, taking
from ..errors import ArgumentError


def stream_of_config(config: DeterministicConfig) -> Stream:
    """Return the stream of a configuration that has a seed, as far as it has come."""
    assert config.global_seed is not None
    kind = OperationStream if config.operation_seeds else ConfigStream
    return kind(key_from(int(config.global_seed)), config.draws)


class ConfigStream(Stream):
    """A stream whose counter belongs to a configuration."""

    __slots__ = ("_draws",)

    def __init__(self, key: int, draws: Draws) -> None:
        self.key = key
        self._draws = draws

    @property
    def counter(self) -> int:
        """The counter of the next draw."""
        return self._draws.counter

    @counter.setter
    def counter(self, counter: int) -> None:
        self._draws.counter = counter

    def go_to(self, place: dict[str, Any]) -> None:
        """Go on from a place of the same stream."""
        _check_place(self.key, place, "counter")
        super().go_to(place)


class OperationStream(Stream):
    """A stream that gives each place in a model numbers of its own."""

    __slots__ = ("_draws", "_outer")

    def __init__(self, key: int, draws: Draws, outer: tuple[Any, ...] = ()) -> None:
        self.key = key
        self.counter = 0
        self._draws = draws
        #: The modules around the place that this stream was copied at, which no longer run when it is used.
        self._outer = outer

    def take(self, words: int) -> tuple[int, int]:
        """Return the key that belongs to this place, op and count, and its first counter."""
        self._note_draw()
        name = f"{self._path()}:{sys._getframe(1).f_code.co_name.strip('_')}"
        with taking:
            count = self._draws.counts.get(name, 0)
            self._draws.counts[name] = count + 1
        return key_from(self.key, f"{name}:{count}".encode()), 0

    def _path(self) -> str:
        modules = self._modules()
        names = [type(module).__name__ for module in modules[:1]]
        return ".".join(names + [_name_in(outer, inner) for outer, inner in pairwise(modules)])

    def _modules(self) -> tuple[Any, ...]:
        inside = running_modules()
        known = self._outer
        return inside if inside[: len(known)] == known else known + inside

    def place(self) -> dict[str, Any]:
        """Return how often each op has drawn at each place."""
        return {"key": str(self.key), "counts": dict(self._draws.counts)}

    def go_to(self, place: dict[str, Any]) -> None:
        """Go on from a place of the same stream."""
        _check_place(self.key, place, "counts")
        self._draws.counts = dict(place["counts"])

    def copy(self) -> "OperationStream":
        """Return a stream that draws what this one is about to in the modules that run now, also when they do not."""
        draws = Draws()
        draws.counts = dict(self._draws.counts)
        return OperationStream(self.key, draws, self._modules())


def _check_place(key: int, place: dict[str, Any], wanted: str) -> None:
    """Raise unless a place is one of the stream with that key."""
    if set(place) != {"key", wanted} or int(place["key"]) != key:
        raise ArgumentError(
            "DeterministicConfig: the saved random stream has another seed, or other operation_seeds; go on with the "
            "settings of the first run."
        )


def running_modules() -> tuple[Any, ...]:
    """Return the modules of which a method is running, outermost first.

    They are looked up among the callers when a number is drawn, so that modules that draw none pay nothing.
    """
    found: list[Any] = []
    frame = sys._getframe(1).f_back
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
            # One method of a module may call another, or that of a parent class.
            is_new = hasattr(type(owner), "named_modules") and not (found and found[-1] is owner)
            if is_new and _is_method(code, owner):
                found.append(owner)
        frame = frame.f_back
    return tuple(reversed(found))


def _is_method(code: CodeType, owner: Any) -> bool:
    """Say whether code that was given an object first is that of a method of it, and not of a function on it."""
    if code.co_varnames[0] == "self":
        return True
    for cls in type(owner).__mro__:
        method = inspect.unwrap(vars(cls).get(code.co_name, _is_method))
        if code.co_qualname == f"{cls.__qualname__}.{code.co_name}" or getattr(method, "__code__", None) is code:
            return True
    return False


def _name_in(outer: Any, inner: Any) -> str:
    """Return the path of a module in one that called it; its class where it is not a part of that one (yet)."""
    name: str | None = next((path for path, module in outer.named_modules() if module is inner), None)
    return type(inner).__name__ if name is None else name
