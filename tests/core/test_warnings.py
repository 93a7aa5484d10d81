"""Warnings point at the line of the user's program, however deep they come from."""

import inspect
import warnings

import numpy as np
import pytest

import numtape as nt
from numtape.ops import class_losses


def logits_like_probabilities():
    class_losses._looked_at_logits = False
    nt.cross_entropy(nt.full((4, 2), 0.5), nt.zeros(4, dtype=np.int64))


def configuration_that_never_acts():
    tape = nt.GradientTape(amp=nt.AmpConfig())
    x = tape.watch(nt.ones(2))
    tape.gradient(x.sum(), x)


@nt.custom_op(vjp={"x": lambda g: g}, deterministic=False, check=False)
def racy(x, /):
    return x * 1.0


def an_op_that_races():
    with nt.deterministic(mode="warn"):
        racy(nt.ones(2))


@pytest.mark.parametrize("program", [logits_like_probabilities, configuration_that_never_acts, an_op_that_races])
def test_a_warning_points_at_the_users_line(program):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program()
    (warning,) = caught
    lines, first = inspect.getsourcelines(program)
    assert warning.filename == __file__
    assert warning.lineno == first + len(lines) - 1
