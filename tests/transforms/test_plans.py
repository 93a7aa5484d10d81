"""Plans for backwards: the same however often one asks, of the loss alone, and without traces of their own."""

import gc

import numpy as np
import pytest

import numtape as nt
from numtape.errors import FreedError, MemoryBudgetError
from numtape.insight.activations import Activations
from numtape.transforms.walking import Walk

SHAPE = (100, 100)
ARRAY = 40_000


def leaf(seed=0):
    return nt.tensor(np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32), requires_grad=True)


def branching():
    x, w = leaf(), leaf(1)
    a = nt.cumsum(x, axis=1) * 0.2
    nt.sigmoid(x)
    b = nt.layer_norm(x, (100,))
    c = b.detach() * 0.5 + b
    del b
    d = c + w[0]
    del c
    e = d - d.var(1, keepdims=True)
    del d
    f = nt.silu(e)
    nt.exp(nt.tanh(f))
    nt.sin(a)
    g = nt.relu(f)
    del f
    loss = (g * g).mean()
    del g
    loss = loss + 0.1 * nt.tanh(a).sum()
    del a
    return loss + 0.1 * nt.tanh(e).sum()


def crossing():
    x, y, z = leaf(), leaf(1), leaf(2)
    a = nt.cos(x)
    b = y.detach() * 0.5 + y
    c = b[:, ::-1]
    d = nt.sigmoid(b)
    del b
    e = nt.relu(y)
    f = nt.sigmoid(a)
    del a
    g = f - f.var(1, keepdims=True)
    del f
    h = nt.log_softmax(z, axis=-1)
    loss = (h * h).mean()
    for value in (c, d, e, g):
        loss = loss + 0.1 * nt.tanh(value).sum()
    return loss


def outcomes(program, arrays, plans):
    """Return what asking for a plan some times, and then for the backward twice, came to: "+" or "-" each."""
    config = nt.CheckpointConfig("auto", memory_budget_mb=arrays * ARRAY / 2**20)
    found = ""
    try:
        with nt.GradientTape(checkpoint=config) as tape:
            loss = program()
    except MemoryBudgetError:
        return None
    for ask in [tape.checkpoint_plan] * plans + [tape.backward]:
        try:
            ask(loss)
            found += "+"
        except MemoryBudgetError:
            found += "-"
    return found


@pytest.mark.parametrize("program", [branching, crossing])
def test_to_ask_for_a_plan_changes_nothing(program):
    seen = set()
    for arrays in np.arange(4.0, 9.0, 0.25):
        alone = outcomes(program, arrays, 0)
        seen.add(alone)
        if alone is not None:
            assert outcomes(program, arrays, 1) == alone * 2
            assert outcomes(program, arrays, 2) == alone * 3
    assert "+" in seen


def test_a_backward_that_is_refused_is_refused_again():
    for arrays in np.arange(4.0, 9.0, 0.25):
        config = nt.CheckpointConfig("auto", memory_budget_mb=arrays * ARRAY / 2**20)
        try:
            with nt.GradientTape(checkpoint=config) as tape:
                loss = crossing()
        except MemoryBudgetError:
            continue
        try:
            tape.backward(loss)
        except MemoryBudgetError:
            with pytest.raises(MemoryBudgetError):
                tape.backward(loss)


def test_a_second_backward_takes_the_same_plan():
    config = nt.CheckpointConfig("auto", memory_budget_mb=8.25 * ARRAY / 2**20)
    with nt.GradientTape(checkpoint=config) as tape:
        loss = crossing()
    peaks = []
    for _ in range(2):
        with Activations() as held:
            tape.backward(loss, retain_graph=True)
        peaks.append(held.peak)
    assert peaks[0] == peaks[1]


def with_a_log(budget=None):
    """Run a small loss beside a longer chain that is only looked at; return the peak."""
    x = leaf()
    config = None if budget is None else nt.CheckpointConfig("auto", memory_budget_mb=budget / 2**20)
    with Activations() as held:
        with nt.GradientTape(checkpoint=config) as tape:
            h = nt.tanh(x)
            m = h
            for _ in range(6):
                m = nt.exp(-nt.square(m))
            m.mean().item()
            del m
            loss = nt.sin(h).sum()
            del h
        tape.backward(loss)
    return held.peak


def test_the_least_is_that_of_the_loss_and_of_nothing_that_was_looked_at():
    assert with_a_log(4 * ARRAY) <= 4 * ARRAY + 8
    with pytest.raises(MemoryBudgetError, match=r"forward and backward take 0\.1526 MB at least"):
        with_a_log(3.5 * ARRAY)


def test_plans_leave_no_cycles():
    """Also where rules are asked for views, as those of a recurrent network."""
    gru = nt.nn.GRU(4, 8)
    x = nt.randn(8, 16, 4, rng=0)
    budget = 36_000
    for _ in range(2):
        gc.collect()
        gc.disable()
        try:
            with nt.GradientTape(checkpoint=nt.CheckpointConfig("auto", memory_budget_mb=budget / 2**20)) as tape:
                loss = (gru(x)[0] ** 2).mean()
            try:
                tape.checkpoint_plan(loss)
            except MemoryBudgetError as error:
                error.__traceback__ = None
            del tape, loss
            assert not [found for found in gc.get_objects() if isinstance(found, Walk)]
        finally:
            gc.enable()
        budget *= 1.5


def test_a_plan_for_a_graph_that_was_freed_is_refused():
    x = leaf()
    with nt.GradientTape(checkpoint=nt.CheckpointConfig("full")) as tape:
        loss = nt.tanh(nt.sin(x)).sum()
    tape.backward(loss)
    with pytest.raises(FreedError, match="an earlier backward has freed the arrays of this graph"):
        tape.checkpoint_plan(loss)


@pytest.mark.parametrize("strategy", ["full", "selective", "block"])
@pytest.mark.parametrize("kind", [nt.nn.LSTM, nt.nn.GRU])
def test_a_recurrent_network_takes_what_is_predicted(kind, strategy):
    """Its steps read views of one product, which is not made again as long as one of them is kept."""
    nt.seed(0)
    network = kind(16, 32)
    x = nt.randn(8, 64, 16, rng=0)
    with Activations() as plain:
        (network(x)[0] ** 2).mean().backward()
    with Activations() as held:
        with nt.GradientTape(checkpoint=nt.CheckpointConfig(strategy, checkpoint_every_n=8)) as tape:
            loss = (network(x)[0] ** 2).mean()
        predicted = tape.checkpoint_plan(loss).peak_bytes
        tape.backward(loss)
    assert held.peak <= predicted <= 1.02 * held.peak
    assert held.peak < plain.peak * (1.08 if strategy == "block" else 0.95)
