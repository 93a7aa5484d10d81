"""What functions with a pull function of their own change besides their value: it changes once, and repeats."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.effects import effects
from numtape.transforms.custom import custom_gradient


@custom_gradient
def noisy(x, rng):
    mask = nt.rand(3, dtype="float64", rng=rng) + nt.rand(3, dtype="float64")
    return x * mask, lambda g: (g * mask, None)


def test_random_numbers_of_a_stream_that_is_passed_repeat_in_the_derivative():
    rng = nt.Generator(7)
    for _ in range(2):  # The first call looks at a second run, others do not.
        x = nt.tensor(np.ones(3), requires_grad=True)
        y = noisy(x, rng)
        nt.rand(1, rng=rng)
        before = rng.state_dict()
        y.sum().backward()
        assert x.grad.tolist() == y.tolist()
        assert rng.state_dict() == before


def test_random_numbers_of_a_captured_stream_repeat_in_the_derivative():
    rng = nt.Generator(7)
    captured = custom_gradient(lambda x: (lambda mask: (x * mask, lambda g: g * mask))(nt.rand(3, rng=rng)))
    for _ in range(2):
        x = nt.tensor(np.ones(3), requires_grad=True)
        y = captured(x)
        y.sum().backward()
        assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f: nt.grad(lambda x: f(x).sum())(np.ones(3)),
        lambda f: nt.jvp(f, np.ones(3), np.ones(3)),
        lambda f: nt.jacobian(f)(np.ones(3)),
        lambda f: nt.hessian(lambda x: f(x * x).sum())(np.ones(3)),
        lambda f: nt.grad(lambda x: nt.checkpoint(f, x).sum())(np.ones(3)),
    ],
    ids=["grad", "jvp", "jacobian", "hessian", "checkpoint"],
)
def test_streams_stand_where_one_run_leaves_them(differentiate):
    once, again = nt.Generator(7), nt.Generator(7)
    nt.seed(0)
    noisy(np.ones(3), once)
    later = nt.rand(1).tolist()
    nt.seed(0)
    differentiate(lambda x: noisy(x, again))
    assert again.state_dict() == once.state_dict()
    assert nt.rand(1).tolist() == later


def test_whoever_watches_a_second_run_finds_where_streams_stood_before():
    rng = nt.Generator(7)
    y = noisy(nt.tensor(np.ones(3), requires_grad=True), rng)
    before = rng.state_dict()
    with effects() as seen:
        y.sum().backward()
    seen.undo()
    assert rng.state_dict() == before


def test_running_statistics_move_once():
    norm = nt.nn.BatchNorm1d(2)

    @custom_gradient
    def normed(x):
        norm(x)
        return x * 1.0, lambda g: g

    x = nt.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    normed(x).sum().backward()
    assert norm.num_batches_tracked.item() == 1
    np.testing.assert_allclose(norm.running_mean.numpy(), [0.2, 0.35], rtol=1e-6)


def test_a_second_run_that_differs_a_little_is_named():
    rng = np.random.default_rng(0)

    @custom_gradient
    def scaled(x):
        factor = 1.0 + 0.008 * rng.random()
        return x * factor, lambda g: g * factor

    with pytest.raises(nt.errors.GradientError, match="scaled: a second run on the same arguments gave another value"):
        nt.grad(lambda x: scaled(x).sum())(np.ones(1))


def test_what_changed_before_the_derivative_is_named():
    state = {"factor": 1.0}

    @custom_gradient
    def annealed(x):
        factor = state["factor"]
        return x * factor, lambda g: g * factor

    x = nt.tensor([1.0], requires_grad=True)
    y = annealed(x)
    state["factor"] = 10.0
    with pytest.raises(nt.errors.GradientError, match="annealed: a second run on the same arguments gave another"):
        y.sum().backward()
    assert x.grad is None
    state["factor"] = 1.0
    y.sum().backward()
    assert x.grad.tolist() == [1.0]


def test_members_of_a_batch_are_told_apart():
    square = custom_gradient(lambda x: (x * x, lambda g: g * 2.0 * x))
    outer = custom_gradient(lambda x: (nt.exp(x), lambda g: square(g) / g * nt.exp(x)))
    # Its pull function calls another one with each member of a batch of cotangents.
    x = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(nt.jacobian(lambda x: outer(x) * 3.0, mode="reverse")(x).diagonal(), 3.0 * np.exp(x))


def test_a_second_run_that_differs_in_one_element_of_many_is_named():
    rng = np.random.default_rng(0)

    @custom_gradient
    def spotted(x):
        factor = np.ones(1000)
        factor[7] = rng.random()
        return x * factor, lambda g: g * factor

    with pytest.raises(nt.errors.GradientError, match="spotted: a second run on the same arguments gave another value"):
        spotted(nt.tensor(np.ones(1000), requires_grad=True))
