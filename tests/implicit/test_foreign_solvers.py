"""Solvers that users bring: SciPy's as they are, loops of their own, and how far their answers are trusted."""

import gc
import threading

import numpy as np
import pytest
import scipy.optimize

import numtape as nt
from numtape.core.record import Record
from numtape.errors import ConvergenceError, OperandError

implicit = nt.implicit


def bowl(x, a):
    return ((x - a) ** 4).sum() + ((x - 2.0 * a) ** 2).sum() + 0.1 * (x[0] * x[1]) ** 2


def test_scipy_solvers_are_taken_as_they_are():
    a = np.array([8.0, 27.0])

    def cube_root(a):
        return implicit.root(lambda x: x**3 - a, np.ones(2), solver=scipy.optimize.root)

    np.testing.assert_allclose(cube_root(a), [2.0, 3.0], rtol=1e-8)
    np.testing.assert_allclose(nt.jacobian(cube_root)(a), np.diag([1 / 12, 1 / 27]), rtol=1e-6)


def by_bfgs(function, x):
    return scipy.optimize.minimize(nt.value_and_grad(function), x, jac=True, method="BFGS", options={"gtol": 1e-10})


def test_a_solver_may_differentiate_what_it_is_given():
    a = np.array([1.0, -0.5])

    def theirs(a):
        return implicit.minimize(bowl, np.zeros(2), a, solver=by_bfgs)

    def ours(a):
        return implicit.minimize(bowl, np.zeros(2), a)

    np.testing.assert_allclose(theirs(a), ours(a), rtol=1e-9)
    np.testing.assert_allclose(nt.jacobian(theirs)(a), nt.jacobian(ours)(a), rtol=1e-7)


def test_a_solver_sees_captured_parameters_as_constants():
    a = nt.tensor(np.array([1.0, -0.5]), requires_grad=True)
    kinds = set()

    def solver(function, x):
        value, slope = nt.value_and_grad(function)(x)
        kinds.update([type(value), type(slope), type(function(x))])
        return by_bfgs(function, x)

    answer = implicit.minimize(lambda x: bowl(x, a), np.zeros(2), solver=solver)
    assert kinds == {float, np.ndarray}
    answer.sum().backward()
    expected = nt.grad(lambda a: implicit.minimize(bowl, np.zeros(2), a).sum())(a.numpy())
    np.testing.assert_allclose(a.grad.numpy(), expected, rtol=1e-7)


def test_a_matrix_of_unknowns_may_go_through_a_solver_that_knows_vectors():
    target = np.arange(4.0).reshape(2, 2)
    answer = implicit.root(lambda x: x**3 + x - target, np.zeros((2, 2)), solver=scipy.optimize.root)
    assert answer.shape == (2, 2)
    np.testing.assert_allclose(answer**3 + answer, target, atol=1e-7)


def test_a_solver_that_stops_early_is_told_how_far_it_is_off():
    with pytest.raises(ConvergenceError) as error:
        implicit.root(lambda x: x * x - 9.0, 1.0, solver=lambda f, x: 2.9)
    assert str(error.value) == (
        "root: the solver <lambda> did not converge: |F| is 5.9e-01 at its answer, and a Newton step would still move "
        "x by 3.5e-02 of its size (at most tol=1e-05 is accepted). Let it iterate further, or accept less by tol=; "
        "derivatives are off by about as much."
    )


def test_a_loose_answer_is_accepted_on_demand():
    answer = implicit.root(lambda x: x * x - 9.0, 1.0, solver=lambda f, x: 2.9, tol=0.1)
    assert answer == 2.9
    assert implicit.root(lambda x: x * x - 9.0, 1.0, solver=lambda f, x: 0.1, tol=float("inf")) == 0.1


def test_small_units_hide_no_failure():
    with pytest.raises(ConvergenceError, match=r"a Newton step would still move x by 3\.5e-02 of its size"):
        implicit.root(lambda x: 1e-20 * (x * x - 9.0), 1.0, solver=lambda f, x: 2.9)


def test_what_a_solver_says_when_it_fails_is_passed_on():
    with pytest.raises(ConvergenceError, match=r"It says: Maximum number of iterations has been exceeded\.$"):
        implicit.minimize(
            bowl,
            np.zeros(2),
            np.array([3.0, 4.0]),
            solver=lambda f, x: scipy.optimize.minimize(nt.value_and_grad(f), x, jac=True, options={"maxiter": 2}),
        )


def test_a_solver_that_returns_something_else_is_named():
    with pytest.raises(OperandError, match=r"^root: the solver <lambda> returned None; it must return the answer in"):
        implicit.root(lambda x: x, 1.0, solver=lambda f, x: None)
    with pytest.raises(OperandError, match=r"^root: the solver <lambda> returned ndarray; it must return the answer"):
        implicit.root(lambda x: x, 1.0, solver=lambda f, x: np.zeros(3))


def test_an_answer_keeps_no_memory_of_iterations():
    a = nt.tensor(np.full(50, 9.0), requires_grad=True)

    def solver(iterations):
        def solve(function, x):
            slope = nt.grad(lambda x: (function(x) ** 2).sum())
            for _ in range(iterations):
                x = x - 0.003 * slope(x)
            return x

        return solve

    held = []
    for iterations in (200, 400):
        gc.collect()
        before = sum(type(o) is Record for o in gc.get_objects())
        answer = implicit.root(lambda x: x * x - a, np.full(50, 2.0), solver=solver(iterations))
        held.append(sum(type(o) is Record for o in gc.get_objects()) - before)
        del answer
    assert held == [1, 1]


def test_nothing_waits_for_the_garbage_collector():
    def work():
        a = nt.tensor([9.0], dtype="float64", requires_grad=True)
        implicit.root(lambda x: x * x - a, np.ones(1)).sum().backward()
        for gradient in ("unrolled", "checkpointed", "adjoint"):
            implicit.odeint(lambda t, y: -a * y, np.ones(1), [0.0, 0.1], gradient=gradient).sum().backward()
        nt.grad(nt.grad(lambda b: implicit.root(lambda x: x * x - b, 1.0)))(9.0)

    work()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(5):
            work()
        assert len(gc.get_objects()) - before <= 5
    finally:
        gc.enable()


def test_threads_do_not_disturb_each_other():
    shared = nt.tensor(2.0, dtype="float64", requires_grad=True)
    found = {}

    def work(number):
        found[number] = nt.grad(lambda a: implicit.root(lambda x: x * x - a * shared, 1.0))(float(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(1, 9):
        assert float(found[number]) == pytest.approx((2.0 / number) ** 0.5 / 2.0, rel=1e-12)


def iterate(function, x):
    for _ in range(400):
        x = function(x)
    return x


def test_a_far_start_excuses_no_inaccuracy():
    with pytest.raises(ConvergenceError, match=r"would still move x by 8\.4e-01 of its size"):
        implicit.fixed_point(lambda x: 0.97 * x + 0.03, 1e6, solver=iterate)
    with pytest.raises(ConvergenceError, match=r"would still move x by 8\.0e-01 of its size"):
        implicit.root(lambda x: x - 1e-9, 1.0, solver=lambda f, x: 5e-9)


def test_elements_of_other_units_are_measured_by_their_own():
    target = np.array([1e6, 1e-3])
    with pytest.raises(ConvergenceError, match=r"would still move x by 5\.0e-01 of its size"):
        implicit.root(lambda x: x - target, 2.0 * target, solver=lambda f, x: np.array([1e6, 2e-3]))


def test_a_zero_among_larger_elements_need_not_be_exact():
    target = np.array([0.0, 2.0, 10.0])
    answer = implicit.root(lambda x: x**3 + x - target, np.ones(3), solver=scipy.optimize.root)
    np.testing.assert_allclose(answer, [0.0, 1.0, 2.0], atol=1e-8)


@pytest.mark.parametrize(
    "solver",
    [
        lambda f, x: scipy.optimize.root_scalar(f, bracket=[0.0, 5.0]),
        lambda f, x: scipy.optimize.brentq(f, 0.0, 5.0, full_output=True),
        lambda f, x: scipy.optimize.fsolve(f, x, full_output=True),
        lambda f, x: scipy.optimize.leastsq(f, x),
    ],
)
def test_older_solvers_of_scipy_are_taken_as_they_are(solver):
    slope = nt.grad(lambda a: implicit.root(lambda x: x**3 - a, 1.0, solver=solver))(8.0)
    assert slope == pytest.approx(1 / 12, rel=1e-6)


def test_what_older_solvers_say_is_passed_on():
    def solver(function, x):
        return scipy.optimize.fsolve(function, x, full_output=True, maxfev=2)

    with pytest.raises(ConvergenceError, match=r"It says: The number of calls to function has reached maxfev = 2"):
        implicit.root(lambda x: x**3 - 8.0, np.ones(1), solver=solver)


@pytest.mark.parametrize(
    "solver",
    [
        scipy.optimize.root,
        scipy.optimize.fsolve,
        scipy.optimize.newton_krylov,
        scipy.optimize.least_squares,
        lambda f, x: scipy.optimize.root(f, x, method="lm", jac=nt.jacobian(f)),
    ],
)
def test_a_function_of_float32_parameters_gets_x_as_float32(solver):
    layer = nt.nn.Linear(2, 2)
    dtypes = set()

    def equations(z):
        dtypes.add(z.dtype)
        return z - nt.tanh(0.1 * layer(z) + 1.0)

    found = implicit.root(equations, nt.zeros(2), solver=solver)
    assert dtypes == {found.dtype} == {np.dtype("float32")}
    np.testing.assert_allclose(found.numpy(), implicit.root(equations, nt.zeros(2)).numpy(), atol=1e-4)
    found.sum().backward()
    assert layer.weight.grad is not None


def test_differences_that_float32_loses_are_explained():
    layer = nt.nn.Linear(2, 2)

    def by_differences(function, x):
        return scipy.optimize.root(function, x, method="lm")

    with pytest.raises(ConvergenceError) as error:
        implicit.root(lambda z: z - nt.tanh(0.1 * layer(z) + 1.0), nt.zeros(2), solver=by_differences)
    assert str(error.value).endswith(
        " x0 is float32, in which the tiny steps of a solver that takes differences are lost: give it derivatives, as "
        "jac=nt.jacobian(f), or longer steps."
    )


@pytest.mark.parametrize("solver", [scipy.optimize.least_squares, scipy.optimize.leastsq])
@pytest.mark.parametrize("seed", [2, 5])
def test_fits_at_scipys_default_tolerances_are_taken_to_all_digits(solver, seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 3.0, 30)
    y = 2.5 * np.exp(-1.3 * x) + rng.choice([0.05, 0.2, 0.5]) * rng.normal(size=30)

    def residuals(p, y):
        return p[0] * np.exp(-p[1] * x) - y

    theirs = implicit.least_squares(residuals, np.ones(2), y, solver=solver)
    np.testing.assert_allclose(theirs, implicit.least_squares(residuals, np.ones(2), y), rtol=1e-10)


def test_a_minimum_that_is_further_off_is_not_taken_on():
    with pytest.raises(ConvergenceError, match="did not converge"):
        implicit.minimize(lambda x: (x - 3.0) ** 2, 1.0, solver=lambda f, x: 2.99)


def bisected(function, x):
    return scipy.optimize.brentq(function, -1.0, 2.0)


def picard(function, x):
    for _ in range(60):
        x = function(x)
    return x


@pytest.mark.parametrize(
    ("answer", "slope"),
    [
        (
            lambda p: nt.implicit.root(
                lambda x: x + x**3 - p, 0.5, solver=lambda f, x: scipy.optimize.brentq(f, -1, 2)
            ),
            1.0,
        ),
        (lambda p: nt.implicit.root(lambda x: x + x**2 - p, 0.5, solver=scipy.optimize.newton), 1.0),
        (lambda p: nt.implicit.fixed_point(lambda x: 0.5 * nt.sin(x) + p, 0.5, solver=picard), 2.0),
    ],
)
def test_an_answer_of_zero_has_the_digits_of_the_start(answer, slope):
    assert nt.grad(answer)(0.0) == pytest.approx(slope)


@pytest.mark.parametrize("start", [[0.0, 0.0], np.zeros(2), nt.tensor([0.0, 0.0], dtype="float64")])
@pytest.mark.parametrize("two", [2.0, nt.tensor(2.0)])
def test_a_solver_may_answer_with_a_list(start, two):
    def found(a):
        return implicit.root(lambda x: x - a, start, solver=lambda f, x: [2.0, two])

    np.testing.assert_array_equal(np.asarray(found(2.0)), [2.0, 2.0])
    np.testing.assert_allclose(nt.jacobian(found)(2.0), [1.0, 1.0], rtol=1e-14)


def test_a_list_that_is_no_answer_is_refused():
    with pytest.raises(OperandError) as error:
        implicit.root(lambda x: x - 2.0, np.zeros(2), solver=lambda f, x: [2.0])
    assert str(error.value) == (
        "root: the solver <lambda> returned list; it must return the answer in the form of x0, or an object with x and "
        "success as SciPy's solvers do (cannot reshape array of size 1 into shape (2,))."
    )
