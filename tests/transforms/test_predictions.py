"""What a plan predicts is what is measured, and a budget that a strategy meets without one is not refused."""

import random

import numpy as np
import pytest

import numtape as nt
from numtape.core import recompute
from numtape.core.buffers import buffer_of
from numtape.core.record import Record
from numtape.insight.activations import Activations

ROWS, COLUMNS = 16, 8
RNG = np.random.default_rng(0)
X = nt.tensor(RNG.standard_normal((ROWS, COLUMNS)).astype("f4"))
LEAF = nt.tensor(X, requires_grad=True)
P = nt.tensor(RNG.standard_normal(COLUMNS).astype("f4"), requires_grad=True)
W = [nt.tensor(RNG.standard_normal((COLUMNS, COLUMNS)).astype("f4") / 3, requires_grad=True) for _ in range(3)]
STRATEGIES = [("none", 1), ("block", 1), ("auto", 1), ("block", 4), ("selective", 1), ("selective", 3), ("full", 1)]


def masked(h, _):
    return nt.where(h > 0, h * P, nt.sin(h))


def dropped(h, _):
    return nt.relu(h * P + nt.dropout(h, 0.2, rng=3))


def attended(h, _):
    q, k, v = ((h @ w).reshape(ROWS, 2, COLUMNS // 2).transpose(1, 0, 2) for w in W)
    weights = nt.dropout(nt.softmax(q @ k.transpose(0, 2, 1), axis=-1), 0.1, rng=5)
    return (weights @ v).transpose(1, 0, 2).reshape(ROWS, COLUMNS)


def viewed(h, _):
    return (nt.exp(-nt.abs(h.T)) * 0.5).T.reshape(COLUMNS, ROWS).reshape(ROWS, COLUMNS)


def sliced(h, _):
    return nt.concatenate([h[: ROWS // 2] * P, nt.sin(h[ROWS // 2 :])])


def joined(h, other):
    return nt.concatenate([h, other], axis=1) @ nt.concatenate(W[:2])


def stacked(h, other):
    return nt.stack([h, nt.sin(h), other]).mean(axis=0)


def gated(h, other):
    return nt.sigmoid(h @ W[0]) * nt.tanh(h) * (other > 0.1)


def normed(h, _):
    d = h - h.mean(axis=-1, keepdims=True)
    return d / nt.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5) * P


def halved(h, _):
    return (nt.tanh(h.astype("float16")) * 1.5).astype("float32") * P


def written(h, _):
    z = nt.tanh(h) * 1.5
    z[: ROWS // 2] *= 2.0
    z += h * 0.1
    return z


#: What has no parameters of its own.
PLAIN = [viewed, stacked, written]
LAYERS = [masked, dropped, attended, viewed, sliced, joined, stacked, gated, normed, halved, written]


def program_of(layers, is_skipped=()):
    """Return a program that applies layers to a constant if it can, each with a value from further back."""

    def program():
        h = before = LEAF if layers[0] in PLAIN else X
        for i, layer in enumerate(layers):
            h, before = layer(h, before), before if i in is_skipped else h
        del before
        return (h * h).mean()

    return program


def at_random(seed):
    """Return a program of a few kinds of layers."""
    choose = random.Random(seed)
    kinds = choose.sample(LAYERS, choose.choice([1, 2, 4]))
    layers = [choose.choice(kinds) for _ in range(choose.choice([2, 3, 5, 9]))]
    return program_of(layers, {i for i in range(len(layers)) if choose.random() < 0.4})


class Measured(Activations):
    """Counts what lives only while a stretch is made again as well."""

    def __enter__(self):
        self._run_again = recompute.run_again
        recompute.run_again = self._counted
        return super().__enter__()

    def __exit__(self, *exc):
        recompute.run_again = self._run_again
        super().__exit__(*exc)

    def _counted(self, record, made):
        out = self._run_again(record, made)
        links = [made.get(link, link) if type(link) is Record else link for link in record.inputs]
        arrays = [link.array if isinstance(link, Record | nt.Tensor) else link for link in links]
        given = {id(buffer_of(array)) for array in arrays if isinstance(array, np.ndarray)}
        for part in out if isinstance(out, tuple) else (out,):
            if id(buffer_of(part)) not in given:
                self.ledger.enter(part, self.ledger.account(record, "backward", "recomputed"))
        return out


def run(program, strategy="none", every=1, budget=None):
    """Return the bytes measured and the bytes predicted."""
    megabytes = None if budget is None else budget / 2**20
    config = nt.CheckpointConfig(strategy, checkpoint_every_n=every, memory_budget_mb=megabytes)
    with Measured() as held:
        with nt.GradientTape(checkpoint=config) as tape:
            loss = program()
        plan = tape.checkpoint_plan(loss)
        tape.backward(loss)
    return held.peak, plan.peak_bytes


@pytest.mark.parametrize("has_budget", [False, True])
@pytest.mark.parametrize(("strategy", "every"), STRATEGIES)
@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_predicted_is_what_is_measured(layer, strategy, every, has_budget):
    peak, predicted = run(program_of([layer] * 3), strategy, every, 2**20 if has_budget else None)
    assert predicted == pytest.approx(peak, rel=0.01, abs=24)


@pytest.mark.parametrize("seed", range(25))
def test_predictions_for_programs_at_random_come_true(seed):
    program = at_random(seed)
    for strategy, every in STRATEGIES:
        peak, predicted = run(program, strategy, every)
        assert predicted == pytest.approx(peak, rel=0.05)
        for share in (0.7, 0.9):
            try:
                found, predicted = run(program, strategy, every, share * peak)
            except nt.errors.MemoryBudgetError:
                continue
            assert predicted == pytest.approx(found, rel=0.05)
            assert found <= 1.03 * share * peak


def beside_a_dropout():
    h = X
    for _ in range(3):
        h = dropped(h, None)
    return (h * h).mean()


def gated_once():
    h = X * P
    h = nt.sigmoid(h @ W[0]) * nt.tanh(h)
    h = h - nt.logsumexp(h, axis=1, keepdims=True)
    h = h - nt.logsumexp(h, axis=1, keepdims=True)
    return (h * h).mean()


def stacked_once():
    h = stacked(LEAF, LEAF)
    h = nt.relu(h @ W[0])
    return (h * h).mean()


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.1, 1.15, 1.2])
@pytest.mark.parametrize("strategy", ["auto", "full"])
@pytest.mark.parametrize("program", [beside_a_dropout, gated_once, stacked_once])
def test_a_budget_that_full_takes_without_one_is_enough_for_all(program, strategy, factor):
    budget = factor * max(run(program, "full"))
    assert run(program, strategy, budget=budget)[0] <= 1.03 * budget


@pytest.mark.parametrize("seed", range(25))
def test_a_budget_that_a_strategy_meets_without_one_is_not_refused(seed):
    program = at_random(seed)
    for strategy, every in STRATEGIES:
        peak = max(run(program, strategy, every))
        for factor in (1.0, 1.1, 1.2):
            assert run(program, strategy, every, factor * peak)[0] <= 1.03 * factor * peak
