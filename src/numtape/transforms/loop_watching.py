"""See what the steps of a loop do: their ops, shapes and parameters, and the tensors that they take from outside."""

import gc
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ..core.context import Scope
from ..core.gradients import link_of
from ..core.record import Record, describe_site, next_index
from ..core.value import Value, writes_to
from ..errors import GradientError, OverwrittenError

#: Leaves, by identity. Those that a step makes for itself die with it.
Leaves = weakref.WeakValueDictionary[int, Value]


class Captured:
    """The tensors that steps take from outside: tracked ones, and constants with the write counts they were read at."""

    def __init__(self) -> None:
        self._made: dict[Record, Value] = {}
        self._leaves: Leaves = weakref.WeakValueDictionary()
        #: By identity; those that die are forgotten, since a step makes constants of its own.
        self._constants: dict[int, tuple[weakref.ref[Value], int]] = {}
        #: The first index of the loop, and of the step that runs.
        self._since = self._step_since = next_index()

    def start_step(self) -> None:
        """Take what was made from now on as made by the step that runs."""
        self._step_since = next_index()

    def add(self, value: Value) -> None:
        """Note a tensor that an op has used."""
        record = value.node
        if type(record) is Record:
            if self._since <= record.index < self._step_since:
                raise GradientError(
                    f"checkpoint_loop: its step uses a tensor of shape {value.shape} that an earlier step has made, at "
                    f"{record.site}, and that is no part of the state, so its gradient would be lost. Put what later "
                    "steps need into the state."
                )
            self._made.setdefault(record, value)
        elif record is not None:
            self._leaves.setdefault(id(value), value)
        elif id(value) not in self._constants:
            self._constants[id(value)] = (weakref.ref(value, self._forgetter(id(value))), writes_to(value))

    def _forgetter(self, key: int) -> Callable[[Any], object]:
        constants = self._constants
        return lambda _: constants.pop(key, None)

    def values(self) -> list[Value]:
        """Return the tensors that get gradients: of leaves, those that outlive the loop."""
        return [*self._made.values(), *self._leaves.values()]

    def check(self) -> None:
        """Raise if a constant was overwritten since it was read."""
        for ref, count in self._constants.values():
            value = ref()
            if value is not None and writes_to(value) != count:
                assert value.version is not None
                written = describe_site(value.version[0].code, value.version[0].lasti)
                raise OverwrittenError(
                    f"checkpoint_loop: its step reads a tensor of shape {value.shape} that was overwritten since, at "
                    f"{written}; write the new value to another tensor, or call backward before."
                )


class Strangers:
    """Finds tracked tensors that steps take from outside when they run again, and did not take the first time."""

    def __init__(self, captured: Iterable[Value]) -> None:
        self._known = set(map(link_of, captured))
        self._leaves: Leaves = weakref.WeakValueDictionary()

    def add(self, value: Value) -> None:
        """Look at a tensor that an op has used."""
        if value.node is None or link_of(value) in self._known:
            return
        if type(value.node) is Record:
            _raise_strange(value)
        self._leaves.setdefault(id(value), value)

    def check(self) -> None:
        """Raise for a leaf that has outlived the steps: none of them has made it for itself."""
        if self._leaves:
            gc.collect()  # It may be dead but for cycles.
        for value in self._leaves.values():
            _raise_strange(value)


def _raise_strange(value: Value) -> NoReturn:
    what = f"the tensor {value.name!r}" if value.name else f"a tensor of shape {value.shape}"
    raise GradientError(
        f"checkpoint_loop: its step took {what} from outside when it ran again, and not when it ran first. A step that "
        "captures a variable sees what this holds when the backward runs; bind it (lambda s, w=w: ...), or put it into "
        "the state."
    )


class Watcher(Scope):
    """Notes what a step does: its ops, shapes and parameters, and the tensors that it takes from outside."""

    skips_loops = True

    def __init__(self, start: Iterable[Value], outside: Captured | Strangers) -> None:
        self.outside = outside
        self.trace = 0
        self.inside: set[Any] = set(map(link_of, start))

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Add a record to the trace, and look at its operands from outside."""
        self.inside.add(record)
        self.trace = zlib.crc32(f"{record.op.name}{record.shape}{record.dtype}".encode(), self.trace)
        for name, value in (record.params or {}).items():
            if _is_plain(value):
                self.trace = zlib.crc32(f"{name}{value}".encode(), self.trace)
        for operand in operands:
            if isinstance(operand, Value):
                self.see(operand)

    def see(self, value: Value) -> None:
        """Look at a tensor that is used, or is part of the next state."""
        if link_of(value) not in self.inside:
            self.outside.add(value)


#: Parameters that are cheap to tell from others: no arrays, no functions.
_PLAIN = frozenset((int, float, bool, str, type(None), type(...), slice))


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))
