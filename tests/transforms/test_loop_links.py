"""Loops whose steps link tensors in another way when they run again, or let out what they began with."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ClosedError, GradientError


def leaf(*values):
    return nt.tensor(np.array(values), requires_grad=True)


def test_a_state_that_leaves_its_step_is_named_where_a_gradient_is_wanted():
    x, seen = leaf(0.3, 0.7), []

    def step(s):
        seen.append(s)
        return nt.sin(s)

    y = nt.checkpoint_loop(step, x, 3)
    with pytest.raises(ClosedError, match="put what is used later into its state"):
        (y.sum() + (nt.stack(seen) ** 2).sum()).backward()


def test_a_state_that_leaves_its_step_can_be_looked_at():
    x, seen = leaf(0.3, 0.7), []

    def step(s):
        seen.append(s)
        return nt.sin(s)

    y = nt.checkpoint_loop(step, x, 3, verify=True)
    np.testing.assert_array_equal(seen[0].numpy(), x.numpy())
    y.sum().backward()
    np.testing.assert_array_equal(seen[1].detach().numpy(), np.sin(x.numpy()))


def test_a_state_of_an_earlier_step_is_named():
    states = {}

    def step(s, i):
        states[i] = s
        return nt.sin(s) + 0.3 * states.get(i - 1, s)

    with pytest.raises(GradientError, match="that an earlier step has made"):
        nt.checkpoint_loop(step, leaf(0.3, 0.7), 4)


#: Steps that do something else once a switch is thrown, all with the same ops, shapes and values or constants.
CHANGED = [
    lambda s, on: (nt.sin(s[0]) * (s[0].detach() if on else s[0]), s[1]),
    lambda s, on: (nt.sin(s[1] if on else s[0]), nt.sin(s[0] if on else s[1])),
    lambda s, on: (s[0] * s[0] + s[1], s[1]) if not on else (s[1] * s[1] + s[0], s[1]),
    lambda s, on: (nt.sin(s[0]), s[1].detach() if on else s[1]),
]


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("verify", [False, True])
def test_other_links_are_named(change, verify):
    is_on = False
    x = (leaf(0.3, 0.7), leaf(0.3, 0.7))
    a, b = nt.checkpoint_loop(lambda s: change(s, is_on), x, 4, verify=verify)
    is_on = True
    with pytest.raises(GradientError, match="when it ran again"):
        (a.sum() + 2.0 * b.sum()).backward()


def test_other_links_are_named_in_recorded_gradients():
    calls = []

    def step(s):
        calls.append(1)
        return nt.sin(s) * (s.detach() if len(calls) > 4 else s)

    with pytest.raises(GradientError, match="when it ran again"):
        nt.hessian(lambda x: nt.checkpoint_loop(step, x, 4).sum())(np.array([0.3, 0.7]))


def test_constants_that_change_places_are_named():
    a, b = nt.tensor(np.array([0.5, 0.3])), nt.tensor(np.array([0.9, 0.1]))
    y = nt.checkpoint_loop(lambda s: nt.sin(s * a) + b, leaf(0.3, 0.7), 4)
    a, b = b, a
    with pytest.raises(GradientError, match="took other tensors from outside"):
        y.sum().backward()


def test_what_nothing_leads_to_gets_no_gradient():
    w, v = leaf(0.3, 0.7), leaf(0.3, 0.7)
    start = nt.tensor(np.array([0.3, 0.7]))
    a, _ = nt.checkpoint_loop(lambda s: (nt.sin(s[0]) * v, nt.cos(s[1]) * w), (start, start), 3)
    a.sum().backward()
    assert w.grad is None
    assert v.grad is not None


@pytest.mark.parametrize("shape", [(16, 32), (17, 33), (1, 129)])
def test_states_that_do_not_lie_in_order_give_the_same_bits_in_recorded_gradients(shape):
    rng = np.random.default_rng(0)
    w = nt.tensor(rng.normal(size=(shape[1], shape[1])) / 6.0, requires_grad=True)
    x = rng.normal(size=shape)

    def step(s):
        return nt.tanh(w @ s.T).T

    found = nt.grad(lambda x: nt.checkpoint_loop(step, x, 2, verify=True).sum())(x)
    expected = nt.grad(lambda x: step(step(x)).sum())(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-14)


def test_memory_that_was_never_written_is_not_compared():
    x = leaf(0.3, 0.7)

    def step(s):
        filled = nt.empty_like(s)
        filled[:] = nt.sin(s)
        return filled

    y = nt.checkpoint_loop(step, x, 4, verify=True)
    junk = [np.full(2, float(i)) for i in range(100)]
    del junk
    y.sum().backward()
    expected = x.numpy()
    product = np.ones(2)
    for _ in range(4):
        product, expected = product * np.cos(expected), np.sin(expected)
    np.testing.assert_allclose(x.grad.numpy(), product)


@pytest.mark.parametrize("verify", [False, True])
def test_a_loop_inside_that_takes_the_state_and_a_parameter_has_higher_orders(verify):
    w = nt.tensor(np.array([1.5]), requires_grad=True)

    def inner(s):
        return nt.checkpoint_loop(lambda q: q * w * s, s, 1, verify=verify)

    def f(x):
        return nt.checkpoint_loop(inner, x, 1, verify=verify).sum()

    assert nt.hessian(f)(nt.tensor(np.array([2.0]))).tolist() == [[3.0]]


def test_what_is_behind_a_cached_constant_has_no_place_of_its_own():
    a, b, cache = nt.tensor(np.array([2.0])), nt.tensor(np.array([3.0])), {}

    def step(s, i):
        if i not in cache:
            cache[i] = a * nt.tensor(np.array([i + 1.0]))
        return s * cache[i] * b * a

    x = leaf(1.0)
    nt.checkpoint_loop(step, x, 2).sum().backward()
    assert x.grad.tolist() == [288.0]


def test_verify_sees_values_of_ops_whose_rules_read_nothing():
    runs = [0]

    def step(s):
        runs[0] += 1
        shifted = s + float(runs[0])
        y = nt.sin(s)
        y.register_hook(lambda g: g * shifted.detach())
        return y

    y = nt.checkpoint_loop(step, leaf(0.3, 0.7), 2, verify=True)
    with pytest.raises(GradientError, match="gave other values"):
        y.sum().backward()
