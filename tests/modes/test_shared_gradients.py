"""Arguments that get the same gradient get tensors of their own, also where gradients are recorded."""

import numpy as np
import pytest

import numtape as nt


class Two(nt.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nt.nn.Parameter(nt.ones(2, dtype="float64"))
        self.b = nt.nn.Parameter(nt.ones(2, dtype="float64"))


def loss(module):
    return ((module.a + module.b) ** 2).sum()


def test_hessian_products_by_a_module():
    found = nt.hvp(loss, Two(), Two())
    assert (found.a.tolist(), found.b.tolist()) == ([4.0, 4.0], [4.0, 4.0])
    found.a[0] = 99.0
    assert found.b.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("layer", [nt.nn.LSTM, nt.nn.RNN, nt.nn.GRU])
def test_hessian_products_by_layers_with_two_biases(layer):
    model = layer(2, 2).double()
    x = np.ones((1, 3, 2))
    product = nt.hvp(lambda model: model(x)[0].sum(), model, model)
    assert len(nt.tree.leaves(product)) == len(nt.tree.leaves(model)) == 4


def test_forward_over_reverse_gives_a_leaf_for_each_parameter():
    _, pushed = nt.jvp(nt.grad(loss), Two(), Two())
    assert len(nt.tree.leaves(pushed)) == 2
    assert pushed.a is not pushed.b


def test_recorded_gradients_of_a_tape():
    a, b = nt.tensor(1.0, requires_grad=True), nt.tensor(2.0, requires_grad=True)
    with nt.Tape() as outer:
        with nt.Tape() as tape:
            y = (a + b) ** 3
        by_a, by_b = tape.gradient(y, [a, b])
    assert by_a is not by_b
    assert [g.item() for g in outer.gradient(by_a + 2.0 * by_b, [a, b])] == [54.0, 54.0]
