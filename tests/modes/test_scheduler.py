"""The hybrid scheduler: what it chooses, what it sweeps, what it says."""

import gc
import pickle

import numpy as np
import pytest
from functions import POINT, close

import numtape as nt
from numtape.core.record import Record


def bottleneck(x):
    rng = np.random.default_rng(1)
    down, up = rng.normal(size=(3, len(x))), rng.normal(size=(len(x), 3))
    return nt.sin(up @ nt.tanh(down @ nt.cos(x)))


def count_members(monkeypatch):
    """Count the tangents and cotangents that batched sweeps carry."""
    from numtape.core import jacobian as module

    counts = {"forward": 0, "reverse": 0}

    def counting(name, original):
        def sweep(seeds, *args, **kwargs):
            counts[name] += len(seeds[0][1].members)
            return original(seeds, *args, **kwargs)

        return sweep

    for name in counts:
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    return counts


def test_a_bottleneck_takes_three_sweeps_each_way(monkeypatch):
    counts = count_members(monkeypatch)
    scheduler = nt.HybridScheduler()
    x = np.linspace(0.1, 1.0, 1000)
    mixed = nt.jacobian(bottleneck, scheduler=scheduler)(x)
    assert counts == {"forward": 3, "reverse": 3}
    decision = scheduler.last_decision
    assert decision.mode is nt.SchedulingStrategy.MIXED
    assert (decision.chosen.tangents, decision.chosen.cotangents, decision.chosen.width) == (3, 3, 3)
    close(mixed, nt.jacobian(bottleneck, mode="reverse")(x))
    assert counts == {"forward": 3, "reverse": 1003}
    close(mixed, nt.jacobian(bottleneck, mode="forward")(x))
    assert counts == {"forward": 1003, "reverse": 1003}


def test_without_mixed_mode_a_bottleneck_is_swept_one_way(monkeypatch):
    counts = count_members(monkeypatch)
    scheduler = nt.HybridScheduler(nt.SchedulerConfig(enable_mixed_mode=False))
    nt.jacobian(bottleneck, scheduler=scheduler)(np.linspace(0.1, 1.0, 50))
    assert counts == {"forward": 0, "reverse": 50}


@pytest.mark.parametrize(
    ("inputs", "outputs", "mode", "reason"),
    [
        (2, 20, "forward", "since outputs / inputs = 10 is at least 10"),
        (20, 2, "reverse", "since outputs / inputs = 0.1 is at most 0.1"),
        (10, 9, "reverse", "the cheaper of the plain modes"),
        (9, 10, "forward", "the cheaper of the plain modes"),
    ],
)
def test_the_thresholds_choose_plain_modes(inputs, outputs, mode, reason):
    matrix = np.ones((outputs, inputs))
    scheduler = nt.HybridScheduler()
    nt.jacobian(lambda x: matrix @ x, scheduler=scheduler)(np.ones(inputs))
    assert (scheduler.last_decision.mode.value, scheduler.last_decision.reason) == (mode, reason)


def test_explain_prints_the_alternatives():
    scheduler = nt.HybridScheduler()
    assert scheduler.explain() == "nothing was decided: no Jacobian was computed yet, or the last one was of constants"
    nt.jacobian(lambda x: nt.exp(np.ones((2, 4)) @ x), scheduler=scheduler)(np.ones(4))
    assert scheduler.explain() == (
        "Jacobian of 2 outputs by 4 inputs: reverse, the cheaper of the plain modes\n"
        "    mode              tangents  cotangents  multiply-adds\n"
        "    forward                  4           0             72\n"
        "->  reverse                  0           2             64\n"
        "    mixed (cut of 2)         2           2             80"
    )


def test_a_cut_may_hold_several_values():
    # Two paths side by side, each through a single number.
    def function(x):
        a, b = nt.tanh(x[:20].sum()), nt.sin(x[20:].sum())
        return nt.concat([a * np.arange(15.0), b * a * np.arange(30.0)])

    scheduler = nt.HybridScheduler()
    x = np.linspace(0.0, 1.0, 40)
    mixed = nt.jacobian(function, scheduler=scheduler)(x)
    assert scheduler.last_decision.chosen.width == 2
    close(mixed, nt.jacobian(function, mode="reverse")(x))


def test_a_value_that_skips_the_bottleneck_widens_it():
    def function(x):
        return nt.tanh(x.sum()) * np.ones(10) + x

    scheduler = nt.HybridScheduler()
    x = np.linspace(0.0, 1.0, 10)
    found = nt.jacobian(function, scheduler=scheduler)(x)
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.REVERSE
    close(found, np.full((10, 10), 1 - np.tanh(5.0) ** 2) + np.eye(10))
    close(nt.jacobian(function, mode="mixed")(x), found)


def test_mixed_mode_within_an_op_with_several_outputs():
    def function(x):
        u, s, vh = nt.svd(x.reshape(2, 2))
        return nt.concat([u.reshape(-1) * s.sum(), vh.reshape(-1)])

    expected = nt.jacobian(function, mode="reverse")(POINT)
    close(nt.jacobian(function, mode="mixed")(POINT), expected)
    close(nt.jacobian(function, mode="forward", chunk_size=1)(POINT), expected)


@nt.custom_gradient
def clipped(x, bound):
    return x * 1.0, lambda g: nt.clip(g, -bound, bound)


def copies_of_clipped(x):
    return nt.concat([clipped(x, 0.5) * float(k) for k in range(1, 21)])


def test_auto_goes_back_to_reverse_where_an_op_lacks_forward_mode():
    scheduler = nt.HybridScheduler()
    found = nt.jacobian(copies_of_clipped, scheduler=scheduler)(np.ones(1))
    assert found.ravel().tolist() == [0.5] * 20
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.REVERSE
    assert scheduler.last_decision.reason == (
        "since forward failed: clipped: forward mode transposes its pull function, which is not linear, so that it has "
        "no transpose. Write it with nt or np functions, linear in the cotangent, or use reverse mode."
    )
    with pytest.raises(nt.errors.NotDifferentiableError, match="is not linear"):
        nt.jacobian(copies_of_clipped, mode="forward")(np.ones(1))


def test_auto_goes_on_to_forward_where_an_op_lacks_reverse_mode():
    @nt.custom_op(jvp={"x": lambda t, x: np.asarray(t) * 2.0 * np.asarray(x)}, check=False)
    def squared(x, /):
        return x * x

    scheduler = nt.HybridScheduler()
    found = nt.jacobian(lambda x: squared(x)[:1], scheduler=scheduler)(np.arange(20.0))
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.FORWARD
    close(found, np.zeros((1, 20)))


def count_records():
    gc.collect()
    return sum(type(x) is Record for x in gc.get_objects())


def test_a_decision_holds_no_graph_and_can_be_stored():
    scheduler = nt.HybridScheduler()
    before = count_records()
    nt.jacobian(lambda x: nt.tanh(x.sum()) * np.ones(20), scheduler=scheduler)(np.ones(20))
    assert count_records() == before
    again = pickle.loads(pickle.dumps(scheduler))
    assert again.last_decision == scheduler.last_decision
    assert again.explain() == scheduler.explain()


def test_the_last_decision_of_a_tape_is_that_of_its_last_jacobian():
    x = nt.ones(3)
    with nt.Tape() as tape:
        y = x * x
    for mode in ("forward", "reverse"):
        tape.jacobian(y, x)
        tape.jacobian(y, x, mode=mode)
        assert (tape.scheduler.last_decision.mode.value, tape.scheduler.last_decision.reason) == (mode, "as configured")


def test_what_unit_vectors_do_not_spare_is_not_left_out_of_the_price():
    stack = np.ones((2, 40, 10))
    scheduler = nt.HybridScheduler()
    nt.jacobian(lambda x: x @ stack, scheduler=scheduler)(np.ones(40))
    by_einsum = nt.HybridScheduler()
    nt.jacobian(lambda x: nt.einsum("i,aij->aj", x, stack), scheduler=by_einsum)(np.ones(40))
    assert scheduler.last_decision == by_einsum.last_decision
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.REVERSE
    nt.jacobian(lambda w, v: w @ v, (0, 1), scheduler=scheduler)(np.ones((50, 50)), np.ones(50))
    assert scheduler.last_decision.chosen.multiply_adds >= 50 * 2550


def test_the_first_product_with_a_matrix_is_free():
    matrix = np.ones((50, 50))
    scheduler = nt.HybridScheduler()
    nt.jacobian(lambda v: nt.tanh(matrix @ v), scheduler=scheduler)(np.ones(50))
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.FORWARD
