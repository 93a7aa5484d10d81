"""What users' rules return, in sweeps that go on through loops and solvers: these must not take it for recorded."""

import numpy as np
import pytest

import numtape as nt

X = np.array([0.3, -0.5, 0.7])
#: A constant that rules capture, so that they return tensors.
C = nt.tensor([1.0, 2.0, 3.0], dtype="float64")


@nt.custom_gradient
def by_pull_function(x):
    return x * C, lambda g: g * C


@nt.custom_op(vjp={"x": lambda g: g * C})
def by_vjp(x, /):
    return x * C.array


@nt.custom_op(jvp={"x": lambda t: t * C})
def by_jvp(x, /):
    return x * C.array


@nt.custom_op(vjp=lambda g: (g * C,))
def by_joint_vjp(x, /):
    return x * C.array


def loop(x):
    return nt.checkpoint_loop(lambda s: 0.5 * nt.tanh(s * x), x, 3)


def fixed_point(x):
    return nt.implicit.fixed_point(lambda z: 0.2 * nt.tanh(z) + x, np.zeros(3))


@pytest.mark.parametrize("other", [loop, fixed_point], ids=["loop", "fixed_point"])
@pytest.mark.parametrize("scaled", [by_pull_function, by_vjp, by_jvp, by_joint_vjp])
def test_sweeps_go_on_with_arrays_behind_a_rule_that_returns_tensors(scaled, other):
    before, after = nt.jacobian(lambda x: other(x) * C)(X), nt.jacobian(lambda x: other(x * C))(X)
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(nt.jacobian(lambda x: scaled(other(x)), mode=mode)(X), before, atol=1e-12)
        np.testing.assert_allclose(nt.jacobian(lambda x: other(scaled(x)), mode=mode)(X), after, atol=1e-12)
    np.testing.assert_allclose(nt.grad(lambda x: scaled(other(x)).sum())(X), before.sum(0), atol=1e-12)
    np.testing.assert_allclose(nt.jvp(lambda x: other(scaled(x)), X, X)[1], after @ X, atol=1e-12)


@nt.custom_gradient
def by_arrays(x):
    """The right value and pull function, but a part of the latter is computed beside the tape."""
    w = np.exp(-(x.numpy() ** 2))
    return nt.exp(-x * x).sum(), lambda g: g * (-2.0 * x) * w


SECOND = {
    "jacobian of jacobian": lambda: nt.jacobian(nt.jacobian(by_arrays))(X),
    "forward over forward": lambda: nt.jvp(lambda x: nt.jvp(by_arrays, x, X)[1], X, X),
    "reverse over forward": lambda: nt.grad(lambda x: nt.jvp(by_arrays, x, X)[1])(X),
    "forward over reverse": lambda: nt.hvp(by_arrays, X, X),
    "series": lambda: nt.derivatives(lambda t: by_arrays(t * X), 1.0, 2),
    "a tensor's": lambda: nt.jvp(by_arrays, nt.tensor(X, requires_grad=True), nt.tensor(X))[1].backward(),
}


@pytest.mark.parametrize("second", SECOND.values(), ids=SECOND)
def test_what_leaves_the_tape_raises_in_second_derivatives_of_every_nesting(second):
    np.testing.assert_allclose(nt.jvp(by_arrays, X, X)[1], nt.grad(by_arrays)(X) @ X)
    with pytest.raises(nt.errors.NotDifferentiableError, match=r"left the tape by numpy\(\)"):
        second()


BENT = {
    "clips beyond what comes": lambda g: nt.clip(g, -2000.0, 2000.0),
    "drops what is small": lambda g: nt.where(abs(g) < 1e-7, 0.0, g),
    "an absolute value": abs,
    "an absolute value that overflows": lambda g: abs(g.astype(np.float32)) * np.float32(1e25),
}


@pytest.mark.parametrize("pull", BENT.values(), ids=BENT)
def test_rules_that_bend_far_from_1_are_not_transposed(pull):
    rule = nt.custom_gradient(lambda x: (x, pull))
    op = nt.custom_op(vjp={"x": pull}, structure="elementwise", check=False)(lambda x, /: x.copy())
    for function in (rule, op):
        with pytest.raises(nt.errors.NotDifferentiableError, match="is not linear, so that it has no transpose"):
            nt.jvp(function, X, X)
        with pytest.raises(nt.errors.NotDifferentiableError, match="is not linear"):
            nt.jacobian(function, mode="forward")(X)
