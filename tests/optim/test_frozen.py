"""Frozen parameters stay as they are, whichever way gradients are computed."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ShapeError


@pytest.fixture
def model():
    model = nt.nn.Sequential(nt.nn.Linear(2, 2, rng=1), nt.nn.Linear(2, 1, rng=2))
    model[0].requires_grad_(False)
    return model


def by_map(model, optimizer):
    with nt.Tape() as tape:
        loss = (model(nt.ones(3, 2)) ** 2).sum()
    optimizer.step(tape.backward(loss))


def by_sequence(model, optimizer):
    with nt.Tape() as tape:
        loss = (model(nt.ones(3, 2)) ** 2).sum()
    optimizer.step(tape.gradient(loss, list(model.parameters())))


def by_accumulation(model, optimizer):
    with nt.Tape() as tape:
        loss = (model(nt.ones(3, 2)) ** 2).sum()
    nt.accumulate_gradients(tape.backward(loss))
    optimizer.step()


def by_backward(model, optimizer):
    (model(nt.ones(3, 2)) ** 2).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("train", [by_map, by_sequence, by_accumulation, by_backward])
def test_a_frozen_layer_does_not_move(train, model):
    before = {name: p.numpy(copy=True) for name, p in model.named_parameters()}
    train(model, nt.optim.SGD(model.parameters(), lr=0.1))
    moved = {name for name, p in model.named_parameters() if not np.array_equal(before[name], p.numpy())}
    assert moved == {"1.weight", "1.bias"}


def test_plain_tensors_that_a_tape_watches_are_trained():
    w = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        loss = (w * w).sum()
    nt.optim.SGD([w], lr=0.5).step(tape.backward(loss))
    assert w.tolist() == [0.0, 0.0]


def test_no_gradients_for_a_parameter_are_counted():
    w = nt.ones(2, requires_grad=True)
    with pytest.raises(ShapeError, match="there are 1 parameters and 0 gradients"):
        nt.optim.SGD([w], lr=0.1).step([])


def test_a_rule_that_catches_what_symbols_cannot_tell_runs_as_it_is():
    class Normed(nt.optim.Optimizer):
        def __init__(self, params=None, lr=0.1):
            super().__init__(params, lr=lr)

        def update(self, param, grad, state, lr):
            try:
                scale = 1 / float(abs(grad).max())
            except Exception:
                scale = 1.0
            return param - lr * scale * grad, state

    w = nt.tensor([1.0, 1.0], requires_grad=True)
    optimizer = Normed([w])
    w.grad = nt.tensor([10.0, 5.0])
    optimizer.step()
    np.testing.assert_allclose(w.numpy(), [0.9, 0.95], rtol=1e-6)


def test_schedules_are_also_where_pytorch_has_them():
    assert nt.optim.lr_scheduler.OneCycleLR is nt.optim.OneCycleLR
