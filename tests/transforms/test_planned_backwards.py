"""Every backward over the records of a tape with a memory budget is planned for, whoever calls it."""

import gc
import warnings

import numpy as np
import pytest

import numtape as nt
from numtape.insight.activations import Activations

NBYTES = 8000
STEPS = 40


def chain(x):
    h = x
    for _ in range(STEPS):
        h = nt.sin(h) * 1.1
    return (h * h).mean()


def by_loss(tape, x):
    with tape:
        loss = chain(x)
    loss.backward()


def inside(tape, x):
    with tape:
        chain(x).backward()


def of_a_sum(tape, x):
    with tape:
        loss = chain(x)
    (loss + 1.0).backward()


def by_context(tape, x):
    with tape:
        loss = chain(x)
    nt.compute_gradients(loss)


def with_a_tape_inside(tape, x):
    with tape, nt.Tape():
        loss = chain(x)
    loss.backward()


def with_a_tape_around(tape, x):
    with nt.Tape(), tape:
        loss = chain(x)
    loss.backward()


def after_a_mark(tape, x):
    with tape:
        tape.mark()
        loss = chain(x)
    loss.backward()


def by_the_tape(tape, x):
    with tape:
        loss = chain(x)
    tape.backward(loss)


WAYS = [by_loss, inside, of_a_sum, by_context, with_a_tape_inside, with_a_tape_around, after_a_mark, by_the_tape]


def measured(way, config):
    x = nt.tensor(np.linspace(0, 1, NBYTES // 8), requires_grad=True)
    with Activations() as held:
        way(nt.GradientTape(checkpoint=config), x)
    return x.grad.numpy(), held.peak


@pytest.mark.parametrize("values", [8, 12, 24])
@pytest.mark.parametrize("way", WAYS)
def test_a_backward_stays_within_the_budget(way, values):
    plain, peak = measured(way, None)
    budget = values * NBYTES
    assert peak > 1.5 * budget
    gradient, peak = measured(way, nt.CheckpointConfig(memory_budget_mb=budget / 2**20))
    assert peak <= 1.03 * budget
    np.testing.assert_array_equal(gradient, plain)


@pytest.mark.parametrize("way", [by_loss, inside, of_a_sum, with_a_tape_inside])
def test_a_budget_that_cannot_be_met_is_named_before_the_backward_begins(way):
    with pytest.raises(nt.errors.MemoryBudgetError, match=r"at least") as caught:
        measured(way, nt.CheckpointConfig(memory_budget_mb=2.5 * NBYTES / 2**20))
    least = int(str(caught.value).rsplit(" bytes) at least", 1)[0].rsplit("(", 1)[1].replace(",", ""))
    assert measured(way, nt.CheckpointConfig(memory_budget_mb=least / 2**20))[1] <= 1.03 * least


def test_where_the_tape_is_gone_nothing_is_planned_and_a_warning_says_so():
    x = nt.tensor(np.linspace(0, 1, NBYTES // 8), requires_grad=True)
    with nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=4 * NBYTES / 2**20)):
        loss = chain(x)
    with pytest.warns(UserWarning, match=r"Backwards are planned for if the tape is kept \(`as tape`\)"):
        loss.backward()


def test_steps_one_by_one_are_planned_and_hold_no_more_than_a_sweep():
    x = nt.tensor(np.linspace(0, 1, NBYTES // 8), requires_grad=True)
    budget = 8 * NBYTES
    with Activations() as held:
        with nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=budget / 2**20)) as tape:
            loss = chain(x)
        names = [record.op.name for record, _, _ in tape.backward_steps(loss)]
    assert len(names) == 2 * STEPS + 2
    assert held.peak <= 1.03 * budget


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("kind", ["nothing", "tensor", "array"])
@pytest.mark.parametrize("how", ["tape", "target", "gradient", "context"])
def test_targets_that_are_no_numbers(how, kind, is_half):
    dtype = np.dtype(np.float16 if is_half else np.float64)
    x = nt.tensor(np.linspace(0, 1, 1000).astype(dtype), requires_grad=True)
    budget = (24 if is_half else 64) * 1000
    given = {"nothing": None, "tensor": nt.ones(1000, dtype=dtype), "array": np.ones(1000, dtype)}[kind]
    if kind == "nothing" and how == "target":
        given = nt.ones(1000, dtype=dtype)
    with Activations() as held:
        with nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=budget / 2**20)) as tape:
            y = x
            for _ in range(20):
                y = nt.sin(y) * 1.1
        if how == "tape":
            tape.backward(y, given)
        elif how == "target":
            y.backward(given)
        elif how == "gradient":
            tape.gradient(y, x, output_gradients=given)
        else:
            nt.compute_gradients(y)
    assert held.peak <= 1.03 * budget


def test_what_plans_is_held_by_the_tape_alone():
    x = nt.tensor(np.linspace(0, 1, NBYTES // 8), requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        with nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=8 * NBYTES / 2**20)) as tape:
            loss = chain(x)
        (planner,) = loss.node.cell.planners
        assert planner() is not None
        del tape
        assert planner() is None
    finally:
        gc.enable()


def test_recorded_sweeps_of_transforms_inside_are_not_planned():
    x = nt.tensor(np.linspace(0, 1, NBYTES // 8), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with nt.Tape(checkpoint=nt.CheckpointConfig(memory_budget_mb=100 * NBYTES / 2**20)) as tape:
            loss = (nt.grad(lambda v: nt.sin(v).sum())(x) ** 2).sum()
        tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), -2 * np.cos(x.numpy()) * np.sin(x.numpy()))


def conv_net():
    nn = nt.nn
    nt.seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())]
    return nn.Sequential(*layers, nn.AvgPool2d(2))


@pytest.mark.parametrize("strategy", ["auto", "selective", "full"])
def test_what_rules_compute_inside_of_the_block_is_no_value_of_the_tape(strategy):
    model = conv_net()
    x = nt.tensor(np.random.default_rng(0).standard_normal((2, 8, 12, 12)).astype(np.float32))
    peaks = {}
    for is_inside in (False, True):
        with Activations() as held:
            with nt.GradientTape(checkpoint=nt.CheckpointConfig(strategy, memory_budget_mb=40_000 / 2**20)) as tape:
                loss = (model(x) ** 2).mean()
                if is_inside:
                    loss.backward()
            if not is_inside:
                tape.backward(loss)
        peaks[is_inside] = held.peak
    assert peaks[True] == pytest.approx(peaks[False], abs=8)  # The seed of one of them is held a little longer.
    assert peaks[False] <= 1.03 * 40_000


@pytest.mark.parametrize("layer", [nt.nn.Conv2d(16, 16, 5, padding=2), nt.nn.ConvTranspose2d(16, 16, 5, padding=2)])
def test_gradients_of_leaves_do_not_count_for_later_steps_inside_of_the_block(layer):
    x = nt.tensor(np.ones((1, 16, 2, 2), np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=2_000 / 2**20)):
            for _ in range(3):
                (layer(x) ** 2).mean().backward()


def test_looking_for_nan_warns_of_no_backward():
    weights = [nt.randn(32, 32, rng=i, requires_grad=True) for i in range(8)]
    x = nt.randn(64, 32, rng=9)
    with nt.GradientTape(checkpoint=nt.CheckpointConfig("auto", memory_budget_mb=0.055)) as tape:
        h = x
        for weight in weights:
            h = nt.gelu(h @ weight)
        loss = (h**2).mean()
        del h
    assert not nt.explain_nan(loss)  # Warnings are errors here.
    tape.backward(loss)
