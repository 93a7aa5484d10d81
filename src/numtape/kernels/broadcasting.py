"""NumPy's functions of operands that are repeated along each other's axes, as in ``x[:, None, :] - y``.

NumPy calls its inner loop for each row of the result. Three things make that slow, and are done in another way here,
with the same bits in the same order of memory:

- Rows of two to four numbers, as coordinates are: each coordinate is computed for all points at once.
- Rows of up to 100 numbers, if one operand is a stack of rows that each row of the other one meets: the latter are
  repeated first, and are the result then. So a row is as long as the whole stack.
- Rows of up to 8,192 numbers, if one operand has the same number all along a row: NumPy gathers several rows in a
  buffer, which copies them all. The buffer is made small for these.
"""

import contextvars
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray, Shape

#: Operands that have fewer elements together are left to NumPy.
LEAST_OPERANDS = 512
#: Up to so many numbers are taken one by one, ...
_FEW = 4
#: ... and rows of so many are neither repeated nor gathered.
_LONG = 100
#: Elements of a result that pay for it.
LEAST_RESULT = 1 << 15
#: Up to so many are repeated: what does not fit into a cache takes as long in any way.
_MOST_REPEATED = 1 << 22
#: Elements of the smallest buffer that NumPy can do with.
_SMALL_BUFFER = 16

_ndarray = np.ndarray
_float32, _float64 = np.dtype(np.float32), np.dtype(np.float64)


class _Plan(NamedTuple):
    shape: Shape
    #: How to compute the result: see `_plan`.
    compute: Callable[[Any, NDArray, NDArray, Shape], Any]
    #: Whether that is only for operands that lie in C order.
    wants_order: bool = True


def in_long_rows(function: Callable[..., Any], arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """Return ``function(*arrays, **params)``.

    Example:
        >>> from numtape.kernels.broadcasting import in_long_rows
        >>> points = np.zeros((100, 3))
        >>> in_long_rows(np.subtract, (points[:, None], points), {}).shape
        (100, 100, 3)
    """
    if type(function) is not np.ufunc:
        # What stands around a ufunc may have a version of itself that comes back here.
        return getattr(function, "in_long_rows", function)(*arrays, **params)
    if len(arrays) != 2:
        return function(*arrays, **params)
    a, b = arrays
    if (
        not (type(a) is type(b) is _ndarray)
        or (dtype := a.dtype) is not b.dtype
        or (dtype is not _float64 and dtype is not _float32)
        or (shape := a.shape) == (other := b.shape)
        or (plan := _plan(shape, other)) is None
    ):
        return function(a, b, **params)
    if plan.wants_order and not (a.flags.c_contiguous and b.flags.c_contiguous):
        return function(a, b)
    return plan.compute(function, a, b, plan.shape)


@functools.lru_cache(maxsize=1024)
def _plan(a: Shape, b: Shape) -> _Plan | None:
    """Return how to compute a result of two operands that have these shapes; None is as NumPy does."""
    ndim = max(len(a), len(b))
    a, b = (1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b
    if any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
        return None  # The function says what is wrong.
    shape = tuple(map(max, a, b))
    sizes = math.prod(a), math.prod(b)
    if math.prod(shape) < LEAST_RESULT or min(sizes) < 2 or sum(sizes) < LEAST_OPERANDS:
        return None
    # Lengths from the last axis on, and which operands are repeated. Neighbours along which the same are, NumPy takes
    # for one axis.
    axes = [(n, (i < n, j < n)) for n, i, j in zip(shape[::-1], a[::-1], b[::-1], strict=True) if n > 1]
    repeats = axes[0][1]
    row = math.prod(n for n, _ in itertools.takewhile(lambda axis: axis[1] == repeats, axes))
    is_outer = math.prod(shape) >= 4 * max(sizes)
    if any(repeats):
        return _Plan(shape, _with_small_buffer, wants_order=False) if row >= _LONG else None
    if is_outer and row == shape[-1] <= _FEW:
        return _Plan(shape, _by_columns)
    if row == shape[-1] and _FEW < row < _LONG and shape[-2] > 1 and math.prod(shape) <= _MOST_REPEATED:
        stack = math.prod(shape[-2:])
        if a[-2] == 1 and sizes[1] == stack:
            return _Plan(shape, _by_repeated_first)
        if b[-2] == 1 and sizes[0] == stack:
            return _Plan(shape, _by_repeated_second)
    return None


def _by_columns(function: Any, a: NDArray, b: NDArray, shape: Shape) -> Any:
    out = np.empty(shape, function.resolve_dtypes((a.dtype, b.dtype, None))[-1])
    for i in range(shape[-1]):
        function(a[..., i], b[..., i], out=out[..., i])
    return out


def _by_repeated_first(function: Any, a: NDArray, b: NDArray, shape: Shape) -> Any:
    rows = _repeated(function, a, shape)
    return function(a, b) if rows is None else _owned(function(rows, b.reshape(1, -1), out=rows), shape)


def _by_repeated_second(function: Any, a: NDArray, b: NDArray, shape: Shape) -> Any:
    rows = _repeated(function, b, shape)
    return function(a, b) if rows is None else _owned(function(a.reshape(1, -1), rows, out=rows), shape)


def _repeated(function: Any, x: NDArray, shape: Shape) -> NDArray | None:
    """Return each row of an operand repeated for all rows of a stack; None if the result is of another dtype."""
    if function.resolve_dtypes((x.dtype, x.dtype, None))[-1] is not x.dtype:
        return None
    rows = x.reshape(-1, shape[-1]).repeat(shape[-2], axis=0)
    rows.resize((x.size // shape[-1], shape[-2] * shape[-1]), refcheck=False)
    return rows


def _owned(rows: NDArray, shape: Shape) -> NDArray:
    """Return rows in another shape, in place: a view would not own its memory."""
    rows.resize(shape, refcheck=False)
    return rows


def _with_small_buffer(function: Any, a: NDArray, b: NDArray, shape: Shape) -> Any:
    # In a context of its own, so that no interrupt leaves the buffer small for others.
    return contextvars.copy_context().run(_unbuffered, function, a, b)


def _unbuffered(function: Any, a: NDArray, b: NDArray) -> Any:
    np.setbufsize(_SMALL_BUFFER)
    return function(a, b)
