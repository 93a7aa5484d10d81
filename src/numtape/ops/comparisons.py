"""Comparisons and tests of elements: results are bools, and nothing flows back through them."""

import numpy as np

from .._typing import Array
from ..core.declare import discrete
from .samples import binary_samples, does_not_broadcast


@discrete(np.equal, numpy=np.equal, also=("eq",), samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("equal")))
def equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a == b``, elementwise.

    Example:
        >>> nt.equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([False,  True, False])
    """


@discrete(np.not_equal, numpy=np.not_equal, also=("ne",), samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("not_equal")))
def not_equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a != b``, elementwise.

    Example:
        >>> nt.not_equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([ True, False,  True])
    """


@discrete(np.less, numpy=np.less, also=("lt",), samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("less")))
def less(a: Array, b: Array, /) -> Array:
    """Return whether ``a < b``, elementwise.

    Example:
        >>> nt.less(np.array([1.0, 2.0, 3.0]), 2.0)
        array([ True, False, False])
    """


@discrete(np.less_equal, numpy=np.less_equal, also=("le",), samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("less_equal")))
def less_equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a <= b``, elementwise.

    Example:
        >>> nt.less_equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([ True,  True, False])
    """


@discrete(np.greater, numpy=np.greater, also=("gt",), samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("greater")))
def greater(a: Array, b: Array, /) -> Array:
    """Return whether ``a > b``, elementwise.

    Example:
        >>> nt.greater(np.array([1.0, 2.0, 3.0]), 2.0)
        array([False, False,  True])
    """


@discrete(np.greater_equal, numpy=np.greater_equal, also=("ge",), samples=binary_samples((-2, 2), (-2, 2), does_not_broadcast("greater_equal")))
def greater_equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a >= b``, elementwise.

    Example:
        >>> nt.greater_equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([False,  True,  True])
    """

