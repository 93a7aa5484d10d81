"""See what the steps of a loop do: their ops, shapes and parameters, and which tracked tensors they take."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..core.facts import Structure
from ..core.gradients import link_of
from ..core.record import Record, warn_user
from ..core.value import Value
from ..errors import GradientError
from .loop_constants import LOST, STATE, Looker
from .loop_op import LOOP
from .loop_outside import Captured, Key, Use
from .loop_records import constants_of, crc_of, has_hooks, inputs_of, loop_of, ordered, reached_by
from .loop_states import checksum, tensors_of
from .loop_strangers import Place, Strangers


class Watcher(Looker):
    """Notes what a step does, and what it takes from outside.

    What is behind the next state is told once the step has ended, and matters to its derivatives: the rest was only
    looked at.
    """

    skips_loops = True

    def __init__(self, start: Any, outside: Captured | Strangers, number: int, verify: bool) -> None:
        super().__init__(start, outside, number)
        #: Numbers that tell ops, shapes, parameters and what is linked to what, and which tracked tensors from outside
        #: are taken that are told by which they are.
        self.trace = 0
        self.taken = 0
        #: Where others are taken; and where one is that should be told by which it is, and is not known.
        self.places: list[Place] = []
        self.strange: Place | None = None
        #: One that tells the values that rules read, or that these follow from, if they are to be compared: so no value
        #: matters to a derivative that is not told here, however a step comes to it. And one for each record.
        self.values = 0
        self.verify = verify
        self._values: dict[Record, int] = {}
        #: Numbers of the parts of the state, below 0, and of records that depend on it; those of these that were seen,
        #: those behind the next state, each after what it depends on, and the parts of that.
        self._numbers: dict[Any, int] = {link: -i for i, link in enumerate(self._kinds, 1)}
        self._shown: list[Record] = []
        self._order: list[Record] = []
        self._after: list[Any] = []
        #: What tells the rest.
        self._keys: dict[Any, Key] = {}

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Note what a record depends on, and its values."""
        kind = self._note_kind(record)
        self.hold_tensors(operands)
        if kind & STATE:
            self._shown.append(record)
            if self.verify and not kind & LOST:
                self._values[record] = self._value_of(record, operands)

    def _value_of(self, record: Record, operands: Sequence[Any]) -> int:
        """Return a number that tells what an op computes with."""
        if record.op is LOOP:  # Its steps tell the rest.
            told = [operand for operand in operands if self._kinds.get(link_of(operand), 0) & STATE]
            return zlib.crc32(loop_of(record).values.tobytes(), checksum(told))
        if record.op.facts.structure is Structure.MOVES:
            # What is only moved is told where it arrives, if it does: the rest may never have been written.
            positions, reads_out = record.op.kept(record.needs)
            if positions is not None and not reads_out:
                return checksum([operands[i] for i in positions])
        return checksum(operands)

    def tell(self, after: Any) -> None:
        """Tell what is behind the next state."""
        self._after = parts = tensors_of(after)
        links = [link_of(part) if part.node is not None else None for part in parts]
        self.hold_tensors(parts)
        for link in links:
            if link is not None and self.kind_of(link) & LOST:
                self._raise_lost(link)
        self._order = self._behind_state(link for link in links if link is not None)
        for record in self._order:
            self._tell_record(record)
        self._link([0 if link is None else self._told(None, i, link) for i, link in enumerate(links)])
        for part, link in zip(parts, links, strict=True):
            if link is None:  # What is passed on without an op is captured as well.
                self.see(part)
        if self.verify:
            # Hooks may read whatever the step has computed.
            is_hooked = any(map(has_hooks, self._numbers))
            told = [
                [self._values[record] for record in self._order],
                list(self._values.values()) if is_hooked else None,
            ]
            self.values = zlib.crc32(repr(told).encode())

    def _behind_state(self, links: Iterable[Any]) -> list[Record]:
        """Return the records behind links that depend on the state, each after those that it depends on."""
        if self._has_foreign:
            return ordered(filter(self._depends_on_state, links), self._depends_on_state)
        needed = set(links)
        for record in reversed(self._shown):
            if record in needed:
                needed.update(inputs_of(record))
        return [record for record in self._shown if record in needed]

    def _depends_on_state(self, link: Any) -> bool:
        return type(link) is Record and self._kinds.get(link, 0) & STATE != 0 and self._numbers.get(link, 0) >= 0

    def _raise_lost(self, link: Any) -> NoReturn:
        """Raise for what comes from the state of an earlier step: name what that step has made of it."""
        used = "returns"
        while type(link) is Record and link.index >= self._since:
            used = f"uses, at {link.site},"
            link = next(each for each in inputs_of(link) if self.kind_of(each) & LOST)
        raise GradientError(
            f"checkpoint_loop: its step {used} a tensor of shape {link.shape} that an earlier step has made, at "
            f"{link.site}, and that is no part of the state, so its gradient would be lost. Put what later steps need "
            "into the state, and detach() what is a constant for them."
        )

    def _tell_record(self, record: Record) -> None:
        """Add a record that depends on the state to the trace, and take its operands from outside."""
        if not record.op.facts.deterministic:
            warn_user(
                f"checkpoint_loop: its step runs {record.op.name} at {record.site}, which is declared with "
                "deterministic=False; derivatives are of what it gives when the step runs again. If it draws, draw by "
                "nt, whose numbers repeat, or before the loop."
            )
        self.trace = crc_of(record, self.trace, self._numbers)
        numbers = []
        known, needs = self._numbers, record.needs
        for position, link in enumerate(record.inputs):
            if needs >> position & 1:
                number = known.get(link)
                numbers.append(self._told(record, position, link) if number is None else number)
            else:
                numbers.append(0)
                if isinstance(link, Value):
                    self.see(link)
        if record.op is LOOP:
            # It takes what is tracked by then: a constant may have become so since.
            numbers = [number for number in numbers if number]
            for value, look in loop_of(record).outside.constants():
                self.see(value, look.is_direct)
        self._link(numbers)
        if self.verify and record not in self._values:  # Another thread has made it.
            told = [x for x in record.inputs if type(x) is not Record and not (isinstance(x, Value) and x in known)]
            self._values[record] = checksum((record.params, told))
        known[record] = len(known) + 1

    def _link(self, numbers: Sequence[int]) -> None:
        """Add to the trace which parts of the state, or results of the step, tensors are that it uses or returns."""
        self.trace = zlib.crc32(repr(numbers).encode(), self.trace)

    def _told(self, record: Record | None, position: int, link: Any) -> int:
        """Return what tells a tracked operand of a record, or part of the next state; take it if it is from outside.

        If no op has computed it, it is told as a constant is, which it may have become since, or have been before.
        """
        number = self._numbers.get(link)
        if number is not None:
            return number
        if type(link) is not Record and self.outside.is_constant(link):
            self.see(link)
            return 0
        key = self._key(link)
        self.taken = zlib.crc32(b"%d" % key.sources, self.taken)
        if self.outside.is_fixed(link):
            if key.sources < 0 and self.strange is None:
                self.strange = Place(record, position, link, self.tensor_of(link))
            return 0
        if not key.sources:
            self.see(link)
        self.places.append(self._take(self._place(record, position, link), key))
        return key.ops

    def _place(self, record: Record | None, position: int, link: Any) -> Place:
        """Return where a record uses something that does not depend on the state."""
        return Place(record, position, link, self.tensor_of(link), type(link) is not Record and link in self._inside)

    def _take(self, place: Place, key: Key) -> Place:
        """Take what is at a place, and note what steps have computed it from."""
        link = place.link
        self.outside.take(link, place.value, key)
        if type(link) is not Record:
            return place
        use = self.outside.use_of(link)
        if use is not None and use.numbers is not None:
            below: list[Place] = []
            numbers, constants = use.numbers, use.constants
        else:
            below, constants = self._below(link)
            numbers = tuple(self.outside.number_of(each.link) for each in below)
            if use is not None:
                use.numbers, use.constants = numbers, constants
        if key.sources:  # It is told by which these are, and by what others hold.
            for constant in constants:
                self.see(constant, is_direct=False)
        return place._replace(below=below, numbers=numbers)

    def _below(self, record: Record) -> tuple[list[Place], tuple[Value, ...]]:
        """Return where what steps made is used on the way to a still record, and what is told by what it holds there.

        The order is that of the graph, whichever step ran it.
        """
        places: list[Place] = []
        constants: dict[Any, None] = {}
        for each in ordered([record], lambda link: type(link) is Record and not self.outside.is_fixed(link)):
            constants |= dict.fromkeys(constants_of(each))
            for position, link in enumerate(each.inputs):
                if each.needs >> position & 1 and not self.outside.is_fixed(link):
                    if type(link) is not Record:
                        constants[link] = None
                    places.append(self._place(each, position, link))
                    self.outside.take(link, places[-1].value, self._key(link))
        return places, tuple(constants)

    def _key(self, link: Any) -> Key:
        """Return what tells something tracked that does not depend on the state."""
        key = self._keys.get(link)
        if key is not None:
            return key
        use = self.outside.use_of(link)
        if use is None and self.outside.is_fixed(link) and self.tensor_of(link) is None:
            raise GradientError(
                f"checkpoint_loop: another thread uses what {link.site} has computed outside of the step that it runs "
                "for, so its gradient would be lost. Put it into the state."
            )
        if self.outside.is_fixed(link):
            key = Key(0, self.outside.take(link, self.tensor_of(link)))
        elif type(link) is not Record:
            self.outside.take(link, link)
            key = Key()
        else:
            key = self._key_of_use(link, use)
        self._keys[link] = key
        return key

    def _key_of_use(self, record: Record, use: Use | None) -> Key:
        """Return what tells a still record, by what it depends on."""
        if use is not None:
            return use.key

        def is_new(link: Any) -> bool:
            return type(link) is Record and link not in self._keys and not self.outside.is_fixed(link)

        for each in ordered([record], is_new):
            keys = [self._key(link) for link in inputs_of(each)]
            ops = zlib.crc32(repr([key.ops for key in keys]).encode(), crc_of(each, 1))
            sources = [key.sources for key in keys]
            self._keys[each] = Key(ops, zlib.crc32(repr(sources).encode()) if any(sources) else 0)
        return self._keys[record]

    def reaches(self) -> list[tuple[list[int], list[Any]]]:
        """Return the parts of the state, and the tensors from outside, that each part of the next state depends on."""
        parts = [link for link, number in self._numbers.items() if number < 0]
        reach = _Reach(parts, self._since)
        for record in self._order:
            reach.add(record)
        masks = [reach.of(link_of(part)) if part.node is not None else 0 for part in self._after]
        return [reach.split(mask) for mask in masks]


class _Reach:
    """What links depend on, as bits: parts of a step's state, and after them tensors from outside as they are met."""

    def __init__(self, parts: Sequence[Any], since: int) -> None:
        self._masks: dict[Any, int] = {link: 1 << i for i, link in enumerate(parts)}
        self._sources: list[Any] = list(parts)
        self._count = len(parts)
        self._since = since

    def add(self, record: Record) -> None:
        """Add a record whose operands in the step are known, or still."""
        mask = 0
        for link in reached_by(record):
            known = self._masks.get(link)
            mask |= self.of(link) if known is None else known
        self._masks[record] = mask

    def of(self, link: Any) -> int:
        """Return what a link depends on."""
        if self._is_new(link):
            for record in ordered([link], self._is_new):
                self.add(record)
        elif link not in self._masks:
            self._masks[link] = 1 << len(self._sources)
            self._sources.append(link)
        return self._masks[link]

    def _is_new(self, link: Any) -> bool:
        return type(link) is Record and link.index >= self._since and link not in self._masks

    def split(self, mask: int) -> tuple[list[int], list[Any]]:
        """Return the numbers of parts, and the tensors from outside, that bits stand for."""
        parts, sources = [], []
        while mask:
            bit = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            if bit < self._count:
                parts.append(bit)
            else:
                sources.append(self._sources[bit])
        return parts, sources
