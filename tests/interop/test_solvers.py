"""SciPy's solvers on functions of trees: right derivatives, results as trees, and clear words when it goes wrong."""

import collections
import dataclasses
import threading
import warnings
from unittest import mock

import numpy as np
import pytest
import scipy.optimize

import numtape as nt
from numtape.errors import (
    ArgumentError,
    DtypeError,
    LeavesTapeError,
    MissingExtraError,
    NonFiniteError,
    NotConnectedError,
    OperandError,
    ShapeError,
)
from numtape.interop.functions import Objective
from numtape.interop.scipy import SolverWarning, curve_fit, least_squares, minimize, root
from numtape.interop.vectors import Layout

UNTRUSTED = (
    "its answer is not to be trusted. Try another start or method, more iterations, or another scale of the parameters."
)


def rosenbrock(v):
    return (100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1.0 - v[:-1]) ** 2).sum()


def bowl(p):
    return ((p["a"] - nt.tensor(np.array([1.0, 2.0]))) ** 2).sum() + (p["b"] + 3.0) ** 2


# Results and structures.


def test_minimize_takes_and_returns_trees():
    found = minimize(bowl, {"a": np.zeros(2), "b": 0.0})
    np.testing.assert_allclose(found.x["a"], [1.0, 2.0], atol=1e-6)
    assert isinstance(found.x["b"], float)
    assert found.x["b"] == pytest.approx(-3.0, abs=1e-6)
    assert found.fun == pytest.approx(0.0, abs=1e-10)
    assert found.success
    assert found.names == ["a[0]", "a[1]", "b"]
    assert isinstance(found.scipy, scipy.optimize.OptimizeResult)
    assert found.scipy.nfev >= 1
    np.testing.assert_array_equal(found.vector, found.scipy.x)


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Line:
    slope: object
    start: object


@pytest.mark.parametrize(
    ("start", "names", "read"),
    [
        (Point(0.0, 0.0), ["x", "y"], lambda p: (p.x, p.y)),
        (Line(0.0, np.zeros(1)), ["slope", "start[0]"], lambda p: (p.slope, p.start[0])),
        ([{"u": 0.0}, np.zeros((1, 1))], ["[0].u", "[1][0, 0]"], lambda p: (p[0]["u"], p[1][0, 0])),
        ((0.0, 0.0), ["x[0]", "x[1]"], lambda p: (p[0], p[1])),
        (np.zeros(2), ["x[0]", "x[1]"], lambda p: (p[0], p[1])),
        (np.zeros(2, int), ["x[0]", "x[1]"], lambda p: (p[0], p[1])),
    ],
)
def test_every_kind_of_tree_has_names_and_comes_back_as_it_was(start, names, read):
    found = minimize(lambda p: (read(p)[0] - 1.0) ** 2 + (read(p)[1] + 2.0) ** 2, start)
    assert found.names == names
    np.testing.assert_allclose(found.vector, [1.0, -2.0], atol=1e-6)
    np.testing.assert_allclose([float(x) for x in read(found.x)], [1.0, -2.0], atol=1e-6)
    assert type(found.x) is (np.ndarray if type(start) is tuple else type(start))


def test_tensors_come_back_as_untracked_tensors_of_their_dtype():
    found = minimize(lambda x: ((x - 1.0) ** 2).sum(), nt.tensor([0.0, 3.0], requires_grad=True))
    assert isinstance(found.x, nt.Tensor)
    assert found.x.dtype == nt.float32
    assert not found.x.requires_grad
    np.testing.assert_allclose(found.x.numpy(), [1.0, 1.0], atol=1e-5)


def test_a_module_is_a_tree_of_its_parameters():
    model = nt.nn.Linear(2, 1)
    x, y = nt.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), nt.tensor([[3.0], [4.0], [6.0]])
    found = minimize(lambda m: ((m(x) - y) ** 2).sum(), model, method="L-BFGS-B", options={"ftol": 1e-12})
    assert found.names == ["weight[0, 0]", "weight[0, 1]", "bias[0]"]
    np.testing.assert_allclose(found.x(x).numpy(), y.numpy(), atol=1e-3)


def test_further_arguments_are_passed_on_as_they_are():
    seen = []

    def distance(x, target, options):
        seen.append((target, options))
        return ((x - target) ** 2).sum()

    target, options = np.array([1.0, 2.0]), {"k": 1}
    found = minimize(distance, np.zeros(2), (target, options))
    np.testing.assert_allclose(found.x, target, atol=1e-6)
    assert all(each[0] is target and each[1] is options for each in seen)
    np.testing.assert_allclose(minimize(lambda x, t: ((x - t) ** 2).sum(), np.zeros(2), target).x, target, atol=1e-6)


def test_the_answer_prints_as_a_table():
    assert str(minimize(lambda p: (p["a"] - 1.0) ** 2, {"a": 0.0})).splitlines() == [
        "converged: Optimization terminated successfully.",
        "  a  1",
    ]


# Derivatives.


@pytest.mark.parametrize(
    "method",
    ["CG", "BFGS", "Newton-CG", "L-BFGS-B", "TNC", "SLSQP", "trust-constr", "trust-ncg", "trust-exact", "trust-krylov"],
)
def test_methods_with_derivatives_find_rosenbrocks_minimum(method):
    # Methods of first order stop early by default.
    tolerance = {"tol": 1e-10} if method in ("CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP") else {}
    with warnings.catch_warnings():
        # Some stop at rounding before they meet such a tolerance.
        warnings.simplefilter("ignore", SolverWarning)
        found = minimize(rosenbrock, [1.3, 0.7, 0.8, 1.9], method=method, **tolerance)
    np.testing.assert_allclose(found.x, np.ones(4), atol=1e-4)


@pytest.mark.parametrize("method", ["Nelder-Mead", "Powell", "COBYQA"])
def test_methods_without_derivatives_may_leave_the_tape(method):
    found = minimize(lambda x: float(np.sum((np.asarray(x) - 1.0) ** 2)), np.zeros(2), method=method)
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-3)


def test_dogleg_gets_the_hessian():
    found = minimize(lambda x: ((x - 1.0) ** 2).sum() + ((x - 1.0) ** 4).sum(), np.zeros(2), method="dogleg")
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-6)


def test_a_method_of_the_users_own_gets_gradient_and_products():
    def newton(fun, x0, args=(), jac=None, hessp=None, **options):
        columns = np.stack([hessp(x0, unit) for unit in np.eye(len(x0))], axis=1)
        x = x0 - np.linalg.solve(columns, jac(x0))
        return scipy.optimize.OptimizeResult(x=x, fun=fun(x), success=True, message="one step")

    found = minimize(lambda x: (x * np.array([1.0, 2.0]) * x).sum() - x.sum(), np.zeros(2), method=newton)
    np.testing.assert_allclose(found.x, [0.5, 0.25], rtol=1e-14)


@pytest.mark.parametrize("success", [True, False])
def test_a_method_of_the_users_own_may_say_nothing(success):
    def stay(fun, x0, bounds=None, **options):
        assert bounds is not None
        return scipy.optimize.OptimizeResult(x=x0, fun=fun(x0), success=success)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = minimize(lambda x: x**2, 1.0, method=stay, bounds=(0, 2))
    assert found.message == ""
    assert str(found).splitlines()[0] == ("converged" if success else "NOT CONVERGED")
    assert [str(each.message).split(";")[0] for each in caught] == (
        [] if success else ["minimize: the solver did not converge"]
    )


def test_the_gradient_is_computed_once_at_each_point():
    calls = []

    def counted(x):
        calls.append(x.detach().numpy().copy())
        return rosenbrock(x)

    found = minimize(counted, np.array([1.3, 0.7, 0.8]), method="BFGS")
    # One look at the start before SciPy begins; its own first call there is answered from memory.
    assert len(calls) == found.scipy.nfev + 1


def test_hessian_products_equal_hvp_and_record_the_gradient_once_at_a_point():
    calls = []

    def counted(x):
        calls.append(1)
        return rosenbrock(x)

    x = np.array([1.3, 0.7, 0.8])
    objective = Objective("minimize", counted, Layout("minimize", "x0", x), ())
    rng = np.random.default_rng(0)
    for direction in rng.normal(size=(4, 3)):
        expected = nt.hvp(rosenbrock, x, direction)
        np.testing.assert_allclose(objective.hessian_product(x, direction), expected, rtol=1e-12)
    assert len(calls) == 1
    np.testing.assert_allclose(objective.hessian(x), nt.hessian(rosenbrock)(x), rtol=1e-12)


def test_callbacks_get_trees_and_may_stop_the_search():
    seen = []

    def look(point):
        seen.append(point)
        if len(seen) == 2:
            raise StopIteration

    with pytest.warns(SolverWarning, match="did not converge"):
        minimize(lambda p: rosenbrock(p["v"]), {"v": np.array([1.3, 0.7])}, method="BFGS", callback=look)
    assert len(seen) == 2
    assert seen[0]["v"].shape == (2,)


@pytest.mark.parametrize("method", ["BFGS", "trust-constr", "TNC"])
def test_callbacks_may_ask_for_the_result_so_far_as_those_of_scipy(method):
    points, results, pairs = [], [], []

    def search(callback):
        return minimize(lambda p: ((p["v"] - 1.0) ** 2).sum(), {"v": np.zeros(2)}, method=method, callback=callback)

    search(points.append)
    search(lambda intermediate_result: results.append(intermediate_result))
    assert len(points) == len(results) > 0
    if method == "TNC":  # Knows points alone, as in SciPy.
        assert results[-1]["v"].shape == (2,)
        return
    assert results[-1].x["v"].shape == (2,)
    assert results[-1].fun < 1e-6
    if method == "trust-constr":
        search(lambda point, state: pairs.append((point, state)))
        assert pairs[-1][0]["v"].shape == pairs[-1][1].x["v"].shape == (2,)
        assert pairs[-1][1].nit > 0


# Bounds and constraints.


@pytest.mark.parametrize(
    "bounds",
    [
        ({"a": 2.0, "b": None}, None),
        ({"a": np.array([2.0, 2.0]), "b": -10.0}, {"a": None, "b": 10.0}),
        ({"a": nt.tensor([2.0, 2.0]), "b": None}, 100.0),
        scipy.optimize.Bounds([2.0, 2.0, -np.inf], np.inf),
    ],
)
def test_bounds_are_trees_with_numbers_for_whole_parts(bounds):
    if hasattr(bounds, "lb"):
        bounds = scipy.optimize.Bounds(np.array(bounds.lb), np.full(3, np.inf))
    found = minimize(bowl, {"a": np.full(2, 5.0), "b": 0.0}, bounds=bounds)
    np.testing.assert_allclose(found.vector, [2.0, 2.0, -3.0], atol=1e-6)


def test_scipys_pairs_are_bounds_too():
    found = minimize(lambda x: (x**2).sum(), np.full(3, 3.0), bounds=[(2.0, None), (0.0, 5.0), (None, None)])
    np.testing.assert_allclose(found.x, [2.0, 0.0, 0.0], atol=1e-6)


def test_constraints_are_functions_of_trees():
    on_line = {"type": "eq", "fun": lambda p: p["x"] + p["y"] - 1.0}
    above = {"type": "ineq", "fun": lambda p, least: p["y"] - least, "args": (0.75,)}
    start = {"x": 0.0, "y": 1.0}
    found = minimize(lambda p: p["x"] ** 2 + p["y"] ** 2, start, constraints=[on_line, above])
    np.testing.assert_allclose(found.vector, [0.25, 0.75], atol=1e-6)


def test_nonlinear_constraints_get_jacobian_and_hessian():
    circle = scipy.optimize.NonlinearConstraint(lambda p: p["x"] ** 2 + p["y"] ** 2, 1.0, 1.0)
    found = minimize(lambda p: p["x"] + p["y"], {"x": 0.9, "y": 0.1}, method="trust-constr", constraints=circle)
    np.testing.assert_allclose(found.vector, [-np.sqrt(0.5)] * 2, atol=1e-5)


# Least squares, roots and curves.


def test_least_squares_takes_trees_of_residuals():
    def residuals(p):
        return {"first": p["a"] - 1.0, "rest": (10.0 * (p["b"] - p["a"] ** 2), nt.stack([p["a"] - 1.0, p["b"] - 1.0]))}

    found = least_squares(residuals, {"a": -1.0, "b": 2.0})
    np.testing.assert_allclose(found.vector, [1.0, 1.0], atol=1e-8)
    assert found.fun["rest"][1].shape == (2,)
    assert found.degrees_of_freedom == 2
    assert found.jacobian.shape == (4, 2)


def test_least_squares_keeps_bounds_and_robust_losses():
    x = np.linspace(0.0, 1.0, 20)
    y = 2.0 * x
    y[3] = 50.0
    found = least_squares(lambda p: p["k"] * x - y, {"k": 1.0}, bounds=(0.0, 3.0), loss="soft_l1")
    assert found.x["k"] == pytest.approx(2.0, abs=0.5)


def test_covariance_of_a_linear_fit_is_the_textbooks():
    rng = np.random.default_rng(1)
    matrix, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    found = least_squares(lambda b: matrix @ b - y, np.zeros(3))
    expected, sums, *_ = np.linalg.lstsq(matrix, y, rcond=None)
    covariance = np.linalg.inv(matrix.T @ matrix) * sums[0] / 27
    np.testing.assert_allclose(found.x, expected, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8)
    np.testing.assert_allclose(found.errors, np.sqrt(np.diagonal(covariance)), rtol=1e-8)
    np.testing.assert_allclose(np.diagonal(found.correlation), np.ones(3), rtol=1e-12)


def decay(x, a, b, c):
    return a * np.exp(-b * x) + c


def slopes_of_decay(x, a, b, c):
    return np.stack([np.exp(-b * x), -a * x * np.exp(-b * x), np.ones_like(x)], axis=1)


def observations():
    rng = np.random.default_rng(2)
    x = np.linspace(0.0, 4.0, 50)
    return x, decay(x, 2.5, 1.3, 0.5) + 0.1 * rng.normal(size=50)


@pytest.mark.parametrize("absolute_sigma", [False, True])
@pytest.mark.parametrize("kind", ["none", "number", "deviations", "covariance"])
def test_curve_fit_gives_what_scipys_gives(kind, absolute_sigma):
    x, y = observations()
    deviations = 0.05 + 0.02 * x
    correlated = np.diag(deviations**2) + 1e-4
    sigma = {"none": None, "number": 0.1, "deviations": deviations, "covariance": correlated}[kind]
    theirs = np.full(50, 0.1) if kind == "number" else sigma
    same = {"absolute_sigma": absolute_sigma, "ftol": 1e-15, "xtol": 1e-15}
    popt, pcov = curve_fit(decay, x, y, sigma=sigma, **same)
    expected = scipy.optimize.curve_fit(decay, x, y, sigma=theirs, jac=slopes_of_decay, **same)
    np.testing.assert_allclose(popt, expected[0], rtol=1e-7)
    np.testing.assert_allclose(pcov, expected[1], rtol=1e-6)


def test_curve_fit_names_parameters_after_the_model():
    x, y = observations()
    found = curve_fit(decay, x, y)
    assert found.names == ["a", "b", "c"]
    assert str(found).splitlines()[1].startswith("  a  2.")
    assert " +- 0.0" in str(found)


def test_curve_fit_takes_a_model_of_a_tree():
    x, y = observations()
    found = curve_fit(lambda x, p: decay(x, *p["ab"], p["c"]), x, y, {"ab": np.ones(2), "c": 1.0})
    np.testing.assert_allclose(found.vector, curve_fit(decay, x, y).x, rtol=1e-6)
    assert found.names == ["ab[0]", "ab[1]", "c"]
    assert found.errors["ab"].shape == (2,)


def test_curve_fit_with_bounds():
    x, y = observations()
    found = curve_fit(decay, x, y, [1.0, 1.0, 0.0], bounds=([0.0, 0.0, -1.0], [2.0, 5.0, 5.0]))
    assert found.x[0] == pytest.approx(2.0, abs=1e-6)


def test_polishing_reaches_the_last_digits():
    x, y = observations()
    rough = curve_fit(decay, x, y, ftol=1e-3)
    fine = curve_fit(decay, x, y, ftol=1e-3, polish=True)
    exact = curve_fit(decay, x, y, ftol=1e-15, xtol=1e-15, gtol=1e-15, polish=True)
    assert np.max(np.abs(rough.x - exact.x)) > 1e-9
    np.testing.assert_allclose(fine.x, exact.x, rtol=1e-13)
    np.testing.assert_array_equal(fine.scipy.x, rough.scipy.x)
    gradient = nt.grad(lambda p: ((decay(x, *p) - y) ** 2).sum())(fine.x)
    assert np.max(np.abs(gradient)) < 1e-12


@pytest.mark.parametrize("method", ["hybr", "lm", "broyden1", "krylov"])
def test_root_solves_systems_of_trees(method):
    found = root(lambda p: (p["x"] + p["y"] - 3.0, p["x"] - 2.0 * p["y"]), {"x": 1.5, "y": 1.5}, method=method)
    np.testing.assert_allclose(found.vector, [2.0, 1.0], atol=1e-5)
    assert isinstance(found.fun, tuple)


# What goes wrong.


def raises(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_without_scipy_one_line_says_what_to_install():
    with mock.patch.dict("sys.modules", {"scipy": None, "scipy.optimize": None}):
        raises(
            MissingExtraError,
            "minimize: needs SciPy; pip install numtape[scipy]",
            lambda: minimize(rosenbrock, np.zeros(3)),
        )


def test_what_is_no_function_is_refused():
    raises(OperandError, "minimize: wants a function, not int.", lambda: minimize(3, np.zeros(2)))
    raises(OperandError, "curve_fit: wants a function, not str.", lambda: curve_fit("f", np.zeros(2), np.zeros(2)))


def test_an_empty_start_is_refused():
    raises(OperandError, "minimize: x0 has no elements; give at least one number.", lambda: minimize(bowl, {}))


def test_text_and_complex_numbers_are_no_start():
    message = "root: x0.a is of type complex (complex128); it must be real numbers."
    raises(DtypeError, message, lambda: root(lambda p: p["a"], {"a": 1j}))


def test_half_precision_is_refused_as_a_start():
    raises(
        DtypeError,
        "minimize: x0.a has dtype float16, in whose rounding a solver's steps are lost; use astype(np.float64).",
        lambda: minimize(bowl, {"a": np.zeros(2, np.float16), "b": 0.0}),
    )


def test_a_function_that_returns_several_numbers_is_refused():
    raises(
        ShapeError,
        "minimize: doubled returned shape (2,); it must return one number. Use sum(), or least_squares for residuals.",
        lambda: minimize(doubled, np.zeros(2)),
    )


def doubled(x):
    return 2.0 * x


def test_a_function_that_leaves_the_tape_by_a_number_is_refused():
    with pytest.raises(NotConnectedError, match=r"^minimize: <lambda> returned a constant, and a tracked tensor left"):
        minimize(lambda x: x[0].item() ** 2, np.ones(2))


def test_a_function_that_leaves_the_tape_by_an_array_is_refused():
    def lost(x):
        return nt.tensor(x.numpy()).sum()

    raises(
        NotConnectedError,
        "minimize: what lost returned does not depend on x0 through recorded ops, so its derivative would be zero "
        "everywhere. Compute with nt or np functions of its argument, without item(), numpy() or detach().",
        lambda: minimize(lost, np.ones(2)),
    )


def test_a_value_that_is_not_finite_at_the_start_is_refused():
    def logarithm(x):
        return nt.log(x).sum()

    with np.errstate(invalid="ignore"):
        raises(
            NonFiniteError,
            "minimize: logarithm is nan at x0; choose a point where it is finite. nt.explain_nan of what it returns "
            "tells where that begins.",
            lambda: minimize(logarithm, -np.ones(2)),
        )


def test_a_gradient_that_is_not_finite_at_the_start_is_refused():
    def roots(p):
        return nt.sqrt(p["b"]).sum() + p["a"]

    raises(
        NonFiniteError,
        "minimize: the gradient of roots is inf by b[1] at x0; choose a point where it is finite. nt.explain_nan of "
        "what it returns tells where that begins.",
        lambda: minimize(roots, {"a": 1.0, "b": np.array([1.0, 0.0])}),
    )


def test_a_solver_that_does_not_converge_warns_and_says_so():
    with pytest.warns(SolverWarning) as caught:
        found = minimize(rosenbrock, np.array([1.3, 0.7]), method="BFGS", options={"maxiter": 1})
    assert not found.success
    assert str(found).startswith("NOT CONVERGED: Maximum number of iterations has been exceeded.")
    assert str(caught[0].message) == (
        "minimize: the solver did not converge (Maximum number of iterations has been exceeded.); " + UNTRUSTED
    )
    assert caught[0].filename == __file__


def test_a_root_that_does_not_exist_warns():
    with pytest.warns(SolverWarning, match=r"^root: the solver did not converge \("):
        assert not root(lambda x: x * x + 1.0, np.array([1.0])).success


def test_a_fit_that_did_not_converge_has_no_covariance():
    x, y = observations()
    with pytest.warns(SolverWarning, match=r"^curve_fit: the solver did not converge"):
        found = curve_fit(decay, x, y, max_nfev=1)
    assert np.isnan(found.covariance).all()


def test_parameters_that_the_data_do_not_determine_are_named():
    x, y = observations()
    found = curve_fit(lambda x, a, b, c: (a + b) * x + c, x, y)
    with pytest.warns(SolverWarning) as caught:
        covariance = found.covariance
    assert np.isinf(covariance).all()
    assert str(caught[0].message) == (
        "curve_fit: the data do not determine a, b, so the covariance is infinite. Fix or leave out a parameter, or "
        "add data."
    )


def test_as_many_data_as_parameters_do_not_tell_their_variance():
    found = least_squares(lambda p: p - 1.0, np.zeros(2))
    np.testing.assert_allclose(found.x, [1.0, 1.0])
    with pytest.warns(SolverWarning, match="have 0 degrees of freedom, too few to tell their variance"):
        assert np.isinf(found.errors).all()


@pytest.mark.parametrize("solver", [minimize, least_squares, root])
def test_a_tracked_tensor_in_the_function_is_not_lost_quietly(solver):
    w = nt.tensor(np.array([3.0, 4.0]), requires_grad=True)

    def function(x):
        return ((x - w) ** 2).sum() if solver is minimize else x - w

    name = solver.__name__
    raises(
        LeavesTapeError,
        f"{name}: function depends on a tracked tensor besides x0, whose gradient would be lost. Use "
        f"nt.implicit.{name} to differentiate the answer by it, or pass its detach(), or call {name} in nt.no_grad().",
        lambda: solver(function, np.zeros(2)),
    )
    with nt.no_grad():
        np.testing.assert_allclose(solver(function, np.zeros(2)).x, [3.0, 4.0], atol=1e-6)


def test_inside_of_a_gradient_the_answer_is_not_taken_for_a_constant():
    def inner(p):
        return nt.tensor(minimize(lambda x: ((x - p) ** 2).sum(), np.zeros(2)).x).sum()

    with pytest.raises(LeavesTapeError, match=r"^minimize: <lambda> depends on a tracked tensor besides x0"):
        nt.grad(inner)(np.ones(2))


def test_a_tape_around_a_solver_records_nothing_of_it():
    center = nt.tensor(np.array([3.0, 4.0]))
    with nt.Tape() as tape:
        constant = center.detach()
        found = minimize(lambda x: ((x - constant) ** 2).sum(), np.zeros(2))
    assert len(tape) == 0
    np.testing.assert_allclose(found.x, [3.0, 4.0], atol=1e-6)


def test_an_error_midway_passes_and_leaves_no_trace():
    calls = []

    def breaks(x):
        calls.append(1)
        if len(calls) == 4:
            raise KeyError("midway")
        return rosenbrock(x)

    with pytest.raises(KeyError, match="midway"):
        minimize(breaks, np.array([1.3, 0.7]))
    assert nt.is_grad_enabled()


def test_two_threads_solve_at_once():
    answers = {}

    def work(target):
        answers[target] = minimize(lambda x: ((x - target) ** 2).sum(), np.zeros(2)).x

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.allclose(x, target, atol=1e-6) for target, x in answers.items())
    assert len(answers) == 4


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (
            ((0.0, 1.0), (0.0, 1.0)),
            "minimize: bounds is ((0.0, 1.0), (0.0, 1.0)), which may be two pairs (low, high) or a lower and an upper "
            "vector; write scipy.optimize.Bounds(lower, upper).",
        ),
        ((2.0, None), "minimize: x0 has x[0] = 0, which is not within its bounds [2, inf]."),
        ((1.0, -1.0), "minimize: the bounds of x[0] are [1, -1], in which there is no number."),
        (
            5.0,
            "minimize: bounds is 5.0; it must be (lower, upper), two trees like x0, or "
            "scipy.optimize.Bounds(lower, upper).",
        ),
        (
            ({"a": 0.0}, None),
            "minimize: the bounds have another structure than x0; tree: a dict stands where a leaf belongs.",
        ),
        (
            (np.zeros((2, 2)), None),
            "minimize: a bound has shape (2, 2) and its part of x0 (2,); they must be equal, or the bound a number.",
        ),
    ],
)
def test_bounds_that_cannot_be_meant_are_refused(bounds, message):
    raises(ArgumentError, message, lambda: minimize(lambda x: (x**2).sum(), np.zeros(2), bounds=bounds))


def test_a_system_with_too_few_equations_is_refused():
    raises(
        ShapeError,
        "root: <lambda> returned 1 numbers for 2 unknowns; there must be as many. Use least_squares for more equations "
        "than unknowns.",
        lambda: root(lambda x: x[:1], np.zeros(2)),
    )


def test_a_model_of_another_shape_than_the_data_is_refused():
    raises(
        ShapeError,
        "curve_fit: <lambda> returned shape (3,) and ydata has (3, 1); they must be equal.",
        lambda: curve_fit(lambda x, a: a * x, np.arange(3.0), np.ones((3, 1))),
    )


def test_observations_that_are_not_finite_are_named():
    raises(
        NonFiniteError,
        "curve_fit: observation 1 of ydata is nan; leave such observations out.",
        lambda: curve_fit(lambda x, a: a * x, np.arange(3.0), np.array([0.0, np.nan, 1.0])),
    )


def test_a_model_that_does_not_say_its_parameters_needs_a_start():
    raises(
        ArgumentError,
        "curve_fit: <lambda> does not say how many parameters it has; give p0, where to start.",
        lambda: curve_fit(lambda x, *p: p[0] * x, np.arange(3.0), np.arange(3.0)),
    )


@pytest.mark.parametrize(
    ("error", "sigma", "message"),
    [
        (
            ShapeError,
            np.ones(2),
            "curve_fit: sigma has shape (2,) for 3 observations; it must be a number, a standard deviation for each, "
            "or their covariance of shape (3, 3).",
        ),
        (
            ArgumentError,
            np.array([1.0, 0.0, 1.0]),
            "curve_fit: sigma has an element that is not positive; standard deviations are.",
        ),
        (ArgumentError, -np.eye(3), "curve_fit: sigma is a matrix, but not a positive definite one."),
    ],
)
def test_sigma_is_checked(error, sigma, message):
    raises(error, message, lambda: curve_fit(lambda x, a: a * x, np.arange(3.0), np.ones(3), sigma=sigma))


def test_polishing_is_for_plain_least_squares():
    raises(
        ArgumentError,
        "least_squares: polish is for problems without bounds; leave one of the two out.",
        lambda: least_squares(lambda p: p - 1.0, np.zeros(2), bounds=(0.0, 2.0), polish=True),
    )
    raises(
        ArgumentError,
        "least_squares: polish is for loss='linear', not 'cauchy'; leave it out.",
        lambda: least_squares(lambda p: p - 1.0, np.zeros(2), loss="cauchy", polish=True),
    )


def test_curve_fit_takes_what_scipys_takes():
    def line(x, a, b):
        return a * x + b

    ydata = [1.0, 3.0, 5.5, 7.0, 9.0]
    usual = {"check_finite": True, "nan_policy": None, "full_output": False, "maxfev": 400}
    fit = curve_fit(line, range(5), ydata, **usual)
    popt, pcov = scipy.optimize.curve_fit(line, range(5), ydata, **usual)
    np.testing.assert_allclose(fit[0], popt, rtol=1e-7)
    np.testing.assert_allclose(fit[1], pcov, rtol=1e-6)
    assert len(fit) == 2
    np.testing.assert_allclose(curve_fit(line, [0, 1, 2, 3, 4], ydata, maxfev=0).x, popt, rtol=1e-7)
    with pytest.warns(SolverWarning):
        curve_fit(line, range(5), ydata, maxfev=1)
    raises(
        ArgumentError,
        "curve_fit: maxfev and max_nfev are the same; give one of them.",
        lambda: curve_fit(line, range(5), ydata, maxfev=9, max_nfev=9),
    )


def test_bounds_of_numbers_hold_for_all_elements():
    for start in (np.array([0.5, 0.5]), {"a": 0.5, "b": np.array([0.5])}):
        found = minimize(
            lambda p: sum(((x + 1.0) ** 2).sum() for x in nt.tree.leaves(p)),
            start,
            bounds=scipy.optimize.Bounds(0, np.inf),
        )
        np.testing.assert_allclose(found.vector, 0.0, atol=1e-12)
    fitted = least_squares(lambda p: p + 1.0, np.ones(2), bounds=scipy.optimize.Bounds(0.0, [2.0, 3.0]))
    np.testing.assert_allclose(fitted.x, 0.0, atol=1e-6)


@pytest.mark.parametrize(
    "bounds", [([2.0, 4.0], [9.0, np.inf]), ([-np.inf, 4.0], [9.0, np.inf]), (2.0, np.inf), (-np.inf, 6.0)]
)
def test_a_fit_within_bounds_starts_where_scipys_does(bounds):
    x = np.linspace(0.0, 1.0, 20)
    starts = []

    def line(x, a, b):
        starts.append([float(nt.detach(a)), float(nt.detach(b))])
        return a * x + b

    found = curve_fit(line, x, 3.0 * x + 5.0, bounds=bounds).x
    ours = starts[0]
    starts.clear()
    expected, _ = scipy.optimize.curve_fit(line, x, 3.0 * x + 5.0, bounds=bounds)
    assert ours == starts[0]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def undetermined():
    return least_squares(lambda p: p - 1.0, [5.0, 4.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: curve_fit(lambda x, a, b: a * np.exp(-b * x), np.arange(9.0), np.exp(-1.3 * np.arange(9.0)), maxfev=3),
        lambda: least_squares(lambda p: p**3 - 1.0, [5.0, 4.0], max_nfev=1),
        lambda: root(lambda x: x**2 + 1.0, 1.0),
        lambda: str(undetermined()),
        lambda: undetermined().covariance,
        lambda: undetermined().errors,
        lambda: list(curve_fit(lambda x, a, b: a * x + b, [0.0, 1.0], [0.0, 1.0])),
    ],
)
def test_warnings_name_the_line_of_the_user(call):
    with pytest.warns(SolverWarning) as caught:
        call()
    assert [(each.filename, each.lineno) for each in caught] == [(__file__, call.__code__.co_firstlineno)]
