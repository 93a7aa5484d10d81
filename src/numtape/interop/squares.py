"""`least_squares`: SciPy's solvers of nonlinear least squares on residuals of trees, with exact Jacobians."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .bounds import as_bounds
from .functions import Residuals, solving
from .loading import scipy_part
from .polishing import polished
from .results import Fit, covariance_of, verdict
from .vectors import Layout


def least_squares(
    function: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    bounds: Any = None,
    method: str = "trf",
    polish: bool = False,
    **options: Any,
) -> Fit:
    """Minimise half the sum of squares of residuals with `scipy.optimize.least_squares`, which gets exact Jacobians.

    Args:
        function: takes a tree of tensors, and `args`, and returns the residuals: a tensor or a tree of tensors.
        x0: where to start: tensors, arrays, numbers or a tree of them. A list or tuple of numbers is an array.
        args: further arguments of `function`, passed on as they are.
        bounds: a pair (lower, upper) of trees like `x0`; a number stands for all elements, None for no bound.
        method: "trf", "dogbox" or "lm".
        polish: whether to go on from SciPy's answer with Newton's steps, which use exact second derivatives, for all
            digits that rounding leaves; without bounds and with the linear loss.
        **options: the others of SciPy's: `loss`, `ftol`, `xtol`, `gtol`, `x_scale`, `max_nfev`, ...

    Returns:
        A `Fit`: `x` in the structure of `x0`, `fun` in that of the residuals, `success`, `message`, `covariance` and
        `errors` (with the variance of the residuals estimated from them; bounds are not considered), and SciPy's
        result as `scipy`.

    Warns:
        SolverWarning: if the solver did not converge, or the data do not determine the parameters.

    Example:
        >>> from numtape.interop.scipy import least_squares
        >>> x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 5.0, 7.0])
        >>> fit = least_squares(lambda p: p["slope"] * x + p["start"] - y, {"slope": 1.0, "start": 0.0})
        >>> round(fit.x["slope"], 6), round(fit.x["start"], 6)
        (2.0, 1.0)
    """
    name = "least_squares"
    layout = Layout(name, "x0", x0)
    residuals = Residuals(name, function, layout, args if isinstance(args, tuple) else (args,))
    return fit(Fit, residuals, bounds, {"method": method, **options}, polish)


def fit(
    cls: type[Fit], residuals: Residuals, bounds: Any, options: dict[str, Any], polish: bool, is_scaled: bool = True
) -> Any:
    """Solve a problem of least squares; return an answer of class `cls`.

    Args:
        cls: the class.
        residuals: the function, with its layout and the name of the solver.
        bounds: as those of `least_squares`.
        options: SciPy's.
        polish: whether to take Newton's steps at the end.
        is_scaled: whether the variance of the residuals is estimated; else it is 1.
    """
    name, layout = residuals.name, residuals.layout
    optimize = scipy_part(name, "optimize")
    sides = as_bounds(name, layout, bounds)
    if polish and sides is not None:
        raise ArgumentError(f"{name}: polish is for problems without bounds; leave one of the two out.")
    out_tree, outs = residuals.start()
    with solving():
        result = optimize.least_squares(
            residuals.plain,
            layout.vector,
            jac=residuals.jacobian,
            **({} if sides is None else {"bounds": sides}),
            **options,
        )
    success, message = verdict(name, result)
    found = polished(residuals, result, options) if polish and success else result
    covariance = covariance_of(name, found, layout, success, is_scaled)
    return cls(
        x=layout.results(found.x),
        fun=residuals.as_returned(out_tree, outs, found.fun),
        success=success,
        message=message,
        scipy=result,
        vector=found.x,
        names=layout.names,
        covariance=covariance,
        errors=layout.results(np.sqrt(np.diagonal(covariance))),
        degrees_of_freedom=len(result.fun) - layout.size,
    )
