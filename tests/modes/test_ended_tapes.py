"""Derivatives by what was computed on a tape that has ended: its leaf is watched no more, and transforms see it."""

import numpy as np
import pytest

import numtape as nt

C, ONE = np.array([5.0]), np.ones(1)

INSIDE = {
    "vjp": lambda y: nt.vjp(lambda z: y * z, C)[1](ONE)[0],
    "jvp": lambda y: nt.jvp(lambda z: y * z, C, ONE)[1],
    "grad": lambda y: nt.grad(lambda z: (y * z).sum())(C),
    "jacobian": lambda y: nt.jacobian(lambda z: y * z)(C)[0],
    "hessian": lambda y: 0.5 * nt.hessian(lambda z: (y * z * z).sum())(C)[0],
    "value": lambda y: nt.value_and_grad(lambda z: (y * z).sum())(ONE)[0],
    "derivatives": lambda y: nt.derivatives(lambda z: (y * z).sum(), 2.0, 1)[1],
}
OUTSIDE = {
    "grad": lambda f, y: nt.grad(lambda y: f(y).sum())(y),
    "jvp": lambda f, y: nt.jvp(f, y, nt.ones(1, dtype="float64"))[1],
    "jacobian": lambda f, y: nt.jacobian(f)(y),
    "vjp": lambda f, y: nt.vjp(lambda y: f(y).sum(), y)[1](np.float64(1.0)),
}


def left_by_a_tape():
    with nt.GradientTape() as tape:
        x = tape.watch(nt.tensor([2.0], dtype="float64"))
        y = x * x
        tape.gradient(y.sum(), x)
    return y


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("inside", INSIDE)
def test_nothing_is_lost(inside, outside):
    found = OUTSIDE[outside](INSIDE[inside], left_by_a_tape())
    while isinstance(found, tuple):
        found = found[0]
    array = found.numpy() if isinstance(found, nt.Tensor) else np.asarray(found)
    np.testing.assert_allclose(array.ravel(), [1.0], rtol=1e-14)
