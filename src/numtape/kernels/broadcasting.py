"""Elementwise functions of operands that are repeated along each other's axes, as in ``x[:, None, :] - y``.

NumPy calls its inner loop for each row of the result. Two things make that slow:

- Rows are short where points have few coordinates. So the result is laid out with its longest axis last in memory; what
  is computed from it follows that order by itself.
- Rows of up to 8,192 elements are gathered in a buffer, several at a time, if one operand has the same number all along
  a row: all are copied. So the buffer is made small for these.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray, Shape

#: Operands that have fewer elements together are computed with as NumPy does.
LEAST_OPERANDS = 512
#: Rows of fewer elements are short, ...
_SHORT = 32
#: ... an axis that is longer by this factor is worth reordering operands for, ...
_LONGER = 4
#: ... of which each must have fewer elements than the result by this one.
_SMALLER = 4
#: Elements of a result that pay for copies of the operands, ...
_LEAST_ORDERED = 1 << 13
#: ... and those that pay for setting the size of the buffer, if rows have at least so many.
_LEAST_UNBUFFERED, _LONG = 1 << 15, 100
#: Elements of the smallest buffer that NumPy can do with.
_SMALL_BUFFER = 16

_ndarray = np.ndarray


class _Plan(NamedTuple):
    #: The axes of the result in the order in which they are laid out, or None for that of NumPy.
    order: tuple[int, ...] | None
    is_unbuffered: bool


def in_long_rows(function: Callable[..., Any], arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """Return what a function of arrays and numbers gives, elementwise.

    Example:
        >>> from numtape.kernels.broadcasting import in_long_rows
        >>> points = np.ones((100, 3))
        >>> in_long_rows(np.subtract, (points[:, None], points), {}).strides
        (2400, 8, 800)
    """
    shapes = [x.shape for x in arrays if type(x) is _ndarray]
    plan = None if len(shapes) == 2 and shapes[0] == shapes[1] else _plan(tuple(shapes))
    if plan is None:
        return function(*arrays, **params)
    order = plan.order
    if order is not None:
        arrays = [_laid_out(x, order) if type(x) is _ndarray else x for x in arrays]
    out = _unbuffered(function, arrays, params) if plan.is_unbuffered else function(*arrays, **params)
    if order is None:
        return out
    back = np.argsort(order)
    return tuple(x.transpose(back) for x in out) if type(out) is tuple else out.transpose(back)


@functools.lru_cache(maxsize=1024)
def _plan(shapes: tuple[Shape, ...]) -> _Plan | None:
    """Return how to compute a result of operands with these shapes; None is as NumPy does."""
    sizes = [math.prod(shape) for shape in shapes]
    shapes = tuple(shape for shape, size in zip(shapes, sizes, strict=True) if size != 1)
    if len(set(shapes)) < 2 or sum(sizes) < LEAST_OPERANDS:
        return None
    ndim = max(map(len, shapes))
    full = [(1,) * (ndim - len(shape)) + shape for shape in shapes]
    lengths = [set(axis) - {1} for axis in zip(*full, strict=True)]
    if any(len(different) > 1 for different in lengths):
        return None  # The function says what is wrong.
    shape = [max(different, default=1) for different in lengths]
    size = math.prod(shape)
    # Which operands are repeated along each axis. Neighbours along which the same are, NumPy takes for one axis.
    repeats = [tuple(x[axis] != shape[axis] for x in full) for axis in range(ndim)]
    inner, row = ndim - 1, 1
    for axis in reversed(range(ndim)):
        if repeats[axis] != repeats[inner]:
            break
        row *= shape[axis]
    order = None
    longest = max(range(ndim), key=lambda axis: (shape[axis], axis))
    is_short = row < _SHORT and row * _LONGER <= shape[longest]
    if ndim > 2 and is_short and size >= max(_LEAST_ORDERED, _SMALLER * max(sizes)):
        order = (*(axis for axis in range(ndim) if axis != longest), longest)
        inner, row = longest, shape[longest]
    is_unbuffered = any(repeats[inner]) and row >= _LONG and size >= _LEAST_UNBUFFERED
    return _Plan(order, is_unbuffered) if order is not None or is_unbuffered else None


def _laid_out(x: NDArray, order: tuple[int, ...]) -> NDArray:
    whole = x.reshape((1,) * (len(order) - x.ndim) + x.shape)
    return np.ascontiguousarray(whole.transpose(order))


def _unbuffered(function: Callable[..., Any], arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    before = np.getbufsize()
    try:
        np.setbufsize(_SMALL_BUFFER)
        return function(*arrays, **params)
    finally:
        np.setbufsize(before)
