"""Differentiate long loops in little memory: `checkpoint_loop` keeps some states and runs the steps between again."""

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply, is_tracked, leave_out
from ..core.cells import Cell
from ..core.context import Context, current, entered
from ..core.effects import effects
from ..core.stream import thread_stream
from ..core.streaming import StreamingTape
from ..core.value import wrap
from ..tensors import Tensor
from .dropping import InsideLoop
from .loop_op import LOOP
from .loop_outside import STEP
from .loop_records import StepTape, bytes_of, bytes_to_pull
from .loop_replays import Replays
from .loop_states import (
    Places,
    checksum,
    detached,
    end_leaves,
    snapshot,
    tensors_of,
    tracked,
    with_tensors,
)


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


class Loop(Replays):
    """A loop that runs, and leaves a record."""

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
        scopes = tuple(inner for scope in current().scopes if (inner := scope.inside_loop()) is not None)
        counter = next((scope for scope in scopes if isinstance(scope, InsideLoop)), None)
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
                if counter is not None:
                    counter.start_step()
                watcher, after = self.watch(start, number, self.outside)
                self.draws.note(number, self.streams)
                state = detached(after)
                taken = [(self.outside.number_of(place.link), place.numbers) for place in watcher.places]
                reached = [(parts, list(map(self.outside.number_of, others))) for parts, others in watcher.reaches()]
                if counter is not None:
                    cotangents = bytes_to_pull(start, after) if watcher.trace not in self.traces else 0
                    self.step_bytes = max(self.step_bytes, bytes_of(start) + counter.step_bytes(cotangents))
                end_leaves(start)
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
                    _union(reaches[i] for i in parts) | _union(1 << count + self.outside.living_one(n) for n in sources)
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


def _union(masks: Iterable[int]) -> int:
    """Return the bits of all masks."""
    return functools.reduce(operator.or_, masks, 0)


def _apart(array: NDArray, held: Sequence[NDArray]) -> NDArray:
    """Return an array that shares no memory with others."""
    return array.copy() if any(np.may_share_memory(array, other) for other in held) else array
