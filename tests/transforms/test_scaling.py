"""Loss scaling: the rule of the scale, steps that are skipped, several optimizers, half parameters."""

import gc
import math
import weakref

import numpy as np
import pytest
from scaled_steps import INFINITE, amp, make, one_step, two_optimizers

import numtape as nt

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


@pytest.mark.parametrize("overflown", ["critic", "maker"])
def test_a_skipped_step_leaves_the_statistics_of_a_step_that_was_taken(overflown):
    critic, critics, critics_bits = normalising()
    maker, makers, makers_bits = normalising(seed=5)
    x, scaler = nt.randn(8, 3, rng=0), nt.LossScaler.Dynamic()
    factors = {"critic": 1.0, "maker": 1.0, overflown: INFINITE}
    before = critics_bits(), makers_bits()
    scaler.scale((critic(x)[:1] * factors["critic"]).sum()).backward()
    scaler.step(critics)
    between = critics_bits()
    scaler.scale((critic(maker(x) * nt.ones(3))[:1] * factors["maker"]).sum()).backward()
    after = critics_bits(), makers_bits()
    scaler.step(makers)
    scaler.update()
    assert between != after[0]
    if overflown == "maker":
        assert (critics_bits(), makers_bits()) == (between, before[1])
    else:
        assert between == before[0]
        assert (critics_bits(), makers_bits()) == after


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("factor", [1.0, INFINITE])
def test_statistics_go_back_to_before_the_first_loss_of_a_skipped_step(factor, at_once):
    frozen, scaler = nt.nn.BatchNorm1d(3, affine=False), nt.LossScaler.Dynamic()
    weights = [nt.ones(3, requires_grad=True) for _ in range(3)]
    optimizers = [nt.optim.SGD([w], lr=0.1) for w in weights]
    x, seen, losses = nt.randn(8, 3, rng=0), [], []
    for w, f in zip(weights, (factor, INFINITE, INFINITE), strict=True):
        seen.append(frozen.running_mean.tolist())
        losses.append(frozen(x * w)[0, 0] * f)
    for loss in scaler.scale(losses) if at_once else map(scaler.scale, losses):
        loss.backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert frozen.running_mean.tolist() == seen[0 if factor == INFINITE else 1]


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
        "DynamicScaler.step: the gradient of parameter 'w' is scaled, though those of this optimizer were unscaled: a "
        "backward() or add_param_group() came after that. Call unscale(optimizer) last."
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


def test_a_skipped_step_leaves_the_statistics_that_a_later_loss_moves():
    """A generator whose step is skipped comes first; the discriminator's own batch counts."""

    def run(factor):
        nt.seed(0)
        generator = nt.nn.Linear(3, 3)
        critic = nt.nn.Sequential(nt.nn.BatchNorm1d(3), nt.nn.Linear(3, 1))
        first, second = (nt.optim.SGD(model.parameters(), lr=0.1) for model in (generator, critic))
        x = nt.tensor(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))
        scaler = nt.LossScaler.Static(2.0)
        if factor:
            scaler.scale(critic(generator(x)).mean() * factor).backward()
            scaler.step(first)
        second.zero_grad()
        scaler.scale((critic(x) ** 2).mean()).backward()
        scaler.step(second)
        scaler.update()
        return critic[0].running_mean.tolist(), critic[0].num_batches_tracked.item()

    with np.errstate(all="ignore"):
        assert run(np.float32(np.inf)) == run(None)
