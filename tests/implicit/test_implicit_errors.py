"""What goes wrong with equations, and what is said about it: never a quiet wrong number."""

import math

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import numtape as nt
from numtape.core.context import current
from numtape.errors import (
    ArgumentError,
    ConvergenceError,
    DtypeError,
    FreedError,
    GradientError,
    LinearAlgebraError,
    NotDifferentiableError,
    OperandError,
    OverwrittenError,
    ShapeError,
)
from numtape.interop.scipy import linear_operator

implicit = nt.implicit


def singular(why):
    return (
        f"root: the derivative of the equation by x at the answer is singular: {why}. Other answers lie next to this "
        "one, so it has no derivative by the parameters. Take out what is redundant, or add a term that decides (such "
        "as 1e-6 * x)."
    )


def test_redundant_equations_have_no_derivative():
    def answer(a):
        return implicit.root(
            lambda x: nt.stack([x[0] + x[1] - a, 2.0 * x[0] + 2.0 * x[1] - 2.0 * a]), np.zeros(2)
        ).sum()

    with pytest.raises(LinearAlgebraError) as error:
        nt.grad(answer)(1.0)
    assert str(error.value) == singular("it has no inverse")


def test_an_unknown_that_nothing_depends_on_is_named():
    def answer(a):
        return implicit.root(lambda x: nt.stack([x[0] - a, x[0] * 2.0 - 2.0 * a]), np.zeros(2)).sum()

    with pytest.raises(LinearAlgebraError) as error:
        nt.grad(answer)(1.0)
    assert str(error.value) == singular("no equation depends on element 1 of x")


def test_an_equation_without_unknowns_is_named():
    def answer(a):
        return implicit.root(lambda x: nt.stack([x[0] - a, 0.0 * a]), np.zeros(2)).sum()

    with pytest.raises(LinearAlgebraError) as error:
        nt.grad(answer)(1.0)
    assert str(error.value) == singular("equation 1 does not depend on x")


@pytest.mark.parametrize("function", [lambda x, a: a * (x - 1.0) ** 2, lambda x, a: a * (x * x - 2.0 * x + 1.0)])
def test_a_double_root_has_no_derivative(function):
    assert implicit.root(function, 3.0, 1.0) == pytest.approx(1.0, abs=1e-7)
    with pytest.raises(LinearAlgebraError) as error:
        nt.grad(lambda a: implicit.root(function, 3.0, a))(1.0)
    assert str(error.value) == (
        "root: the derivative of the equation by x at the answer is singular: it is no larger than its change within "
        "the accuracy of the answer, as at a double root, so the answer has no derivative by the parameters. Move away "
        "from the point, or add a term that decides (such as 1e-6 * x)."
    )


def test_a_badly_conditioned_system_is_still_solved():
    matrix = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]])
    right = matrix @ np.array([1.0, 2.0])
    found = nt.jacobian(lambda b: implicit.root(lambda x: matrix @ x - b, np.zeros(2)))(right)
    np.testing.assert_allclose(matrix @ found, np.eye(2), atol=1e-6)


def test_a_flat_valley_has_no_isolated_minimum():
    with pytest.raises(LinearAlgebraError, match=r"^minimize: the derivative of the equation by x at the answer is"):
        nt.grad(lambda a: implicit.minimize(lambda x: (x[0] + x[1] - a) ** 2, np.zeros(2)).sum())(1.0)


def test_a_saddle_is_no_minimum():
    with pytest.raises(ConvergenceError) as error:
        implicit.minimize(lambda x: x[0] ** 2 - x[1] ** 2, np.zeros(2))
    assert "minimize: the answer is no isolated minimum: the curvature along one direction is -" in str(error.value)
    with pytest.raises(ConvergenceError, match=r"an eigenvalue of the second derivative, scaled, is -5\.0e-01\. It"):
        implicit.minimize(lambda x: x[0] ** 2 - x[1] ** 2 + x[1] ** 4, np.ones(2), solver=lambda f, x: 1e-9 * x)


def test_an_equation_without_a_root_is_not_solved():
    with pytest.raises(ConvergenceError) as error:
        implicit.root(lambda x: x * x + 1.0, 1.0)
    assert str(error.value) == (
        "root: Newton's method did not converge in 2 iterations: |F| is stuck at 1.0e+00. Start nearer to the answer, "
        "allow more by max_iterations=, or bring a solver of your own by solver=."
    )
    with pytest.raises(ConvergenceError, match=r"^minimize: Newton's method did not converge in 200 iterations: "):
        implicit.minimize(lambda x: x, 1.0)
    with pytest.raises(ConvergenceError, match=r"^fixed_point: Anderson's iteration did not converge in \d+ iter"):
        implicit.fixed_point(lambda x: x * x + x + 1.0, 1.0)
    with pytest.raises(ConvergenceError, match=r"did not converge in 3 iterations: \|F\| is still"):
        implicit.root(lambda x: nt.exp(x) - 1e6, -1.0, max_iterations=3)


def test_a_start_outside_of_the_domain_is_named():
    with pytest.raises(ConvergenceError) as error:
        implicit.root(nt.log, -1.0)
    assert str(error.value) == "root: log is not finite at the start x0; start where it is defined."


def leaving(how):
    return rf"^root: <lambda> left the tape by {how} at .*, so a part of its derivative would be lost\. Compute with "


def test_a_function_that_leaves_the_tape_is_named_with_its_line():
    with pytest.raises(NotDifferentiableError, match=leaving(r"float\(\)")) as error:
        implicit.root(lambda x: math.sin(x) - 0.5, 0.5)
    assert "test_implicit_errors.py" in str(error.value)
    with pytest.raises(NotDifferentiableError, match=leaving(r"float\(\)")):
        implicit.root(lambda x: x * float(x) - 9.0, 1.0)
    with pytest.raises(NotDifferentiableError, match=leaving(r"numpy\(\)")):
        implicit.root(lambda x: nt.tensor(x.numpy() ** 2) - 9.0, 1.0)
    with pytest.raises(NotDifferentiableError, match=leaving(r"item\(\)")):
        nt.grad(lambda a: implicit.root(lambda x: x * x - a.item(), 1.0))(9.0)


def test_what_is_only_looked_at_is_detached_first():
    seen = []
    implicit.root(lambda x: seen.append(x.detach().item()) or x * x - 9.0, 1.0)
    assert seen[-1] == pytest.approx(3.0)


def test_other_tensors_in_a_second_run_are_an_error():
    b = nt.tensor([9.0], dtype="float64", requires_grad=True)
    answer = implicit.root(lambda x: x * x - b, np.ones(1))
    b = nt.tensor([4.0], dtype="float64", requires_grad=True)
    with pytest.raises(GradientError) as error:
        answer.sum().backward()
    assert str(error.value) == (
        "root: <lambda> used a tensor of shape (1,) when it ran again for its derivative, and did not when it ran "
        "first, so that gradient would be lost. Pass what changes as an argument."
    )


def test_an_overwritten_parameter_and_a_freed_graph_are_errors():
    a = nt.tensor([9.0], dtype="float64", requires_grad=True)
    answer = implicit.root(lambda x: x * x - a, np.ones(1))
    with nt.no_grad():
        a += 1.0
    with pytest.raises(OverwrittenError, match=r"^implicit: the derivative needs the value of 'operands', saved at"):
        answer.sum().backward()
    loss = implicit.root(lambda x: x * x - a, np.ones(1)).sum()
    loss.backward()
    with pytest.raises(FreedError):
        loss.backward()


def test_an_error_of_the_function_itself_passes_and_leaves_no_state():
    class Broken(Exception):
        pass

    def function(x):
        raise Broken

    before = current()
    for call in (implicit.root, implicit.minimize, implicit.fixed_point, implicit.least_squares):
        with pytest.raises(Broken):
            call(function, 1.0)
    assert current() is before


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: implicit.root(3, 1.0), OperandError, "root: wants a function of x first, not int."),
        (
            lambda: implicit.root(lambda x: x, None),
            OperandError,
            "root: x0 is None; it must be a tensor, an array, a number or a tree.",
        ),
        (
            lambda: implicit.root(lambda x: x, "one"),
            OperandError,
            "root: x0 holds str; it must be a tensor, an array, a number or a tree.",
        ),
        (
            lambda: implicit.root(lambda x: x, np.float16(1.0)),
            DtypeError,
            "root: x0 has dtype float16, in which equations cannot be solved accurately; use astype('float32').",
        ),
        (
            lambda: implicit.root(lambda x: x, np.array([1, 2])),
            DtypeError,
            "root: x0 has dtype int64; use astype(float).",
        ),
        (
            lambda: implicit.root(lambda x: nt.stack([x, x]), 1.0),
            ShapeError,
            "root: <lambda> returned shape (2,) for x of shape (); there must be one equation for each unknown.",
        ),
        (
            lambda: implicit.root(lambda x: None, 1.0),
            OperandError,
            "root: <lambda> returned None; it must return a tensor or a tree of them.",
        ),
        (
            lambda: implicit.minimize(lambda x: x * x, np.ones(2)),
            ShapeError,
            "minimize: <lambda> returned shape (2,); only a scalar is least. Use sum().",
        ),
        (
            lambda: implicit.root(lambda x: x, 1.0, linear="lu"),
            ArgumentError,
            "root: linear is 'lu'; it must be one of 'auto', 'dense', 'cg', 'gmres'.",
        ),
        (
            lambda: implicit.root(lambda x: x, 1.0, tol=-1.0),
            ArgumentError,
            "root: tol is -1.0; it must be a positive number, or None.",
        ),
        (
            lambda: implicit.root(lambda x: x, 1.0, max_iterations=0),
            ArgumentError,
            "root: max_iterations is 0; it must be a positive integer.",
        ),
        (
            lambda: implicit.root(lambda x: x, 1.0, solver=3),
            OperandError,
            "root: solver is int; it must be a function of the function to solve and of the start, that returns the "
            "answer.",
        ),
        (
            lambda: implicit.linear_solve(lambda x: x * x, np.ones(3)),
            ArgumentError,
            "linear_solve: <lambda> is not linear in x; use nt.implicit.root for equations, and put constants into b.",
        ),
        (
            lambda: implicit.linear_solve(lambda x: x + 1.0, np.ones(3)),
            ArgumentError,
            "linear_solve: <lambda> is not linear in x; use nt.implicit.root for equations, and put constants into b.",
        ),
        (
            lambda: implicit.linear_solve(np.ones((2, 3)), np.ones(2)),
            ShapeError,
            "linear_solve: A has shape (2, 3); it must be square.",
        ),
        (
            lambda: implicit.linear_solve(2.0, np.ones(2)),
            ShapeError,
            "linear_solve: A has shape (); it must be square.",
        ),
        (
            lambda: implicit.linear_solve(np.eye(2), np.ones(3)),
            ShapeError,
            "linear_solve: A has shape (2, 2) and b has shape (3,); b must have as many rows as A (2).",
        ),
        (
            lambda: implicit.linear_solve(nt.tensor(np.eye(2)), 1.0),
            ShapeError,
            "linear_solve: A has shape (2, 2) and b has shape (); b must have as many rows as A (2).",
        ),
        (
            lambda: implicit.linear_solve(np.eye(2), {"b": np.ones(2)}),
            OperandError,
            "linear_solve: b is a dict; for a matrix, it must be a tensor or an array.",
        ),
        (
            lambda: implicit.linear_solve(None, np.ones(2)),
            OperandError,
            "linear_solve: matrix is a NoneType; it must be a linear function or a square matrix.",
        ),
        (
            lambda: implicit.linear_solve(np.eye(2), np.ones(2), 3.0),
            ArgumentError,
            "linear_solve: matrix is no function, so that it takes no arguments beside b.",
        ),
        (
            lambda: implicit.linear_solve(np.ones((3, 3)), np.ones(3)),
            LinearAlgebraError,
            "linear_solve: the matrix is singular: it has no inverse. Other answers lie next to this one, so it has no "
            "derivative by the parameters. Take out what is redundant, or add a term that decides (such as 1e-6 * x).",
        ),
    ],
)
def test_misuse_is_explained(call, kind, message):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == message


def test_conjugate_gradients_refuse_what_is_not_positive():
    with pytest.raises(LinearAlgebraError, match=r"^root: linear='cg' wants a symmetric positive definite derivative"):
        nt.grad(lambda a: implicit.root(lambda x: a - x, np.zeros(2), linear="cg").sum())(1.0)


def test_products_that_do_not_converge_are_an_error():
    rotation = np.array([[0.0, 1.0], [0.0, 0.0]])
    with pytest.raises(LinearAlgebraError) as error:
        implicit.linear_solve(lambda x: rotation @ x, np.ones(2), linear="gmres")
    assert str(error.value) == (
        "linear_solve: the linear system of the derivative was not solved: gmres left a relative residual of 7.1e-01 "
        "after 3 iterations for 2 unknowns. The system is singular or badly conditioned: scale the unknowns alike, add "
        "a term that decides what is left open, or use linear='dense'."
    )


def test_nothing_to_solve_is_solved():
    assert implicit.root(lambda x: x, np.zeros(0)).shape == (0,)
    assert implicit.minimize(lambda x: x.sum(), np.zeros(0)).shape == (0,)
    assert nt.grad(lambda a: implicit.root(lambda x: a * x, np.zeros(0)).sum())(1.0) == 0.0


def test_an_unknown_that_nothing_depends_on_is_found_among_many():
    def lowest(a, n):
        return implicit.minimize(lambda v: ((v[1:] - a) ** 2).sum(), np.zeros(n)).sum()

    messages = []
    for n in (10, 600):
        with pytest.raises(LinearAlgebraError) as error:
            nt.grad(lowest)(1.0, n)
        messages.append(str(error.value))
    assert messages[0] == messages[1] == singular("equation 0 does not depend on x").replace("root", "minimize")


@pytest.mark.parametrize("options", [{"linear": "gmres"}, {"linear": "cg"}, {"is_positive": True}])
def test_many_redundant_equations_are_found_although_the_right_side_fits(options):
    right = np.sin(np.arange(600.0))
    with pytest.raises(LinearAlgebraError, match=r"^linear_solve: the matrix is singular: "):
        implicit.linear_solve(lambda x: x - x.mean(), right - right.mean(), **options)


def test_many_redundant_equations_have_no_derivative():
    right = np.tile([1.0, -1.0], 300)
    answer = nt.grad(lambda a: (implicit.root(lambda x: x - x.mean() - a * right, right) * right).sum())
    with pytest.raises(LinearAlgebraError, match=r"^root: the derivative of the equation by x at the answer is sing"):
        answer(1.0)


def test_a_direction_that_is_left_open_among_very_many_unknowns_is_named():
    right = np.sin(np.arange(3000.0))
    with pytest.raises(LinearAlgebraError) as error:
        implicit.linear_solve(lambda x: nt.concatenate([x[:7], 0.0 * x[7:8], x[8:]]), right * (right != right[7]))
    assert str(error.value) == (
        "linear_solve: the matrix is singular: it is zero along a direction, most of it along element 7 of x. Other "
        "answers lie next to this one, so it has no derivative by the parameters. Take out what is redundant, or add a "
        "term that decides (such as 1e-6 * x)."
    )


@pytest.mark.parametrize("linear", ["cg", "gmres"])
def test_many_unknowns_of_very_different_sizes_are_still_solved(linear):
    sizes = 10.0 ** np.linspace(0.0, 4.0, 600)
    slope = nt.grad(lambda a: implicit.linear_solve(lambda x: sizes * x, a * np.ones(600), linear=linear).sum())(1.0)
    np.testing.assert_allclose(slope, (1.0 / sizes).sum(), rtol=1e-6)


def test_a_cycle_that_restarted_iterations_cannot_undo_is_regular():
    # GMRES does not get anywhere with a random right-hand side here, so a matrix is made to tell.
    found = implicit.linear_solve(lambda x: nt.concatenate([x[1:], x[:1]]), np.ones(600))
    np.testing.assert_allclose(found, np.ones(600), rtol=1e-12)


def many_double_roots(a):
    return implicit.root(lambda x: (x - 1.0) ** 2 - (a - 1.0), np.full(600, 3.0)).sum()


def one_double_root_among_many(a):
    def equations(x):
        return nt.concatenate([x[:7] - a, (x[7:8] - 1.0) ** 2 - (a - 1.0), x[8:] ** 2 - a - x[:-8]])

    return implicit.root(equations, np.full(600, 3.0)).sum()


def many_flat_minima(a):
    return implicit.minimize(lambda x: ((x - a) ** 4).sum() - (x * (a - 1.0)).sum(), np.full(600, 3.0)).sum()


def a_double_root_by_products(a):
    return implicit.root(lambda x: (x - 1.0) ** 2 - (a - 1.0), 3.0, linear="gmres")


@pytest.mark.parametrize(
    "function", [many_double_roots, one_double_root_among_many, many_flat_minima, a_double_root_by_products]
)
def test_products_find_double_roots_too(function):
    with pytest.raises(LinearAlgebraError, match=r"is singular: it is no larger than its change within the accuracy"):
        nt.grad(function)(1.0)


def test_a_regular_root_among_many_unknowns_keeps_its_derivative():
    slope = (one_double_root_among_many(1.5 + 1e-6) - one_double_root_among_many(1.5 - 1e-6)) / 2e-6
    assert nt.grad(one_double_root_among_many)(1.5) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize(
    ("function", "start"),
    [
        (lambda x: x**3, 1.0),
        (lambda x: (x - 1.0) ** 3, 3.0),
        (lambda x: -(x**4).sum(), np.zeros(2)),
        (lambda x: 5.0 - x[0] ** 4 + x[1] ** 2, np.array([0.0, 1.0])),
        (lambda x: x[0] ** 3 - 3.0 * x[0] * x[1] ** 2, np.array([1.0, 0.0])),
    ],
)
def test_where_curvature_vanishes_values_tell_that_there_is_no_minimum(function, start):
    with pytest.raises(ConvergenceError, match=r"^minimize: the answer is no isolated minimum: the curvature vanishes"):
        implicit.minimize(function, start)


def test_a_saddle_that_is_reached_in_one_step_is_no_minimum():
    with pytest.raises(ConvergenceError, match=r"no isolated minimum: the curvature along one direction is -"):
        implicit.minimize(lambda x: x[0] ** 2 - x[1] ** 2, np.array([1.0, 0.0]))
    with pytest.raises(ConvergenceError, match=r"no isolated minimum: the curvature along one direction is -"):
        implicit.least_squares(lambda x: 1.0 - x**2, 0.0)


def test_what_a_solver_returns_is_looked_at_as_well_where_it_is_level():
    with pytest.raises(ConvergenceError) as error:
        implicit.minimize(lambda x: -(x**4).sum(), np.zeros(2), solver=lambda f, x: x)
    assert str(error.value) == (
        "minimize: the answer is no isolated minimum: the curvature vanishes along a direction, in which values fall "
        "by 2.7e-08. It is a saddle, a maximum, or one of many minima in a row. Start elsewhere, or add a term that "
        "decides (such as 1e-6 * (x * x).sum())."
    )


def test_a_minimum_without_curvature_is_one():
    assert implicit.minimize(lambda x: x**4, 1.0) == 0.0
    assert implicit.minimize(lambda x: (x - 1.0) ** 4, 3.0) == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(implicit.minimize(lambda x: (x[0] + x[1] - 1.0) ** 2, np.zeros(2)), [0.5, 0.5])


def test_a_matrix_that_is_not_positive_is_named_as_such():
    matrix = -np.eye(2)
    with pytest.raises(LinearAlgebraError) as error:
        implicit.linear_solve(matrix, np.ones(2), is_positive=True)
    assert str(error.value) == (
        "linear_solve: is_positive=True, but the matrix is not positive definite: an eigenvalue of the matrix, scaled, "
        "is -2.5e-01. Leave is_positive out, or change the sign of both sides."
    )
    with pytest.raises(LinearAlgebraError, match="the matrix is not positive definite: the curvature along one direc"):
        implicit.linear_solve(matrix, np.ones(2), is_positive=True, linear="cg")


def test_sparse_matrices_and_operators_of_scipy_are_refused_with_what_to_pass():
    for matrix, what in (
        (scipy.sparse.eye_array(2), "a sparse matrix"),
        (scipy.sparse.linalg.aslinearoperator(np.eye(2)), "a linear operator of SciPy's"),
    ):
        with pytest.raises(OperandError) as error:
            implicit.linear_solve(matrix, np.ones(2))
        assert str(error.value) == (
            f"linear_solve: matrix is {what}, whose products are not recorded; pass "
            "numtape.interop.scipy.linear_operator of it, or use numtape.interop.scipy.spsolve."
        )
        np.testing.assert_allclose(implicit.linear_solve(linear_operator(matrix), np.ones(2)), 1.0)


def test_linear_systems_may_be_lists():
    found = implicit.linear_solve([[2.0, 0], [0, 4.0]], [1.0, 1.0])
    np.testing.assert_allclose(found, [0.5, 0.25])
    np.testing.assert_allclose(nt.grad(lambda b: implicit.linear_solve([[2, 0], [0, 4]], b).sum())(np.ones(2)), found)
