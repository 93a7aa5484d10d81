"""`least_squares`: SciPy's solvers of nonlinear least squares on residuals of trees, with exact Jacobians."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from .bounds import Pair, as_bounds
from .functions import Residuals, solving
from .loading import scipy_part
from .options import check_method, check_options, check_word, options_of
from .polishing import polished
from .results import Fit, verdict
from .vectors import Layout

#: Arguments of SciPy's solver that are given here, and its methods.
_OWN = frozenset(("fun", "x0", "bounds", "args", "kwargs"))
_METHODS = frozenset(("trf", "dogbox", "lm"))
_LOSSES = frozenset(("linear", "soft_l1", "huber", "cauchy", "arctan"))


def least_squares(
    function: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    bounds: Any = None,
    method: str = "trf",
    polish: bool = False,
    sparse: bool | None = None,
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
        sparse: whether SciPy gets the Jacobian as a sparse matrix ("trf" and "dogbox" take one); by default if it is
            large and at most a tenth of it is other than zero, as the recorded graph tells.
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
    answer: Fit = fit(Fit, residuals, bounds, {"method": method, **options}, polish, sparse=sparse)
    return answer


def fit(
    cls: type[Fit],
    residuals: Residuals,
    bounds: Any,
    options: dict[str, Any],
    polish: bool,
    is_scaled: bool = True,
    sparse: bool | None = False,
) -> Any:
    """Solve a problem of least squares; return an answer of class `cls`.

    Args:
        cls: the class.
        residuals: the function, with its layout and the name of the solver.
        bounds: as those of `least_squares`.
        options: SciPy's.
        polish: whether to take Newton's steps at the end.
        is_scaled: whether the variance of the residuals is estimated; else it is 1.
        sparse: whether the Jacobian is a sparse matrix; None: where that pays.
    """
    name, layout = residuals.name, residuals.layout
    optimize = scipy_part(name, "optimize")
    check_options(name, options, options_of(optimize.least_squares, _OWN))
    method = str(options["method"]).lower()
    check_method(name, method, _METHODS)
    check_word(name, "loss", options.get("loss"), _LOSSES)
    options = {**options, "method": method}
    sides = as_bounds(name, layout, bounds)
    if method == "lm":
        _check_lm(name, options.get("loss", "linear"), sides, sparse)
    if polish and sides is not None:
        raise ArgumentError(f"{name}: polish is for problems without bounds; leave one of the two out.")
    out_tree, outs = residuals.start()
    count = sum(out.array.size for out in outs)
    if method == "lm" and count < layout.size:
        raise ShapeError(
            f"{name}: method 'lm' needs no fewer residuals than parameters, and got {count} for {layout.size}; give "
            "more observations, fix a parameter, or use method='trf'."
        )
    if sparse is None:
        takes_sparse = method != "lm" and not polish
        sparse = takes_sparse and residuals.is_sparse(count)
    with solving():
        result = optimize.least_squares(
            residuals.plain,
            layout.vector,
            jac=residuals.sparse_jacobian if sparse else residuals.jacobian,
            **({} if sides is None else {"bounds": sides}),
            **options,
        )
    success, message = verdict(name, result)
    found = polished(residuals, result, options) if polish and success else result
    freedom = len(found.fun) - layout.size
    estimated = 2.0 * float(found.cost) / freedom if freedom > 0 else float("inf")
    return cls(
        x=layout.results(found.x),
        fun=residuals.as_returned(out_tree, outs, found.fun),
        success=success,
        message=message,
        scipy=result,
        vector=found.x,
        names=layout.names,
        jacobian=found.jac,
        degrees_of_freedom=freedom,
        variance=estimated if is_scaled else 1.0,
        _layout=layout,
        _name=name,
    )


def _check_lm(name: str, loss: Any, sides: Pair | None, sparse: bool | None) -> None:
    """Raise if method "lm" is given what only the others take."""
    is_bounded = sides is not None and bool(np.any(np.isfinite(sides)))
    refused = {"bounds": is_bounded, "loss but the linear one": loss != "linear", "sparse Jacobian": bool(sparse)}
    for what, is_given in refused.items():
        if is_given:
            raise ArgumentError(f"{name}: method 'lm' takes no {what}; use method='trf' or 'dogbox'.")
