"""Answers of solvers as differentiable functions of what the equations depend on: the public functions."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.value import Value
from ..counts import is_count
from ..errors import ArgumentError, OperandError, ShapeError
from .capturing import watch_captured
from .equations import Equation, Form, Leaves, Space, gradient, normal, standstill, zero
from .foreign import Foreign, verified
from .implicit_op import answer
from .linearization import Linearization
from .minimizers import levenberg_marquardt, newton_cg
from .problem import Problem, Solve, linear_solver
from .solvers import Args, Solver, anderson, newton, norm
from .systems import check_method

_TOLERANCE = 1e-5


def root(
    function: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    linear: str = "auto",
    tol: float | None = None,
    max_iterations: int = 100,
) -> Any:
    """Return an x with ``function(x, *args) = 0``, differentiable by the arguments and by tensors that it captures.

    The solver runs without a tape. Derivatives come from the implicit function theorem, in both modes and of any
    order; they cost linear systems with the derivative of the equation at the answer, and no memory of the iterations.

    Args:
        function: takes x and the arguments, and returns as many equations as unknowns, in the form of x.
        x0: where the solver starts, a tensor, an array, a number or a tree; the answer has its form. A list of numbers
            is a vector.
        *args: arguments of the function: tensors, trees and anything else.
        solver: finds the answer: takes a function of x alone and the start, both as arrays, and returns the answer, or
            what SciPy's solvers return. By default Newton's method.
        linear: how linear systems are solved: "dense", "cg", "gmres" or "auto", by the number of unknowns.
        tol: how far from the answer a solver may stop, in parts of the size of each element of x; by default 1e-5.
        max_iterations: of the default solver.

    Raises:
        ConvergenceError: if the solver did not reach an answer.
        LinearAlgebraError: if the answer has no derivative, since the equation's derivative by x is singular.

    Example:
        >>> nt.grad(lambda a: nt.implicit.root(lambda x, a: x * x - a, 1.0, a))(9.0)
        0.16666666666666666
    """
    return _answer("root", function, x0, args, zero, newton, solver, linear, tol, max_iterations)


def fixed_point(
    function: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    linear: str = "auto",
    tol: float | None = None,
    max_iterations: int = 1000,
) -> Any:
    """Return an x with ``x = function(x, *args)``, differentiable by what the function depends on.

    Arguments are as those of `root`. The default solver iterates the function, with Anderson's acceleration.

    Example:
        >>> a = nt.tensor(0.5, dtype="float64", requires_grad=True)
        >>> x = nt.implicit.fixed_point(lambda x: nt.cos(a * x), 1.0)
        >>> x.backward()
        >>> bool(abs(a.grad + x * nt.sin(a * x) / (1 + a * nt.sin(a * x))) < 1e-12)
        True
    """
    return _answer("fixed_point", function, x0, args, standstill, anderson, solver, linear, tol, max_iterations)


def minimize(
    function: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    linear: str = "auto",
    tol: float | None = None,
    max_iterations: int = 200,
) -> Any:
    """Return an x where the scalar ``function(x, *args)`` is least nearby, differentiable by what it depends on.

    Arguments are as those of `root`. The default solver is Newton's method by products with the second derivative.

    Example:
        >>> data = np.array([1.0, 2.0, 6.0])
        >>> nt.jacobian(lambda d: nt.implicit.minimize(lambda m: ((d - m) ** 2).sum(), 0.0))(data)
        array([0.33333333, 0.33333333, 0.33333333])
    """
    return _answer("minimize", function, x0, args, gradient, newton_cg, solver, linear, tol, max_iterations, True)


def least_squares(
    function: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    linear: str = "auto",
    tol: float | None = None,
    max_iterations: int = 500,
) -> Any:
    """Return an x where the sum of squares of ``function(x, *args)`` is least, differentiable by what it depends on.

    Arguments are as those of `root`; the function returns residuals of any shape, or a tree of them. The default solver
    is that of Levenberg and Marquardt.

    Example:
        >>> t = np.array([0.0, 1.0, 5.0])
        >>> def fitted(y):
        ...     return nt.implicit.least_squares(lambda p: p[0] + p[1] * t - y, np.zeros(2))
        >>> nt.jacobian(fitted)(np.array([1.0, 2.0, 4.0])).round(6)
        array([[ 0.619048,  0.47619 , -0.095238],
               [-0.142857, -0.071429,  0.214286]])
    """
    form, default = normal, levenberg_marquardt
    return _answer("least_squares", function, x0, args, form, default, solver, linear, tol, max_iterations, True)


def linear_solve(matrix: Any, b: Any, *args: Any, is_positive: bool = False, linear: str = "auto") -> Any:
    """Return an x with ``matrix(x, *args) = b``, for a linear function or a matrix; differentiable by all of it.

    Args:
        matrix: a linear function of x and the arguments that returns the form of `b`, or a square matrix.
        b: the right-hand side, a tensor, an array or a tree; the answer has its form. A list of numbers is a vector.
        *args: arguments of the function.
        is_positive: whether the matrix is symmetric and positive definite; then conjugate gradients do.
        linear: "dense", "cg", "gmres" or "auto", by the number of unknowns.

    Raises:
        LinearAlgebraError: if the system is singular.
        ArgumentError: if the function is not linear.

    Example:
        >>> nt.implicit.linear_solve(lambda x, k: k * x + x.sum(), np.array([4.0, 5.0]), 2.0)
        array([0.875, 1.375])
    """
    name = "linear_solve"
    check_method(name, linear)
    if hasattr(matrix, "tocsr") or hasattr(matrix, "matvec"):
        what = "a sparse matrix" if hasattr(matrix, "tocsr") else "a linear operator of SciPy's"
        raise OperandError(
            f"{name}: matrix is {what}, whose products are not recorded; pass numtape.interop.scipy.linear_operator of "
            "it, or use numtape.interop.scipy.spsolve."
        )
    if not callable(matrix):
        matrix, b = (np.asarray(x, np.float64) if isinstance(x, list | tuple) else x for x in (matrix, b))
        _check_matrix(name, matrix, b, args)
        args, function = (matrix,), _times
    else:
        function = matrix
    space = Space(name, "b", b)
    equation = Equation(name, function, space, _minus_right_side, is_positive, is_linear=True)
    equation.matrix, equation.is_given = "the matrix", True
    if function is _times:
        equation.title = f"{name}: the product with the matrix A"
    watch_captured(function)
    solve = _checked_linear(equation, linear_solver(equation, linear))
    return space.as_given(answer(Problem(equation, solve, (space.form, *args), linear)))


def _check_matrix(name: str, matrix: Any, b: Any, args: Args) -> None:
    """Raise unless a matrix is square and has a row for each row of the right-hand side."""
    if args:
        raise ArgumentError(f"{name}: matrix is no function, so that it takes no arguments beside b.")
    if not hasattr(matrix, "__matmul__") and not isinstance(matrix, float | int):
        raise OperandError(
            f"{name}: matrix is a {type(matrix).__name__}; it must be a linear function or a square matrix."
        )
    if not isinstance(matrix, Value | np.ndarray | np.generic | float | int):
        return
    if not tree.is_leaf(b):
        raise OperandError(f"{name}: b is a {type(b).__name__}; for a matrix, it must be a tensor or an array.")
    shape, right = (x.shape if isinstance(x, Value) else np.shape(x) for x in (matrix, b))
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"{name}: A has shape {shape}; it must be square.")
    if not right or right[-2:][0] != shape[-1]:
        raise ShapeError(
            f"{name}: A has shape {shape} and b has shape {right}; b must have as many rows as A ({shape[-1]})."
        )


def _times(x: Any, matrix: Any) -> Any:
    """Multiply by a matrix."""
    return matrix @ x


def _minus_right_side(equation: Equation, x: Leaves, args: Args, is_recorded: bool) -> Leaves:
    right, *rest = args
    outs = equation.like_unknowns(equation.call(x, tuple(rest)))
    return [a - b for a, b in zip(outs, equation.as_outputs(right), strict=True)]


def _checked_linear(equation: Equation, solve: Solve) -> Solve:
    """Return a solver that raises if an equation is not linear after all."""

    def checked(start: NDArray, args: Args) -> NDArray:
        space = equation.space
        point = Linearization(equation, space.split(np.zeros_like(start)), args, captured=None)
        # Two multiples of a vector, so that neither a constant nor a power escapes.
        probe = np.random.default_rng(0).normal(size=len(start))
        rise = point.times(probe)
        bends = [equation.at(k * probe, args) - point.residual - k * rise for k in (1.0, -3.0)]
        right = space.join([part.array for part in equation.as_outputs(args[0])])
        bound = math.sqrt(space.eps) * (norm(rise) + norm(right))
        if max(norm(bends[0]), norm(bends[1]), norm(point.residual + right)) > bound:
            raise ArgumentError(
                f"{equation.title} is not linear in x; use nt.implicit.root for equations, and put constants into b."
            )
        return solve(start, args)

    return checked


def _answer(
    name: str,
    function: Callable[..., Any],
    x0: Any,
    args: Args,
    form: Form,
    default: Solver,
    solver: Callable[..., Any] | None,
    linear: str,
    tol: float | None,
    max_iterations: int,
    is_minimum: bool = False,
) -> Any:
    """Solve an equation of some form, and return its answer with one record behind it."""
    if not callable(function):
        raise OperandError(f"{name}: wants a function of x first, not {type(function).__name__}.")
    check_method(name, linear)
    _check_numbers(name, tol, max_iterations)
    space = Space(name, "x0", x0)
    equation = Equation(name, function, space, form, is_minimum)
    allowed = max(_TOLERANCE, math.sqrt(space.eps)) if tol is None else tol
    if solver is not None:
        theirs = Foreign(equation, solver)
        solve = verified(equation, theirs, theirs.name, linear, allowed)
    else:
        solve = _default(equation, default, linear, max_iterations)
        if default in (anderson, levenberg_marquardt):
            solve = verified(equation, solve, "the iteration", linear, allowed)
    watch_captured(function)
    return space.as_given(answer(Problem(equation, solve, args, linear)))


def _default(equation: Equation, solver: Solver, linear: str, max_iterations: int) -> Solve:
    return lambda start, args: solver(equation, start, args, linear, max_iterations)


def _check_numbers(name: str, tol: Any, max_iterations: Any) -> None:
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, float | int) or not tol > 0.0):
        raise ArgumentError(f"{name}: tol is {tol!r}; it must be a positive number, or None.")
    if not is_count(max_iterations):
        raise ArgumentError(f"{name}: max_iterations is {max_iterations!r}; it must be a positive integer.")
