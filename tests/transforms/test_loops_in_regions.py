"""`nt.checkpoint_loop` where values are dropped: it is one record there, and steps run again as they ran first."""

import numpy as np
import pytest

import numtape as nt
from numtape.insight.activations import Activations

REGIONS = {
    "full": ("full", None),
    "block": ("block", None),
    "selective": ("selective", None),
    "auto": ("auto", 1.0),
    "full with a budget": ("full", 1.0),
}


def gradients(f, x, w, region):
    x.grad = w.grad = None
    if region is None:
        f(x).backward()
    elif region == "checkpoint":
        nt.checkpoint(f, x).backward()
    else:
        strategy, budget = region
        with nt.GradientTape(checkpoint=nt.CheckpointConfig(strategy, memory_budget_mb=budget)) as tape:
            y = f(x)
        tape.backward(y)
    return x.grad.numpy(), w.grad.numpy()


@pytest.mark.parametrize("region", [*REGIONS.values(), "checkpoint"], ids=[*REGIONS, "checkpoint"])
def test_a_loop_takes_no_more_memory_for_more_steps_where_values_are_dropped(region):
    x = nt.ones(1000, dtype="float64", requires_grad=True)
    w = nt.tensor(np.full(1000, 0.9), requires_grad=True)
    peaks = []
    for n in (20, 80):

        def f(x, n=n):
            return nt.sin(nt.checkpoint_loop(lambda s: nt.sin(s * w), nt.cos(x), n, snapshots=3) * w).sum()

        expected = gradients(f, x, w, ("none", None))
        with Activations() as held:
            found = gradients(f, x, w, region)
        peaks.append(held.peak)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert peaks[1] <= peaks[0] * 1.1


W = nt.tensor([0.5, 0.7], dtype="float64", requires_grad=True)


def hooked(s):
    h = nt.sin(s * W)
    h.register_hook(lambda g: nt.clip(g, -0.1, 0.1))
    return h


def descending(s):
    p = s.detach().requires_grad_()
    (p**2).sum().backward()
    return s * W - 0.1 * p.grad


def taped(s):
    with nt.GradientTape() as tape:
        tape.watch(s)
        energy = (nt.sin(s * W) ** 2).sum()
    return s - 0.1 * tape.gradient(energy, s)


@pytest.mark.parametrize("region", [*REGIONS.values(), "checkpoint"], ids=[*REGIONS, "checkpoint"])
@pytest.mark.parametrize("step", [hooked, descending, taped])
def test_a_dropped_loop_runs_again_as_it_ran_first(step, region):
    x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)

    def f(x):
        return (nt.sin(nt.checkpoint_loop(step, nt.cos(nt.checkpoint_loop(step, x, 4) * W), 4)) ** 2).sum()

    expected = gradients(f, x, W, None if region == "checkpoint" else ("none", None))
    for found, same in zip(gradients(f, x, W, region), expected, strict=True):
        np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize("step", [hooked, descending, taped])
def test_a_dropped_loop_is_searched_for_nans(step):
    x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    with np.errstate(invalid="ignore"):
        y = nt.checkpoint_loop(lambda s: nt.log(step(s) - 5.0), x, 2).sum()
        assert "log" in str(nt.explain_nan(y))
