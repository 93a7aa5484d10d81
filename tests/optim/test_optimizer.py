"""What all optimizers share: forms of steps, groups, states, the three seeds' ways, and errors that say what to do."""

import copy
import gc
import pickle
import re
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape import optim
from numtape.errors import ArgumentError, DtypeError, GradientError, OperandError, OverwrittenError, ShapeError

EVERY = [optim.SGD, optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adagrad, optim.RMSprop, optim.Adadelta]
EVERY += [optim.Lion]


def leaves(*values):
    return [nt.tensor(value, requires_grad=True) for value in values]


def message(kind, function):
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)


# Forms of step.
def test_step_follows_the_gradients_of_its_own_parameters_and_skips_those_without():
    a, b = leaves([1.0], [1.0])
    optimizer = optim.SGD([a, b], lr=0.5)
    (a * 2.0).sum().backward()
    optimizer.step()
    assert (a.item(), b.item()) == (0.0, 1.0)


def test_a_step_before_any_backward_changes_nothing():
    (a,) = leaves([1.0])
    optimizer = optim.Adam([a])
    optimizer.step()
    assert a.item() == 1.0
    assert optimizer.state == {}


def test_step_takes_a_map_of_gradients_by_identity():
    a, b = leaves([1.0], [3.0])
    optimizer = optim.SGD([b, a], lr=0.5)
    with nt.Tape() as tape:
        loss = (a * b).sum()
    optimizer.step(tape.backward(loss))
    assert (a.item(), b.item()) == (-0.5, 2.5)


def test_a_map_serves_an_optimizer_without_parameters_of_its_own():
    x = nt.tensor([3.0])
    with nt.Tape() as tape:
        loss = (x * x).sum()
    optim.SGD(0.5).step(tape.backward(loss))
    assert x.item() == 0.0


def test_a_sequence_is_gradients_in_the_order_of_the_parameters():
    a, b = leaves([1.0], [3.0])
    optimizer = optim.SGD([a, b], lr=1.0)
    optimizer.step([nt.tensor([1.0]), None])
    assert (a.item(), b.item()) == (0.0, 3.0)
    optimizer.step([np.array([1.0]), np.array([2.0])])
    assert (a.item(), b.item()) == (-1.0, 1.0)


def test_a_sequence_of_own_parameters_is_a_choice_of_them():
    a, b = leaves([1.0], [1.0])
    optimizer = optim.SGD([a, b], lr=1.0)
    (a + b).sum().backward()
    optimizer.step([b])
    assert (a.item(), b.item()) == (1.0, 0.0)


def test_keywords_say_which_is_which():
    a, b = leaves([1.0], [1.0])
    optimizer = optim.SGD(lr=1.0)
    optimizer.step(params=[a, b], grads=[b, a])
    assert (a.item(), b.item()) == (0.0, 0.0)


def test_a_generator_of_parameters_and_a_dict_work():
    a, b = leaves([1.0], [1.0])
    (a + b).sum().backward()
    optimizer = optim.SGD(1.0)
    optimizer.step(p for p in (a, b))
    optimizer.step({"a": a})
    assert (a.item(), b.item()) == (-1.0, 0.0)


def test_a_single_tensor_stands_for_a_list_of_one():
    (a,) = leaves([1.0, 2.0])
    optimizer = optim.SGD(a, lr=1.0)
    optimizer.step(nt.tensor([1.0, 1.0]))
    a.grad = [1.0, 1.0]
    optimizer.step(a)
    assert a.tolist() == [-1.0, 0.0]


def test_a_closure_computes_the_loss_with_gradients_on():
    (a,) = leaves([1.0])
    optimizer = optim.SGD([a], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        return loss

    with nt.no_grad():
        assert optimizer.step(closure).item() == 1.0
    assert a.item() == 0.5


def test_apply_gradients_takes_pairs_lists_and_maps():
    a, b = leaves([1.0], [1.0])
    optimizer = optim.SGD([a, b], lr=1.0)
    optimizer.apply_gradients(zip([nt.tensor([1.0]), nt.tensor([2.0])], [a, b], strict=True))
    assert (a.item(), b.item()) == (0.0, -1.0)
    optimizer.apply_gradients([nt.tensor([1.0]), nt.tensor([2.0])])
    optimizer.apply_gradients([nt.tensor([1.0])], [b])
    assert (a.item(), b.item()) == (-1.0, -4.0)


def test_a_gradient_that_is_the_parameter_itself_is_read_before_it_is_written():
    (a,) = leaves([1.0, -2.0])
    optim.SGD([a], lr=0.5, momentum=0.9, nesterov=True).step(grads=[a])
    np.testing.assert_allclose(a.numpy(), [0.05, -0.1], rtol=1e-6)


# The seeds.
def test_hodus_order_of_numbers():
    optimizer = optim.Adam(0.001, 0.9, 0.999, 1e-8)
    assert optimizer.defaults == {
        "lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False,
        "decoupled_weight_decay": False, "maximize": False,
    }  # fmt: skip
    assert optim.SGD(0.01).param_groups[0]["lr"] == 0.01
    assert optim.AdamW(0.1, weight_decay=0.5).defaults["weight_decay"] == 0.5


def test_hodus_loop_with_parameters_in_every_call():
    params = leaves([1.0, -2.0])
    optimizer = optim.Adam(0.1, 0.9, 0.999, 1e-8)
    for _ in range(200):
        loss = (params[0] * params[0]).sum()
        loss.backward()
        optimizer.step(params)
        optimizer.zero_grad(params)
    assert params[0].grad is None
    assert np.abs(params[0].numpy()).max() < 0.02
    assert optimizer.state[params[0]]["step"] == 200


def test_two_optimizers_share_parameters_and_zero_grad_never_touches_a_graph():
    (a,) = leaves([1.0])
    main, auxiliary = optim.SGD([a], lr=0.1), optim.SGD([a], lr=0.2)
    loss = (a * 1.0).sum()
    main.zero_grad()
    loss.backward()
    main.step()
    auxiliary.step()
    assert a.item() == pytest.approx(0.7)
    main.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0]
    main.zero_grad(True)
    assert a.grad is None


def test_updates_are_never_recorded_not_even_on_an_active_tape():
    (a,) = leaves([1.0])
    a.grad = [1.0]
    for optimizer in (optim.Adam([a]), Normalised([a], lr=0.1)):
        with nt.Tape() as tape:
            optimizer.step()
        assert len(tape) == 0
        assert a.is_leaf


def test_a_graph_from_before_the_step_notices_it():
    (a,) = leaves([1.0])
    loss = (a * a).sum()
    optim.SGD([a], lr=0.1).step([np.ones(1)])
    text = message(OverwrittenError, loss.backward)
    assert "optim.SGD([a], lr=0.1).step([np.ones(1)])" in text


def test_memory_stays_constant_over_many_steps():
    (a,) = leaves(np.zeros(10))
    optimizer = optim.Adam([a])

    def train(count):
        for _ in range(count):
            (a * a).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    train(20)
    gc.collect()
    before = len(gc.get_objects())
    train(500)
    gc.collect()
    assert len(gc.get_objects()) - before < 20


def test_dropping_an_optimizer_frees_it_at_once_without_the_collector():
    (a,) = leaves([1.0])
    optimizer = optim.Adam([a])
    optimizer.step([np.ones(1)])
    state = weakref.ref(optimizer.state[a]["exp_avg"])
    program = weakref.ref(next(iter(optimizer._rule._programs.values())))
    gc.disable()
    try:
        del optimizer
        assert state() is None
        assert program() is None
    finally:
        gc.enable()


# Groups.
def test_groups_have_options_of_their_own_that_may_change_between_steps():
    a, b = leaves([0.0], [0.0])
    optimizer = optim.SGD([{"params": [a], "lr": 1.0}, {"params": b}], lr=0.1)
    grads = [np.ones(1), np.ones(1)]
    optimizer.step(grads)
    optimizer.param_groups[1]["lr"] = 10.0
    optimizer.step(grads)
    assert (a.item(), b.item()) == (-2.0, pytest.approx(-10.1))


def test_an_option_that_starts_to_matter_later_gets_its_state_then():
    (a,) = leaves([0.0])
    optimizer = optim.SGD([a], lr=1.0)
    optimizer.step([np.ones(1)])
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step([np.ones(1)])
    optimizer.step([np.ones(1)])
    assert a.item() == -3.5


def test_named_parameters_and_models_are_accepted():
    a, b = leaves([1.0], [2.0])

    class Model:
        def parameters(self):
            yield from (a, b)

    assert optim.SGD([("a", a), ("b", b)]).param_groups[0]["params"] == [a, b]
    assert optim.SGD(Model()).param_groups[0]["params"] == [a, b]
    assert optim.SGD({"a": a, "b": b}).param_groups[0]["params"] == [a, b]


def test_clipping_is_a_method_too():
    (a,) = leaves([0.0, 0.0])
    optimizer = optim.SGD([a], lr=1.0)
    a.grad = [3.0, 4.0]
    assert optimizer.clip_grad_norm(1.0).item() == 5.0
    np.testing.assert_allclose(a.grad.numpy(), [0.6, 0.8], rtol=1e-6)
    optimizer.clip_grad_value(0.7)
    np.testing.assert_allclose(a.grad.numpy(), [0.6, 0.7], rtol=1e-6)


# Saving.
@pytest.mark.parametrize("cls", EVERY)
def test_an_optimizer_resumes_bit_for_bit(cls):
    grads = np.random.default_rng(0).normal(size=(8, 6))
    (a,) = leaves(np.linspace(-1.0, 1.0, 6))
    first = cls([a])
    for g in grads[:4]:
        first.step([g])
    (b,) = leaves(a.numpy(copy=True))
    second = cls([b], lr=123.0)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    for g in grads[4:]:
        first.step([g])
        second.step([g])
    assert np.array_equal(a.numpy(), b.numpy())
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]


def test_a_saved_state_is_a_copy_in_pytorchs_layout():
    a, b = leaves([1.0], [2.0])
    optimizer = optim.Adam([a, b], lr=0.1)
    optimizer.step([None, np.ones(1)])
    saved = optimizer.state_dict()
    assert sorted(saved) == ["param_groups", "state"]
    assert saved["param_groups"][0]["params"] == [0, 1]
    assert list(saved["state"]) == [1]
    kept = saved["state"][1]["exp_avg"].tolist()
    optimizer.step([None, np.ones(1)])
    assert saved["state"][1]["exp_avg"].tolist() == kept
    assert saved["state"][1]["step"] == 1


def test_a_velocity_without_a_count_of_steps_is_of_a_step_that_was_taken():
    a, b = leaves([1.0], [1.0])
    optimizers = [optim.SGD([each], lr=0.1, momentum=0.9, dampening=0.5) for each in (a, b)]
    for optimizer in optimizers:
        optimizer.step([np.ones(1)])
    saved = optimizers[0].state_dict()
    del saved["state"][0]["step"]  # PyTorch's SGD has none.
    optimizers[1].load_state_dict(saved)
    for optimizer in optimizers:
        optimizer.step([np.ones(1)])
    assert a.tolist() == b.tolist()


def test_text_keys_and_lists_are_accepted_since_formats_make_them():
    (a,) = leaves([1.0])
    optimizer = optim.Adam([a])
    optimizer.step([np.ones(1)])
    saved = optimizer.state_dict()
    saved["state"] = {"0": saved["state"][0]}
    saved["param_groups"][0]["betas"] = [0.5, 0.6]
    other = optim.Adam([a])
    other.load_state_dict(saved)
    assert other.state[a]["step"] == 1
    assert other.param_groups[0]["betas"] == (0.5, 0.6)


def test_a_state_that_does_not_fit_changes_nothing():
    a, b = leaves([1.0, 2.0], [1.0, 2.0, 3.0])
    first, second = optim.Adam([a]), optim.Adam([b], lr=0.5)
    first.step([np.ones(2)])
    text = message(ShapeError, lambda: second.load_state_dict(first.state_dict()))
    assert text == "Adam.load_state_dict: state 'exp_avg' of parameter 0 has shape (2,), and here it has (3,)."
    assert second.param_groups[0]["lr"] == 0.5
    assert second.state == {}
    both = optim.Adam([a, b])
    assert message(ArgumentError, lambda: both.load_state_dict(first.state_dict())) == (
        "Adam.load_state_dict: the optimizer has groups of [2] parameters, and the saved one of [1]; make it with the "
        "same parameters in the same groups."
    )
    assert message(ArgumentError, lambda: both.load_state_dict([])) == (
        'Adam.load_state_dict: the state of an optimizer is a dict with "state" and "param_groups".'
    )


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_optimizer_goes_on_with_the_copied_parameters(duplicate):
    (a,) = leaves([1.0, 2.0])
    optimizer = optim.Adam([a], lr=0.1)
    optimizer.step([np.ones(2)])
    (b,), other = duplicate(([a], optimizer))
    optimizer.step([np.array([1.0, -5.0])])
    middle = b.numpy(copy=True)
    other.step([np.array([1.0, -5.0])])
    assert not np.array_equal(middle, b.numpy())
    assert np.array_equal(a.numpy(), b.numpy())
    assert other.state[b]["step"] == 2


# Memory that is replaced.
def test_memory_that_was_replaced_is_noticed():
    (a,) = leaves([1.0, 1.0])
    optimizer = optim.SGD([a], lr=1.0, momentum=0.5)
    optimizer.step([np.ones(2)])
    a.array = np.array([5.0, 5.0], np.float32)
    optimizer.state[a]["momentum_buffer"] = nt.zeros(2)
    optimizer.step([np.ones(2)])
    assert a.tolist() == [4.0, 4.0]


# A rule that is no expression.
class Normalised(optim.Optimizer):
    def update(self, param, grad, state, lr):
        return param - lr * grad / grad.norm(), {}


def test_a_rule_with_a_norm_runs_on_whole_tensors():
    (a,) = leaves([0.0, 0.0])
    Normalised([a], lr=1.0).step([np.array([3.0, 4.0])])
    np.testing.assert_allclose(a.numpy(), [-0.6, -0.8], rtol=1e-6)


# Errors.
ERRORS = [
    (
        lambda: optim.Adam([]),
        ArgumentError,
        "Adam: the list of parameters is empty; a generator that was used up before gives none.",
    ),
    (lambda: optim.Adam([np.zeros(2)]), OperandError, "Adam: parameter 0 is of type ndarray; parameters are tensors."),
    (
        lambda: optim.Adam([("w", nt.tensor([1, 2]))]),
        DtypeError,
        "Adam: parameter 'w' has dtype int64; only float tensors have gradients to follow.",
    ),
    (
        lambda: optim.Adam([nt.ones(2, requires_grad=True) * 2.0]),
        GradientError,
        "Adam: parameter 0 is not a leaf: it was computed from other tensors. Optimize those, or detach() it and set "
        "requires_grad=True.",
    ),
    (lambda: optim.Adam([nt.ones(2)], lr=-1), ArgumentError, "Adam: lr is -1; it must be a finite number from 0 on."),
    (
        lambda: optim.SGD([nt.ones(2)], lr=float("nan")),
        ArgumentError,
        "SGD: lr is nan; it must be a finite number from 0 on.",
    ),
    (
        lambda: optim.Adam([nt.ones(2)], betas=(0.9, 1.0)),
        ArgumentError,
        "Adam: betas is (0.9, 1.0); it must be two numbers from 0 up to, but not including, 1.",
    ),
    (
        lambda: optim.Adam([nt.ones(2)], betas=0.9),
        ArgumentError,
        "Adam: betas is 0.9; it must be two numbers from 0 up to, but not including, 1.",
    ),
    (
        lambda: optim.SGD([nt.ones(2)], nesterov=True),
        ArgumentError,
        "SGD: nesterov needs momentum and no dampening; momentum is 0.0 and dampening 0.0.",
    ),
    (lambda: optim.Adam(0.1, 0.9), ArgumentError, "Adam: betas takes 2 numbers, and only 1 are left."),
    (
        lambda: optim.SGD(0.1, lr=0.2),
        OperandError,
        "SGD: lr is given twice; the order is lr, momentum, dampening, weight_decay, nesterov.",
    ),
    (lambda: optim.SGD(object()), OperandError, "SGD: parameters are an iterable of tensors, not object."),
    (
        lambda: optim.SGD([TWICE, TWICE]),
        ArgumentError,
        "SGD: parameter 1 is given twice; each parameter belongs to one group, once.",
    ),
    (
        lambda: optim.SGD([{"params": [TWICE]}, {"params": [TWICE]}]),
        ArgumentError,
        "SGD: a parameter is in two groups; each belongs to one, once.",
    ),
    (
        lambda: optim.SGD([TWICE]).add_param_group([TWICE]),
        OperandError,
        'SGD: a group of parameters is a dict with "params", not list.',
    ),
    (
        lambda: optim.SGD(0.1).step(),
        ArgumentError,
        "SGD.step: the optimizer has no parameters of its own; give them to it, or to step(params).",
    ),
    (
        lambda: optim.SGD([TWICE]).step([nt.ones(2), nt.ones(2)]),
        ShapeError,
        "SGD.step: there are 1 parameters and 2 gradients; give one for each, None for those to leave alone.",
    ),
    (
        lambda: optim.SGD([TWICE]).step([nt.ones(3)]),
        ShapeError,
        "SGD.step: parameter 'w' has shape (2,) and its gradient (3,); they must be equal.",
    ),
    (
        lambda: optim.SGD([TWICE]).step(["text"]),
        OperandError,
        "SGD.step: a gradient is a tensor, an array or None, not str.",
    ),
    (
        lambda: optim.Optimizer([TWICE]),
        OperandError,
        "Optimizer: an optimizer has a learning rate; call Optimizer.__init__(params, lr=...).",
    ),
]
TWICE = nt.ones(2, requires_grad=True, name="w")


@pytest.mark.parametrize(("make", "kind", "text"), ERRORS)
def test_what_is_wrong_is_said(make, kind, text):
    assert message(kind, make) == text


def test_parameters_in_memory_that_is_read_only_get_their_own():
    frozen = np.ones(2)
    frozen.flags.writeable = False
    w = nt.from_numpy(frozen)
    optim.SGD([w], lr=0.5).step([np.ones(2)])
    assert (w.tolist(), frozen.tolist()) == ([0.5, 0.5], [1.0, 1.0])
    numbers = list(nt.tensor([1.0, 2.0]))
    optim.SGD(numbers, lr=0.5).step(grads=[np.ones(()), np.ones(())])
    assert [x.item() for x in numbers] == [0.5, 1.5]


def test_what_a_rule_does_wrong_is_said():
    class NoRule(optim.Optimizer):
        pass

    class Misspelt(optim.Optimizer):
        def update(self, param, grad, state, lr, beta):
            return param, {}

    class WrongShape(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param.sum(), {}

    class NewState(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param - lr * grad, {"surprise": grad}

    class NoState(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param - lr * grad

    class InPlace(optim.Optimizer):
        def update(self, param, grad, state, lr):
            param -= lr * grad
            return param, state

    def step(cls):
        return lambda: cls([nt.ones(2)], lr=0.1).step([np.ones(2)])

    assert message(NotImplementedError, step(NoRule)) == "NoRule: a subclass of Optimizer defines update()."
    assert message(OperandError, step(Misspelt)) == (
        "Misspelt.update: there is no option 'beta'; the options are lr. Give it to Optimizer.__init__."
    )
    assert message(ShapeError, step(WrongShape)) == (
        "WrongShape.update: the parameter has shape (2,), and its new value (); they must be equal."
    )
    assert message(OperandError, step(NewState)) == (
        "NewState.update: returned state 'surprise', which init did not make; it made nothing."
    )
    assert message(OperandError, step(NoState)) == (
        "NoState.update: must return the new parameter and the new state, a dict."
    )


def test_an_optimizer_shows_its_groups():
    assert repr(optim.SGD([nt.ones(2)], lr=0.1)) == (
        "SGD(1 parameters, lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False)"
    )


def test_a_state_follows_its_parameter_into_another_dtype():
    model = nt.nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    optimizer.step([np.ones((2, 3)), np.array([1.0, 2.0])])
    assert optimizer.state[model.bias]["exp_avg"].dtype == np.float32
    model.double()
    optimizer.step([np.ones((2, 3)), np.zeros(2)])
    state = optimizer.state[model.bias]
    assert {state["exp_avg"].dtype, state["exp_avg_sq"].dtype, model.bias.dtype} == {np.dtype(np.float64)}
    np.testing.assert_allclose(state["exp_avg"].numpy(), [0.09, 0.18], rtol=1e-6)
    assert state["step"] == 2
    assert None not in optimizer._rule._programs.values()


def test_pytorchs_settings_are_accepted_and_others_are_not():
    w = nt.zeros(1)
    optim.SGD([w], lr=1.0, maximize=True, foreach=True, fused=False, differentiable=False).step([np.ones(1)])
    assert w.item() == 1.0
    with pytest.raises(OperandError) as caught:
        optim.Adam([w], learning_rate=0.1)
    assert str(caught.value) == "Adam: got an unexpected keyword argument 'learning_rate'."
    for bound in (optim.AdamW, optim.NAdam, optim.RAdam, optim.Adagrad, optim.RMSprop, optim.Adadelta, optim.Lion):
        assert bound([w], maximize=True, capturable=False).param_groups[0]["maximize"] is True


def test_a_rule_of_ones_own_may_ascend_whether_it_is_captured_or_not():
    class Plain(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param - lr * grad, {}

    class Whole(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param - lr * grad * vars(self)["factor"], {}

    class Knowing(optim.Optimizer):
        def update(self, param, grad, state, lr, maximize):
            return param - lr * grad * (-1.0 if maximize else 1.0), {}

    for cls in (Plain, Whole, Knowing):
        w = nt.zeros(1)
        optimizer = cls([w], lr=1.0, maximize=True)
        optimizer.factor = 1.0
        optimizer.step([np.ones(1)])
        assert w.item() == 1.0
        optimizer.param_groups[0]["maximize"] = False
        optimizer.step([np.ones(1)])
        assert w.item() == 0.0


def test_a_rule_may_write_to_what_it_is_given():
    class InPlace(optim.Optimizer):
        def init(self, param):
            return {"mean": nt.zeros_like(param)}

        def update(self, param, grad, state, lr):
            state["mean"] *= 0.5
            state["mean"] += grad
            param -= lr * state["mean"]
            return param, state

    w = nt.ones(2, requires_grad=True)
    optimizer = InPlace([w], lr=0.1)
    given = nt.ones(2)
    for _ in range(2):
        optimizer.step([given])
    np.testing.assert_allclose(w.numpy(), [0.75, 0.75], rtol=1e-6)
    assert given.tolist() == [1.0, 1.0]


def test_adamw_stays_adamw_whatever_state_it_loads():
    w = nt.tensor([10.0], requires_grad=True)
    w.grad = nt.ones(1)
    adam = optim.Adam([w], lr=0.1, weight_decay=0.5)
    adam.step()
    loaded = optim.AdamW([w], lr=0.1, weight_decay=0.5)
    loaded.load_state_dict(adam.state_dict())
    assert loaded.param_groups[0]["decoupled_weight_decay"] is True
    before = w.item()
    loaded.step()
    assert before - w.item() > 0.4  # The decay alone takes 5% of 10.


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"step": 1000}, "the state of parameter 0 lacks exp_avg, exp_avg_sq."),
        ({"step": 1, "exp_avg": np.ones(2), "exp_avg_sqq": np.ones(2)}, "has exp_avg_sqq, and not exp_avg_sq."),
        ({"step": "x", "exp_avg": np.ones(2), "exp_avg_sq": np.ones(2)}, "has 'x' for step; it must be a number."),
    ],
)
def test_states_that_a_rule_cannot_go_on_from_are_refused(state, says):
    w = nt.ones(2, requires_grad=True)
    optimizer = optim.Adam([w], lr=0.1)
    saved = {**optimizer.state_dict(), "state": {0: state}}
    with pytest.raises(ArgumentError, match=re.escape(says)):
        optimizer.load_state_dict(saved)


def test_labels_of_groups_do_not_make_a_state_that_of_another_optimizer():
    w = nt.ones(2, requires_grad=True)
    saved = optim.SGD([w], lr=0.1).state_dict()
    saved["param_groups"][0]["param_names"] = ["w"]  # As PyTorch saves parameters that have names.
    labelled = optim.SGD([{"params": [w], "name": "all"}], lr=0.2)
    labelled.load_state_dict(saved)
    assert labelled.param_groups[0]["lr"] == 0.1
    assert labelled.param_groups[0]["name"] == "all"
