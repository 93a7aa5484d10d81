"""What steps of a loop take when they run again: the same tensors, such that stand for them, or strangers."""

import copy
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from ..core.gradients import link_of
from ..core.record import Record, next_index
from ..core.value import LEAF, Value, wrap
from ..errors import GradientError
from .loop_outside import Captured, Key, Use, behind, requires_grad


class Place(NamedTuple):
    """Where a step uses a tracked tensor that is no part of its state, nor depends on it."""

    #: The record that does, and which of its operands it is; None if it is a part of the next state, and which.
    record: Record | None
    position: int
    link: Any
    #: The tensor, None if it is not at hand: another thread used it.
    value: Any
    #: Whether it holds what was computed from the state.
    is_own: bool


class Strangers:
    """Finds tracked tensors that steps take when they run again, and did not take the first time.

    A step that does the same uses them at the same places. Where it has used a tensor that it finds no more, since it
    makes another one, this stands for the first: records are linked to the first one, which so gets its gradient.
    """

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._since = next_index()
        #: By id of link, what stands for a tensor with a number, as long as it is there; records are held meanwhile.
        self._stands: dict[int, tuple[Any, Record | None, int]] = {}
        #: What steps began with.
        self._tensors: weakref.WeakValueDictionary[int, Value] = weakref.WeakValueDictionary()
        self._records: set[Record] = set()
        self._step = 0

    def start_step(self, number: int, starts: Iterable[Any]) -> None:
        """Take what is used from now on as used by a step, which begins with tensors or records."""
        self._step = number
        for start in starts:
            if isinstance(start, Value):
                self._tensors[id(start)] = start
            else:
                self._records.add(start)

    @property
    def since(self) -> int:
        """The first index of the loop."""
        return self._captured.since

    def made_by_steps(self, index: int) -> bool:
        """Say whether what has an index was made by a step, whenever that ran."""
        return index >= self._since or self._captured.made_by_steps(index)

    def _is_start(self, link: Any) -> bool:
        if type(link) is Record:
            return link in self._records
        return self._tensors.get(id(link)) is link or self._captured.is_start(link)

    def is_lost(self, link: Any) -> bool:
        """Say whether something comes from the state of another run of a step."""
        if self._is_start(link):
            return True
        if type(link) is not Record or not self.made_by_steps(link.index):
            return False
        return behind(link, self._is_start, self.made_by_steps) is None

    def adopt(self, record: Record) -> None:
        """Leave a record that depends on no state: nothing ends when a step has run again."""

    def is_fixed(self, link: Any) -> bool:
        """Say whether a tracked tensor that is no part of a state is told by which it is."""
        use = self._captured.use_of(link)
        if use is not None:
            return use.is_fixed
        if type(link) is Record:
            return not self.made_by_steps(link.index)
        return requires_grad(link) and not self.made_by_steps(link.extras.since or 0) and not self.is_constant(link)

    def is_constant(self, value: Value) -> bool:
        """Say whether a leaf was a constant when steps ran first, and may require gradients since."""
        return self._captured.use_of(value) is None and self._captured.has_looked_at(value)

    def take(self, link: Any, value: Any, key: Key | None = None) -> int:
        """Return the number of a tracked tensor that steps used the first time; -1 for others."""
        return self._captured.number_of(link) or -1

    def use_of(self, link: Any) -> Use | None:
        """Return what is known of a tracked tensor from the first run; None if nothing is."""
        return self._captured.use_of(link)

    def number_of(self, link: Any) -> int:
        """Return the number of the tensor that this is, or that it stands for; 0 for others."""
        stand = self._stands.get(id(link))
        return self._captured.number_of(link) if stand is None else stand[2]

    def compute(self, value: Value) -> None:
        """Leave a constant that the step has computed."""

    def look(self, value: Value, is_direct: bool) -> None:
        """Leave a constant: what it holds is compared."""

    def is_shared(self, value: Value) -> bool:
        """Say that a constant may be the step's own: those that were shared are known from the first run."""
        return False

    def print_of(self, value: Value) -> int:
        """Return the `print_of` what was captured."""
        return self._captured.print_of(value)

    def check(self) -> None:
        """Raise if what steps read was overwritten since."""
        self._captured.check()

    def find(self, places: Sequence[Place], numbers: Sequence[int]) -> tuple[dict[int, Value], bool]:
        """Link records to what steps took the first time, whose numbers are given, where they have something else now.

        Returns the parts of the next state that are something else, with what they were, and whether all was found.

        Raises:
            GradientError: if a tensor is used that was not used the first time.
        """
        parts: dict[int, Value] = {}
        is_same = len(places) == len(numbers)
        for place, number in zip(places, numbers, strict=False):
            known = self.number_of(place.link)
            value = self._captured.tensor(number) if number else None
            if value is None:  # It was the step's own: nobody can ask for its gradient.
                if known:
                    _link(place, _double(place), parts)
                elif self.is_fixed(place.link):
                    _raise_strange(place)
            elif known == number or self._stands_for(place, value):
                if not known:
                    self._note(place, number)
                _link(place, value, parts)
            elif known:
                is_same = False
            else:
                _raise_strange(place)
        return parts, is_same

    def _stands_for(self, place: Place, value: Value) -> bool:
        """Say whether a tensor may stand for one that was used the first time. What they come from is compared."""
        link, first = place.link, link_of(value)
        if self.is_fixed(link) or self._captured.is_fixed(first) or type(link) is not type(first):
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
            leaf, first = ref(), self._captured.tensor(number)
            if record is None and leaf is not None and first is not None and leaf is not first:
                if requires_grad(leaf) and requires_grad(first) and not leaf.extras.watchers:
                    leaf.extras = first.extras


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


def _raise_strange(place: Place) -> NoReturn:
    name = getattr(place.value, "name", None)
    what = f"the tensor {name!r}" if name else f"a tensor of shape {place.link.shape}"
    raise GradientError(
        f"checkpoint_loop: its step took {what} from outside when it ran again, and not when it ran first. A step that "
        "captures a variable sees what this holds when the backward runs; bind it (lambda s, w=w: ...), or put it into "
        "the state."
    )
