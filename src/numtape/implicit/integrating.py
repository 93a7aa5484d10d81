"""Solve differential equations, and differentiate the solution: the public function."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.apply import tracked_operands
from ..core.context import current
from ..core.effects import effects, undoing
from ..core.streaming import StreamingTape
from ..core.value import Lifted, Value, wrap
from ..counts import is_count
from ..dtypes import is_float
from ..errors import ArgumentError, DtypeError, LeavesTapeError, NotDifferentiableError, OperandError, ShapeError
from ..ops import unbind
from ..tensors import Tensor
from ..transforms.loop_states import detached, tensors_of, with_tensors
from .adjoint import ADJOINT, Adjoint
from .capturing import Watcher, alone, on_tape, refers_to_tensors, watch_captured
from .dense_output import Solution
from .equations import Space, tracked_copy
from .runge_kutta import METHODS, Leaves
from .stepping import Stepper
from .switches import warn_of_jumps
from .trajectories import NAME, RightSide, Step, Trajectory, constants, stacked

GRADIENTS = ("unrolled", "adjoint", "checkpointed")


def odeint(
    function: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    method: str = "dopri5",
    rtol: float = 1e-6,
    atol: float = 1e-9,
    step_size: float | None = None,
    max_steps: int = 100_000,
    gradient: str = "unrolled",
    snapshots: int | None = None,
    dense: bool = False,
) -> Any:
    """Solve y' = function(t, y, *args) from y0 at t[0], and return y at all times, along a leading axis.

    The solution is differentiable by y0, by the arguments, by tensors that the function captures, and by the times. The
    steps are chosen without a tape; derivatives are then those of the steps taken.

    A comparison has no derivative, so the time at which a right side switches, as by ``nt.where(y > 0.7, ...)`` or
    ``nt.where(t < k, ...)``, counts as fixed. Where the slope jumps there, derivatives miss a part: integrate up to the
    event, find its time by `nt.implicit.root`, and go on from there.

    Args:
        function: takes a time, y and the arguments, and returns the slope of y, in its form. The time comes first, as
            in SciPy's solve_ivp. A vector may be a list of its elements; an np.array of them only where nothing is
            differentiated.
        y0: y at the first time: a tensor, an array, a number or a tree. A list of numbers is a vector.
        t: the times at which y is wanted, rising or falling.
        *args: arguments of the function: tensors, trees and anything else.
        method: "dopri5" (adaptive, Dormand and Prince) or "rk4" (fixed steps).
        rtol: the error allowed in a step of dopri5, in parts of y.
        atol: the error allowed besides.
        step_size: the longest step of rk4; by default one step between two times.
        max_steps: between two times.
        gradient: how reverse mode works. "unrolled" records all steps: exact, memory goes by their number.
            "checkpointed" keeps some states and takes steps again: the same numbers in little memory. "adjoint" solves
            the adjoint equation back in time: memory does not depend on the steps, the error is that of solving.
        snapshots: how many states "checkpointed" keeps between two times; by default so that no step runs more than
            three times.
        dense: whether to return a `Solution`, which can be asked at any time; it keeps all steps.

    Raises:
        ConvergenceError: if the steps become too small, or the function is not finite.
        GradientError: in a backward by the adjoint equation, if y misses its way back or finds none.

    Warns:
        UserWarning: if something is tracked, and the slope jumps where a comparison in the function turns from one of
            the times to the next.

    Example:
        >>> def decayed(rate):
        ...     return nt.implicit.odeint(lambda t, y, k: -k * y, 1.0, [0.0, 1.0], rate, rtol=1e-10)[-1]
        >>> bool(abs(nt.grad(decayed)(2.0) + np.exp(-2.0)) < 1e-8)
        True
    """
    _check(function, method, rtol, atol, step_size, max_steps, gradient, snapshots, dense)
    times, given = _as_times(t)
    space = Space(NAME, "y0", y0)
    right_side = RightSide(function, space)
    watch_captured(function)
    make = partial(Stepper, NAME, METHODS[method], rtol, atol, step_size, max_steps)
    trajectory = Trajectory(right_side, METHODS[method], times, make, snapshots)
    leaves = tree.leaves(space.form)
    y = [leaf if isinstance(leaf, Value) else wrap(Tensor, a) for leaf, a in zip(leaves, space.start, strict=True)]
    # Of all runs of f before the one that counts nothing stays, such as running statistics.
    with undoing():
        captured, refused = _first_look(right_side, times[0], y, args)
    solved = None
    if current().grad and not tracked_operands(ADJOINT, [*y, *tensors_of((given, args)), *captured], current()):
        # What f takes at the first time says nothing about later ones.
        with effects() as seen:
            solved, captured = trajectory.solve_watched(constants(y), detached(args))
    parameters = [*tensors_of((given, args)), *captured]
    is_tracked = bool(tracked_operands(ADJOINT, [*y, *parameters], current()))
    if is_tracked and refused:
        raise LeavesTapeError(refused)
    is_streamed = any(isinstance(tape, StreamingTape) for tape in current().tapes)
    steps: list[Step] | None = [] if dense else None
    if solved is not None and (is_tracked or dense):
        seen.undo()
    if not is_tracked and not dense:
        solved = solved or trajectory.solve(constants(y), detached(args))[0]
        found: Leaves = [wrap(Tensor, array) for array in stacked(solved)]
    elif gradient == "adjoint" and not is_streamed:
        found = Adjoint(trajectory, given, args, captured).solve(y)
    else:
        with undoing():
            _, grid = trajectory.solve(constants(y), detached(args))
        at = unbind(given) if isinstance(given, Value) else given
        with on_tape(right_side.title):
            found = trajectory.record(y, at, args, grid, captured, gradient == "checkpointed", steps)
    if is_tracked and len(times) > 1:
        plain = detached(args)
        warn_of_jumps(
            right_side.title, lambda t, y: right_side(t, y, plain), space, times, [part.array for part in found]
        )
    has_tensors = space.has_tensors or bool(parameters) or refers_to_tensors(function)
    result = space.as_tree(found if has_tensors else [part.array for part in found])
    return result if steps is None else Solution(space, METHODS[method], times, result, steps)


def _as_times(t: Any) -> tuple[list[float], Any]:
    """Return times as numbers, checked, and as what is computed with: numbers, or a tensor."""
    if isinstance(t, Lifted):
        raise NotDifferentiableError(f"{NAME}: t is a power series or a batch; use nt.jvp or nt.grad.")
    array: NDArray = t.array if isinstance(t, Value) else np.asarray(t)
    if array.dtype.kind not in "iuf" and not is_float(array.dtype):
        raise DtypeError(f"{NAME}: t has dtype {array.dtype}; it must be real numbers.")
    if array.ndim != 1 or not array.size:
        raise ShapeError(f"{NAME}: t has shape {array.shape}; it must be a vector of times, the first that of y0.")
    times = array.astype(np.float64)
    gaps = np.diff(times)
    rises = gaps * np.sign(gaps[:1].sum() or 1.0) > 0.0
    if not np.isfinite(times).all() or not rises.all():
        wrong = int(np.argmin(rises)) if len(rises) else 0
        shown = ", ".join(f"t[{i}]={times[i]:g}" for i in (wrong, wrong + 1) if i < len(times))
        raise ArgumentError(f"{NAME}: t must rise from each time to the next, or fall; it has {shown}.")
    is_tensor = isinstance(t, Value) and is_float(t.dtype)
    return times.tolist(), t.astype(np.float64) if is_tensor else times.tolist()


def _first_look(right_side: RightSide, t: float, y: Leaves, args: tuple[Any, ...]) -> tuple[list[Value], str]:
    """Run f once, and return the tracked tensors that it takes from outside.

    Also return what is to be said if f makes an array of a tensor, which is refused where something is differentiated.
    """
    if any(isinstance(value, Lifted) for value in tensors_of(args)):
        raise NotDifferentiableError(f"{NAME}: an argument is a power series or a batch; use nt.jvp or nt.grad.")
    start = [tracked_copy(part.array) for part in y]
    own = with_tensors(args, [tracked_copy(value.array) for value in tensors_of(args)])
    watcher = Watcher([*start, *tensors_of(own)])
    try:
        with alone(grad=True), on_tape(right_side.title), np.errstate(all="ignore"), watcher:
            watcher.look_at(right_side(t, start, own))
    except LeavesTapeError as error:
        return watcher.captured(), str(error)
    return watcher.captured(), ""


def _check(
    function: Any,
    method: Any,
    rtol: Any,
    atol: Any,
    step_size: Any,
    max_steps: Any,
    gradient: Any,
    snapshots: Any,
    dense: Any,
) -> None:
    if not callable(function):
        raise OperandError(f"{NAME}: wants a function of t and y first, not {type(function).__name__}.")
    if method not in METHODS:
        raise ArgumentError(f"{NAME}: method is {method!r}; it must be one of {', '.join(map(repr, METHODS))}.")
    if gradient not in GRADIENTS:
        raise ArgumentError(f"{NAME}: gradient is {gradient!r}; it must be one of {', '.join(map(repr, GRADIENTS))}.")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if isinstance(value, bool) or not isinstance(value, float | int) or not value > 0.0:
            raise ArgumentError(f"{NAME}: {name} is {value!r}; it must be a positive number.")
    if step_size is not None and (not isinstance(step_size, float | int) or not step_size > 0.0):
        raise ArgumentError(f"{NAME}: step_size is {step_size!r}; it must be a positive number, or None.")
    if step_size is not None and METHODS[method].is_adaptive:
        raise ArgumentError(f"{NAME}: {method} chooses its own steps; step_size is for method='rk4'.")
    if not is_count(max_steps):
        raise ArgumentError(f"{NAME}: max_steps is {max_steps!r}; it must be a positive integer.")
    if snapshots is not None and gradient != "checkpointed":
        raise ArgumentError(f"{NAME}: snapshots is for gradient='checkpointed'.")
    if dense and gradient != "unrolled":
        raise ArgumentError(f"{NAME}: dense output keeps all steps, so it wants gradient='unrolled'.")
