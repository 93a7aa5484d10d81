"""Evenly spaced and random numbers of tracked bounds are on the tape, with the values that untracked ones give."""

import numpy as np
import pytest

import numtape as nt

MADE = {
    "linspace start": lambda s: nt.linspace(s, 3.0, 5),
    "linspace stop": lambda s: nt.linspace(-1.0, s, 5),
    "linspace both": lambda s: nt.linspace(s, 2 * s, 5),
    "arange start": lambda s: nt.arange(s, 9.0, 0.8),
    "arange step": lambda s: nt.arange(0.0, 9.0, s),
    "uniform low": lambda s: nt.uniform(s, 3.0, 4, rng=0),
    "uniform high": lambda s: nt.uniform(-1.0, s, 4, rng=0),
    "normal mean": lambda s: nt.normal(s, 2.0, 4, rng=0),
    "normal std": lambda s: nt.normal(1.0, s, (2, 2), rng=0),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_gradients_by_bounds_and_parameters(make):
    def total(s):
        return (make(s) ** 2).sum() * s

    def value(s):
        return total(nt.tensor(s, dtype="float64")).item()

    expected = (value(2.1 + 1e-5) - value(2.1 - 1e-5)) / 2e-5
    assert nt.grad(total)(2.1) == pytest.approx(expected, rel=1e-8)
    assert nt.jvp(total, 2.1, 1.0)[1] == pytest.approx(expected, rel=1e-8)
    assert nt.jacobian(total, mode="forward")(2.1) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_tracked_and_untracked_bounds_give_the_same_numbers(make):
    bound = nt.tensor(2.1, dtype="float64")
    plain = make(bound)
    tracked = make(bound.detach().requires_grad_())
    assert plain.is_leaf
    assert not tracked.is_leaf
    assert tracked.dtype == plain.dtype == np.float64
    np.testing.assert_allclose(tracked.numpy(), plain.numpy(), rtol=4e-16)


def test_a_tape_watches_a_bound_that_is_used():
    with nt.Tape() as tape:
        stop = nt.tensor(2.0)
        total = nt.linspace(0.0, stop, 5).sum()
    assert tape.gradient(total, stop).item() == 2.5


def test_derivatives_of_higher_order_by_a_bound():
    found = nt.derivatives(lambda s: nt.linspace(0.0, s, 3) ** 2, 2.0, 2)
    np.testing.assert_allclose(found, [[0.0, 1.0, 4.0], [0.0, 1.0, 4.0], [0.0, 0.5, 2.0]])


def test_the_dtype_is_that_of_tensors_or_the_default_one():
    double, single = nt.tensor(1.0, dtype="float64"), nt.tensor(1.0, dtype="float32")
    assert nt.linspace(0.0, 1.0, 3).dtype == nt.linspace(0, np.float64(1.0), 3).dtype == np.float32
    assert nt.linspace(0.0, double, 3).dtype == nt.linspace(single, double, 3).dtype == np.float64
    assert nt.normal(0.0, double, 3, dtype="float32").dtype == np.float32
    assert nt.arange(double, 3).dtype == np.float64
    assert nt.arange(nt.tensor(3)).dtype == np.int64


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda b: nt.linspace(nt.stack([b, b]), 1.0),
            nt.errors.OperandError,
            "linspace: start is array([2., 2.], dtype=float32); it must be a real number.",
        ),
        (
            lambda b: nt.normal(0.0, -b),
            nt.errors.ArgumentError,
            "normal: std is -2.0; a standard deviation is not negative.",
        ),
        (
            lambda b: nt.linspace(0.0, b, 3, requires_grad=True),
            nt.errors.GradientError,
            "linspace: requires_grad=True makes a leaf, but the data is tracked, and its gradient would be lost "
            "without a word. Leave requires_grad out to stay on the tape, or detach() the data.",
        ),
    ],
)
def test_refused_bounds(make, error, message):
    with pytest.raises(error) as caught:
        make(nt.tensor(2.0, requires_grad=True))
    assert str(caught.value) == message
