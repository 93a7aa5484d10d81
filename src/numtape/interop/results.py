"""What solvers answer: the point as a tree, the verdict, and SciPy's own result."""

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.record import warn_user
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
        return "\n".join([f"{verdict}: {self.message}" if self.message else verdict, *self._rows()])

    def _rows(self) -> list[str]:
        width = max(map(len, self.names))
        return [f"  {name:{width}}  {x:.10g}" for name, x in zip(self.names, self.vector, strict=True)]


@dataclass(frozen=True, eq=False)
class Fit(Solution):
    """The answer of `least_squares` and `curve_fit`, with how well the data determine it."""

    #: The Jacobian of the residuals at `x`, a row for each.
    jacobian: Any = field(repr=False)
    #: The number of residuals less that of parameters.
    degrees_of_freedom: int
    #: The variance of the residuals: as estimated from them, or as given.
    variance: float
    _layout: Layout = field(repr=False)
    _name: str = field(repr=False)

    @functools.cached_property
    def covariance(self) -> NDArray:
        """The covariance of the elements of `vector`.

        It is NaN if the solver did not converge, and infinite, with a `SolverWarning`, if the data do not tell.
        """
        size = len(self.vector)
        if not self.success:
            return np.full((size, size), np.nan)
        inverse, lost = inverse_of_normal(self.jacobian)
        if lost.any() or not np.isfinite(self.variance):
            _warn_undetermined(self._name, self.names, lost, self.degrees_of_freedom)
            return np.full((size, size), np.inf)
        return np.asarray(inverse * self.variance)

    @functools.cached_property
    def errors(self) -> Any:
        """The standard errors, in the structure of the start."""
        return self._layout.results(np.sqrt(np.diagonal(self.covariance)))

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

    def __getitem__(self, index: Any) -> Any:
        return (self.x, self.covariance)[index]

    def __len__(self) -> int:
        return 2


def verdict(name: str, result: Any) -> tuple[bool, str]:
    """Return whether a solver converged to something finite, and why it stopped; warn if it did not."""
    # A method of the user's own need not say why.
    message = " ".join(str(getattr(result, "message", "")).split())
    is_finite = bool(np.all(np.isfinite(result.x)) and np.all(np.isfinite(result.fun)))
    success = bool(result.success) and is_finite
    if not success:
        what = "did not converge" if is_finite else "ended where the function is not finite"
        why = f" ({message})" if message else ""
        warn_user(
            f"{name}: the solver {what}{why}; its answer is not to be trusted. Try another start or method, "
            "more iterations, or another scale of the parameters.",
            SolverWarning,
        )
    return success, message


def inverse_of_normal(jacobian: Any) -> tuple[NDArray, NDArray]:
    """Return the inverse of J^T J, and for each parameter whether it moves in a direction that J does not see.

    The columns are first brought to one length: the rank is then that of the problem, whatever the units of parameters.
    A dense J is decomposed itself; of a sparse one, J^T J is, which costs half of the digits and much less memory.
    """
    is_sparse = hasattr(jacobian, "toarray")
    normal = np.asarray((jacobian.T @ jacobian).toarray()) if is_sparse else None
    lengths = np.linalg.norm(jacobian, axis=0) if normal is None else np.sqrt(np.diagonal(normal))
    scale = np.where(lengths > 0, lengths, 1.0)
    size = len(scale)
    if normal is None:
        # Rows of zeros change nothing, and let the decomposition have a direction for every parameter.
        filled = np.zeros((max(size, len(jacobian)), size))
        filled[: len(jacobian)] = jacobian / scale
        _, values, rows = np.linalg.svd(filled, full_matrices=False)
        squares, tiny = values**2, (np.finfo(np.float64).eps * max(filled.shape)) ** 2
    else:
        squares, vectors = np.linalg.eigh(normal / np.outer(scale, scale))
        rows, tiny = vectors.T, np.finfo(np.float64).eps * size
    is_seen = squares > tiny * squares.max()
    lost = np.abs(rows[~is_seen]).max(axis=0, initial=0.0) > 0.1
    kept = rows[is_seen]
    return (kept.T / squares[is_seen]) @ kept / np.outer(scale, scale), lost


def _warn_undetermined(name: str, names: list[str], lost: NDArray, freedom: int) -> None:
    which = ", ".join(n for n, is_lost in zip(names, lost, strict=True) if is_lost)
    what = (
        f"do not determine {which}" if which else f"have {freedom} degrees of freedom, too few to tell their variance"
    )
    warn_user(
        f"{name}: the data {what}, so the covariance is infinite. Fix or leave out a parameter, or add data.",
        SolverWarning,
    )
