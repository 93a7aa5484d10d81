"""What steps of a checkpointed loop take from outside, and what leaves them other than by the state."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ClosedError, GradientError


def leaf(value, **kwargs):
    return nt.tensor(value, dtype="float64", requires_grad=True, **kwargs)


def test_a_variable_that_is_bound_anew_before_the_backward_is_named():
    h = nt.tensor([0.1, 0.2], dtype="float64")
    for w in (leaf([1.0, 2.0], name="first"), leaf([3.0, 4.0], name="second")):
        h = nt.checkpoint_loop(lambda s: nt.tanh(s * w), h, 4)  # noqa: B023
    with pytest.raises(GradientError, match="its step took the tensor 'second' from outside when it ran again"):
        h.sum().backward()


def test_a_variable_that_is_bound_to_the_result_is_named():
    c = leaf(2.0)
    y = nt.checkpoint_loop(lambda s: nt.sin(s) * c, leaf(1.0), 3)
    c = c * y
    with pytest.raises(GradientError, match="took a tensor of shape"):
        c.backward()


def test_a_variable_that_is_bound_anew_is_named_in_higher_orders():
    w = leaf(2.0)
    x = leaf(1.0)
    with nt.Tape() as outer, nt.Tape() as inner:
        y = nt.checkpoint_loop(lambda s: nt.sin(s) * w, x, 3)
    w = leaf(3.0)
    with outer, pytest.raises(GradientError, match="took a tensor of shape"):
        inner.gradient(y, x)


OTHER_TENSORS = "took other tensors from outside when it ran again for the backward"


def test_a_constant_that_is_bound_anew_is_named():
    w = leaf([0.5, 0.7])
    total = 0.0
    for batch in [nt.tensor(np.array([1.0, 2.0]) * k) for k in (1, 2)]:
        total = total + nt.checkpoint_loop(lambda s: nt.tanh(s * w + batch), nt.zeros(2, dtype="float64"), 4).sum()  # noqa: B023
    with pytest.raises(GradientError, match=f"step 1 of .* {OTHER_TENSORS}"):
        total.backward()


def test_a_variable_that_is_bound_to_a_constant_is_named():
    w = leaf([0.5, 0.7])
    y = nt.checkpoint_loop(lambda s: nt.sin(s * w), leaf([1.0, 2.0]), 4).sum()
    w = w.detach()
    with pytest.raises(GradientError, match=OTHER_TENSORS):
        y.backward()


def test_captured_variables_that_are_swapped_are_named():
    a, b = leaf([0.5, 0.7]), leaf([1.5, 1.7])
    y = nt.checkpoint_loop(lambda s: nt.sin(s * a) + nt.cos(b), leaf([1.0, 2.0]), 4).sum()
    a, b = b, a
    with pytest.raises(GradientError, match=OTHER_TENSORS):
        y.backward()


def test_a_captured_variable_that_is_passed_on_and_bound_anew_is_named():
    a, b = leaf([0.5, 0.7]), leaf([1.5, 1.7])
    y = nt.checkpoint_loop(lambda s: (b, s[0] * a), (leaf([1.0, 2.0]), leaf([1.0, 2.0])), 4)
    y = (y[0] * y[1]).sum()
    a, b = b, a
    with pytest.raises(GradientError, match=OTHER_TENSORS):
        y.backward()


def test_a_captured_constant_may_require_gradients_later():
    w, x = nt.tensor([0.5, 0.7], dtype="float64"), leaf([1.0, 2.0])
    y = nt.checkpoint_loop(lambda s: nt.sin(s * w), x, 4, snapshots=2).sum()
    z = leaf([1.0, 2.0])
    plain = nt.sin(nt.sin(nt.sin(nt.sin(z * w) * w) * w) * w).sum()
    w.requires_grad = True
    y.backward()
    plain.backward()
    np.testing.assert_array_equal(x.grad.numpy(), z.grad.numpy())
    assert w.grad is None


def test_steps_may_make_leaves_of_their_own():
    def energy(q):
        return (q**4).sum() + (scale * q).sum()

    def step(s):
        q = s.detach().requires_grad_()
        energy(q).backward()
        return s - 0.01 * q.grad * scale

    results = []
    for run in (lambda x: nt.checkpoint_loop(step, x, 6, snapshots=2), lambda x: repeated(step, x, 6)):
        scale = leaf(0.7)
        x = leaf([0.3, -0.2])
        run(x).sum().backward()
        results.append((x.grad.tolist(), scale.grad.tolist()))
    assert results[0][0] == results[1][0]


def repeated(step, state, n):
    for _ in range(n):
        state = step(state)
    return state


def test_steps_may_make_leaves_of_their_own_in_higher_orders():
    def descending(s):
        p = s.detach().requires_grad_()
        (p**2).sum().backward()
        return nt.sin(s) - 0.1 * p.grad

    constant = nt.tensor([0.2, 0.9], dtype="float64")
    x = np.array([0.3, 0.7])
    for step in (
        descending,
        lambda s: nt.sin(s) * nt.grad(lambda y: (y**3).sum())(constant),
        lambda s: nt.sin(s) * nt.jvp(lambda y: y**3, constant, constant)[1],
    ):
        expected = nt.hessian(lambda x, step=step: step(step(step(x))).sum())(x)
        found = nt.hessian(lambda x, step=step: nt.checkpoint_loop(step, x, 3).sum())(x)
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_variable_that_one_step_alone_uses_and_that_is_bound_anew_is_named():
    w, x = leaf([0.5, 0.7]), leaf([1.0, 2.0])
    with nt.GradientTape(), nt.GradientTape(persistent=True) as tape:
        y = nt.checkpoint_loop(lambda s: nt.sin(s * w), x, 1).sum()
        w = leaf([0.5, 0.7], name="second")
        with pytest.raises(GradientError, match="its step took the tensor 'second' from outside"):
            tape.gradient(y, x)
    with pytest.raises(GradientError, match="its step took the tensor 'second' from outside"):
        y.backward()


def test_a_loop_holds_none_of_the_leaves_that_its_steps_make():
    def step(s):
        q = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
        return s * nt.grad(lambda z: (z * z * q).sum())(q).detach() * 0.1

    x = leaf([0.3, -0.2])
    y = nt.checkpoint_loop(step, x, 50)
    assert len(nt.records(y)[-1].inputs) == 1
    y.sum().backward()


class Remembering(nt.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nt.nn.Parameter(nt.tensor([0.5, 0.7]))
        self.h = nt.zeros(2)

    def forward(self, s):
        self.h = nt.tanh(s * self.w + self.h)
        return s + self.h


class Pair:
    def __init__(self, part):
        self.part = part


def test_what_a_step_made_for_the_next_outside_of_the_state_is_named():
    with pytest.raises(GradientError, match=r"that an earlier step has made, at .*test_loop_captures"):
        nt.checkpoint_loop(Remembering(), nt.tensor([0.1, 0.2], requires_grad=True), 3)
    x = leaf([0.1, 0.2])
    with pytest.raises(GradientError, match="that an earlier step has made"):
        nt.checkpoint_loop(lambda s: (nt.sin(s[0]) * s[1].part, Pair(nt.cos(s[0]))), (x, Pair(x * 2.0)), 3)


def test_a_state_that_is_no_tree_runs_as_without_the_loop():
    x = leaf([0.1, 0.2])
    nt.checkpoint_loop(lambda s: Pair(nt.sin(s.part)), Pair(x), 3).part.sum().backward()
    y = leaf([0.1, 0.2])
    nt.sin(nt.sin(nt.sin(y))).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_what_was_collected_in_steps_is_not_differentiated_to_their_start():
    w = leaf(2.0)
    seen = []

    def step(s):
        seen.append(nt.sin(s) * w)
        return seen[-1]

    nt.checkpoint_loop(step, leaf(1.0), 3)
    assert seen[0].item() == pytest.approx(2.0 * np.sin(1.0))
    with pytest.raises(ClosedError, match="put what is used later into its state"):
        (seen[0] + seen[1]).backward()


def test_a_state_that_begins_with_a_number_is_pushed_forward():
    def last(x):
        return nt.checkpoint_loop(lambda s: (s[0] * 1.1, s[1] + s[0] * s[0]), (x, 0.0), 4)[1]

    x = leaf(1.5)
    with nt.Tape(persistent=True) as tape:
        y = last(x)
    expected = tape.gradient(y, x)
    np.testing.assert_allclose(tape.forward_gradient(x, y), expected, rtol=1e-14)
    np.testing.assert_allclose(nt.jacobian(last, mode="forward")(np.array(1.5)), expected, rtol=1e-14)


def test_a_state_without_float_tensors_is_returned():
    w = leaf(2.0)
    count = nt.checkpoint_loop(lambda s: s + (w * s > 1).sum(), nt.tensor(1), 3)
    assert count.tolist() == 4


def test_hooks_run_once_on_the_whole_gradient_of_what_is_captured_and_in_each_step_on_its_own():
    def gradients(loop):
        w = nt.tensor([0.5, 0.7], dtype="float64", requires_grad=True)
        x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
        v = w * 2.0
        calls = []
        for name, tensor, factor in (("w", w, 0.5), ("v", v, 0.25), ("x", x, 3.0)):
            tensor.register_hook(lambda g, name=name, factor=factor: calls.append(name) or g * factor)

        def step(s):
            s.register_hook(lambda g: calls.append("s") or g * 2.0)
            return nt.sin(s * w) + v * 0.1

        loop(step, x * 1.0, 3).sum().backward()
        with nt.GradientTape() as tape:
            with nt.GradientTape() as inner:
                y = loop(step, x * 1.0, 3).sum()
            first = inner.gradient(y, [x, w])
            norm = sum((g * g).sum() for g in first)
        second = tape.gradient(norm, [x, w])
        return [g.detach().numpy() for g in (x.grad, w.grad, *first, *second)], "".join(calls)

    def plain(step, state, n):
        for _ in range(n):
            state = step(state)
        return state

    found, calls = gradients(nt.checkpoint_loop)
    expected, plain_calls = gradients(plain)
    assert calls[:12] == plain_calls[:12] == "sssvwx" * 2
    assert sorted(calls) == sorted(plain_calls)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_step_that_takes_from_an_iterator_is_named():
    x = leaf([1.0, 2.0])
    factors = iter([0.5, 0.6, 0.7])
    y = nt.checkpoint_loop(lambda s: nt.sin(s) * next(factors), x, 3).sum()
    with pytest.raises(GradientError, match=r"step . of .* came to the end of an iterator when it ran again .* by its"):
        y.backward()
    with pytest.raises(StopIteration):
        nt.checkpoint_loop(lambda s: nt.sin(s) * next(factors), x, 3)


def test_other_threads_may_work_for_a_step():
    def gradients(loop):
        w, x = leaf([0.5, 0.7]), leaf([1.0, 2.0])
        with ThreadPoolExecutor(2) as pool:
            loop(lambda s: sum(pool.map(lambda k: nt.sin(s * w * k), [1.0, 2.0])), x, 3).sum().backward()
        return x.grad.numpy(), w.grad.numpy()

    def plain(step, state, n):
        for _ in range(n):
            state = step(state)
        return state

    for found, expected in zip(gradients(nt.checkpoint_loop), gradients(plain), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_what_another_thread_alone_takes_from_outside_is_named_if_it_was_computed():
    w = leaf([0.5, 0.7]) * 2.0
    with ThreadPoolExecutor(1) as pool, pytest.raises(GradientError, match=r"another thread uses what .* has computed"):
        nt.checkpoint_loop(lambda s: pool.submit(lambda: s * w).result() + s, leaf([1.0, 2.0]), 3)
