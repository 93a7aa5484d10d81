"""The solution of a differential equation as one record, with gradients by the adjoint equation.

With a the cotangent of y, a' = -f_y^T a, and the cotangents of the parameters are the integral of f_p^T a. Reverse mode
solves these back from the last time to the first, together with y itself, so that no step of the way is remembered.
Other derivatives (forward mode, higher orders) take the steps again on the tape.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..core.batching import Batched
from ..core.context import current, entered
from ..core.effects import undoing
from ..core.facts import Facts
from ..core.forward import forward
from ..core.gradients import link_of, sweep
from ..core.op import Op
from ..core.reverse import reverse
from ..core.scopes import aside
from ..core.tape import watching
from ..core.value import Value, array_of, wrap
from ..errors import ConvergenceError, GradientError
from ..lifted import BatchedTensor
from ..ops import unbind
from ..ops.casting import alias
from ..tensors import Tensor
from ..transforms.custom import per_output
from ..transforms.loop_states import tensors_of, with_tensors
from ..transforms.transposing import is_recorded
from .capturing import Watcher, alone, check_known, cut_off, on_tape
from .equations import tracked_copy
from .implicit_op import parts_of
from .runge_kutta import Leaves
from .traces import Trace
from .trajectories import NAME, Trajectory, constants, stacked

#: How much larger than a step's error the way back may miss the way there.
_DRIFT = 1e3

#: How many steps the way back may take for each of the way there, and how many in any case.
_STEPS, _FEWEST = 10, 1000


class Adjoint:
    """A trajectory whose gradients come from the adjoint equation.

    Args:
        trajectory: the equation and its times.
        times: as they were given: numbers, or a tensor.
        args: arguments of f.
        captured: tensors that f takes from outside.
    """

    def __init__(self, trajectory: Trajectory, times: Any, args: tuple[Any, ...], captured: Sequence[Value]) -> None:
        self.trajectory = trajectory
        self.given = (times, args)
        self.captured = captured
        self.count = len(trajectory.right_side.space.shapes)
        self.fresh: list[NDArray] | None = None
        #: How many steps each stretch took, once it is solved.
        self.counts: list[int] = []
        #: What f did at the last and at the first time.
        self.traces: list[Trace | None] = []

    def __repr__(self) -> str:
        return repr(self.trajectory)

    def solve(self, y: Leaves) -> Leaves:
        """Return for each leaf its values at all times, with one record behind them."""
        args = self.given[1]
        self.fresh = self.arrays(constants(y), with_tensors(args, constants(tensors_of(args))))
        self.traces = self._traces(self.fresh, args)
        operands = [*y, *tensors_of(self.given), *self.captured]
        return parts_of(apply(ADJOINT, operands, {"adjoint": self}))

    def _traces(self, solution: Sequence[NDArray], args: tuple[Any, ...]) -> list[Trace | None]:
        """Return what f does at both ends of the solution."""
        ends = [(i, [part[i] for part in solution]) for i in (-1, 0)]
        return [self.trajectory.trace(i, y, args, self.captured) for i, y in ends]

    def check(self, operands: Sequence[Any], solution: Sequence[Any]) -> None:
        """Raise if f does something else than when the equation was solved: it would miss the way for that reason."""
        args = self.split([wrap(Tensor, np.asarray(array_of(operand))) for operand in operands])[2]
        now = self._traces([array_of(part) for part in solution], args)
        for pair in zip(self.traces, now, strict=True):
            self.trajectory.check_trace(*pair)

    def arrays(self, y: Leaves, args: tuple[Any, ...]) -> list[NDArray]:
        """Return for each leaf its values at all times, and remember how many steps that took."""
        found, grid = self.trajectory.solve(y, args)
        self.counts = [len(ends) - 1 for ends in grid]
        return stacked(found)

    def split(self, operands: Sequence[Any]) -> tuple[Leaves, Any, tuple[Any, ...], list[Any]]:
        """Return y, the times, the arguments and what is captured, of operands."""
        stop = len(operands) - len(self.captured)
        times, args = with_tensors(self.given, operands[self.count : stop])
        return list(operands[: self.count]), times, args, list(operands[stop:])

    def pull(
        self, g: Sequence[NDArray], operands: Sequence[NDArray], out: Sequence[NDArray], needs: Sequence[bool]
    ) -> list[NDArray]:
        """Return the cotangents of operands by the adjoint equation: those of parameters are zero unless in `needs`."""
        times = self.trajectory.times
        has_times = isinstance(self.given[0], Value)
        back = _WayBack(self, operands, needs)
        a = [np.zeros(part.shape[1:], part.dtype) for part in out]
        sums = [np.zeros(part.shape, part.dtype) for part in back.parameters]
        rates = np.zeros(len(times))
        for i in range(len(times) - 1, 0, -1):
            y = [part[i] for part in out]
            a = [x + part[i] for x, part in zip(a, g, strict=True)]
            if has_times:
                rates[i] = back.rate(times[i], y, [part[i] for part in g])
            if any(x.any() for x in a):
                back.allow(self.counts[i - 1])
                a, sums = back.go(times[i], times[i - 1], y, a, sums, [part[i - 1] for part in out])
        if has_times:
            rates[0] = -back.rate(times[0], [part[0] for part in out], a)
        a = [x + part[0] for x, part in zip(a, g, strict=True)]
        rest = iter(sums)
        first = self.count + has_times
        totals = [next(rest) if is_needed else np.zeros(()) for is_needed in needs[first:]]
        return [*a, *([rates] if has_times else []), *totals]


class _WayBack:
    """Integrates y, its cotangent and the sums of the parameters' cotangents back in time."""

    def __init__(self, adjoint: Adjoint, operands: Sequence[NDArray], needs: Sequence[bool]) -> None:
        self.adjoint = adjoint
        self.right_side = adjoint.trajectory.right_side
        copies = [tracked_copy(np.asarray(operand)) for operand in operands]
        for copy, is_needed in zip(copies, needs, strict=True):
            copy.requires_grad = is_needed
        _, _, self.args, captured = adjoint.split(copies)
        self.stand_ins = dict(zip(map(link_of, adjoint.captured), captured, strict=True))
        self.parameters = [copy for copy in (*tensors_of(self.args), *captured) if copy.requires_grad]
        self.stepper = adjoint.trajectory.stepper()
        self._max_steps = self.stepper.max_steps

    def allow(self, count: int) -> None:
        """Bound the steps of the next stretch by those that it took on the way there."""
        self.stepper.max_steps = min(self._max_steps, max(_FEWEST, _STEPS * count))

    def go(
        self, start: float, stop: float, y: Leaves, a: Leaves, sums: Leaves, expected: Leaves
    ) -> tuple[Leaves, Leaves]:
        """Return the cotangents of y, and the sums, at an earlier time."""
        with watching(self.adjoint.captured), alone(grad=True), on_tape(self.right_side.title):
            try:
                found = self.stepper.advance(self._slopes, start, stop, [*y, *a, *sums]).y
            except ConvergenceError as error:
                raise GradientError(
                    f"{NAME}: there is no way back from t={start:.6g} to t={stop:.6g} for gradient='adjoint' in "
                    f"{self.stepper.max_steps} steps: errors grow backward in time here. Use gradient='checkpointed', "
                    f"or closer times. The last try ended so: {error}"
                ) from error
        count = len(y)
        self._check(found[:count], expected, stop)
        return found[count : 2 * count], found[2 * count :]

    def rate(self, t: float, y: Leaves, a: Leaves) -> float:
        """Return how fast what has the cotangent `a` changes with time."""
        with alone(grad=False):
            slopes = self.right_side(t, constants(y), self.args)
        return sum(float(np.vdot(x, slope.array)) for x, slope in zip(a, slopes, strict=True))

    def _slopes(self, t: Any, leaves: Leaves) -> Leaves:
        count = self.adjoint.count
        y = [tracked_copy(part) for part in leaves[:count]]
        watcher = Watcher([*y, *tensors_of(self.args)], self.stand_ins)
        with watcher:
            slopes = self.right_side(t, y, self.args)
        watcher.look_at(slopes)
        check_known(self.right_side.title, watcher)
        seeds = [
            (watcher.led(slope), part)
            for slope, part in zip(slopes, leaves[count : 2 * count], strict=True)
            if slope.node is not None
        ]
        sources = [*y, *self.parameters]
        found = reverse(seeds, sources) if seeds else {}
        pulled = [np.zeros(s.shape, s.dtype) if (c := found.get(s)) is None else -c for s in sources]
        return [*(slope.array for slope in slopes), *pulled]

    def _check(self, found: Leaves, expected: Leaves, t: float) -> None:
        """Raise if y did not come back to where it was: then the cotangents are those of another solution."""
        for x, y in zip(found, expected, strict=True):
            size = float(np.max(np.abs(y), initial=0.0))
            off = float(np.max(np.abs(x - y), initial=0.0))
            allowed = self.stepper.atol + self.stepper.rtol * size
            if not off <= max(10.0 * allowed, min(_DRIFT * allowed, 1e-3 * size)):
                raise GradientError(
                    f"{NAME}: going back to t={t:.6g} for gradient='adjoint', y missed its way by {off:.1e} (its size "
                    f"is {size:.1e}): errors grow backward in time here, and the gradient would be wrong. Use "
                    "gradient='checkpointed', closer times, or smaller rtol and atol."
                )


def _adjoint_solution(operands: tuple[NDArray, ...], /, *, adjoint: Adjoint) -> Any:
    """Solve a differential equation."""
    outs, adjoint.fresh = adjoint.fresh, None
    if outs is None:
        y, _, args, _ = adjoint.split([wrap(Tensor, array) for array in operands])
        outs = adjoint.arrays(y, args)
    return tuple(outs) if len(outs) > 1 else outs[0]


def _pull(g: Any, operands: tuple[Any, ...], out: Any, needs: tuple[bool, ...], adjoint: Adjoint) -> list[Any]:
    """Return the cotangents of all operands."""
    outs = parts_of(out)
    adjoint.check(operands, outs)
    with undoing(keeps_new=True):
        return _pulled(g, operands, outs, needs, adjoint)


def _pulled(g: Any, operands: tuple[Any, ...], outs: Leaves, needs: tuple[bool, ...], adjoint: Adjoint) -> list[Any]:
    cotangents = [np.zeros(y.shape, y.dtype) if c is None else c for c, y in zip(parts_of(g), outs, strict=True)]
    if is_recorded((*cotangents, *operands)):
        return _pull_recorded(cotangents, operands, adjoint)
    count = next((len(c.members) for c in cotangents if isinstance(c, Batched)), None)
    if count is None:
        return list(adjoint.pull(cotangents, operands, outs, needs))
    members = [
        adjoint.pull([c.members[i] if isinstance(c, Batched) else c for c in cotangents], operands, outs, needs)
        for i in range(count)
    ]
    return [BatchedTensor.of(np.stack(parts)) for parts in zip(*members, strict=True)]


def _pull_recorded(cotangents: Leaves, operands: Sequence[Any], adjoint: Adjoint) -> list[Any]:
    """Do what `_pull` does on tensors, for higher orders."""
    with entered(transforms=current().transforms + 1), watching(adjoint.captured):
        outs, parameters = _on_tape(adjoint, operands)
        pairs = [(y, c) for y, c in zip(outs, cotangents, strict=True) if y.node is not None]
        with cut_off(parameters):
            found = sweep([y for y, _ in pairs], [c for _, c in pairs], parameters, create_graph=True) if pairs else {}
    return [np.zeros(p.shape, p.dtype) if (c := found.get(link_of(p))) is None else c for p in parameters]


def _push(t: Any, operands: tuple[Any, ...], out: Any, index: int, adjoint: Adjoint) -> Any:
    """Return the tangent of the solution, given that of one operand."""
    adjoint.check(operands, parts_of(out))
    must_record = is_recorded((t, *operands))
    within = entered(grad=True, transforms=current().transforms + 1) if must_record else aside(grad=True)
    with undoing(keeps_new=True), within, watching(adjoint.captured):
        outs, parameters = _on_tape(adjoint, operands)
        with cut_off(parameters):
            seeds = [(link_of(parameters[index]), t)]
            found = forward(seeds, [link_of(y) for y in outs], cls=Tensor if must_record else None)
    tangents = [np.zeros(y.shape, y.dtype) if x is None else x for x, y in zip(found, outs, strict=True)]
    return tuple(tangents) if len(tangents) > 1 else tangents[0]


def _on_tape(adjoint: Adjoint, operands: Sequence[Any]) -> tuple[Leaves, Leaves]:
    """Take the steps on the tape; return the solution, and stand-ins for the operands."""
    parameters = [alias(x) if isinstance(x, Value) else tracked_copy(np.asarray(x)) for x in operands]
    y, times, args, captured = adjoint.split(parameters)
    trajectory = adjoint.trajectory
    _, grid = trajectory.solve(constants(y), with_tensors(args, constants(tensors_of(args))))
    stand_ins = dict(zip(map(link_of, adjoint.captured), captured, strict=True))
    watcher = Watcher(parameters, stand_ins)
    with watcher:
        at = unbind(times) if isinstance(times, Value) else times
        found = trajectory.record(y, at, args, grid)
    check_known(trajectory.right_side.title, watcher)
    return found, parameters


ADJOINT = Op(
    _adjoint_solution,
    _adjoint_solution,
    pulls={},
    pushes={"operands": _push},
    joint=_pull,
    is_variadic=True,
    facts=Facts(cost=per_output, native_half=True),
)
