"""What steps of a loop take when they run again: the same tensors, such that stand for them, or strangers."""

import copy
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from ..core.gradients import link_of
from ..core.record import Record
from ..core.value import LEAF, Value, wrap
from ..errors import GradientError
from .loop_outside import Captured, Key, Use, requires_grad


class Place(NamedTuple):
    """Where a step uses a tracked tensor that is no part of its state, nor depends on it."""

    #: The record that does, and which of its operands it is; None if it is a part of the next state, and which.
    record: Record | None
    position: int
    link: Any
    #: The tensor, None if it is not at hand: another thread used it.
    value: Any
    #: Whether it holds what was computed from the state.
    is_own: bool = False
    #: The same of what steps have computed it from, and the numbers of that.
    below: "Sequence[Place]" = ()
    numbers: tuple[int, ...] = ()


class Strangers:
    """Finds tracked tensors that steps take when they run again, and did not take the first time.

    A step that does the same uses them at the same places. Where it has used a tensor that it finds no more, since it
    makes another one, this stands for the first: records are linked to the first one, which so gets its gradient.
    """

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        #: By id of link, what stands for a tensor with a number, as long as it is there; records are held meanwhile.
        self._stands: dict[int, tuple[Any, Record | None, int]] = {}

    def start_step(self, number: int, starts: Iterable[Any]) -> None:
        """Note what a step begins with that runs again."""
        self.captured.note_starts(starts)

    def is_lost(self, link: Any) -> bool:
        """Say whether something comes from the state of another run of a step."""
        return self.captured.is_lost(link)

    def adopt(self, record: Record) -> None:
        """Leave a record that depends on no state: nothing ends when a step has run again."""

    def is_fixed(self, link: Any) -> bool:
        """Say whether a tracked tensor that is no part of a state is told by which it is."""
        return self.captured.is_fixed(link) and (type(link) is Record or not self.is_constant(link))

    def is_constant(self, value: Value) -> bool:
        """Say whether a leaf was a constant when steps ran first, and may require gradients since."""
        return self.captured.use_of(value) is None and self.captured.has_looked_at(value)

    def take(self, link: Any, value: Any, key: Key | None = None) -> int:
        """Return the number of a tracked tensor that steps used the first time; -1 for others."""
        return self.captured.number_of(link) or -1

    def use_of(self, link: Any) -> Use | None:
        """Return what is known of a tracked tensor from the first run; None if nothing is."""
        return self.captured.use_of(link)

    def number_of(self, link: Any) -> int:
        """Return the number of the tensor that this is, or that it stands for; 0 for others."""
        stand = self._stands.get(id(link))
        return self.captured.number_of(link) if stand is None else stand[2]

    def compute(self, value: Value) -> None:
        """Leave a constant that the step has computed."""

    def look(self, value: Value, is_direct: bool) -> None:
        """Leave a constant: what it holds is compared."""

    def is_shared(self, value: Value) -> bool:
        """Say that a constant may be the step's own: those that were shared are known from the first run."""
        return False

    def print_of(self, value: Value) -> int:
        """Return the `print_of` what was captured."""
        return self.captured.print_of(value)

    def check(self) -> None:
        """Raise if what steps read was overwritten since."""
        self.captured.check()

    def find(
        self, places: Sequence[Place], taken: Sequence[tuple[int, tuple[int, ...]]]
    ) -> tuple[dict[int, Value], bool]:
        """Link records to what steps took the first time, whose numbers are given, where they have something else now.

        Returns the parts of the next state that are something else, with what they were, and whether all was found.

        Raises:
            GradientError: if a tensor is used that was not used the first time.
        """
        parts: dict[int, Value] = {}
        is_same = len(places) == len(taken)
        for place, (number, numbers) in zip(places, taken, strict=False):
            is_found = self._find(place, number, parts)
            if is_found is None and place.below:  # It is the step's own: what it comes from need not be.
                found = [self._find(*pair, parts) for pair in zip(place.below, numbers, strict=False)]
                is_found = len(place.below) == len(numbers) and False not in found
            is_same &= is_found is not False
        return parts, is_same

    def _find(self, place: Place, number: int, parts: dict[int, Value]) -> bool | None:
        """Link a record to the tensor of a number; return whether it is there, None if the step's own is right."""
        known = self.number_of(place.link)
        value = self.captured.tensor(number) if number else None
        if value is None:  # Nobody can ask for its gradient.
            if known:
                _link(place, _double(place), parts)
            elif self.is_fixed(place.link):
                raise_strange(place)
            return True if known else None
        if known == number or self._stands_for(place, value):
            if not known:
                self._note(place, number)
            _link(place, value, parts)
            return True
        if not known:
            raise_strange(place)
        return False

    def _stands_for(self, place: Place, value: Value) -> bool:
        """Say whether a tensor may stand for one that was used the first time. What they come from is compared."""
        link, first = place.link, link_of(value)
        if self.is_fixed(link) or self.captured.is_fixed(first) or type(link) is not type(first):
            return False
        if link.shape != first.shape or link.dtype != first.dtype:
            return False
        # A leaf that a step makes may be computed from its state; all others hold the same, to the bit.
        return type(link) is Record or place.is_own or link.array.tobytes() == value.array.tobytes()

    def _note(self, place: Place, number: int) -> None:
        """Note that a tensor stands for another one, as long as it is there."""
        if place.value is not None:
            key, stands = id(place.link), self._stands
            ref = weakref.ref(place.value, lambda _: stands.pop(key, None))
            self._stands[key] = ref, place.link if type(place.link) is Record else None, number

    def settle(self) -> None:
        """Let leaves that stand for others have the gradients of these: who keeps them has them in their place."""
        for ref, record, number in list(self._stands.values()):
            leaf, first = ref(), self.captured.tensor(number)
            if record is None and _are_leaves(leaf, first) and not leaf.extras.watchers:
                leaf.extras = first.extras


def _are_leaves(*values: Value | None) -> bool:
    return all(value is not None and requires_grad(value) for value in values)


def _double(place: Place) -> Value:
    """Return a tensor that leads to the same as another one, and is not that: it was not used the first time."""
    like = place.link if place.value is None else place.value
    node = copy.copy(place.link) if type(place.link) is Record else LEAF
    double: Value = wrap(getattr(like, "plain", Value), like.array, node, like.version)
    return double


def _link(place: Place, value: Value, parts: dict[int, Value]) -> None:
    """Link the record at a place to a tensor."""
    link = link_of(value)
    if link is place.link:
        return
    record = place.record
    if record is None:
        parts[place.position] = value
        return
    if type(link) is Record and not link.is_kept and place.link.is_kept:
        link.array = place.link.array
    record.inputs = (*record.inputs[: place.position], link, *record.inputs[place.position + 1 :])


def raise_strange(place: Place) -> NoReturn:
    """Raise for a tensor that a step did not use when it ran first."""
    name = getattr(place.value, "name", None)
    what = f"the tensor {name!r}" if name else f"a tensor of shape {place.link.shape}"
    raise GradientError(
        f"checkpoint_loop: its step took {what} from outside when it ran again, and not when it ran first. A step that "
        "captures a variable sees what this holds when the backward runs; bind it (lambda s, w=w: ...), or put it into "
        "the state."
    )
