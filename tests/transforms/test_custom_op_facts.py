"""What a declaration says of an op beside its rules is checked: its kind at once, a batch function at its first run."""

import numpy as np
import pytest

import numtape as nt
from numtape.core import batching
from numtape.errors import OperandError

WEIGHTS, SAMPLES = np.array([0.5, 1.5]), np.array([[1.0, 1.0], [2.0, 3.0]])


def square(**facts):
    given = {"vjp": {"x": lambda g, x: 2.0 * g * x}, "samples": [(np.array([1.0, 2.0]),)]}
    return nt.custom_op(**given, **facts)(lambda x, /: np.square(x))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"cost": 5}, "cost is 5; it must be a function."),
        ({"batch": 3}, "batch is 3; it must be a function or None."),
        ({"series": 3}, "series is 3; it must be a function or None."),
        ({"size": 3}, "size is 3; it must be a function or None."),
        ({"deterministic": "no"}, "deterministic is 'no'; it must be True or False."),
        ({"is_linear_backward": 1}, "is_linear_backward is 1; it must be True or False."),
        ({"aliases": "yes"}, "aliases is 'yes'; it must be True or False."),
        ({"domain": 3}, "domain is 3; it must be a text."),
    ],
)
def test_facts_are_of_their_kind(facts, message):
    with pytest.raises(OperandError) as error:
        square(**facts)
    assert str(error.value) == f"custom_op: {message}"


def wrong(op, operands, batched, params):
    return np.square(operands[0]) * 1.5


def summed(op, operands, batched, params):
    return np.square(operands[0]).sum(axis=0)


def right(op, operands, batched, params):
    return nt.square(operands[0]) if isinstance(operands[0], nt.Tensor) else np.square(operands[0])


@pytest.mark.parametrize("batch", [wrong, summed])
def test_a_batch_function_that_gives_something_else_is_named(batch):
    op, members = square(batch=batch).op, np.arange(6.0).reshape(3, 2)
    with pytest.warns(UserWarning, match="batch of <lambda> gives something else than the function does"):
        first = batching.run(op, [members], [True], {})
    np.testing.assert_array_equal(first, members**2)
    np.testing.assert_array_equal(batching.run(op, [members], [True], {}), members**2)


def centred(op, operands, batched, params):
    return operands[0] - operands[0].mean(axis=1, keepdims=True)


def test_rounding_is_no_difference():
    center = nt.custom_op(vjp={"x": lambda g: g - g.mean()}, batch=centred)(lambda x, /: x - x.mean())
    assert np.abs(batching.run(center.op, [np.full((2, 7), 0.1)], [True], {})).max() < 1e-15


@pytest.mark.filterwarnings("ignore:custom_op. batch of")
@pytest.mark.parametrize("batch", [wrong, summed, right, None])
def test_gradients_of_samples_are_right_whatever_the_batch_function_gives(batch):
    op = square(batch=batch)

    def loss(square_of, w, sample):
        return (square_of(w * sample) * nt.sin(w)).sum()

    found = nt.uncertainty.per_sample_gradients(lambda w, sample: loss(op, w, sample), WEIGHTS, SAMPLES)
    for sample, gradient in zip(SAMPLES, found, strict=True):
        np.testing.assert_allclose(gradient, nt.grad(lambda w, s=sample: loss(nt.square, w, s))(WEIGHTS), rtol=1e-12)
