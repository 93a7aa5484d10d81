"""Rules whose gradients are right for one cotangent alone are found by others."""

import numpy as np
import pytest

import numtape as nt
from numtape.verdicts.judging import Verdict

X = np.array([1.0, 2.0, 3.0])


def op_of(pull, push, forward=np.sin):
    def function(x, /):
        return forward(x)

    return nt.custom_op(vjp={"x": pull}, jvp={"x": push}, check=False)(function)


RULES = {
    "forgets g": (lambda g, x: 2.0 * x, lambda t, x: (2 * x * t).sum(), lambda x: (x * x).sum()),
    "size of g": (lambda g, x: abs(g) * nt.cos(x), lambda t, x: t * nt.cos(x), np.sin),
    "positive g": (lambda g, x: nt.relu(g) * nt.cos(x), lambda t, x: t * nt.cos(x), np.sin),
    "square of g": (lambda g, x: g * g * 2.0 * x, lambda t, x: (2 * x * t).sum(), lambda x: (x * x).sum()),
    "adds to g": (lambda g, x: (g + 1.0) * x, lambda t, x: (2 * x * t).sum(), lambda x: (x * x).sum()),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_rules_that_are_not_linear_are_wrong(name, seed):
    check = nt.check_gradients(op_of(*RULES[name]), X, seed=seed)
    assert not check
    assert check.verdict is Verdict.WRONG
    assert check.bent == "args[0]"
    assert "gradients are WRONG" in str(check)


def test_what_is_wrong_with_it_is_said_in_full():
    last = str(nt.check_gradients(op_of(*RULES["forgets g"]), X)).splitlines()[-1]
    assert last.startswith(
        "gradients are WRONG: that by args[0] is not linear in the cotangent g, and so right for some g alone; a rule "
        "forgets g, or takes its size, its sign or a part of it; largest error "
    )


def test_a_custom_gradient_that_forgets_its_cotangent():
    @nt.custom_gradient
    def total(x):
        return (x * x).sum(), lambda g: 2.0 * x

    assert not nt.check_gradients(total, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (1e16 + x).sum() - 3e16 + nt.sin(x).sum(),
        lambda x: nt.exp(-300.0 * x),
        lambda x: nt.sin(x.astype("float32")).astype("float64"),
        lambda x: nt.sin(x.astype("float16")).astype("float64"),
        lambda x: nt.softmax(1e3 * x) + x,
        lambda x: (x - x.mean()) / x.std(),
        lambda x: {"a": x * 1e-200, "b": x * 1e200},
    ],
)
def test_rounding_accuses_nobody(function):
    for seed in range(5):
        assert not nt.check_gradients(function, X * 0.9, seed=seed).bent


def test_a_rule_that_rounds_its_cotangent_is_not_linear():
    @nt.custom_gradient
    def rounded(x):
        return nt.sin(x), lambda g: nt.round(g) * nt.cos(x)

    assert "not linear in the cotangent g" in str(nt.check_gradients(lambda x: rounded(x).sum(), X))
