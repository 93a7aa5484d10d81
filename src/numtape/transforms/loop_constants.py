"""What a step of a loop takes from outside that is told by what it holds: constants, and what is as good as one."""

from collections.abc import Iterable, Sequence
from typing import Any

from .. import tree
from ..core.gradients import link_of
from ..core.record import Record, next_index
from ..core.scopes import Scope
from ..core.value import Value
from .loop_outside import Captured
from .loop_records import constants_of, inputs_of, ordered
from .loop_states import is_moved
from .loop_strangers import Strangers

#: What a tracked link depends on: the state of an earlier step, and that of the step itself.
LOST, STATE = 1, 2


class Looker(Scope):
    """Notes which records of a step depend on its state, and what those hold that do not.

    A record is *still* if it depends on no state: then it may as well have run before the loop, or in another step that
    has kept what it made.
    """

    def __init__(self, start: Any, outside: Captured | Strangers, number: int) -> None:
        leaves = [leaf for leaf in tree.leaves(start) if isinstance(leaf, Value)]
        starts = [link_of(leaf) for leaf in leaves if is_moved(leaf)]
        outside.start_step(number, starts)
        self.outside = outside
        #: The first index of the step.
        self._since = next_index()
        #: What links depend on, and the tensors of records that do not depend on the state.
        self._kinds: dict[Any, int] = dict.fromkeys(starts, STATE)
        self._tensors: dict[Record, Value] = {}
        #: Whether some records that depend on the state were not seen when they were made: other threads have.
        self._has_foreign = False
        #: What tells the constants from outside that the step takes, those that records use in that order, and those
        #: that it has not made itself. When it runs again, the latter must be among all that it takes then, in their
        #: order; of its own there may be any.
        self.constants: set[int] = set()
        self.in_order: dict[int, None] = {}
        self.shared: set[int] = set()
        #: Constants and still records whose values come from the state.
        self._inside: set[Any] = set(map(link_of, leaves))
        #: By constants and still records that the step has computed: the tensors from outside that are behind each, and
        #: whether it follows from shared ones alone. Then it is told by what it holds, as one that was found is.
        self._behind: dict[Any, tuple[dict[Any, None], bool]] = {}

    def kind_of(self, link: Any) -> int:
        """Return what a tracked link depends on."""
        kind = self._kinds.get(link)
        if kind is None:
            for record in ordered([link], self._is_new) if self._is_new(link) else ():
                kind = self._note_kind(record)
                self._has_foreign |= bool(kind & STATE)
            if kind is None:
                kind = self._kinds[link] = LOST if self.outside.is_lost(link) else 0
        return kind

    def _is_new(self, link: Any) -> bool:
        return type(link) is Record and link.index >= self._since and link not in self._kinds

    def _note_kind(self, record: Record) -> int:
        """Note what a record depends on, given what its operands do."""
        kind = 0
        kinds = self._kinds
        for position, link in enumerate(record.inputs):
            if record.needs >> position & 1:
                found = kinds.get(link)
                kind |= self.kind_of(link) if found is None else found
        kinds[record] = kind
        if not kind:
            self.outside.adopt(record)
        return kind

    def hold_tensors(self, operands: Iterable[Any]) -> None:
        """Hold the tensors of records that do not depend on the step's state."""
        for operand in operands:
            if isinstance(operand, Value):
                node = operand.node
                if type(node) is Record and not self._kinds.get(node, 0) & STATE:
                    self._tensors[node] = operand

    def tensor_of(self, link: Any) -> Any:
        """Return the tensor of a link that does not depend on the state; None if it is not at hand."""
        return link if type(link) is not Record else self._tensors.get(link)

    def on_constant(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Note what is behind constants: it counts once these are used, and not for a log."""
        self.hold_tensors(operands)
        self._note([link_of(operand) for operand in operands if isinstance(operand, Value)], results)
        for result in results:
            self.outside.compute(result)

    def _note(self, links: Sequence[Any], results: Sequence[Any]) -> None:
        """Note what results come from that do not depend on the state, but for their values."""
        known = [self._behind_of(link) for link in links]
        inside = [link in self._inside or bool(self._kinds.get(link, 0) & STATE) for link in links]
        behind: dict[Any, None] = {}
        for link, found, is_inside in zip(links, known, inside, strict=True):
            behind |= {link: None} if not is_inside else {} if found is None else found[0]
        is_shared = bool(links) and all(
            (value := self.tensor_of(link)) is not None and self.outside.is_shared(value) if found is None else found[1]
            for link, found in zip(links, known, strict=True)
        )
        for result in results:
            self._behind[result] = behind, is_shared
            if any(inside):
                self._inside.add(result)

    def _behind_of(self, link: Any) -> tuple[dict[Any, None], bool] | None:
        """Return what is behind something that the step has computed; None for others."""
        if type(link) is Record and link not in self._behind and self._is_still(link):
            for record in ordered([link], lambda each: each not in self._behind and self._is_still(each)):
                self._note([*inputs_of(record), *constants_of(record)], (record,))
        return self._behind.get(link)

    def _is_still(self, link: Any) -> bool:
        """Say whether the step has made a still record."""
        return type(link) is Record and link.index >= self._since and not self.kind_of(link)

    def see(self, link: Any, is_direct: bool = True) -> None:
        """Look at a constant, or what is as good as one, and at what it was computed from."""
        # Of what was computed from shared ones alone, only that it may be written to is noted.
        stack = [(link, is_direct, True)]
        while stack:
            link, is_direct, is_told = stack.pop()
            found = self._behind_of(link)
            value = None if link in self._inside else self.tensor_of(link)
            if found is not None:
                behind, is_shared = found
                self._behind[link] = {}, is_shared  # Once is enough.
                stack += [(each, False, is_told and not is_shared) for each in reversed(behind)]
                if value is not None and is_told:
                    self._tell(value, is_shared, is_direct)
            elif value is not None:
                self.outside.look(value, is_direct)
                if is_told:
                    self._tell(value, self.outside.is_shared(value), is_direct)

    def _tell(self, value: Value, is_shared: bool, is_direct: bool) -> None:
        """Note what a constant holds that is from outside, or follows from such ones alone."""
        held = self.outside.print_of(value)
        self.constants.add(held)
        if is_direct:
            self.in_order[held] = None
        if is_shared:
            self.shared.add(held)
