"""`root`: SciPy's solvers of systems of equations on functions of trees, with exact Jacobians."""

from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from .functions import Residuals, solving
from .loading import scipy_part
from .options import check_method
from .results import Solution, verdict
from .vectors import Layout

#: Methods that take a Jacobian; the others build one of their own from values.
_WITH_JACOBIAN = frozenset(("hybr", "lm"))
_WITHOUT_JACOBIAN = frozenset(
    ("broyden1", "broyden2", "anderson", "linearmixing", "diagbroyden", "excitingmixing", "krylov", "df-sane")
)


def root(
    function: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str = "hybr",
    tol: float | None = None,
    options: dict[str, Any] | None = None,
) -> Solution:
    """Find where a function of a tree is zero with `scipy.optimize.root`, which gets exact Jacobians.

    Args:
        function: takes a tree of tensors, and `args`, and returns a tensor or a tree of tensors, with as many elements
            as `x0` has.
        x0: where to start: tensors, arrays, numbers or a tree of them. A list or tuple of numbers is an array.
        args: further arguments of `function`, passed on as they are.
        method: as SciPy's; "hybr" and "lm" take the Jacobian, the others none.
        tol: as SciPy's.
        options: as SciPy's.

    Returns:
        A `Solution`: `x` in the structure of `x0`, `fun` in that of what `function` returns, `success`, `message`, and
        SciPy's result as `scipy`.

    Warns:
        SolverWarning: if the solver did not converge; `success` is then False.

    Example:
        >>> from numtape.interop.scipy import root
        >>> found = root(lambda p: (p["x"] + p["y"] - 3.0, p["x"] * p["y"] - 2.0), {"x": 0.5, "y": 5.0})
        >>> round(found.x["x"], 6), round(found.x["y"], 6)
        (1.0, 2.0)
    """
    name = "root"
    check_method(name, method, _WITH_JACOBIAN | _WITHOUT_JACOBIAN)
    optimize = scipy_part(name, "optimize")
    layout = Layout(name, "x0", x0)
    equations = Residuals(name, function, layout, args if isinstance(args, tuple) else (args,))
    out_tree, outs = equations.start()
    count = sum(out.array.size for out in outs)
    if count != layout.size:
        raise ShapeError(
            f"{name}: {equations.__name__} returned {count} numbers for {layout.size} unknowns; there must be as many. "
            "Use least_squares for more equations than unknowns."
        )
    takes_jacobian = isinstance(method, str) and method.lower() in _WITH_JACOBIAN
    with solving():
        result = optimize.root(
            equations.plain,
            layout.vector,
            method=method,
            jac=equations.jacobian if takes_jacobian else None,
            tol=tol,
            options=options,
        )
    success, message = verdict(name, result)
    fun = equations.as_returned(out_tree, outs, result.fun)
    return Solution(layout.results(result.x), fun, success, message, result, result.x, layout.names)
