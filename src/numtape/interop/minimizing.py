"""`minimize`: SciPy's minimisers on functions of trees, with the derivatives that each method takes."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import ArgumentError
from ..jacobians import hessian
from ..outputs import title
from .bounds import as_bounds
from .functions import Objective, Residuals, solving
from .loading import scipy_part
from .options import check_method, check_options, near
from .results import Solution, verdict
from .vectors import Layout, flat

#: Methods that take no derivative, those that take products with the Hessian, and those that take all of it.
_WITHOUT_GRADIENT = frozenset(("nelder-mead", "powell", "cobyla", "cobyqa"))
_WITH_PRODUCTS = frozenset(("newton-cg", "trust-ncg", "trust-krylov", "trust-constr"))
_WITH_HESSIAN = frozenset(("dogleg", "trust-exact"))
_WITH_GRADIENT = frozenset(("cg", "bfgs", "l-bfgs-b", "tnc", "slsqp"))
_METHODS = _WITHOUT_GRADIENT | _WITH_PRODUCTS | _WITH_HESSIAN | _WITH_GRADIENT
#: Methods that take bounds, and those that take constraints as well; SciPy drops what the others cannot take.
_WITH_CONSTRAINTS = frozenset(("cobyla", "cobyqa", "slsqp", "trust-constr"))
_WITH_BOUNDS = _WITH_CONSTRAINTS | {"l-bfgs-b", "nelder-mead", "powell", "tnc"}
_TYPES = ("eq", "ineq")
_ARGUMENTS = ("args", "method", "bounds", "constraints", "tol", "callback", "options")


def minimize(
    function: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: dict[str, Any] | None = None,
    **others: Any,
) -> Solution:
    """Minimise a scalar function of a tree with `scipy.optimize.minimize`, which gets exact derivatives.

    Methods that use a gradient get it by one reverse sweep; "Newton-CG", "trust-ncg", "trust-krylov" and "trust-constr"
    get products with the Hessian, "dogleg" and "trust-exact" the Hessian.

    Args:
        function: takes a tree of tensors, and `args`, and returns a scalar.
        x0: where to start: tensors, arrays, numbers or a tree of them. A list or tuple of numbers is an array.
        args: further arguments of `function`, passed on as they are.
        method: as SciPy's; by default one that takes the bounds and constraints that are given.
        bounds: a tuple (lower, upper) of trees like `x0`; a number stands for all elements, None for no bound. Or, as
            SciPy's, `Bounds` or a pair for each element.
        constraints: as SciPy's, with functions of trees; their Jacobians are not asked for.
        tol: as SciPy's.
        callback: is called with the point, as a tree, after each iteration; raise StopIteration to stop. As SciPy's,
            one whose argument is called `intermediate_result` gets a result, of which x is a tree; and "trust-constr"
            passes such a result second to one of two arguments.
        options: as SciPy's.
        **others: none; those of SciPy's that hold derivatives are refused, with a word on what to do.

    Returns:
        A `Solution`: `x` in the structure of `x0`, `fun`, `success`, `message`, and SciPy's result as `scipy`.

    Warns:
        SolverWarning: if the solver did not converge; `success` is then False.

    Example:
        >>> from numtape.interop.scipy import minimize
        >>> found = minimize(lambda p: (p["a"] - 1.0) ** 2 + (p["b"] + 2.0) ** 2, {"a": 0.0, "b": 0.0})
        >>> round(found.x["a"], 6), round(found.x["b"], 6)
        (1.0, -2.0)
    """
    name = "minimize"
    check_options(name, others, _ARGUMENTS)
    check_method(name, method, _METHODS)
    optimize = scipy_part(name, "optimize")
    layout = Layout(name, "x0", x0)
    objective = Objective(name, function, layout, _as_args(args))
    sides = as_bounds(name, layout, bounds, takes_pairs=True)
    kind = method.lower() if isinstance(method, str) else method
    if not callable(kind):  # A method of the user's own takes what it takes.
        _check_types(name, _listed(constraints))
        _check_limits(name, method, sides is not None, _listed(constraints))
    objective.start(differentiates=kind not in _WITHOUT_GRADIENT)
    limits = _as_constraints(optimize, layout, constraints)
    with solving():
        result = optimize.minimize(
            objective.value if kind in _WITHOUT_GRADIENT else objective.value_and_gradient,
            layout.vector,
            method=method,
            **_derivatives(objective, kind),
            bounds=None if sides is None else optimize.Bounds(*sides),
            constraints=limits,
            tol=tol,
            callback=None if callback is None else _as_callback(layout, callback),
            options=options,
        )
    success, message = verdict(name, result)
    return Solution(layout.results(result.x), float(result.fun), success, message, result, result.x, layout.names)


def _as_args(args: Any) -> tuple[Any, ...]:
    """Return further arguments as a tuple; a single one may come without."""
    return args if isinstance(args, tuple) else (args,)


def _listed(constraints: Any) -> Any:
    """Return constraints as a list or a tuple; a single one may come without."""
    if isinstance(constraints, list | tuple):
        return constraints
    return [constraints] if constraints else []


def _check_limits(name: str, method: str | None, has_bounds: bool, constraints: Any) -> None:
    """Raise if a method cannot take the bounds or constraints that are given; None is one that can."""
    needs = [("constraints", any(constraints), _WITH_CONSTRAINTS), ("bounds", has_bounds, _WITH_BOUNDS)]
    for what, is_given, takers in needs:
        if is_given and method is not None and method.lower() not in takers:
            raise ArgumentError(f"{name}: method {method!r} takes no {what}; {', '.join(sorted(takers))} do.")


def _check_types(name: str, constraints: Any) -> None:
    """Raise if a constraint that is a dict has a type that SciPy does not know; case does not count."""
    for constraint in constraints:
        given = constraint.get("type") if isinstance(constraint, dict) else "eq"
        if str(given).lower() not in _TYPES:
            raise ArgumentError(f"{name}: a constraint has the type {given!r}; {near(str(given), _TYPES)}.")


def _derivatives(objective: Objective, kind: Any) -> dict[str, Any]:
    """Return what a method takes of derivatives."""
    if kind in _WITHOUT_GRADIENT:
        return {}
    if kind in _WITH_HESSIAN:
        return {"jac": True, "hess": objective.hessian}
    # A method of the user's own may ask for products.
    return {"jac": True, "hessp": objective.hessian_product if kind in _WITH_PRODUCTS or callable(kind) else None}


def _as_callback(layout: Layout, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback of vectors, of the form that SciPy tells by its arguments."""

    def shown(result: Any) -> Any:
        return type(result)({**result, "x": layout.results(result["x"])})

    parameters = list(inspect.signature(callback).parameters.values())
    if [p.name for p in parameters] == ["intermediate_result"]:

        def with_result(intermediate_result: Any) -> Any:
            if isinstance(intermediate_result, np.ndarray):  # Some methods know points alone.
                return callback(layout.results(intermediate_result))
            return callback(intermediate_result=shown(intermediate_result))

        return with_result
    places = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    takes_state = places > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)

    def called(vector: NDArray, *state: Any) -> Any:
        return callback(layout.results(vector), *(map(shown, state) if takes_state else ()))

    return called


def _as_constraints(optimize: Any, layout: Layout, constraints: Any) -> Any:
    """Return constraints of trees as constraints of vectors, with their derivatives."""
    return [_as_constraint(optimize, layout, constraint) for constraint in _listed(constraints)]


def _as_constraint(optimize: Any, layout: Layout, constraint: Any) -> Any:
    if isinstance(constraint, dict) and callable(constraint.get("fun")):
        values = Residuals("minimize", constraint["fun"], layout, _as_args(constraint.get("args", ())))
        values.check_alone()
        return {"type": constraint.get("type"), "fun": values.plain, "jac": values.jacobian}
    if isinstance(constraint, optimize.NonlinearConstraint):
        values = Residuals("minimize", constraint.fun, layout, ())
        values.check_alone()
        return optimize.NonlinearConstraint(
            values.plain,
            constraint.lb,
            constraint.ub,
            jac=values.jacobian,
            hess=lambda vector, weights: _weighted_hessian(values, vector, weights),
            keep_feasible=constraint.keep_feasible,
        )
    return constraint


def _weighted_hessian(values: Residuals, vector: NDArray, weights: NDArray) -> NDArray:
    """Return the sum of the Hessians of several values, each with its weight."""

    def weighted(x: Any) -> Any:
        return (flat(values(x)) * weights).sum()

    weighted.__name__ = title(values.function)
    with solving():
        return np.asarray(hessian(weighted)(values.point(vector)), np.float64)
