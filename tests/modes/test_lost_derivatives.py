"""What would lose a part of a derivative without a word: gradients in .grad, overwritten parameters, options."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import NotConnectedError, NotDifferentiableError


def trained(a):
    w = nt.tensor([1.0, -2.0], dtype="float64", requires_grad=True)
    (a * w**2).sum().backward(retain_graph=True)
    return w.grad


EVERY_TRANSFORM = {
    "grad": lambda f: nt.grad(f)(1.0),
    "jacobian": lambda f: nt.jacobian(f)(1.0),
    "jvp": lambda f: nt.jvp(f, 1.0, 1.0),
    "vjp": lambda f: nt.vjp(f, 1.0),
    "hessian": lambda f: nt.hessian(f)(1.0),
    "hvp": lambda f: nt.hvp(f, 1.0, 1.0),
}


@pytest.mark.parametrize("transform", EVERY_TRANSFORM.values(), ids=EVERY_TRANSFORM)
def test_gradients_that_go_into_grad_are_named_since_they_are_constants_there(transform):
    with pytest.warns(
        UserWarning, match=r"in <lambda>, gradients of a tracked tensor went into \.grad at .*sum\(\)\.backward"
    ):
        transform(lambda a: (trained(a) ** 2).sum() + a * a)
    with pytest.raises(NotConnectedError, match=r"left the tape by \.grad at .*Since it carries no graph"):
        transform(lambda a: (trained(a) ** 2).sum())


def test_gradients_that_depend_on_nothing_that_is_differentiated_by_go_into_grad():
    assert nt.grad(lambda a: a * (trained(2.0) ** 2).sum())(1.0) == 80.0
    assert nt.grad(lambda a: a * (trained(a.item()) ** 2).sum())(1.0) == 20.0


def test_gradients_from_a_tape_are_differentiated_where_grad_is_not():
    def loss(a):
        with nt.Tape() as tape:
            w = tape.watch(nt.tensor([1.0, -2.0], dtype="float64"))
            energy = (a * w**2).sum()
        return (tape.gradient(energy, w) ** 2).sum() + a

    assert nt.grad(loss)(1.0) == 41.0


OVERWRITES = {
    "vector_to_parameters": lambda model, s: nt.nn.utils.vector_to_parameters(s * np.ones(3), model.parameters()),
    "load_state_dict": lambda model, s: model.load_state_dict({"weight": s * np.ones((1, 2)), "bias": np.ones(1)}),
    "constant_": lambda model, s: nt.nn.init.constant_(model.weight, s),
    "normal_": lambda model, s: nt.nn.init.normal_(model.weight, std=s),
    "uniform_": lambda model, s: nt.nn.init.xavier_uniform_(model.weight, gain=s),
    "trunc_normal_": lambda model, s: nt.nn.init.trunc_normal_(model.weight, std=s),
    "orthogonal_": lambda model, s: nt.nn.init.orthogonal_(model.weight, gain=s),
    "Parameter": lambda model, s: setattr(model, "weight", nt.nn.Parameter(s * np.ones((1, 2)))),
    "data": lambda model, s: setattr(model.weight, "data", s * np.ones((1, 2))),
    "SGD.step": lambda model, s: nt.optim.SGD([model.weight], lr=0.1).step([s * np.ones((1, 2))]),
}


@pytest.mark.parametrize("name", OVERWRITES)
@pytest.mark.parametrize("transform", EVERY_TRANSFORM.values(), ids=EVERY_TRANSFORM)
def test_parameters_are_not_overwritten_by_what_is_differentiated_by(name, transform):
    model = nt.nn.Linear(2, 1, dtype="float64")
    before = model.weight.tolist()

    def loss(s):
        OVERWRITES[name](model, s)
        return (model(nt.ones(1, 2, dtype="float64")) ** 2).sum()

    with pytest.raises(NotDifferentiableError, match=rf"{name}: what is given is written without a record"):
        transform(loss)
    assert model.weight.tolist() == before
    nt.seed(0)
    expected = loss(2.0).item()
    OVERWRITES["constant_"](model, before[0][0])
    nt.seed(0)
    assert name == "SGD.step" or nt.grad(lambda s: loss(s.detach()) * s)(2.0) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda params, s: nt.optim.SGD(params, lr=s),
        lambda params, s: nt.optim.SGD(params, lr=0.1, weight_decay=s),
        lambda params, s: nt.optim.Adam(params, betas=(0.9, s)),
        lambda params, s: nt.optim.SGD([{"params": params, "momentum": s}], lr=0.1),
    ],
)
def test_options_of_optimizers_are_not_differentiated_by(make):
    w = nt.tensor([1.0, -2.0], requires_grad=True)
    with pytest.raises(NotDifferentiableError, match=r"has no derivative, but a tracked tensor was given"):
        nt.grad(lambda s: (make([w], s), s)[1])(0.1)


@pytest.mark.parametrize("option", ["lr", "weight_decay", "momentum"])
def test_options_that_are_set_later_are_not_differentiated_by(option):
    w = nt.tensor([1.0, -2.0], requires_grad=True)

    def trained(s):
        optimizer = nt.optim.SGD([w], lr=0.1)
        optimizer.param_groups[0][option] = s
        optimizer.step([nt.ones(2)])
        return w.sum()

    with pytest.raises(NotDifferentiableError, match=rf"^SGD\.step: argument '{option}' has no derivative"):
        nt.grad(trained)(0.1)
    assert w.tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "put",
    [
        lambda x, s: (x * x).backward(s),
        lambda x, s: setattr(x, "grad", s * s),
        lambda x, s: nt.accumulate_gradients([s * s], params=[x]),
    ],
)
def test_whatever_goes_into_grad_is_a_constant_there(put):
    def loss(s):
        x = nt.tensor(3.0, dtype="float64", requires_grad=True)
        put(x, s)
        return x.grad + s

    with pytest.warns(UserWarning, match=r"gradients of a tracked tensor went into \.grad at"):
        nt.grad(loss)(2.0)


def test_maps_of_gradients_are_differentiated_and_nothing_is_said():
    def loss(s):
        w = nt.tensor([1.0, -2.0], dtype="float64", requires_grad=True)
        with nt.Tape() as tape:
            energy = (s * w**2).sum()
        return (tape.backward(energy)[w] ** 2).sum() + s

    assert nt.grad(loss)(1.0) == 41.0


@pytest.mark.parametrize("name", OVERWRITES)
def test_what_is_written_under_no_grad_is_a_constant_by_the_users_will(name):
    model = nt.nn.Linear(2, 1, dtype="float64")

    def loss(s):
        with nt.no_grad():
            OVERWRITES[name](model, s)
        return s * s

    assert nt.grad(loss)(0.5) == 1.0
