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
