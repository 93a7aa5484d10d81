"""See what the steps of a loop do: their ops, shapes and parameters, and the tensors that they take from outside."""

import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from ..core.context import Scope
from ..core.gradients import link_of
from ..core.record import Record, describe_site
from ..core.value import LEAF, Value
from ..errors import OverwrittenError


class Captured:
    """The tensors that steps take from outside: tracked ones, and constants with the write counts they were read at."""

    def __init__(self) -> None:
        self.tracked: dict[Any, Value] = {}
        #: By identity; those that die are forgotten, since a step makes constants of its own.
        self._constants: dict[int, tuple[weakref.ref[Value], int]] = {}
        #: Watched by a tape only because they were used: captured if they outlive the loop.
        self._used: dict[int, weakref.ref[Value]] = {}

    def add(self, value: Value) -> None:
        """Note a tensor that an op has used."""
        if value.node is None:
            if id(value) not in self._constants:
                self._constants[id(value)] = (weakref.ref(value, self._forgetter(id(value))), _writes(value))
        elif _is_only_watched(value):
            self._used.setdefault(id(value), weakref.ref(value))
        else:
            self.tracked.setdefault(link_of(value), value)

    def _forgetter(self, key: int) -> Callable[[Any], object]:
        constants = self._constants
        return lambda _: constants.pop(key, None)

    def values(self) -> list[Value]:
        """Return the tensors that get gradients."""
        used = [value for ref in self._used.values() if (value := ref()) is not None]
        return list({link_of(value): value for value in (*self.tracked.values(), *used)}.values())

    def check(self) -> None:
        """Raise if a constant was overwritten since it was read."""
        for ref, count in self._constants.values():
            value = ref()
            if value is not None and _writes(value) != count:
                assert value.version is not None
                written = describe_site(value.version[0].code, value.version[0].lasti)
                raise OverwrittenError(
                    f"checkpoint_loop: its step reads a tensor of shape {value.shape} that was overwritten since, at "
                    f"{written}; write the new value to another tensor, or call backward before."
                )


def _writes(value: Value) -> int:
    return value.version[0].count if value.version is not None else 0


def _is_only_watched(value: Value) -> bool:
    """Say whether a leaf is tracked by nothing but the tape that saw it used."""
    return value.node is LEAF and not value.requires_grad and value.extras is not None and value.extras.watchers == 1


#: Parameters that are cheap to tell from others: no arrays, no functions.
_PLAIN = frozenset((int, float, bool, str, type(None), type(...), slice))


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


class Watcher(Scope):
    """Notes what a step does: its ops, shapes and parameters, and the tensors that it takes from outside."""

    def __init__(self, captured: Captured | None) -> None:
        self.captured = captured
        self.trace = 0
        self.inside: set[Any] = set()

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Add a record to the trace, and its operands from outside to what is captured."""
        self.inside.add(record)
        self.trace = zlib.crc32(f"{record.op.name}{record.shape}{record.dtype}".encode(), self.trace)
        for name, value in (record.params or {}).items():
            if _is_plain(value):
                self.trace = zlib.crc32(f"{name}{value}".encode(), self.trace)
        if self.captured is not None:
            for operand in operands:
                if isinstance(operand, Value) and link_of(operand) not in self.inside:
                    self.captured.add(operand)
