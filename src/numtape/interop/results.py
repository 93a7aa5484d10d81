"""What solvers answer: the point as a tree, the verdict, and SciPy's own result."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import NDArray
from .vectors import Layout


class SolverWarning(UserWarning):
    """A solver did not converge, or what it found is not determined by the data.

    The result says so as well: `success` is False, or the covariance is infinite. Repair: another start, another
    method, more iterations, or fewer parameters. ``warnings.simplefilter("error", SolverWarning)`` makes it an error.
    """


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer of `minimize`, `least_squares` or `root`."""

    #: The point that was found, in the structure of the start.
    x: Any
    #: What the function is there: a number for `minimize`, otherwise what it returned, as arrays.
    fun: Any
    #: Whether the solver converged.
    success: bool
    #: Why it stopped.
    message: str
    #: SciPy's own result, of vectors: counts of calls and iterations, and what else the method knows.
    scipy: Any
    #: `x` in one vector, and what each element of it is called.
    vector: NDArray = field(repr=False)
    names: list[str] = field(repr=False)

    def __str__(self) -> str:
        verdict = "converged" if self.success else "NOT CONVERGED"
        return "\n".join([f"{verdict}: {self.message}", *self._rows()])

    def _rows(self) -> list[str]:
        width = max(map(len, self.names))
        return [f"  {name:{width}}  {x:.10g}" for name, x in zip(self.names, self.vector, strict=True)]


@dataclass(frozen=True, eq=False)
class Fit(Solution):
    """The answer of `least_squares` and `curve_fit`, with how well the data determine it."""

    #: The covariance of the elements of `vector`; NaN if the solver did not converge, infinite if the data do not tell.
    covariance: NDArray = field(repr=False)
    #: The standard errors, in the structure of the start.
    errors: Any
    #: The number of residuals less that of parameters.
    degrees_of_freedom: int

    @property
    def correlation(self) -> NDArray:
        """The covariance, divided by the standard errors."""
        scale = np.sqrt(np.diagonal(self.covariance))
        return np.asarray(self.covariance / np.outer(scale, scale))

    def _rows(self) -> list[str]:
        scale = np.sqrt(np.diagonal(self.covariance))
        rows = zip(super()._rows(), scale, strict=True)
        return [f"{row} +- {error:.3g}" for row, error in rows]


@dataclass(frozen=True, eq=False)
class CurveFit(Fit):
    """The answer of `curve_fit`; it unpacks into parameters and covariance, as SciPy's does."""

    def __iter__(self) -> Any:
        return iter((self.x, self.covariance))


def verdict(name: str, result: Any) -> tuple[bool, str]:
    """Return whether a solver converged to something finite, and why it stopped; warn if it did not."""
    message = str(result.message)
    is_finite = bool(np.all(np.isfinite(result.x)) and np.all(np.isfinite(result.fun)))
    success = bool(result.success) and is_finite
    if not success:
        what = "did not converge" if is_finite else "ended where the function is not finite"
        warnings.warn(
            f"{name}: the solver {what} ({message}); its answer is not to be trusted. Try another start or method, more "
            "iterations, or another scale of the parameters.",
            SolverWarning,
            stacklevel=3,
        )
    return success, message


def covariance_of(name: str, result: Any, layout: Layout, success: bool, is_scaled: bool) -> NDArray:
    """Return the covariance of a least-squares solution from the Jacobian there: of x as the inverse of J^T J.

    Args:
        name: of the solver, for messages.
        result: SciPy's.
        layout: of the parameters.
        success: whether the solver converged.
        is_scaled: whether to estimate the variance of the residuals from their sum of squares; else it is 1.
    """
    size = layout.size
    if not success:
        return np.full((size, size), np.nan)
    matrix = result.jac.toarray() if hasattr(result.jac, "toarray") else np.asarray(result.jac)
    # Columns of one length: the rank is then that of the problem, whatever the units of the parameters.
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    _, values, rows = np.linalg.svd(matrix / scale, full_matrices=False)
    is_seen = values > np.finfo(np.float64).eps * max(matrix.shape) * max(values[0], 1e-300)
    freedom = len(result.fun) - size
    if not np.all(is_seen) or len(values) < size or (is_scaled and freedom <= 0):
        _warn_undetermined(name, layout, rows[~is_seen], len(result.fun))
        return np.full((size, size), np.inf)
    inverse = (rows.T / values**2) @ rows / np.outer(scale, scale)
    return np.asarray(inverse * (2.0 * result.cost / freedom if is_scaled else 1.0))


def _warn_undetermined(name: str, layout: Layout, directions: NDArray, count: int) -> None:
    names = [n for n, size in zip(layout.names, np.abs(directions).max(axis=0, initial=0.0), strict=True) if size > 0.1]
    which = f"do not determine {', '.join(names)}" if names else f"are {count} residuals for {layout.size} parameters"
    warnings.warn(
        f"{name}: the data {which}, so the covariance is infinite. Fix or leave out a parameter, or add data.",
        SolverWarning,
        stacklevel=4,
    )
