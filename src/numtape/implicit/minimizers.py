"""The minimisers that run unless another is given: Newton's method by products, and Levenberg and Marquardt's."""

from collections.abc import Callable

import numpy as np

from .._typing import NDArray
from ..core.value import wrap
from ..errors import ConvergenceError, LinearAlgebraError
from ..jacobians import matrix_blocks
from ..schedule import HybridScheduler
from ..tensors import Tensor
from .capturing import alone
from .equations import Equation, normal, tracked_copy
from .krylov import conjugate_gradients
from .linearization import Linearization, joined
from .solvers import (
    ENOUGH,
    HALVINGS,
    Args,
    is_settled,
    is_within_rounding,
    newton,
    norm,
    not_finite,
    unsolved,
    vanishing,
)
from .systems import raise_not_minimum

#: Up to so many unknowns, each is looked along for lower values.
_AXES = 10

#: Up to so many unknowns, the curvature along each is looked at to find their units.
_SCALED_UNKNOWNS = 500
#: After so many steps they are looked at again, and before an answer is believed.
_OFTEN = 10
#: Units that differ by less than this, all in all, are as good as others.
_ALIKE = 64.0


def newton_cg(equation: Equation, start: NDArray, args: Args, method: str, iterations: int) -> NDArray:
    """Find a minimum by Newton's method; steps come from conjugate gradients.

    These want unknowns in units in which a function bends alike along each. They begin with the units that are given,
    and go on in better ones before an answer is believed.
    """
    eps = equation.space.eps
    x = start
    first = before = None
    units = np.ones_like(x)
    for number in range(iterations):
        point = Linearization(equation, equation.space.split(x), args, captured=None)
        slope = point.residual
        if not np.isfinite(slope).all():
            raise not_finite(equation)
        size = float(np.linalg.norm(slope))
        first = size if first is None else first
        if size == 0.0:
            check_minimum(point, start, args)
            return x
        # Rough steps far away, exact ones near the end.
        tolerance = max(min(0.5, (size / first) ** 0.5), eps**0.7) if number else 0.5
        step = _downhill(point, slope, tolerance, units)
        trial = _descend(lambda z: _value(equation, z, args), lambda z: equation.at(z, args), x, step, slope, eps)
        is_done = trial is None
        if trial is not None:
            zero = vanishing(equation, trial, start, step, args)
            x = trial if zero is None else zero
            is_done = zero is not None or (tolerance <= 1e-3 and is_settled(step, before, x, eps))
            before = step
        if is_done and trial is not None:
            point = Linearization(equation, equation.space.split(x), args, captured=None)
        better = _units(point, units) if is_done or number % _OFTEN == _OFTEN - 1 else None
        if better is not None:
            units, first, before = better, None, None
            continue
        if not is_done:
            continue
        # Where rounding hides any further descent, this is the answer, or a place where there is none near.
        if trial is None and not is_within_rounding(_downhill(point, slope, eps**0.7, units), x, start, eps):
            raise unsolved(equation, "Newton's method", number + 1, f"the slope is stuck at {norm(slope):.1e}")
        check_minimum(point, start, args)
        return x
    raise unsolved(equation, "Newton's method", iterations, f"the slope is still {norm(equation.at(x, args)):.1e}")


@np.errstate(all="ignore")
def check_minimum(point: Linearization, start: NDArray, args: Args) -> None:
    """Raise if a point where a function is level is the top of something, a saddle, or a step of a stair.

    Where the curvature is positive it decides. Where it vanishes along some direction, values do: those around are
    looked at, so far away that rounding does not blur them.
    """
    equation = point.equation
    size = point.space.size
    if not size:
        return
    x = point.space.join([part.array for part in point.unknowns])
    reach = point.space.eps**0.125 * (max(norm(x), norm(start)) or 1.0)
    rng = np.random.default_rng(0)
    probes = [*rng.normal(size=(4, size)), *(np.eye(size) if size <= _AXES else ())]
    here = _value(equation, x, args)
    for number, probe in enumerate(probes):
        direction = _weak_direction(point, probe)
        if not number and _bends_alike(point, x, reach * direction, args):
            return
        for sign in (1.0, -1.0):
            near, far = (_value(equation, x + sign * k * reach * direction, args) for k in (1.0, 4.0))
            noise = 1e3 * point.space.eps * max(abs(here), abs(far))
            if near < here - noise and far < near - noise:
                raise_not_minimum(
                    equation.name,
                    f"the curvature vanishes along a direction, in which values fall by {here - near:.1e}",
                )


def _weak_direction(point: Linearization, probe: NDArray) -> NDArray:
    """Return a direction with little curvature, its largest element 1; from a random one."""
    found = conjugate_gradients(point.transposed_times, probe, 1e-3, 2 * len(probe) + 20)
    direction = found.x if found.direction is None else found.direction
    if found.curvature is not None:
        scale = float(np.linalg.norm(point.transposed_times(probe)) / np.linalg.norm(probe))
        if found.curvature < -np.sqrt(point.space.eps) * scale:
            raise_not_minimum(point.equation.name, f"the curvature along one direction is {found.curvature:.1e}")
    is_usable = direction.any() and np.isfinite(direction).all()
    return direction / norm(direction) if is_usable else probe / norm(probe)


def _bends_alike(point: Linearization, x: NDArray, shift: NDArray, args: Args) -> bool:
    """Return whether the curvature along a shift is positive, and not just small in comparison with that nearby."""
    eps, split = point.space.eps, point.space.split
    here = float(shift @ point.transposed_times(shift))
    for share in (1.0, eps**0.125, eps**0.25):
        around = [
            Linearization(point.equation, split(x + sign * share * shift), args, captured=None) for sign in (1.0, -1.0)
        ]
        if here > 0.1 * max(abs(float(shift @ there.transposed_times(shift))) for there in around):
            return True
    return False


def _units(point: Linearization, units: NDArray) -> NDArray | None:
    """Return units in which the curvature along each unknown is about one; None if these are such already."""
    if len(units) > _SCALED_UNKNOWNS:
        return None
    curvature = np.abs(np.diagonal(point.matrix()))
    if not np.isfinite(curvature).all() or not curvature.any():
        return None
    better = np.ldexp(1.0, -np.frexp(np.sqrt(np.where(curvature > 0.0, curvature, curvature.max())))[1])
    change = better / units
    return better if change.max() > _ALIKE * change.min() else None


def _downhill(point: Linearization, slope: NDArray, tolerance: float, units: NDArray) -> NDArray:
    def product(v: NDArray) -> NDArray:
        return units * point.transposed_times(units * v)

    found = conjugate_gradients(product, units * slope, tolerance, 2 * len(slope) + 20)
    # Where the curvature is not positive at once, straight downhill.
    return -units * (found.x if found.x.any() else units * slope)


def _value(equation: Equation, vector: NDArray, args: Args) -> float:
    with alone(grad=False):
        x = [wrap(Tensor, part) for part in equation.space.split(vector)]
        outs = [out.array for out in equation.as_outputs(equation.call(x, args))]
    if equation.form is normal:
        return 0.5 * sum(float(np.vdot(out, out)) for out in outs)
    return float(outs[0].item())


def _descend(
    value: Callable[[NDArray], float],
    slope_at: Callable[[NDArray], NDArray],
    x: NDArray,
    step: NDArray,
    slope: NDArray,
    eps: float,
) -> NDArray | None:
    """Return a point along a step that lies lower by some of what the slope promises; None if there is none."""
    here = value(x)
    promise = float(slope @ step)
    steepness = float(np.linalg.norm(slope))
    share = 1.0
    with np.errstate(all="ignore"):
        for _ in range(HALVINGS):
            trial = x + share * step
            there = value(trial)
            if there < here and there <= here + ENOUGH * share * promise:
                return trial
            # Where rounding hides the difference of values, slopes still tell.
            if abs(there - here) <= eps**0.64 * abs(here) and float(np.linalg.norm(slope_at(trial))) < 0.5 * steepness:
                return trial
            share /= 2.0
    return None


def levenberg_marquardt(equation: Equation, start: NDArray, args: Args, method: str, iterations: int) -> NDArray:
    """Find where a sum of squares is least: Gauss-Newton steps, damped as far as it takes to go down.

    Near the answer values tell no more where it is; the last steps are Newton's, which look at the slope.
    """
    near = _damped_descent(equation, start, args, iterations)
    try:
        return newton(equation, near, args, method, 20)
    except (ConvergenceError, LinearAlgebraError):
        return near  # Whether it is an answer is checked by whoever called.


def _damped_descent(equation: Equation, start: NDArray, args: Args, iterations: int) -> NDArray:
    small = np.sqrt(equation.space.eps)
    x = start
    damping = 1e-3
    small_steps = 0
    residual, jacobian = _fit(equation, x, args)
    if not np.isfinite(residual).all():
        raise not_finite(equation)
    for _ in range(iterations):
        slope = jacobian.T @ residual
        scale = max(norm(x), norm(start))
        lengths = np.linalg.norm(jacobian, axis=0)
        lengths[lengths == 0.0] = 1.0
        is_lower = False
        while slope.any() and not is_lower:
            step = _damped_step(jacobian, residual, damping, lengths)
            with np.errstate(all="ignore"):
                there, matrix = _fit(equation, x + step, args)
            is_lower = bool(there @ there < residual @ residual) and bool(np.isfinite(matrix).all())
            if not is_lower and norm(step) <= small * scale:
                return x
            damping = max(damping / 10.0, 1e-15) if is_lower else damping * 8.0
            if damping > 1e32:
                raise unsolved(equation, "Levenberg-Marquardt", iterations, f"the slope is stuck at {norm(slope):.1e}")
        if not is_lower:
            return x
        x, residual, jacobian = x + step, there, matrix
        small_steps = small_steps + 1 if norm(step) <= small * scale else 0
        if small_steps == 2:
            return x
    raise unsolved(equation, "Levenberg-Marquardt", iterations, f"the slope is still {norm(slope):.1e}")


def _damped_step(jacobian: NDArray, residual: NDArray, damping: float, lengths: NDArray) -> NDArray:
    """Return the step that makes |J s + r|^2 + damping |lengths s|^2 least."""
    tall = np.concatenate([jacobian / lengths, np.sqrt(damping) * np.eye(len(lengths))])
    right = np.concatenate([-residual, np.zeros(len(lengths))])
    step: NDArray = np.linalg.lstsq(tall, right, rcond=None)[0] / lengths
    return step


def _fit(equation: Equation, vector: NDArray, args: Args) -> tuple[NDArray, NDArray]:
    """Return the residuals of a fit, and their Jacobian."""
    x = [tracked_copy(part) for part in equation.space.split(vector)]
    with alone(grad=True):
        outs = equation.as_outputs(equation.call(x, args))
        blocks = matrix_blocks(outs, x, HybridScheduler(), None, is_recorded=False)
    residual = np.concatenate([np.asarray(out.array, np.float64).reshape(-1) for out in outs])
    return residual, joined(blocks, outs, x)
