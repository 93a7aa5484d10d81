"""How imagined arrays lie in memory: as NumPy's do, so that copies made by reshapes are planned for, and no others."""

import numpy as np
import pytest

import numtape as nt
from numtape.insight.activations import Activations
from numtape.transforms.layouts import computed, imagined, in_rows, reshaped, strides_of

X = nt.tensor(np.random.default_rng(0).standard_normal((48, 32)), requires_grad=True)
W = [nt.tensor(np.random.default_rng(i).standard_normal((32, 32)) / 6.0, requires_grad=True) for i in range(4)]


def random_array(rng, shape):
    order = rng.permutation(len(shape))
    return np.ones([shape[axis] for axis in order]).transpose(np.argsort(order))


@pytest.mark.parametrize("seed", range(40))
def test_results_and_reshapes_lie_as_numpys_do(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 5, rng.integers(0, 5)).tolist())
    a, b = random_array(rng, shape), random_array(rng, shape)
    assert strides_of(np.ones(shape)) == in_rows(shape)
    assert strides_of(np.asarray(np.sin(a))) == computed(shape, (strides_of(a),))
    assert strides_of(np.asarray(a * b)) == computed(shape, (strides_of(a), strides_of(b)))
    for target in [(-1,), (*shape, 1), shape[:2][::-1] + shape[2:]]:
        found = a.reshape(target)
        expected = strides_of(found) if np.shares_memory(a, found) else None
        assert reshaped(shape, strides_of(a), found.shape) == expected


def test_an_imagined_array_may_have_gaps_and_run_backward():
    x = np.zeros((6, 8))[::-2, 1::3]
    found = imagined(x.shape, strides_of(x))
    assert (found.shape, found.strides) == (x.shape, strides_of(x))
    assert not found.any()


def heads(h, w):
    return nt.tanh((h @ w).reshape(4, 12, 4, 8).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3).reshape(48, 32)


def flat(h, w):
    return nt.tanh((h @ w).T.reshape(-1)).reshape(32, 48).T


def split_by_columns(h, w):
    return nt.concatenate([h[:, :8].reshape(-1), nt.tanh(h[:, 8:] @ w[8:, 8:]).T.reshape(-1)]).reshape(48, 32)


def flipped(h, w):
    return nt.tanh(nt.flip(h @ w, axis=0).reshape(-1)).reshape(48, 32)


def stacked(h, w):
    return nt.stack([h, nt.tanh(h @ w)], axis=1).reshape(2, -1).sum(axis=0).reshape(48, 32)


def centred(h, w):
    h = flat(h, w)
    return h + h.sum(axis=1, keepdims=True) * 0.1


def of_transposed_weights(h, w):
    return (w.T @ nt.tanh(h).T).T


def read_thrice(h, w):
    return h + nt.exp(-h * h) @ w + h.mean(axis=1, keepdims=True)


LAYERS = [heads, flat, split_by_columns, flipped, stacked, centred, of_transposed_weights, read_thrice]


@pytest.mark.parametrize("keep", ["leaves", "all"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_budget_that_plain_execution_meets_is_accepted_and_the_plan_is_exact(layer, keep):
    def run(budget):
        config = budget and nt.CheckpointConfig(memory_budget_mb=budget / 2**20)
        with Activations() as held:
            with nt.GradientTape(checkpoint=config) as tape:
                h = X * 1.0
                for w in W:
                    h = layer(h, w)
                loss = (h * h).mean()
                del h
            plan = tape.checkpoint_plan(loss, keep=keep)
            tape.backward(loss, keep=keep)
        return held.peak, plan.peak_bytes

    plain, _ = run(None)
    peak, planned = run(plain)
    assert peak <= plain
    assert planned == pytest.approx(peak, abs=24)
