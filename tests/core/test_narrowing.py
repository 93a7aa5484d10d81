"""Cotangents that their record would only sum arrive summed, where a rule can do that for less; all others as ever."""

import numpy as np
import pytest

import numtape as nt
from numtape.core import narrowing
from numtape.core.declare import registry
from numtape.core.narrowing import LEAST
from numtape.core.reverse import reverse

N, K, D = 200, 25, 20
RNG = np.random.default_rng(0)
X, MEANS, FACTORS = RNG.normal(size=(N, K, D)), RNG.normal(size=(K, D)), RNG.normal(size=(K, D, D))
assert N * K * D >= LEAST


@pytest.fixture
def subscripts(monkeypatch):
    """Those of the einsums that ran."""
    seen = []
    einsum = registry["einsum"]
    forward = einsum.forward

    def noted(arrays, *, subscripts):
        seen.append(subscripts)
        return forward(arrays, subscripts=subscripts)

    monkeypatch.setattr(einsum, "forward", noted)
    return seen


def scaled(means, x=X):
    return nt.einsum("kij,nkj->nki", FACTORS, x - means)


def expected(means, weights):
    """The gradient of ``sum(weights * scaled(means))``, one product after the other."""
    return -np.einsum("nki,kij->nkj", np.broadcast_to(weights, X.shape), FACTORS).sum(0)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_a_difference_that_repeats_an_operand_gets_its_cotangent_summed(subscripts):
    weights = RNG.normal(size=X.shape)
    close(nt.grad(lambda means: (weights * scaled(means)).sum())(MEANS), expected(MEANS, weights))
    assert subscripts == ["kij,nkj->nki", "nki,kij->kj"]


def test_small_ones_are_not_looked_at(subscripts):
    nt.grad(lambda means: nt.einsum("kij,nkj->nki", FACTORS, X[:2] - means).sum())(MEANS)
    assert subscripts[-1] == "nki,kij->nkj"


def test_who_else_reads_the_difference_gets_it_whole(subscripts):
    def f(means):
        difference = X - means
        return nt.einsum("kij,nkj->nki", FACTORS, difference).sum() + (difference**3).sum()

    close(nt.grad(f)(MEANS), expected(MEANS, 1.0) - (3 * (X - MEANS) ** 2).sum(0))
    assert "nki,kij->nkj" in subscripts


def test_an_operand_that_is_not_repeated_keeps_all_axes(subscripts):
    by_x, by_means = nt.grad(lambda x, means: scaled(means, x).sum(), (0, 1))(X, MEANS)
    close(by_means, expected(MEANS, 1.0))
    close(-by_x.sum(0), by_means)
    assert subscripts[-1] == "nki,kij->nkj"


@pytest.mark.parametrize("how", ["source", "retain", "hook", "keep", "step"])
def test_cotangents_that_somebody_looks_at_are_whole(how):
    means = nt.tensor(MEANS, requires_grad=True)
    with nt.Tape() as tape:
        difference = X - means
        if how == "retain":
            difference.retain_grad()
        seen = []
        if how == "hook":
            difference.register_hook(lambda g: seen.append(g))
        loss = nt.einsum("kij,nkj->nki", FACTORS, difference).sum()
    if how == "source":
        found = tape.gradient(loss, difference)
    elif how == "keep":
        found = tape.backward(loss, keep="all")[difference]
    elif how == "step":
        steps = {record.op.name: outgoing for record, _, outgoing in tape.backward_steps(loss)}
        found = steps["einsum"][1]
    else:
        tape.backward(loss)
        found = difference.grad if how == "retain" else seen[0]
    close(np.asarray(getattr(found, "array", found)), np.broadcast_to(FACTORS.sum(1), X.shape))


def test_cotangents_at_which_a_sweep_ends_are_whole():
    means = nt.tensor(MEANS, requires_grad=True)
    difference = X - means
    loss = nt.einsum("kij,nkj->nki", FACTORS, difference).sum()
    found = reverse([(loss.node, np.array(1.0))], ends={difference.node})
    close(found[difference.node], np.broadcast_to(FACTORS.sum(1), X.shape))


def test_a_label_of_that_operand_alone_counts_as_often_as_it_is_repeated():
    def f(means):
        return nt.einsum("kij,nkj->ki", FACTORS, X - means).sum()

    close(nt.grad(f)(MEANS), -N * FACTORS.sum(1))
    weights = RNG.normal(size=K)

    def f(means):
        return (nt.einsum("kj,nkj->k", MEANS, X - means) * weights).sum()

    close(nt.grad(f)(MEANS), -N * MEANS * weights[:, None])


def test_labels_that_an_operand_repeats_are_right():
    x, means = RNG.normal(size=(N, 12, 12)), RNG.normal(size=(12, 12))
    weights = RNG.normal(size=(N, 12))
    close(nt.grad(lambda means: (nt.einsum("nii,ni->n", x - means, weights)).sum())(means), -np.diag(weights.sum(0)))


def test_all_derivatives_go_that_way(subscripts):
    weights = RNG.normal(size=K)

    def f(means):
        return (nt.einsum("kij,nkj->ki", FACTORS, X - means) ** 2).sum(-1) * weights

    reverse, forward = (nt.jacobian(f, mode=mode)(MEANS) for mode in ("reverse", "forward"))
    close(reverse, forward)

    def energy(means):
        return (nt.tanh(0.01 * scaled(means)) ** 2).sum()

    direction = RNG.normal(size=MEANS.shape)
    by_tapes = nt.grad(lambda means: (nt.grad(energy)(means) * direction).sum())(nt.tensor(MEANS))
    close(by_tapes.numpy(), nt.hvp(energy, MEANS, direction))
    assert nt.check_gradients(lambda means: scaled(means, X[:50]).mean() ** 2, MEANS[:, :]).is_valid


@pytest.mark.parametrize("dtype", [nt.bfloat16, np.float16, np.float32])
def test_other_floats_have_their_dtype(dtype):
    means = nt.tensor(MEANS.astype(dtype), requires_grad=True)
    nt.einsum("kij,nkj->nki", FACTORS.astype(dtype), X.astype(dtype) - means).mean().backward()
    assert means.grad.dtype == dtype
    wanted = expected(MEANS, 1.0) / X.size
    np.testing.assert_allclose(means.grad.numpy().astype(float), wanted, rtol=0.05, atol=1e-3 * abs(wanted).max())


def test_looking_changes_no_bits():
    def run():
        means = nt.tensor(MEANS, requires_grad=True)
        scaled(means).sum().backward()
        return means.grad.numpy()

    plain = run()
    with nt.profile(values=True):
        assert np.array_equal(run(), plain)
    with nt.GradientMemoryProfiler():
        assert np.array_equal(run(), plain)
    with nt.detect_anomaly():
        assert np.array_equal(run(), plain)


def test_checkpointed_ones_are_equal_bit_for_bit():
    plain = nt.grad(lambda means: (scaled(means) ** 2).sum())(MEANS)
    kept = nt.grad(lambda means: (nt.checkpoint(scaled, means) ** 2).sum())(MEANS)
    assert np.array_equal(plain, kept)


def test_where_other_operands_have_length_one_the_sum_counts_each_that_is_repeated():
    c, ones, mu = RNG.normal(size=(200, 100)), np.ones((1, 4)), np.zeros((200, 1))

    def f(mu):
        return (nt.einsum("ij,jk->ik", c - mu, ones) ** 2).sum()

    close(nt.grad(f)(mu), -800.0 * c.sum(1, keepdims=True))
    for mode in ("forward", "reverse", "mixed"):
        hessian = nt.hessian(f, mode=mode)(mu)
        close(hessian.reshape(200, 200), 80_000.0 * np.eye(200))


@pytest.mark.parametrize("seed", range(150))
def test_random_einsums_of_what_is_repeated_agree_with_forward_mode(seed, monkeypatch):
    monkeypatch.setattr(narrowing, "LEAST", 0)
    rng = np.random.default_rng(seed)
    lengths = {label: int(rng.integers(2, 5)) for label in "ijkl"}

    def operand():
        labels = "".join(rng.permutation(list("ijkl"))[: rng.integers(1, 4)])
        shape = tuple(1 if rng.uniform() < 0.3 else lengths[label] for label in labels)
        return labels, rng.normal(size=shape)

    terms = [operand() for _ in range(rng.integers(1, 4))]
    used = "".join(sorted({label for labels, _ in terms for label in labels}))
    output = "".join(label for label in rng.permutation(list(used)) if rng.uniform() < 0.5)
    x = terms[0][1]
    mu = rng.normal(size=tuple(1 if rng.uniform() < 0.5 else n for n in x.shape)[rng.integers(0, x.ndim) :])
    subscripts = f"{','.join(labels for labels, _ in terms)}->{output}"
    others = [array for _, array in terms[1:]]

    def f(mu):
        return nt.sin(nt.einsum(subscripts, x - mu, *others)).sum()

    t = rng.normal(size=mu.shape)
    close((nt.grad(f)(mu) * t).sum(), nt.jvp(f, mu, t)[1])
    close(nt.hessian(f, mode="reverse")(mu), nt.hessian(f, mode="forward")(mu))
