"""Loss scaling: the rule of the scale, steps that are skipped, several optimizers, misuse, tapes, saved states."""

import gc
import math
import pickle
import warnings
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape.core.gradients import sweep

INFINITE = float("inf")


def make(init_scale=1024.0, lr=0.5, **settings):
    """Return a parameter, its optimizer and a scaler."""
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    return w, nt.optim.SGD([w], lr=lr), nt.LossScaler.Dynamic(init_scale=init_scale, **settings)


def one_step(w, optimizer, scaler, overflow=False):
    optimizer.zero_grad()
    scaler.scale((w * (INFINITE if overflow else 1.0)).sum()).backward()
    result = scaler.step(optimizer)
    scaler.update()
    return result


# The rule.


def test_the_scale_grows_after_good_steps_and_shrinks_at_once():
    w, optimizer, scaler = make(init_scale=8.0, lr=0.0, growth_interval=3)
    found = []
    for overflow in (0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0):
        one_step(w, optimizer, scaler, overflow)
        found.append(scaler.get_scale())
    assert found == [8, 8, 16, 16, 16, 8, 8, 8, 16, 8, 4, 4]


@pytest.mark.parametrize("seed", range(5))
def test_the_trajectory_is_that_of_the_documented_rule(seed):
    rng = np.random.default_rng(seed)
    settings = dict(growth_factor=1.5, backoff_factor=0.25, growth_interval=4, min_scale=0.5, max_scale=100.0)
    w, optimizer, scaler = make(init_scale=16.0, lr=0.0, **settings)
    scale, good = 16.0, 0
    for _ in range(200):
        overflow = bool(rng.random() < 0.2)
        one_step(w, optimizer, scaler, overflow)
        if overflow:
            scale, good = max(scale * 0.25, 0.5), 0
        elif good == 3:
            scale, good = min(scale * 1.5, 100.0), 0
        else:
            good += 1
        assert (scaler.get_scale(), scaler.good_steps, scaler.overflow) == (scale, good, overflow)


@pytest.mark.filterwarnings("ignore:LossScaler")
def test_the_scale_is_never_zero_or_infinite():
    w, optimizer, scaler = make(lr=0.0, growth_interval=1)
    for overflow in (True, False):
        for _ in range(300):
            one_step(w, optimizer, scaler, overflow)
            assert 0.0 < scaler.get_scale() < math.inf
    assert scaler.get_scale() == 2.0**64


def test_defaults_are_those_of_the_documents():
    assert nt.LossScaler.Dynamic().state_dict() == {
        "scale": 65536.0,
        "skipped": 0,
        "good_steps": 0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "min_scale": 2.0**-32,
        "max_scale": 2.0**64,
    }


def test_a_static_scale_stays_and_skips_all_the_same():
    w, optimizer, _ = make()
    scaler = nt.LossScaler.Static(128.0)
    one_step(w, optimizer, scaler)
    assert w.tolist() == [0.5, 1.5]
    one_step(w, optimizer, scaler, overflow=True)
    assert w.tolist() == [0.5, 1.5]
    assert (scaler.get_scale(), scaler.overflow, scaler.skipped) == (128.0, True, 1)


# Steps.


def test_a_step_is_that_of_unscaled_gradients():
    w, optimizer, scaler = make(init_scale=65536.0)
    scaler.scale((w * w).sum()).backward()
    assert w.grad.tolist() == [2.0 * 65536.0, 4.0 * 65536.0]
    scaler.step(optimizer)
    assert w.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_an_overflow_leaves_parameters_moments_and_counts_bitwise_alone(bad):
    def frozen(optimizer):
        states = optimizer.state_dict()["state"].values()
        return [[x.numpy().tobytes() if hasattr(x, "numpy") else x for x in state.values()] for state in states]

    rng = np.random.default_rng(0)
    parameters = [nt.tensor(rng.standard_normal(5).astype(d), requires_grad=True) for d in ("float32", "float16")]
    optimizer = nt.optim.Adam(parameters, lr=0.1)
    scaler = nt.LossScaler.Dynamic(1024.0)
    for overflow in (False, True):
        before = (frozen(optimizer), [p.numpy().tobytes() for p in parameters])
        optimizer.zero_grad()
        scaler.scale(sum((p * p).sum().astype(nt.float32) for p in parameters)).backward()
        if overflow:
            with nt.no_grad():
                parameters[1].grad[2] = bad
        scaler.step(optimizer)
        scaler.update()
        after = (frozen(optimizer), [p.numpy().tobytes() for p in parameters])
        assert (after == before) is overflow


def test_what_the_optimizer_returns_is_returned_and_none_for_a_skipped_step():
    class Telling(nt.optim.SGD):
        def step(self, *args, **kwargs):
            super().step(*args, **kwargs)
            return "done"

    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = Telling([w], lr=0.1), nt.LossScaler.Static(2.0)
    assert one_step(w, optimizer, scaler) == "done"
    assert one_step(w, optimizer, scaler, overflow=True) is None


def test_gradients_are_clipped_after_unscaling():
    w, optimizer, scaler = make(init_scale=4096.0, lr=1.0)
    scaler.scale((w * nt.tensor([3.0, 4.0])).sum()).backward()
    scaler.unscale(optimizer)
    assert nt.clip_grad_norm([w], 1.0).item() == 5.0
    scaler.step(optimizer)
    np.testing.assert_allclose(w.numpy(), [0.4, 1.2], rtol=1e-6)


def test_two_optimizers_share_a_scaler():
    a, b = (nt.tensor([1.0], requires_grad=True) for _ in range(2))
    first, second = nt.optim.SGD([a], lr=1.0), nt.optim.SGD([b], lr=1.0)
    scaler = nt.LossScaler.Dynamic(8.0)
    for loss in scaler.scale([(a * 0.5).sum(), (b * INFINITE).sum()]):
        loss.backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (a.tolist(), b.tolist(), scaler.get_scale()) == ([0.5], [1.0], 4.0)


def test_a_parameter_of_two_optimizers_is_unscaled_once():
    w = nt.tensor([1.0], requires_grad=True)
    first, second = nt.optim.SGD([w], lr=0.5), nt.optim.SGD([w], lr=0.25)
    scaler = nt.LossScaler.Static(64.0)
    scaler.scale(w.sum()).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert w.tolist() == [0.25]


def test_accumulated_losses_are_unscaled_once():
    w, optimizer, scaler = make(lr=1.0)
    for _ in range(4):
        scaler.scale((w * 0.25).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.0, 1.0]


def test_a_tree_of_losses_is_scaled():
    scaler = nt.LossScaler.Static(4.0)
    scaled = scaler.scale({"a": nt.tensor(1.0), "b": [nt.tensor(2.0)]})
    assert (scaled["a"].item(), scaled["b"][0].item()) == (4.0, 8.0)


def test_a_half_loss_has_room_for_the_scale():
    loss = nt.tensor(2.0, dtype=nt.float16) * 1.0
    assert nt.LossScaler.Static(65536.0).scale(loss).item() == 131072.0


# Half parameters.


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_scaling_saves_gradients_that_float16_would_lose(dtype):
    w = nt.tensor([1.0], dtype=dtype, requires_grad=True)
    scaler, optimizer = nt.LossScaler.Static(65536.0), nt.optim.SGD([w], lr=2.0**20)
    # The derivative is 2**-30, below what float16 can hold.
    scaler.scale((w.astype(nt.float32) * 2.0**-30).sum()).backward()
    assert w.grad.dtype == dtype
    scaler.unscale(optimizer)
    assert w.grad.dtype == nt.float32
    assert w.grad.tolist() == [2.0**-30]
    scaler.step(optimizer)
    master = optimizer.state_dict()["state"][0]["master"]
    assert master.dtype == nt.float32
    assert master.tolist() == [np.float32(1.0 - 2.0**-10)]


def test_steps_too_small_for_a_half_parameter_add_up():
    w = nt.tensor([1.0], dtype=nt.float16, requires_grad=True)
    optimizer = nt.optim.SGD([w], lr=2.0**-13)
    for _ in range(16):
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()
    assert w.tolist() == [1.0 - 2.0**-9]


@pytest.mark.parametrize("rule", ["captured", "whole"])
@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_half_parameters_follow_float32_ones_exactly(dtype, rule):
    class Descent(nt.optim.Optimizer):
        def __init__(self, params, lr=0.01):
            super().__init__(params, lr=lr)

        def update(self, param, grad, state, lr):
            step = lr * grad
            return param - (step if rule == "captured" else step * (1.0 if float(step.sum()) > -1e9 else 0.0)), state

    start = np.linspace(-1.0, 1.0, 7).astype(dtype)
    half = nt.tensor(start, requires_grad=True)
    full = nt.tensor(start.astype(np.float32), requires_grad=True)
    one, other = Descent([half]), Descent([full])
    for i in range(30):
        gradient = np.random.default_rng(i).standard_normal(7).astype(dtype)
        one.step([nt.tensor(gradient)])
        other.step([nt.tensor(gradient.astype(np.float32))])
        np.testing.assert_array_equal(one.state[half]["master"].numpy(), full.numpy())
        np.testing.assert_array_equal(half.numpy(), full.numpy().astype(dtype))


def test_masters_are_saved_and_loaded():
    def train(steps, w, optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            (w * nt.tensor([0.3, 0.7], dtype=nt.float16)).sum().backward()
            optimizer.step()

    w = nt.tensor([1.0, -2.0], dtype=nt.float16, requires_grad=True)
    optimizer = nt.optim.AdamW([w], lr=1e-4)
    train(5, w, optimizer)
    again = nt.tensor(w.numpy(copy=True), requires_grad=True)
    other = nt.optim.AdamW([again], lr=1e-4)
    other.load_state_dict(optimizer.state_dict())
    train(20, w, optimizer)
    train(20, again, other)
    assert w.numpy().tobytes() == again.numpy().tobytes()
    assert optimizer.state[w]["master"].numpy().tobytes() == other.state[again]["master"].numpy().tobytes()


def test_a_master_follows_what_others_write():
    w = nt.tensor([1.0, 2.0], dtype=nt.float16, requires_grad=True)
    optimizer = nt.optim.SGD([w], lr=2.0**-13)
    optimizer.step([nt.ones(2)])
    with nt.no_grad():
        w[1] = 5.0
    optimizer.step([nt.ones(2)])
    # The first still knows its small steps; the second began anew.
    assert optimizer.state[w]["master"].tolist() == [1.0 - 2.0**-12, 5.0 - 2.0**-13]


def test_a_parameter_that_becomes_float32_has_no_master():
    model = nt.nn.Linear(2, 2, dtype=nt.float16)
    optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step([nt.ones(2, 2), nt.ones(2)])
    assert list(optimizer.state[model.weight]) == ["master"]
    model.float()
    optimizer.step([nt.ones(2, 2), nt.ones(2)])
    assert list(optimizer.state[model.weight]) == []


def test_a_state_named_as_the_master_is_refused_for_half_parameters():
    class Clashing(nt.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, lr=0.1)

        def init(self, param):
            return {"master": nt.zeros_like(param)}

        def update(self, param, grad, state, lr):
            return param, state

    with pytest.raises(nt.errors.OperandError) as error:
        Clashing([nt.ones(2, dtype=nt.float16, requires_grad=True)]).step([nt.ones(2)])
    assert str(error.value) == (
        "Clashing.init: state 'master' is where a half parameter is kept in float32; choose another name."
    )


# Misuse.


def test_a_second_unscale_is_an_error():
    w, optimizer, scaler = make()
    scaler.scale(w.sum()).backward()
    scaler.unscale(optimizer)
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.unscale(optimizer)
    assert str(error.value) == (
        "DynamicScaler.unscale: this SGD had its gradients unscaled since the last update(); call update() first."
    )
    scaler.step(optimizer)
    with pytest.raises(nt.errors.GradientError, match=r"this SGD has stepped since the last update\(\)"):
        scaler.unscale(optimizer)


def test_a_second_step_is_an_error():
    w, optimizer, scaler = make()
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer)
    assert str(error.value) == (
        "DynamicScaler.step: this SGD has stepped since the last update(); call update() after the optimizers have "
        "stepped."
    )


def test_a_step_without_backward_is_an_error():
    w, optimizer, scaler = make()
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer)
    assert str(error.value) == (
        "DynamicScaler.unscale: no loss was scaled since the last update(); call scaler.scale(loss).backward() first."
    )
    scaler.scale(w.sum())
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer)
    assert str(error.value) == (
        "DynamicScaler.unscale: no parameter of this SGD has a gradient; call scaler.scale(loss).backward() first."
    )


def test_an_update_without_a_step_is_an_error():
    _, _, scaler = make()
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.update()
    assert str(error.value) == (
        "DynamicScaler.update: no gradients were unscaled since the last update(); call scaler.step(optimizer), "
        "instead of optimizer.step(), before it."
    )


@pytest.mark.parametrize("dtype", [nt.float16, nt.float32], ids=str)
def test_gradients_that_are_never_unscaled_are_noticed(dtype):
    w = nt.tensor([1.0], dtype=dtype, requires_grad=True, name="w")
    optimizer, scaler = nt.optim.SGD([w], lr=1e-6), nt.LossScaler.Dynamic(1024.0)
    scaler.scale(w.sum()).backward()
    optimizer.step()
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.scale(w.sum())
    assert str(error.value) == (
        "DynamicScaler.scale: parameter 'w' was updated since its loss was scaled, but its gradient was never "
        "unscaled; call scaler.step(optimizer) instead of optimizer.step()."
    )


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: nt.LossScaler(),
            nt.errors.OperandError,
            "LossScaler: there are two kinds; make an nt.LossScaler.Dynamic() or .Static(scale).",
        ),
        (
            lambda: nt.LossScaler.Dynamic(init_scale=0.0),
            nt.errors.ArgumentError,
            "LossScaler: init_scale is 0.0; it must be a number from 2**-126 to 2**126, so that float32 can hold it "
            "and its inverse.",
        ),
        (
            lambda: nt.LossScaler.Static(float("nan")),
            nt.errors.ArgumentError,
            "LossScaler: scale is nan; it must be a number from 2**-126 to 2**126, so that float32 can hold it and its "
            "inverse.",
        ),
        (
            lambda: nt.LossScaler.Dynamic(growth_factor=1.0),
            nt.errors.ArgumentError,
            "LossScaler: growth_factor is 1.0; it must be a number above 1.",
        ),
        (
            lambda: nt.LossScaler.Dynamic(backoff_factor=1.0),
            nt.errors.ArgumentError,
            "LossScaler: backoff_factor is 1.0; it must be a number between 0 and 1.",
        ),
        (
            lambda: nt.LossScaler.Dynamic(growth_interval=0),
            nt.errors.ArgumentError,
            "LossScaler: growth_interval is 0; it must be a positive integer.",
        ),
        (
            lambda: nt.LossScaler.Dynamic(4.0, min_scale=8.0),
            nt.errors.ArgumentError,
            "LossScaler: init_scale is 4.0; it must lie between min_scale (8.0) and max_scale "
            "(1.8446744073709552e+19).",
        ),
        (
            lambda: nt.LossScaler.Static(2.0).scale(3.0),
            nt.errors.OperandError,
            "LossScaler.scale: wants the loss tensor, not float.",
        ),
        (
            lambda: nt.LossScaler.Static(2.0).unscale("sgd"),
            nt.errors.OperandError,
            "StaticScaler.unscale: wants an optimizer, not str.",
        ),
        (
            lambda: nt.LossScaler.Static(2.0).step(nt.optim.SGD(0.1)),
            nt.errors.OperandError,
            "StaticScaler.unscale: this SGD has no parameters of its own, whose gradients could be unscaled; make it "
            "with model.parameters().",
        ),
        (
            lambda: nt.LossScaler.Static(2.0).step(nt.optim.SGD(0.1), lambda: None),
            nt.errors.OperandError,
            "StaticScaler.step: a function that computes the loss cannot be scaled; call backward() first.",
        ),
        (
            lambda: nt.AmpConfig(loss_scaler="dynamic"),
            nt.errors.OperandError,
            "AmpConfig: loss_scaler is of type str; it must be an nt.LossScaler.Dynamic() or .Static(scale).",
        ),
        (
            lambda: nt.AmpConfig(loss_scaler=nt.LossScaler.Dynamic),
            nt.errors.OperandError,
            "AmpConfig: loss_scaler is the class DynamicScaler; it must be an nt.LossScaler.Dynamic() or "
            ".Static(scale).",
        ),
        (
            lambda: nt.AmpConfig(loss_scaler=128.0),
            nt.errors.OperandError,
            "AmpConfig: loss_scaler is of type float; it must be an nt.LossScaler.Dynamic() or .Static(scale).",
        ),
        (
            lambda: nt.LossScaler.Static(2.0).load_state_dict({"loss": 1}),
            nt.errors.ArgumentError,
            "StaticScaler.load_state_dict: the state of this scaler is a dict with 'scale', 'skipped'.",
        ),
        (
            lambda: nt.GradScaler("cuda"),
            nt.errors.ArgumentError,
            "GradScaler: there is no device 'cuda'; numtape computes on \"cpu\".",
        ),
    ],
)
def test_bad_input_is_one_clear_line(call, kind, message):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == message


def two_optimizers():
    a, b = (nt.tensor([1.0], requires_grad=True, name=name) for name in "ab")
    return a, b, nt.optim.SGD([a], lr=0.1), nt.optim.SGD([b], lr=0.1), nt.LossScaler.Dynamic(8.0)


@pytest.mark.parametrize("is_first", [False, True])
def test_an_optimizer_that_steps_by_itself_beside_another_is_noticed_at_every_step(is_first):
    a, b, one, other, scaler = two_optimizers()
    for _ in range(2):
        scaler.scale((a * b).sum()).backward()
        scaler.step(one)
        scaler.step(other)
        scaler.update()
        one.zero_grad()
        other.zero_grad()
    scaler.scale((a * b).sum()).backward()
    if not is_first:
        scaler.step(one)
    other.step()
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(one) if is_first else scaler.update()
    assert str(error.value) == (
        f"DynamicScaler.{'unscale' if is_first else 'update'}: parameter 'b' was updated since its loss was scaled, "
        "but its gradient was never unscaled; call scaler.step(optimizer) instead of optimizer.step()."
    )


def test_a_loss_may_pass_through_parameters_that_are_left_alone():
    a, b, one, other, scaler = two_optimizers()
    for optimizer in (one, other) * 2:
        one.zero_grad()
        other.zero_grad()
        scaler.scale((a * b).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert a.item() < 1.0
    assert b.item() < 1.0


def test_gradients_of_the_last_step_are_an_error():
    w, optimizer, scaler = make()
    one_step(w, optimizer, scaler)
    before = w.tolist()
    scaler.scale(w.sum())
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer)
    assert str(error.value) == (
        "DynamicScaler.unscale: the gradients of this SGD are those of the last step; call "
        "scaler.scale(loss).backward() first."
    )
    assert w.tolist() == before


def test_a_gradient_that_no_backward_has_reached_is_not_unscaled_again():
    a, b = (nt.tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer, scaler = nt.optim.SGD([a, b], lr=0.0), nt.LossScaler.Static(8.0)
    for loss in (lambda: (a + b).sum(), lambda: (a * 1.0).sum()):
        a.grad = None
        scaler.scale(loss()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (a.grad.tolist(), b.grad.tolist()) == ([1.0], [1.0])


def test_a_tape_that_scales_refuses_a_loss_that_was_scaled():
    w = nt.ones(2, requires_grad=True)
    scaler = nt.LossScaler.Static(8.0)
    with nt.GradientTape.with_amp_config(amp()) as tape:
        loss = scaler.scale(w.sum())
    with pytest.raises(nt.errors.GradientError) as error:
        tape.backward(loss)
    assert str(error.value) == (
        "DynamicScaler: this tape scales losses by itself, and the loss was scaled before, by scaler.scale(loss); give "
        "the tape the loss itself."
    )
    assert w.grad is None


# Warnings.


def test_a_loss_that_is_gone_has_left_the_name_of_the_op():
    w = nt.tensor([300.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Static(8.0, warn_after=1)
    with np.errstate(all="ignore"):
        scaler.scale(nt.exp(w).sum()).backward()
    scaler.step(optimizer)
    with pytest.warns(RuntimeWarning, match="The first op that overflowed is exp, in float32, at "):
        scaler.update()


def test_a_run_of_skipped_steps_warns_and_names_the_first_op():
    w = nt.tensor([[300.0]], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Dynamic(1024.0, warn_after=3)
    x = nt.ones(1, 1)
    found = []
    for _ in range(6):
        optimizer.zero_grad()
        with nt.autocast(nt.float16), np.errstate(all="ignore"):
            big = (x @ w) * w.astype(nt.float16)  # The first op that overflows.
            loss = nt.exp(big).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scaler.update()
        found.append([str(each.message) for each in caught])
    assert [len(each) for each in found] == [0, 0, 1, 0, 0, 1]
    text = found[2][0]
    assert text.startswith(
        "LossScaler: 3 steps in a row were skipped, since gradients were not finite; the scale is 128 now. The first "
        "op that overflowed is mul, in float16, at "
    )
    assert "# The first op that overflows." in text
    assert caught[0].category is RuntimeWarning
    assert caught[0].filename == __file__


def test_a_gradient_too_large_for_its_half_parameter_is_named():
    w = nt.tensor([1.0], dtype=nt.float16, requires_grad=True, name="gain")
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Static(65536.0, warn_after=1)
    with np.errstate(over="ignore"):
        loss = (w.astype(nt.float32) * 3.0).sum()
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    with pytest.warns(RuntimeWarning, match="What overflowed first is the gradient of gain, in float16, by mul at "):
        scaler.update()


# Tapes.


def amp(**settings):
    return nt.AmpConfig(precision_mode="float16", **settings)


def test_tapes_of_one_config_continue_its_scaler():
    w = nt.ones(2, 2, requires_grad=True)
    config = amp(loss_scaler=nt.LossScaler.Dynamic(init_scale=4.0, growth_interval=2))
    scales = []
    for _ in range(4):
        with nt.GradientTape.with_amp_config(config) as tape:
            loss = (nt.ones(1, 2) @ w).sum()
        grads = tape.backward(loss)
        scales.append(config.loss_scaler.get_scale())
        assert grads[w].tolist() == [[1.0, 1.0], [1.0, 1.0]]
        assert not grads.overflow
    assert scales == [4.0, 8.0, 8.0, 16.0]
    assert w.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_float16_without_a_scaler_gets_a_dynamic_one_and_bfloat16_none():
    config = amp()
    for _ in range(2):
        with nt.Tape(amp=config) as tape:
            tape.gradient(nt.ones(2).sum(), [nt.ones(2)])
    assert [scaler.get_scale() for scaler in config.own_scaler] == [65536.0]
    assert config.own_scaler[0].good_steps == 2
    other = nt.AmpConfig()
    with nt.Tape(amp=other) as tape:
        assert type(tape.gradient(nt.ones(2).sum(), [nt.ones(2)])) is list
    assert other.own_scaler == []


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_on_overflow_a_tape_delivers_nothing_and_a_step_with_it_does_nothing():
    w = nt.full((2, 2), 300.0, requires_grad=True)
    optimizer = nt.optim.Adam([w], lr=0.1)
    config = amp()
    with nt.GradientTape.with_amp_config(config) as tape:
        loss = nt.mse_loss(w @ w, nt.zeros(2, 2))
    grads = tape.backward(loss)
    assert (grads.overflow, tape.overflow, len(grads), w.grad) == (True, True, 0, None)
    assert repr(grads) == "Gradients(overflow)"
    optimizer.step(grads)
    optimizer.apply_gradients(grads)
    assert w.tolist() == [[300.0, 300.0], [300.0, 300.0]]
    assert optimizer.state == {}
    assert config.own_scaler[0].get_scale() == 32768.0


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_on_overflow_gradient_returns_none_for_each_source():
    w = nt.full((2, 2), 300.0, requires_grad=True)
    optimizer = nt.optim.SGD([w], lr=0.1)
    with nt.Tape(persistent=True, amp=amp()) as tape:
        loss = nt.mse_loss(w @ w, nt.zeros(2, 2))
    several = tape.gradient(loss, [w])
    assert (several, several.overflow, tape.gradient(loss, w)) == ([None], True, None)
    optimizer.step(several)
    optimizer.step(nt.gradient_clipping.clip_by_global_norm(several, 1.0))
    assert w.tolist() == [[300.0, 300.0], [300.0, 300.0]]


def test_gradients_of_a_tape_are_those_without_scaling():
    rng = np.random.default_rng(0)
    w = nt.tensor(rng.standard_normal((3, 3)).astype(np.float32), requires_grad=True)
    half = nt.tensor(rng.standard_normal(3).astype(np.float16), requires_grad=True)
    x = nt.tensor(rng.standard_normal((2, 3)).astype(np.float32))
    found = []
    for scaler in (nt.LossScaler.Static(1.0), nt.LossScaler.Static(2.0**12)):
        with nt.GradientTape.with_amp_config(amp(loss_scaler=scaler)) as tape:
            loss = nt.mse_loss(x @ w + half, nt.zeros(2, 3))
        grads = tape.backward(loss)
        found.append([grads[w].numpy(), grads[half].numpy()])
        assert (grads[w].dtype, grads[half].dtype) == (nt.float32, nt.float16)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_second_derivatives_under_scaling_are_right():
    x = nt.tensor([[3.0]])
    with nt.Tape() as outer:
        with nt.Tape(amp=amp()) as inner:
            y = (x @ x) @ x
        slope = inner.gradient(y, x)
    assert slope.item() == 27.0
    assert outer.gradient(slope, x).item() == 18.0


def test_a_disabled_config_scales_nothing():
    config = nt.AmpConfig(enabled=False, loss_scaler=nt.LossScaler.Dynamic())
    w = nt.ones(2, requires_grad=True)
    with nt.Tape(amp=config) as tape:
        loss = w.sum()
    tape.backward(loss)
    assert config.loss_scaler.good_steps == 0


@pytest.mark.parametrize("overflow", [False, True])
def test_what_retains_its_gradient_gets_it_unscaled_and_nothing_on_overflow(overflow):
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    h = x * 3.0
    h.retain_grad()
    seen = []
    h.register_hook(lambda g: seen.append(g.tolist()))
    loss = (h * (INFINITE if overflow else 1.0)).sum()
    scaler = nt.LossScaler.Static(8.0)
    for times in (1, 2):
        with scaler.retaining([loss]) as retained:
            found = sweep([loss], [scaler.scaled_seed(np.ones((), np.float32))], None)
        assert h.grad is None if overflow or times == 1 else h.grad.tolist() == [1.0, 1.0]
        assert scaler.unscale_found(found, [loss], retained) is overflow
        assert h.grad is None if overflow else h.grad.tolist() == [times, times]
    # Hooks see what passes: scaled numbers.
    assert seen == [[INFINITE, INFINITE] if overflow else [8.0, 8.0]] * 2


# Saving.


def test_a_scaler_can_be_pickled_in_the_middle_of_a_step():
    w, optimizer, scaler = make(growth_interval=5)
    one_step(w, optimizer, scaler)
    scaler.scale(w.sum()).backward()
    scaler.unscale(optimizer)
    other = pickle.loads(pickle.dumps(scaler))
    assert other.state_dict() == scaler.state_dict()
    optimizer.zero_grad()
    one_step(w, optimizer, other)
    assert other.good_steps == 2


@pytest.mark.parametrize(("name", "value"), [("good_steps", -1), ("good_steps", "two"), ("skipped", 1.5)])
def test_counts_are_checked_before_anything_is_loaded(name, value):
    scaler = nt.LossScaler.Dynamic(64.0)
    before = scaler.state_dict()
    with pytest.raises(nt.errors.ArgumentError) as error:
        scaler.load_state_dict({**before, "scale": 2.0, name: value})
    assert str(error.value) == f"LossScaler: {name} is {value!r}; it must be an integer that is not negative."
    assert scaler.state_dict() == before


def test_more_good_steps_than_the_interval_still_let_the_scale_grow():
    w, optimizer, scaler = make(init_scale=8.0, growth_interval=3)
    scaler.load_state_dict({**scaler.state_dict(), "good_steps": 7})
    one_step(w, optimizer, scaler)
    assert (scaler.get_scale(), scaler.good_steps) == (16.0, 0)


def test_training_resumes_bitwise_at_every_step():
    def make_all():
        model = nt.nn.Sequential(nt.nn.Linear(4, 8, rng=0), nt.nn.Tanh(), nt.nn.Linear(8, 2, rng=1)).to(nt.float16)
        scaler = nt.LossScaler.Dynamic(2.0**17, growth_interval=3)
        return model, nt.optim.Adam(model.parameters(), lr=1e-2), scaler

    def train(model, optimizer, scaler, steps):
        for step in steps:
            x = nt.tensor(np.random.default_rng(step).standard_normal((8, 4)), dtype=nt.float16)
            optimizer.zero_grad()
            with nt.autocast(nt.float16), np.errstate(over="ignore"):
                scaler.scale((model(x) ** 2).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    whole = make_all()
    train(*whole, range(20))
    assert whole[2].get_scale() != 2.0**17
    parts = make_all()
    for step in range(20):
        train(*parts, [step])
        fresh = make_all()
        for old, new in zip(parts, fresh, strict=True):
            new.load_state_dict(old.state_dict())
        parts = fresh
    for a, b in zip(whole[0].parameters(), parts[0].parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert whole[2].state_dict() == parts[2].state_dict()


def test_a_state_that_does_not_fit_changes_nothing():
    scaler = nt.LossScaler.Dynamic(64.0)
    before = scaler.state_dict()
    with pytest.raises(nt.errors.ArgumentError, match=r"LossScaler: scale is -1\.0"):
        scaler.load_state_dict({**before, "scale": -1.0})
    with pytest.raises(nt.errors.ArgumentError, match="growth_interval is 0"):
        scaler.load_state_dict({**before, "growth_interval": 0})
    assert scaler.state_dict() == before


def test_a_state_survives_a_file(tmp_path):
    scaler = nt.LossScaler.Dynamic(64.0, growth_interval=7)
    scaler.good_steps = 3
    nt.save({"scaler": scaler.state_dict()}, tmp_path / "state.safetensors")
    other = nt.LossScaler.Dynamic()
    other.load_state_dict(nt.load(tmp_path / "state.safetensors")["scaler"])
    assert other.state_dict() == scaler.state_dict()


# PyTorch's names.


def test_grad_scaler_is_a_dynamic_one_by_other_names():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer = nt.optim.SGD([w], lr=0.5)
    scaler = nt.GradScaler(init_scale=16.0, growth_interval=1)
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [1.0, 1.0]
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5, 1.5]
    assert scaler.state_dict() == {
        "scale": 32.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 1,
        "_growth_tracker": 0,
    }
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (2.0, 0.5, 1)
    other = nt.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 32.0
    other.update(8.0)
    assert other.get_scale() == 8.0


def test_the_settings_of_a_grad_scaler_can_be_set():
    scaler = nt.GradScaler()
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3.0, 0.25, 7)
    with pytest.raises(nt.errors.ArgumentError, match="growth_factor is 1; it must be a number above 1"):
        scaler.set_growth_factor(1)


def test_a_grad_scaler_that_is_off_does_nothing():
    w = nt.tensor([1.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.5), nt.GradScaler(enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5]
    assert (scaler.state_dict(), scaler.get_scale(), scaler.is_enabled()) == ({}, 1.0, False)


# Nothing is left behind.


def test_a_scaler_keeps_nothing_alive():
    w, optimizer, scaler = make()
    gc.disable()
    try:
        loss = w.sum()
        reference = weakref.ref(loss)
        scaler.scale(loss).backward()
        del loss
        assert reference() is None
        scaler.step(optimizer)
        scaler.update()
        reference = weakref.ref(w)
        del w, optimizer
        assert reference() is None
    finally:
        gc.enable()


# TenfloweRS' guide, section by section.


def test_tenflowers_mixed_precision_training():
    amp_config = nt.AmpConfig(
        enabled=True,
        precision_mode=nt.PrecisionMode.FLOAT16,
        loss_scaler=nt.LossScaler.Dynamic(
            init_scale=65536.0,
            growth_factor=2.0,
            backoff_factor=0.5,
            growth_interval=2000,
        ),
        autocast_ops=["matmul", "conv2d"],
        keep_fp32_ops=["softmax", "layer_norm"],
    )
    tape = nt.GradientTape.with_amp_config(amp_config)
    weight = tape.watch(nt.full((3, 3), 0.5))
    with tape:
        hidden = nt.ones(2, 3) @ weight
        normal = nt.layer_norm(hidden * nt.tensor([1.0, 2.0, 3.0], dtype=nt.float16), (3,))
        loss = (nt.softmax(normal) * 2.0**-20).sum()
    # Operations automatically cast to FP16 where safe.
    assert (hidden.dtype, normal.dtype, loss.dtype) == (nt.float16, nt.float32, nt.float32)
    # Loss scaling prevents underflow in gradients.
    (gradient,) = tape.gradient([loss], [weight])
    assert gradient.dtype == nt.float32
    assert not tape.overflow
    assert amp_config.loss_scaler.good_steps == 1


def test_tenflowers_amp_config_has_the_fields_of_the_document():
    fields = ["enabled", "precision_mode", "loss_scaler", "autocast_ops", "keep_fp32_ops"]
    config = nt.AmpConfig()
    assert [getattr(config, name) for name in fields] == [True, nt.PrecisionMode.BFLOAT16, None, (), ()]
    assert [mode.name for mode in nt.PrecisionMode] == ["FLOAT16", "BFLOAT16", "FLOAT32"]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("overflow", [False, True])
def test_a_tape_that_scales_delivers_retained_gradients_unscaled_and_none_on_overflow(overflow):
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientTape.with_amp_config(amp()) as tape:
        h = x * 3.0
        h.retain_grad()
        loss = (h * (INFINITE if overflow else 1.0)).sum()
    assert tape.backward(loss).overflow is overflow
    assert h.grad is None if overflow else h.grad.tolist() == [1.0, 1.0]


# Statistics.


def normalising(seed=0):
    """Return a model with running statistics, its optimizer, and a function that tells their bits."""
    layers = nt.nn.Linear(3, 4, rng=seed), nt.nn.BatchNorm1d(4), nt.nn.Linear(4, 1, rng=seed + 1)
    model = nt.nn.Sequential(*layers)
    return model, nt.optim.SGD(model.parameters(), lr=0.1), lambda: [b.numpy().tobytes() for b in model.buffers()]


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("losses", [1, 3])
@pytest.mark.parametrize("make", [nt.LossScaler.Dynamic, nt.GradScaler, lambda: nt.LossScaler.Static(64.0)])
def test_a_skipped_step_leaves_running_statistics_bitwise_alone(make, losses, is_checkpointed):
    model, optimizer, bits = normalising()
    x, scaler = nt.randn(8, 3, rng=0), make()
    for overflow in (False, True, True, False):
        before = bits()
        optimizer.zero_grad()
        for _ in range(losses):
            out = nt.checkpoint(model, x) if is_checkpointed else model(x)
            scaler.scale((out[:1] * (INFINITE if overflow else 1.0)).sum()).backward()
        assert bits() != before
        scaler.step(optimizer)
        scaler.update()
        assert (bits() == before) is overflow
    assert model[1].num_batches_tracked.item() == 2 * losses


def test_all_statistics_of_a_skipped_optimizer_are_left_alone():
    models = [normalising(seed) for seed in (0, 5)]
    optimizer = nt.optim.SGD([p for model, *_ in models for p in model.parameters()], lr=0.1)
    before = [bits() for *_, bits in models]
    scaler = nt.GradScaler()
    for factor, (model, *_) in zip((INFINITE, 1.0), models, strict=True):
        scaler.scale((model(nt.randn(8, 3, rng=0))[:1] * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update(8.0)
    assert [bits() for *_, bits in models] == before


@pytest.mark.filterwarnings("ignore:invalid")
@pytest.mark.parametrize("by_gradient", [False, True])
def test_a_tape_that_overflows_leaves_running_statistics_bitwise_alone(by_gradient):
    model, _, bits = normalising()
    config = amp()
    for overflow in (False, True, False):
        before = bits()
        with nt.GradientTape.with_amp_config(config) as tape:
            loss = (model(nt.randn(8, 3, rng=0)) * (INFINITE if overflow else 1.0)).sum()
        tape.gradient(loss, list(model.parameters())) if by_gradient else tape.backward(loss)
        assert tape.overflow is overflow
        assert (bits() == before) is overflow


def test_the_statistics_of_other_models_stay_as_they_are():
    bad, optimizer, bits = normalising()
    fine, other, others_bits = normalising(seed=5)
    x, scaler = nt.randn(8, 3, rng=0), nt.LossScaler.Dynamic()
    before, others = bits(), others_bits()
    losses = (bad(x)[:1] * INFINITE).sum(), fine(x).sum()
    with nt.no_grad():
        fine(x)
    others_after = others_bits()
    for loss in losses:
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.step(other)
    scaler.update()
    assert bits() == before
    assert others_bits() == others_after != others


def test_a_scaler_holds_no_statistics_after_the_update_and_never_a_model():
    model, optimizer, bits = normalising()
    scaler = nt.LossScaler.Dynamic()
    for _ in range(3):
        scaler.scale(model(nt.randn(8, 3, rng=0)).sum()).backward()
        assert len(scaler._statistics._found) == 3
    scaler.step(optimizer)
    scaler.update()
    assert scaler._statistics._found == {}
    scaler.scale(model(nt.randn(8, 3, rng=0)).sum()).backward()
    held = weakref.ref(model[1].running_mean)
    del model, optimizer, bits
    gc.collect()
    assert held() is None


# Scales and steps at their ends.


def test_to_divide_by_a_scale_below_one_may_overflow_and_skips_the_step():
    w = nt.tensor([1.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.5), nt.LossScaler.Static(0.25)
    for _ in range(2):
        scaler.scale((w * 3e38).sum()).backward()
    assert np.isfinite(w.grad.numpy()).all()
    scaler.step(optimizer)
    scaler.update()
    assert (w.tolist(), scaler.overflow) == ([1.0], True)


@pytest.mark.parametrize("scale", [1e-50, 2.0**-140, 3e38])
def test_a_scale_that_float32_cannot_invert_is_refused(scale):
    with pytest.raises(nt.errors.ArgumentError, match=r"it must be a number from 2\*\*-126 to 2\*\*126"):
        nt.LossScaler.Static(scale)
    with pytest.raises(nt.errors.ArgumentError, match=r"(min|max)_scale is .*; it must be a number from 2\*\*-126"):
        nt.LossScaler.Dynamic(**{"max_scale" if scale > 1.0 else "min_scale": scale})


def test_bounds_hold_for_a_scale_that_is_loaded_or_set():
    scaler = nt.LossScaler.Dynamic(64.0, max_scale=128.0)
    before = scaler.state_dict()
    with pytest.raises(nt.errors.ArgumentError) as error:
        scaler.load_state_dict({**before, "scale": 256.0})
    assert str(error.value) == (
        "LossScaler: scale is 256.0; it must lie between min_scale (2.3283064365386963e-10) and max_scale (128.0)."
    )
    assert scaler.state_dict() == before
    other = nt.GradScaler()
    with pytest.raises(nt.errors.ArgumentError, match=r"scale is 1e-20; it must lie between min_scale"):
        other.update(1e-20)
    assert other.get_scale() == 65536.0


def test_a_grad_scaler_that_is_off_loads_and_unscales_nothing():
    w = nt.tensor([1.0], requires_grad=True)
    scaler = nt.GradScaler(enabled=False)
    scaler.load_state_dict(scaler.state_dict())
    scaler.load_state_dict(nt.GradScaler(init_scale=8.0).state_dict())
    w.sum().backward()
    scaler.unscale(nt.optim.SGD([w], lr=0.5))
    assert (w.grad.tolist(), scaler.get_scale()) == ([1.0], 1.0)


@pytest.mark.parametrize("is_zeroed", [False, True])
def test_a_scaled_loss_after_unscaling_is_noticed_at_the_step(is_zeroed):
    w = nt.tensor([1.0], requires_grad=True, name="w")
    optimizer, scaler = nt.optim.SGD([w], lr=0.25), nt.LossScaler.Dynamic(1024.0)
    scaler.scale(w.sum()).backward()
    scaler.unscale(optimizer)
    if is_zeroed:
        optimizer.zero_grad()
    scaler.scale(w.sum()).backward()
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer)
    assert str(error.value) == (
        "DynamicScaler.step: the gradient of parameter 'w' was unscaled, and a scaled loss was added to it since; call "
        "unscale(optimizer) after the last backward()."
    )
    assert w.tolist() == [1.0]


def test_clipping_and_plain_losses_after_unscaling_and_losses_of_others_are_fine():
    a, b, one, other, scaler = two_optimizers()
    scaler.scale((a * 4.0).sum()).backward()
    scaler.unscale(one)
    nt.clip_grad_norm([a], 1.0)
    (a * 1.0).sum().backward()
    scaler.scale((b * 2.0).sum()).backward()
    scaler.step(one)
    scaler.scale((a * b).sum()).backward()  # What has stepped may be passed.
    scaler.step(other)
    scaler.update()
    np.testing.assert_allclose([a.item(), b.item()], [1.0 - 0.1 * 2.0, 1.0 - 0.1 * (2.0 + 0.8)], rtol=1e-6)


def test_a_step_that_raises_may_be_tried_again():
    w, optimizer, scaler = make()
    scaler.scale(w.sum()).backward()
    with pytest.raises(TypeError):
        scaler.step(optimizer, 3, 4, 5)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_warning_says_only_what_is_known_after_another_optimizer_has_stepped(is_known):
    a, b = nt.tensor([2.0], requires_grad=True), nt.tensor([300.0], requires_grad=True)
    one, other = nt.optim.SGD([a], lr=0.1), nt.optim.SGD([b], lr=0.1)
    scaler = nt.LossScaler.Static(8.0, warn_after=1)
    with np.errstate(all="ignore"):
        first = a + 1.0  # Cannot be made again once a has changed.
        scaler.scale((first + nt.exp(b if is_known else b + first)).sum()).backward()
        a.grad = nt.ones(1)
        scaler.step(one)
        scaler.step(other)
    assert a.item() != 2.0
    assert b.item() == 300.0
    with pytest.warns(RuntimeWarning) as caught:
        scaler.update()
    text = str(caught[0].message)
    assert ("An op that overflowed is exp, in float32, at " in text) is is_known
    assert "The first op" not in text
    assert "What overflowed first" not in text
