"""`laplace`: a density as the Gaussian at its mode, and the logarithm of its integral."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import GradientError
from ..interop.functions import Objective, solving
from ..interop.loading import scipy_part
from ..interop.vectors import Layout
from ..outputs import title
from ..random_creation import randn
from ..streams import Generator

#: How near to the mode, in standard deviations, the last step must be, and how many there may be.
_NEAR = 1e-5
_MOST_STEPS = 50
#: How often to search, each time from where the last search ended and in its units; and how long a step may be there.
_CLIMBS = 2
_FARTHEST = 1e100


@dataclass(frozen=True, eq=False)
class Laplace:
    """A Gaussian in the place of a density."""

    #: Where the density is largest, in the structure of the start, and its logarithm there.
    mode: Any
    log_density: float
    #: The standard deviations, in the same structure.
    errors: Any
    #: The logarithm of the integral of the density, as given: for a joint density of data and parameters, the evidence.
    log_evidence: float
    #: The covariance of the elements, and what they are called.
    covariance: NDArray = field(repr=False)
    names: list[str] = field(repr=False)
    layout: Layout = field(repr=False)
    vector: NDArray = field(repr=False)

    def sample(self, count: int, rng: Any = None) -> list[Any]:
        """Return trees like the mode, drawn from the Gaussian.

        Args:
            count: how many.
            rng: an `nt.Generator`, one of NumPy, a seed of NumPy's, or None for the thread's stream.
        """
        shape = count, len(self.vector)
        if rng is None or isinstance(rng, Generator):
            drawn = randn(shape, dtype=np.float64, rng=rng).array
        else:
            drawn = np.random.default_rng(rng).standard_normal(shape)
        return [self.layout.results(x) for x in self.vector + drawn @ np.linalg.cholesky(self.covariance).T]

    def __str__(self) -> str:
        width = max(map(len, self.names))
        errors = np.sqrt(np.diagonal(self.covariance))
        rows = [f"{n:{width}}  {x:.10g} +- {e:.3g}" for n, x, e in zip(self.names, self.vector, errors, strict=True)]
        return "\n".join([*rows, f"log evidence {self.log_evidence:.10g}"])


def laplace(log_density: Callable[..., Any], x0: Any, args: tuple[Any, ...] = ()) -> Laplace:
    """Approximate a density by the Gaussian at its mode: mode, covariance, and the logarithm of its integral.

    The mode is found by Newton's method in a trust region, with exact Hessians, whatever the units of the parameters.
    Needs SciPy.

    Args:
        log_density: takes a tree of tensors, and `args`, and returns the logarithm of the density, which need not be
            normalised: usually log-likelihood plus log-prior.
        x0: where to start: tensors, arrays, numbers or a tree of them.
        args: further arguments, passed on as they are.

    Returns:
        A `Laplace`: `mode` and `errors` in the structure of `x0`, `covariance`, `log_evidence`.

    Raises:
        GradientError: if no mode was found, or the density is flat there in some direction.

    Example:
        >>> found = nt.uncertainty.laplace(lambda x: -0.5 * ((x - 3.0) / 2.0) ** 2, 0.0)
        >>> round(found.mode, 6), round(found.errors, 6), round(found.log_evidence, 6)
        (3.0, 2.0, 1.612086)
    """
    name = "laplace"
    layout = Layout(name, "x0", x0)

    def negative(x: Any, *rest: Any) -> Any:
        return -log_density(x, *rest)

    negative.__name__ = title(log_density)
    objective = Objective(name, negative, layout, args if isinstance(args, tuple) else (args,))
    objective.start()
    optimize = scipy_part(name, "optimize")
    vector = layout.vector
    for _ in range(_CLIMBS):
        vector = _climbed(optimize, objective, vector)
    vector, factor = _settled(objective, vector)
    value, _ = objective.value_and_gradient(vector)
    inverse = np.linalg.inv(factor)
    covariance = inverse.T @ inverse
    evidence = -value + 0.5 * layout.size * math.log(2 * math.pi) - float(np.log(np.diagonal(factor)).sum())
    errors = layout.results(np.sqrt(np.diagonal(covariance)))
    return Laplace(layout.results(vector), -value, errors, evidence, covariance, layout.names, layout, vector)


def _climbed(optimize: Any, objective: Objective, start: NDArray) -> NDArray:
    """Return where a search from a start ended, and measures each element by how the function changes there."""
    with np.errstate(over="ignore", invalid="ignore"):
        unit = _units(objective, start)

    def value_and_gradient(z: NDArray) -> tuple[float, NDArray]:
        value, gradient = objective.value_and_gradient(unit * z)
        # SciPy goes back from what is infinite, but not from NaN.
        return np.inf if np.isnan(value) else value, gradient * unit

    try:
        with solving(), np.errstate(over="ignore", invalid="ignore"):
            found = optimize.minimize(
                value_and_gradient,
                start / unit,
                jac=True,
                hess=lambda z: objective.hessian(unit * z) * np.outer(unit, unit),
                method="trust-exact",
                options={"gtol": 1e-8, "maxiter": 1000, "max_trust_radius": _FARTHEST},
            )
    except ValueError as error:
        # At a kink the trust region shrinks to nothing, and SciPy divides by its radius.
        if "infs or NaNs" not in str(error):
            raise
        raise _no_mode(objective) from error
    return np.asarray(unit * found.x)


def _units(objective: Objective, vector: NDArray) -> NDArray:
    """Return for each element how far it must go to change the function by about 1; 1 where the function is flat."""
    slopes = np.abs(objective.value_and_gradient(vector)[1])
    changes = np.maximum(slopes, np.sqrt(np.abs(np.diagonal(objective.hessian(vector)))))
    return np.asarray(1.0 / np.where((changes > 0.0) & np.isfinite(changes), changes, 1.0))


def _settled(objective: Objective, vector: NDArray) -> tuple[NDArray, NDArray]:
    """Take Newton's steps to the last digits of a mode; return it, and the Cholesky factor of the Hessian there.

    Whether a mode was found is judged by the steps, in standard deviations: that does not depend on any unit.
    """
    factor = _factor(objective, vector)
    for _ in range(_MOST_STEPS):
        step = np.linalg.solve(factor, -objective.value_and_gradient(vector)[1])
        if not np.linalg.norm(step) < 1.0:
            break
        vector = vector + np.linalg.solve(factor.T, step)
        last, factor = factor, _factor(objective, vector)
        # Where the Hessian vanishes at the mode, as that of x**4, it never settles.
        has_settled = np.allclose(np.diagonal(factor), np.diagonal(last), rtol=1e-3, atol=0.0)
        if has_settled and np.linalg.norm(step) < _NEAR:
            return vector, factor
    raise _no_mode(objective)


def _no_mode(objective: Objective) -> GradientError:
    return GradientError(
        f"{objective.name}: no mode of {objective.__name__} was found from x0, around which it falls as a Gaussian "
        "does; start nearer to it, or check that there is one."
    )


def _factor(objective: Objective, vector: NDArray) -> NDArray:
    """Return the Cholesky factor of the Hessian, or raise and say in which direction the density does not fall."""
    precision = objective.hessian(vector)
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        factor = np.zeros_like(precision)
    scale = np.sqrt(np.abs(np.diagonal(precision)))
    if np.all(np.diagonal(factor) > 1e-7 * scale) and np.all(np.isfinite(factor)):
        return factor
    names = ", ".join(objective.layout.names)
    if np.all(np.isfinite(precision)):
        direction = np.abs(np.linalg.eigh(precision).eigenvectors[:, 0])
        names = ", ".join(n for n, part in zip(objective.layout.names, direction, strict=True) if part > 0.1)
    raise GradientError(
        f"{objective.name}: {objective.__name__} has no maximum along {names} where the search ended, so there is no "
        "Gaussian in its place; add a prior, fix a parameter, or start elsewhere."
    )
