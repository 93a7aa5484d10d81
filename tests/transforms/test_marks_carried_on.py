"""The scale of a gradient is known after clipping, adding up and hooks, and if a cotangent was scaled, not a loss."""

import pytest

import numtape as nt


def setting(scale=8.0):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    return w, nt.optim.SGD([w], lr=0.1), nt.GradScaler(init_scale=scale)


def by_norm(w):
    nt.clip_grad_norm_([w], 20.0)


def by_value(w):
    nt.clip_grad_value_([w], 20.0)


@pytest.mark.parametrize("clip", [by_norm, by_value])
def test_clipping_in_place_leaves_a_scaled_gradient_scaled(clip):
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum()).backward()
    clip(w)
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss"):
        optimizer.step()
    assert w.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("clip", [by_norm, by_value])
def test_clipping_does_not_hide_a_late_scaled_loss(clip):
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.scale((w * w).sum()).backward()
    clip(w)
    with pytest.raises(nt.errors.GradientError, match="is scaled, though those of this optimizer were unscaled"):
        scaler.step(optimizer)


def test_clipping_does_not_hide_a_sum_of_scales():
    w, optimizer, scaler = setting()
    (w * w).sum().backward()
    scaler.scale((w * w).sum()).backward()
    by_norm(w)
    with pytest.raises(nt.errors.GradientError, match="sum of gradients of different scales"):
        scaler.step(optimizer)


def test_clipping_after_unscaling_steps_as_ever():
    w, optimizer, scaler = setting()
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        scaler.unscale_(optimizer)
        nt.clip_grad_norm_([w], 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert w.tolist() == pytest.approx([1.0 - 0.3 / 5**0.5, 2.0 - 0.6 / 5**0.5], rel=1e-5)


@pytest.mark.parametrize(
    "clip",
    [
        lambda grads: nt.gradient_clipping.clip_by_value(grads, 20.0),
        lambda grads: nt.gradient_clipping.clip_by_global_norm(grads, 20.0),
        lambda grads: nt.gradient_clipping.clip_by_norm(grads, 20.0),
    ],
)
def test_clipped_maps_of_scaled_losses_are_refused(clip):
    w, optimizer, scaler = setting()
    with nt.Tape() as tape:
        loss = scaler.scale((w * w).sum())
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss"):
        optimizer.step(clip(tape.backward(loss)))


@pytest.mark.parametrize("scaled", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("by_map", [False, True])
def test_accumulated_gradients_of_scaled_losses_are_refused(scaled, by_map):
    w, optimizer, scaler = setting()
    accumulator = nt.GradientAccumulator(2)
    for is_scaled in scaled:
        with nt.Tape() as tape:
            loss = (w * w).sum()
            loss = scaler.scale(loss) if is_scaled else loss
        accumulator.add(tape.backward(loss) if by_map else [tape.gradient(loss, w)])
    total = accumulator.take()
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss"):
        optimizer.step(total)


def test_accumulated_gradients_of_plain_losses_step():
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum())  # From now on marks are looked at.
    accumulator = nt.GradientAccumulator(2)
    for _ in range(2):
        with nt.Tape() as tape:
            loss = (w * w).sum()
        accumulator.add(tape.backward(loss))
    optimizer.step(accumulator.take())
    assert w.tolist() == pytest.approx([0.8, 1.6])


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("by_tape", [False, True])
def test_a_scaled_cotangent_scales_as_a_scaled_loss_does(others, by_tape):
    w, optimizer, scaler = setting()
    if others:
        nt.GradScaler(init_scale=4.0).scale(nt.tensor([1.0], requires_grad=True).sum())
    for _ in range(2):
        optimizer.zero_grad()
        seed = scaler.scale(nt.tensor(1.0))
        if by_tape:
            with nt.Tape() as tape:
                loss = (w * w).sum()
            tape.backward(loss, gradient=seed)
        else:
            (w * w).sum().backward(seed)
        with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss"):
            optimizer.step()
        scaler.step(optimizer)
        scaler.update()
    assert w.tolist() == pytest.approx([0.64, 1.28])


def test_a_scaled_loss_and_a_scaled_cotangent_are_one_too_many():
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum()).backward(nt.GradScaler(init_scale=4.0).scale(nt.tensor(1.0)))
    with pytest.raises(nt.errors.GradientError, match="sum of gradients of different scales"):
        scaler.step(optimizer)


def test_what_a_hook_returns_is_taken_as_it_is():
    w, optimizer, scaler = setting()
    w.register_hook(lambda g: g / scaler.get_scale())
    scaler.scale((w * w).sum()).backward()
    optimizer.step()
    assert w.tolist() == pytest.approx([0.8, 1.6])


def test_a_hook_that_looks_leaves_scaled_steps_as_they_are():
    w, optimizer, scaler = setting()
    seen = []
    w.register_hook(lambda g: seen.append(g.tolist()))
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert w.tolist() == pytest.approx([0.64, 1.28])
    assert seen[0] == [16.0, 32.0]


@pytest.mark.parametrize("enabled", [False, True])
def test_a_closure_of_none_is_no_closure(enabled):
    w, optimizer, _ = setting()
    scaler = nt.GradScaler(init_scale=8.0, enabled=enabled)
    scaler.scale((w * w).sum()).backward()
    scaler.step(optimizer, closure=None)
    scaler.update()
    assert w.tolist() == pytest.approx([0.8, 1.6])
    with pytest.raises(nt.errors.OperandError, match="wants an optimizer, not int"):
        scaler.step(3)


WRITES = {
    "clamp_": lambda w: w.grad.clamp_(-100.0, 100.0),
    "multiplied": lambda w: setattr(w, "grad", w.grad * 1.0),
    "cloned": lambda w: setattr(w, "grad", w.grad.clone()),
    "added": lambda w: w.grad.add_(nt.zeros(2)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_between_scaled_micro_batches_are_the_users(write):
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum()).backward()
    write(w)
    scaler.scale((w * w).sum()).backward()
    scaler.step(optimizer)
    assert w.tolist() == pytest.approx([0.6, 1.2])


def test_an_unscaled_loss_after_a_users_write_is_divided_as_in_pytorch():
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum()).backward()
    w.grad.clamp_(-1e6, 1e6)
    (0.8 * w).sum().backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == pytest.approx([2.1, 4.1])


def test_gradients_from_before_the_first_scaled_loss_are_known_once_there_is_a_scaler():
    w, optimizer, scaler = setting()
    (w * w).sum().backward()
    scaler.scale((w * w).sum()).backward()
    with pytest.raises(nt.errors.GradientError, match="sum of gradients of different scales"):
        scaler.step(optimizer)


def test_what_is_added_to_an_unscaled_gradient_of_a_half_leaves_it_wide():
    w = nt.tensor([1.0, 2.0], dtype=nt.float16, requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.GradScaler(init_scale=2.0**16)
    scaler.scale((w.astype(nt.float32) * 1e-9).sum()).backward()
    scaler.unscale_(optimizer)
    before = w.grad.tolist()
    (w * 0.0).sum().backward()
    assert w.grad.dtype == nt.float32
    assert w.grad.tolist() == before == pytest.approx([1e-9, 1e-9], rel=1e-3)


def by_the_gradient(h, g):
    h.backward(g)


def by_a_copy(h, g):
    h.backward(g.clone())


def by_an_array(h, g):
    h.backward(g.numpy(copy=True))


def by_a_surrogate(h, g):
    (h * g.detach()).sum().backward()


def by_a_tape(h, g):
    nt.Tape().backward(h, gradient=g * 1.0)


def by_chunks(h, g):
    h[:1].backward(g[:1], retain_graph=True)
    h[1:].backward(g[1:])


@pytest.mark.parametrize("hand_on", [by_the_gradient, by_a_copy, by_an_array, by_a_surrogate, by_a_tape, by_chunks])
def test_a_scaled_gradient_that_is_passed_on_by_hand_is_unscaled_as_in_pytorch(hand_on):
    w, v = nt.ones(2, requires_grad=True), nt.ones(2, requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w, v], lr=1.0), nt.GradScaler(init_scale=1024.0)
    h = w * 2.0
    inner = h.detach().requires_grad_()
    scaler.scale((inner * v).sum()).backward()
    hand_on(h, inner.grad)
    scaler.step(optimizer)
    assert (w.tolist(), v.tolist()) == ([-1.0, -1.0], [-1.0, -1.0])


def test_copies_that_are_added_up_count_as_scaled_beside_scaled_ones():
    w, optimizer, scaler = setting()
    scaler.scale((w * w).sum()).backward()
    copy = w.grad.clone()
    optimizer.zero_grad()
    nt.accumulate_gradients([copy], [w])
    scaler.step(optimizer)
    assert w.tolist() == pytest.approx([0.8, 1.6])
