"""What a function captures, returns aside or leaves behind: nothing of it is lost, and nothing lingers."""

import contextvars
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from functions import close

import numtape as nt
from numtape import arguments
from numtape.core import forward, gradients, graph, reverse
from numtape.errors import GradientError

INNER = {
    "grad": lambda f: nt.grad(f)(1.0),
    "jvp": lambda f: nt.jvp(f, 1.0, 1.0)[1],
    "jacobian": lambda f: nt.jacobian(f)(1.0),
    "vjp": lambda f: nt.vjp(f, 1.0)[1](1.0)[0],
    "derivatives": lambda f: nt.derivatives(f, 1.0, 1)[1],
    "elementwise_grad": lambda f: nt.elementwise_grad(f)(1.0),
}
OUTER = {
    "grad": lambda f, x: nt.grad(f)(x),
    "jvp": lambda f, x: nt.jvp(f, x, 1.0)[1],
    "jacobian": lambda f, x: nt.jacobian(f)(x),
}


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_transform_in_another_thread_keeps_the_outer_derivative(outer, inner):
    # d/dx [x * d/dy (x y**2) at y = 1] = d/dx 2 x**2.
    def function(x):
        return in_a_thread(lambda: INNER[inner](lambda y: x * y * y)) * x

    found = OUTER[outer](function, 3.0)
    assert found == 12.0
    assert isinstance(found, float)


def test_a_captured_intermediate_keeps_the_outer_derivative_in_another_thread():
    def function(x):
        scaled = 2.0 * x
        return in_a_thread(lambda: nt.hvp(lambda y: scaled * y**3, 1.0, 1.0)) * x

    # d/dx 12 x**2
    assert nt.grad(function)(3.0) == nt.jvp(function, 3.0, 1.0)[1] == 72.0


@pytest.mark.parametrize("inner", INNER)
def test_arrays_give_tensors_where_a_captured_tensor_requires_a_gradient(inner):
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)
    slope = INNER[inner](lambda y: w * y * y)
    assert isinstance(slope, nt.Tensor)
    (slope * w).backward()
    assert w.grad.item() == 12.0


def test_a_loss_of_derivatives_at_array_points_trains_what_is_captured():
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)
    t = np.array([1.0, 2.0, 3.0])
    slope = nt.elementwise_grad(lambda t: nt.sin(w * t))(t)
    (((slope - 1.0) ** 2).mean() + (w - 1.0) ** 2).backward()
    errors = 3.0 * np.cos(3.0 * t) - 1.0
    close(w.grad.item(), np.mean(2.0 * errors * (np.cos(3.0 * t) - 3.0 * t * np.sin(3.0 * t))) + 4.0)


@pytest.mark.parametrize("inner", INNER)
def test_a_tape_that_only_watches_sees_through_transforms_of_arrays(inner):
    tape = nt.GradientTape()
    w = tape.watch(nt.tensor(3.0, dtype="float64"))
    assert tape.gradient(INNER[inner](lambda y: w * y * y) * w, w).item() == 12.0


@pytest.mark.parametrize("inner", INNER)
def test_arrays_give_arrays_in_no_grad_whatever_is_captured(inner):
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)
    with nt.no_grad():
        assert type(INNER[inner](lambda y: w * y * y)) is float


def test_a_captured_tensor_that_does_not_reach_the_outputs_changes_nothing():
    w = nt.tensor(3.0, requires_grad=True)
    seen = []

    def function(x):
        seen.append((w * w).item())
        return (x * x).sum()

    assert type(nt.grad(function)(np.ones(2))) is np.ndarray
    assert type(nt.jvp(function, np.ones(2), np.ones(2))[1]) is float


def test_a_function_that_catches_errors_is_not_cut_short():
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)

    def function(x):
        try:
            for _ in range(600):  # More than wait to be streamed.
                x = x * (w / 3.0)
        except nt.errors.NumtapeError:
            x = x * 100.0
        return x * x

    _, slope = nt.jvp(function, 2.0, 1.0)
    assert slope.item() == 4.0


def test_a_function_that_makes_other_errors_of_errors_runs_again():
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)

    def function(x):
        try:
            for _ in range(600):
                x = x * (w / 3.0)
        except Exception as error:
            raise RuntimeError("the model failed") from error
        return x * x

    assert nt.jvp(function, 2.0, 1.0)[1].item() == 4.0
    assert nt.hvp(function, 2.0, 1.0).item() == 2.0


def test_a_function_whose_thread_fails_runs_again(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)

    def function(x):
        found = []
        context = contextvars.copy_context()
        inner = nt.grad(lambda y: y * y * x * w)
        thread = threading.Thread(target=lambda: context.run(lambda: found.append(inner(2.0))))
        thread.start()
        thread.join()
        return found[0] * x

    assert nt.jvp(function, 2.0, 1.0)[1].item() == 48.0
    assert [each.item() for each in nt.derivatives(function, 2.0, 2)] == [48.0, 48.0, 24.0]


def test_the_argument_of_a_transform_inside_is_nobodys_captured_tensor():
    runs = []

    def function(x):
        runs.append(x)
        return nt.grad(lambda y: y * y * x)(3.0) * x

    assert nt.jvp(function, 2.0, 1.0) == (24.0, 24.0)
    assert len(runs) == 1


def test_a_pull_that_outlives_a_stream_is_right():
    def function(x):
        _, pull = nt.vjp(lambda y: y * y * x, 3.0)
        for _ in range(600):
            x = x * 1.0
        return pull(1.0)[0] * x

    assert nt.jvp(function, 2.0, 1.0) == (24.0, 24.0)


def test_a_function_that_returns_a_captured_tensor_returns_it():
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)
    value, gradient = nt.value_and_grad(lambda x: w)(1.0)
    assert value is w
    assert gradient.item() == 0.0


def test_the_source_of_a_transform_is_not_tracked_after_it():
    kept = []
    assert nt.grad(lambda x: kept.append(x) or x * x)(3.0) == 6.0
    assert nt.grad(lambda y: kept[0] * y)(1.0) == 3.0
    assert kept[0].node is None


def test_jvp_records_nothing_in_no_grad_although_its_tangent_is_tracked():
    tangent = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.no_grad():
        _, slope = nt.jvp(lambda x: x * x, nt.ones(2), tangent)
    assert slope.node is None
    assert nt.jvp(lambda x: x * x, nt.ones(2), tangent)[1].node is not None


AUX = {
    "grad": lambda f, x: nt.grad(f, has_aux=True)(x)[1],
    "value_and_grad": lambda f, x: nt.value_and_grad(f, has_aux=True)(x)[0][1],
    "jvp": lambda f, x: nt.jvp(f, x, np.ones(2), has_aux=True)[2],
    "vjp": lambda f, x: nt.vjp(f, x, has_aux=True)[2],
    "jacobian": lambda f, x: nt.jacobian(f, has_aux=True)(x)[1],
    "hessian": lambda f, x: nt.hessian(f, has_aux=True)(x)[1],
    "hvp": lambda f, x: nt.hvp(f, x, np.ones(2), has_aux=True)[1],
}


@pytest.mark.parametrize("name", AUX)
@pytest.mark.parametrize("make", [np.ones, lambda n: nt.ones(n, dtype="float64")], ids=["array", "tensor"])
def test_auxiliary_tensors_are_values(name, make):
    aux = AUX[name](lambda x: ((x * x).sum(), {"twice": 2.0 * x, "x": x, "note": "seen"}), make(2))
    assert np.asarray(aux["twice"]).tolist() == [2.0, 2.0]
    assert np.asarray(aux["x"]).tolist() == [1.0, 1.0]
    assert aux["note"] == "seen"
    # They start no gradient of their own.
    assert nt.grad(lambda x: (x * aux["twice"]).sum())(np.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", AUX)
def test_auxiliary_tensors_keep_the_graph_of_what_is_captured(name):
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)
    AUX[name](lambda x: ((x * x).sum(), w * x), np.ones(2)).sum().backward()
    assert w.grad.item() == 2.0


def test_auxiliary_objects_are_passed_through():
    model = nt.nn.Linear(2, 2)
    assert nt.grad(lambda x: ((x * x).sum(), [model, 1]), has_aux=True)(np.ones(2))[1][0] is model


def test_auxiliary_tensors_are_differentiated_by_what_is_around():
    def function(x):
        _, aux = nt.grad(lambda y: (y * y, x * y), has_aux=True)(2.0)
        return aux

    assert nt.grad(function)(3.0) == 2.0


@pytest.mark.parametrize("make", [np.array, lambda x: nt.tensor(x, dtype="float64")], ids=["array", "tensor"])
def test_writes_after_vjp_do_not_change_its_cotangents(make):
    x, factor = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    y, pull = nt.vjp(lambda x, tree: nt.exp(x) * tree[0], make(x) if make is not np.array else x, [factor])
    expected = np.exp([1.0, 2.0]) * [3.0, 4.0]
    if make is np.array:
        x *= 10.0
    factor *= 10.0
    y *= 10.0
    close(np.asarray(pull(np.ones(2))[0]), expected)


def test_jvp_by_some_arguments():
    def power(x, n, scale):
        return scale * x**n

    assert nt.jvp(power, (2.0, 3, 5.0), 1.0, argnums=0) == (40.0, 60.0)
    assert nt.jvp(power, (2.0, np.array(3), 5.0), (1.0, 1.0), argnums=(0, -1)) == (40.0, 68.0)
    assert nt.jvp(power, (2.0, np.array(3), 5.0), (1.0, None, 1.0)) == (40.0, 68.0)
    rows = nt.jvp(lambda x, rows: x[rows], (np.arange(3.0), np.array([2, 0])), (np.array([1.0, 2.0, 3.0]), None))
    assert [part.tolist() for part in rows] == [[2.0, 0.0], [3.0, 1.0]]


def test_tangents_and_cotangents_may_be_lists_of_numbers():
    x = np.array([1.0, 2.0, 3.0])
    assert nt.jvp(lambda x: x * x, x, [1.0, 2.0, 3.0])[1].tolist() == [2.0, 8.0, 18.0]
    assert nt.jvp(lambda x, y: x * y, (x, x), ([1, 0, 0], [0, 1, 0]))[1].tolist() == [1.0, 2.0, 0.0]
    assert nt.jvp(lambda p: p["x"] * 2.0, {"x": x}, {"x": [1.0, 0.0, 0.0]})[1].tolist() == [2.0, 0.0, 0.0]
    assert nt.vjp(lambda x: x * x, x)[1]([1.0, 0.0, 0.0])[0].tolist() == [2.0, 0.0, 0.0]
    assert nt.hvp(lambda x: (x**3).sum(), x, [1.0, 0.0, 0.0]).tolist() == [6.0, 0.0, 0.0]


def test_arrays_give_arrays_on_a_tape_that_watches_nothing_of_them():
    with nt.GradientTape():
        assert type(nt.grad(lambda x: (x * x).sum())(np.ones(2))) is np.ndarray
        assert type(nt.jacobian(lambda x: x * x)(np.ones(2))) is np.ndarray
        assert nt.grad(lambda x: x * x)(2.0) == 4.0
    w = nt.tensor(2.0)
    with nt.Tape() as tape:
        loss = nt.grad(lambda x: (x * x * w).sum())(np.ones(2)).sum()
    assert tape.gradient(loss, w).item() == 4.0


def test_a_copy_of_what_is_differentiated_by_is_refused():
    with pytest.raises(GradientError, match=r"use clone\(\) to stay on the tape"):
        nt.grad(lambda x: copy.deepcopy(x) * x)(3.0)
    w = nt.tensor([1.0], requires_grad=True)
    assert nt.grad(lambda x: (copy.deepcopy(w) * x).sum())(np.ones(1)).tolist() == [1.0]


X = np.array([1.0, 2.0, 3.0])


def by_pull_function(w):
    @nt.custom_gradient
    def tripled(x):
        return x * 3.0, lambda g: g * 3.0 * w

    return nt.grad(lambda x: tripled(x).sum())(X).sum()


def by_hook(w):
    def tripled(x):
        y = x * 3.0
        y.register_hook(lambda g: g * w)
        return y.sum()

    return nt.grad(tripled)(X).sum()


@pytest.mark.parametrize("outer", [by_pull_function, by_hook])
def test_what_a_backward_alone_captures_is_differentiated_by(outer):
    assert nt.grad(outer)(2.0) == 9.0
    assert nt.jvp(outer, 2.0, 1.0)[1] == 9.0


@pytest.mark.parametrize("derivative", ["gradient", "backward", "jacobian", "forward_gradient"])
def test_a_tape_in_another_thread_keeps_the_outer_derivative(derivative):
    def slope(x):  # d/dy sin(x y) at y = 2
        with nt.GradientTape(persistent=True) as tape:
            y = tape.watch(nt.tensor(2.0, dtype="float64"))
            z = nt.sin(x * y)
        if derivative == "backward":
            return tape.backward(z)[y]
        return tape.forward_gradient(y, z) if derivative == "forward_gradient" else getattr(tape, derivative)(z, y)

    def function(x):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(slope, x).result() * x

    expected = (-(0.7**2) * 2.0 * np.sin(1.4)) + 2 * 0.7 * np.cos(1.4)
    w = nt.tensor(0.7, dtype="float64", requires_grad=True)
    assert np.isclose(nt.grad(function)(0.7), expected, rtol=1e-12)
    assert np.isclose(nt.grad(function)(w).item(), expected, rtol=1e-12)
    assert np.isclose(nt.jvp(function, 0.7, 1.0)[1], expected, rtol=1e-12)
    assert np.isclose(nt.hessian(lambda x: function(x) * x)(0.7), nt.grad(nt.grad(lambda x: x**3 * np.cos(2 * x)))(0.7))
    assert nt.grad(slope)(0.7) != 0.0
    assert not slope(nt.tensor(0.7, dtype="float64")).requires_grad


def test_tensors_that_a_streamed_call_has_left_are_constants_later():
    work = nt.zeros(2, dtype="float64")
    cache = []

    def writes(x):
        work[0] = x * 2.0
        return (work * work).sum()

    def keeps(x):
        if not cache:
            cache.append(x * 2.0)
        return cache[0] * x

    for _ in range(2):
        assert np.isclose(nt.jvp(writes, 0.7, 1.0)[1], 5.6)
        assert np.isclose(nt.grad(writes)(0.7), 5.6)
        x = nt.tensor(0.7, dtype="float64")
        assert np.isclose(nt.jvp(writes, x, nt.ones_like(x))[1].item(), 5.6)
        assert isinstance(nt.grad(writes)(0.7), float)
    assert np.isclose(nt.jvp(keeps, 0.7, 1.0)[1], 2.8)  # The call that keeps it.
    for _ in range(2):
        assert np.isclose(nt.jvp(keeps, 0.7, 1.0)[1], 1.4)
        assert np.isclose(nt.grad(keeps)(0.7), 1.4)
        assert np.isclose(nt.jacobian(keeps)(0.7), 1.4)
        assert nt.hvp(keeps, 0.7, 1.0) == 0.0


def test_a_loop_of_inner_gradients_looks_at_each_record_a_few_times(monkeypatch):
    looked = []

    def graph_of(*args, **kwargs):
        found = graph.graph_of(*args, **kwargs)
        looked.append(len(found[0]))
        return found

    for module in (arguments, gradients, reverse, forward):
        monkeypatch.setattr(module, "graph_of", graph_of)

    def records_looked_at(derivative, steps):
        def descend(x):
            for _ in range(steps):
                x = x - 0.01 * nt.grad(lambda y: y * y)(x)
            return x

        looked.clear()
        assert np.isclose(derivative(descend), 0.98**steps)
        return sum(looked)

    x = nt.tensor(1.0, dtype="float64")
    for derivative in (lambda f: nt.grad(f)(1.0), lambda f: nt.jvp(f, x, nt.ones_like(x))[1].item()):
        assert records_looked_at(derivative, 200) <= 2.2 * records_looked_at(derivative, 100)
