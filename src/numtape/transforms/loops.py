"""Differentiate long loops in little memory: `checkpoint_loop` keeps some states and runs the steps between again."""

import functools
import inspect
import itertools
import operator
from array import array as numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.apply import apply, is_tracked, leave_out
from ..core.binomial import best_step
from ..core.context import Cell, Context, Scope, aside, casting, current, entered, reaching_all
from ..core.effects import effects, undoing
from ..core.gradients import link_of
from ..core.reverse import reverse
from ..core.stream import Stream, thread_stream
from ..core.streaming import StreamingTape
from ..core.tape import watching
from ..core.value import Value, wrap
from ..counts import is_count
from ..errors import ArgumentError, GradientError, LeafWriteError, OperandError
from ..tensors import Tensor
from .loop_op import LOOP, pushed
from .loop_outside import STEP, Captured, Tensors
from .loop_records import Forgetful, StepTape
from .loop_states import (
    Places,
    Snapshot,
    check_state,
    checksum,
    detached,
    end_leaves,
    enough,
    snapshot,
    tensors_of,
    tracked,
    with_tensors,
)
from .loop_strangers import Strangers, raise_strange
from .loop_watching import Watcher


def checkpoint_loop(
    step: Callable[..., Any],
    state: Any,
    n: int | None = None,
    *,
    until: Callable[[Any], Any] | None = None,
    snapshots: int | None = None,
    verify: bool = False,
) -> Any:
    """Apply `step` to a state again and again, and keep only some of the states for the backward.

    The backward runs `step` again from the states that were kept: at the best places for a known number of steps, so
    that no other choice runs fewer again, and evenly for an unknown one. Memory goes by the number of snapshots, not of
    steps. Random draws of nt repeat. Tensors that `step` captures get their gradients.

    Args:
        step: a function from state to state, or of state and number of the step, that can be run again.
        state: a tree of tensors; what else is in it is passed on as it is.
        n: the number of steps; None if `until` tells.
        until: a function of the state that says when to stop.
        snapshots: how many states are kept; by default so many that no step runs more than three times.
        verify: raise if a step that runs again computes with other values. Other ops, shapes, parameters always raise.

    Returns:
        The last state.

    Example:
        >>> x = nt.tensor(1.0, requires_grad=True)
        >>> y = nt.checkpoint_loop(lambda x: x + 0.001 * nt.sin(x), x, 1000)
        >>> y.backward()
        >>> len(nt.records(y)) <= 2
        True
    """
    loop = Loop(step, n, until, snapshots, verify)
    if not current().grad or any(isinstance(tape, StreamingTape) for tape in current().tapes):
        return loop.run_plainly(state)  # Nothing is kept anyway.
    return loop.record(state)


class Loop:
    """A loop that ran: how to run it again."""

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
        self.outside = Captured(current_cell(), None if around is None else around.outside.captured)
        self.captured: list[Value] = []
        #: For each tensor of the last state, as bits, which operands of the record it depends on.
        self.reaches: list[int] = []
        #: The random streams that steps draw from, and where each stood before.
        self.streams: dict[Stream, dict[str, Any]] = {}
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
    def _name(self) -> str:
        name: str = getattr(self.step, "__qualname__", type(self.step).__name__)
        return name

    def held(self) -> list[NDArray]:
        """Return the arrays of the states that were kept."""
        return [value.array for kept in self.kept for value in tensors_of(kept.state)]

    def call(self, state: Any, number: int) -> Any:
        """Run one step. Its containers are its own: it may put new tensors into them, and return them."""
        given = tree.map(lambda leaf: leaf, state)
        try:
            after = self.step(given, number) if self.takes_number else self.step(given)
        except LeafWriteError as error:
            raise LeafWriteError(
                f"checkpoint_loop: step {number} of {self._name} writes in place to its state, or to a leaf that it "
                "captures; the backward runs it again on what these hold. Compute new tensors, such as s = s + s * 0.1 "
                "for s += s * 0.1, or write to s.clone()."
            ) from error
        except StopIteration as error:
            if number >= len(self.traces):
                raise
            raise GradientError(
                f"checkpoint_loop: step {number} of {self._name} came to the end of an iterator when it ran again for "
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

    def record(self, state: Any) -> Any:
        """Run the loop, and leave one record of it."""
        first = tensors_of(state)
        tracked_parts = sum(is_tracked(value) << i for i, value in enumerate(first))
        last, reaches = self._run_first(detached(state))
        if self.length == 0:
            return state
        captured = self.outside.values()
        self.captured = list(captured.values())
        operands = [*first, *self.captured]
        # What was passed on unchanged, or twice, is copied: the results may be written to.
        held = [*self.held(), *(x.array for x in operands)]
        for value in tensors_of(last):
            held.append(_apart(value.array, held))
        self.fresh = tuple(held[len(held) - len(tensors_of(last)) :])
        # What depends on nothing that is tracked is a constant. What a step has made for itself was tracked.
        own = (1 << len(first)) - 1
        is_moved = [bool(reach & (tracked_parts | ~own)) for reach in reaches]
        if not operands or not any(is_moved):
            return last
        self.reaches = [
            reach & own | sum((reach >> len(first) + n & 1) << i for i, n in enumerate(captured, len(first)))
            for reach in reaches
        ]
        fresh = self.fresh
        made = apply(LOOP, operands, {"loop": self})
        parts = made if isinstance(made, tuple) else (made,)
        found = zip(parts, fresh, is_moved, strict=True)
        return with_tensors(last, [part if moved else wrap(Tensor, array) for part, array, moved in found])

    def _run_first(self, state: Any) -> tuple[Any, list[int]]:
        """Run the loop step by step, on a tape of its own; keep states, note captured tensors and traces.

        Returns the last state, and what each of its tensors depends on, as bits: those of the first state, and after
        them, those from outside by their numbers; 0 is the number of all that are gone.
        """
        count = len(tensors_of(state))
        reaches = [1 << i for i in range(count)]
        places = Places(self.length, self.snapshots)
        tape = StepTape(self.watches_all, self.left_out)
        context = Context(0)
        # What is inside concerns those around no more than what is inside of an op.
        scopes = tuple(scope for scope in current().scopes if not scope.skips_loops)
        tapes = (tape,) if self.is_on_tape else ()
        same: dict[Any, Any] = {}  # Most steps take what others do.
        surroundings = entered(context=context, tapes=tapes, watch_all=self.watches_all, scopes=scopes)
        with surroundings, effects() as seen, self.outside.running():
            self.streams = seen.drawn
            number = 0
            while not self.is_over(state, number):
                if places.keeps(number):
                    self.kept = [kept for kept in self.kept if places.still_keeps(kept.number)]
                    self.kept.append(snapshot(state, number, self.streams))
                context.cell = tape.cell = Cell(STEP)
                tape.cells = [tape.cell]
                start = tracked(state)
                watcher, after = self._watch(start, number, self.outside)
                state = detached(after)
                end_leaves(start)
                taken = [(self.outside.number_of(place.link), place.numbers) for place in watcher.places]
                reached = [(parts, list(map(self.outside.number_of, others))) for parts, others in watcher.reaches()]
                self.traces.append(watcher.trace)
                self.taken.append(watcher.taken)
                in_order, shared = tuple(watcher.in_order), frozenset(watcher.shared)
                self.in_order.append(same.setdefault(in_order, in_order))
                self.shared.append(same.setdefault(shared, shared))
                if self.verify:
                    self.values.append(checksum(state, watcher.values))
                number += 1
                tape.start_segment()
                context.cell.kill()
                del start, watcher, after  # What the step made for itself ends with it.
                numbers = self.outside.living(taken)
                self.numbers.append(same.setdefault(numbers, numbers))
                reaches = [
                    union(reaches[i] for i in parts) | union(1 << count + self.outside.living_one(n) for n in sources)
                    for parts, sources in reached
                ]
        for value in self.left_out.values():
            leave_out(value)
        for _, look in self.outside.constants():
            if look.is_direct:  # What outlives the loop is not the step's own.
                self.shared[look.step] |= {look.print}
        self.streams.pop(thread_stream(), None)  # All snapshots have its place.
        self.length = number
        return state, reaches

    def _watch(self, start: Any, number: int, outside: Captured | Strangers) -> tuple[Watcher, Any]:
        """Run a step on the tape; return who has watched it, and what it gave.

        Its state is of tensors that nothing else is linked to, all tracked: so those from outside can be told.
        """
        with Watcher(start, outside, number, self.verify) as watcher:
            after = self.call(start, number)
        watcher.tell(after)
        return watcher, after

    @contextmanager
    def replaying(self) -> Iterator[Strangers]:
        """Undo what steps change when they run again, and let captured tensors be tracked, whatever happens inside.

        Yields what looks out for tensors that steps did not capture when they ran first.
        """
        self.outside.check()
        strangers = Strangers(self.outside)
        places = {stream: stream.place() for stream in self.streams}
        try:
            with watching(self.captured), undoing(), self.outside.running():
                yield strangers
        finally:
            strangers.settle()
            for stream, place in places.items():
                stream.go_to(place)

    def as_first(self) -> entered:
        """Return the surroundings that a step runs in when it runs again on the tape: those of its first run."""
        tapes = (Forgetful(self.watches_all, self.left_out),) if self.is_on_tape else ()
        return entered(
            grad=True,
            tapes=tapes,
            watch_all=self.watches_all,
            transforms=self.transforms,
            scopes=self.replay_scopes(),
        )

    def as_recorded(self) -> entered:
        """Return the surroundings of steps that run again to be differentiated: those of the first run, as well."""
        state = current()
        tapes = (Forgetful(self.watches_all, self.left_out), *state.tapes) if self.is_on_tape else state.tapes
        return entered(
            tapes=tapes,
            watch_all=self.watches_all,
            transforms=self.transforms,
            scopes=(*state.scopes, *self.scopes),
        )

    def replay_scopes(self) -> tuple[Scope, ...]:
        """Return the scopes that steps run in again: those that reach all, and those of their dtypes."""
        return (*reaching_all(current().scopes), *self.scopes)

    def go_back(self, start: Snapshot) -> None:
        """Let random streams stand where they stood before a step, whose state must be what it was."""
        start.check()
        current().thread.stream = start.stream.copy()
        for stream, first in self.streams.items():
            stream.go_to(start.places.get(stream, first))

    def steps_from(self, start: Snapshot, end: int) -> Iterator[tuple[int, list[Any], list[Any]]]:
        """Run steps again on the tape; yield the number of each, the leaves that it began with, and what it made."""
        self.go_back(start)
        state = start.state
        for number in range(start.number, end):
            before = tracked(state)
            state = self.call(before, number)
            self.ask_again(state)
            yield number, tensors_of(before), tensors_of(state)

    def pull(self, cotangents: Sequence[Any], strangers: Strangers) -> list[Any]:
        """Return the cotangents of the first state's tensors and of captured tensors, given those of the last."""
        assert self.length is not None
        moved = list(cotangents)
        totals: list[Any] = [None] * len(self.captured)
        # Taken over, so that there are never more than asked for; another backward starts from the first one.
        kept, self.kept = self.kept, self.kept[:1]
        end = self.length
        while end:
            top = kept[-1]
            if top.number == end:
                kept.pop()
                continue
            free = self.snapshots - len(kept)
            units = end - top.number
            if units > 1:
                ahead = best_step(units, free) if free > 0 else units - 1
                top = self.advance(top, ahead, strangers)
                if free > 0:
                    kept.append(top)
                    continue
            moved = self._pull_step(top, moved, totals, strangers)
            end -= 1
        return [*moved, *totals]

    def run_again(self, start: Any, number: int, strangers: Strangers) -> Any:
        """Run a step again, on the tape, and return what it gave."""
        watcher, after = self._watch(start, number, strangers)
        parts = self._compare(number, after, watcher, strangers)
        if parts:
            after = with_tensors(after, [parts.get(i, part) for i, part in enumerate(tensors_of(after))])
        self.ask_again(after)
        return after

    def _run_again(self, state: Any, number: int, strangers: Strangers) -> tuple[Any, Any]:
        """Run a step again by itself; return the leaves that it began with, and what it gave."""
        start = tracked(state)
        after = self.run_again(start, number, strangers)
        for tape in current().tapes:  # What was watched because the step has used it ends with the step.
            tape.unwatch_used()
        return start, after

    def advance(self, start: Snapshot, steps: int, strangers: Strangers) -> Snapshot:
        """Run steps again, and return the state after them."""
        state = start.state
        self.go_back(start)
        for number in range(start.number, start.number + steps):
            state = detached(self._run_again(state, number, strangers)[1])
        return snapshot(state, start.number + steps, self.streams)

    def _pull_step(self, start: Snapshot, moved: list[Any], totals: list[Any], strangers: Strangers) -> list[Any]:
        """Run a step on the tape, pull cotangents through it, and add to those of captured tensors."""
        self.go_back(start)
        state, after = self._run_again(start.state, start.number, strangers)
        sources = [*map(link_of, tensors_of(state)), *map(link_of, self.captured)]
        seeds = [
            (link_of(out), g) for out, g in zip(tensors_of(after), moved, strict=True) if g is not None and out.node
        ]
        if not seeds:
            return [None] * len(tensors_of(state))
        captured = list(map(link_of, self.captured))
        # What has arrived is added to, one by one, as without the loop.
        seeds += [(link, total) for link, total in zip(captured, totals, strict=True) if total is not None]
        totals[:] = [None] * len(totals)
        found = reverse(seeds, sources, ends=set(captured))
        totals[:] = [found.get(link) for link in captured]
        return [found.get(link_of(x)) for x in tensors_of(state)]

    def push(self, t: Any, index: int, strangers: Strangers) -> tuple[list[Any], Any]:
        """Return the tangents of the last state's tensors, given that of one tensor of the first state or captured.

        Also returns that state.
        """
        start = self.kept[0]
        self.go_back(start)
        state = start.state
        count = len(tensors_of(state))
        moved: list[Any] = [t if i == index else None for i in range(count)]
        always = [(link_of(self.captured[index - count]), t)] if index >= count else []
        for number in range(self.length or 0):
            before, after = self._run_again(state, number, strangers)
            sources = [*map(link_of, tensors_of(before)), *map(link_of, self.captured)]
            state = detached(after)
            seeds = [(link, part) for link, part in zip(sources, moved, strict=False) if part is not None]
            moved = pushed([*seeds, *always], after, set(sources))
        return moved, state

    def _finds_shared(self, number: int, watcher: Watcher) -> bool:
        """Say whether a step that ran again took the constants that it shares with others, in their order."""
        shared, again = self.shared[number], iter(watcher.in_order)
        return shared <= watcher.constants and all(each in again for each in self.in_order[number] if each in shared)

    def _compare(self, number: int, state: Any, watcher: Watcher, strangers: Strangers) -> dict[int, Value]:
        """Raise if a step that ran again did something else; return the parts of its state that stand for others."""
        name = self._name
        if watcher.trace != self.traces[number]:
            raise GradientError(
                f"checkpoint_loop: step {number} of {name} ran other ops, or on other shapes, or with other "
                "parameters, or with other tensors of its own, when it ran again for the backward. A step must depend "
                "on its state, its number and what does not change; keep what changes in the state."
            )
        if watcher.strange is not None:
            raise_strange(watcher.strange)
        parts, is_found = strangers.find(watcher.places, self.numbers[number])
        if not is_found or watcher.taken != self.taken[number] or not self._finds_shared(number, watcher):
            strangers.check()
            raise GradientError(
                f"checkpoint_loop: step {number} of {name} took other tensors from outside when it ran again for the "
                "backward. A step that captures a variable sees what this holds then; bind it (lambda s, w=w: ...), or "
                "put it into the state."
            )
        if self.verify and checksum(state, watcher.values) != self.values[number]:
            raise GradientError(
                f"checkpoint_loop: step {number} of {name} gave other values when it ran again for the backward. Draw "
                "random numbers with nt, and keep what changes in the state."
            )
        return parts


def current_cell() -> Cell:
    """Return the generation that records made now belong to."""
    state = current()
    return next((tape.cell for tape in reversed(state.tapes) if not tape.is_ended), state.context.cell)


def union(masks: Iterable[int]) -> int:
    """Return the bits of all masks."""
    return functools.reduce(operator.or_, masks, 0)


def _apart(array: NDArray, held: Sequence[NDArray]) -> NDArray:
    """Return an array that shares no memory with others."""
    return array.copy() if any(np.may_share_memory(array, other) for other in held) else array


def _takes_two(step: Callable[..., Any]) -> bool:
    """Say whether a step wants its number."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters) >= 2
