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


def test_an_op_that_promises_nothing_is_noticed_when_a_backward_runs_it_again():
    _, loss = checkpointed()
    with nt.deterministic(), pytest.raises(nt.errors.DeterminismError) as error:
        loss.backward()
    assert "deterministic: jitter says that it cannot promise the same bits every time, at " in str(error.value)
    assert "loss.backward()" in str(error.value)


def test_such_an_op_runs_again_elsewhere():
    x, loss = checkpointed()
    loss.backward()
    assert x.grad is not None
    x, loss = checkpointed()
    with nt.deterministic("warn"), pytest.warns(UserWarning, match="jitter says that it cannot promise"):
        loss.backward()
    assert x.grad is not None


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
