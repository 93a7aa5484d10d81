"""Loss scaling on tapes, in saved states, and under the names of others."""

import gc
import pickle
import weakref

import numpy as np
import pytest
from scaled_steps import INFINITE, amp, make, one_step

import numtape as nt
from numtape.core.gradients import sweep

# Tapes.


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
        assert (grads[w].dtype, grads[half].dtype) == (nt.float32, nt.float32)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


# Half parameters: what scaling has saved is float32, as `unscale` leaves it.


def slopes_on_tape(w, slope, **options):
    """Return the gradients of a loss with a given slope, on a tape that scales."""
    config = amp(loss_scaler=nt.LossScaler.Static(2.0**20))
    with nt.GradientTape(amp=config, **options) as tape:
        loss = (w.astype(nt.float32) * slope).sum()
    return tape, loss


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
@pytest.mark.parametrize("slope", [2.0**-30, 1.0 + 2.0**-20, 1e6])
@pytest.mark.parametrize("way", ["map", "delivered", "list", "accumulated", "averaged", "added"])
def test_a_half_parameter_steps_by_what_scaling_has_saved(way, slope, dtype):
    def stepped(dtype):
        w = nt.tensor([1.0], dtype=dtype, requires_grad=True)
        optimizer = nt.optim.SGD([w], lr=2.0**-12 / slope)
        tape, loss = slopes_on_tape(w, slope)
        if way in ("list", "added"):
            grads = tape.gradient(loss, [w])
        else:
            grads = tape.backward(loss)
            assert grads[w].dtype == w.grad.dtype == nt.float32
            assert grads[w].tolist() == w.grad.tolist() == [np.float32(slope)]
        if way == "accumulated":
            nt.accumulate_gradients(grads)
        elif way == "added":
            nt.accumulate_gradients(grads, [w])
            assert w.grad.dtype == nt.float32
        elif way == "averaged":
            accumulator = nt.GradientAccumulator(2)
            accumulator.add(grads)
            accumulator.add(slopes_backward(w, slope))
            grads = accumulator.take()
            assert grads[w].dtype == nt.float32
        if way in ("map", "list", "averaged"):
            optimizer.step(grads)
        else:
            optimizer.step()
        return optimizer.state[w]["master"].item() if dtype != nt.float32 else w.item()

    assert stepped(dtype) == stepped(nt.float32)


def slopes_backward(w, slope):
    tape, loss = slopes_on_tape(w, slope)
    return tape.backward(loss)


def test_gradients_of_both_kinds_add_up_in_float32():
    w = nt.tensor([1.0], dtype=nt.float16, requires_grad=True)
    w.sum().backward()
    assert w.grad.dtype == nt.float16
    slopes_backward(w, 2.0**-20)
    assert (w.grad.dtype, w.grad.tolist()) == (nt.float32, [1.0 + 2.0**-20])
    w.sum().backward()
    assert (w.grad.dtype, w.grad.tolist()) == (nt.float32, [2.0 + 2.0**-20])


def test_what_is_between_keeps_what_scaling_has_saved():
    w = nt.tensor([1.0], requires_grad=True)
    config = amp(loss_scaler=nt.LossScaler.Static(2.0**20))
    with nt.Tape(amp=config) as tape:
        h = w.astype(nt.float16)
        h.retain_grad()
        loss = (h.astype(nt.float32) * 2.0**-30).sum()
    grads = tape.backward(loss, keep="all")
    assert (grads[h].dtype, grads[h].tolist()) == (nt.float32, [2.0**-30])
    assert (h.grad.dtype, h.grad.tolist()) == (nt.float32, [2.0**-30])


def test_without_scaling_gradients_have_the_dtype_of_their_parameter():
    w = nt.tensor([1.0], dtype=nt.bfloat16, requires_grad=True)
    with nt.GradientTape(amp=nt.AmpConfig()) as tape:
        loss = (w.astype(nt.float32) * 2.0).sum()
    assert tape.backward(loss)[w].dtype == w.grad.dtype == nt.bfloat16


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
        assert (scaler.unscale_found(found, [loss], retained) is None) is overflow
        assert h.grad is None if overflow else h.grad.tolist() == [times, times]
    # Hooks see what passes: scaled numbers.
    assert seen == [[INFINITE, INFINITE] if overflow else [8.0, 8.0]] * 2


# Saving.


def test_a_scaler_can_be_pickled_in_the_middle_of_a_step():
    w, optimizer, scaler = make(growth_interval=5)
    one_step(w, optimizer, scaler)
    optimizer.zero_grad()
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


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("settings", [{}, {"loss_scaler": nt.GradScaler}, {"loss_scaler": nt.LossScaler.Dynamic}])
def test_training_on_tapes_resumes_bitwise_from_a_file_at_every_step(tmp_path, settings):
    def make_all():
        model = nt.nn.Linear(4, 2, rng=0)
        made = {name: kind() for name, kind in settings.items()}
        return model, nt.optim.SGD(model.parameters(), lr=2.0**-118, momentum=0.5), amp(**made)

    def train(model, optimizer, config, steps):
        for step in steps:
            x = nt.tensor(np.random.default_rng(step).standard_normal((8, 4)), dtype=nt.float32)
            with nt.GradientTape.with_amp_config(config) as tape:
                loss = (model(x) ** 2).mean() * 2.0**116  # Some scales overflow.
            optimizer.zero_grad()
            optimizer.step(tape.backward(loss))

    whole = make_all()
    train(*whole, range(12))
    assert whole[2].state_dict()["loss_scaler"]["scale"] < 65536.0
    parts = make_all()
    for step in range(12):
        nt.save(tmp_path / "state.safetensors", list(parts))  # Before the first step, too.
        fresh = make_all()
        for new, saved in zip(fresh, nt.load(tmp_path / "state.safetensors"), strict=True):
            new.load_state_dict(saved)
        parts = fresh
        assert parts[2].state_dict() == nt.load(tmp_path / "state.safetensors")[2]
        train(*parts, [step])
    for a, b in zip(whole[0].parameters(), parts[0].parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert whole[2].state_dict() == parts[2].state_dict()


def test_a_state_of_a_config_reaches_its_tapes_and_takes_a_scaler_back_to_its_beginning():
    w, config = nt.ones(2, requires_grad=True), amp()
    before = config.state_dict()
    tape = nt.Tape(amp=config)
    config.load_state_dict({"loss_scaler": nt.LossScaler.Dynamic(4.0).state_dict()})
    with tape:
        loss = w.sum()
    tape.backward(loss)
    assert config.state_dict() == {"loss_scaler": {**nt.LossScaler.Dynamic(4.0).state_dict(), "good_steps": 1}}
    config.load_state_dict(before)
    assert config.state_dict() == before == {"loss_scaler": None}


@pytest.mark.parametrize(
    ("config", "state", "message"),
    [
        (amp(), {"scale": 1.0}, "wants a dict with 'loss_scaler', as state_dict() gives, not ['scale']."),
        (amp(), None, "wants a dict with 'loss_scaler', as state_dict() gives, not NoneType."),
        (nt.AmpConfig(), {"loss_scaler": {"scale": 1.0}},
         "the state is that of a loss scaler, and this configuration has none; give it a loss_scaler."),
        (amp(loss_scaler=nt.LossScaler.Static(2.0)), {"loss_scaler": None},
         "the state has no loss scaler, and this configuration has one; leave it out."),
    ],
)  # fmt: skip
def test_a_state_of_another_config_is_refused(config, state, message):
    before = config.state_dict()
    with pytest.raises(nt.errors.ArgumentError) as error:
        config.load_state_dict(state)
    assert str(error.value) == f"AmpConfig.load_state_dict: {message}"
    assert config.state_dict() == before


def test_a_state_that_is_no_scalers_is_named_by_the_first_tape():
    config = nt.AmpConfig(precision_mode="float16")
    config.load_state_dict({"loss_scaler": {"other": 1}})
    with pytest.raises(nt.errors.ArgumentError, match="AmpConfig: the state that was loaded is none of its own"):
        nt.GradientTape.with_amp_config(config).__enter__()


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


@pytest.mark.parametrize("mode", ["float16", "bfloat16"])
def test_a_grad_scaler_that_is_off_scales_nothing_on_a_tape(mode):
    config = nt.AmpConfig(precision_mode=mode, loss_scaler=nt.GradScaler(enabled=False))
    w, seen = nt.tensor([1.0], requires_grad=True), []
    w.register_hook(lambda g: seen.append(g.tolist()))
    with nt.GradientTape.with_amp_config(config) as tape:
        loss = (w * np.float32(2.0**120)).sum()
    assert tape.backward(loss)[w].tolist() == [2.0**120]
    assert (seen, tape.overflow, config.loss_scaler._scale, config.own_scaler) == ([[2.0**120]], False, 65536.0, [])


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


def test_what_is_not_connected_is_zero_in_the_dtype_of_what_is():
    w, v = (nt.ones(2, dtype=nt.float16, requires_grad=True) for _ in range(2))
    with nt.GradientTape.with_amp_config(nt.AmpConfig(precision_mode=nt.float16)) as tape:
        loss = (w * 2.0).sum()
    assert [str(g.dtype) for g in tape.gradient(loss, [w, v], unconnected="zero")] == ["float32", "float32"]
