"""What loss scalers refuse, and what they warn of."""

import warnings

import numpy as np
import pytest
from scaled_steps import amp, make, one_step, two_optimizers

import numtape as nt


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
    for step in (optimizer.step, lambda: optimizer.step([w.grad]), lambda: optimizer.apply_gradients([w.grad])):
        with pytest.raises(nt.errors.GradientError, match="'w' is that of a scaled loss, and was never unscaled"):
            step()
    assert w.tolist() == [1.0]


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
            lambda: nt.LossScaler.Static(2.0).scale(None),
            nt.errors.OperandError,
            "LossScaler.scale: wants the loss tensor, not NoneType.",
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
        "DynamicScaler.unscale: the gradients of this SGD are those of the last step, or of a loss that was not "
        "scaled; call scaler.scale(loss).backward() first."
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
        "DynamicScaler: the loss was scaled before, by scaler.scale(loss); this tape scales it by itself, so give it "
        "the loss as it was."
    )
    assert w.grad is None


def test_a_loss_is_scaled_once():
    w, _, scaler = make()
    scaled = scaler.scale(w.sum())
    for again in (scaler, nt.LossScaler.Static(4.0)):
        with pytest.raises(nt.errors.GradientError) as error:
            again.scale(scaled / 2.0)
        assert str(error.value) == (
            f"{type(again).__name__}.scale: the loss was scaled before, by scaler.scale(loss); scale it once."
        )


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


@pytest.mark.parametrize("way", ["map", "list", "by name"])
def test_scaled_gradients_that_a_step_is_given_are_refused(way):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=1.0), nt.LossScaler.Static(8.0)
    with nt.Tape() as tape:
        loss = scaler.scale((w * w).sum())
    grads = tape.backward(loss) if way == "map" else tape.gradient(loss, [w])
    with pytest.raises(nt.errors.GradientError) as error:
        scaler.step(optimizer, grads=grads) if way == "by name" else scaler.step(optimizer, grads)
    assert str(error.value) == (
        "StaticScaler.step: the gradients given are those of a scaled loss, and a scaler unscales the .grad of the "
        "optimizer's parameters; call scaler.step(optimizer) alone, after backward() or "
        "nt.accumulate_gradients(grads, params) has put them there."
    )
    assert w.tolist() == [1.0, 2.0]
    nt.accumulate_gradients(grads, [w])  # As it says; of what backward has put there it adds nothing.
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [-1.0, -2.0]


def test_gradients_that_somebody_unscaled_may_be_given():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=1.0), nt.LossScaler.Static(8.0)
    scaler.scale((w * w).sum()).backward()
    scaler.unscale(optimizer)
    scaler.step(optimizer, [w.grad * 0.5])
    assert w.tolist() == [0.0, 0.0]


def test_a_scaler_refuses_the_state_of_another_kind():
    static, dynamic = nt.LossScaler.Static(2.0), nt.LossScaler.Dynamic(4.0)
    for scaler, other in ((static, dynamic), (dynamic, static), (static, nt.GradScaler()), (dynamic, nt.GradScaler())):
        before = scaler.state_dict()
        with pytest.raises(nt.errors.ArgumentError, match="the state of this scaler is a dict with 'scale', 'skipped'"):
            scaler.load_state_dict(other.state_dict())
        assert scaler.state_dict() == before


@pytest.mark.parametrize("transform", [nt.grad, lambda f: lambda w: nt.value_and_grad(f)(w)[1]])
@pytest.mark.parametrize("is_tracked", [False, True])
def test_gradients_that_transforms_take_of_scaled_losses_are_known_as_such(transform, is_tracked):
    w = nt.tensor([1.0, 2.0]).set_requires_grad(is_tracked)
    scaler = nt.LossScaler.Static(8.0)
    scaled = transform(lambda w: scaler.scale((w * w).sum()))(w)
    plain = transform(lambda w: (w * w).sum())(w)
    assert scaled.tolist() == [16.0, 32.0]
    optimizer = nt.optim.SGD(1.0)
    with pytest.raises(nt.errors.GradientError, match="is that of a scaled loss, and was never unscaled"):
        optimizer.step(params=[w], grads=[scaled])
    with nt.no_grad():
        optimizer.step(params=[w], grads=[plain])
    assert w.tolist() == [-1.0, -2.0]


def test_a_gradient_of_a_transform_may_be_unscaled_by_its_scaler():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=1.0), nt.LossScaler.Static(8.0)
    w.grad = nt.grad(lambda w: scaler.scale((w * w).sum()))(w).detach()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [-1.0, -2.0]
