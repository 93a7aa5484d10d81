"""What the steps of a loop take from outside: which tensors these are, what they hold, and whether steps made them."""

import bisect
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from ..core.cells import Cell
from ..core.recompute import fingerprint
from ..core.record import Record, describe_site, next_index
from ..core.value import Value, writes_to
from ..errors import OverwrittenError
from .loop_states import BEFORE

#: Whose records those of a step are, to be named when somebody differentiates them after it.
STEP = "a step of checkpoint_loop (put what is used later into its state)"

#: Tensors, by identity. Those that a step makes for itself die with it.
Tensors = weakref.WeakValueDictionary[int, Value]


class Key(NamedTuple):
    """Tells what a step computes from tensors that are no part of its state."""

    #: The ops, with their shapes and parameters; 0 for a tensor that was not computed.
    ops: int = 0
    #: Which tensors that are told by which they are it comes from; 0 if there are none.
    sources: int = 0


#: That of a tensor of which nothing else is known.
_PLAIN = Key()


class Use:
    """A tracked tensor that steps take: its number, in order of first use, and in which step that was."""

    __slots__ = ("constants", "is_fixed", "is_shared", "key", "link", "number", "numbers", "step", "value", "writes")

    def __init__(self, number: int, step: int, link: Any, value: Any, key: Key, is_fixed: bool) -> None:
        self.number = number
        self.step = step
        #: Whether it is told by which it is.
        self.is_fixed = is_fixed
        #: The record that made it, held as long as it is; None for a leaf.
        self.link = link if type(link) is Record else None
        #: The tensor, or a weak reference to it if steps may have made it.
        self.value = value
        self.key = key
        #: The numbers of what steps have computed it from, and what is told by what it holds there; None if not known.
        self.numbers: tuple[int, ...] | None = None
        self.constants: tuple[Value, ...] = ()
        #: The write count of a leaf that is told by which it is, and whether several steps have used it.
        self.writes: int | None = None
        self.is_shared = False

    def tensor(self) -> Any:
        """Return the tensor, None if nobody holds it any more, or it was overwritten by a record."""
        value = self.value() if type(self.value) is weakref.ref else self.value
        return None if value is None or (self.link is not None and value.node is not self.link) else value


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
    """The tensors that steps take from outside when they run first.

    Told by which they are: leaves that require gradients and what was computed before the loop. All others are told by
    what they hold, since a step may find what another one has made, or make it anew. Write counts say without a look
    whether they still hold it. Whatever is tracked, and outlives the loop, gets a gradient.
    """

    def __init__(self, cell: Cell, around: "Captured | None") -> None:
        #: The same of the loop around this one.
        self._around = around
        #: Whose records those are that depend on no state: steps only happen to run them.
        self._cell = cell
        #: By id of link: those of which nobody holds the tensor any more are forgotten.
        self._uses: dict[int, Use] = {}
        self._numbers: dict[int, Use] = {}
        #: By identity of tensors.
        self._looks: dict[int, _Look] = {}
        #: The constants that steps have computed, and the tensors that they began with, while somebody holds them.
        self._computed: Tensors = weakref.WeakValueDictionary()
        self._starts: Tensors = weakref.WeakValueDictionary()
        #: The same for those that records have made, by their indices.
        self._start_indices: set[int] = set()
        self._count = 0
        #: The first index of each stretch in which steps run, and the first after it, in turn; how many runs are open.
        self._stretches: list[int] = []
        self._open = 0
        #: The step that runs, and its first index.
        self._step = self._step_since = 0

    @property
    def captured(self) -> "Captured":
        """What is known of the tensors: this."""
        return self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take what is made inside as made by steps, also of the loop around: its steps run this one."""
        if not self._open:
            self._stretches.append(next_index())
        self._open += 1
        try:
            with nullcontext() if self._around is None else self._around.running():
                yield
        finally:
            self._open -= 1
            if not self._open:
                self._stretches.append(next_index())

    def start_step(self, number: int, starts: Iterable[Any]) -> None:
        """Take what was made from now on as made by a step, which begins with tensors or records."""
        self._step = number
        self._step_since = next_index()
        self.note_starts(starts)

    def note_starts(self, starts: Iterable[Any]) -> None:
        """Note what a step begins with."""
        for start in starts:
            if type(start) is Record:
                self._start_indices.add(start.index)
            else:
                self._starts[id(start)] = start

    def compute(self, value: Value) -> None:
        """Note a constant that the step has computed."""
        self._computed[id(value)] = value

    def made_by_steps(self, index: int) -> bool:
        """Say whether what has an index was made while steps ran, first or again."""
        return bisect.bisect_right(self._stretches, index) % 2 == 1

    def is_start(self, link: Any) -> bool:
        """Say whether a step has begun with a tensor, or what a record has made."""
        if type(link) is Record:
            return link.index in self._start_indices
        return link is BEFORE or self._starts.get(id(link)) is link

    def is_lost(self, link: Any) -> bool:
        """Say whether something comes from the state of an earlier step, so that a gradient by it would be lost."""
        if self.is_start(link) or type(link) is not Record:
            return self.is_start(link)
        records = [] if not self.made_by_steps(link.index) else behind(link, self.is_start, self.made_by_steps)
        for record in records or ():
            self.adopt(record)
        return records is None

    def adopt(self, record: Record) -> None:
        """Let a record that depends on no state live on after its step."""
        if record.cell.owner is STEP:
            record.cell = self._cell

    def is_fixed(self, link: Any) -> bool:
        """Say whether a tracked tensor that is no part of a state is told by which it is."""
        use = self._uses.get(id(link))
        if use is not None:
            return use.is_fixed
        if type(link) is Record:
            return not (self.made_by_steps(link.index) or self.is_still(link))
        return requires_grad(link) and not self.made_by_steps(link.extras.since or 0)

    def is_still(self, record: Record) -> bool:
        """Say whether steps have made something of no state of theirs, nor of loops around."""
        if self.made_by_steps(record.index):
            return not self.is_lost(record)
        return self._around is not None and self._around.is_still(record)

    def is_constant(self, value: Value) -> bool:
        """Say that a leaf is none."""
        return False

    def take(self, link: Any, value: Any, key: Key = _PLAIN) -> int:
        """Note a tracked tensor that the step uses, and return its number; 0 if it is not at hand."""
        use = self._uses.get(id(link))
        if use is None:
            if value is None:
                return 0
            self._count += 1
            is_fixed = self.is_fixed(link)
            held = value if type(link) is Record and is_fixed else weakref.ref(value, self._forgetting(id(link)))
            use = self._uses[id(link)] = self._numbers[self._count] = Use(
                self._count, self._step, link, held, key, is_fixed
            )
            if is_fixed and type(link) is not Record:
                use.writes = writes_to(value)
        elif use.step < self._step:
            use.is_shared = True
        return use.number

    def _forgetting(self, key: int) -> Any:
        uses, numbers = self._uses, self._numbers

        def forget(_: Any) -> None:
            use = uses.pop(key, None)
            if use is not None:
                numbers.pop(use.number, None)

        return forget

    def use_of(self, link: Any) -> Use | None:
        """Return what is known of a tracked tensor that steps have used; None if nothing is."""
        return self._uses.get(id(link))

    def number_of(self, link: Any) -> int:
        """Return the number of a tracked tensor, 0 if it has none."""
        use = self._uses.get(id(link))
        return 0 if use is None else use.number

    def tensor(self, number: int) -> Any:
        """Return the tensor of a number; None if nobody holds it any more."""
        use = self._numbers.get(number)
        return None if use is None else use.tensor()

    def living(self, taken: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return numbers of tensors, each with those of others, with 0 for those that nobody holds any more."""
        return tuple((self.living_one(number), tuple(map(self.living_one, below))) for number, below in taken)

    def living_one(self, number: int) -> int:
        """Return the number of a tensor, 0 if nobody holds it any more."""
        return number if number in self._numbers else 0

    def look(self, value: Value, is_direct: bool) -> None:
        """Note a constant that a record has used, or that what one has used was computed from."""
        known = self._looks.get(id(value))
        if known is None:
            key, looks = id(value), self._looks
            ref = weakref.ref(value, lambda _: looks.pop(key, None))
            self._looks[key] = _Look(
                self._step, ref, fingerprint(value.array), writes_to(value), self._is_left_over(value), is_direct
            )
        elif known.writes != writes_to(value):
            self._looks[id(value)] = known._replace(writes=None)

    def _is_left_over(self, value: Value) -> bool:
        """Say whether an earlier step has made a tensor."""
        if type(value.node) is Record:
            return self._stretches[0] <= value.node.index < self._step_since
        return self._computed.get(id(value)) is value

    def has_looked_at(self, value: Value) -> bool:
        """Say whether a step has used a tensor as a constant when it ran first."""
        return id(value) in self._looks

    def is_shared(self, value: Value) -> bool:
        """Say whether steps before this one have used a constant, or made it. Any other may be its own."""
        look = self._looks.get(id(value))
        return look is not None and (look.step < self._step or look.is_left_over)

    def print_of(self, value: Value) -> int:
        """Return what tells what a constant holds."""
        look = self._looks.get(id(value))
        is_same = look is not None and look.writes is not None and look.writes == writes_to(value)
        return look.print if look is not None and is_same else fingerprint(value.array)

    def values(self) -> dict[int, Value]:
        """Return the tensors that get gradients and outlive the loop by their numbers, which rise.

        When a loop around it runs again to be recorded, what was a leaf may be a record; its place is the same.
        """
        found = {number: use.tensor() for number, use in sorted(self._numbers.items())}
        return {number: value for number, value in found.items() if value is not None}

    def constants(self) -> list[tuple[Value, _Look]]:
        """Return the tensors that were used as constants and outlive the loop, with their first uses."""
        found = [(look.value(), look) for look in list(self._looks.values())]
        return [(value, look) for value, look in found if value is not None]

    def check(self) -> None:
        """Raise if a tensor was overwritten since it was read: after the loop, or by steps if it requires gradients."""
        uses = [use for use in self._numbers.values() if use.writes is not None and use.is_shared]
        leaves = [(use.tensor(), use.writes) for use in uses]
        constants = [(value, look.writes) for value, look in self.constants() if look.writes is not None]
        for value, writes in [*leaves, *constants]:
            if value is not None and writes_to(value) != writes:
                assert value.version is not None
                written = describe_site(value.version[0].code, value.version[0].lasti)
                raise OverwrittenError(
                    f"checkpoint_loop: its step reads a tensor of shape {value.shape} that was overwritten since, at "
                    f"{written}; write the new value to another tensor, or call backward before."
                )


def requires_grad(leaf: Value) -> bool:
    return leaf.extras is not None and leaf.extras.requires_grad


def behind(record: Record, is_start: Any, made_by_steps: Any) -> list[Record] | None:
    """Return the records of steps that one depends on, with itself; None if a step has begun with one of them."""
    found = {record: None}
    stack = [record]
    while stack:
        record = stack.pop()
        for position, link in enumerate(record.inputs):
            if not record.needs >> position & 1 or link in found:
                continue
            if type(link) is Record:
                if is_start(link):
                    return None
                if made_by_steps(link.index):
                    found[link] = None
                    stack.append(link)
            elif isinstance(link, Value) and is_start(link):
                return None
    return list(found)
