"""Steps of `nt.checkpoint_loop` that do something else when they run again, in derivatives of every order."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import GradientError

OPS = r"step \d+ of .* ran other ops, or on other shapes"
VALUES = r"step \d+ of .* gave other values when it ran again"


def by_tapes(f, x):
    x = nt.tensor(x)
    with nt.GradientTape() as outer:
        outer.watch(x)
        with nt.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        first = inner.gradient(y, x)
        return outer.gradient(first.sum(), x)


SECOND = {
    "hessian": lambda f, x: nt.hessian(f)(x),
    "hessian forward": lambda f, x: nt.hessian(f, mode="forward")(x),
    "grad of grad": lambda f, x: nt.grad(lambda x: nt.grad(f)(x).sum())(x),
    "jvp of grad": lambda f, x: nt.jvp(nt.grad(f), nt.tensor(x), nt.tensor(x)),
    "grad of jvp": lambda f, x: nt.grad(lambda x: nt.jvp(f, x, x)[1])(x),
    "third order": lambda f, x: nt.grad(lambda x: nt.hessian(f)(x).sum())(x),
    "tapes": by_tapes,
}
second = pytest.mark.parametrize("derivative", SECOND.values(), ids=SECOND)
X = np.array([0.7, 1.1])


class Changing:
    """A step that does one thing `times` times, and another from then on."""

    def __init__(self, first, then, times):
        self.first, self.then, self.times = first, then, times

    def __call__(self, s):
        self.times -= 1
        return (self.first if self.times >= 0 else self.then)(s)


def once_other(first, then, times):
    """Return a step that does another thing once, at one of its runs."""
    runs = iter(range(10**6))
    return lambda s: (then if next(runs) == times else first)(s)


CHANGES = {
    "another op": (nt.sin, nt.cos),
    "one more op": (nt.sin, lambda s: nt.sin(nt.sin(s))),
    "another shape": (lambda s: s * s.sum(), lambda s: s * s[:1].sum()),
    "another axis": (
        lambda s: nt.softmax(nt.stack([s, s]), axis=0)[0],
        lambda s: nt.softmax(nt.stack([s, s]), axis=1)[0],
    ),
}


@second
@pytest.mark.parametrize(("first", "then"), CHANGES.values(), ids=CHANGES)
def test_other_ops_in_a_recorded_gradient_are_named(first, then, derivative):
    for make in (Changing, once_other):
        with pytest.raises(GradientError, match=OPS):
            derivative(lambda x, make=make: nt.checkpoint_loop(make(first, then, 4), x, 4).sum(), X)


@second
def test_other_ops_on_a_part_that_does_not_move_are_named(derivative):
    constant = nt.tensor(np.array([0.3, 0.4]))
    step = Changing(lambda s: (nt.sin(s[0]), s[1] * 2.0), lambda s: (nt.sin(s[0]), s[1] * 2.0 + 1.0), 4)
    with pytest.raises(GradientError, match=OPS):
        derivative(lambda x: nt.checkpoint_loop(step, (x, constant), 4)[0].sum(), X)


@second
@pytest.mark.parametrize("state", [lambda x: x, lambda x: x * 0.0], ids=["numbers", "zeros"])
def test_other_values_in_a_recorded_gradient_are_named(state, derivative):
    def f(x):
        step = Changing(lambda s: nt.sin(s) * 2.0, lambda s: nt.sin(s) * 3.0, 4)
        return nt.checkpoint_loop(step, state(x), 4, verify=True).sum()

    with pytest.raises(GradientError, match=VALUES):
        derivative(f, X)


@second
@pytest.mark.parametrize("verify", [False, True])
def test_a_loop_inside_that_does_something_else_is_named(verify, derivative):
    def f(x):
        inner = Changing(nt.sin, (lambda s: nt.sin(s) * 2.0) if verify else nt.cos, 6)
        if verify:
            inner.first = lambda s: nt.sin(s) * 1.0
        return nt.checkpoint_loop(lambda s: nt.checkpoint_loop(inner, s, 3), x, 2, verify=verify).sum()

    with pytest.raises(GradientError, match=VALUES if verify else OPS):
        derivative(f, X)


@second
def test_a_loop_inside_that_runs_for_other_steps_is_named(derivative):
    def f(x):
        lengths = iter([2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3])
        return nt.checkpoint_loop(lambda s: nt.checkpoint_loop(lambda q: q * 1.0, s, next(lengths)), x, 3).sum()

    with pytest.raises(GradientError, match=OPS):
        derivative(f, X)


@second
def test_a_constant_bound_anew_before_a_recorded_gradient_is_named(derivative):
    def f(x):
        c = nt.tensor(np.array([0.3, 0.4]))
        y = nt.checkpoint_loop(lambda s: nt.sin(s * c), x, 3).sum()
        c = nt.tensor(np.array([0.5, 0.4]))
        return y

    with pytest.raises(GradientError, match="took other tensors from outside when it ran again"):
        derivative(f, X)


def test_a_derivative_with_nothing_tracked_behind_it_is_a_constant():
    constant = nt.tensor(np.array([0.3, 0.2]))
    x = nt.tensor(X)
    with nt.GradientTape() as outer:
        outer.watch(x)
        with nt.GradientTape(persistent=True) as inner:
            inner.watch(x)
            y = nt.checkpoint_loop(lambda s: (s[0] * s[1], s[1] * 1.1), (x, constant), 3)[0]
        assert not inner.gradient(y, x).requires_grad
    np.testing.assert_allclose(nt.hessian(lambda x: nt.checkpoint_loop(lambda s: s * constant, x, 3).sum())(X), 0.0)
