"""See what the steps of a loop do: their ops, shapes and parameters, and what they take from outside."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from .. import tree
from ..core.apply import PICK
from ..core.context import Scope
from ..core.gradients import link_of
from ..core.op import Structure
from ..core.record import Record, next_index
from ..core.tape import RecordingTape
from ..core.value import Value
from ..errors import GradientError
from .loop_op import LOOP
from .loop_outside import Captured, Key, Tensors
from .loop_states import checksum, tensors_of
from .loop_strangers import Place, Strangers

#: In a mask, the bit of what comes from the state of an earlier step. Then follow those of the parts of the state.
_LOST = 1


class Watcher(Scope):
    """Notes what a step does, and what it takes from outside.

    A record is *moving* if it depends on the step's state, and *still* if not: then it may as well have run before the
    loop, or in another step that has kept what it made. What is behind the next state is told once the step has ended:
    the rest was only looked at.
    """

    skips_loops = True

    def __init__(self, start: Any, outside: Captured | Strangers, number: int, verify: bool) -> None:
        starts = [link_of(part) for part in tensors_of(start)]
        outside.start_step(number, starts)
        self.outside = outside
        #: Numbers that tell ops, shapes, parameters and what is linked to what, and which tracked tensors from outside
        #: are taken that are told by which they are.
        self.trace = 0
        self.taken = 0
        #: Where others are taken.
        self.places: list[Place] = []
        #: What tells the constants from outside that the step takes, those that records use in that order, and those
        #: that it has not made itself. When it runs again, the latter must be among all that it takes then, in their
        #: order; of its own there may be any.
        self.constants: set[int] = set()
        self.in_order: dict[int, None] = {}
        self.shared: set[int] = set()
        #: One that tells the values that rules read, or that these follow from, if they are to be compared: so no value
        #: matters to a derivative that is not told here, however a step comes to it. And one for each record.
        self.values = 0
        self.verify = verify
        self._values: dict[Record, int] = {}
        #: What each link comes from, as bits: a state that is lost, parts of the step's state, tensors from outside.
        self._masks: dict[Any, int] = {start: 2 << i for i, start in enumerate(starts)}
        self._moving = (2 << len(starts)) - 1
        self._sources: list[Any] = []
        #: For each part of the next state, the parts of the state and the tensors from outside that it comes from.
        self.reaches: list[tuple[list[int], list[Any]]] = []
        #: Numbers of the parts of the state, below 0, and of the step's moving records.
        self._numbers: dict[Any, int] = {start: -number for number, start in enumerate(starts, 1)}
        #: What tells still records.
        self._keys: dict[Any, Key] = {}
        #: The tensors of records that are not moving.
        self._tensors: dict[Record, Value] = {}
        #: Constants and still records that come from the state, by their values.
        self.inside: set[Any] = {link_of(leaf) for leaf in tree.leaves(start) if isinstance(leaf, Value)}
        #: By constants and still records that the step has computed: the tensors from outside that are behind each, and
        #: whether it follows from shared ones alone. Then it is told by what it holds, as one that was found is.
        self._behind: dict[Any, tuple[dict[Any, None], bool]] = {}
        #: The first index of the step.
        self._since = next_index()

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Note what a record comes from, and its values."""
        mask = self._mask(record)
        self._hold(operands)
        if self.verify and self._has_state(record) and not mask & _LOST:
            # What is only moved is told where it arrives, if it does: the rest may never have been written.
            told = operands
            if record.op.facts.structure is Structure.MOVES:
                positions, reads_out = record.op.kept(record.needs)
                told = operands if positions is None or reads_out else [operands[i] for i in positions]
            if record.op is LOOP:  # Its steps tell the rest.
                told = [operand for operand in operands if self._has_state(link_of(operand))]
                self._values[record] = zlib.crc32(_loop_of(record).values.tobytes(), checksum(told))
            else:
                self._values[record] = checksum(told)

    def on_constant(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Note what is behind constants: it counts once these are used, and not for a log."""
        self._hold(operands)
        self._note([link_of(operand) for operand in operands if isinstance(operand, Value)], results)
        for result in results:
            self.outside.compute(result)

    def _hold(self, operands: Iterable[Any]) -> None:
        """Hold the tensors of records that do not depend on the step's state."""
        for operand in operands:
            if isinstance(operand, Value) and type(operand.node) is Record and not self._has_state(operand.node):
                self._tensors[operand.node] = operand

    def _note(self, links: Sequence[Any], results: Sequence[Any]) -> None:
        """Note what results come from that are no moving records."""
        known = [self._behind.get(link) for link in links]
        inside = [link in self.inside or self._has_state(link) for link in links]
        behind: dict[Any, None] = {}
        for link, found, is_inside in zip(links, known, inside, strict=True):
            behind |= {link: None} if not is_inside else {} if found is None else found[0]
        is_shared = bool(links) and all(
            (value := self._tensor(link)) is not None and self.outside.is_shared(value) if found is None else found[1]
            for link, found in zip(links, known, strict=True)
        )
        for result in results:
            self._behind[result] = behind, is_shared
            if any(inside):
                self.inside.add(result)

    def _tensor(self, link: Any) -> Any:
        """Return the tensor of a link that is not moving; None if it is not at hand."""
        return link if type(link) is not Record else self._tensors.get(link)

    def _has_state(self, link: Any) -> bool:
        """Say whether a link depends on the step's state."""
        return self._masks.get(link, 0) & self._moving & ~_LOST != 0

    def _is_moving(self, link: Any) -> bool:
        """Say whether a link depends on the step's state, or on one that is lost."""
        return self._masks.get(link, 0) & self._moving != 0

    def _mask(self, link: Any) -> int:
        """Return what a tracked link comes from."""
        wanted, stack = link, [link]
        while stack:
            link = stack.pop()
            if link in self._masks:
                continue
            if type(link) is not Record or link.index < self._since:
                self._masks[link] = _LOST
                if not self.outside.is_lost(link):
                    self._masks[link] = self._moving + 1 << len(self._sources)
                    self._sources.append(link)
            elif missing := [each for each in _inputs(link) if each not in self._masks]:
                stack += [link, *missing]
            else:
                self._masks[link] = 0
                for each in _inputs(link):
                    self._masks[link] |= self._masks[each]
                if not self._is_moving(link):
                    self.outside.adopt(link)
                    self._note([*_inputs(link), *_constants(link)], (link,))
        return self._masks[wanted]

    def tell(self, after: Any) -> None:
        """Tell what is behind the next state, and so matters to its derivatives."""
        parts = tensors_of(after)
        links = [link_of(part) if _is_linked(part) else None for part in parts]
        self._hold(parts)
        reaches: dict[Any, int] = {}
        for link in links:
            if link is not None and self._mask(link) & _LOST:
                self._raise_lost(link)
        order = _order(filter(self._is_own, links), self._is_own)
        for record in order:
            if self._is_moving(record):
                self._tell_record(record)
            else:
                self._keys[record] = self._key_of(record)
            reaches[record] = 0
            for link in _reached(record):
                reaches[record] |= reaches.get(link) or self._masks[link]
        self._link([0 if link is None else self._told(None, i, link) for i, link in enumerate(links)])
        for part, link in zip(parts, links, strict=True):
            if link is None:  # What is passed on without an op is captured as well.
                self._see(part)
            self.reaches.append(self._split(0 if link is None else reaches.get(link) or self._masks[link]))
        if self.verify:
            # Hooks may read whatever the step has computed.
            is_hooked = any(map(_has_hooks, [*order, *self._numbers]))
            told = [self._values.get(record, 0) for record in order if self._is_moving(record)]
            self.values = zlib.crc32(repr([told, list(self._values.values()) if is_hooked else None]).encode())

    def _split(self, mask: int) -> tuple[list[int], list[Any]]:
        """Return the parts of the state and the tensors from outside in a mask."""
        mask >>= 1
        count = self._moving.bit_length() - 1
        bits = []
        while mask:
            bits.append((mask & -mask).bit_length() - 1)
            mask &= mask - 1
        return [bit for bit in bits if bit < count], [self._sources[bit - count] for bit in bits if bit >= count]

    def _raise_lost(self, link: Any) -> NoReturn:
        """Raise for what comes from the state of an earlier step: name what that step has made of it."""
        used = "returns"
        while self._is_own(link):
            used = f"uses, at {link.site},"
            link = next(each for each in _inputs(link) if self._mask(each) & _LOST)
        raise GradientError(
            f"checkpoint_loop: its step {used} a tensor of shape {link.shape} that an earlier step has made, at "
            f"{link.site}, and that is no part of the state, so its gradient would be lost. Put what later steps need "
            "into the state, and detach() what is a constant for them."
        )

    def _is_own(self, link: Any) -> bool:
        return type(link) is Record and link.index >= self._since and link not in self._numbers

    def _tell_record(self, record: Record) -> None:
        """Add a moving record to the trace, and take its operands from outside."""
        self.trace = _crc_of(record, self.trace)
        numbers = []
        for position, link in enumerate(record.inputs):
            is_tracked = bool(record.needs >> position & 1)
            numbers.append(self._told(record, position, link) if is_tracked else 0)
            if not is_tracked and isinstance(link, Value):
                self._see(link)
        # A loop takes what is tracked by then: a constant may have become so since.
        self._link(numbers if record.op is not LOOP else [number for number in numbers if number])
        self._numbers[record] = len(self._numbers) + 1
        if self.verify and record not in self._values:  # Another thread has made it.
            told = [
                x for x in record.inputs if type(x) is not Record and not (isinstance(x, Value) and x in self._numbers)
            ]
            self._values[record] = checksum((record.params, told))
        if record.op is LOOP:
            for value, look in _loop_of(record).outside.constants():
                self._see(value, look.is_direct)

    def _link(self, numbers: Sequence[int]) -> None:
        """Add to the trace which parts of the state, or results of the step, tensors are that it uses or returns."""
        self.trace = zlib.crc32(repr(numbers).encode(), self.trace)

    def _told(self, record: Record | None, position: int, link: Any) -> int:
        """Return what tells a tracked operand of a record, or part of the next state, and take it if it is not moving.

        If no op has computed it, it is told as a constant is, which it may have become since, or have been before.
        """
        number = self._numbers.get(link)
        if number is not None:
            return number
        if self._mask(link) & _LOST:
            self._raise_lost(link)
        if type(link) is not Record and self.outside.is_constant(link):
            self._see(link)
            return 0
        key = self._key(link)
        self.taken = zlib.crc32(repr(key.sources).encode(), self.taken)
        if not key.sources:
            self._see(link)
        self.places.append(self._take(Place(record, position, link, self._tensor(link), link in self.inside), key))
        return key.ops

    def _take(self, place: Place, key: Key) -> Place:
        """Take what is at a place, and note what steps have computed it from."""
        link = place.link
        self.outside.take(link, place.value, key)
        if type(link) is not Record or self.outside.is_fixed(link):
            return place
        use = self.outside.use_of(link)
        if use is not None and use.numbers is not None:
            below, numbers, constants = [], use.numbers, use.constants
        else:
            below, constants = self._below(link)
            numbers = tuple(self.outside.number_of(each.link) for each in below)
            if use is not None:
                use.numbers, use.constants = numbers, constants
        if key.sources:  # It is told by which these are, and by what others hold.
            for constant in constants:
                self._see(constant, is_direct=False)
        return place._replace(below=below, numbers=numbers)

    def _below(self, record: Record) -> tuple[list[Place], tuple[Value, ...]]:
        """Return where what steps made is used on the way to a still record, and what is told by what it holds there.

        The order is that of the graph, whichever step ran it.
        """
        places: list[Place] = []
        constants: dict[Value, None] = {}
        for each in _order([record], lambda link: type(link) is Record and not self.outside.is_fixed(link)):
            constants |= dict.fromkeys(_constants(each))
            for position, link in enumerate(each.inputs):
                if each.needs >> position & 1 and not self.outside.is_fixed(link):
                    if type(link) is not Record:
                        constants[link] = None
                    value = self._tensor(link)
                    self.outside.take(link, value, self._key(link))
                    places.append(Place(each, position, link, value, link in self.inside))
        return places, tuple(constants)

    def _key(self, link: Any) -> Key:
        """Return what tells something tracked that is not moving."""
        if link in self._keys:
            return self._keys[link]
        if self.outside.is_fixed(link):
            value = self._tensor(link)
            if value is None and self.outside.use_of(link) is None:
                raise GradientError(
                    f"checkpoint_loop: another thread uses what {link.site} has computed outside of the step that it "
                    "runs for, so its gradient would be lost. Put it into the state."
                )
            key = Key(0, self.outside.take(link, value))
        elif type(link) is not Record:
            self.outside.take(link, link)
            key = Key()
        elif (use := self.outside.use_of(link)) is not None:
            key = use.key
        else:  # An earlier step has made it.
            key = self._key_of_chain(link)
        self._keys[link] = key
        return key

    def _key_of_chain(self, record: Record) -> Key:
        """Return what tells a record that another step has made, by what this depends on."""

        def is_new(link: Any) -> bool:
            return type(link) is Record and link not in self._keys and not self.outside.is_fixed(link)

        for each in _order([record], is_new):
            self._keys[each] = self._key_of(each)
        return self._keys[record]

    def _key_of(self, record: Record) -> Key:
        """Return what tells a still record, given what tells its operands."""
        keys = [self._key(link) for link in _inputs(record)]
        ops = zlib.crc32(repr([key.ops for key in keys]).encode(), _crc_of(record, 1))
        sources = [key.sources for key in keys]
        if not any(sources):
            return Key(ops, 0)
        return Key(ops, zlib.crc32(repr(sources).encode()))

    def _see(self, link: Any, is_direct: bool = True) -> None:
        """Look at a constant, or what is as good as one, or at what it was computed from."""
        found = self._behind.get(link)
        if found is None:
            if link not in self.inside and (value := self._tensor(link)) is not None:
                self.outside.look(value, is_direct)
                self._tell(value, self.outside.is_shared(value), is_direct)
            return
        behind, is_shared = found
        self._behind[link] = {}, is_shared  # Once is enough.
        value = self._tensor(link)
        if link not in self.inside and value is not None:
            self._tell(value, is_shared, is_direct)
        for each in behind:
            if not is_shared:
                self._see(each, is_direct=False)
            elif (value := self._tensor(each)) is not None:
                # What the constant holds tells what this holds; that it may be written to is noted.
                self.outside.look(value, is_direct=False)

    def _tell(self, value: Value, is_shared: bool, is_direct: bool) -> None:
        """Note what a constant holds that is from outside, or follows from such ones alone."""
        held = self.outside.print_of(value)
        self.constants.add(held)
        if is_direct:
            self.in_order[held] = None
        if is_shared:
            self.shared.add(held)


def _is_linked(value: Any) -> bool:
    return isinstance(value, Value) and value.node is not None


def _inputs(record: Record) -> list[Any]:
    """Return the tracked operands of a record."""
    return [link for position, link in enumerate(record.inputs) if record.needs >> position & 1]


def _order(links: Iterable[Any], is_inside: Callable[[Any], bool]) -> list[Record]:
    """Return the records behind links, as far as they are inside, each after those that it depends on.

    The order is that of the graph: it does not matter which of them ran first.
    """
    found: dict[Record, None] = {}
    stack = list(links)[::-1]
    while stack:
        record = stack.pop()
        if record in found:
            continue
        missing = [link for link in _inputs(record) if is_inside(link) and link not in found]
        if missing:
            stack += [record, *reversed(missing)]
        else:
            found[record] = None
    return list(found)


def _constants(record: Record) -> list[Value]:
    """Return the operands of a record that are constants; those of all steps for a loop."""
    found = [x for i, x in enumerate(record.inputs) if isinstance(x, Value) and not record.needs >> i & 1]
    return found if record.op is not LOOP else [*found, *(value for value, _ in _loop_of(record).outside.constants())]


def _reached(record: Record) -> list[Any]:
    """Return the tracked operands that the result of a record depends on: of a loop, each result on some."""
    whole, position = record, 0
    if record.op is PICK and record.params is not None:
        whole, position = record.inputs[0], record.params["position"]
    if whole.op is not LOOP or (whole is record and type(record.shape) is list):
        return _inputs(record)
    reach = _loop_of(whole).reaches[position]
    return [link for i, link in enumerate(whole.inputs) if whole.needs >> i & reach >> i & 1]


def _loop_of(record: Record) -> Any:
    assert record.params is not None
    return record.params["loop"]


def _has_hooks(link: Any) -> bool:
    holder = link.notes if type(link) is Record else link.extras
    return holder is not None and holder.hooks is not None


def _crc_of(record: Record, total: int) -> int:
    """Return a number that tells the op, shape and parameters of a record, beside a `total` so far."""
    total = zlib.crc32(f"{record.op.name}{record.shape}{record.dtype}".encode(), total)
    if record.op is LOOP:
        return zlib.crc32(_loop_of(record).traces.tobytes(), total)
    return checksum(record.params, total) if record.params else total


class StepTape(RecordingTape):
    """A tape for steps: what they detach it does not watch, nor in later steps, although it starts anew with each."""

    __slots__ = ("_left_out",)

    def __init__(self, watch_all: bool, left_out: Tensors) -> None:
        super().__init__(watch_all)
        self._left_out = left_out

    def leave_out(self, value: Value) -> None:
        """Let a constant that is used not be watched, by other tapes for steps of the loop as well."""
        self._left_out[id(value)] = value

    def watch_on_use(self, value: Value) -> None:
        """Make a tensor a source until the step has ended."""
        if self.would_watch(value):
            super().watch_on_use(value)

    def would_watch(self, value: Value) -> bool:
        """Say whether an op that uses an untracked float tensor now would make it a source."""
        return self._left_out.get(id(value)) is not value and super().would_watch(value)


class Forgetful(StepTape):
    """A tape that records are made on, and that lists none of them."""

    __slots__ = ()

    def __init__(self, watch_all: bool, left_out: Tensors) -> None:
        super().__init__(watch_all, left_out)
        self.records = _Nothing()


class _Nothing(list[Any]):
    """A list that stays empty."""

    def append(self, item: Any) -> None:
        """Leave it."""
