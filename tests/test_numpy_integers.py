"""A number of things may be an integer of NumPy, as ``len(x) // np.int64(2)`` gives it; a bool counts nothing."""

import numpy as np
import pytest

import numtape as nt
from numtape import implicit, optim
from numtape.counts import is_count


def profiled(most):
    with nt.profile() as profile:
        nt.exp(nt.ones(3))
    return profile.table(most=most)


ACCEPT = {
    "checkpoint_sequential": lambda n: nt.checkpoint_sequential([nt.sin, nt.cos], n, nt.ones(2)),
    "odeint": lambda n: implicit.odeint(lambda t, y: -y, np.ones(1), np.array([0.0, 0.01]), max_steps=n),
    "root": lambda n: implicit.root(lambda x: x - 1.0, np.zeros(1), max_iterations=n),
    "profile.table": profiled,
    "GradientAccumulator": nt.GradientAccumulator,
    "StepLR": lambda n: optim.StepLR(optim.SGD([nt.ones(1, requires_grad=True)], lr=0.1), n),
}


@pytest.mark.parametrize("name", ACCEPT)
def test_integers_of_numpy_count_and_bools_do_not(name):
    ACCEPT[name](np.int64(2))
    with pytest.raises(nt.errors.ArgumentError, match=r"True; it must be (a positive integer|an integer above 0)\."):
        ACCEPT[name](True)


def test_what_counts():
    assert is_count(1)
    assert is_count(np.uint8(3), 3)
    assert is_count(0, 0)
    for no in (0, -1, 1.0, True, np.True_, np.float64(2.0), "2", None, np.array([2])):
        assert not is_count(no)
