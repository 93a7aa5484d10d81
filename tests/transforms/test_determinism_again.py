"""What strict determinism says of ops that a backward runs again, and what digests cannot see."""

import numpy as np
import pytest

import numtape as nt


@nt.custom_op(vjp={"x": lambda g: g}, deterministic=False, check=False)
def jitter(x, /):
    return x + np.float32(np.random.default_rng().normal())


def checkpointed():
    x = nt.ones(3, requires_grad=True)
    return x, nt.checkpoint(lambda x: nt.exp(jitter(x)), x).sum()


@pytest.mark.parametrize("mode", ["strict", "warn", "off"])
def test_an_op_that_promises_nothing_does_not_run_again_in_a_backward(mode):
    x, loss = checkpointed()
    with nt.deterministic(mode):
        loss.backward()
    np.testing.assert_allclose(x.grad.sum().item(), loss.item(), rtol=1e-6)


def test_a_function_that_captures_another_value_is_not_taken_for_a_race():
    def run(factor):
        @nt.custom_gradient
        def times(x):
            return x * factor, lambda g: g * factor

        with nt.Tape() as tape:
            times(nt.tensor([1.0]))
        return tape.digest()

    difference = nt.diff_digests(run(2.0), run(3.0))
    assert difference.kind == "value"
    assert "the same op gave other bits on the same inputs, or its function captures others" in str(difference)
