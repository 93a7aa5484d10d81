"""A differential equation and its solution at some times: solved without a tape, and recorded step by step."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._typing import NDArray
from ..core.context import current
from ..core.effects import undoing
from ..core.gradients import link_of
from ..core.stream import Stream
from ..core.streaming import StreamingTape
from ..core.tape import watching
from ..core.value import Value, wrap
from ..errors import GradientError, ShapeError
from ..ops import stack
from ..ops.casting import alias
from ..outputs import title
from ..tensors import Tensor
from ..transforms.loop_states import checksum, detached, tensors_of, with_tensors
from ..transforms.loops import checkpoint_loop
from .capturing import Watcher, alone, on_tape
from .equations import Space, leaves_in_form, tracked_copy
from .runge_kutta import Field, Leaves, Method, step
from .stepping import Stepper
from .traces import Results, Trace, trace_of

NAME = "odeint"


class RightSide:
    """The user's function f(t, y, *args), checked at each call: its result has the form of y."""

    def __init__(self, function: Callable[..., Any], space: Space) -> None:
        self.function = function
        self.space = space
        self.title = f"{NAME}: {title(function)}"

    def __call__(self, t: Any, y: Leaves, args: tuple[Any, ...]) -> Leaves:
        """Return the leaves of the slope."""
        out = self.function(t, self.space.as_tree(y), *args)
        leaves = leaves_in_form(self.title, "y", self.space, out)
        shapes = [leaf.shape for leaf in leaves]
        if shapes != self.space.shapes:
            raise ShapeError(
                f"{self.title} returned shapes {shapes} for y of shapes {self.space.shapes}; the slope of y has its "
                "form."
            )
        return [
            leaf if leaf.dtype == dtype else leaf.astype(dtype)
            for leaf, dtype in zip(leaves, self.space.dtypes, strict=True)
        ]


class Step(NamedTuple):
    """One step that was recorded: where it began, its length, y there, and the stages."""

    t: Any
    h: Any
    y: Leaves
    stages: list[Leaves]


class Trajectory:
    """An equation y' = f(t, y, *args), the times at which y is wanted, and how to integrate.

    Args:
        right_side: f.
        method: of Runge-Kutta.
        times: at which y is wanted, rising or falling; y is given at the first.
        stepper: makes a fresh stepper.
        snapshots: how many states a checkpointed stretch keeps.
    """

    def __init__(
        self,
        right_side: RightSide,
        method: Method,
        times: Sequence[float],
        stepper: Callable[[], Stepper],
        snapshots: int | None,
    ) -> None:
        self.right_side = right_side
        self.method = method
        self.times = times
        self.stepper = stepper
        self.snapshots = snapshots

    def __repr__(self) -> str:
        return f"<solution by {self.method.name} at {len(self.times)} times>"

    def solve(self, y: Leaves, args: tuple[Any, ...]) -> tuple[list[Leaves], list[NDArray]]:
        """Return the leaves of y at all times, and for each stretch the ends of its steps; nothing is recorded."""
        with alone(grad=False):
            return self._solve(lambda t, y: self.right_side(t, y, args), y)

    def solve_watched(self, y: Leaves, args: tuple[Any, ...]) -> tuple[list[Leaves], list[Value]]:
        """Return the leaves of y at all times, and the tracked tensors that f takes from outside at any of them."""
        seen: dict[Any, Value] = {}

        def field(t: Any, y: Leaves) -> Leaves:
            watcher = Watcher()  # One for each evaluation: it holds on to the records that it saw.
            with watcher:
                slopes = self.right_side(t, y, args)
            watcher.look_at(slopes)
            seen.update((link_of(value), value) for value in watcher.captured())
            return constants(slopes)

        with alone(grad=True), on_tape(self.right_side.title):
            found, _ = self._solve(field, y)
        return found, list(seen.values())

    def _solve(self, field: Field, y: Leaves) -> tuple[list[Leaves], list[NDArray]]:
        stepper = self.stepper()
        found, grid = [y], []
        slope = None
        for start, stop in zip(self.times[:-1], self.times[1:], strict=True):
            y, slope, ends = stepper.advance(field, start, stop, y, slope)
            found.append(y)
            grid.append(ends)
        return found, grid

    def trace(self, index: int, y: Leaves, args: tuple[Any, ...], captured: Sequence[Value]) -> Trace | None:
        """Return how f computes the slope at one of the times, to compare with another run.

        It draws the same random numbers each time, or there is no trace, if it draws from streams of its own.
        """
        start = [tracked_copy(part.array) for part in constants(y)]
        own = with_tensors(args, [tracked_copy(value.array) for value in tensors_of(args)])
        watcher, results = Watcher([*start, *tensors_of(own)]), Results()
        with undoing() as seen, watching(captured), alone(grad=True), np.errstate(all="ignore"):
            current().thread.stream = Stream(0)
            with watcher, results:
                slopes = self.right_side(self.times[index], start, own)
            # What it takes there and was not known is no part of the slope's own history either.
            sources = [*start, *tensors_of(own), *captured, *watcher.captured()]
            return None if set(seen.drawn) - {current().thread.stream} else trace_of(slopes, sources, results.prints)

    def check_trace(self, before: Trace | None, now: Trace | None) -> None:
        """Raise if f did something else than when the equation was solved."""
        difference = None if before is None or now is None else before.difference(now)
        if difference is not None:
            self.raise_changed(f"did something else when it ran again for the gradient, from {difference} on")

    def raise_changed(self, what: str) -> NoReturn:
        """Raise for a right side that reads something which has changed."""
        raise GradientError(
            f"{self.right_side.title} {what}. It reads something that has changed since the equation was solved: pass "
            "that as an argument, an array as a copy, and overwrite nothing that it reads before the derivative is "
            "taken."
        )

    def record(
        self,
        y: Leaves,
        times: Sequence[Any],
        args: tuple[Any, ...],
        grid: Sequence[NDArray],
        captured: Sequence[Value] = (),
        is_checkpointed: bool = False,
        steps: list[Step] | None = None,
    ) -> Leaves:
        """Take the steps of a grid on the tape; return for each leaf its values at all times.

        Parameters enter each stretch by a record of their own: so their gradients add up in the same order as those of
        a checkpointed stretch, and agree bit for bit.

        Args:
            y: the leaves at the first time.
            times: all times, as numbers or as tensors.
            args: arguments of f.
            grid: for each stretch, the ends of its steps.
            captured: tensors that f takes from outside.
            is_checkpointed: whether to keep only some states.
            steps: takes the steps, if they are wanted.
        """
        state = [y, self.right_side(times[0], y, args) if self.method.passes_slope else []]
        found = [y]
        check = _Check(self, args, captured) if is_checkpointed else None
        for index, (ends, start, stop) in enumerate(zip(grid, times[:-1], times[1:], strict=True)):
            stretch = _Stretch(self, ends, start, stop, args, index, check)
            if is_checkpointed:
                state = checkpoint_loop(stretch.take, state, len(ends) - 1, snapshots=self.snapshots)
            else:
                state = stretch.unroll(state, captured, steps)
            found.append(state[0])
        if check is not None:
            check.note(state[0])
        return [stack(list(parts)) for parts in zip(*found, strict=True)]


class _Check:
    """What f does at the last time, for steps that are taken again."""

    def __init__(self, trajectory: Trajectory, args: tuple[Any, ...], captured: Sequence[Value]) -> None:
        self.trajectory = trajectory
        # Held by whoever has them: numbers do here.
        self.args = detached(args)
        self.captured = captured
        self.y: Leaves = []
        self.trace: Trace | None = None
        #: The stretch whose steps were taken again last.
        self._last = 0

    def note(self, y: Leaves) -> None:
        """Note what f does, where the solution has ended."""
        self.y = constants(y)
        self.trace = self._now()

    def run(self, stretch: int) -> None:
        """Raise if f does something else; once in a sweep is enough, which comes by the last stretch first."""
        is_first, self._last = stretch >= self._last, stretch
        if is_first:
            self.trajectory.check_trace(self.trace, self._now())

    def _now(self) -> Trace | None:
        return self.trajectory.trace(-1, self.y, self.args, self.captured)


class _Stretch:
    """The steps between two times."""

    def __init__(
        self,
        trajectory: Trajectory,
        ends: NDArray,
        start: Any,
        stop: Any,
        args: tuple[Any, ...],
        index: int,
        check: _Check | None,
    ) -> None:
        self.trajectory = trajectory
        self.ends = ends
        self.index = index
        self.check = check
        #: For each step that was taken, a number that tells the state after it.
        self.sums = array("L")
        #: All that is differentiated by, besides the state and what f captures.
        self.parameters = (start, stop, args)

    def take(self, state: list[Leaves], number: int) -> list[Leaves]:
        """Take one step; taken again, it must lead to the same bits."""
        after = self._step(state, number, self.parameters)[0]
        if number == len(self.sums):
            self.sums.append(checksum(after))
            return after
        if checksum(after) != self.sums[number]:
            self.trajectory.raise_changed("gave other values when it ran again for gradient='checkpointed'")
        if self.check is not None and number == len(self.sums) - 1:
            self.check.run(self.index)  # Values may be the same where derivatives are not.
        return after

    def unroll(self, state: list[Leaves], captured: Sequence[Value], steps: list[Step] | None) -> list[Leaves]:
        """Take all steps on the tape."""
        state = _aliased(state)
        parameters, outside = _aliased(self.parameters), _aliased(list(captured))
        for number in range(len(self.ends) - 1):
            # A stream drops what it has passed, and needs no names of its own for what is captured.
            if captured and not any(isinstance(tape, StreamingTape) for tape in current().tapes):
                stand_ins = dict(zip(map(link_of, captured), outside, strict=True))
                with Watcher([*tensors_of(state), *tensors_of(parameters)], stand_ins):
                    state, taken = self._step(state, number, parameters)
            else:
                state, taken = self._step(state, number, parameters)
            if steps is not None:
                steps.append(taken)
        return state

    def _step(self, state: list[Leaves], number: int, parameters: tuple[Any, ...]) -> tuple[list[Leaves], Step]:
        start, stop, args = parameters
        right_side, method = self.trajectory.right_side, self.trajectory.method
        begin, end = float(self.ends[number]), float(self.ends[number + 1])
        span = stop - start
        t, h = start + begin * span, (end - begin) * span
        y, slope = state
        after, stages = step(method, lambda t, y: right_side(t, y, args), t, h, y, slope or None)
        return [after, stages[-1] if method.passes_slope else []], Step(t, h, y, stages)


def _aliased(values: Any) -> Any:
    """Return a tree with another name for each tracked tensor."""
    return with_tensors(values, [x if x.node is None else alias(x) for x in tensors_of(values)])


def stacked(found: Sequence[Leaves]) -> list[NDArray]:
    """Return for each leaf its values at all times, given all leaves at each time."""
    return [np.stack([part.array for part in parts]) for parts in zip(*found, strict=True)]


def constants(leaves: Leaves) -> Leaves:
    """Return untracked tensors of the same arrays."""
    return [wrap(Tensor, leaf.array if isinstance(leaf, Value) else leaf) for leaf in leaves]
