"""Gradients reach the parameters that they belong to, whatever form and order they are given in."""

import copy

import numpy as np
import pytest

import numtape as nt
from numtape import nn, optim
from numtape.errors import ArgumentError, OperandError, ShapeError


def leaves(*values):
    return [nt.tensor(value, requires_grad=True) for value in values]


def message(kind, function):
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)


def model_of(*weights):
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in weights))
    for layer, weight in zip(model, weights, strict=True):
        with nt.no_grad():
            layer.weight[...] = weight
    return model


# By name.
@pytest.mark.parametrize("form", [dict, lambda named: list(named.items()), lambda named: [{"params": named}]])
def test_a_dict_of_gradients_goes_by_the_names_of_the_parameters(form):
    a, b = leaves([0.0], [0.0])
    optimizer = optim.SGD(form({"a": a, "b": b}), lr=1.0)
    optimizer.step(grads={"b": np.array([2.0]), "a": np.array([1.0])})
    optimizer.step({"b": np.array([2.0]), "a": None})
    optimizer.apply_gradients({"b": np.array([2.0]), "a": np.array([1.0])})
    assert (a.item(), b.item()) == (-2.0, -6.0)


def test_names_come_with_the_parameters_of_a_step_with_a_model_and_with_the_tensors_themselves():
    a, b = leaves([0.0], [0.0])
    grads = {"b": np.array([2.0]), "a": np.array([1.0])}
    optim.SGD(1.0).step(params={"a": a, "b": b}, grads=grads)
    assert (a.item(), b.item()) == (-1.0, -2.0)
    model = model_of(0.0, 0.0)
    optim.SGD(model, lr=1.0).step(grads={"1.weight": np.array([[2.0]]), "0.weight": np.array([[1.0]])})
    assert [each.item() for each in model.parameters()] == [-1.0, -2.0]
    named = [nt.zeros(1, requires_grad=True, name=name) for name in "ab"]
    optim.SGD(named, lr=1.0).step(grads=grads)
    assert [each.item() for each in named] == [-1.0, -2.0]


def test_a_copied_optimizer_still_knows_the_names():
    a, b = leaves([0.0], [0.0])
    (c, d), other = copy.deepcopy(([a, b], optim.SGD({"a": a, "b": b}, lr=1.0)))
    other.step(grads={"b": np.array([2.0]), "a": np.array([1.0])})
    assert (c.item(), d.item()) == (-1.0, -2.0)


def test_a_dict_by_parameters_goes_by_identity():
    a, b = leaves([0.0], [0.0])
    optim.SGD([a, b], lr=1.0).step(grads={b: np.array([2.0]), a: np.array([1.0])})
    assert (a.item(), b.item()) == (-1.0, -2.0)


def test_a_dict_for_parameters_without_names_goes_by_order():
    a, b = leaves([0.0], [0.0])
    optim.SGD([a, b], lr=1.0).step(grads={"x": np.array([1.0]), "y": np.array([2.0])})
    assert (a.item(), b.item()) == (-1.0, -2.0)


def test_a_name_that_is_unknown_or_missing_raises_and_nothing_changes():
    a, b = leaves([0.0], [0.0])
    optimizer = optim.SGD({"a": a, "b": b}, lr=1.0)
    one = np.ones(1)
    assert message(ArgumentError, lambda: optimizer.step(grads={"a": one, "c": one})) == (
        "SGD.step: there is a gradient for 'c', but no such parameter; the parameters are a, b."
    )
    assert message(ArgumentError, lambda: optimizer.step(grads={"a": one})) == (
        "SGD.step: there is no gradient for b; give one for each, None for those to leave alone."
    )
    assert (a.item(), b.item()) == (0.0, 0.0)


# Pairs.
def test_pairs_in_either_order_update_the_parameter():
    a, b = leaves([0.0], [0.0])
    g, h = nt.tensor([1.0]), nt.tensor([2.0])
    optimizer = optim.SGD([a, b], lr=1.0)
    optimizer.apply_gradients([(a, g), (b, h)])
    optimizer.apply_gradients([(g, a), (h, b)])
    optimizer.apply_gradients([(None, a), (b, np.array([2.0]))])
    assert (a.item(), b.item(), g.item(), h.item()) == (-2.0, -6.0, 1.0, 2.0)


def test_pairs_for_an_optimizer_without_parameters_are_told_by_requires_grad_and_then_by_what_it_knows():
    (a,) = leaves([0.0])
    g = nt.tensor([1.0])
    optimizer = optim.SGD(1.0)
    optimizer.apply_gradients([(a, g)])
    optimizer.apply_gradients([(g, a)])
    optimizer.apply_gradients([(a, g.numpy())])
    assert (a.item(), g.item()) == (-3.0, 1.0)


def test_pairs_that_do_not_tell_which_is_the_parameter_raise():
    a, b = leaves([0.0], [0.0])
    optimizer = optim.SGD([a, b], lr=1.0)
    assert message(ArgumentError, lambda: optimizer.apply_gradients([(nt.ones(1), a), (a, b)])) == (
        "SGD.apply_gradients: pair 1 is to hold a gradient and a parameter, but both are of the optimizer's parameters."
    )
    assert message(ArgumentError, lambda: optimizer.apply_gradients([(nt.ones(1), nt.ones(1))])) == (
        "SGD.apply_gradients: pair 0 is to hold a gradient and a parameter, but neither is of the optimizer's "
        "parameters."
    )
    assert (a.item(), b.item()) == (0.0, 0.0)


# Models and trees.
def test_a_model_in_place_of_its_parameters_is_not_called():
    model = model_of(1.0, 2.0)
    for optimizer in (optim.SGD(model, lr=1.0), optim.SGD(1.0)):
        for parameter in model.parameters():
            parameter.grad = [[1.0]]
        assert optimizer.step(model) is None
    assert [each.item() for each in model.parameters()] == [-1.0, 0.0]


def test_gradients_in_the_form_of_the_model_are_taken_in_every_way():
    model = model_of(1.0, 2.0)
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    _, grads = nt.value_and_grad(lambda m: 3.0 * m[0].weight.sum() + 5.0 * m[1].weight.sum())(model)
    optimizer.step(grads)
    optimizer.step(grads=grads)
    optimizer.apply_gradients(grads)
    optim.SGD(1.0).step(params=model, grads=grads)
    assert [each.item() for each in model.parameters()] == [-11.0, -18.0]


def test_the_leaves_of_a_tree_are_in_the_order_of_the_parameters():
    a, b, c = leaves([0.0], [0.0], [0.0, 0.0])
    optimizer = optim.SGD([a, b, c], lr=1.0)
    optimizer.step({"first": (nt.tensor([1.0]), None), "second": [nt.tensor([1.0, 2.0])]})
    optimizer.step([[1.0], [1.0], [1.0, 2.0]])
    optimizer.apply_gradients([[nt.tensor([1.0]), nt.tensor([1.0])], nt.tensor([1.0, 2.0])])
    assert (a.item(), b.item(), c.tolist()) == (-3.0, -2.0, [-3.0, -6.0])
    assert message(ShapeError, lambda: optimizer.step([(nt.ones(1), nt.ones(1))])) == (
        "SGD.step: there are 3 parameters and 2 gradients; give one for each, None for those to leave alone."
    )


@pytest.mark.parametrize("wrong", [3, "text", object()])
def test_what_holds_no_gradients_is_said(wrong):
    (a,) = leaves([0.0])
    text = f"gradients are a map, a sequence or a tree of tensors, not {type(wrong).__name__}."
    assert message(OperandError, lambda: optim.SGD([a]).step(wrong)) == f"SGD.step: {text}"
    assert message(OperandError, lambda: optim.SGD([a]).apply_gradients(wrong)) == f"SGD.apply_gradients: {text}"


def test_no_gradients_at_all_are_not_those_of_backward():
    (a,) = leaves([0.0])
    assert message(OperandError, lambda: optim.SGD([a]).apply_gradients(None)) == (
        "SGD.apply_gradients: gradients are a map, a sequence or a tree of tensors, not NoneType."
    )
