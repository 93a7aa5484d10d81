"""Norms of vectors and matrices."""

import functools
import math
from typing import Any

import numpy as np

from .._typing import Array, Axis, NDArray
from ..core import batching
from ..core.binding import as_kind
from ..core.composing import rounded_once
from ..core.declare import composed, differentiable
from ..core.facts import Structure
from ..dtypes import float64
from ..errors import ArgumentError, OperandError, ShapeError
from ..kernels.half_sums import HALVES, rounded
from ..kernels.sums import add_reduce
from .arithmetic import abs, sign
from .overflowing import overflows, scaled_down
from .reductions import axis_out_of_bounds, max, min, positive_axes, restore_axes, share_among_ties, sum
from .samples import rejected, sample, values
from .searches import any
from .selection import where
from .shapes import permute, reshape
from .spectra import svdvals

_maximum_reduce: Any = np.maximum.reduce
_minimum_reduce: Any = np.minimum.reduce


def _slope(weight: Array, x: Array, out: Array, ord: float, axis: Axis) -> Array:
    """Return `weight` times the derivative of the norm `out` (of kept axes) by x; 0 where the norm is 0."""
    if ord == 0:
        return np.zeros(x.shape, x.dtype)
    if ord == 1:
        return weight * sign(x)
    if math.isinf(ord):
        return share_among_ties(weight, abs(x), out, axis) * sign(x)
    if overflows(out):
        (small,) = scaled_down(x)
        is_large = out == np.inf
        out = where(is_large, vector_norm(small, ord=ord, axis=axis, keepdims=True), out)
        x = where(is_large, small, x)
    is_zero = out < np.finfo(out.dtype).tiny  # Or so small that nothing can be divided by it.
    safe = where(is_zero, 1.0, out)
    if ord == 2:
        return x * where(is_zero, 0.0, weight / safe)
    # sign(x) (|x| / out) ** (ord - 1); at x = 0 it is taken as 0 also for powers below 1.
    is_flat = x == 0.0
    ratio = where(is_flat, 1.0, abs(x) / safe)
    return where(is_zero, 0.0, weight) * where(is_flat, 0.0, sign(x) * ratio ** (ord - 1))


def _vector_norm_vjp(g: Array, x: Array, out: Array, ord: float, axis: Axis, keepdims: bool) -> Array:
    g, out = (restore_axes(y, x.shape, axis, keepdims) for y in (g, out))
    return _slope(g, x, out, ord, axis)


def _vector_norm_jvp(t: Array, x: Array, out: Array, ord: float, axis: Axis, keepdims: bool) -> Array:
    out = restore_axes(out, x.shape, axis, keepdims)
    return sum(_slope(t, x, out, ord, axis), axis=axis, keepdims=keepdims)


def _scaled_norm(x: NDArray, ord: float, axis: Axis, keepdims: bool) -> NDArray:
    """Return a norm whose powers, of numbers over the one that counts most, stay within the range."""
    size = np.absolute(x)
    if ord > 0:
        most = _maximum_reduce(size, axis=axis, keepdims=True, initial=0.0)
    else:
        most = _minimum_reduce(size, axis=axis, keepdims=True, initial=np.inf)
    scale = np.where(np.isfinite(most) & (most > 0.0), most, 1.0)
    out = np.asarray(add_reduce((size / scale) ** float(ord), axis, keepdims) ** (1.0 / float(ord)))
    return out * scale.reshape(out.shape)


def _euclidean(x: NDArray, axis: Axis, keepdims: bool) -> Any:
    with np.errstate(over="ignore", under="ignore"):
        if axis is None and not keepdims:
            flat = x.ravel(order="K")
            square = flat.dot(flat)
            least = most = square
        else:
            square = add_reduce(np.square(x), axis, keepdims)
            least, most = square.min(initial=np.inf), square.max(initial=0.0)
    # Where squares vanish or overflow the norm itself need not.
    is_in_range = least > _LEAST_SQUARE[x.dtype] and most < np.inf
    return np.sqrt(square) if is_in_range else _scaled_norm(x, 2, axis, keepdims)


#: Below this, squares of numbers that count may have lost digits.
_LEAST_SQUARE = {np.dtype(t): float(np.finfo(t).tiny / np.finfo(t).eps) for t in (np.float32, np.float64)}


def _nonzero_values(*shape: int) -> NDArray:
    return values(*shape, avoid=(0,))


@differentiable(
    vjps={"x": _vector_norm_vjp},
    jvps={"x": _vector_norm_jvp},
    cost=lambda out, x, **params: 2 * math.prod(x),
    structure=Structure.LANES,
    batch=batching.along_axis,
    precision="widen",
    native_half=True,
    to_float=True,
    kinks="at 0, where the derivative is taken as 0",
    numpy=np.linalg.vector_norm,
    samples=lambda: [
        sample(_nonzero_values(5)),
        sample(_nonzero_values(2, 3)),
        sample(_nonzero_values(2, 3), axis=0),
        sample(_nonzero_values(2, 3), axis=-1, keepdims=True),
        sample(_nonzero_values(2, 3, 4), axis=(0, 2)),
        sample(_nonzero_values(2, 3), ord=1, axis=1),
        sample(_nonzero_values(2, 3), ord=np.inf, axis=1),
        sample(_nonzero_values(2, 3), ord=-np.inf, axis=0, keepdims=True),
        sample(_nonzero_values(2, 3), ord=0, axis=0),
        sample(_nonzero_values(2, 3), ord=3, axis=(0, 1)),
        sample(_nonzero_values(2, 3), ord=2.5, axis=1, keepdims=True),
        sample(_nonzero_values(4), ord=0.5),
        sample(_nonzero_values(4), ord=-1),
        sample(np.array([[0.0, 1.0], [2.0, -1.0]]), ord=4, axis=1),
        sample(np.array([[0.0, 1.0], [2.0, -1.0]]), axis=1),
        sample(np.zeros((2, 3)), axis=1, skip_derivatives="the norm is 0"),
        sample(np.zeros((2, 3)), ord=3, axis=1, skip_derivatives="the norm is 0"),
        sample(_nonzero_values()),
        sample(_nonzero_values(1)),
        sample(values(2, 0), axis=1, skip_derivatives="the norm is 0"),
        axis_out_of_bounds("vector_norm"),
        rejected(
            OperandError,
            "vector_norm: ord is 'fro'; it must be a number.",
            np.ones(3),
            ord="fro",
        ),
    ],
)
def vector_norm(x: Array, /, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the norm ``sum(abs(x) ** ord) ** (1 / ord)`` over `axis` (all axes by default, taken as one vector).

    That of half numbers is computed in float64 and rounded once.

    Args:
        x: any shape.
        ord: the power; inf for the largest and -inf for the smallest absolute value, 0 for the number of elements
            that are not zero (its derivative is 0).
        axis: the axes that make up a vector.
        keepdims: keep the reduced axes with length 1.

    Example:
        >>> nt.vector_norm(np.array([[3.0, -4.0], [5.0, 12.0]]), axis=1)
        array([ 5., 13.])
    """
    if not isinstance(ord, int | float | np.number):
        raise ArgumentError(f"vector_norm: ord is {ord!r}; it must be a number, inf or -inf.")
    if x.dtype in HALVES:
        wide = x.astype(np.float64)
        is_plain = ord in (0, 1, 2) or math.isinf(ord)
        norm_of = vector_norm if is_plain else _scaled_norm
        return rounded(np.asarray(norm_of(wide, ord=ord, axis=axis, keepdims=keepdims)), x.dtype)
    if ord == 2:
        return _euclidean(x, axis, keepdims)
    if ord == 0:
        return add_reduce((x != 0).astype(x.dtype), axis, keepdims)
    size = np.absolute(x)
    if ord == 1:
        return add_reduce(size, axis, keepdims)
    if math.isinf(ord):
        return (_maximum_reduce if ord > 0 else _minimum_reduce)(size, axis=axis, keepdims=keepdims)
    return add_reduce(size ** float(ord), axis, keepdims) ** (1.0 / float(ord))


@functools.partial(rounded_once, wide=float64)
def _matrix_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord in (2, -2, "nuc"):
        ndim = len(np.shape(x))
        rows, columns = positive_axes(axes, ndim)
        if ord != "nuc" and 0 in (np.shape(x)[rows], np.shape(x)[columns]):
            raise ShapeError(f"norm: x has shape {np.shape(x)}; an empty matrix has no singular values to choose from.")
        others = tuple(i for i in range(ndim) if i not in (rows, columns))
        matrices = permute(x, (*others, rows, columns))
        # The norm of zeros is a minimum, although singular vectors have a direction there too.
        matrices = where(any(matrices != 0.0, axis=(-2, -1), keepdims=True), matrices, 0.0)
        s = svdvals(matrices)
        out = sum(s, axis=-1) if ord == "nuc" else s[..., 0 if ord == 2 else -1]
        kept = tuple(1 if i in (rows, columns) else n for i, n in enumerate(np.shape(x)))
        return reshape(out, kept) if keepdims else out
    if ord not in (1, -1, np.inf, -np.inf):
        raise ArgumentError(f"norm: ord is {ord!r}; norms of matrices have 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.")
    rows, columns = positive_axes(axes, len(np.shape(x)))
    # 1 sums along columns and compares these; inf sums along rows.
    summed, compared = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = sum(abs(x), axis=summed, keepdims=True)
    out = (max if ord > 0 else min)(sums, axis=compared, keepdims=True)
    return out if keepdims else out.reshape(tuple(n for i, n in enumerate(np.shape(x)) if i not in (rows, columns)))


@composed(
    precision="widen",
    kinks="at 0, where the derivative is taken as 0",
    numpy=np.linalg.norm,
    samples=lambda: [
        sample(_nonzero_values(5)),
        sample(_nonzero_values(2, 3)),
        sample(_nonzero_values(2, 3, 2)),
        sample(_nonzero_values()),
        sample(_nonzero_values(4), 1),
        sample(_nonzero_values(4), np.inf),
        sample(_nonzero_values(4), -np.inf),
        sample(_nonzero_values(4), 0),
        sample(_nonzero_values(4), 3),
        sample(_nonzero_values(2, 3), axis=0),
        sample(_nonzero_values(2, 3), 3, -1, keepdims=True),
        sample(_nonzero_values(2, 3), "fro"),
        sample(_nonzero_values(2, 3, 4), None, (0, 2)),
        sample(_nonzero_values(2, 3), 1),
        sample(_nonzero_values(2, 3), -np.inf),
        sample(_nonzero_values(2, 3, 4), np.inf, (-1, 0)),
        sample(_nonzero_values(2, 3, 4), -1, (1, 2), keepdims=True),
        sample(np.zeros(3), skip_derivatives="the norm is 0"),
        sample(_nonzero_values(2, 3), 2),
        sample(_nonzero_values(3, 2), -2),
        sample(_nonzero_values(2, 3), "nuc", keepdims=True),
        sample(_nonzero_values(2, 3, 4), 2, (0, 2)),
        sample(_nonzero_values(2, 3, 4), -2, (-1, 1), keepdims=True),
        sample(_nonzero_values(2, 3, 4), "nuc", (1, 0)),
        rejected(
            ArgumentError,
            "norm: ord is 3; norms of matrices have 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.",
            np.ones((2, 3)),
            3,
        ),
        rejected(
            ArgumentError,
            "norm: ord is 1 and x has shape (2, 2, 2); say by axis which one axis (vectors) or two axes (matrices) "
            "it is for.",
            np.ones((2, 2, 2)),
            1,
        ),
        rejected(
            ArgumentError,
            "norm: axis is (0, 1, 2); it is one axis (vectors) or two axes (matrices). vector_norm takes any number.",
            np.ones((2, 2, 2)),
            axis=(0, 1, 2),
        ),
    ],
)
def norm(x: Array, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the norm of a vector or matrix, or of many, as NumPy's ``linalg.norm`` does.

    Args:
        x: any shape.
        ord: for vectors a number, inf, -inf, or None for 2; for matrices 'fro' (or None), 1, -1,
            inf, -inf, or of their singular values the largest (2), the smallest (-2) or the sum ('nuc').
        axis: one axis for vectors, two for matrices. None takes x, of any shape, as one vector if `ord` is None;
            otherwise x is a vector or a matrix.
        keepdims: keep the reduced axes with length 1.

    Example:
        >>> nt.norm(np.array([[3.0, 4.0], [6.0, 8.0]]), axis=1)
        array([ 5., 10.])
    """
    ndim = len(np.shape(x))
    if ord is not None and not isinstance(ord, str):
        ord = as_kind("norm", "ord", ord, float)
    if axis is None:
        if ord is None:
            return vector_norm(x, keepdims=keepdims)
        if ndim not in (1, 2):
            raise ArgumentError(
                f"norm: ord is {ord!r} and x has shape {np.shape(x)}; say by axis which one axis (vectors) or two "
                "axes (matrices) it is for."
            )
        axis = tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if len(axes) == 1:
        return vector_norm(x, ord=2 if ord is None else ord, axis=axes[0], keepdims=keepdims)
    if len(axes) != 2:
        raise ArgumentError(
            f"norm: axis is {axis}; it is one axis (vectors) or two axes (matrices). vector_norm takes any number."
        )
    if ord in (None, "fro", "f"):
        return vector_norm(x, axis=axes, keepdims=keepdims)
    return _matrix_norm(x, ord, axes, keepdims)
