"""Gradients of scaled losses are known as such: no optimizer steps with them, and they are added to no others."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scaled_steps import amp, make, one_step, two_optimizers

import numtape as nt


@pytest.mark.parametrize("dtype", [nt.float16, nt.float32], ids=str)
@pytest.mark.parametrize("by_list", [False, True])
def test_an_optimizer_that_steps_by_itself_is_refused_before_anything_is_written(dtype, by_list):
    w = nt.tensor([1.0, 2.0], dtype=dtype, requires_grad=True, name="w")
    optimizer, scaler = nt.optim.Adam([w], lr=0.5), nt.LossScaler.Dynamic(1024.0)
    for number in range(1, 4):
        scaler.scale((w * w).sum() / 2).backward()
        before = w.tolist()
        with pytest.raises(nt.errors.GradientError) as error:
            optimizer.step(*[[w]] * by_list)
        assert str(error.value) == (
            "Adam.step: the gradient of parameter 'w' is that of a scaled loss, and was never unscaled; call "
            "scaler.step(optimizer) instead of optimizer.step()."
        )
        assert w.tolist() == before
        scaler.unscale(optimizer)
        assert w.grad.tolist() == before
        scaler.step(optimizer)
        scaler.update()
        assert optimizer.state[w]["step"] == number
        optimizer.zero_grad()
    (w * w).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("dtype", [nt.float16, nt.float32], ids=str)
def test_what_was_unscaled_steps_through_the_scaler_and_by_itself(dtype, scale):
    w = nt.tensor([1.0], dtype=dtype, requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.25), nt.LossScaler.Static(scale)
    scaler.scale((w * w).sum()).backward()
    scaler.unscale(optimizer)
    optimizer.step()
    assert w.tolist() == [0.5]


def divided(w, scaler):
    (scaler.scale((w * w).sum()) / 2).backward()


def added(w, scaler):
    (scaler.scale((w * w).sum()) + scaler.scale(w.sum())).backward()


def by_a_tape(w, scaler):
    with nt.Tape() as tape:
        loss = scaler.scale((w * w).sum())
    tape.backward(loss)


def by_a_differentiated_tape(w, scaler):
    with nt.Tape() as tape:
        loss = scaler.scale((w * w).sum()) / 2
    tape.backward(loss, create_graph=True, keep="all")


def accumulated(w, scaler):
    for _ in range(2):
        with nt.Tape() as tape:
            loss = scaler.scale((w * w).sum()) / 2
        nt.accumulate_gradients([tape.gradient(loss, w)], [w])


def accumulated_from_a_map(w, scaler):
    w.requires_grad = False
    with nt.Tape() as tape:
        loss = scaler.scale((w * w).sum())
    grads = tape.backward(loss)
    assert w.grad is None
    nt.accumulate_gradients(grads)


def with_an_unscaled_one(w, scaler):
    scaler.scale((w * w).sum()).backward()
    (w * 3.0).sum().backward()


def with_an_unscaled_one_of_a_tape(w, scaler):
    scaler.scale((w * w).sum()).backward()
    with nt.Tape() as tape:
        loss = (w * 3.0).sum()
    tape.backward(loss)


def with_an_unscaled_one_that_is_accumulated(w, scaler):
    scaler.scale((w * w).sum()).backward()
    nt.accumulate_gradients([nt.ones(1)], [w])


def by_another_scaler_that_is_gone(w, scaler):
    nt.LossScaler.Static(8.0).scale((w * w).sum()).backward()
    gc.collect()


@pytest.mark.parametrize("dtype", [nt.float16, nt.float32], ids=str)
@pytest.mark.parametrize(
    "deliver",
    [
        divided,
        added,
        by_a_tape,
        by_a_differentiated_tape,
        accumulated,
        accumulated_from_a_map,
        with_an_unscaled_one,
        with_an_unscaled_one_of_a_tape,
        with_an_unscaled_one_that_is_accumulated,
        by_another_scaler_that_is_gone,
    ],
)
def test_however_a_scaled_loss_came_into_gradients_the_optimizer_does_not_step_by_itself(deliver, dtype):
    w = nt.tensor([1.0], dtype=dtype, requires_grad=True, name="w")
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Dynamic(8.0)
    deliver(w, scaler)
    with pytest.raises(nt.errors.GradientError, match=r"^SGD.step: the gradient of parameter 'w' is that of a scaled "):
        optimizer.step()
    assert w.tolist() == [1.0]
    optimizer.zero_grad()
    w.requires_grad = True
    (w * w).sum().backward()
    optimizer.step()
    assert w.item() < 1.0


@pytest.mark.parametrize("deliver", [divided, by_a_tape, accumulated])
def test_however_a_scaled_loss_came_into_gradients_the_scaler_steps(deliver):
    w = nt.tensor([1.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.0), nt.LossScaler.Dynamic(8.0)
    for _ in range(3):
        optimizer.zero_grad()
        deliver(w, scaler)
        scaler.unscale(optimizer)
        nt.clip_grad_norm([w], 0.5)
        scaler.step(optimizer)
        scaler.update()
        np.testing.assert_allclose(w.grad.tolist(), [0.5], rtol=1e-5)


def test_a_scaler_that_is_gone_leaves_its_gradients_scaled():
    w, optimizer, scaler = make()
    scaler.scale(w.sum()).backward()
    del scaler
    gc.collect()
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss, and was never unscaled"):
        optimizer.step()


def test_gradients_of_parameters_that_were_left_alone_are_still_scaled_after_the_update():
    a, b, one, other, scaler = two_optimizers()
    scaler.scale((a * b).sum()).backward()
    scaler.step(one)
    scaler.update()
    with pytest.raises(nt.errors.GradientError, match="the gradient of parameter 'b' is that of a scaled loss"):
        other.step()


def test_a_parameter_beside_a_scaled_loss_may_be_stepped_with():
    a, b, one, other, scaler = two_optimizers()
    (scaler.scale((a * a).sum()) + (b * b).sum()).backward()
    other.step()
    np.testing.assert_allclose(b.tolist(), [0.8], rtol=1e-6)
    with pytest.raises(nt.errors.GradientError, match="the gradient of parameter 'a' is that of a scaled loss"):
        one.step()


def test_gradients_that_are_handed_back_are_known_too_and_what_is_made_of_them_is_taken_as_it_is():
    w, optimizer, scaler = make(init_scale=8.0, lr=0.125)
    with nt.Tape() as tape:
        loss = scaler.scale(w.sum())
    gradient = tape.gradient(loss, w)
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss, and was never unscaled"):
        optimizer.step([gradient])
    optimizer.step([gradient / 8.0])
    assert w.tolist() == [0.875, 1.875]
    nt.accumulate_gradients([gradient / 8.0], [w])
    optimizer.step()
    assert w.tolist() == [0.75, 1.75]


def test_a_tape_that_scales_by_itself_leaves_gradients_unscaled():
    w, optimizer, scaler = make(lr=0.25)
    scaler.scale(w.sum())
    with nt.GradientTape.with_amp_config(amp()) as tape:
        loss = (w * w).sum()
    tape.backward(loss)
    optimizer.step()
    assert w.tolist() == [0.5, 1.0]


def test_threads_make_scalers_and_optimizers_at_once():
    def train(number):
        for _ in range(300):
            w = nt.tensor([1.0], requires_grad=True)
            optimizer, scaler = nt.optim.SGD([w], lr=0.25), nt.LossScaler.Static(8.0)
            scaler.scale((w * w).sum()).backward()
            with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss"):
                optimizer.step()
            scaler.step(optimizer)
            scaler.update()
            assert w.tolist() == [0.5]
        return number

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(train, range(8))) == list(range(8))
    finally:
        sys.setswitchinterval(interval)


# Gradients of an earlier step.


@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("dtype", [nt.float16, nt.float32], ids=str)
def test_a_scaled_loss_that_is_added_to_the_gradients_of_an_earlier_step_is_an_error(dtype, clips, overflow):
    w = nt.tensor([1.0], dtype=dtype, requires_grad=True, name="w")
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Dynamic(8.0)
    scaler.scale((w * (float("inf") if overflow else 1.0)).sum()).backward()
    scaler.unscale(optimizer)
    if clips:
        nt.clip_grad_norm([w], 0.5)
    scaler.step(optimizer)
    scaler.update()
    before = w.tolist()
    scaler.scale((w * w).sum()).backward()
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer)
    assert str(error.value) == (
        "DynamicScaler.unscale: the gradient of parameter 'w' is the sum of gradients of different scales: of an "
        "earlier step, of an unscaled loss, or of one from before the scale changed. Call optimizer.zero_grad() before "
        "backward(), scale all losses or none, and call update() only when all optimizers have stepped."
    )
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss, and was never unscaled"):
        optimizer.step()
    assert w.tolist() == before
    optimizer.zero_grad()
    scaler.scale((w * w).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() < before


def test_a_plain_loss_in_between_does_not_hide_that():
    w, optimizer, scaler = make()
    one_step(w, optimizer, scaler)
    w.sum().backward()
    scaler.scale(w.sum()).backward()
    with pytest.raises(nt.errors.GradientError, match="is the sum of gradients of different scales"):
        scaler.unscale(optimizer)


def drop(w, optimizer):
    optimizer.zero_grad()


def fill_with_zeros(w, optimizer):
    optimizer.zero_grad(set_to_none=False)


def fill_the_array(w, optimizer):
    w.grad.array[...] = 0.0


def replace(w, optimizer):
    w.grad = nt.zeros(2)


def multiply(w, optimizer):
    w.grad *= 0.0


@pytest.mark.parametrize("comes_before_update", [False, True])
@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("reset", [drop, fill_with_zeros, fill_the_array, replace])
def test_gradients_that_were_reset_start_anew(reset, overflow, comes_before_update):
    w, optimizer, scaler = make(lr=0.0)
    for number in range(3):
        scaler.scale((w * (float("inf") if overflow and number == 1 else 1.0)).sum()).backward()
        scaler.step(optimizer)
        if comes_before_update:
            reset(w, optimizer)
        scaler.update()
        if not comes_before_update:
            assert overflow or w.grad.tolist() == [1.0, 1.0]
            reset(w, optimizer)


def test_gradients_that_the_user_wrote_to_start_anew():
    w, optimizer, scaler = make(lr=0.0)
    for _ in range(3):
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert w.grad.tolist() == [1.0, 1.0]
        multiply(w, optimizer)


def test_a_scale_of_one_may_add_to_the_gradients_of_an_earlier_step():
    w, optimizer = make(lr=0.0)[:2]
    scaler = nt.LossScaler.Static(1.0)
    for number in range(1, 4):
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert w.grad.tolist() == [number, number]


def test_a_loss_may_pass_through_the_gradients_of_another_optimizer_s_last_step():
    a, b, one, other, scaler = two_optimizers()
    for optimizer in (one, other) * 3:
        optimizer.zero_grad()  # Only its own.
        scaler.scale((a * b).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert a.item() < 1.0
    assert b.item() < 1.0


# What may be stepped with.


def assign(gradient, owner, scale):
    owner.grad = gradient / scale


def divide_in_place(gradient, owner, scale):
    gradient /= scale


def multiply_data(gradient, owner, scale):
    gradient.data.mul_(1.0 / scale)


def divide_out(gradient, owner, scale):
    np.divide(gradient, scale, out=gradient)


@pytest.mark.parametrize("unscale", [assign, divide_in_place, multiply_data, divide_out])
def test_gradients_that_are_unscaled_by_hand_may_be_stepped_with(unscale):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.25), nt.LossScaler.Dynamic(1024.0)
    scaler.scale((w * w).sum()).backward()
    unscale(w.grad, w, scaler.get_scale())
    optimizer.step()
    assert w.tolist() == [0.5, 1.0]


def test_plain_losses_beside_a_scaler_are_none_of_its_business():
    a, b, one, other, scaler = two_optimizers()
    scaler.scale((a * a).sum()).backward()
    (b * b).sum().backward()
    other.step()
    np.testing.assert_allclose(b.tolist(), [0.8], rtol=1e-6)
    a.grad = None
    (a * a).sum().backward()
    one.step()
    np.testing.assert_allclose(a.tolist(), [0.8], rtol=1e-6)


def test_an_unscaled_loss_that_is_added_to_a_scaled_one_is_an_error():
    w, optimizer, scaler = make(init_scale=8.0)
    scaler.scale(w.sum()).backward()
    with nt.GradientTape.with_amp_config(amp()) as tape:
        loss = w.sum()
    tape.backward(loss)
    with pytest.raises(nt.errors.GradientError, match="is the sum of gradients of different scales"):
        scaler.step(optimizer)


def test_an_unscaled_loss_beside_a_scaled_one_in_a_backward_is_an_error():
    w, optimizer, scaler = make(init_scale=1024.0)
    (scaler.scale((w * 2.0).sum()) + (w * 3.0).sum()).backward()
    with pytest.raises(nt.errors.GradientError, match="is the sum of gradients of different scales"):
        scaler.step(optimizer)


def plain(w):
    (w * 3.0).sum().backward()


def from_a_tape(w):
    with nt.Tape() as tape:
        loss = (w * 3.0).sum()
    tape.backward(loss)


@pytest.mark.parametrize("first", [plain, from_a_tape])
def test_a_scaled_loss_that_is_added_to_an_unscaled_one_is_an_error(first):
    w, optimizer, scaler = make(init_scale=1024.0)
    first(w)
    scaler.scale((w * 2.0).sum()).backward()
    with pytest.raises(nt.errors.GradientError, match="is the sum of gradients of different scales"):
        scaler.unscale(optimizer)


def test_a_gradient_of_an_unscaled_loss_beside_scaled_ones_is_divided_as_in_pytorch():
    scaler = nt.GradScaler(init_scale=4.0)
    a, b = (nt.ones(2, requires_grad=True) for _ in range(2))
    (b * 3.0).sum().backward()
    scaler.scale((a * 2.0).sum()).backward()
    scaler.unscale(nt.optim.SGD([a, b], lr=1.0))
    assert (a.grad.tolist(), b.grad.tolist()) == ([2.0, 2.0], [0.75, 0.75])


@pytest.mark.parametrize("grows", [False, True])
def test_gradients_that_are_added_up_over_updates_have_one_scale(grows):
    a, b, one, other, _ = two_optimizers()
    scaler = nt.GradScaler(init_scale=1024.0, growth_interval=1 if grows else 1000)
    for number in range(2):
        one.zero_grad()
        scaler.scale((a + b).sum()).backward()
        scaler.step(one)
        if number and grows:
            with pytest.raises(nt.errors.GradientError, match="one from before the scale changed"):
                scaler.step(other)
        elif number:
            scaler.step(other)
        scaler.update()
    assert b.tolist() == ([1.0] if grows else [np.float32(1.0) - np.float32(0.2)])


def test_a_scaler_divides_by_the_scale_that_another_has_multiplied_by():
    a, b, one, _, scaler = two_optimizers()
    another = nt.LossScaler.Static(4.0)
    scaler.scale(a.sum()).backward()
    another.scale(b.sum()).backward()
    another.step(one)
    assert a.grad.tolist() == [1.0]


def test_a_scale_of_one_is_none():
    w, optimizer, _ = make(lr=1.0)
    nt.LossScaler.Static(1.0).scale(w.sum()).backward()
    optimizer.step()
    assert w.tolist() == [0.0, 1.0]


def by_another_step(p, q, r, first, second, scaler):
    scaler.scale(r.sum()).backward()
    scaler.step(second)
    scaler.update()
    return scaler


def by_a_restart(p, q, r, first, second, scaler):
    scaler.load_state_dict(scaler.state_dict())
    return scaler


def by_another_scaler(p, q, r, first, second, scaler):
    return nt.LossScaler.Static(8.0)


@pytest.mark.parametrize("pass_on", [by_another_step, by_a_restart, by_another_scaler])
def test_a_gradient_that_no_backward_reaches_stays_unscaled_however_long_ago_that_was(pass_on):
    p, q, r = (nt.ones(1, requires_grad=True) for _ in range(3))
    first, second, scaler = nt.optim.SGD([p, q], lr=0.1), nt.optim.SGD([r], lr=0.1), nt.LossScaler.Static(8.0)
    scaler.scale((p + q).sum()).backward()
    scaler.step(first)
    scaler.update()
    q.grad = None
    scaler = pass_on(p, q, r, first, second, scaler)
    scaler.scale(q.sum()).backward()
    scaler.step(first)
    scaler.update()
    assert p.grad.tolist() == [1.0]
    np.testing.assert_allclose(p.numpy(), 0.8, rtol=1e-6)


# Programs that are right.


def test_gradients_come_first_and_steps_afterwards():
    actor, critic = (nt.ones(2, requires_grad=True) for _ in range(2))
    for_actor, for_critic = nt.optim.SGD([actor], lr=0.1), nt.optim.SGD([critic], lr=0.1)
    one, other = nt.GradScaler(), nt.GradScaler()
    for _ in range(2):
        for_actor.zero_grad()
        one.scale(-(actor * critic).sum()).backward()
        for_critic.zero_grad()
        other.scale((critic * critic).sum()).backward()
        other.step(for_critic)
        other.update()
        one.step(for_actor)
        one.update()
    np.testing.assert_allclose(critic.numpy(), 0.64, rtol=1e-6)
    np.testing.assert_allclose(actor.numpy(), 1.18, rtol=1e-6)


def test_weights_may_be_written_between_the_backward_and_the_step():
    w, optimizer, scaler = make(init_scale=8.0, lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        with nt.no_grad():
            w /= nt.norm(w)
        scaler.step(optimizer)
        scaler.update()
    assert np.isfinite(w.numpy()).all()


def test_a_run_goes_on_after_it_was_rolled_back():
    w, optimizer, scaler = make(init_scale=8.0, lr=0.25)
    scaler.scale(w.sum())
    with nt.no_grad():
        w.copy_(nt.tensor([3.0, 4.0]))
    for _ in range(2):
        one_step(w, optimizer, scaler)
    assert w.tolist() == [2.5, 3.5]


def test_a_gradient_may_be_unscaled_by_hand_and_a_scaled_loss_be_looked_at():
    w, optimizer, scaler = make(init_scale=8.0, lr=0.25)
    for _ in range(2):
        with nt.Tape() as tape:
            loss = scaler.scale(w.sum())
        optimizer.step([tape.gradient(loss, w) / 8.0])
        assert scaler.scale(w.sum()).item() == 8.0 * w.sum().item()
    assert w.tolist() == [0.5, 1.5]


def test_what_lies_behind_a_loss_and_is_in_no_optimizer_may_be_written():
    w, optimizer, scaler = make(init_scale=1024.0, lr=0.1)
    shift = nt.zeros(2, requires_grad=True)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((w * (1.0 + shift)).sum()).backward()
        with nt.no_grad():
            shift.add_(0.1 * nt.sign(shift.grad))
        scaler.step(optimizer)
        scaler.update()
        shift.grad.zero_()
    np.testing.assert_allclose(w.numpy(), [0.79, 1.79], rtol=1e-6)


def test_gradients_may_be_zeroed_between_scaling_and_backward():
    w, optimizer, scaler = make(init_scale=1024.0)
    scaler.scale((w**2).sum()).backward()
    with nt.no_grad():
        w.add_(w.grad / nt.norm(w.grad) * 0.05)
    loss = scaler.scale((w**2).sum())
    optimizer.zero_grad()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(w.numpy(), 0.0, atol=1e-6)
