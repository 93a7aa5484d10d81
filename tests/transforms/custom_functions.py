"""Functions with derivatives of their own, and the text of an error, for tests of custom derivatives."""

import numpy as np
import pytest

import numtape as nt
from numtape.transforms.custom import custom_gradient

OperandError = nt.errors.OperandError
X = np.array([0.5, -1.25, 2.0])


def message_of(error, run):
    """Return the text of the error that `run` raises."""
    with pytest.raises(error) as caught:
        run()
    return str(caught.value)


@custom_gradient
def cube(x, scale=1.0):
    """Return scale * x**3."""
    return scale * x**3, lambda g: g * (3.0 * scale) * x**2


@custom_gradient
def product_and_sum(a, b):
    return (a * b, a + b), lambda gs: (gs[0] * b + gs[1], gs[0] * a + gs[1])
