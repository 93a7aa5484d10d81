"""The solvers that run unless another is given: Newton's method for roots, Anderson's for fixed points."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import ConvergenceError, LinearAlgebraError
from .equations import Equation
from .linearization import Linearization
from .systems import System

Args = tuple[Any, ...]
#: From an equation, a start, arguments, a method for linear systems and a number of iterations to the answer.
Solver = Callable[[Equation, NDArray, Args, str, int], NDArray]

#: How often a step is halved, and how much of the expected decrease is enough.
HALVINGS = 40
ENOUGH = 1e-4
#: How many steps Anderson's method looks back.
_DEPTH = 8


def norm(vector: NDArray) -> float:
    """Return the largest absolute value."""
    return float(np.abs(vector).max(initial=0.0))


def not_finite(equation: Equation) -> ConvergenceError:
    """Return the error of an equation that gives no number at the start."""
    return ConvergenceError(f"{equation.title} is not finite at the start x0; start where it is defined.")


def unsolved(equation: Equation, solver: str, iterations: int, what: str) -> ConvergenceError:
    """Return the error of a solver that gave up."""
    return ConvergenceError(
        f"{equation.name}: {solver} did not converge in {iterations} iterations: {what}. Start nearer to the answer, "
        "allow more by max_iterations=, or bring a solver of your own by solver=."
    )


def typical_sizes(x: NDArray, start: NDArray) -> NDArray:
    """Return how large the elements of x are among each other, where zeros are as large as the others.

    The start tells the units, and only these: an element that started smaller than the others is expected to be so.
    """
    units = np.where(start != 0.0, np.abs(start), norm(start) or 1.0)
    with np.errstate(over="ignore"):
        return np.minimum(norm(x), norm(x / units) * units)


def is_settled(step: NDArray, before: NDArray | None, x: NDArray, eps: float) -> bool:
    """Return whether each element of x stands after a step, measured by its own size.

    Steps of Newton's method shrink quadratically: from this one and the one before it, the next is known.
    """
    sizes, step = np.abs(x), np.abs(step)
    stands = step <= 4 * eps * sizes
    if before is not None:
        with np.errstate(all="ignore"):
            stands |= (step <= eps**0.6 * sizes) & (step * (step / before) ** 2 <= eps * sizes)
    return bool(stands.all())


def is_near(step: NDArray, x: NDArray, eps: float) -> bool:
    """Return whether a step changes no more than half of the digits of any element of x."""
    return bool((np.abs(step) <= 4 * np.sqrt(eps) * np.abs(x)).all())


def is_within_rounding(step: NDArray, x: NDArray, start: NDArray, eps: float) -> bool:
    """Return whether a step that leads nowhere is what rounding in F makes of none."""
    # Zeros have no digits of their own: those of the other elements, and of the start, are in their equations.
    floor = eps**0.7 * typical_sizes(x, start) + 10 * eps * max(1.0, norm(start))
    return is_near(step[np.abs(step) > floor], x[np.abs(step) > floor], eps)


def vanishing(equation: Equation, x: NDArray, start: NDArray, step: NDArray, args: Args) -> NDArray | None:
    """Return x with zeros for elements that shrink and shrink, if F is zero there; else None."""
    eps = equation.space.eps
    is_shrinking = np.abs(step) > eps**0.6 * np.abs(x)
    if norm(step[is_shrinking]) > eps * max(norm(x), norm(start)):
        return None
    rounded = np.where(is_shrinking, 0.0, x)
    with np.errstate(all="ignore"):
        return None if equation.at(rounded, args).any() else rounded


def newton(equation: Equation, start: NDArray, args: Args, method: str, iterations: int) -> NDArray:
    """Find a root by Newton's method, with shorter steps where a full one does not lead down."""
    eps = equation.space.eps
    x = start
    before = None
    for number in range(iterations):
        point = Linearization(equation, equation.space.split(x), args, captured=None)
        residual = point.residual
        if not np.isfinite(residual).all():
            raise not_finite(equation)
        if not residual.any():
            return x
        system = System(point, method, is_positive=False)
        step, is_exact = newton_step(system, residual)
        trial = _descend(equation, x, step, residual, args, np.ones_like(x))
        if trial is None and is_exact and system.method == "dense" and not is_near(step, x, eps):
            # Rounding in one equation may hide the descent of another, which has smaller units.
            trial = _descend(equation, x, step, residual, args, _row_weights(point.matrix()))
        if trial is None:
            # Rounding hides any further descent: this is the answer, or a place where there is none near.
            if is_exact and is_within_rounding(step, x, start, eps):
                return x
            raise unsolved(equation, "Newton's method", number + 1, f"|F| is stuck at {norm(residual):.1e}")
        x = trial
        if is_settled(step, before, x, eps):
            return x
        zero = vanishing(equation, x, start, step, args)
        if zero is not None:
            return zero
        before = step
    raise unsolved(equation, "Newton's method", iterations, f"|F| is still {norm(equation.at(x, args)):.1e}")


def newton_step(system: System, residual: NDArray, tolerance: float | None = None) -> tuple[NDArray, bool]:
    """Return the step that makes F zero to first order, and whether there is one; else the shortest of the best."""
    try:
        return system.solve(residual[:, None], is_transposed=False, tolerance=tolerance)[:, 0], True
    except LinearAlgebraError:
        if system.method != "dense":
            raise
    matrix = system.point.matrix()
    if not np.isfinite(matrix).all():
        return np.zeros_like(residual), False
    step: NDArray = np.linalg.lstsq(matrix, residual, rcond=None)[0]
    return step, norm(residual - matrix @ step) <= 1e-3 * norm(residual)


def _row_weights(matrix: NDArray) -> NDArray:
    """Return weights of equations that make the largest derivative of each one."""
    sizes = np.abs(matrix).max(axis=1, initial=0.0)
    return 1.0 / np.where(sizes > 0.0, sizes, 1.0)


def _descend(
    equation: Equation, x: NDArray, step: NDArray, residual: NDArray, args: Args, weights: NDArray
) -> NDArray | None:
    """Return a point along a step where F, weighted, is smaller; None if there is none."""
    before = float(np.linalg.norm(weights * residual))
    share = 1.0
    with np.errstate(all="ignore"):
        for _ in range(HALVINGS):
            trial = x - share * step
            if float(np.linalg.norm(weights * equation.at(trial, args))) <= (1.0 - ENOUGH * share) * before:
                return trial
            share /= 2.0
    return None


def anderson(equation: Equation, start: NDArray, args: Args, method: str, iterations: int) -> NDArray:
    """Find a fixed point by iteration, each time from the best mixture of the last points (Anderson's method)."""
    eps = equation.space.eps
    x = start
    points: list[NDArray] = []
    moves: list[NDArray] = []
    best, least, since, done = x, np.inf, 0, 0
    with np.errstate(all="ignore"):
        while done < iterations and since <= 10 * _DEPTH:
            done += 1
            since += 1
            move = -equation.at(x, args)
            if not np.isfinite(move).all():
                if not np.isfinite(least):
                    raise not_finite(equation)
                # The mixture led astray: start again from the best point.
                x, points, moves = best - equation.at(best, args), [], []
                since += _DEPTH
                continue
            if norm(move) < 0.5 * least:
                since = 0
            if norm(move) < least:
                best, least = x, norm(move)
            if least <= 2 * eps * norm(x):
                return best
            points, moves = [*points, x][-_DEPTH:], [*moves, move][-_DEPTH:]
            x = _mixture(points, moves)
    # Rounding in the function may keep it from standing quite still.
    if least <= np.sqrt(eps) * max(norm(best), norm(start)):
        return best
    raise unsolved(equation, "Anderson's iteration", done, f"it still moves x by {least:.1e}")


def _mixture(points: list[NDArray], moves: list[NDArray]) -> NDArray:
    """Return the next point: that of the affine combination of points whose combined move is least."""
    last = points[-1] + moves[-1]
    if len(points) == 1:
        return last
    differences = np.stack([moves[-1] - move for move in moves[:-1]], axis=1)
    weights = np.linalg.lstsq(differences, moves[-1], rcond=1e-12)[0]
    shifts = np.stack([last - (x + move) for x, move in zip(points[:-1], moves[:-1], strict=True)], axis=1)
    found: NDArray = last - shifts @ weights
    return found
