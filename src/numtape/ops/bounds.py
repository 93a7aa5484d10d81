"""The larger, the smaller, and what is kept between bounds."""

from typing import Any

import numpy as np

from .._typing import Array
from ..core.declare import elementwise, face_of
from ..errors import OperandError, ShapeError
from .comparisons import equal, greater, less, less_equal, logical_and, logical_or
from .samples import SHAPES, binary_samples, does_not_broadcast, rejected, sample, values
from .selection import where


def _share(g: Array, is_taken: Array, x: Array, other: Array) -> Array:
    """Return g where x is taken or NaN, half of it where both are equal and 0 elsewhere."""
    return where(logical_or(is_taken, x != x), g, where(equal(x, other), 0.5 * g, 0.0))


_TIES = sample(np.array([1.0, 2.0, np.nan]), np.array([1.0, 3.0, 0.0]), skip_derivatives="ties and NaN")


@elementwise(
    np.maximum,
    partials={
        "a": lambda g, a, b: _share(g, greater(a, b), a, b),
        "b": lambda g, a, b: _share(g, greater(b, a), b, a),
    },
    kinks="where a = b: each gets half of the derivative",
    numpy=np.maximum,
    samples=lambda: binary_samples(
        (-2, 2), (-2, 2), _TIES, sample(values(4, avoid=(0,)), 0.0), does_not_broadcast("maximum")
    ),
)
def maximum(a: Array, b: Array, /) -> Array:
    """Return the larger of a and b, elementwise; NaN if one is NaN.

    Where they are equal, each gets half of the derivative.

    Example:
        >>> nt.maximum(np.array([-1.0, 2.0]), 0.0)
        array([0., 2.])
    """


@elementwise(
    np.minimum,
    partials={
        "a": lambda g, a, b: _share(g, less(a, b), a, b),
        "b": lambda g, a, b: _share(g, less(b, a), b, a),
    },
    kinks="where a = b: each gets half of the derivative",
    numpy=np.minimum,
    samples=lambda: binary_samples(
        (-2, 2), (-2, 2), _TIES, sample(values(4, avoid=(0,)), 0.0), does_not_broadcast("minimum")
    ),
)
def minimum(a: Array, b: Array, /) -> Array:
    """Return the smaller of a and b, elementwise; NaN if one is NaN.

    Where they are equal, each gets half of the derivative.

    Example:
        >>> nt.minimum(np.array([-1.0, 2.0]), 0.0)
        array([-1.,  0.])
    """


def _clip_x(g: Array, x: Array, lo: Array, hi: Array) -> Array:
    if lo is None and hi is None:
        return g
    if lo is None:
        is_cut = greater(x, hi)
    elif hi is None:
        is_cut = less(x, lo)
    else:
        is_cut = logical_or(less(x, lo), greater(x, hi))
    return where(is_cut, 0.0, g)


def _clip_lo(g: Array, x: Array, lo: Array, hi: Array) -> Array:
    is_lo = less(x, lo)
    # If the bounds are the wrong way round, the result is hi.
    return where(is_lo if hi is None else logical_and(is_lo, less_equal(lo, hi)), g, 0.0)


def _clip_hi(g: Array, x: Array, lo: Array, hi: Array) -> Array:
    is_hi = greater(x, hi)
    return where(is_hi if lo is None else logical_or(is_hi, greater(lo, hi)), g, 0.0)


def _clip_reference(x: Array, lo: Array = None, hi: Array = None) -> Array:
    raised = x if lo is None else np.maximum(x, lo)
    return raised if hi is None else np.minimum(raised, hi)


@elementwise(
    partials={"x": _clip_x, "lo": _clip_lo, "hi": _clip_hi},
    flops=2,
    kinks="at the bounds, where the whole derivative passes to x",
    reference=_clip_reference,
    numpy=np.clip,
    also=("clamp",),
    samples=lambda: [
        *(sample(values(*shape, avoid=(-1, 1)), -1.0, 1.0) for shape in SHAPES),
        sample(values(5, avoid=(0,)), 0.0),
        sample(values(5, avoid=(0,)), None, 0),
        sample(values(3)),
        sample(values(2, 3), values(3, low=-1, high=-0.5, seed=1), values(2, 1, low=0.2, high=1, seed=2)),
        sample(values(4), values(4, seed=1)),
        sample(values(4), None, values(4, seed=1)),
        sample(values(4), values(4, low=1, high=2, seed=1), values(4, low=-1, high=0, seed=2)),
        sample(np.array([-1.0, 0.0, 1.0]), -1.0, 1.0, skip_derivatives="at the bounds"),
        sample(np.array([1, 5, 9]), 2, 6),
        rejected(
            ShapeError,
            "clip: x has shape (2, 3) and lo has shape (4,) and hi has shape (); the shapes do not broadcast: from the "
            "last axis on, lengths must be equal or 1.",
            np.ones((2, 3)),
            np.ones(4),
            1.0,
        ),
    ],
)
def _clip(x: Array, lo: Array = None, hi: Array = None, /) -> Array:
    """Return x, but `lo` where it is below `lo` and `hi` where it is above `hi`, elementwise."""
    if type(x) is not np.ndarray:
        # NumPy would give a number its own dtype, but between arrays it has theirs.
        x = np.asarray(x, np.result_type(x, *(bound for bound in (lo, hi) if bound is not None)))
    return np.clip(x, lo, hi)


@face_of(_clip)
def clip(
    x: Array,
    min: Array = None,
    max: Array = None,
    *,
    a_min: Array = None,
    a_max: Array = None,
    out: Any = None,
) -> Array:
    """Return `x`, but `min` where it is below `min` and `max` where it is above `max`, elementwise.

    At a bound itself the derivative passes to `x`. If `min` is above `max`, the result is `max`.

    Args:
        x: any shape.
        min: the lower bound, of a shape that broadcasts; None for no bound. Differentiable.
        max: the upper bound, likewise.
        a_min: NumPy's older name of `min`.
        a_max: NumPy's older name of `max`.
        out: a tensor or array to write the result to.

    Example:
        >>> nt.clip(np.array([-2.0, 0.5, 2.0]), -1.0, 1.0)
        array([-1. ,  0.5,  1. ])
    """
    if a_min is not None or a_max is not None:
        if (min is not None and a_min is not None) or (max is not None and a_max is not None):
            raise OperandError("clip: a bound is given twice, as min or max and as a_min or a_max; give it once.")
        min, max = a_min if min is None else min, a_max if max is None else max
    return _clip(x, min, max, out=out)  # type: ignore[call-arg]
