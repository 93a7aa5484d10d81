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


def newton(equation: Equation, start: NDArray, args: Args, method: str, iterations: int) -> NDArray:
    """Find a root by Newton's method, with shorter steps where a full one does not lead down."""
    eps = equation.space.eps
    x = start
    for number in range(iterations):
        point = Linearization(equation, equation.space.split(x), args, captured=None)
        residual = point.residual
        if not np.isfinite(residual).all():
            raise not_finite(equation)
        if not residual.any():
            return x
        step, is_exact = newton_step(System(point, method, is_positive=False), residual)
        scale = max(norm(x), norm(start))
        trial = _descend(equation, x, step, residual, args)
        if trial is None:
            # Rounding hides any further descent: this is the answer, or a place where there is none near.
            if is_exact and norm(step) <= max(np.sqrt(eps) * scale, 10 * eps):
                return x
            raise unsolved(equation, "Newton's method", number + 1, f"|F| is stuck at {norm(residual):.1e}")
        x = trial
        if norm(step) <= eps**0.6 * scale:
            return x
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


def _descend(equation: Equation, x: NDArray, step: NDArray, residual: NDArray, args: Args) -> NDArray | None:
    """Return a point along a step where F is smaller; None if there is none."""
    before = float(np.linalg.norm(residual))
    share = 1.0
    with np.errstate(all="ignore"):
        for _ in range(HALVINGS):
            trial = x - share * step
            if float(np.linalg.norm(equation.at(trial, args))) <= (1.0 - ENOUGH * share) * before:
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
