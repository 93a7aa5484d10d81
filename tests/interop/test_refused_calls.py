"""What solvers refuse before they start: functions that leave the tape in part, tracked constants, unknown options."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, LeavesTapeError, NotDifferentiableError, ShapeError
from numtape.interop.scipy import curve_fit, least_squares, minimize, root

X = np.linspace(0.0, 1.0, 9)


def raises(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def raises_at_the_line(start, line, call):
    """Check a message that names a line of this file."""
    with pytest.raises(NotDifferentiableError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{start} at ")
    assert message.endswith(
        f" ({line}), so a part of its derivative would be lost. Compute with nt or np functions, and take detach() "
        "first of what is meant as a constant."
    )
    assert "test_refused_calls.py:" in message


def bowl(q):
    b = float(q[1])
    return (q[0] - 1.0) ** 2 + (b - 3.0) ** 2


def equations(q):
    b = float(q[1])
    return nt.stack([q[0] - 1.0, q[0] * b - 3.0])


def line(x, a, b):
    b = float(b)
    return a * x + b


@pytest.mark.parametrize("method", ["BFGS", "trust-exact", "trust-ncg"])
def test_an_objective_that_leaves_the_tape_in_part_names_the_line(method):
    raises_at_the_line(
        "minimize: bowl left the tape by float()",
        "b = float(q[1])",
        lambda: minimize(bowl, np.zeros(2), method=method),
    )


@pytest.mark.parametrize("solver", [least_squares, root])
def test_residuals_that_leave_the_tape_in_part_name_the_line(solver):
    raises_at_the_line(
        f"{solver.__name__}: equations left the tape by float()",
        "b = float(q[1])",
        lambda: solver(equations, np.ones(2)),
    )


def test_a_model_that_leaves_the_tape_in_part_names_the_line():
    raises_at_the_line("curve_fit: line left the tape by float()", "b = float(b)", lambda: curve_fit(line, X, X))


def test_a_constraint_that_leaves_the_tape_in_part_names_the_line():
    constraint = {"type": "ineq", "fun": lambda q: equations(q)[1]}
    raises_at_the_line(
        "minimize: <lambda> left the tape by float()",
        "b = float(q[1])",
        lambda: minimize(lambda q: (q**2).sum(), np.ones(2), method="SLSQP", constraints=constraint),
    )


def test_a_function_that_leaves_the_tape_only_later_names_the_line():
    def late(q):
        if q[0] > 1.5:
            return ((q - 1.0) ** 2).sum()
        b = q.numpy()
        return ((q - 1.0) ** 2).sum() + b.sum()

    raises_at_the_line(
        "minimize: late left the tape by numpy()", "b = q.numpy()", lambda: minimize(late, np.array([2.0, 2.0]))
    )


def test_what_is_detached_or_taken_as_an_item_is_a_constant_on_purpose():
    seen = []

    def looked_at(q):
        seen.append(q.detach().numpy().copy())
        return ((q - 1.0) ** 2).sum() if q[0].item() < 9.0 else (q**2).sum()

    np.testing.assert_allclose(minimize(looked_at, np.zeros(2)).x, [1.0, 1.0], atol=1e-6)
    assert len(seen) > 1


def test_a_method_without_derivatives_takes_any_function():
    found = minimize(bowl, np.zeros(2), method="Nelder-Mead")
    np.testing.assert_allclose(found.x, [1.0, 3.0], atol=1e-3)


def test_tracked_observations_are_not_lost_quietly():
    y = nt.tensor(2.0 * X, requires_grad=True)
    raises(
        LeavesTapeError,
        "curve_fit: ydata is tracked, and its gradient would be lost. Use nt.implicit.least_squares to differentiate "
        "the answer by it, or pass its detach(), or call curve_fit in nt.no_grad().",
        lambda: curve_fit(lambda x, a: a * x, X, y),
    )
    with nt.no_grad():
        np.testing.assert_allclose(curve_fit(lambda x, a: a * x, X, y).x, [2.0])
    np.testing.assert_allclose(curve_fit(lambda x, a: a * x, X, y.detach()).x, [2.0])


@pytest.mark.parametrize("solver", [minimize, least_squares])
def test_tracked_bounds_are_not_lost_quietly(solver):
    upper = nt.tensor(np.array([0.5, 2.0]), requires_grad=True)

    def function(q):
        return ((q - 1.0) ** 2).sum() if solver is minimize else q - 1.0

    name = solver.__name__
    raises(
        LeavesTapeError,
        f"{name}: bounds has a tracked tensor, and its gradient would be lost; pass its detach(), or call {name} in "
        "nt.no_grad().",
        lambda: solver(function, np.zeros(2), bounds=(None, upper)),
    )
    found = solver(function, np.zeros(2), bounds=(None, upper.detach()))
    np.testing.assert_allclose(found.x, [0.5, 1.0], atol=1e-6)


def test_fewer_observations_than_parameters_are_counted():
    raises(
        ShapeError,
        "curve_fit: method 'lm' needs no fewer residuals than parameters, and got 1 for 2; give more observations, "
        "fix a parameter, or use method='trf'.",
        lambda: curve_fit(lambda x, a, b: a * x + b, X[:1], X[:1]),
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("jac", "curve_fit: jac is not taken, since derivatives are computed exactly; leave it out."),
        (
            "full_output",
            "curve_fit: there is no option 'full_output'; the answer always has all of it: fun, message, and SciPy's "
            "result as scipy.",
        ),
        (
            "nan_policy",
            "curve_fit: there is no option 'nan_policy'; observations are always checked; leave out those that are "
            "not finite.",
        ),
        ("los", "curve_fit: there is no option 'los'; write 'loss'."),
    ],
)
def test_options_that_are_not_taken_say_what_to_do(option, message):
    raises(ArgumentError, message, lambda: curve_fit(lambda x, a: a * x, X, X, **{option: True}))


def test_derivatives_are_not_taken_by_minimize():
    raises(
        ArgumentError,
        "minimize: jac is not taken, since derivatives are computed exactly; leave it out.",
        lambda: minimize(lambda q: (q**2).sum(), np.ones(2), jac=True),
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: minimize(lambda q: (q**2).sum(), np.ones(2), method="bfsg"),
            "minimize: there is no method 'bfsg'; write 'bfgs'.",
        ),
        (lambda: root(lambda q: q, np.ones(2), method="hybrid"), "root: there is no method 'hybrid'; write 'hybr'."),
        (
            lambda: least_squares(lambda q: q, np.ones(2), method="newton"),
            "least_squares: there is no method 'newton'; there are dogbox, lm, trf.",
        ),
    ],
)
def test_a_method_that_is_misspelled_names_the_nearest(call, message):
    raises(ArgumentError, message, call)


def test_a_method_without_its_hyphens_is_recognised():
    raises(
        ArgumentError,
        "minimize: there is no method 'lbfgs'; write 'l-bfgs-b'.",
        lambda: minimize(lambda x: x**2, 1.0, method="lbfgs"),
    )


#: Calls that would lose a tensor `f(w)`, each after the names of the solver and of the one to differentiate through.
LOSING = {
    "an objective": ("minimize", "minimize", lambda f, w: minimize(lambda x: ((x - f(w)) ** 2).sum(), np.zeros(2))),
    "an objective without derivatives": (
        "minimize",
        "minimize",
        lambda f, w: minimize(lambda x: ((x - f(w)) ** 2).sum(), np.zeros(2), method="Nelder-Mead"),
    ),
    "an argument": (
        "minimize",
        "minimize",
        lambda f, w: minimize(lambda x, y: ((x - f(y)) ** 2).sum(), np.zeros(2), (w,)),
    ),
    "a constraint": (
        "minimize",
        "minimize",
        lambda f, w: minimize(
            lambda x: (x**2).sum(), np.ones(2), method="SLSQP", constraints={"type": "eq", "fun": lambda x: x - f(w)}
        ),
    ),
    "residuals": ("least_squares", "least_squares", lambda f, w: least_squares(lambda x: x - f(w), np.zeros(2))),
    "equations": ("root", "root", lambda f, w: root(lambda x: x - f(w), np.zeros(2))),
    "a model": (
        "curve_fit",
        "least_squares",
        lambda f, w: curve_fit(lambda x, p: p["a"] + 0.0 * x + f(w), np.ones(2), np.ones(2), {"a": np.ones(2)}),
    ),
}


def losing(kind, f, w):
    return LOSING[kind][2](f, w)


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("kind", LOSING)
def test_what_an_open_tape_watches_on_first_use_is_not_lost_quietly(kind, is_used):
    name, way, _ = LOSING[kind]
    with nt.Tape():
        w = nt.tensor(np.array([1.0, 2.0]))
        if is_used:
            w * 1.0
        with pytest.raises(LeavesTapeError) as caught:
            losing(kind, nt.tanh, w)
    start = "p0" if name == "curve_fit" else "x0"
    assert str(caught.value).endswith(
        f" depends on a tracked tensor besides {start}, whose gradient would be lost. Use nt.implicit.{way} to "
        f"differentiate the answer by it, or pass its detach(), or call {name} in nt.no_grad()."
    )


@pytest.mark.parametrize("kind", LOSING)
def test_a_parameter_is_not_lost_quietly(kind):
    with pytest.raises(LeavesTapeError):
        losing(kind, nt.tanh, nt.tensor(np.array([1.0, 2.0]), requires_grad=True))


@pytest.mark.parametrize("kind", LOSING)
def test_constants_stay_constants_in_open_tapes(kind):
    w = nt.tensor(np.array([0.1, 0.2]))
    expected = losing(kind, nt.tanh, w.numpy()).vector
    found = [losing(kind, nt.tanh, w)]
    with nt.GradientTape():
        found.append(losing(kind, nt.tanh, w))
    with nt.Tape():
        found.append(losing(kind, nt.tanh, w.detach()))
        found.append(losing(kind, lambda w: nt.tanh(w.detach()), w))
        # One that the function makes is nobody's, also if it is looked at.
        found.append(losing(kind, lambda w: nt.tanh(nt.tensor(w)) * float(nt.tensor(1.0)), w.detach().numpy()))
        with nt.no_grad():
            found.append(losing(kind, nt.tanh, w))
    for each in found:
        np.testing.assert_array_equal(each.vector, expected)


def test_a_number_of_what_an_open_tape_watches_names_the_line():
    def shifted(x):
        b = float(shift)
        return (x - b) ** 2

    with nt.Tape():
        shift = nt.tensor(2.0)
        raises_at_the_line(
            "minimize: shifted left the tape by float()", "b = float(shift)", lambda: minimize(shifted, 1.0)
        )


def test_a_solver_within_a_solver_is_looked_through():
    def outer(x):
        inner = root(lambda y: y - w, np.zeros(2)).x
        return ((x - inner) ** 2).sum()

    with nt.Tape():
        w = nt.tensor(np.array([1.0, 2.0]))
        with pytest.raises(LeavesTapeError):
            minimize(outer, np.zeros(2))


def test_looking_for_tensors_draws_no_random_numbers():
    drawn = []

    def noisy(x):
        drawn.append(nt.randn(2).numpy())
        return ((x - 1.0) ** 2).sum() + 0.0 * nt.tensor(drawn[-1]).sum()

    nt.seed(0)
    expected = nt.randn(2).numpy()
    for method in ("BFGS", "Nelder-Mead"):
        nt.seed(0)
        drawn.clear()
        with nt.Tape():
            minimize(noisy, np.zeros(2), method=method)
        assert sum(np.array_equal(each, expected) for each in drawn) > 1
        assert not np.array_equal(drawn[-1], expected)


@pytest.mark.parametrize("place", ["ydata", "sigma", "bounds"])
def test_data_that_an_open_tape_watches_on_first_use_are_not_lost_quietly(place):
    with nt.Tape():
        given = nt.tensor(np.array([2.0, 3.0]))
        ydata = given if place == "ydata" else np.ones(2)
        others = {"sigma": {"sigma": given}, "bounds": {"bounds": (None, given)}}.get(place, {})
        with pytest.raises(LeavesTapeError, match=rf"^curve_fit: {place} (is|has a) tracked"):
            curve_fit(lambda x, p: p["a"] * x, np.ones(2), ydata, {"a": np.ones(2)}, **others)


def squares(q):
    return (q**2).sum()


ON_LINE = {"type": "eq", "fun": lambda q: q.sum() - 1.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"method": "BFGS", "bounds": (0, 1)},
            "minimize: method 'BFGS' takes no bounds; cobyla, cobyqa, l-bfgs-b, nelder-mead, powell, slsqp, tnc, "
            "trust-constr do.",
        ),
        (
            {"method": "L-BFGS-B", "bounds": (0, 1), "constraints": ON_LINE},
            "minimize: method 'L-BFGS-B' takes no constraints; cobyla, cobyqa, slsqp, trust-constr do.",
        ),
        (
            {"constraints": [{**ON_LINE, "type": "eqq"}]},
            "minimize: a constraint has the type 'eqq'; write 'eq'.",
        ),
        (
            {"constraints": {"fun": squares}},
            "minimize: a constraint has the type None; there are eq, ineq.",
        ),
    ],
)
def test_limits_that_a_method_cannot_take_are_not_dropped(given, message):
    raises(ArgumentError, message, lambda: minimize(squares, np.full(2, 0.5), **given))


@pytest.mark.parametrize(
    "method", [None, "Nelder-Mead", "L-BFGS-B", "TNC", "SLSQP", "Powell", "trust-constr", "COBYLA"]
)
def test_bounds_are_kept_by_the_methods_that_take_them(method):
    found = minimize(lambda q: ((q - 2.0) ** 2).sum(), np.full(2, 0.5), method=method, bounds=(0, 1))
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-3)


@pytest.mark.parametrize("method", [None, "slsqp"])
def test_constraints_are_kept_by_the_methods_that_take_them(method):
    found = minimize(squares, np.ones(2), method=method, bounds=(0, 1), constraints={**ON_LINE, "type": "EQ"})
    np.testing.assert_allclose(found.x, [0.5, 0.5], atol=1e-6)


def test_no_constraints_are_taken_by_every_method():
    for none in ((), [], {}, None):
        assert minimize(squares, np.ones(2), method="BFGS", constraints=none).success


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "hubber"}, "there is no loss 'hubber'; write 'huber'."),
        ({"loss": "abs"}, "there is no loss 'abs'; there are arctan, cauchy, huber, linear, soft_l1."),
        ({"method": "lm", "sparse": True}, "method 'lm' takes no sparse Jacobian; use method='trf' or 'dogbox'."),
        ({"method": "lm", "bounds": (0, 2)}, "method 'lm' takes no bounds; use method='trf' or 'dogbox'."),
        (
            {"method": "lm", "loss": "huber"},
            "method 'lm' takes no loss but the linear one; use method='trf' or 'dogbox'.",
        ),
    ],
)
def test_what_a_method_of_least_squares_cannot_take_is_refused(given, message):
    raises(ArgumentError, f"least_squares: {message}", lambda: least_squares(lambda q: q, np.ones(2), **given))


def test_bounds_without_a_number_are_none_to_lm():
    assert least_squares(lambda q: q - 1.0, np.zeros(2), method="lm", bounds=(None, None)).success


def test_a_robust_fit_by_the_default_method_says_which_to_use():
    raises(
        ArgumentError,
        "curve_fit: method 'lm' takes no loss but the linear one; use method='trf' or 'dogbox'.",
        lambda: curve_fit(lambda x, a: a * x, X, X, loss="huber"),
    )
