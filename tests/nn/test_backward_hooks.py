"""Hooks of modules: gradients of inputs and outputs, keyword arguments, order, and handles as blocks."""

import copy

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.errors import ArgumentError, ShapeError


def line(weight):
    made = nn.Linear(1, 1, bias=False)
    made.set_weights(np.array([[weight]], np.float32))
    return made


def test_a_backward_hook_sees_the_gradients_of_inputs_and_outputs():
    model = nn.Sequential(line(2.0), line(3.0))
    seen = []
    model[1].register_full_backward_hook(lambda module, given, got: seen.append((module, given, got)))
    x = nt.ones(1, 1, requires_grad=True)
    (model(x) * 5.0).sum().backward()
    ((module, given, got),) = seen
    assert module is model[1]
    assert [g.item() for g in given] == [15.0]
    assert [g.item() for g in got] == [5.0]
    assert x.grad.item() == 30.0


def test_only_the_gradient_by_this_call_counts():
    layer, seen = line(2.0), []
    layer.register_full_backward_hook(lambda module, given, got: seen.append(given[0].item()))
    x = nt.ones(1, 1, requires_grad=True)
    (layer(x) + 10.0 * x).sum().backward()
    assert seen == [2.0]
    assert x.grad.item() == 12.0


def test_what_a_backward_hook_returns_takes_the_place_of_the_gradient():
    model = nn.Sequential(line(2.0), line(3.0))
    model[1].register_full_backward_hook(lambda module, given, got: (given[0] * 10.0,))
    x = nt.ones(1, 1, requires_grad=True)
    model(x).sum().backward()
    assert x.grad.item() == 60.0
    assert model[1].weight.grad.item() == 2.0


def test_a_module_whose_input_is_not_tracked_is_seen_as_well():
    layer, seen = line(2.0), []
    layer.register_full_backward_hook(lambda module, given, got: seen.append((given, got[0].item())))
    layer(nt.ones(1, 1)).sum().backward()
    assert seen == [((None,), 1.0)]


def test_several_inputs_outputs_and_passes_through_one_graph():
    class Both(nn.Module):
        def forward(self, a, b, scale):
            return a * b, a * scale

    module, seen = Both(), []

    def hook(module, given, got):
        seen.append([None if g is None else g.item() for g in (*given, *got)])

    module.register_full_backward_hook(hook)
    a, b = nt.tensor(2.0, requires_grad=True), nt.tensor(3.0, requires_grad=True)
    product, scaled = module(a, b, 10.0)
    loss = product + 4.0 * scaled
    loss.backward(retain_graph=True)
    loss.backward()
    assert seen == [[43.0, 2.0, None, 1.0, 4.0]] * 2
    seen.clear()
    module(a, b, 10.0)[0].backward()
    assert seen == [[3.0, 2.0, None, 1.0, None]]


class Parts(nn.Module):
    """Two outputs; the second argument takes no part, and the first none in the second output."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(nt.tensor(1.0))

    def forward(self, a, b):
        return 2.0 * a * self.weight, a.detach() * self.weight


def seen_by(hook_returns, take, a, b):
    module, seen = Parts(), []

    def hook(module, given, got):
        seen.append([None if g is None else g.item() for g in (*given, *got)])
        return hook_returns(given)

    module.register_full_backward_hook(hook)
    take(module(a, b)).backward()
    return seen


def tracked():
    return nt.tensor(3.0, requires_grad=True)


def nothing(given):
    return None


@pytest.mark.parametrize(
    ("take", "expected"),
    [
        (lambda out: out[0], [2.0, 0.0, 1.0, None]),
        (lambda out: out[1], [0.0, 0.0, None, 1.0]),
        (lambda out: out[0] + out[1], [2.0, 0.0, 1.0, 1.0]),
    ],
)
def test_hooks_are_called_once_whatever_gets_a_gradient(take, expected):
    assert seen_by(nothing, take, tracked(), tracked()) == [expected]
    assert seen_by(nothing, take, nt.tensor(3.0), nt.tensor(3.0)) == [[None, None, *expected[2:]]]


def test_a_hook_may_replace_the_gradients_of_all_inputs():
    a, b = tracked(), tracked()
    seen_by(lambda given: (given[0] * 10.0, nt.tensor(7.0)), lambda out: out[0], a, b)
    assert (a.grad.item(), b.grad.item()) == (20.0, 7.0)
    a = tracked()
    seen_by(lambda given: (None, None), lambda out: out[0], a, b)
    assert a.grad.item() == 0.0


def test_a_hook_may_come_before_the_gradients_go_on():
    module, seen = Parts(), []
    module.register_full_backward_pre_hook(lambda module, got: (10.0 * got[0], nt.tensor(100.0)))
    module.register_full_backward_hook(lambda module, given, got: seen.append([g.item() for g in (*given, *got)]))
    a = tracked()
    module(a, tracked())[0].backward()
    assert seen == [[20.0, 0.0, 10.0, 100.0]]
    assert a.grad.item() == 20.0
    assert module.weight.grad.item() == 2.0 * 3.0 * 10.0 + 3.0 * 100.0


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            (nt.tensor(1.0),),
            "Parts: a backward hook returned 1 gradients for 2 arguments; it returns None, or a tuple with a place for "
            "each argument.",
        ),
        (
            (nt.ones(2), None),
            "Parts: a backward hook returned shape (2,) for the gradient of argument 0, which has shape ().",
        ),
        ((1.0, None), "Parts: a backward hook returned float for the gradient of argument 0, which has shape ()."),
    ],
)
def test_what_a_hook_returns_must_fit(returned, message):
    with pytest.raises((ArgumentError, ShapeError)) as caught:
        seen_by(lambda given: returned, lambda out: out[0], tracked(), tracked())
    assert str(caught.value) == message


def test_inputs_keep_their_dtypes():
    class Kinds(nn.Module):
        def forward(self, *args):
            return " ".join(str(each.dtype) for each in args)

    module = Kinds()
    module.register_full_backward_hook(lambda *args: None)
    kinds = (nt.float64, nt.float32, nt.float16)
    assert module(*(nt.ones(1, dtype=kind, requires_grad=True) for kind in kinds)) == "float64 float32 float16"


def test_hooked_modules_have_derivatives_of_every_kind():
    module, seen = Parts(), []
    module.register_full_backward_hook(lambda *args: seen.append(args))

    def function(x):
        return module(x, x)[0] ** 2

    assert nt.jvp(function, (nt.tensor(1.0),), (nt.tensor(1.0),))[1].item() == 8.0
    assert nt.hessian(function)(nt.tensor(1.0)).item() == 8.0


def test_nothing_is_recorded_without_gradients():
    layer, seen = line(2.0), []
    layer.register_full_backward_hook(lambda *args: seen.append(args))
    with nt.no_grad():
        assert layer(nt.ones(1, 1)).item() == 2.0
    assert seen == []


def test_hooks_with_keyword_arguments():
    class Scaled(nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    module = Scaled()
    before = module.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {"scale": 2.0 * kwargs["scale"]}), with_kwargs=True
    )
    seen = []
    module.register_forward_hook(lambda module, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    assert copy.deepcopy(module)(nt.tensor(1.0), scale=3.0).item() == 6.0
    assert module(nt.tensor(1.0), scale=3.0).item() == 6.0
    before.remove()
    assert module(nt.tensor(1.0), scale=3.0).item() == 3.0
    assert seen[-1] == {"scale": 3.0}


def test_a_hook_may_come_first_and_end_with_a_block():
    layer, order = nn.Identity(), []
    layer.register_forward_hook(lambda *args: order.append("second"))
    with layer.register_forward_hook(lambda *args: order.append("first"), prepend=True):
        layer(nt.tensor(1.0))
    layer(nt.tensor(1.0))
    assert order == ["first", "second", "second"]
