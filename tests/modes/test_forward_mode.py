"""Forward mode: values and tangents, structures, and streams that store no tape."""

import collections
import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from functions import POINT, close, curve
from numpy.testing import assert_allclose

import numtape as nt
from numtape.core.context import current
from numtape.core.record import Record
from numtape.errors import (
    ArgumentError,
    StreamedError,
)


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
        "jvp: the tangents have another structure than the arguments of <lambda>; tree: a dict of 'a', 'b' is wanted, "
        "not one of 'a', 'c'."
    )
    with pytest.raises(ArgumentError) as caught:
        nt.jvp(lambda p: p["a"], primals, [np.ones(1), np.ones(1)])
    assert str(caught.value) == (
        "jvp: the tangents have another structure than the arguments of <lambda>; tree: a dict of 'a', 'b' is wanted, "
        "not list."
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


def test_a_forward_gradient_inside_of_a_streamed_derivative_is_not_lost():
    def slope(z):
        tape = nt.GradientTape()
        tape.watch(z)
        return tape.forward_gradient(z, z**3, np.ones(3))

    x = np.array([0.3, 1.2, -0.7])
    value, derivative = nt.jvp(slope, x, np.ones(3))
    assert_allclose(value, 3 * x**2, rtol=1e-12)
    assert_allclose(derivative, 6 * x, rtol=1e-12)


def test_a_jacobian_inside_of_a_streamed_derivative_is_not_lost():
    def rows(z):
        tape = nt.GradientTape()
        tape.watch(z)
        return tape.jacobian(z**3, z, mode="forward")

    x = np.array([0.3, 1.2, -0.7])
    assert_allclose(nt.jvp(rows, x, np.ones(3))[1], np.diag(6 * x), rtol=1e-12)


def test_a_thread_may_read_what_is_streamed_past():
    def function(z):
        y, out = z * 1.0, []
        thread = threading.Thread(target=lambda: out.append(nt.sin(y)))
        thread.start()
        thread.join()
        with nt.no_grad():
            pass
        return out[0] * z

    x = np.array([0.3, 1.2, -0.7])
    assert_allclose(nt.jvp(function, x, np.ones(3))[1], np.cos(x) * x + np.sin(x), rtol=1e-12)


def test_a_named_tuple_is_one_argument():
    Pair = collections.namedtuple("Pair", "a b")
    given, moved = Pair(np.array([1.0, 2.0]), 3.0), Pair(np.array([1.0, 0.0]), 1.0)
    value, derivative = nt.jvp(lambda p: p.a * p.b, given, moved)
    assert (value.tolist(), derivative.tolist()) == ([3.0, 6.0], [4.0, 2.0])
    assert nt.hvp(lambda p: (p.a * p.a * p.b).sum(), given, moved).b == 2.0


def test_draws_by_integer_seeds_are_not_remembered():
    def walk(steps):
        def function(s):
            for i in range(steps):
                s = s * 0.9 + 0.1 * nt.randn(2, dtype="float64", rng=i)
            return s

        return function

    def peak(steps):
        tracemalloc.start()
        nt.jvp(walk(steps), np.ones(2), np.ones(2))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(100)
    assert peak(4000) < 1.2 * peak(1000)
