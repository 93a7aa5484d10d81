"""What the certificate says where differences cannot tell: it accuses no right rule, and names what changes."""

import numpy as np
import pytest
from planted import POINT, planted, sin_times

import numtape as nt
from numtape.testing.gradients import check_gradients
from numtape.verdicts.judging import Verdict

LOW = {
    "bfloat16": (lambda x: nt.sin(x.astype("bfloat16")), 30.0),
    "float16 and back": (lambda x: nt.cos(x.astype("float16").astype("float64")), 30.0),
    "float32": (lambda x: nt.tanh(2.0 * nt.sin(x.astype("float32"))), 1e5),
    "hidden float32": (planted(lambda x: np.sin(x.astype(np.float32)).astype(np.float64), nt.cos), 1e6),
}


@pytest.mark.parametrize("name", LOW)
def test_an_argument_that_is_rounded_accuses_no_rule(name):
    function, scale = LOW[name]
    for seed in range(4):
        check = check_gradients(function, np.random.default_rng(seed).normal(size=4) * scale)
        assert set(check.counts) <= {Verdict.PRECISION, Verdict.NOISE}, str(check)


def test_low_precision_is_named_at_ordinary_arguments():
    assert check_gradients(lambda x: nt.sin(x.astype("bfloat16")), 10.3).verdict is Verdict.PRECISION
    # All of it is within the rounding of 1e4, so that nothing moves.
    assert check_gradients(lambda x: (x + 1e4).astype("float16"), 1e-7).verdict is Verdict.PRECISION


@pytest.mark.parametrize("factor", [0.9, 1.02, 2.0])
def test_a_wrong_rule_in_low_precision_is_found(factor):
    for scale in (0.1, 1.0, 10.0):
        check = check_gradients(lambda x: sin_times(factor)(x.astype("float32")), POINT * scale)
        assert check.counts == {Verdict.WRONG: 3}, str(check)


@pytest.mark.parametrize("distance", [1e-17, 1e-20, 1e-100])
def test_a_kink_or_a_jump_that_is_too_near_to_be_seen_accuses_no_rule(distance):
    near = {
        "jump of a remainder": lambda x: x % 0.01,
        "jump of a staircase": lambda x: nt.floor(100.0 * x) * 0.01,
        "kink with slopes that have no limit": lambda x: abs(x) ** abs(x),
        "steep kink": lambda x: nt.lgamma(abs(x) + 1e-3),
    }
    for name, function in near.items():
        assert check_gradients(function, -distance).verdict in {Verdict.KINK, Verdict.NOISE}, name


@pytest.mark.parametrize("method", ["six_point", "central"])
def test_steps_that_pass_over_details_accuse_no_rule(method):
    def flow(x):
        for _ in range(300):
            x = x + 0.01 * nt.sin(x)
        return x

    x = np.random.default_rng(0).normal(size=2) * 1e12
    assert check_gradients(flow, x, method=method).counts == {Verdict.NOISE: 2}


def test_a_function_that_changed_during_the_check_is_named():
    def changing_at(call):
        calls = 0

        def total(x):
            nonlocal calls
            calls += 1
            return x.sum() + (1e-3 if calls == call else 0.0)

        return total, lambda: calls

    steady, count = changing_at(0)
    assert check_gradients(steady, np.ones(5)).is_valid
    last = count()
    # The calls of the quotients of the last element, and those at the end.
    for call in range(last - 7, last + 1):
        assert check_gradients(changing_at(call)[0], np.ones(5)).verdict is Verdict.NON_DETERMINISTIC


def test_a_function_that_drifts_is_named():
    calls = 0

    def drifting(x):
        nonlocal calls
        calls += 1
        return x.sum() + 1e-3 * (calls > 30)

    check = check_gradients(drifting, np.ones(5))
    assert check.counts == {Verdict.NON_DETERMINISTIC: 5}
    assert "two calls with the same arguments differ" in str(check)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_cancellation_is_told_from_a_wrong_rule_wherever_an_element_stands(size):
    rng = np.random.default_rng(size)
    for _ in range(8):
        check = check_gradients(lambda x: ((nt.exp(x) - 1.0) / x).sum(), 10.0 ** rng.uniform(-7.0, -4.0, size))
        assert Verdict.WRONG not in check.counts


HIDDEN = {
    "a fast sine below the rounding of a large constant": lambda x: (1e-9 * (x + 1e-3 * nt.sin(1e3 * x))).sum() + 1e4,
    "an edge of low stairs": lambda x: (1e-6 * (nt.floor(1e4 * x) / 1e4 + x)).sum() + 100.0,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_fine_structure_that_rounding_hides_accuses_no_rule(name):
    check = check_gradients(HIDDEN[name], np.array([0.3, -1.2, 2.0]))
    assert check.counts == {Verdict.NOISE: 3}, str(check)
