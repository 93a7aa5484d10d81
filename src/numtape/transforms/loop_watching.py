"""See what the steps of a loop do: their ops, shapes and parameters, and the tensors that they take from outside."""

import gc
import weakref
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from .. import tree
from ..core.context import Scope
from ..core.gradients import link_of
from ..core.op import Structure
from ..core.recompute import fingerprint
from ..core.record import Record, describe_site, next_index
from ..core.tape import RecordingTape
from ..core.value import Value, writes_to
from ..errors import GradientError, OverwrittenError
from .loop_states import checksum

#: Tensors, by identity. Those that a step makes for itself die with it.
Tensors = weakref.WeakValueDictionary[int, Value]


class _Use(NamedTuple):
    """The first use of a tracked tensor: in which step, its number among all, and the write count of a leaf then."""

    step: int
    order: int
    #: The leaf, weakly, or the record that has made the tensor.
    link: Any
    writes: int | None
    #: Whether several steps have used it. If not, it may be the step's own, which that may write to.
    is_shared: bool = False


class _Look(NamedTuple):
    """The first use of a tensor as a constant: in which step, and what it held."""

    step: int
    value: "weakref.ref[Value]"
    print: int
    #: The write count then; None where steps write to it themselves, so that only what it holds tells it.
    writes: int | None
    #: Whether an earlier step has made it.
    is_left_over: bool
    #: Whether a record has used it, and not only what was computed from it, which a step may find the next time.
    is_direct: bool


class Captured:
    """The tensors that steps take from outside.

    Tracked ones are told by which they are, since they get gradients; constants by what they hold, since a step may
    find what another one has made, or make it anew. Write counts say without a look whether they still hold it.
    """

    def __init__(self) -> None:
        self._made: dict[Record, Value] = {}
        self._leaves: Tensors = weakref.WeakValueDictionary()
        #: By identity, of links and of tensors; those that die are forgotten, since a step makes some of its own.
        self._uses: dict[int, _Use] = {}
        self._looks: dict[int, _Look] = {}
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

    def _is_left_over(self, value: Value) -> bool:
        """Say whether an earlier step has made a tensor."""
        if type(value.node) is Record:
            return self._since <= value.node.index < self._step_since
        return self._computed.get(id(value)) is value

    def is_tracked(self, value: Value) -> bool:
        """Say whether a tensor is told by which it is."""
        return value.node is not None

    def add(self, value: Value) -> None:
        """Note a tracked tensor that a record has used."""
        link = link_of(value)
        if type(link) is Record:
            if self._is_left_over(value):
                raise GradientError(
                    f"checkpoint_loop: its step uses a tensor of shape {value.shape} that an earlier step has made, at "
                    f"{link.site}, and that is no part of the state, so its gradient would be lost. Put what later "
                    "steps need into the state, and detach() what they only look at."
                )
            self._made.setdefault(link, value)
        else:
            self._leaves.setdefault(id(value), value)
        known = self._uses.get(id(link))
        if known is None:
            self._count += 1
            is_made = type(link) is Record
            kept = link if is_made else _weakly(value, self._uses)
            self._uses[id(link)] = _Use(self._step, self._count, kept, None if is_made else writes_to(value))
        elif not known.is_shared and known.step < self._step:
            self._uses[id(link)] = known._replace(is_shared=True)

    def look(self, value: Value, is_direct: bool) -> None:
        """Note a constant that a record has used, or that what one has used was computed from."""
        known = self._looks.get(id(value))
        if known is None:
            ref = _weakly(value, self._looks)
            self._looks[id(value)] = _Look(
                self._step, ref, fingerprint(value.array), writes_to(value), self._is_left_over(value), is_direct
            )
        elif known.writes != writes_to(value):
            self._looks[id(value)] = known._replace(writes=None)

    def knows(self, link: Any) -> bool:
        """Say whether a step has used something when it ran first."""
        return id(link) in self._uses

    def has_looked_at(self, value: Value) -> bool:
        """Say whether a step has used a tensor as a constant when it ran first."""
        return id(value) in self._looks

    def is_shared(self, value: Value) -> bool:
        """Say whether steps before this one have used a constant, or made it. Any other may be its own."""
        look = self._looks.get(id(value))
        return look is not None and (look.step < self._step or look.is_left_over)

    def order_of(self, link: Any, step: int | None = None) -> int:
        """Return a number that tells tracked tensors that steps before one have used, or before this; 0 for all others.

        What only one step has used may be its own, and is another one when it runs again.
        """
        use = self._uses.get(id(link))
        return 0 if use is None or use.step >= (self._step if step is None else step) else use.order

    def print_of(self, value: Value) -> int:
        """Return what tells what a constant holds."""
        look = self._looks.get(id(value))
        is_same = look is not None and look.writes is not None and look.writes == writes_to(value)
        return look.print if look is not None and is_same else fingerprint(value.array)

    def values(self) -> list[Value]:
        """Return the tensors that get gradients in the order of first use; of leaves, those that outlive the loop.

        When a loop around it runs again to be recorded, what was a leaf may be a record; its place is the same.
        """
        found: list[tuple[Any, Value]] = [*self._made.items(), *((value, value) for value in self._leaves.values())]
        found.sort(key=lambda pair: self._uses[id(pair[0])].order)
        return [value for _, value in found]

    def constants(self) -> list[tuple[Value, _Look]]:
        """Return the tensors that were used as constants and outlive the loop, with their first uses."""
        found = [(look.value(), look) for look in list(self._looks.values())]
        return [(value, look) for value, look in found if value is not None]

    def check(self) -> None:
        """Raise if a tensor was overwritten since it was read: after the loop, or by steps if it is tracked."""
        uses = [use for use in self._uses.values() if use.writes is not None and use.is_shared]
        leaves = [(use.link(), use.writes) for use in uses]
        constants = [(value, look.writes) for value, look in self.constants() if look.writes is not None]
        for value, writes in [*leaves, *constants]:
            if value is not None and writes_to(value) != writes:
                assert value.version is not None
                written = describe_site(value.version[0].code, value.version[0].lasti)
                raise OverwrittenError(
                    f"checkpoint_loop: its step reads a tensor of shape {value.shape} that was overwritten since, at "
                    f"{written}; write the new value to another tensor, or call backward before."
                )


def _weakly(value: Value, notes: dict[int, Any]) -> "weakref.ref[Value]":
    """Return a weak reference to a tensor; what is noted of it goes when it dies."""
    key = id(value)
    return weakref.ref(value, lambda _: notes.pop(key, None))


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

    def is_tracked(self, value: Value) -> bool:
        """Say whether a tensor is told by which it is: a constant may require gradients since."""
        link = link_of(value)
        return value.node is not None and (self.knows(link) or not self._captured.has_looked_at(value))

    def add(self, value: Value) -> None:
        """Look at a tracked tensor that a record has used."""
        link = link_of(value)
        if not self.knows(link):
            if type(link) is Record:
                _raise_strange(value)
            self._add_leaf(value)
        self._missing.discard(link)

    def look(self, value: Value, is_direct: bool) -> None:
        """Leave a constant: what it holds is compared."""

    def is_shared(self, value: Value) -> bool:
        """Say that a constant may be the step's own: those that were shared are known from the first run."""
        return False

    def order_of(self, link: Any) -> int:
        """Return the `order_of` what was captured."""
        return self._captured.order_of(link, self._step)

    def print_of(self, value: Value) -> int:
        """Return the `print_of` what was captured."""
        return self._captured.print_of(value)

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


def _is_linked(value: Any) -> bool:
    return isinstance(value, Value) and value.node is not None


class Watcher(Scope):
    """Notes what a step does: its ops, shapes and parameters, and the tensors that it takes from outside."""

    skips_loops = True

    def __init__(self, start: Any, outside: Captured | Strangers, number: int, verify: bool) -> None:
        outside.start_step(number)
        self.outside = outside
        #: Numbers that tell ops, shapes, parameters and what is linked to what, and which tracked tensors from outside
        #: are taken.
        self.trace = 0
        self.taken = 0
        #: What tells the constants from outside that the step takes, those that records use in that order, and those
        #: that it has not made itself. When it runs again, the latter must be among all that it takes then, in their
        #: order; of its own there may be any.
        self.constants: set[int] = set()
        self.in_order: dict[int, None] = {}
        self.shared: set[int] = set()
        #: One that tells the values that rules read, or that these follow from, if they are to be compared: so no value
        #: matters to a derivative that is not told here, however a step comes to it.
        self.values = 0
        self.verify = verify
        self.inside: set[Any] = {link_of(leaf) for leaf in tree.leaves(start) if isinstance(leaf, Value)}
        #: Numbers of the parts of the state, below 0, and of the step's records.
        parts = enumerate(tree.leaves(start), 1)
        self._numbers: dict[Any, int] = {link_of(part): -number for number, part in parts if _is_linked(part)}
        #: By the ids of constants that the step has computed: these, the tensors from outside that are behind each, and
        #: whether it follows from shared ones alone. Then it is told by what it holds, as one that was found is.
        self._behind: dict[int, tuple[Value, dict[int, Value], bool]] = {}
        #: The first index of the step.
        self._since = next_index()

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Add a record to the trace, and look at its operands from outside."""
        self.inside.add(record)
        self.trace = zlib.crc32(f"{record.op.name}{record.shape}{record.dtype}".encode(), self.trace)
        if record.params:
            self.trace = checksum(record.params, self.trace)
        self.link(operands)
        self._numbers[record] = len(self._numbers) + 1
        for operand in operands:
            if isinstance(operand, Value):
                self.see(operand)
        if self.verify:
            # What is only moved is told where it arrives, if it does: the rest may never have been written.
            told = operands
            if record.op.facts.structure is Structure.MOVES:
                positions, reads_out = record.op.kept(record.needs)
                told = operands if positions is None or reads_out else [operands[i] for i in positions]
            self.values = checksum(told, self.values)

    def link(self, values: Iterable[Any]) -> None:
        """Add to the trace which parts of the state, or results of the step, tensors are that it uses or returns."""
        numbers = [self._numbers.get(link_of(value), 0) if _is_linked(value) else 0 for value in values]
        self.trace = zlib.crc32(repr(numbers).encode(), self.trace)

    def on_loop(self, outside: Captured, traces: bytes, values: bytes) -> None:
        """Take what the steps of a loop inside of the step have done, and what constants they took, for its own."""
        self.trace = zlib.crc32(traces, self.trace)
        self.values = zlib.crc32(values, self.values)
        for value, look in outside.constants():
            self.see(value, look.is_direct)

    def on_constant(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Note which tensors from outside are behind constants: they count once these are used, and not for a log."""
        values = [operand for operand in operands if isinstance(operand, Value)]
        known = [self._behind.get(id(value)) for value in values]
        inside = [link_of(value) in self.inside for value in values]
        behind: dict[int, Value] = {}
        for value, found, is_inside in zip(values, known, inside, strict=True):
            behind |= {id(value): value} if not is_inside else {} if found is None else found[1]
        is_shared = bool(values) and all(
            self.outside.is_shared(value) if found is None else found[2]
            for value, found in zip(values, known, strict=True)
        )
        for result in results:
            self._behind[id(result)] = result, behind, is_shared
            if any(inside):
                self.inside.add(result)
            self.outside.compute(result)

    def see(self, value: Value, is_direct: bool = True) -> None:
        """Look at a tensor that a record uses, or that is part of the next state, or what this was computed from."""
        link = link_of(value)
        if type(link) is Record and link.index >= self._since:
            self._look_behind(link)
        found = self._behind.get(id(value))
        if found is None:
            if link not in self.inside:
                self._take(value, link, is_direct)
            return
        _, behind, is_shared = found
        self._behind[id(value)] = value, {}, is_shared  # Once is enough.
        if link not in self.inside:
            self._tell(value, is_shared, is_direct)
        for each in behind.values():
            if is_shared:  # What the constant holds tells what this holds; that it may be written to is noted.
                self.outside.look(each, is_direct=False)
            else:
                self.see(each, is_direct=False)

    def _take(self, value: Value, link: Any, is_direct: bool) -> None:
        """Note a tensor from outside. One that is only behind constants gets no gradient, and is as they are."""
        if is_direct and self.outside.is_tracked(value):
            self.outside.add(value)
            if order := self.outside.order_of(link):
                self.taken = zlib.crc32(order.to_bytes(8), self.taken)
        else:
            self.outside.look(value, is_direct)
            self._tell(value, self.outside.is_shared(value), is_direct)

    def _tell(self, value: Value, is_shared: bool, is_direct: bool) -> None:
        """Note what a constant holds that is from outside, or follows from such ones alone."""
        held = self.outside.print_of(value)
        self.constants.add(held)
        if is_direct:
            self.in_order[held] = None
        if is_shared:
            self.shared.add(held)

    def _look_behind(self, record: Record) -> None:
        """Take a record for one of the step that another thread has made for it, and look at what that has used."""
        stack = [record]
        while stack:
            record = stack.pop()
            if record in self.inside:
                continue
            self.inside.add(record)
            if self.verify:
                told = [link for link in record.inputs if type(link) is not Record]
                self.values = checksum((record.params, told), self.values)
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
