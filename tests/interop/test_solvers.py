"""SciPy's solvers on functions of trees: right derivatives, results as trees, and clear words when it goes wrong."""

import collections
import dataclasses
import warnings

import numpy as np
import pytest
import scipy.optimize
from solver_cases import bowl, decay, observations, rosenbrock

import numtape as nt
from numtape.interop.functions import Objective
from numtape.interop.scipy import SolverWarning, curve_fit, least_squares, minimize, root
from numtape.interop.vectors import Layout

UNTRUSTED = (
    "its answer is not to be trusted. Try another start or method, more iterations, or another scale of the parameters."
)


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


def slopes_of_decay(x, a, b, c):
    return np.stack([np.exp(-b * x), -a * x * np.exp(-b * x), np.ones_like(x)], axis=1)


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
