"""Derivative modes: forward, streaming, batched and mixed sweeps, nested in any order."""

import gc
import itertools
import math
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current
from numtape.core.record import Record
from numtape.errors import (
    ArgumentError,
    DtypeError,
    GradientError,
    LeavesTapeError,
    NotConnectedError,
    OperandError,
    ShapeError,
    StreamedError,
)
from numtape.lifted import BatchedTensor

MATRIX = np.random.default_rng(0).normal(size=(3, 4))
POINT = np.array([0.3, -0.7, 1.1, 0.4])


def curve(x):
    return nt.tanh(MATRIX @ x) * x[:3] + x.sum()


def bowl(x):
    return (nt.tanh(MATRIX @ x) ** 2).sum() * x[0]


def close(actual, expected, tolerance=1e-11):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# Forward mode.


def test_jvp_returns_the_value_and_the_directional_derivative():
    value, slope = nt.jvp(lambda x: x**3, 2.0, 1.0)
    assert (value, slope) == (8.0, 12.0)
    assert isinstance(value, float)
    assert isinstance(slope, float)


def test_jvp_is_the_jacobian_times_the_tangent():
    tangent = np.array([1.0, -2.0, 0.5, 3.0])
    value, slope = nt.jvp(curve, POINT, tangent)
    close(value, curve(POINT))
    close(slope, nt.jacobian(curve, mode="reverse")(POINT) @ tangent)


def test_jvp_takes_tuples_of_arguments_and_trees():
    def scaled(pair, factor):
        return {"sum": pair["a"] + pair["b"] * factor, "product": pair["a"] * factor}

    primals = ({"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}, 10.0)
    tangents = ({"a": np.array([1.0, 0.0]), "b": np.array([0.0, 1.0])}, 1.0)
    value, slope = nt.jvp(scaled, primals, tangents)
    close(value["sum"], [31.0, 42.0])
    close(slope["sum"], [4.0, 14.0])
    close(slope["product"], [11.0, 2.0])


def test_jvp_has_aux():
    assert nt.jvp(lambda x: (x * x, "note"), 3.0, 1.0, has_aux=True) == (9.0, 6.0, "note")


def test_vjp_has_aux():
    value, pull, aux = nt.vjp(lambda x: (x * x, "note"), np.array([3.0]), has_aux=True)
    assert (value[0], pull(np.array([1.0]))[0][0], aux) == (9.0, 6.0, "note")


def test_a_constant_function_has_zero_derivative():
    assert nt.jvp(lambda x: nt.tensor([1.0, 2.0]), 3.0, 1.0)[1].tolist() == [0.0, 0.0]


def test_the_identity_does_not_hand_out_the_callers_memory():
    x, t = np.ones(3), np.full(3, 2.0)
    value, slope = nt.jvp(lambda x: x, x, t)
    assert not np.shares_memory(value, x)
    assert not np.shares_memory(slope, t)


def test_forward_mode_obeys_no_grad():
    def partly(x):
        with nt.no_grad():
            constant = x * x
        return constant * x

    assert nt.jvp(partly, 3.0, 1.0) == (27.0, 9.0)
    assert nt.grad(partly)(3.0) == 9.0


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16, nt.float32, nt.float64])
def test_tangents_have_the_dtype_of_their_values(dtype):
    x = nt.tensor([1.0, 2.0], dtype=dtype)
    value, slope = nt.jvp(lambda x: x * x + 1.0, x, nt.ones(2, dtype=dtype))
    assert value.dtype == slope.dtype == dtype
    assert slope.tolist() == [2.0, 4.0]


def test_tensors_in_give_tensors_out():
    value, slope = nt.jvp(lambda x: x * 2.0, nt.tensor([1.0]), nt.tensor([3.0]))
    assert isinstance(value, nt.Tensor)
    assert isinstance(slope, nt.Tensor)
    assert slope.tolist() == [6.0]


def test_a_forward_derivative_of_a_model_trains_its_parameters():
    weight = nt.tensor([0.5, -0.3], dtype=nt.float64, requires_grad=True)

    def model(x):
        return (weight * nt.sin(x * weight)).sum()

    x = nt.tensor(0.7, dtype=nt.float64)
    _, slope = nt.jvp(model, x, nt.ones_like(x))
    (slope**2).backward()
    w = np.array([0.5, -0.3])
    slope_value = np.sum(w * w * np.cos(0.7 * w))
    expected = 2 * slope_value * (2 * w * np.cos(0.7 * w) - 0.7 * w * w * np.sin(0.7 * w))
    close(weight.grad.numpy(), expected)


def test_in_place_writes_are_differentiated_forward():
    def fill(x):
        y = nt.zeros(3, dtype=nt.float64)
        y[0] = x * x
        y += x
        y[1:] = y[0] * y[1:]
        return y

    def functional(x):
        first = x * x + x
        return nt.stack([first, first * x, first * x])

    for function in (fill, functional):
        value, slope = nt.jvp(function, 2.0, 1.0)
        close(value, [6.0, 12.0, 12.0])
        close(slope, [5.0, 16.0, 16.0])


# Streaming.


def live_records():
    return sum(type(o) is Record for o in gc.get_objects())


@pytest.mark.parametrize("steps", [1_000, 10_000])
def test_streaming_keeps_a_bounded_number_of_records(steps):
    most = 0

    def loop(x):
        nonlocal most
        y = x
        for i in range(steps):
            y = y * 0.999 + x
            if i % 500 == 499:
                most = max(most, live_records())
        return y

    gc.collect()
    before = live_records()
    nt.jvp(loop, np.ones(4), np.ones(4))
    assert 0 < most - before <= 300
    assert live_records() == before


def test_a_stored_forward_derivative_equals_the_streamed_one():
    def loop(x):
        for _ in range(300):
            x = nt.sin(x) + 0.5 * x
        return x

    arrays = nt.jvp(loop, POINT, np.ones(4))
    tensors = nt.jvp(loop, nt.tensor(POINT), nt.tensor(np.ones(4)))
    assert np.array_equal(arrays[1], tensors[1].numpy())


def test_several_outputs_of_one_op_stream():
    def norms(x):
        total = x.sum() * 0.0
        for _ in range(300):
            total = total + nt.svd(x.reshape(2, 2))[1].sum() * 0.01
        return total

    close(nt.jvp(norms, POINT, np.ones(4))[1], nt.grad(norms)(POINT).sum())


def test_an_error_inside_leaves_the_state_as_it_was():
    def broken(x):
        for i in range(400):
            x = x * 1.01
            if i == 399:
                raise KeyError("inside")
        return x

    state = current()
    with pytest.raises(KeyError):
        nt.jvp(broken, POINT, POINT)
    assert current() is state
    assert nt.jvp(lambda x: x * x, 3.0, 1.0) == (9.0, 6.0)


def test_backward_inside_of_a_function_works_as_it_does_in_reverse_mode():
    w = nt.tensor(2.0, dtype=nt.float64, requires_grad=True)

    def function(x):
        y = x * 1.0
        for _ in range(300):
            y = y * 1.0
        (w * w).backward()
        return y * w.grad

    assert nt.jvp(function, 3.0, 1.0) == (12.0, 4.0)


def test_a_function_that_differentiates_past_what_was_streamed_runs_again_with_all_kept():
    def by_entered_tape(x):
        h = nt.tanh(x * 2.0)
        with nt.Tape() as tape:
            loss = (h**2).sum()
        return tape.gradient(loss, x)

    def by_watching_tape(x):
        tape = nt.GradientTape()
        tape.watch(x)
        y = nt.tanh(x * 2.0)
        for _ in range(300):
            y = y * 1.0
        return tape.gradient((y**2).sum(), x)

    expected = nt.hessian(lambda x: (nt.tanh(x * 2.0) ** 2).sum())(POINT) @ np.ones(4)
    for function in (by_entered_tape, by_watching_tape):
        value, slope = nt.jvp(function, POINT, np.ones(4))
        close(value, nt.grad(lambda x: (nt.tanh(x * 2.0) ** 2).sum())(POINT))
        close(slope, expected)


def test_a_function_that_runs_again_draws_the_same_random_numbers():
    def function(x):
        mask = nt.rand(4, dtype=nt.float64)
        h = x * mask
        with nt.Tape() as tape:
            loss = (h**2).sum()
        return tape.gradient(loss, x)

    nt.seed(3)
    value, _ = nt.jvp(function, POINT, np.ones(4))
    nt.seed(3)
    close(value, 2 * POINT * nt.rand(4, dtype=nt.float64).numpy() ** 2)


def test_what_a_streamed_function_keeps_cannot_be_differentiated_later():
    kept = []
    nt.jvp(lambda x: kept.append((x * x).sum()) or x, POINT, POINT)
    with pytest.raises(StreamedError, match="a forward derivative has streamed past"):
        kept[0].backward()


def test_work_in_other_threads_is_differentiated_forward():
    def function(x):
        with ThreadPoolExecutor(1) as pool:
            a = pool.submit(lambda: nt.sin(x)).result()
        return a * x

    close(nt.jvp(function, POINT, np.ones(4))[1], np.cos(POINT) * POINT + np.sin(POINT))
    total = lambda x: function(x).sum()  # noqa: E731
    close(nt.hvp(total, POINT, np.ones(4)), nt.hessian(total)(POINT) @ np.ones(4))


def test_streaming_memory_does_not_grow_with_large_arrays():
    def chain(x):
        for _ in range(200):
            x = nt.sin(x)
        return x

    x = np.ones(100_000)
    tracemalloc.start()
    nt.jvp(chain, x, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 12 * x.nbytes


def test_a_vjp_inside_of_a_streamed_function_can_be_pulled_later():
    def function(x):
        y, pull = nt.vjp(lambda z: z * z * z, x)
        for _ in range(300):
            y = y + 0.0
        return pull(y)[0]

    # x**3 * 3 x**2
    assert nt.jvp(function, 2.0, 1.0) == (96.0, 240.0)


def test_an_inner_gradient_that_uses_an_outer_intermediate_streams():
    def function(x):
        y = x * x
        return nt.grad(lambda z: z * y)(x)

    assert nt.jvp(function, 2.0, 1.0) == (4.0, 4.0)


def test_an_inner_tape_streams():
    def function(x):
        with nt.Tape() as tape:
            y = x * x * x
        return tape.gradient(y, x)

    assert nt.jvp(function, 2.0, 1.0) == (12.0, 12.0)


# Nesting.


def forward_derivative(function):
    return lambda x: nt.jvp(function, x, nt.ones_like(x) if isinstance(x, nt.Tensor) else 1.0)[1]


def jacobian_forward(function):
    return nt.jacobian(function, mode="forward")


def jacobian_reverse(function):
    return nt.jacobian(function, mode="reverse")


WAYS = {"grad": nt.grad, "jvp": forward_derivative, "forward": jacobian_forward, "reverse": jacobian_reverse}


@pytest.mark.parametrize("ways", list(itertools.product(WAYS, repeat=3)), ids="-".join)
def test_all_nestings_of_three_give_the_third_derivative(ways):
    def function(x):
        return nt.exp(x * 0.5) * nt.sin(x) + x**4 / (1.0 + x * x)

    expected = nt.grad(nt.grad(nt.grad(function)))(0.7)
    derivative = function
    for way in ways:
        derivative = WAYS[way](derivative)
    close(derivative(0.7), expected)


def test_six_gradients_of_a_power():
    derivative = function = lambda x: x**7
    for order in range(1, 7):
        derivative = nt.grad(derivative) if order % 2 else forward_derivative(derivative)
        close(derivative(1.5), math.factorial(7) / math.factorial(7 - order) * 1.5 ** (7 - order))
    assert function(2.0) == 128.0


@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_no_perturbation_confusion(outer, inner):
    # d/dx [x * d/dy (x + y)] = 1 at x = 1: confusing the two gives 2.
    assert WAYS[outer](lambda x: x * WAYS[inner](lambda y: x + y)(1.0))(1.0) == 1.0
    # d/dx [x * d/dy (x * y)] = 2 x.
    assert WAYS[outer](lambda x: x * WAYS[inner](lambda y: x * y)(2.0))(3.0) == 6.0
    # The inner point depends on the outer one: d/dx [d/dy (x y**2) at y = x] = 4 x.
    assert WAYS[outer](lambda x: WAYS[inner](lambda y: x * y * y)(x * 1.0))(3.0) == 12.0


@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", ["grad", "jvp", "reverse"])
def test_an_argmin_inside_of_an_argmin(outer, inner):
    def argmin(function, start, rate, steps):
        x = start
        for _ in range(steps):
            x = x - rate * WAYS[inner](function)(x)
        return x

    def best_response(x):
        # argmin over y of (y - x**2)**2 is x**2.
        return argmin(lambda y: (y - x * x) ** 2, 0.0 * x, 0.5, 3)

    def outer_loss(x):
        return (best_response(x) - 4.0) ** 2

    # d/dx (x**2 - 4)**2 = 4 x (x**2 - 4)
    close(WAYS[outer](outer_loss)(1.5), 4 * 1.5 * (1.5**2 - 4.0))
    solution = 1.5
    for _ in range(60):
        solution = solution - 0.02 * WAYS[outer](outer_loss)(solution)
    close(solution, 2.0, 1e-8)


def test_forward_over_reverse_is_the_hessian_vector_product():
    tangent = np.array([1.0, -2.0, 0.5, 3.0])
    expected = nt.hessian(bowl)(POINT) @ tangent
    close(nt.hvp(bowl, POINT, tangent), expected)
    close(nt.grad(lambda x: (nt.grad(bowl)(x) * tangent).sum())(POINT), expected)
    close(nt.grad(lambda x: nt.jvp(bowl, x, tangent)[1])(POINT), expected)


def test_hvp_of_several_arguments():
    def function(x, y):
        return (x * x * y).sum()

    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    by_x, by_y = nt.hvp(function, (x, y), (a, b))
    close(by_x, 2 * y * a + 2 * x * b)
    close(by_y, 2 * x * a)


def test_third_derivatives_by_nested_jacobians():
    third = nt.jacobian(nt.hessian(lambda x: (x**3).sum() + x[0] * x[1] * x[2]))(POINT)
    expected = np.zeros((4, 4, 4))
    expected[range(4), range(4), range(4)] = 6.0
    for order in itertools.permutations(range(3)):
        expected[order] = 1.0
    close(third, expected)


# Jacobians and Hessians.


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 100])
def test_every_mode_gives_the_same_jacobian(mode, chunk_size):
    jacobian = nt.jacobian(curve, mode=mode, chunk_size=chunk_size)(POINT)
    y = np.tanh(MATRIX @ POINT)
    expected = (1 - y * y)[:, None] * MATRIX * POINT[:3, None] + y[:, None] * np.eye(3, 4) + 1.0
    close(jacobian, expected)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_every_mode_gives_the_same_hessian(mode):
    hessian = nt.hessian(bowl, mode=mode, chunk_size=3)(POINT)
    close(hessian, nt.jacobian(nt.grad(bowl), mode="reverse")(POINT))
    close(hessian, hessian.T)


def test_a_jacobian_of_trees_has_the_outputs_structure_outside():
    def function(x, y):
        return {"a": x["u"] * y, "b": (x["v"].sum() * y, x["u"].sum())}

    x = {"u": np.array([1.0, 2.0]), "v": np.array([3.0, 4.0, 5.0])}
    found = nt.jacobian(function, argnums=(0, 1))(x, 2.0)
    by_x, by_y = found["a"]
    close(by_x["u"], 2.0 * np.eye(2))
    close(by_x["v"], np.zeros((2, 3)))
    close(by_y, [1.0, 2.0])
    by_x, by_y = found["b"][0]
    close(by_x["v"], [2.0, 2.0, 2.0])
    assert by_y == 12.0
    by_x, by_y = found["b"][1]
    close(by_x["u"], [1.0, 1.0])
    assert by_y == 0.0


def test_a_hessian_of_several_arguments_is_a_matrix_of_blocks():
    x, y = np.array([1.0, 2.0]), np.array([3.0])
    ((xx, xy), (yx, yy)) = nt.hessian(lambda x, y: (x * x).sum() * y[0] ** 2, argnums=(0, 1))(x, y)
    close(xx, 18.0 * np.eye(2))
    close(xy, [[12.0], [24.0]])
    close(yx, [[12.0, 24.0]])
    close(yy, [[10.0]])


def test_jacobian_and_hessian_have_aux():
    jacobian, aux = nt.jacobian(lambda x: (x * x, "note"), has_aux=True)(np.array([3.0]))
    assert (jacobian.tolist(), aux) == ([[6.0]], "note")
    hessian, aux = nt.hessian(lambda x: ((x * x).sum(), "note"), has_aux=True)(np.array([3.0]))
    assert (hessian.tolist(), aux) == ([[2.0]], "note")


def test_numbers_in_give_numbers_out():
    assert nt.jacobian(lambda x: x * x)(3.0) == 6.0
    assert nt.hessian(lambda x: x**3)(2.0) == 12.0
    assert nt.jacobian(lambda x: nt.stack([x, x * x]))(3.0).tolist() == [1.0, 6.0]


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16, nt.float32, nt.float64])
@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed"])
def test_jacobians_have_the_dtype_of_the_argument(dtype, mode):
    jacobian = nt.jacobian(lambda x: x * x, mode=mode)(nt.tensor([1.0, 2.0], dtype=dtype))
    assert jacobian.dtype == dtype
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_empty_arguments_have_empty_jacobians():
    assert nt.jacobian(lambda x: x * 2.0)(np.zeros(0)).shape == (0, 0)
    assert nt.jacobian(lambda x: x.sum())(np.zeros((2, 0))).shape == (2, 0)


def test_a_linear_function_has_a_zero_hessian():
    assert nt.hessian(lambda x: (MATRIX @ x).sum())(POINT).tolist() == np.zeros((4, 4)).tolist()


def test_jacobians_of_captured_parameters_are_differentiated():
    weight = nt.tensor([2.0, 3.0], dtype=nt.float64, requires_grad=True)
    jacobian = nt.jacobian(lambda x: weight * x * x)(nt.tensor([1.0, 2.0], dtype=nt.float64))
    (jacobian**2).sum().backward()
    # The diagonal is 2 w x.
    close(weight.grad.numpy(), 8 * weight.numpy() * np.array([1.0, 4.0]))


def test_elementwise_grad_is_the_diagonal():
    x = np.array([[0.1, 0.2], [0.3, 0.4]])
    close(nt.elementwise_grad(lambda x: nt.exp(x) * x)(x), np.exp(x) * (1 + x))
    by_x, by_y = nt.elementwise_grad(lambda x, y: x * y, argnums=(0, 1))(x, 2 * x)
    close(by_x, 2 * x)
    close(by_y, x)


def test_scalar_results_of_a_jacobian_are_its_gradient():
    close(nt.jacobian(bowl)(POINT), nt.grad(bowl)(POINT))


# The scheduler.


def bottleneck(x):
    rng = np.random.default_rng(1)
    down, up = rng.normal(size=(3, len(x))), rng.normal(size=(len(x), 3))
    return nt.sin(up @ nt.tanh(down @ nt.cos(x)))


def count_members(monkeypatch):
    """Count the tangents and cotangents that batched sweeps carry."""
    from numtape.core import jacobian as module

    counts = {"forward": 0, "reverse": 0}

    def counting(name, original):
        def sweep(seeds, *args, **kwargs):
            counts[name] += len(seeds[0][1].members)
            return original(seeds, *args, **kwargs)

        return sweep

    for name in counts:
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    return counts


def test_a_bottleneck_takes_three_sweeps_each_way(monkeypatch):
    counts = count_members(monkeypatch)
    scheduler = nt.HybridScheduler()
    x = np.linspace(0.1, 1.0, 1000)
    mixed = nt.jacobian(bottleneck, scheduler=scheduler)(x)
    assert counts == {"forward": 3, "reverse": 3}
    decision = scheduler.last_decision
    assert decision.mode is nt.SchedulingStrategy.MIXED
    assert (decision.chosen.tangents, decision.chosen.cotangents, decision.chosen.cut.width) == (3, 3, 3)
    close(mixed, nt.jacobian(bottleneck, mode="reverse")(x))
    assert counts == {"forward": 3, "reverse": 1003}
    close(mixed, nt.jacobian(bottleneck, mode="forward")(x))
    assert counts == {"forward": 1003, "reverse": 1003}


def test_without_mixed_mode_a_bottleneck_is_swept_one_way(monkeypatch):
    counts = count_members(monkeypatch)
    scheduler = nt.HybridScheduler(nt.SchedulerConfig(enable_mixed_mode=False))
    nt.jacobian(bottleneck, scheduler=scheduler)(np.linspace(0.1, 1.0, 50))
    assert counts == {"forward": 0, "reverse": 50}


@pytest.mark.parametrize(
    ("inputs", "outputs", "mode", "reason"),
    [
        (2, 20, "forward", "since outputs / inputs = 10 is at least 10"),
        (20, 2, "reverse", "since outputs / inputs = 0.1 is at most 0.1"),
        (10, 9, "reverse", "the cheaper of the plain modes"),
        (9, 10, "forward", "the cheaper of the plain modes"),
    ],
)
def test_the_thresholds_choose_plain_modes(inputs, outputs, mode, reason):
    matrix = np.ones((outputs, inputs))
    scheduler = nt.HybridScheduler()
    nt.jacobian(lambda x: matrix @ x, scheduler=scheduler)(np.ones(inputs))
    assert (scheduler.last_decision.mode.value, scheduler.last_decision.reason) == (mode, reason)


def test_explain_prints_the_alternatives():
    scheduler = nt.HybridScheduler()
    assert scheduler.explain() == "no Jacobian was computed yet"
    nt.jacobian(lambda x: nt.exp(np.ones((2, 4)) @ x), scheduler=scheduler)(np.ones(4))
    assert scheduler.explain() == (
        "Jacobian of 2 outputs by 4 inputs: reverse, the cheaper of the plain modes\n"
        "    mode              tangents  cotangents  multiply-adds\n"
        "    forward                  4           0            128\n"
        "->  reverse                  0           2             64\n"
        "    mixed (cut of 2)         2           2             80"
    )


def test_a_cut_may_hold_several_values():
    # Two paths side by side, each through a single number.
    def function(x):
        a, b = nt.tanh(x[:20].sum()), nt.sin(x[20:].sum())
        return nt.concat([a * np.arange(15.0), b * a * np.arange(30.0)])

    scheduler = nt.HybridScheduler()
    x = np.linspace(0.0, 1.0, 40)
    mixed = nt.jacobian(function, scheduler=scheduler)(x)
    assert scheduler.last_decision.chosen.cut.width == 2
    close(mixed, nt.jacobian(function, mode="reverse")(x))


def test_a_value_that_skips_the_bottleneck_widens_it():
    def function(x):
        return nt.tanh(x.sum()) * np.ones(10) + x

    scheduler = nt.HybridScheduler()
    x = np.linspace(0.0, 1.0, 10)
    found = nt.jacobian(function, scheduler=scheduler)(x)
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.REVERSE
    close(found, np.full((10, 10), 1 - np.tanh(5.0) ** 2) + np.eye(10))
    close(nt.jacobian(function, mode="mixed")(x), found)


def test_mixed_mode_within_an_op_with_several_outputs():
    def function(x):
        u, s, vh = nt.svd(x.reshape(2, 2))
        return nt.concat([u.reshape(-1) * s.sum(), vh.reshape(-1)])

    expected = nt.jacobian(function, mode="reverse")(POINT)
    close(nt.jacobian(function, mode="mixed")(POINT), expected)
    close(nt.jacobian(function, mode="forward", chunk_size=1)(POINT), expected)


# Tapes.


def test_forward_gradient_gives_all_derivatives_or_a_directional_one():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([1.0, 2.0, 3.0]))
    y = nt.stack([x.sum(), (x * x).sum()])
    assert tape.forward_gradient(x, y).tolist() == [[1.0, 1.0, 1.0], [2.0, 4.0, 6.0]]
    assert tape.forward_gradient(x, y, tangent=nt.tensor([1.0, 0.0, 1.0])).tolist() == [2.0, 8.0]
    # Nothing is consumed.
    assert tape.jacobian(y, x).tolist() == [[1.0, 1.0, 1.0], [2.0, 4.0, 6.0]]
    assert tape.gradient(y, x).tolist() == [3.0, 5.0, 7.0]


def test_jacobian_of_a_tape_takes_several_sources():
    with nt.Tape() as tape:
        x, y = nt.tensor([1.0, 2.0]), nt.tensor(3.0)
        z = x * y
    by_x, by_y = tape.jacobian(z, [x, y])
    assert by_x.tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert by_y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_jacobian_by_an_intermediate(mode):
    with nt.Tape() as tape:
        x = nt.tensor([1.0, 2.0])
        y = x * x
        z = y * y + x
    assert tape.jacobian(z, y, mode=mode).tolist() == [[2.0, 0.0], [0.0, 8.0]]


def test_an_outer_tape_differentiates_a_jacobian():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = x**3
        total = inner.jacobian(y, x).sum() + inner.forward_gradient(x, y, tangent=nt.ones(2)).sum()
    assert outer.gradient(total, x).tolist() == [12.0, 24.0]


# Bad input: a message that names the function, the argument and the repair.


def float32_tensor():
    return nt.tensor([1.0, 2.0], requires_grad=True)


BAD = {
    "a tangent of another shape": (
        lambda: nt.jvp(lambda x: x, np.ones(3), np.ones(2)),
        ShapeError,
        "jvp: tangent 0 has shape (2,) and its argument (3,); they must be equal.",
    ),
    "a complex tangent": (
        lambda: nt.jvp(lambda x: x, np.ones(2), np.ones(2, complex)),
        OperandError,
        "jvp: tangent 0 is a ndarray (complex128); it must be real numbers.",
    ),
    "a tangent of integers": (
        lambda: nt.jvp(lambda x: x, nt.ones(2), nt.tensor([1, 2])),
        DtypeError,
        "jvp: tangent 0 has dtype int64; use astype(float32).",
    ),
    "a tangent of text": (
        lambda: nt.jvp(lambda x: x, np.ones(2), "up"),
        OperandError,
        "jvp: tangent 0 is a str (<U2); it must be real numbers.",
    ),
    "too few tangents": (
        lambda: nt.jvp(lambda x, y: x * y, (1.0, 2.0), (1.0,)),
        ArgumentError,
        "jvp: the call has 2 arguments, but 1 tangents were given; give one for each argument.",
    ),
    "a tangent of another float": (
        lambda: nt.jvp(lambda x: x, np.ones(2, np.float32), np.ones(2)),
        DtypeError,
        "jvp: tangent 0 has dtype float64 and its argument float32; use astype(float32).",
    ),
    "a function that returns None": (
        lambda: nt.jvp(lambda x: None, 1.0, 1.0),
        OperandError,
        "jvp: <lambda> returned None; it must return a tensor or a tree of them.",
    ),
    "an array computed beside the tape": (
        lambda: nt.grad(lambda x: (x.numpy() ** 2).sum())(np.ones(2)),
        NotConnectedError,
        None,
    ),
    "elementwise_grad by one argument twice": (
        lambda: nt.elementwise_grad(lambda x, y: x * y, (0, 0))(np.ones(2), np.ones(2)),
        ArgumentError,
        "elementwise_grad: argnums is (0, 0); each argument may be named once.",
    ),
    "elementwise_grad of a pair": (
        lambda: nt.elementwise_grad(lambda x: (x, x))(np.ones(2)),
        OperandError,
        "elementwise_grad: <lambda> returned tuple; it must return a tensor.",
    ),
    "hvp of a vector": (
        lambda: nt.hvp(lambda x: x, np.ones(2), np.ones(2)),
        ShapeError,
        "hvp: <lambda> returned shape (2,); a gradient is of a scalar. Use sum(), or nt.vjp for other cotangents.",
    ),
    "an integer argument of jvp": (
        lambda: nt.jvp(lambda x: x, np.array([1, 2]), np.ones(2)),
        DtypeError,
        "jvp: argument 0 has dtype int64, which has no derivative; use astype(float).",
    ),
    "a function that returns text": (
        lambda: nt.jacobian(lambda x: "text")(np.ones(2)),
        OperandError,
        "jacobian: <lambda> returned str; it must return a tensor.",
    ),
    "a function that returns integers": (
        lambda: nt.jacobian(lambda x: nt.argmax(x))(np.ones(2)),
        DtypeError,
        "jacobian: <lambda> returned a tensor of int64, which has no derivative; it must return floats.",
    ),
    "jvp without a function": (
        lambda: nt.jvp(np.ones(2), np.ones(2), np.ones(2)),
        OperandError,
        "jvp: wants a function, not ndarray; nt.jvp differentiates functions, and backward() a loss that is computed "
        "already.",
    ),
    "an unknown mode": (
        lambda: nt.jacobian(lambda x: x, mode="sideways"),
        ArgumentError,
        "jacobian: mode is 'sideways'; it must be one of 'auto', 'forward', 'reverse', 'mixed'.",
    ),
    "a chunk of nothing": (
        lambda: nt.jacobian(lambda x: x, chunk_size=0),
        ArgumentError,
        "jacobian: chunk_size is 0; it must be a positive integer, or None.",
    ),
    "a config in the place of a scheduler": (
        lambda: nt.hessian(lambda x: x, scheduler=nt.SchedulerConfig()),
        OperandError,
        "hessian: scheduler is a SchedulerConfig; it must be a HybridScheduler.",
    ),
    "a mode and a scheduler": (
        lambda: nt.jacobian(lambda x: x, mode="forward", scheduler=nt.HybridScheduler()),
        ArgumentError,
        "jacobian: give either mode or scheduler; a scheduler's mode is set by its SchedulerConfig.",
    ),
    "a Hessian of a vector": (
        lambda: nt.hessian(lambda x: x * x)(np.ones(2)),
        ShapeError,
        "hessian: <lambda> returned shape (2,); a Hessian is of a scalar. Use sum(), or nt.jacobian(nt.jacobian(f)) "
        "for all second derivatives.",
    ),
    "elementwise_grad of a function that is not elementwise": (
        lambda: nt.elementwise_grad(lambda x: x.sum())(np.ones(2)),
        ShapeError,
        "elementwise_grad: <lambda> takes shape (2,) to (); an elementwise function keeps the shape. Use nt.jacobian.",
    ),
    "a gradient that is lost": (
        lambda: nt.jvp(lambda x: nt.tensor(math.sin(x)), 1.0, 1.0),
        NotConnectedError,
        None,
    ),
    "a jacobian by an unconnected source": (
        lambda: nt.Tape().jacobian(float32_tensor() * 2.0, float32_tensor()),
        NotConnectedError,
        "jacobian: the target does not depend on tensor[2]; watch it before it is used, and compute with nt or np "
        "functions outside of no_grad.",
    ),
    "a forward gradient by an array": (
        lambda: nt.Tape().forward_gradient(np.ones(2), float32_tensor() * 2.0),
        OperandError,
        "forward_gradient: the source must be a tensor, but ndarray was given.",
    ),
    "thresholds the wrong way round": (
        lambda: nt.SchedulerConfig(forward_mode_threshold=0.1, reverse_mode_threshold=10.0),
        ArgumentError,
        "SchedulerConfig: reverse_mode_threshold is 10.0 and forward_mode_threshold 0.1; the ratio of outputs to "
        "inputs for reverse mode must be the lower one.",
    ),
    "an unknown strategy": (
        lambda: nt.SchedulerConfig(strategy="best"),
        ArgumentError,
        "SchedulerConfig: strategy is 'best'; it must be one of 'auto', 'forward', 'reverse', 'mixed'.",
    ),
    "a threshold of zero": (
        lambda: nt.SchedulerConfig(forward_mode_threshold=0),
        ArgumentError,
        "SchedulerConfig: forward_mode_threshold is 0; it must be a positive number.",
    ),
    "a scheduler of a string": (
        lambda: nt.HybridScheduler("auto"),
        OperandError,
        "HybridScheduler: wants a SchedulerConfig, not str.",
    ),
    "a batch that leaves the tape": (
        lambda: BatchedTensor.of(np.ones((2, 3))).item(),
        LeavesTapeError,
        "item(): this tensor stands for a batch of values while a derivative is computed, so it has no single value; "
        "compute with nt or np functions, or take the derivative in another mode.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_to_do(case):
    call, kind, message = BAD[case]
    with pytest.raises(kind) as caught:
        call()
    if message is not None:
        assert str(caught.value) == message


# Hooks.


def test_a_hook_sees_and_replaces_the_gradient_of_a_leaf():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    handle = x.register_hook(lambda g: g * 10.0)
    (x * x).sum().backward()
    assert (seen, x.grad.tolist()) == ([[2.0, 4.0]], [20.0, 40.0])
    handle.remove()
    handle.remove()
    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_hook_on_an_intermediate_changes_what_goes_on():
    x = nt.tensor([1.0, -2.0], requires_grad=True)
    y = x * 3.0
    y.retain_grad()
    y.register_hook(lambda g: nt.clip(g, -1.0, 1.0))
    (y * y).sum().backward()
    assert y.grad.tolist() == [1.0, -1.0]
    assert x.grad.tolist() == [3.0, -3.0]


def test_a_hook_sees_the_whole_gradient_once():
    x = nt.tensor(2.0, requires_grad=True)
    y = x * 1.0
    calls = []
    y.register_hook(lambda g: calls.append(float(g)))
    (y * y + y).backward()
    assert calls == [5.0]


def test_hooks_act_on_gradients_of_tapes_and_in_second_order():
    x = nt.tensor(2.0, dtype=nt.float64)
    with nt.Tape() as outer:
        outer.watch(x)
        with nt.Tape() as inner:
            y = x**3
            y.register_hook(lambda g: g * 2.0)
        first = inner.gradient(y, x)
    assert first.item() == 24.0
    assert outer.gradient(first, x).item() == 24.0


def test_jacobians_pass_hooks_by():
    def function(x):
        y = x * x
        y.register_hook(lambda g: g * 100.0)
        return y

    for mode in ("forward", "reverse", "mixed"):
        assert nt.jacobian(function, mode=mode)(3.0) == 6.0
    assert nt.grad(function)(3.0) == 600.0


def test_bad_hooks_raise():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(OperandError) as caught:
        x.register_hook("print")
    assert str(caught.value) == "register_hook: a hook is a function of the gradient, not str."
    with pytest.raises(GradientError) as caught:
        nt.tensor(1.0).register_hook(print)
    assert str(caught.value) == (
        "register_hook: the tensor is untracked, so no gradient will arrive; make it depend on a tensor with "
        "requires_grad=True."
    )

    def halve(g):
        return g[:1]

    x.register_hook(halve)
    with pytest.raises(GradientError) as caught:
        (x * x).sum().backward()
    assert str(caught.value) == (
        "register_hook: halve returned Tensor of shape (1,) for a gradient of shape (2,) and dtype float32; a hook "
        "returns None or a tensor like the gradient."
    )


# Memory.


def smooth(w):
    return lambda x: nt.sin(w @ nt.exp(-((w @ nt.tanh(w @ x)) ** 2)) + x) * nt.cos(x)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("order", [1, 2])
def test_memory_is_at_most_three_times_the_result(mode, order):
    w = np.random.default_rng(0).normal(size=(200, 200)) / 14
    x = np.linspace(0.0, 1.0, 200)
    function = smooth(w)
    derivative = (
        nt.jacobian(function, mode=mode) if order == 1 else nt.hessian(lambda x: (function(x) ** 2).sum(), mode=mode)
    )
    derivative(x)
    tracemalloc.start()
    result = derivative(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 3 * result.nbytes


# Structures.


def test_dicts_pair_by_key_not_by_order():
    def function(p):
        return p["a"] * 10.0 + p["b"]

    primals = {"a": np.array([1.0]), "b": np.array([2.0])}
    tangents = {"b": np.array([0.0]), "a": np.array([1.0])}
    assert nt.jvp(function, primals, tangents)[1].tolist() == [10.0]
    _, pull = nt.vjp(lambda x: {"a": x * 10.0, "b": x}, np.array([1.0]))
    assert pull({"b": np.array([1.0]), "a": np.array([0.0])})[0].tolist() == [1.0]


def test_another_structure_of_tangents_is_named():
    primals = {"a": np.ones(1), "b": np.ones(1)}
    with pytest.raises(ArgumentError) as caught:
        nt.jvp(lambda p: p["a"], primals, {"a": np.ones(1), "c": np.ones(1)})
    assert str(caught.value) == (
        "jvp: the tangents have another structure than the arguments; tree: a dict of 'a', 'b' is wanted, not one of "
        "'a', 'c'."
    )
    with pytest.raises(ArgumentError) as caught:
        nt.jvp(lambda p: p["a"], primals, [np.ones(1), np.ones(1)])
    assert str(caught.value) == (
        "jvp: the tangents have another structure than the arguments; tree: a dict of 'a', 'b' is wanted, not list."
    )


@pytest.mark.parametrize(
    "derivative",
    [
        nt.jacobian(lambda x: nt.cumprod(1.0 + 0.01 * x, axis=0)),
        nt.jacobian(lambda x: nt.softmax(x), mode="forward"),
        nt.hessian(lambda x: nt.logsumexp(x * x)),
    ],
    ids=["cumprod", "softmax", "logsumexp"],
)
def test_memory_is_at_most_five_times_the_result_where_rules_need_much(derivative):
    x = np.linspace(0.0, 1.0, 300)
    derivative(x)
    tracemalloc.start()
    result = derivative(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 5 * result.nbytes
