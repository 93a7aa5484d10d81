"""Solvers that users bring: what they are given, and the check of what they return."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.value import Value, wrap
from ..errors import ArgumentError, ConvergenceError, LinearAlgebraError, OperandError
from ..outputs import title
from ..tensors import Tensor
from .capturing import Constants, alone
from .equations import Equation, Space
from .linearization import Linearization
from .minimizers import check_minimum
from .problem import Solve
from .solvers import Args, newton, newton_step, norm, typical_sizes
from .systems import System

#: How far from a minimum Newton's steps take over: solvers that compare values stop at half of the digits or fewer.
_NEAR = 1e-3


class Foreign:
    """Solves an equation by a solver of the user's, which gets the function of x alone and the start."""

    def __init__(self, equation: Equation, solver: Callable[..., Any]) -> None:
        if not callable(solver):
            raise OperandError(
                f"{equation.name}: solver is {type(solver).__name__}; it must be a function of the function to solve "
                "and of the start, that returns the answer."
            )
        self.equation = equation
        self.solver = solver
        self.name = f"the solver {title(solver)}"
        #: What the solver said when it gave up.
        self.complaint = ""

    def __call__(self, start: NDArray, args: Args) -> NDArray:
        """Return the answer as a vector; it is not checked."""
        space = self.equation.space
        begin = space.split(start)
        captured = Linearization(self.equation, begin, args, captured=None).captured
        with alone(grad=False), Constants(captured):
            given = space.as_given([part.copy() for part in begin])
            found = self.solver(lambda x: _called(self.equation, x, args), given)
        found, says = _opened(found, tree.is_leaf(space.form))
        self.complaint = says and f" It says: {says:.200}"
        if space.eps > np.finfo(np.float64).eps:
            self.complaint += (
                " x0 is float32, in which the tiny steps of a solver that takes differences are lost: give it "
                "derivatives, as jac=nt.jacobian(f), or longer steps."
            )
        return _as_vector(f"{self.equation.name}: {self.name}", space, found)


def _opened(found: Any, is_single: bool) -> tuple[Any, str]:
    """Return the answer within what SciPy's solvers return, and what they say if they failed."""
    if hasattr(found, "x") and hasattr(found, "success"):
        return found.x, "" if found.success else str(getattr(found, "message", "it failed"))
    if hasattr(found, "root") and hasattr(found, "converged"):  # Of root_scalar.
        return found.root, "" if found.converged else str(found.flag)
    # Of fsolve, leastsq and brentq: the answer, and then more about it.
    if is_single and isinstance(found, tuple) and found and isinstance(found[0], np.ndarray | np.generic | float):
        well = (1,) if len(found) == 4 else (1, 2, 3, 4)  # The numbers by which fsolve and leastsq say so.
        has_converged = any(type(part) is int and part in well for part in found[1:])
        return found[0], "" if has_converged else next((part for part in found[1:] if isinstance(part, str)), "")
    return found, ""


def _called(equation: Equation, x: Any, args: Args) -> Any:
    """Call the function: tensors in, tensors out, so that a solver may differentiate; arrays in, arrays out."""
    space = equation.space
    leaves = [x] if len(space.shapes) == 1 and tree.is_leaf(x) else tree.leaves(x)
    if len(leaves) != len(space.shapes):
        raise ArgumentError(
            f"{equation.name}: the solver called the function with {len(leaves)} parts; x0 has {len(space.shapes)}."
        )
    if not tree.is_leaf(x) and not tree.is_leaf(space.form):
        leaves = _in_form(equation, x)
    # Solvers compute in float64, and functions of float32 parameters want x as they are.
    values = [_of_dtype(leaf, dtype) for leaf, dtype in zip(leaves, space.dtypes, strict=True)]
    # Many solvers know vectors only.
    shaped = [
        value if value.shape == shape or value.array.size != math.prod(shape) else value.reshape(shape)
        for value, shape in zip(values, space.shapes, strict=True)
    ]
    out = equation.call(shaped, args)
    if any(isinstance(leaf, Value) for leaf in leaves):
        return out
    return tree.map(lambda leaf: _plain(leaf, leaves), out)


def _in_form(equation: Equation, x: Any) -> list[Any]:
    """Return the leaves of an x from a solver in the order of x0; dicts go by their keys."""
    try:
        return tree.leaves_like(equation.space.form, x)
    except ArgumentError as error:
        raise ArgumentError(
            f"{equation.name}: the solver called the function with another form than that of x0; {error}"
        ) from error


def _of_dtype(leaf: Any, dtype: Any) -> Any:
    """Return a part of x as a tensor of a dtype."""
    value: Any = leaf if isinstance(leaf, Value) else wrap(Tensor, np.asarray(leaf, dtype))
    return value if value.dtype == dtype else value.astype(dtype)


def _plain(leaf: Any, given: list[Any]) -> Any:
    """Return a result as a number or an array; in the shape in which x came, if there is only one part of it."""
    array = leaf.array if isinstance(leaf, Value) else np.asarray(leaf)
    if not array.ndim:
        return array.item()
    is_same = len(given) == 1 and array.size == np.size(given[0])
    return array.reshape(np.shape(given[0])) if is_same else array


def _array(leaf: Any) -> Any:
    return leaf.array if isinstance(leaf, Value) else leaf


def _as_vector(what: str, space: Space, found: Any) -> NDArray:
    if found is None:
        raise OperandError(f"{what} returned None; it must return the answer in the form of x0.")
    is_list = type(found) is list and tree.is_leaf(space.form)
    is_single = is_list or (len(space.shapes) == 1 and not isinstance(found, tuple | list | dict))
    try:
        leaves = [found] if is_single else tree.leaves_like(space.form, found)
        arrays = [np.asarray(tree.map(_array, leaf), np.float64) for leaf in leaves]
        parts = [array.reshape(shape) for array, shape in zip(arrays, space.shapes, strict=True)]
    except (ArgumentError, ValueError, TypeError) as error:
        raise OperandError(
            f"{what} returned {type(found).__name__}; it must return the answer in the form of x0, or an object with "
            f"x and success as SciPy's solvers do ({error})."
        ) from error
    return space.join(parts)


def verified(equation: Equation, solve: Solve, by: str, linear: str, tol: float) -> Solve:
    """Return a solver that raises unless a Newton step from its answer is small: that is how far it is off."""

    def checked(start: NDArray, args: Args) -> NDArray:
        x = solve(start, args)
        with np.errstate(all="ignore"):
            point = Linearization(equation, equation.space.split(x), args, captured=None)
            try:
                _verify(point, x, start, args, by, linear, tol, getattr(solve, "complaint", ""))
            except ConvergenceError:
                nearby = _polished(equation, x, start, args, linear, tol)
                if nearby is None:
                    raise
                x, point = nearby
            if equation.is_minimum:
                check_minimum(point, start, args)
        return x

    return checked if tol < np.inf else solve


def _polished(
    equation: Equation, x: NDArray, start: NDArray, args: Args, linear: str, tol: float
) -> tuple[NDArray, Linearization] | None:
    """Return the minimum to which Newton's steps lead from an answer, and F there; None unless it is right there."""
    if not equation.is_minimum:
        return None
    try:
        found = newton(equation, x, args, linear, 20)
        if (np.abs(found - x) > _NEAR * _sizes(found, start)).any():
            return None
        point = Linearization(equation, equation.space.split(found), args, captured=None)
        _verify(point, found, start, args, "", linear, tol, "")
    except (ConvergenceError, LinearAlgebraError):
        return None
    return found, point


def _sizes(x: NDArray, start: NDArray) -> NDArray:
    """Return the sizes of elements; zeros have none of their own, and a small part of that of the others does."""
    return np.maximum(np.abs(x), 1e-3 * typical_sizes(x, start))


def _verify(
    point: Linearization, x: NDArray, start: NDArray, args: Args, by: str, linear: str, tol: float, complaint: str
) -> None:
    equation, space = point.equation, point.space
    residual = point.residual
    if not np.isfinite(residual).all() or not np.isfinite(x).all():
        raise ConvergenceError(f"{equation.name}: {by} returned a point where the equation is not finite.{complaint}")
    if not residual.any():
        return
    step, is_exact = newton_step(System(point, linear, equation.is_minimum), residual, tolerance=0.1)
    sizes = _sizes(x, start)
    # Where the answer is zero altogether, digits are those of the start.
    floor = space.eps**0.7 * np.where(start != 0.0, np.abs(start), norm(start) or 1.0)
    if is_exact and (np.abs(step) <= np.maximum(tol * sizes, floor)).all():
        return
    # What rounding leaves cannot be made smaller by a step.
    is_noise = not norm(equation.at(x - step, args)) < 0.5 * norm(residual)
    if is_noise and (norm(step) if is_exact else norm(residual)) <= 1e3 * space.eps:
        return
    off = norm(step / np.where(sizes > 0.0, sizes, 1.0))
    raise ConvergenceError(
        f"{equation.name}: {by} did not converge: |F| is {norm(residual):.1e} at its answer, and a Newton step would "
        f"still move x by {off:.1e} of its size (at most tol={tol:.0e} is accepted). Let it iterate further, or accept "
        f"less by tol=; derivatives are off by about as much.{complaint}"
    )
