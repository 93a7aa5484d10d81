"""Strict scopes reach what functions do that ops and derivatives call."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import DeterminismError
from numtape.kernels import blas


@nt.custom_op(vjp={"x": lambda g: g}, deterministic=False, check=False)
def racy(x, /):
    return x * 1.0


@nt.custom_gradient
def racy_inside(x):
    return racy(x), lambda g: g


@nt.custom_gradient
def racy_pull(x):
    return x * 1.0, lambda g: racy(g)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: racy_inside(x),
        lambda x: nt.grad(lambda z: (racy_pull(z) ** 2).sum())(x),
        lambda x: nt.implicit.fixed_point(lambda z: nt.cos(racy(z)), x),
        lambda x: nt.implicit.odeint(lambda t, y: -racy(y), x, np.array([0.0, 1.0])),
    ],
    ids=["custom_gradient", "its rule", "fixed_point", "odeint"],
)
def test_what_functions_run_inside_of_ops_is_refused_as_well(use):
    with nt.deterministic(), pytest.raises(DeterminismError, match="racy says that it cannot promise the same bits"):
        use(np.linspace(1.0, 2.0, 5))


def test_steps_of_a_loop_that_run_again_are_refused_as_well():
    x = nt.tensor(np.ones(3), requires_grad=True)
    with pytest.warns(UserWarning, match="racy at .*, which is declared with deterministic=False"):
        y = nt.checkpoint_loop(lambda s: nt.sin(racy(s)), x, 4).sum()
    with nt.deterministic(), pytest.raises(DeterminismError, match="racy says"):
        y.backward()


@pytest.mark.skipif(blas.library() is None, reason="the threads of this BLAS cannot be set")
def test_threads_that_are_set_inside_are_noticed_at_the_next_op_or_sweep():
    found = blas.library()
    a = nt.ones(3, 3, requires_grad=True)

    def product():
        return a @ a

    with nt.deterministic():
        loss = product().sum()
        for use in (product, loss.backward):
            found.set_threads(2)
            try:
                with pytest.raises(DeterminismError, match=r"BLAS was set to 2 threads inside.*; set it outside\."):
                    use()
            finally:
                found.set_threads(1)
            use()
    assert a.grad.tolist() == [[6.0] * 3] * 3
