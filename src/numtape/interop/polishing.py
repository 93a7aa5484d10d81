"""The last digits of a least-squares solution: Newton's steps with the exact Hessian."""

from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import ArgumentError
from ..jacobians import hessian
from .functions import Residuals, solving
from .vectors import flat

#: The longest first step, relative to x, and by how much each must be shorter than the one before: near the solution
#: they are short and shrink faster.
_LONGEST = 1e-2
_SHRINKS = 0.5
_MOST_STEPS = 30


def polished(residuals: Residuals, result: Any, options: dict[str, Any]) -> Any:
    """Return SciPy's result with a point that Newton's steps took on, until rounding stops them.

    A solver that compares sums of squares stops when these no longer change, at half of the digits: near the minimum
    they are flat. The gradient is not.
    """
    if options.get("loss", "linear") != "linear":
        raise ArgumentError(f"{residuals.name}: polish is for loss='linear', not {options['loss']!r}; leave it out.")
    x, last = result.x, _LONGEST / _SHRINKS
    for _ in range(_MOST_STEPS):
        step, size = _step(residuals, x)
        if not size < _SHRINKS * last:
            break
        x, last = x + step, size
    values = residuals.plain(x)
    found = type(result)(result)
    found.update(x=x, fun=values, jac=residuals.jacobian(x), cost=0.5 * float(values @ values))
    return found


def _step(residuals: Residuals, x: NDArray) -> tuple[NDArray, float]:
    """Return Newton's step, and its length relative to that of x, both measured by what they do to the residuals."""
    matrix, values = residuals.jacobian(x), residuals.plain(x)
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)

    def half_square_sum(vector: Any) -> Any:
        return (flat(residuals(vector)) ** 2).sum() * 0.5

    with solving():
        curvature = hessian(half_square_sum)(residuals.point(x)) / np.outer(scale, scale)
    try:
        factor = np.linalg.cholesky(curvature)
    except np.linalg.LinAlgError:  # Not the surroundings of a minimum.
        return x, np.inf
    step = np.linalg.solve(factor.T, np.linalg.solve(factor, -((matrix / scale).T @ values)))
    size = float(np.linalg.norm(step) / max(float(np.linalg.norm(scale * x)), 1e-300))
    return step / scale, size
