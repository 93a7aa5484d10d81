"""Nested tapes and create_graph differentiate what tapes computed."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import (
    FreedError,
)


def tensor(*values):
    return nt.tensor(np.array(values))


def first_orders(function, x, levels, kind):
    """Return the derivatives of orders 1 to `levels` of a sum, by tapes nested that deep."""
    tapes = [kind() for _ in range(levels)]
    for tape in tapes:
        tape.__enter__()
        tape.watch(x)
    value = function(x)
    derivatives = []
    try:
        while tapes:
            tape = tapes.pop()
            tape.__exit__(None, None, None)
            value = tape.gradient(value, x)
            derivatives.append(value)
    finally:
        while tapes:
            tapes.pop().__exit__(None, None, None)
    return derivatives


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_nested_tapes_differentiate_a_cube_three_times(kind):
    x = tensor(2.0, 3.0)
    derivatives = first_orders(lambda t: t**3, x, 3, kind)
    assert [d.tolist() for d in derivatives] == [[12.0, 27.0], [12.0, 18.0], [6.0, 6.0]]
    assert not derivatives[-1].requires_grad


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_nested_tapes_differentiate_exp_three_times(kind):
    x = tensor(0.5, -1.0)
    for derivative in first_orders(nt.exp, x, 3, kind):
        np.testing.assert_allclose(derivative.numpy(), np.exp([0.5, -1.0]), rtol=1e-14)


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_nested_tapes_differentiate_tanh_three_times(kind):
    x = tensor(0.5, -1.0)
    t = np.tanh([0.5, -1.0])
    expected = [1 - t**2, -2 * t * (1 - t**2), (1 - t**2) * (6 * t**2 - 2)]
    for derivative, value in zip(first_orders(nt.tanh, x, 3, kind), expected, strict=True):
        np.testing.assert_allclose(derivative.numpy(), value, rtol=1e-13)


def third_order_of_outer_target(function, x):
    """Return the derivatives of y, of y + dy and of both and their derivative, at three levels."""
    with nt.Tape() as third:
        with nt.Tape() as second:
            with nt.Tape() as first:
                y = function(x)
            dy = first.gradient(y, x)
            target = y.sum() + (dy * dy).sum()
        d2 = second.gradient(target, x)
        last = target + (d2 * d2).sum()
    return dy, d2, third.gradient(last, x)


def numeric(function, x, step):
    """Return the gradient of a function of an array by differences of eighth order."""
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    result = np.zeros_like(x)
    for i in range(x.size):
        for k, weight in weights.items():
            for sign in (1, -1):
                moved = x.copy()
                moved.flat[i] += sign * k * step
                result.flat[i] += sign * weight * function(moved) / step
    return result


WEIGHTS = np.array([[0.3, -0.7, 0.2], [0.5, 0.4, -0.6], [-0.1, 0.8, 0.9]])
FUNCTIONS = {
    "cube": lambda t: t**3,
    "exp": lambda t: nt.exp(t * 0.5),
    "tanh": nt.tanh,
    "softmax": lambda t: nt.softmax(t) * np.array([1.0, 2.0, -1.0]),
    "matmul": lambda t: (t * t).reshape(1, 3) @ WEIGHTS @ t,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nested_tapes_are_right_for_an_outer_target_of_y_and_dy(name):
    function = FUNCTIONS[name]
    start = np.array([0.4, -0.3, 0.8])

    def total(array, level):
        """Return the target of each level, from derivatives by plain tapes one level down."""
        x = nt.tensor(array)
        if level == 1:
            return function(x).sum().item()
        dy, d2, _ = third_order_of_outer_target(function, x)
        second = function(x).sum().item() + (dy.numpy() ** 2).sum()
        return second if level == 2 else second + (d2.numpy() ** 2).sum()

    found = third_order_of_outer_target(function, nt.tensor(start))
    for level, derivative in enumerate(found, 1):
        expected = numeric(lambda array, level=level: total(array, level), start, 1e-2)
        np.testing.assert_allclose(derivative.numpy(), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_outer_target_that_adds_y_and_dy_equals_the_sum_of_its_parts(name):
    x = tensor(0.4, -0.3, 0.8)
    with nt.Tape(persistent=True) as outer:
        with nt.Tape() as inner:
            y = FUNCTIONS[name](x).sum()
        dy = inner.gradient(y, x)
        both = y + dy
    total = outer.gradient(both, x).numpy()
    parts = 3 * outer.gradient(y, x).numpy() + outer.gradient(dy, x).numpy()
    np.testing.assert_allclose(total, parts, rtol=1e-12, atol=1e-14)


def test_a_nested_backward_implies_create_graph_and_frees_nothing():
    x = tensor(2.0, 3.0)
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = (x**3).sum()
        dy = inner.backward(y)[x]
        assert dy.requires_grad
    assert outer.gradient(dy.sum() + y, x).tolist() == [24.0, 45.0]


def test_a_gradient_inside_its_own_with_or_a_context_implies_nothing():
    x = tensor(2.0, 3.0)
    with nt.GradientContext(), nt.Tape() as tape:
        y = (x**3).sum()
        loss = (x * x).sum()
        assert not tape.backward(loss)[x].requires_grad
        assert not tape.gradient(y, x).requires_grad
    with pytest.raises(FreedError):
        nt.GradientTape().gradient(loss, x)


def test_tensor_backward_never_implies_create_graph():
    w = nt.tensor([2.0, 3.0], requires_grad=True)
    with nt.Tape() as tape:
        loss = (w * w).sum()
        loss.backward()
        assert not w.grad.requires_grad
    with pytest.raises(FreedError):
        tape.gradient(loss, w)


def test_create_graph_gives_six_x_for_a_cube():
    x = tensor(2.0, 3.0)
    with nt.Tape() as tape:
        y = (x**3).sum()
        grads = tape.backward(y, create_graph=True)
        dy = grads[x]
    assert dy.tolist() == [12.0, 27.0]
    assert nt.GradientTape().gradient(dy, x).tolist() == [12.0, 18.0]


def test_create_graph_works_outside_of_every_block_and_keeps_grad_untracked():
    w = nt.tensor(np.array([2.0, 3.0]), requires_grad=True)
    tape = nt.GradientTape()
    dw = tape.backward((w**3).sum(), create_graph=True)[w]
    assert dw.requires_grad
    assert not w.grad.requires_grad
    assert w.grad.tolist() == [12.0, 27.0]
    d2w = tape.backward(dw.sum(), create_graph=True)[w]
    assert d2w.tolist() == [12.0, 18.0]
    assert tape.backward(d2w.sum())[w].tolist() == [6.0, 6.0]


def test_retain_graph_alone_is_not_enough_for_second_order():
    x = tensor(2.0, 3.0)
    tape = nt.GradientTape()
    tape.watch(x)
    dy = tape.backward((x**3).sum(), retain_graph=True)[x]
    assert not dy.requires_grad
    assert tape.gradient(dy, x) is None


def test_watching_a_plain_gradient_on_a_new_tape_gives_none():
    tape1 = nt.GradientTape()
    x = tape1.watch(tensor(2.0, 3.0))
    dy = tape1.gradient(x**3, x)
    tape2 = nt.GradientTape()
    tape2.watch(dy, x)
    assert tape2.gradient(dy, x) is None


def test_the_derivative_by_an_output_gradient_is_a_jacobian_product():
    x, v = tensor(2.0, 3.0), tensor(1.0, 1.0)
    with nt.GradientTape() as outer:
        outer.watch(v)
        with nt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        pulled = inner.gradient(y, x, output_gradients=v)
    assert outer.gradient(pulled, v, output_gradients=[tensor(1.0, 10.0)]).tolist() == [12.0, 270.0]


def test_a_tape_that_watches_all_watches_the_output_gradient_of_an_inner_one():
    x, v = tensor(2.0, 3.0), tensor(1.0, 1.0)
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = x**3
        pulled = inner.gradient(y, x, output_gradients=v)
    assert outer.gradient(pulled, v).tolist() == [12.0, 27.0]
