"""Forward mode on arrays with tapes, generators and state inside: constant memory, and nothing left behind."""

import gc

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current
from numtape.core.record import Record


def inside(x):
    with nt.GradientTape() as tape:
        tape.watch(x)
        loss = (x * x).sum()
        return x - 1e-4 * tape.gradient(loss, x)


def after(x):
    with nt.GradientTape() as tape:
        tape.watch(x)
        loss = (x * x).sum()
    return x - 1e-4 * tape.gradient(loss, x)


def never_entered(x):
    tape = nt.GradientTape()
    tape.watch(x)
    loss = (x * x).sum()
    return x - 1e-4 * tape.gradient(loss, x)


def watching_all(x):
    with nt.Tape() as tape:
        loss = (x * x).sum()
        return x - 1e-4 * tape.gradient(loss, x)


def idle(x):
    with nt.GradientTape():
        return x * (1 - 2e-4)


def count_records():
    return sum(type(item) is Record for item in gc.get_objects())


@pytest.mark.parametrize("step", [inside, after, never_entered, watching_all, idle])
def test_records_do_not_grow_with_the_number_of_tapes_inside(step):
    counts = {}

    def function(x):
        for number in range(601):
            x = step(x)
            if number in (200, 400, 600):
                counts[number] = count_records() - before
        return x

    before = count_records()
    _, slope = nt.jvp(function, np.ones(2), np.ones(2))
    np.testing.assert_allclose(slope, (1 - 2e-4) ** 601, rtol=1e-12)
    assert max(counts.values()) < 1000
    assert counts[600] < counts[400] + 200


def test_a_persistent_tape_inside_has_its_graph_as_long_as_it_lives():
    def function(x):
        tape = nt.GradientTape(persistent=True)
        with tape:
            tape.watch(x)
            y = x**3
        z = x
        for _ in range(600):  # More than one batch.
            z = z * 1.0
        return tape.gradient(y, x) * z

    value, slope = nt.jvp(function, 2.0, 1.0)
    assert (value, slope) == (24.0, 36.0)


@pytest.mark.parametrize("block", [nt.enable_grad, nt.no_grad, nt.GradientTape])
def test_a_generator_that_waits_inside_leaves_nothing_of_the_transform(block):
    def batches():
        with block():
            yield 2.0
            yield 3.0

    kept = []

    def function(x):
        kept.append(batches())
        return next(kept[-1]) * x * x

    slope = nt.jvp(function, 3.0, 1.0)[1]
    if block is not nt.no_grad:
        assert slope == 12.0
    assert current().transforms == 0
    with nt.enable_grad():
        assert nt.grad(lambda x: x * x)(2.0) == 4.0
        w = nt.tensor(2.0, requires_grad=True)
        (w * w).backward()
        assert w.grad.item() == 4.0
    kept.clear()
    assert current().outer is None


def test_a_tape_that_an_error_leaves_open_does_not_break_what_follows():
    tape = nt.GradientTape()

    def function(x):
        tape.__enter__()
        raise KeyError

    with pytest.raises(KeyError):
        nt.jvp(function, 3.0, 1.0)
    assert nt.grad(lambda x: x * x)(2.0) == 4.0
    assert nt.jvp(lambda x: x * x, 3.0, 1.0) == (9.0, 6.0)
    tape.__exit__(None, None, None)
    assert current().outer is None


def test_what_a_function_writes_to_tensors_is_taken_back_before_it_runs_again():
    w = nt.tensor(2.0, dtype="float64", requires_grad=True)

    def counting():
        calls = nt.zeros((), dtype="float64")

        def function(x):
            with nt.no_grad():
                calls[...] = calls + 1.0
            return w * x * x / calls

        return function, calls

    function, calls = counting()
    value, slope = nt.jvp(function, 3.0, 1.0)
    assert (value.item(), slope.item(), calls.item()) == (18.0, 12.0, 1.0)
    assert nt.hvp(counting()[0], 3.0, 1.0).item() == nt.hessian(counting()[0])(3.0).item() == 4.0


def test_a_tape_that_watches_is_enough_for_second_order():
    outer = nt.GradientTape()
    x = outer.watch(nt.tensor([2.0, 1.0], dtype="float64"))
    inner = nt.GradientTape()
    inner.watch(x)
    slope = inner.gradient(x**3, x)
    assert outer.gradient((slope * x).sum(), x).tolist() == [36.0, 9.0]


def test_a_tape_that_watches_what_lies_between_is_enough_for_second_order():
    outer, inner = nt.GradientTape(), nt.GradientTape()
    x = nt.tensor([2.0, 1.0], dtype="float64", requires_grad=True)
    y = outer.watch(x * 1.0)
    inner.watch(y)
    matrix = inner.jacobian(y**3, y)
    assert outer.gradient((matrix * matrix).sum() + 0.0 * y.sum(), y).tolist() == [288.0, 36.0]


def test_a_tape_that_watches_something_else_changes_nothing():
    other = nt.GradientTape()
    other.watch(nt.tensor(1.0))
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    assert not tape.gradient(x * x, x).requires_grad


def test_inputs_that_are_not_connected_do_not_count_in_the_price_of_a_mixed_sweep():
    matrix = np.random.default_rng(0).normal(size=(3, 200))
    scheduler = nt.HybridScheduler()
    jacobian = nt.jacobian(lambda a, b: matrix.T @ nt.tanh(matrix @ a), argnums=(0, 1), scheduler=scheduler)
    jacobian(np.ones(200), np.ones(2000))
    with_others = scheduler.last_decision
    nt.jacobian(lambda a: matrix.T @ nt.tanh(matrix @ a), scheduler=scheduler)(np.ones(200))
    assert with_others.mode is scheduler.last_decision.mode is nt.SchedulingStrategy.MIXED
    assert with_others.chosen.multiply_adds == scheduler.last_decision.chosen.multiply_adds


def test_a_tape_that_was_left_does_not_make_gradients_of_another_tracked():
    x, y = nt.tensor(2.0), nt.tensor(3.0)
    with nt.GradientTape() as first, nt.GradientTape() as second:
        first.watch(x)
        second.watch(x, y)
        product = x * y
    assert not first.gradient(product, x).requires_grad
    assert [slope.item() for slope in second.gradient(product, [x, y])] == [3.0, 2.0]
