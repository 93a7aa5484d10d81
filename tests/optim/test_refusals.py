"""What cannot be meant is refused with a sentence: by optimizers, schedules and averages."""

import numpy as np
import pytest

import numtape as nt
from numtape import nn, optim
from numtape.errors import ArgumentError, DtypeError, GradientError, OperandError


def sgd(**group):
    return optim.SGD([{"params": [nt.zeros(2, requires_grad=True)], **group}], lr=1.0)


def stepped_with(rate):
    optimizer = sgd()
    if rate is None:
        del optimizer.param_groups[0]["lr"]
    else:
        optimizer.param_groups[0]["lr"] = rate
    optimizer.step([np.ones(2)])


def adams_state():
    optimizer = optim.Adam([nt.zeros(2, requires_grad=True)])
    optimizer.step([np.ones(2)])
    return optimizer.state_dict()


def loaded(options=None, **state):
    """Load a state of Adam, in which something was changed."""
    saved = adams_state()
    saved["param_groups"][0].update(options or {})
    saved["state"][0].update(state)
    optimizer = optim.Adam([nt.zeros(2, requires_grad=True)])
    optimizer.load_state_dict(saved)
    return optimizer


def masked():
    return np.ma.masked_array([1.0, 2.0], [True, False])


LOADED = "Adam.load_state_dict: "
LOST = "is a masked array, whose mask would be ignored; pass x.filled(...), and choose elements with nt.where."
GAMMA = "gamma is {}; it must be a finite number from 0 on."
AVERAGE = "EMA.load_state_dict: the state of an average is a dict with decay, warmup, num_updates, averages."
REFUSED = [
    (lambda: optim.StepLR(sgd(), 2, gamma="x"), ArgumentError, "StepLR: " + GAMMA.format("'x'")),
    (lambda: optim.MultiStepLR(sgd(), [2], gamma=None), ArgumentError, "MultiStepLR: " + GAMMA.format("None")),
    (lambda: optim.ExponentialLR(sgd(), gamma=-1), ArgumentError, "ExponentialLR: " + GAMMA.format("-1")),
    (
        lambda: optim.MultiStepLR(sgd(), 5),
        ArgumentError,
        "MultiStepLR: milestones is 5; it must be a list of numbers of steps.",
    ),
    (
        lambda: optim.LambdaLR(sgd(), 0.5),
        ArgumentError,
        "LambdaLR: lr_lambda is 0.5; it must be a function of the step, or a list.",
    ),
    (
        lambda: optim.LambdaLR(sgd(), lambda step: None),
        ArgumentError,
        "LambdaLR: what the function returned is None; it must be a finite number from 0 on.",
    ),
    (
        lambda: optim.ReduceLROnPlateau(sgd(), factor="a"),
        ArgumentError,
        "ReduceLROnPlateau: factor is 'a'; it must be a number from 0 up to, but not including, 1.",
    ),
    (
        lambda: optim.ReduceLROnPlateau(sgd()).step(None),
        OperandError,
        "ReduceLROnPlateau.step: the metric is a number or a tensor of one element, not None.",
    ),
    (
        lambda: optim.StepLR(sgd(), 2).load_state_dict(None),
        OperandError,
        "StepLR.load_state_dict: takes the dict that state_dict returned, not NoneType.",
    ),
    (
        lambda: optim.ReduceLROnPlateau(sgd()).load_state_dict(3),
        OperandError,
        "ReduceLROnPlateau.load_state_dict: takes the dict that state_dict returned, not int.",
    ),
    (lambda: optim.EMA([nt.zeros(2)]).load_state_dict({}), ArgumentError, AVERAGE),
    (lambda: optim.EMA([nt.zeros(2)]).load_state_dict(None), ArgumentError, AVERAGE),
    (
        lambda: optim.EMA([nt.zeros(2)]).load_state_dict(
            optim.EMA([nt.zeros(2)]).state_dict() | {"averages": [masked()]}
        ),
        OperandError,
        f"EMA.load_state_dict: a saved average {LOST}",
    ),
    (lambda: stepped_with("a"), ArgumentError, "SGD.step: lr is 'a'; it must be a finite number from 0 on."),
    (lambda: stepped_with(-1), ArgumentError, "SGD.step: lr is -1; it must be a finite number from 0 on."),
    (lambda: stepped_with(None), ArgumentError, "SGD.step: lr is None; it must be a finite number from 0 on."),
    (
        lambda: sgd(momentm=0.9),
        ArgumentError,
        "SGD: a group has an option 'momentm', which no rule reads; is it 'momentum'?",
    ),
    (
        lambda: sgd(learning_rate=1.0),
        ArgumentError,
        "SGD: a group has an option 'learning_rate', which no rule reads; is it 'lr'?",
    ),
    (
        lambda: sgd(betas=(0.9, 0.9)),
        ArgumentError,
        "SGD: a group has an option 'betas', which no rule reads; the options are dampening, lr, maximize, momentum, "
        "nesterov, weight_decay.",
    ),
    (lambda: sgd().step([masked()]), OperandError, f"SGD.step: the gradient of the parameter {LOST}"),
    (
        lambda: loaded({"betas": [2.0, 0.9]}),
        ArgumentError,
        LOADED + "betas is (2.0, 0.9); it must be two numbers from 0 up to, but not including, 1.",
    ),
    (lambda: loaded({"lr": None}), ArgumentError, LOADED + "lr is None; it must be a finite number from 0 on."),
    (
        lambda: loaded(step=-5),
        ArgumentError,
        LOADED + "the state of parameter 0 has -5 for step; it must be a finite number from 0 on.",
    ),
    (
        lambda: loaded(step=np.array(np.nan)),
        ArgumentError,
        LOADED + "the state of parameter 0 has nan for step; it must be a finite number from 0 on.",
    ),
    (
        lambda: loaded(step=np.ones(2)),
        ArgumentError,
        LOADED + "the state of parameter 0 has array([1., 1.]) for step; it must be a number.",
    ),
    (
        lambda: loaded(exp_avg="abc"),
        ArgumentError,
        LOADED + "state 'exp_avg' of parameter 0 is of type str; it must be a tensor or an array.",
    ),
    (
        lambda: loaded(exp_avg=np.array(["a", "b"])),
        DtypeError,
        LOADED + "state 'exp_avg' of parameter 0 has dtype <U1; it must hold real numbers.",
    ),
    (lambda: loaded(exp_avg=masked()), OperandError, LOADED + f"state 'exp_avg' of parameter 0 {LOST}"),
    (
        lambda: sgd().load_state_dict({"state": {}, "param_groups": [1]}),
        ArgumentError,
        'SGD.load_state_dict: "state" is to be a dict by parameters, and "param_groups" a list of dicts with "params".',
    ),
    (
        lambda: sgd().load_state_dict(adams_state()),
        ArgumentError,
        "SGD.load_state_dict: the state is of another optimizer: it has amsgrad, betas, eps, and not dampening, "
        "momentum, nesterov.",
    ),
    (
        lambda: optim.Adam(nn.Linear(2, 1).state_dict()).step(),
        GradientError,
        "Adam.step: no parameter requires grad or has a gradient, so that nothing can be trained; give the optimizer "
        "model.parameters(), not state_dict(), or give gradients to step().",
    ),
]


@pytest.mark.parametrize(("make", "kind", "text"), REFUSED)
def test_what_cannot_be_meant_is_refused(make, kind, text):
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["name", "depth", "initial_lr", "maximize", "foreach", "fused"])
def test_a_group_may_carry_labels_and_what_pytorch_sets(name):
    assert sgd(**{name: False}).param_groups[0][name] is False


def test_a_group_may_have_what_a_rule_of_ones_own_names():
    class Scaled(optim.Optimizer):
        def update(self, param, grad, state, lr, scale=1.0):
            return param - lr * scale * grad, {}

    w = nt.zeros(1, requires_grad=True)
    Scaled([{"params": [w], "scale": 3.0}], lr=1.0).step([np.ones(1)])
    assert w.tolist() == [-3.0]


def test_a_state_from_elsewhere_may_have_options_of_its_own():
    optimizer = loaded({"fused": None, "foreach": None, "betas": (np.array(0.5), 0.9)})
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.9)
