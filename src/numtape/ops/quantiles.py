"""Medians and quantiles: elements by rank, interpolated."""

import math
from typing import Any

import numpy as np

from .._typing import Array, Axis
from ..core.binding import as_static
from ..core.declare import composed
from ..dtypes import default_dtype, is_float
from ..errors import ArgumentError, AxisError, OperandError
from .reductions import mean
from .samples import distinct, rejected, sample, values
from .selection import where
from .shapes import as_array, axes_of, broadcast_to, permute
from .sorting import ranked

_KINKS = "where elements of the middle ranks are equal; the derivative follows one of the orders"


def _lanes_last(x: Array, axes: tuple[int, ...]) -> Array:
    """Return `x` with some axes joined into one, which comes last."""
    shape = x.shape
    kept = [i for i in range(len(shape)) if i not in axes]
    if axes != tuple(range(len(kept), len(shape))):
        x = permute(x, (*kept, *axes))
    return x.reshape((*(shape[i] for i in kept), math.prod(shape[i] for i in axes)))


def _quantile(name: str, x: Array, levels: Any, axis: Axis, keepdims: bool) -> Array:
    """Return the quantiles at an array of levels, interpolated between the two elements next to each."""
    x = as_array(x)
    axes = tuple(range(len(x.shape))) if axis is None else axes_of(name, axis, x.shape)
    lanes = _lanes_last(x, axes)
    length = lanes.shape[-1]
    reduced = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else lanes.shape[:-1]
    target = (*levels.shape, *reduced)
    if not length:
        return broadcast_to(mean(lanes, axis=-1).reshape(reduced), shape=target)
    position = levels.ravel() * (length - 1)
    low = np.floor(position).astype(np.intp)
    share = position - low
    # A rank that is met exactly counts as two equal halves, since 0 times an infinite neighbour would be NaN.
    high = np.where(share == 0.0, low, low + 1)
    share = np.where(share == 0.0, 0.5, share)
    ranks = np.unique(np.concatenate([low, high, [length - 1]]))
    found, _ = ranked(lanes, ranks=tuple(int(rank) for rank in ranks), axis=-1)
    dtype = found.dtype if is_float(found.dtype) else default_dtype()
    below, above = (found[..., np.searchsorted(ranks, places)] for places in (low, high))
    out = below * (1.0 - share).astype(dtype) + above * share.astype(dtype)
    # NaN is ranked last, and a single one makes the quantile NaN. Its gradient is NaN there: 0 would hide it.
    largest = found[..., -1:]
    is_number = largest == largest
    out = where(is_number, out, largest * where(is_number, 1.0, np.nan).astype(dtype))
    last = len(out.shape) - 1
    return permute(out, (last, *range(last))).reshape(target)


def _quantile_samples(name: str, low: Any, middle: Any, many: Any, wrong: float, most: int) -> list[Any]:
    return [
        sample(distinct(5), middle),
        sample(distinct(4), low),
        sample(distinct(2, 3), middle, axis=0),
        sample(distinct(2, 3), many, axis=-1),
        sample(distinct(2, 3), many, axis=1, keepdims=True),
        sample(distinct(2, 3, 2), middle, axis=(0, 2)),
        sample(distinct(2, 3, 2), many, axis=(-1, 1), keepdims=True),
        sample(distinct(), middle),
        sample(distinct(1), many),
        sample(np.array([1.0, np.nan, 2.0, 3.0]), middle, skip_derivatives="differences of NaN"),
        rejected(
            AxisError,
            f"{name}: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            middle,
            axis=2,
        ),
        rejected(ArgumentError, f"{name}: q is {wrong}; it lies between 0 and {most}.", np.ones(3), wrong),
    ]


def _levels(name: str, q: Any, most: int) -> Any:
    levels = np.asarray(as_static(name, "q", q))
    if levels.dtype.kind not in "iuf" and not is_float(levels.dtype):
        raise OperandError(f"{name}: q is {q!r}; it must be a number between 0 and {most}, or several.")
    levels = levels.astype(np.float64)
    if not ((levels >= 0.0) & (levels <= most)).all():
        raise ArgumentError(f"{name}: q is {q}; it lies between 0 and {most}.")
    return levels / most


@composed(
    to_float=True,
    rounds_once=True,
    promoted=("x",),
    kinks=_KINKS,
    numpy=np.quantile,
    samples=lambda: _quantile_samples("quantile", 0.2, 0.5, np.array([0, 0.3, 1]).tolist(), 1.5, 1),
)
def quantile(x: Array, q: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Return quantiles over `axis` (all axes by default), with linear interpolation; NaN if an element is NaN.

    Args:
        x: any shape.
        q: a level between 0 and 1, or several; their axes come first in the result. It has no derivative.
        axis: the axes to reduce.
        keepdims: keep the reduced axes with length 1.

    Example:
        >>> nt.quantile(np.array([1.0, 2.0, 3.0, 4.0]), [0.0, 0.5])
        array([1. , 2.5])
    """
    return _quantile("quantile", x, _levels("quantile", q, 1), axis, keepdims)


@composed(
    to_float=True,
    rounds_once=True,
    promoted=("x",),
    kinks=_KINKS,
    numpy=np.percentile,
    samples=lambda: _quantile_samples("percentile", 20, 50, [0, 30, 100], 150, 100),
)
def percentile(x: Array, q: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Return percentiles over `axis` (all axes by default): quantiles with levels between 0 and 100.

    Example:
        >>> nt.percentile(np.array([1.0, 2.0, 3.0, 4.0]), 50)
        array(2.5)
    """
    return _quantile("percentile", x, _levels("percentile", q, 100), axis, keepdims)


@composed(
    to_float=True,
    rounds_once=True,
    kinks=_KINKS,
    numpy=np.median,
    samples=lambda: [
        sample(distinct(5)),
        sample(distinct(4)),
        sample(distinct(2, 3), axis=0),
        sample(distinct(2, 3), axis=-1, keepdims=True),
        sample(distinct(2, 3, 2), axis=(0, 2)),
        sample(distinct(2, 3, 2), axis=(-1, 1), keepdims=True),
        sample(distinct()),
        sample(distinct(1)),
        sample(distinct(3, 1), axis=1),
        sample(values(0, 2), axis=1),
        sample(np.array([1.0, np.nan, 2.0]), skip_derivatives="differences of NaN"),
        sample(np.array([1.0, np.inf, np.inf]), skip_derivatives="differences of inf"),
        rejected(
            AxisError,
            "median: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            axis=2,
        ),
    ],
)
def median(x: Array, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Return the median over `axis` (all axes by default): of an even number of elements, the mean of the middle two.

    NaN if an element is NaN. As in NumPy; PyTorch's median takes the lower of the two.

    Example:
        >>> nt.median(np.array([1.0, 4.0, 2.0, 8.0]))
        array(3.)
    """
    return _quantile("median", x, np.array(0.5), axis, keepdims)
