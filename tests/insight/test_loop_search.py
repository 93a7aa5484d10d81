"""explain_nan looks into a checkpointed loop: it names the step, and the op and line inside of it."""

import numpy as np
import pytest

import numtape as nt


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("bad", [0, 7, 199])
def test_the_step_in_which_a_value_is_born_is_named(bad):
    def step(x, number):
        return nt.log(x - x - 1.0) if number == bad else nt.sin(x) * 0.9  # Here.

    x = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = nt.checkpoint_loop(step, x, 200).sum()
    found = nt.explain_nan(loss)
    assert (found.direction, found.op, found.number, found.index) == ("forward", "log", 0, (0,))
    assert found.site.endswith("# Here.)")
    loop = nt.records(loss)[0]
    assert (
        found.cause == f"in step {bad} of the 200 of loop at {loop.site}: log is finite where x > 0, and here x = -1."
    )


@pytest.mark.parametrize("bad", [0, 7, 199])
def test_the_step_in_which_a_gradient_is_born_is_named(bad):
    def step(x, number):
        return nt.sqrt(x - x) + 1.0 if number == bad else nt.sin(x) * 0.9  # There.

    x = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = nt.checkpoint_loop(step, x, 200).sum()
    loss.backward(retain_graph=True)
    found = nt.explain_nan(loss)
    assert (found.direction, found.op, found.number, found.index) == ("backward", "sqrt", 0, (0,))
    assert found.site.endswith("# There.)")
    assert found.cause.startswith(f"in step {bad} of the 200 of loop at ")
    assert found.cause.endswith(": the derivative of sqrt by x is inf where x = 0.")


def test_what_a_step_captures_is_not_searched():
    w = nt.tensor([0.5, 0.0], requires_grad=True, name="w")
    scale = nt.exp(w)
    loss = nt.checkpoint_loop(lambda x: nt.sqrt(x * scale * 0.0), nt.ones(2), 3).sum()
    loss.backward()
    found = nt.explain_nan(loss)
    assert (found.direction, found.op) == ("backward", "sqrt")
    assert found.cause.startswith("in step 2 of the 3 of loop at ")


def test_states_of_several_parts_and_random_draws_are_run_again():
    draws = []

    def step(state, number):
        x, y = state
        noise = nt.uniform(2)
        draws.append(noise.tolist())
        return x + noise, nt.sqrt(y * 0.0) if number == 3 else y * 1.0

    x = nt.tensor([1.0, 2.0], requires_grad=True)
    last = nt.checkpoint_loop(step, (x, x), 5)
    first = draws[:5]
    loss = (last[0] * last[1]).sum()
    loss.backward()
    draws.clear()
    assert nt.explain_nan(loss).cause.startswith("in step 3 of the 5 of loop at ")
    assert draws[:5] == first


def test_looking_into_a_loop_leaves_the_random_stream_where_it_was():
    x = nt.tensor([1.0], requires_grad=True)
    nt.seed(3)
    expected = [nt.uniform(1).item() for _ in range(3)]
    nt.seed(3)
    loss = nt.checkpoint_loop(lambda x: nt.sqrt(x * 0.0) + 0.0 * nt.uniform(1), x, 2).sum()
    assert nt.explain_nan(loss).direction == "backward"
    assert nt.uniform(1).item() == expected[2]
