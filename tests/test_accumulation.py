"""Gradients of micro-batches add up to those of the full batch, and nothing is counted twice."""

import numpy as np
import pytest

import numtape as nt
from numtape.accumulation import GradientAccumulator, accumulate_gradients
from numtape.errors import ArgumentError, OperandError, ShapeError


def data():
    generator = np.random.default_rng(3)
    return generator.normal(size=(32, 4)), generator.normal(size=(32, 2)), generator.normal(size=(4, 2))


def loss_of(w, x, y):
    return ((nt.tanh(nt.tensor(x) @ w) - nt.tensor(y)) ** 2).mean()


def full_gradient():
    x, y, start = data()
    w = nt.tensor(start, requires_grad=True)
    loss_of(w, x, y).backward()
    return w.grad.numpy()


def test_the_loop_of_a_reentered_tape_counts_each_micro_batch_once():
    x, y, start = data()
    w = nt.tensor(start, requires_grad=True)
    tape = nt.Tape()
    for part in np.split(np.arange(32), 4):
        with tape:
            loss = loss_of(w, x[part], y[part]) / 4
        grads = tape.backward(loss)
        accumulate_gradients(grads)
        accumulate_gradients(grads)
    np.testing.assert_allclose(w.grad.numpy(), full_gradient(), rtol=1e-12, atol=1e-14)


def test_a_list_of_gradients_is_added_in_full():
    x, y, start = data()
    w = nt.tensor(start)
    for part in np.split(np.arange(32), 4):
        tape = nt.GradientTape()
        tape.watch(w)
        accumulate_gradients([tape.gradient(loss_of(w, x[part], y[part]) / 4, w)], [w])
    np.testing.assert_allclose(w.grad.numpy(), full_gradient(), rtol=1e-12, atol=1e-14)


def test_a_map_of_watched_tensors_was_not_delivered_and_is_added_once():
    w = nt.tensor([1.0, 2.0])
    tape = nt.GradientTape()
    tape.watch(w)
    grads = tape.backward((w * w).sum())
    assert w.grad is None
    accumulate_gradients(grads)
    accumulate_gradients(grads, params=[w])
    assert w.grad.tolist() == [2.0, 4.0]


def test_none_is_skipped():
    a, b = nt.tensor([1.0]), nt.tensor([2.0])
    accumulate_gradients([None, np.array([3.0])], [a, b])
    assert a.grad is None
    assert b.grad.tolist() == [3.0]


@pytest.mark.parametrize("average", [True, False])
def test_an_accumulator_equals_the_full_batch(average):
    x, y, start = data()
    w = nt.tensor(start)
    accumulator = GradientAccumulator(4, average=average)
    for number, part in enumerate(np.split(np.arange(32), 4)):
        assert not accumulator.is_ready
        tape = nt.GradientTape()
        tape.watch(w)
        loss = loss_of(w, x[part], y[part])
        ready = accumulator.add([tape.gradient(loss if average else loss / 4, w)])
        assert ready == (number == 3)
    (gradient,) = accumulator.take()
    assert isinstance(gradient, nt.Tensor)
    np.testing.assert_allclose(gradient.numpy(), full_gradient(), rtol=1e-12, atol=1e-14)
    assert accumulator.count == 0


def test_micro_batches_of_different_sizes_are_weighed():
    x, y, start = data()
    accumulator = GradientAccumulator(3)
    for part in (np.arange(0, 20), np.arange(20, 30), np.arange(30, 32)):
        value = nt.grad(lambda w, part=part: loss_of(w, x[part], y[part]))(start)
        accumulator.add({"w": value}, weight=len(part))
    np.testing.assert_allclose(accumulator.take()["w"], full_gradient(), rtol=1e-12, atol=1e-14)


def test_maps_add_up_by_tensor_even_if_a_branch_was_not_taken():
    a, b = (nt.tensor([v], requires_grad=True) for v in (1.0, 2.0))
    accumulator = GradientAccumulator(2)
    for loss in ((lambda: (a * b).sum()), (lambda: (b * 4.0).sum())):
        with nt.Tape() as tape:
            value = loss()
        accumulator.add(tape.backward(value))
    grads = accumulator.take()
    assert (grads[a].item(), grads[b].item()) == (1.0, 2.5)
    nt.optim.SGD([a, b], lr=1.0).step(grads)
    assert (a.item(), b.item()) == (0.0, -0.5)


def test_a_batch_may_be_taken_early():
    accumulator = GradientAccumulator(4)
    accumulator.add([np.array([1.0])])
    accumulator.add([np.array([3.0])])
    assert accumulator.take()[0].tolist() == [2.0]


def test_half_gradients_are_added_in_float32():
    accumulator = GradientAccumulator(3000, average=False)
    for _ in range(3000):
        accumulator.add([nt.ones(1, dtype=nt.bfloat16)])
    (total,) = accumulator.take()
    assert total.dtype == nt.bfloat16
    assert float(total) == pytest.approx(3000, rel=2**-8)


def test_what_is_given_is_not_changed():
    g = np.array([1.0])
    accumulator = GradientAccumulator(2)
    accumulator.add([g])
    accumulator.add([g])
    assert accumulator.take()[0].tolist() == [1.0]
    assert g.tolist() == [1.0]


def filled(steps=1):
    accumulator = GradientAccumulator(steps)
    accumulator.add([np.ones(2)])
    return accumulator


ERRORS = [
    (
        lambda: GradientAccumulator(0),
        ArgumentError,
        "GradientAccumulator: steps is 0; it must be an integer above 0.",
    ),
    (
        lambda: filled().add([np.ones(2)]),
        ArgumentError,
        "GradientAccumulator.add: 1 micro-batches were added already; take() or reset() first.",
    ),
    (
        lambda: filled(2).add([np.ones(3)]),
        ShapeError,
        "GradientAccumulator.add: a gradient has shape (3,), and those before (2,).",
    ),
    (
        lambda: filled(2).add([np.ones(2), np.ones(2)]),
        ArgumentError,
        "GradientAccumulator.add: the gradients are of another form than those before; reset() to start anew.",
    ),
    (
        lambda: filled(2).add([np.ones(2)], weight=0.0),
        ArgumentError,
        "GradientAccumulator.add: weight is 0.0; it must be a number above 0.",
    ),
    (
        lambda: filled(2).add(["text"]),
        OperandError,
        "GradientAccumulator.add: a gradient is of type str; it must be a tensor or an array.",
    ),
    (lambda: GradientAccumulator(2).take(), ArgumentError, "GradientAccumulator.take: nothing was added."),
    (
        lambda: accumulate_gradients([np.ones(2)]),
        OperandError,
        "accumulate_gradients: a sequence of gradients does not know its tensors; give them as params, in the same "
        "order.",
    ),
    (
        lambda: accumulate_gradients([np.ones(2)], [nt.ones(2), nt.ones(2)]),
        ShapeError,
        "accumulate_gradients: there are 2 tensors and 1 gradients; give one for each.",
    ),
    (
        lambda: accumulate_gradients([np.ones(3)], [nt.ones(2)]),
        ShapeError,
        "accumulate_gradients: a tensor has shape (2,) and its gradient (3,); they must be equal.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), ERRORS)
def test_what_is_wrong_is_said(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text
