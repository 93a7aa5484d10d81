"""Overflows under loss scaling: losses scaled twice, what is accumulated, and the op that warnings name."""

import linecache

import numpy as np
import pytest

import numtape as nt


def amp(**settings):
    return nt.AmpConfig(precision_mode="float16", **settings)


COMPUTED = {
    "divided": lambda s, a, b: s.scale(a) / 2.0,
    "added": lambda s, a, b: s.scale(a) + s.scale(b),
    "mean": lambda s, a, b: nt.stack([s.scale(a), s.scale(b)]).mean(),
    "sum": lambda s, a, b: nt.stack(s.scale([a, b])).sum(),
    "beside another": lambda s, a, b: a + 2.0 * s.scale(b),
}


@pytest.mark.parametrize("by_gradient", [False, True])
@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED.keys())
def test_a_tape_that_scales_refuses_what_was_computed_from_a_scaled_loss(compute, by_gradient):
    w = nt.ones(2, requires_grad=True)
    scaler = nt.LossScaler.Static(8.0)
    with nt.GradientTape.with_amp_config(amp()) as tape:
        loss = compute(scaler, w.sum(), (w * w).sum())
    with pytest.raises(nt.errors.GradientError, match="the loss was scaled before, by scaler"):
        tape.gradient(loss, [w]) if by_gradient else tape.backward(loss)
    assert w.grad is None


def test_a_loss_that_only_shares_a_graph_with_a_scaled_one_is_fine():
    w = nt.ones(2, requires_grad=True)
    scaler = nt.LossScaler.Static(8.0)
    with nt.GradientTape.with_amp_config(amp()) as tape:
        loss = (w * w).sum()
        scaler.scale(loss)
    assert tape.backward(loss)[w].tolist() == [2.0, 2.0]


# What warnings name.


def warning_of(w, loss, scale=8.0):
    """Return the warning of a step that is skipped."""
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Static(scale, warn_after=1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    with pytest.warns(RuntimeWarning) as caught:
        scaler.update()
    return str(caught[0].message)


@pytest.mark.parametrize("dtype", [nt.float32, nt.float16], ids=str)
def test_an_op_whose_backward_overflows_is_named(dtype):
    w = nt.tensor([0.0, 1.0], requires_grad=True, dtype=dtype, name="w")
    square = w * w
    text = warning_of(w, nt.sqrt(square).sum())  # The op.
    assert "What overflowed first is the gradient in the backward of sqrt, at " in text
    assert "# The op." in text


def test_an_infinite_gradient_of_what_does_not_step_is_not_named():
    w, other = nt.tensor([0.0, 4.0], requires_grad=True), nt.zeros(2, requires_grad=True)
    root = nt.sqrt(w * 2.0)
    loss = root.sum() + (other**0.5).sum()
    assert "in the backward of sqrt, at " in (text := warning_of(w, loss))
    assert "root = nt.sqrt(w * 2.0)" in text


def test_a_backward_that_overflows_on_a_tape_is_named():
    w = nt.tensor([0.0], requires_grad=True)
    config = amp(loss_scaler=nt.LossScaler.Static(8.0, warn_after=1))
    with nt.GradientTape.with_amp_config(config) as tape:
        h = w * w
        loss = nt.sqrt(h).sum()
    with pytest.warns(RuntimeWarning, match="is the gradient in the backward of sqrt, at "):
        tape.backward(loss)


def test_a_scaled_cotangent_that_overflows_is_named():
    w = nt.tensor([2.0**-100], requires_grad=True)
    text = warning_of(w, (w * np.float32(2.0**100)).sum(), scale=2.0**60)
    assert "What overflowed first is the gradient in the backward of mul, at " in text


def makes_infinite(g):
    return g * np.float32(np.inf)


@pytest.mark.parametrize("is_on_leaf", [False, True])
def test_a_hook_that_overflows_is_named(is_on_leaf):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    h = w * 2.0
    (w if is_on_leaf else h).register_hook(makes_infinite)
    line = makes_infinite.__code__.co_firstlineno
    assert warning_of(w, h.sum()) == (
        "LossScaler: 1 steps in a row were skipped, since gradients were not finite; the scale is 8 now. No op "
        f"overflowed, forward or backward, but gradients pass the hook makes_infinite of {__file__}:{line}: see what "
        "it returns."
    )


def test_a_warning_that_names_no_op_gives_no_advice_about_one():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.LossScaler.Static(8.0, warn_after=1)
    scaler.scale((w * 2.0).sum()).backward()
    w.grad = nt.full((2,), np.inf)  # By hand.
    scaler.step(optimizer)
    with pytest.warns(RuntimeWarning) as caught:
        scaler.update()
    assert str(caught[0].message) == (
        "LossScaler: 1 steps in a row were skipped, since gradients were not finite; the scale is 8 now. A smaller "
        "learning rate may help."
    )


GIVEN = "was given numbers that are not finite"
HELP = "A smaller learning rate may help."
HALF_HELP = "A smaller learning rate, or keep_fp32_ops for that op, may help."


def by_matmul(w):
    return w @ nt.ones(2, 2)


def by_linear(w):
    return nt.linear(nt.full((2, 2), 1e6), w * 1e-5)


def by_cast(w):
    return w.astype(nt.float16) * 0.5


def by_exp(w):
    return nt.exp(w)


def by_log(w):
    return nt.log(-w)


def by_nan(w):
    return nt.linear(nt.tensor([[np.nan, 1.0]]), w * 1e-5)


def by_infinity(w):
    return w * nt.tensor([np.inf, 1.0])


def by_number(w):
    return w * np.inf


WORDS = {
    by_matmul: f"The first op that overflowed is matmul, in float16, at {{}}. {HALF_HELP}",
    by_linear: f"The first op that overflowed is linear, in float16, at {{}}. {HALF_HELP}",
    by_cast: f"The first op that overflowed is cast, in float16, at {{}}. {HELP}",
    by_exp: f"The first op that overflowed is exp, in float32, at {{}}. {HELP}",
    by_log: f"The first op that gave NaN is log, in float32, at {{}}. {HELP}",
    by_nan: f"The first op that {GIVEN} is linear, in float16, at {{}}. See what it is given.",
    by_infinity: f"The first op that {GIVEN} is mul, in float32, at {{}}. See what it is given.",
    by_number: f"The first op that {GIVEN} is mul, in float32, at {{}}. See what it is given.",
}


@pytest.mark.parametrize("compute", WORDS, ids=lambda f: f.__name__)
def test_a_warning_says_what_the_op_did_that_somebody_wrote_and_what_may_help(compute):
    w = nt.full((2, 2), 1e5, requires_grad=True)
    with nt.autocast(nt.float16), np.errstate(all="ignore"):
        loss = nt.square(compute(w)).sum()
    line = compute.__code__.co_firstlineno + 1
    source = linecache.getline(__file__, line).strip()
    assert warning_of(w, loss) == (
        "LossScaler: 1 steps in a row were skipped, since gradients were not finite; the scale is 8 now. "
        + WORDS[compute].format(f"{__file__}:{line} ({source})")
    )


def test_a_parameter_that_is_not_a_number_is_what_the_op_was_given():
    w = nt.tensor([[np.nan]], requires_grad=True)
    with nt.autocast(nt.float16):
        loss = nt.square(w @ nt.ones(1, 1)).sum()
    assert "The first op that was given numbers that are not finite is matmul, in float16, at " in warning_of(w, loss)


# Accumulation.


def gradients_of(w, x, by_gradient):
    config = amp(loss_scaler=nt.LossScaler.Static(1.0))
    with nt.GradientTape.with_amp_config(config) as tape, np.errstate(all="ignore"):
        loss = (w * x).sum()
    return tape.gradient(loss, [w]) if by_gradient else tape.backward(loss)


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("by_gradient", [False, True])
def test_an_overflow_in_a_micro_batch_is_one_of_the_batch(by_gradient, bad):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    optimizer = nt.optim.SGD([w], lr=0.5)
    accumulator = nt.GradientAccumulator(steps=3)
    for overflow in (True, False):
        for number in range(3):
            x = nt.tensor([np.inf if overflow and number == bad else 3.0, 1.0])
            accumulator.add(gradients_of(w, x, by_gradient))
        taken = accumulator.take()
        assert taken.overflow is overflow
        before = w.tolist()
        optimizer.step(taken)
        assert w.tolist() == (before if overflow else [-0.5, 1.5])


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("form", [lambda w: w, lambda w: {"w": w}], ids=["single", "dict"])
def test_an_overflow_in_a_micro_batch_counts_in_every_form(form, bad):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    accumulator = nt.GradientAccumulator(steps=2)

    def take(overflow):
        for number in range(2):
            with nt.GradientTape.with_amp_config(amp(loss_scaler=nt.LossScaler.Static(1.0))) as tape:
                loss = (w * nt.tensor([np.inf if overflow and number == bad else 3.0, 1.0])).sum()
            found = tape.gradient(loss, form(w))
            accumulator.add(found if isinstance(found, dict) else [found])
        return accumulator.take()

    with np.errstate(all="ignore"):
        taken = take(True)
    assert (taken, taken.overflow) == ([None], True)
    (mean,) = nt.tree.leaves(take(False))
    assert mean.tolist() == [3.0, 1.0]


def test_a_source_that_is_not_connected_counts_as_zero_beside_overflows_of_before():
    w, v = nt.tensor([1.0], requires_grad=True), nt.tensor([1.0], requires_grad=True)
    with np.errstate(all="ignore"):
        gradients_of(w, nt.tensor([np.inf]), True)
    accumulator = nt.GradientAccumulator(steps=2)
    for source in (v, w):
        tape = nt.GradientTape()
        accumulator.add({"w": tape.gradient((source * 4.0).sum(), w)})
    assert accumulator.take()["w"].tolist() == [2.0]


def test_statistics_of_all_micro_batches_go_back_if_one_overflowed():
    layer = nt.nn.BatchNorm1d(3)
    x = nt.randn(8, 3, rng=0)
    accumulator = nt.GradientAccumulator(steps=3)
    for factor in (1.0, np.inf, 1.0):
        with nt.GradientTape.with_amp_config(amp(loss_scaler=nt.LossScaler.Static(1.0))) as tape:
            loss = (layer(x) * nt.arange(3.0)).sum()
            with np.errstate(all="ignore"):
                loss = loss * factor
        with np.errstate(all="ignore"):
            accumulator.add(tape.backward(loss))
    assert accumulator.take().overflow
    assert (layer.running_mean.tolist(), layer.num_batches_tracked.item()) == ([0.0, 0.0, 0.0], 0)


def test_an_overflow_that_joins_plain_lists_is_not_lost():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    accumulator = nt.GradientAccumulator(steps=2)
    accumulator.add([nt.ones(2)])
    accumulator.add(gradients_of(w, nt.tensor([np.inf, 1.0]), True))
    taken = accumulator.take()
    assert (taken, taken.overflow) == ([None], True)


def test_no_gradient_of_an_overflow_is_added_to_tensors():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    nt.accumulation.accumulate_gradients(gradients_of(w, nt.tensor([np.inf, 1.0]), True), [w])
    assert w.grad is None


def test_a_gradient_that_overflowed_is_not_said_to_be_independent():
    w = nt.tensor([1.0, 2.0], requires_grad=True, name="w")
    grads = gradients_of(w, nt.tensor([np.inf, 1.0]), False)
    with pytest.raises(nt.errors.MissingGradientError) as error:
        grads[w]
    assert str(error.value) == (
        "Gradients: there is none of w, for gradients overflowed under loss scaling; ask grads.overflow before, or "
        "get(), which gives None instead. A step with these does nothing."
    )
    assert grads.get(w) is None
    with pytest.raises(nt.errors.MissingGradientError, match="there is none of tensor"):
        grads[w * 2.0]
