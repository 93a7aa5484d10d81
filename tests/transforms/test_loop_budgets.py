"""Memory budgets count what loops keep and what their steps compute, and plans foresee it."""

import re

import numpy as np
import pytest

import numtape as nt
from numtape.insight.activations import Activations

NBYTES = 8000


def numbers(seed=0):
    return nt.tensor(np.random.default_rng(seed).uniform(size=NBYTES // 8), requires_grad=True)


def deep(h, steps=12):
    for _ in range(steps):
        h = nt.sin(h) * 1.1
    return h


def one_state(x, snapshots):
    return nt.checkpoint_loop(lambda s: nt.sin(s) * 1.01, deep(x), 100, snapshots=snapshots)


def two_states(x, snapshots):
    def step(state):
        a, b = state
        return a + 0.01 * b, b - 0.01 * nt.sin(a) * a

    return nt.checkpoint_loop(step, (deep(x), x * 0.5), 60, snapshots=snapshots)[0]


def long_steps(x, snapshots):
    return nt.checkpoint_loop(lambda s: deep(s, 4) * x, deep(x), 30, snapshots=snapshots)


def of_unknown_length(x, snapshots):
    def step(state):
        s, i = state
        return nt.sin(s) * 1.01, i + 1

    state = nt.checkpoint_loop(step, (deep(x), 0), until=lambda state: state[1] == 70, snapshots=snapshots)
    return state[0]


def nested(x, snapshots):
    def step(s):
        return nt.checkpoint_loop(lambda t: nt.sin(t) * 1.01, s, 5, snapshots=2)

    return nt.checkpoint_loop(step, deep(x), 12, snapshots=snapshots)


def two_loops(x, snapshots):
    return one_state(one_state(x, snapshots), snapshots)


def with_dropout(x, snapshots):
    return nt.checkpoint_loop(lambda s: nt.dropout(nt.sin(s), 0.2) * 1.1, x * 1.0, 20, snapshots=snapshots)


def of_branches(x, snapshots):
    return nt.checkpoint_loop(lambda s: nt.softmax(s) * s + nt.exp(-s), deep(x, 2), 3, snapshots=snapshots)


PROGRAMS = [one_state, two_states, long_steps, of_unknown_length, nested, two_loops, with_dropout, of_branches]


def measured(program, snapshots, config):
    """Return the gradient, the most bytes that were held, and the most that were planned."""
    x = numbers()
    nt.seed(0)
    with Activations() as held:
        with nt.GradientTape(checkpoint=config) as tape:
            h = deep(program(x, snapshots))
            loss = (h * h).mean()
            del h
        plan = tape.checkpoint_plan(loss)
        tape.backward(loss)
    return x.grad.numpy(), held.peak, plan.peak_bytes


def least_named(error):
    text = str(error)
    found = re.search(r"([\d,]+) bytes\) at least", text)
    if found:
        return float(found[1].replace(",", ""))
    return float(re.search(r"([\d.]+) MB at least", text)[1]) * 2**20


@pytest.mark.parametrize("snapshots", [2, 7])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_planned_with_everything_kept_is_what_is_held(program, snapshots):
    _, held, planned = measured(program, snapshots, nt.CheckpointConfig("none"))
    assert held <= planned * 1.02
    assert planned <= held * 1.2


@pytest.mark.parametrize("share", [0.4, 0.55, 0.75, 0.95])
@pytest.mark.parametrize("snapshots", [2, 7])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_budget_is_kept(program, snapshots, share):
    plain, most, _ = measured(program, snapshots, None)
    budget = share * most
    try:
        gradient, held, planned = measured(program, snapshots, nt.CheckpointConfig(memory_budget_mb=budget / 2**20))
    except nt.errors.MemoryBudgetError as error:
        # Two out of three parts may be states, of which none can be dropped.
        assert share < 0.9
        budget = least_named(error)
        gradient, held, planned = measured(program, snapshots, nt.CheckpointConfig(memory_budget_mb=budget / 2**20))
    assert held <= 1.03 * budget
    assert planned <= 1.03 * budget
    np.testing.assert_array_equal(gradient, plain)


@pytest.mark.parametrize("program", PROGRAMS)
def test_states_that_do_not_fit_are_named_with_what_would_do(program):
    with pytest.raises(nt.errors.MemoryBudgetError, match="at least") as caught:
        measured(program, 7, nt.CheckpointConfig(memory_budget_mb=3 * NBYTES / 2**20))
    budget = least_named(caught.value)
    assert measured(program, 7, nt.CheckpointConfig(memory_budget_mb=budget / 2**20))[1] <= 1.03 * budget
