"""`nt.implicit.odeint`: solutions against closed forms and SciPy, and their derivatives in every way."""

import gc
import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

import numtape as nt
from numtape.core.record import Record
from numtape.transforms.loops import checkpoint_loop

odeint = nt.implicit.odeint
GRADIENTS = ("unrolled", "checkpointed", "adjoint")
TIMES = np.array([0.0, 0.7, 1.5, 2.0])
EXACT = {"rtol": 1e-10, "atol": 1e-12}


@pytest.fixture
def linear():
    """A matrix, a start, and the solution at the times by the matrix exponential."""
    rng = np.random.default_rng(0)
    matrix, start = rng.normal(size=(3, 3)) - np.eye(3), rng.normal(size=3)
    return matrix, start, np.stack([scipy.linalg.expm(matrix * t) @ start for t in TIMES])


def flow(t, y, matrix):
    return matrix @ y


def weights(shape):
    return np.random.default_rng(1).normal(size=shape)


def differences(function, x, step=1e-5):
    found = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[index] = step
        found[index] = (function(x + shift) - function(x - shift)) / (2.0 * step)
    return found


def test_a_linear_equation_has_the_matrix_exponential(linear):
    matrix, start, expected = linear
    np.testing.assert_allclose(odeint(flow, start, TIMES, matrix, **EXACT), expected, atol=1e-10)
    np.testing.assert_allclose(odeint(flow, start, TIMES, matrix), expected, atol=1e-5)
    found = odeint(flow, start, TIMES, matrix, method="rk4", step_size=0.01)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_the_order_of_rk4_is_four(linear):
    matrix, start, expected = linear
    errors = [
        np.abs(odeint(flow, start, TIMES, matrix, method="rk4", step_size=h) - expected).max() for h in (0.05, 0.025)
    ]
    assert 14.0 < errors[0] / errors[1] < 18.0


def hunters(t, state, p):
    prey, hunter = state["prey"], state["hunters"]
    return {"prey": p[0] * prey - p[1] * prey * hunter, "hunters": p[3] * prey * hunter - p[2] * hunter}


def test_a_tree_agrees_with_scipy_and_takes_about_as_many_evaluations():
    p, times = np.array([1.5, 1.0, 3.0, 1.0]), np.linspace(0.0, 5.0, 6)
    calls = []

    def counted(t, state, p):
        calls.append(t)
        return hunters(t, state, p)

    start = {"prey": np.array(10.0), "hunters": np.array(5.0)}
    found = odeint(counted, start, times, p, rtol=1e-9, atol=1e-9)
    theirs = scipy.integrate.solve_ivp(
        lambda t, z: [p[0] * z[0] - p[1] * z[0] * z[1], p[3] * z[0] * z[1] - p[2] * z[1]],
        (0.0, 5.0),
        [10.0, 5.0],
        rtol=1e-9,
        atol=1e-9,
        t_eval=times,
    )
    np.testing.assert_allclose(found["prey"], theirs.y[0], rtol=1e-6)
    np.testing.assert_allclose(found["hunters"], theirs.y[1], rtol=1e-6)
    assert len(calls) < 1.2 * theirs.nfev


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("method", [EXACT, {"method": "rk4", "step_size": 0.01}], ids=["dopri5", "rk4"])
def test_gradients_by_start_parameters_and_times_are_those_of_the_exponential(linear, gradient, method):
    matrix, start, values = linear
    w = weights(values.shape)
    found = nt.grad(lambda y, m, t: (odeint(flow, y, t, m, gradient=gradient, **method) * w).sum(), argnums=(0, 1, 2))(
        start, matrix, TIMES
    )
    expected = sum(scipy.linalg.expm(matrix * t).T @ row for t, row in zip(TIMES, w, strict=True))
    np.testing.assert_allclose(found[0], expected, atol=1e-7)
    by_matrix = differences(
        lambda m: sum(row @ scipy.linalg.expm(m * t) @ start for t, row in zip(TIMES, w, strict=True)), matrix
    )
    np.testing.assert_allclose(found[1], by_matrix, atol=1e-7)
    rates = (w * (values @ matrix.T)).sum(axis=1)
    np.testing.assert_allclose(found[2][1:], rates[1:], atol=1e-7)
    # Later times and an earlier start are the same to it.
    np.testing.assert_allclose(found[2].sum(), 0.0, atol=1e-7)


def test_the_adjoint_agrees_with_unrolled_to_eight_digits(linear):
    matrix, start, values = linear
    w = weights(values.shape)

    def loss(y, m, gradient):
        return (odeint(lambda t, y, m: nt.sin(m @ y), y, TIMES, m, gradient=gradient, **EXACT) * w).sum()

    ours = nt.grad(lambda y, m: loss(y, m, "adjoint"), argnums=(0, 1))(start, matrix)
    theirs = nt.grad(lambda y, m: loss(y, m, "unrolled"), argnums=(0, 1))(start, matrix)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8, rtol=0)


@pytest.mark.parametrize("method", [EXACT, {"method": "rk4", "step_size": 0.03}], ids=["dopri5", "rk4"])
@pytest.mark.parametrize("snapshots", [None, 2])
def test_checkpointed_equals_unrolled_bit_for_bit(linear, method, snapshots):
    matrix, start, values = linear
    w = weights(values.shape)
    found = []
    for how in ({"gradient": "unrolled"}, {"gradient": "checkpointed", "snapshots": snapshots}):
        y0, times = nt.tensor(start, requires_grad=True), nt.tensor(TIMES, requires_grad=True)
        given, captured = nt.tensor(matrix, requires_grad=True), nt.tensor([0.3, 0.2, 0.1], requires_grad=True)
        twice = captured.double() * 2.0

        def right_side(t, y, m, twice=twice, captured=captured):
            return nt.sin(m @ y) * nt.cos(t * twice) - captured.double() * y**2 / 4.0

        y = odeint(right_side, y0, times, given, **method, **how)
        ((y * w).sum() + (given**2).sum() + (y0**2).sum() + (captured**2).sum()).backward()
        found.append([y.numpy(), *(x.grad.numpy() for x in (y0, times, given, captured))])
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


def test_values_do_not_depend_on_whether_they_are_recorded(linear):
    matrix, start, _ = linear

    def right_side(t, y, m):
        return nt.sin(m @ y) + np.cos(3.0 * t)

    plain = odeint(right_side, start, TIMES, matrix)
    for gradient in GRADIENTS:
        found = odeint(right_side, start, TIMES, nt.tensor(matrix, requires_grad=True), gradient=gradient)
        assert found.numpy().tobytes() == plain.tobytes()


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_captured_parameters_get_their_gradients(linear, gradient):
    matrix, start, values = linear
    w = weights(values.shape)
    held = nt.tensor(matrix, requires_grad=True)
    half = held * 0.5
    y = odeint(lambda t, y: half @ y + 0.5 * (held @ y), start, TIMES, gradient=gradient, **EXACT)
    (y * w).sum().backward()
    expected = nt.grad(lambda m: (odeint(flow, start, TIMES, m, **EXACT) * w).sum())(matrix)
    np.testing.assert_allclose(held.grad.numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_all_modes_and_second_derivatives_agree(gradient):
    start, w = np.array([0.4, -0.3]), np.array([1.0, 2.0])

    def end(p):
        def right_side(t, y, p):
            return nt.stack([p[0] * y[1], -nt.sin(p[1] * y[0])])

        return odeint(right_side, start, [0.0, 1.0], p, gradient=gradient, **EXACT)[-1]

    p = np.array([1.0, 2.0])
    reverse = nt.jacobian(end, mode="reverse")(p)
    if gradient != "checkpointed":
        np.testing.assert_allclose(nt.jacobian(end, mode="forward")(p), reverse, atol=1e-8)
    np.testing.assert_allclose(nt.jvp(end, p, np.array([1.0, -1.0]))[1], reverse @ [1.0, -1.0], atol=1e-8)
    np.testing.assert_allclose(w @ reverse, nt.grad(lambda p: (end(p) * w).sum())(p), atol=1e-8)
    hessian = nt.hessian(lambda p: (end(p) * w).sum())(p)
    slope = nt.grad(lambda p: (end(p) * w).sum())
    expected = np.stack([(slope(p + e) - slope(p - e)) / 2e-4 for e in 1e-4 * np.eye(2)])
    np.testing.assert_allclose(hessian, expected, atol=1e-6)


def test_a_pull_function_works_after_the_transform_has_ended():
    for gradient in GRADIENTS:
        _, pull = nt.vjp(
            lambda k, gradient=gradient: odeint(lambda t, y: -k * y, 1.0, [0.0, 1.0], gradient=gradient, **EXACT)[-1],
            2.0,
        )
        assert pull(1.0)[0] == pytest.approx(-np.exp(-2.0), rel=1e-8)


def test_times_may_fall():
    matrix = np.array([[0.0, 1.0], [-1.0, 0.0]])
    there = odeint(flow, np.array([1.0, 0.0]), [0.0, 2.0], matrix, **EXACT)[-1]
    back = odeint(flow, there, [2.0, 0.0], matrix, **EXACT)[-1]
    np.testing.assert_allclose(back, [1.0, 0.0], atol=1e-9)
    for gradient in GRADIENTS:
        slope = nt.grad(lambda k, g=gradient: odeint(lambda t, y: k * y, 1.0, [1.0, 0.0], gradient=g, **EXACT)[-1])(2.0)
        assert slope == pytest.approx(-np.exp(-2.0), rel=1e-8)


def test_results_are_what_the_start_is():
    assert odeint(lambda t, y: -y, 1.0, [0.0, 1.0]).shape == (2,)
    assert odeint(lambda t, y: -y, np.ones((2, 3)), [0.0, 0.5, 1.0]).shape == (3, 2, 3)
    single = odeint(lambda t, y: -y, np.ones(2, np.float32), [0.0, 1.0])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[-1], np.exp(-1.0), rtol=1e-5)
    assert odeint(lambda t, y: -y, 3.0, [0.0]).tolist() == [3.0]
    assert isinstance(odeint(lambda t, y: -y, nt.ones(2), [0.0, 1.0]), nt.Tensor)


def test_forward_mode_on_arrays_stores_no_tape():
    held = []
    calls = itertools.count()

    def right_side(t, y, k):
        if next(calls) % 400 == 1:
            held.append(sum(type(o) is Record for o in gc.get_objects()))
        return -k * y

    def end(k):
        return odeint(right_side, 1.0, [0.0, 1.0], k, method="rk4", step_size=1 / 400, gradient="adjoint")[-1]

    gc.collect()
    _, slope = nt.jvp(end, 2.0, 1.0)
    assert slope == pytest.approx(-np.exp(-2.0), rel=1e-8)
    # Of 1,600 stages, each a few records, some hundred wait at a time.
    assert max(held) - held[0] < 600


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_forward_mode_sees_what_the_right_side_captures(gradient):
    def end(k):
        return odeint(lambda t, y: k * y, k, [0.0, 1.0], gradient=gradient, rtol=1e-9)[-1]

    for k in (1.0, np.ones(3)):
        _, slope = nt.jvp(end, k, k)
        np.testing.assert_allclose(slope, 2.0 * np.e, rtol=1e-7)


def test_a_neural_field_learns_by_every_gradient():
    results = []
    for gradient in GRADIENTS:
        nt.seed(0)
        field = nt.nn.Sequential(nt.nn.Linear(2, 8), nt.nn.Tanh(), nt.nn.Linear(8, 2))
        start = nt.tensor([[1.0, 0.0], [0.5, 0.5]])
        y = odeint(lambda t, y, field=field: field(y), start, [0.0, 0.5, 1.0], gradient=gradient, rtol=1e-5, atol=1e-6)
        (y[-1] ** 2).sum().backward()
        results.append(np.concatenate([p.grad.numpy().reshape(-1) for p in field.parameters()]))
    assert results[0].tobytes() == results[1].tobytes()
    np.testing.assert_allclose(results[2], results[0], rtol=2e-3, atol=1e-4)


# Dense output.


@pytest.mark.parametrize(("method", "tolerance"), [(EXACT, 1e-9), ({"method": "rk4", "step_size": 0.02}, 1e-6)])
def test_a_solution_can_be_asked_at_any_time(linear, method, tolerance):
    matrix, start, values = linear
    solution = odeint(flow, start, TIMES, matrix, dense=True, **method)
    np.testing.assert_array_equal(solution.t, TIMES)
    np.testing.assert_allclose(solution.y, values, atol=1e-7)
    for t in (0.0, 0.1, 0.35, 0.7, 1.9, 2.0):
        np.testing.assert_allclose(solution(t), scipy.linalg.expm(matrix * t) @ start, atol=tolerance)
    several = solution(np.linspace(0.0, 2.0, 5))
    np.testing.assert_allclose(several[2], scipy.linalg.expm(matrix) @ start, atol=tolerance)


def test_a_solution_is_differentiable_by_time_and_parameters(linear):
    matrix, start, _ = linear
    given = nt.tensor(matrix, requires_grad=True)
    t = nt.tensor(0.35, dtype="float64", requires_grad=True)
    solution = odeint(flow, start, TIMES, given, dense=True, **EXACT)
    assert repr(solution).startswith("<solution by dopri5 from t=0 to 2 in ")
    solution(t).sum().backward()
    value = scipy.linalg.expm(matrix * 0.35) @ start
    assert t.grad.item() == pytest.approx((matrix @ value).sum(), rel=1e-6)
    expected = nt.grad(lambda m: odeint(flow, start, [0.0, 0.35], m, **EXACT)[-1].sum())(matrix)
    np.testing.assert_allclose(given.grad.numpy(), expected, atol=1e-8)


# Memory, counted.


def test_the_adjoint_and_checkpointing_keep_one_record_whatever_the_steps():
    for gradient, kept in (("adjoint", 1), ("checkpointed", 1)):
        for steps in (20, 200):
            k = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
            y = odeint(
                lambda t, y, k: -k * y, np.ones(2), [0, 1], k, method="rk4", step_size=1 / steps, gradient=gradient
            )
            ops = [record.op.name for record in nt.records(y)]
            assert ops.count("adjoint_solution") + ops.count("loop") == kept
            assert len(ops) <= 3


def test_loops_of_steps_count_dependent_parameters_once():
    # What `checkpointed` rests on: captured tensors, and parts of a state, that are computed from one another.
    def loss(w):
        twice = w * 2.0
        return checkpoint_loop(lambda x: x * w + twice, nt.ones(1, dtype="float64"), 3).sum()

    w = np.array([0.5])
    expected = differences(lambda w: float(loss(nt.tensor(w))), w)
    np.testing.assert_allclose(nt.grad(loss)(w), expected, rtol=1e-8)
    _, pull = nt.vjp(loss, w)
    np.testing.assert_allclose(pull(1.0)[0], expected, rtol=1e-8)

    def state_of_two(x):
        a, b = checkpoint_loop(lambda s: (s[0] * s[1], s[1] + s[0]), (x, x * x), 3)
        return (a + b).sum()

    slope = nt.grad(state_of_two)
    x = np.array([0.7])
    np.testing.assert_allclose(
        nt.hessian(state_of_two)(x).reshape(1), (slope(x + 1e-5) - slope(x - 1e-5)) / 2e-5, rtol=1e-8
    )


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_tensor_that_the_function_first_uses_later_gets_its_gradient(gradient):
    def end(k):
        def right_side(t, y):
            return -y if float(t) < 1.0 else -k * y

        return odeint(right_side, 1.0, [0.0, 1.0, 2.0], gradient=gradient)[-1]

    np.testing.assert_allclose(nt.grad(end)(2.0), -np.exp(-3.0), rtol=1e-4)
    np.testing.assert_allclose(nt.jvp(end, (2.0,), (1.0,))[1], -np.exp(-3.0), rtol=1e-4)
    np.testing.assert_allclose(nt.grad(nt.grad(end))(2.0), np.exp(-3.0), rtol=1e-4)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_layer_that_the_function_first_uses_later_is_trained(gradient):
    layer = nt.nn.Linear(1, 1)
    found = odeint(lambda t, y: y if float(t) < 0.5 else layer(y), nt.ones(1), [0.0, 0.5, 1.0], gradient=gradient)
    found[-1].sum().backward()
    assert layer.weight.grad.item() != 0.0
    with nt.no_grad():
        assert not odeint(lambda t, y: layer(y), nt.ones(1), [0.0, 1.0], gradient=gradient).requires_grad


def test_a_dense_solution_knows_a_tensor_that_is_first_used_later():
    def between(k):
        right_side = lambda t, y: 0.0 * y if float(t) < 1.0 else k + 0.0 * y  # noqa: E731
        return odeint(right_side, 1.0, [0.0, 1.0, 2.0], dense=True)(1.5)

    np.testing.assert_allclose(nt.grad(between)(2.0), 0.5, rtol=1e-4)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_slope_that_is_a_captured_tensor_itself_gets_its_gradient(gradient):
    end = nt.grad(lambda k: odeint(lambda t, y: k, 1.0, [0.0, 3.0], gradient=gradient)[-1])
    np.testing.assert_allclose(end(2.0), 3.0, rtol=1e-12)


def test_slopes_may_come_as_a_list_of_numbers():
    def angle(rate):
        return odeint(lambda t, y: [rate * y[1], -rate * y[0]], np.array([0.0, 1.0]), [0.0, 1.0], rtol=1e-10)

    np.testing.assert_allclose(angle(1.0)[-1], [np.sin(1.0), np.cos(1.0)], rtol=1e-8)
    np.testing.assert_allclose(nt.jacobian(angle)(1.0)[-1], [np.cos(1.0), -np.sin(1.0)], rtol=1e-7)


def test_a_dense_solution_at_no_times_is_empty():
    start = {"a": 1.0, "b": np.ones((2, 3))}
    solution = odeint(lambda t, y: {"a": -y["a"], "b": -y["b"]}, start, [0.0, 1.0], dense=True)
    found = solution(np.zeros(0))
    assert found["a"].shape == (0,)
    assert found["b"].shape == (0, 2, 3)
