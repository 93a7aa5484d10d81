"""Elements without repetitions: a selection, which gradients flow through, and where they occur."""

from typing import Any

import numpy as np

from .._typing import Array
from ..core.declare import composed, discrete
from .casting import stop_gradient
from .origins import derived
from .samples import distinct, sample
from .shapes import as_array
from .taking import take

_REPEATED = np.array([3.0, 1.0, 3.0, 2.0])


@discrete(
    cost=lambda out, x, **params: 0,
    samples=lambda: [
        sample(_REPEATED),
        sample(np.array([[3, 1], [3, 2]])),
        sample(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]), axis=0),
        sample(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]), axis=-1),
        sample(np.zeros(0)),
        sample(np.array(2.0)),
        sample(np.array([True, False, True])),
        sample(np.array([np.nan, 1.0, np.nan])),
        sample(np.array([np.nan, 1.0, np.nan]), equal_nan=False),
    ],
)
def _unique_places(x: Array, /, *, axis: int | None = None, equal_nan: bool = True) -> tuple[Array, Array, Array]:
    """Return where each element first occurs, in their order, the places of all there, and how many there are."""
    _, index, inverse, counts = np.unique(x, True, True, True, axis, equal_nan=equal_nan)
    return index, inverse, counts


@composed(
    kinks="where elements are equal; the first of them has the derivative",
    numpy=np.unique,
    samples=lambda: [
        sample(distinct(5)),
        sample(distinct(2, 3)),
        sample(distinct(2, 3), axis=0),
        sample(distinct(3, 2), axis=-1),
        sample(distinct(2, 3, 2), axis=1),
        sample(distinct(4), return_index=True),
        sample(distinct(4), return_inverse=True),
        sample(distinct(2, 2), return_index=True, return_inverse=True, return_counts=True),
        sample(np.zeros(0)),
        sample(np.array(2.0)),
        sample(_REPEATED, return_counts=True, skip_derivatives="equal elements"),
        sample(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]), axis=0, skip_derivatives="equal slices"),
        sample(np.array([np.nan, 1.0, np.nan]), equal_nan=False, skip_derivatives="differences of NaN"),
        sample(np.array([3, 1, 3])),
        sample(np.array([True, False, True])),
    ],
)
def unique(
    x: Array,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Array:
    """Return the elements without repetitions, in rising order; the gradient of each flows to where it first occurs.

    Args:
        x: any shape.
        return_index: also return where each element first occurs.
        return_inverse: also return, for each element of x, its place in the result.
        return_counts: also return how often each element occurs.
        axis: compare slices along this axis; None takes x flattened.
        equal_nan: whether NaNs count as one element.

    Example:
        >>> nt.unique(np.array([3, 1, 3]), return_counts=True)
        (array([1, 3]), array([1, 2]))
    """
    x = as_array(x)
    places = derived(_unique_places, x, axis=axis, equal_nan=equal_nan)
    found: Any = take(x, places[0], axis=axis)
    flags = (return_index, return_inverse, return_counts)
    # What the user keeps does not hold the graph.
    chosen = [stop_gradient(part) for part, is_wanted in zip(places, flags, strict=True) if is_wanted]
    return (found, *chosen) if chosen else found
