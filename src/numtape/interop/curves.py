"""`curve_fit`: parameters of a model from observations, with exact Jacobians, covariance and names."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.apply import is_tracked
from ..core.context import current
from ..core.value import Value
from ..errors import ArgumentError, LeavesTapeError, NonFiniteError, OperandError, ShapeError
from ..ops import solve
from ..outputs import title
from .bounds import sides_of
from .functions import Residuals
from .results import CurveFit
from .squares import fit
from .vectors import Layout, flat, is_numbers

#: What SciPy's `curve_fit` takes, as it is there by default and always here.
_USUAL = {"check_finite": True, "nan_policy": None, "full_output": False}


def curve_fit(
    function: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    *,
    sigma: Any = None,
    absolute_sigma: bool = False,
    bounds: Any = None,
    method: str | None = None,
    polish: bool = False,
    **options: Any,
) -> CurveFit:
    """Fit a model to observations by least squares, as `scipy.optimize.curve_fit` does, with exact Jacobians.

    Args:
        function: the model. With `p0` a dict, a dataclass or another tree with names it is called as
            ``function(xdata, parameters)``; with a list, a tuple or an array, as ``function(xdata, *parameters)``.
        xdata: passed on to `function`: as it is, but for a range, a list or a tuple of numbers, which become an array.
        ydata: what was observed: a tensor or an array of the shape that `function` returns, or a tree of them.
        p0: where to start. If not given, as many numbers as `function` has arguments after the first: ones, and where
            there are bounds the middle between them, or 1 away from a single one.
        sigma: the standard deviations of `ydata`, or the covariance matrix of its elements.
        absolute_sigma: whether `sigma` is meant as it is; by default only the proportions count, and the scale is
            estimated from the residuals.
        bounds: a pair (lower, upper) of trees like `p0`; a number stands for all elements, None for no bound.
        method: "lm" (by default without bounds), "trf" (with bounds) or "dogbox".
        polish: whether to go on from SciPy's answer with Newton's steps, which use exact second derivatives, for all
            digits that rounding leaves; without bounds and with the linear loss.
        **options: the others of `scipy.optimize.least_squares`: `loss`, `ftol`, `xtol`, `gtol`, `max_nfev`, ...; and
            `maxfev`, as SciPy's `curve_fit` calls the last.

    Returns:
        A `CurveFit`: the parameters `x` in the structure of `p0`, their `covariance`, `errors` and `names`, the
        residuals `fun`, `success`, `message`, and SciPy's result as `scipy`. ``popt, pcov = curve_fit(...)`` unpacks
        parameters and covariance.

    Warns:
        SolverWarning: if the solver did not converge, or the data do not determine the parameters.

    Example:
        >>> from numtape.interop.scipy import curve_fit
        >>> x = np.linspace(0.0, 4.0, 9)
        >>> fit = curve_fit(lambda x, a, b: a * np.exp(-b * x), x, 2.5 * np.exp(-1.3 * x))
        >>> np.round(fit.x, 6), fit.names
        (array([2.5, 1.3]), ['a', 'b'])
    """
    name = "curve_fit"
    if not callable(function):
        raise OperandError(f"{name}: wants a function, not {type(function).__name__}.")
    p0 = _start(name, function, bounds) if p0 is None else p0
    layout = Layout(name, "p0", p0)
    xdata, ydata = _as_array(xdata), _as_array(ydata)
    is_spread = isinstance(p0, list | np.ndarray | Value) or type(p0) is tuple
    observed = _observed(ydata)
    weigh = _weights(sigma, observed)

    def residuals(parameters: Any) -> Any:
        out = function(xdata, *parameters) if is_spread else function(xdata, parameters)
        return weigh(flat(_like_observed(name, function, out, ydata)) - observed)

    residuals.__name__ = title(function)
    chosen = method or ("lm" if bounds is None else "trf")
    if is_spread:
        layout.names = _names(function, layout)
    options = _renamed(options)
    problem = Residuals(name, residuals, layout, ())
    answer: CurveFit = fit(CurveFit, problem, bounds, {"method": chosen, **options}, polish, not absolute_sigma)
    return answer


def _as_array(given: Any) -> Any:
    """Return a range, or numbers in lists and tuples, as an array, and anything else as it is."""
    return np.asarray(given, np.float64) if isinstance(given, range) or is_numbers(given) else given


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of SciPy's `curve_fit` as those of its `least_squares`, without those that ask for the usual."""
    kept = {key: value for key, value in options.items() if key not in _USUAL or value is not _USUAL[key]}
    if "maxfev" in kept and "max_nfev" in kept:
        raise ArgumentError("curve_fit: maxfev and max_nfev are the same; give one of them.")
    most = kept.pop("maxfev", 0)
    return {**kept, "max_nfev": most} if most else kept  # To SciPy, 0 says that the method decides.


def _start(name: str, function: Callable[..., Any], bounds: Any) -> NDArray:
    """Return a start for a model that is called as SciPy calls it, within bounds, where SciPy starts."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if not parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ArgumentError(
            f"curve_fit: {title(function)} does not say how many parameters it has; give p0, where to start."
        )
    ones = np.ones(sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters))
    sides = sides_of(name, Layout(name, "p0", ones), bounds)
    if sides is None:
        return ones
    low, high = sides
    with np.errstate(invalid="ignore"):
        beside = np.where(np.isfinite(low), low + 1.0, np.where(np.isfinite(high), high - 1.0, ones))
        return np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (low + high), beside)


def _names(function: Callable[..., Any], layout: Layout) -> list[str]:
    """Return the names of parameters that are passed one by one: those of the model's own, if they are as many."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    return names if len(names) == layout.size else layout.names


def _observed(ydata: Any) -> NDArray:
    given = tree.leaves(ydata)
    if current().grad and any(isinstance(x, Value) and is_tracked(x) for x in given):
        raise LeavesTapeError(
            "curve_fit: ydata is tracked, and its gradient would be lost. Use nt.implicit.least_squares to "
            "differentiate the answer by it, or pass its detach(), or call curve_fit in nt.no_grad()."
        )
    leaves = [x.array if isinstance(x, Value) else np.asarray(x) for x in given]
    values = np.concatenate([np.asarray(x, np.float64).ravel() for x in leaves])
    if not np.all(np.isfinite(values)):
        bad = int(np.argmin(np.isfinite(values)))
        raise NonFiniteError(f"curve_fit: observation {bad} of ydata is {values[bad]}; leave such observations out.")
    return values


def _like_observed(name: str, function: Callable[..., Any], out: Any, ydata: Any) -> Any:
    """Return what the model returned in the order of what was observed; dicts go by their keys.

    Raise unless there is one for one: broadcasting would fit something else.
    """
    if not tree.is_leaf(out) and not tree.is_leaf(ydata):
        try:
            out = tree.leaves_like(ydata, out)
        except ArgumentError as error:
            raise ShapeError(f"{name}: {title(function)} returned another form than that of ydata; {error}") from error
    shapes = [np.shape(x) for x in tree.leaves(out)], [np.shape(x) for x in tree.leaves(ydata)]
    if shapes[0] != shapes[1]:
        got, wanted = (each[0] if len(each) == 1 else each for each in shapes)
        raise ShapeError(f"{name}: {title(function)} returned shape {got} and ydata has {wanted}; they must be equal.")
    return out


def _weights(sigma: Any, observed: NDArray) -> Callable[[Any], Any]:
    """Return how residuals are made to have the variance 1."""
    if sigma is None:
        return lambda residuals: residuals
    if isinstance(sigma, Value) and is_tracked(sigma):
        raise LeavesTapeError("curve_fit: sigma is tracked, and its gradient would be lost; pass its detach().")
    array = np.asarray(sigma, np.float64)
    count = observed.size
    if array.ndim == 2 and array.shape == (count, count) and count > 1:
        factor = _factor(array)
        return lambda residuals: solve(factor, residuals)
    if array.size not in (1, count):
        raise ShapeError(
            f"curve_fit: sigma has shape {array.shape} for {count} observations; it must be a number, a standard "
            f"deviation for each, or their covariance of shape {(count, count)}."
        )
    if not np.all(array > 0):
        raise ArgumentError("curve_fit: sigma has an element that is not positive; standard deviations are.")
    return lambda residuals: residuals / array.ravel()


def _factor(covariance: NDArray) -> NDArray:
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise ArgumentError("curve_fit: sigma is a matrix, but not a positive definite one.") from error
