"""See what the steps of a loop do: their ops, shapes and parameters, and the tensors that they take from outside."""

import gc
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from .. import tree
from ..core.context import Scope
from ..core.gradients import link_of
from ..core.record import Record, describe_site, next_index
from ..core.tape import RecordingTape
from ..core.value import Value, writes_to
from ..errors import GradientError, OverwrittenError
from .loop_states import checksum

#: Tensors, by identity. Those that a step makes for itself die with it.
Tensors = weakref.WeakValueDictionary[int, Value]


class _Use(NamedTuple):
    """The first use of a tensor: its number among all, that of the step, and the write count of a constant."""

    order: int
    step: int
    writes: int | None
    #: The tensor, weakly, or the record that has made it.
    link: Any
    #: Whether an op of an earlier step has made it.
    is_left_over: bool


class Captured:
    """The tensors that steps take from outside: tracked ones, and constants with the write counts they were read at."""

    def __init__(self) -> None:
        self._made: dict[Record, Value] = {}
        self._leaves: Tensors = weakref.WeakValueDictionary()
        #: By identity; those that die are forgotten, since a step makes constants of its own.
        self._uses: dict[int, _Use] = {}
        #: The constants that steps have computed, while somebody holds them.
        self._computed: Tensors = weakref.WeakValueDictionary()
        self._count = 0
        #: The first index of the loop, and of the step that runs, which has a number.
        self._since = self._step_since = next_index()
        self._step = 0

    def start_step(self, number: int) -> None:
        """Take what was made from now on as made by the step that runs."""
        self._step = number
        self._step_since = next_index()

    def compute(self, value: Value) -> None:
        """Note a constant that the step has computed."""
        self._computed[id(value)] = value

    def add(self, value: Value) -> int:
        """Note a tensor that an op has used, and return its `order_of`."""
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
        link = link_of(value)
        if not self.knows(link):
            self._count += 1
            kept = link if type(link) is Record else weakref.ref(value, self._forgetter(id(value)))
            writes = writes_to(value) if record is None else None
            is_left_over = self._computed.get(id(value)) is value
            self._uses[id(link)] = _Use(self._count, self._step, writes, kept, is_left_over)
        return self.order_of(link, self._step)

    def _forgetter(self, key: int) -> Callable[[Any], object]:
        uses = self._uses
        return lambda _: uses.pop(key, None)

    def knows(self, link: Any) -> bool:
        """Say whether a step has used something when it ran first."""
        return id(link) in self._uses

    def order_of(self, link: Any, step: int) -> int:
        """Return a number that tells what steps before this one have used from all else; 0 if none has.

        What only one step has used may be its own, and is another one when it runs again, unless it is left over from
        an earlier one.
        """
        use = self._uses.get(id(link))
        if use is None or use.step > step or (use.step == step and not use.is_left_over):
            return 0
        return use.order

    def values(self) -> list[Value]:
        """Return the tensors that get gradients: of leaves, those that outlive the loop."""
        return [*self._made.values(), *self._leaves.values()]

    def constants(self) -> list[Value]:
        """Return the tensors that get none."""
        found = [use.link() for use in self._uses.values() if use.writes is not None]
        return [value for value in found if value is not None]

    def check(self) -> None:
        """Raise if a constant was overwritten since it was read."""
        for value in self.constants():
            use = self._uses[id(value)]
            if writes_to(value) != use.writes:
                assert value.version is not None
                written = describe_site(value.version[0].code, value.version[0].lasti)
                raise OverwrittenError(
                    f"checkpoint_loop: its step reads a tensor of shape {value.shape} that was overwritten since, at "
                    f"{written}; write the new value to another tensor, or call backward before."
                )


class Strangers:
    """Finds tracked tensors that steps take from outside when they run again, and did not take the first time."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        #: What steps took the first time, and have not taken again.
        self._missing = set(map(link_of, captured.values()))
        #: Leaves that were not taken the first time, and in which run of a step each was seen.
        self._leaves: Tensors = weakref.WeakValueDictionary()
        self._seen: dict[int, int] = {}
        self._step = self._runs = 0

    def start_step(self, number: int) -> None:
        """Take what is used from now on as used by a step."""
        self._step = number
        self._runs += 1

    def knows(self, link: Any) -> bool:
        """Say whether a step has used something when it ran first."""
        return self._captured.knows(link)

    def compute(self, value: Value) -> None:
        """Leave a constant that the step has computed."""

    def add(self, value: Value) -> int:
        """Look at a tensor that an op has used, and return its `order_of`."""
        link = link_of(value)
        if value.node is not None and not self.knows(link):
            if type(link) is Record:
                _raise_strange(value)
            self._add_leaf(value)
        self._missing.discard(link)
        return self._captured.order_of(link, self._step)

    def _add_leaf(self, value: Value) -> None:
        """Raise for a leaf that several steps use: none of them has made it for itself."""
        if self._leaves.get(id(value)) is not value:
            self._leaves[id(value)] = value
            self._seen[id(value)] = self._runs
        elif self._seen[id(value)] != self._runs:
            _raise_strange(value)

    def check(self) -> None:
        """Raise for a leaf that has outlived the steps, if they have left out what they took the first time."""
        if self._leaves and self._missing:
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

    def __init__(self, start: Any, outside: Captured | Strangers, number: int, verify: bool) -> None:
        outside.start_step(number)
        self.outside = outside
        #: Numbers that tell ops, shapes and parameters, and which tensors from outside they take.
        self.trace = 0
        self.taken = 0
        #: One that tells the values that records are of, if these are to be compared. What rules read is among them, or
        #: follows from them: so no value matters to a derivative that is not told here, however a step comes to it.
        self.values = 0
        self.verify = verify
        self.inside: set[Any] = {link_of(leaf) for leaf in tree.leaves(start) if isinstance(leaf, Value)}
        #: By the ids of constants that the step has computed: the tensors from outside that are behind each.
        self._behind: dict[int, dict[int, Value]] = {}
        #: The first index of the step.
        self._since = next_index()

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
        if self.verify:
            self.values = checksum((operands, record.params), self.values)

    def on_loop(self, outside: Captured, traces: bytes, values: bytes) -> None:
        """Take what the steps of a loop inside of the step have done, and what constants they took, for its own."""
        self.trace = zlib.crc32(traces, self.trace)
        self.values = zlib.crc32(values, self.values)
        for value in outside.constants():
            self.see(value)

    def on_constant(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Note which tensors from outside are behind constants: they count once these are used, and not for a log."""
        behind: dict[int, Value] = {}
        for operand in operands:
            if isinstance(operand, Value):
                found = self._behind.get(id(operand))
                if found is not None:
                    behind |= found
                elif operand not in self.inside:
                    behind[id(operand)] = operand
        self.inside.update(results)
        for result in results:
            self._behind[id(result)] = behind
            self.outside.compute(result)

    def see(self, value: Value) -> None:
        """Look at a tensor that is used, or is part of the next state."""
        for each in self._behind.pop(id(value), {}).values():
            self.see(each)
        link = link_of(value)
        if type(link) is Record and link.index >= self._since:
            self._look_behind(link)
        if link not in self.inside:
            order = self.outside.add(value)
            if order:
                self.taken = zlib.crc32(order.to_bytes(8), self.taken)

    def _look_behind(self, record: Record) -> None:
        """Take a record for one of the step that another thread has made for it, and look at what that has used."""
        stack = [record]
        while stack:
            record = stack.pop()
            if record in self.inside:
                continue
            self.inside.add(record)
            for position, link in enumerate(record.inputs):
                if not record.needs >> position & 1:
                    continue
                if isinstance(link, Value):
                    self.see(link)
                elif type(link) is Record and link.index >= self._since:
                    stack.append(link)
                elif link not in self.inside and not self.outside.knows(link):
                    raise GradientError(
                        f"checkpoint_loop: another thread uses what {link.site} has computed outside of the step that "
                        f"it runs for, at {record.site}, so its gradient would be lost. Put it into the state."
                    )


#: Parameters that are cheap to tell from others: no arrays, no functions.
_PLAIN = frozenset((int, float, bool, str, type(None), type(...), slice))


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


class Forgetful(RecordingTape):
    """A tape that records are made on, and that lists none of them."""

    __slots__ = ()

    def __init__(self, watch_all: bool) -> None:
        super().__init__(watch_all)
        self.records = _Nothing()


class _Nothing(list[Any]):
    """A list that stays empty."""

    def append(self, item: Any) -> None:
        """Leave it."""
