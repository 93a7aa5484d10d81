"""What SciPy's solvers refuse on functions of trees, what they warn of, and whom they leave in peace."""

import threading
from unittest import mock

import numpy as np
import pytest
import scipy.optimize
from solver_cases import bowl, decay, observations, rosenbrock

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
from numtape.interop.scipy import SolverWarning, curve_fit, least_squares, minimize, root

UNTRUSTED = (
    "its answer is not to be trusted. Try another start or method, more iterations, or another scale of the parameters."
)


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
