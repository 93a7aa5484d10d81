"""The steps of a loop: how one runs, and what is known of all of them once they ran."""

import inspect
import itertools
from array import array as numbers
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from .. import tree
from .._typing import NDArray
from ..core.cells import Cell
from ..core.context import current
from ..core.effects import effects
from ..core.scopes import Scope, aside, casting
from ..core.stream import Drawn
from ..core.value import Value
from ..counts import is_count
from ..errors import ArgumentError, GradientError, LeafWriteError, OperandError
from .loop_outside import Captured, Tensors
from .loop_states import (
    Draws,
    Snapshot,
    check_state,
    detached,
    enough,
    tensors_of,
)
from .loop_strangers import Strangers
from .loop_watching import Watcher


class Steps:
    """The steps of a loop."""

    def __init__(
        self,
        step: Callable[..., Any],
        n: int | None,
        until: Callable[[Any], Any] | None,
        snapshots: int | None,
        verify: bool,
    ) -> None:
        if (n is None) == (until is None):
            raise ArgumentError("checkpoint_loop: give n, the number of steps, or until, which says when to stop.")
        if until is not None and not callable(until):
            raise ArgumentError(
                f"checkpoint_loop: until is {until!r}; it must be a function of the state. A number of steps is n."
            )
        if n is not None and not is_count(n, 0):
            raise ArgumentError(f"checkpoint_loop: n is {n!r}; it must be a number of steps.")
        if snapshots is not None and not is_count(snapshots):
            raise ArgumentError(f"checkpoint_loop: snapshots is {snapshots!r}; it must be a positive integer.")
        if not isinstance(verify, bool):
            raise ArgumentError(f"checkpoint_loop: verify is {verify!r}; it must be a bool.")
        if not callable(step):
            raise OperandError(f"checkpoint_loop: step must be a function, not {type(step).__name__}.")
        self.step = step
        self.takes_number = _takes_two(step)
        self.until = until
        self.until_draws = False
        #: The step of a loop around this one that runs.
        around = next((scope for scope in reversed(current().scopes) if isinstance(scope, Watcher)), None)
        self.verify = verify or (around is not None and around.verify)
        self.length = n
        self.snapshots = snapshots or (enough(n) if n is not None else 64)
        self.kept: list[Snapshot] = []
        #: The most bytes that a backward through one step takes, where a tape counts them.
        self.step_bytes = 0
        #: For each step, numbers that tell its ops, shapes, parameters and links, and which tracked tensors from
        #: outside these take; what tells its constants, in order, and those that it shares with others; with `verify`,
        #: a number that tells its values.
        self.traces = numbers("L")
        self.taken = numbers("L")
        self.in_order: list[tuple[int, ...]] = []
        self.shared: list[frozenset[int]] = []
        self.values = numbers("L")
        #: The numbers of tracked tensors that each step takes from outside, where it does, and of those that steps have
        #: computed them from; 0 for its own.
        self.numbers: list[tuple[tuple[int, tuple[int, ...]], ...]] = []
        #: The tensors that steps take from outside, and those of them that get gradients.
        self.outside = Captured(_current_cell(), None if around is None else around.outside.captured)
        self.captured: list[Value] = []
        #: For each tensor of the last state, as bits, which operands of the record it depends on.
        self.reaches: list[int] = []
        #: The random streams that steps draw from, and where each stood before.
        self.streams: Drawn = WeakKeyDictionary()
        self.draws = Draws()
        #: Whether steps run inside of a tape or of transforms, so that gradients which they take are differentiated,
        #: and whether one watches what is used there. They run again as they ran first: so constants of their own are
        #: recorded, too.
        self.is_on_tape = bool(current().tapes)
        self.watches_all = current().watch_all
        self.transforms = current().transforms
        #: What steps have detached, which no tape watches.
        self.left_out: Tensors = Tensors()
        #: The outputs of the first run, until they are recorded.
        self.fresh: tuple[NDArray, ...] | None = None
        #: The scope that says in which dtypes the ops of steps run.
        caster = casting(current().scopes)
        self.scopes: tuple[Scope, ...] = () if caster is None else (caster,)

    def __repr__(self) -> str:
        return f"<loop of {self.length} steps>"

    @property
    def name(self) -> str:
        """What the step is called."""
        name: str = getattr(self.step, "__qualname__", type(self.step).__name__)
        return name

    def held(self, first: int = 0) -> list[NDArray]:
        """Return the arrays of the states that were kept, from the `first` of them on."""
        return [value.array for kept in self.kept[first:] for value in tensors_of(kept.state)]

    def call(self, state: Any, number: int) -> Any:
        """Run one step. Its containers are its own: it may put new tensors into them, and return them."""
        given = tree.map(lambda leaf: leaf, state)
        try:
            after = self.step(given, number) if self.takes_number else self.step(given)
        except LeafWriteError as error:
            raise LeafWriteError(
                f"checkpoint_loop: step {number} of {self.name} writes in place to its state, or to a leaf that it "
                "captures; the backward runs it again on what these hold. Compute new tensors, such as s = s + s * 0.1 "
                "for s += s * 0.1, or write to s.clone()."
            ) from error
        except StopIteration as error:
            if number >= len(self.traces):
                raise
            raise GradientError(
                f"checkpoint_loop: step {number} of {self.name} came to the end of an iterator when it ran again for "
                "the backward. Take what it needs by its number: lambda s, i: ... items[i]."
            ) from error
        check_state(state, after, number)
        return after

    def is_over(self, state: Any, number: int) -> bool:
        """Say whether a state is the last."""
        if self.until is None:
            return number == self.length
        with effects() as seen:
            is_over = bool(self.until(state))
        self.until_draws |= bool(seen.drawn)
        return is_over

    def ask_again(self, state: Any) -> None:
        """Draw what `until` drew after a step that ran again, so that the next one draws what it drew first."""
        if self.until is not None and self.until_draws:
            with aside():
                self.until(detached(state))

    def run_plainly(self, state: Any) -> Any:
        """Run the loop without keeping anything."""
        for number in itertools.count():
            if self.is_over(state, number):
                return state
            state = self.call(state, number)
        return state

    def watch(self, start: Any, number: int, outside: Captured | Strangers) -> tuple[Watcher, Any]:
        """Run a step on the tape; return who has watched it, and what it gave.

        Its state is of tensors that nothing else is linked to, all tracked: so those from outside can be told.
        """
        with Watcher(start, outside, number, self.verify) as watcher:
            after = self.call(start, number)
        watcher.tell(after)
        return watcher, after


def _current_cell() -> Cell:
    """Return the generation that records made now belong to."""
    state = current()
    return next((tape.cell for tape in reversed(state.tapes) if not tape.is_ended), state.context.cell)


def _takes_two(step: Callable[..., Any]) -> bool:
    """Say whether a step wants its number."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters) >= 2
