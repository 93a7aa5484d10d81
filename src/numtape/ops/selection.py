"""Choose between values by a condition."""

import numpy as np

from .._typing import Array
from ..core.declare import elementwise
from ..core.op import NON_DIFFERENTIABLE
from .samples import sample, values


@elementwise(
    np.where,
    partials=dict(
        condition=NON_DIFFERENTIABLE,
        # Select, never multiply: NaN or inf in the branch not taken does not pass.
        a=lambda g, condition: where(condition, g, 0.0),
        b=lambda g, condition: where(condition, 0.0, g),
    ),
    promoted=("a", "b"),
    linear=("a", "b"),
    samples=lambda: [
        sample(values(3) > 0, values(3), values(3, seed=1)),
        sample(values(2, 3) > 0, values(3), values(2, 1, seed=1)),
        sample(values(3) > 0, values(2, 3), values(seed=1)),
        sample(np.array(True), values(3), values(3, seed=1)),
        sample(np.array([True, False]), values(), values(seed=1)),
        sample(values(0) > 0, values(0), values(0)),
        sample(values(4, 1) > 0, values(1, 3), values(2, 1, 1, seed=1)),
        sample(np.zeros((2, 2), bool), values(2, 2), values(2, 2, seed=1)),
    ],
)
def where(condition: Array, a: Array, b: Array, /) -> Array:
    """Return `a` where `condition` holds and `b` elsewhere.

    The derivative selects as well: what the branch not taken holds, NaN included, has no effect on the gradient.

    Example:
        >>> nt.where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
        array([1., 0.])
    """
