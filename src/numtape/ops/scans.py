"""Running sums and products along an axis."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import composed, differentiable, linear
from ..core.facts import Structure
from ..core.op import Op
from ..errors import ArgumentError, AxisError, ShapeError
from ..kernels.sums import FEW
from .samples import rejected, sample, values
from .shapes import shape_of


def _along(axis: int, ndim: int, part: slice) -> tuple[slice, ...]:
    """Return the index that takes `part` of one axis and all of the others."""
    return (slice(None),) * (axis % ndim) + (part,)


_BACKWARD = slice(None, None, -1)


def _scan_cost(out: Shape, *shapes: Shape, **params: Any) -> int:
    return math.prod(out)


def _accumulate(ufunc: np.ufunc, x: Any, axis: int | None, reverse: bool) -> NDArray:
    x = np.asarray(x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    if reverse and x.ndim:
        backward = _along(axis, x.ndim, _BACKWARD)
        return _accumulate(ufunc, x[backward], axis, False)[backward]
    if ufunc is np.add and x.dtype == np.float32 and x.ndim and x.shape[axis] > FEW:
        # One by one, the errors of float32 would add up.
        return ufunc.accumulate(x, axis, dtype=np.float64).astype(np.float32)
    return ufunc.accumulate(x, axis)


def _scan_samples(name: str) -> list[Any]:
    zeros = values(3, 4, avoid=(0,))
    zeros[0, 1] = zeros[1, 2] = zeros[1, 0] = zeros[2, 1] = zeros[2, 2] = zeros[2, 3] = 0.0
    return [
        sample(values(5)),
        sample(values(2, 3)),
        sample(values(2, 3), axis=0),
        sample(values(2, 3), axis=-1),
        sample(values(2, 3, 4), axis=1, reverse=True),
        sample(values(2, 3), reverse=True),
        sample(values()),
        sample(values(1)),
        sample(values(0)),
        sample(values(2, 0), axis=1),
        sample(values(3, 1), axis=1),
        sample(zeros, axis=1),
        sample(zeros, axis=0, reverse=True),
        rejected(
            AxisError,
            f"{name}: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            axis=2,
        ),
    ]


def _reference(function: Any) -> Any:
    def scan(x: Any, axis: int | None = None, reverse: bool = False) -> Any:
        if not reverse:
            return function(x, axis)
        return np.flip(function(np.flip(x, axis), axis), 0 if axis is None else axis)

    return scan


def _cumsum_transpose(g: Array, x_shape: Shape, axis: int | None, reverse: bool) -> Array:
    if axis is None:
        return cumsum(g, axis=0, reverse=not reverse).reshape(x_shape)
    return cumsum(g, axis=axis, reverse=not reverse)


@linear(
    transposes={"x": _cumsum_transpose},
    cost=_scan_cost,
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    precision="widen",
    numpy=(np.cumsum, np.add.accumulate),
    reference=_reference(np.cumsum),
    samples=lambda: _scan_samples("cumsum"),
)
def cumsum(x: Array, /, axis: int | None = None, *, reverse: bool = False) -> Array:
    """Return the running sum along `axis`.

    Args:
        x: any shape.
        axis: the axis to sum along; None flattens x first.
        reverse: sum from the end towards the start.

    Example:
        >>> nt.cumsum(np.array([1.0, 2.0, 3.0]))
        array([1., 3., 6.])
    """
    return _accumulate(np.add, x, axis, reverse)


def _only_axis(name: str, x: Array, axis: int | None) -> int | None:
    """Return the axis of a scan that flattens nothing, so that it must be given where there are several."""
    shape = shape_of(x)
    if axis is None and len(shape) > 1:
        raise ArgumentError(f"{name}: x has shape {shape}; with more than one axis, axis must be given.")
    return axis


def _cumulative_samples(name: str) -> list[Any]:
    return [
        sample(values(4)),
        sample(values(4), axis=0),
        sample(values(2, 3), axis=0),
        sample(values(2, 3), axis=-1),
        sample(values(2, 3, 2), axis=1),
        sample(values(1)),
        sample(values(0)),
        sample(values(2, 0), axis=1),
        rejected(
            ArgumentError,
            f"{name}: x has shape (2, 3); with more than one axis, axis must be given.",
            np.ones((2, 3)),
        ),
    ]


@composed(
    numpy=np.cumulative_sum,
    samples=lambda: _cumulative_samples("cumulative_sum"),
)
def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    """Return the running sum along `axis`, which may be left out of vectors only.

    Example:
        >>> nt.cumulative_sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1)
        array([[1., 3.],
               [3., 7.]])
    """
    return cumsum(x, axis=_only_axis("cumulative_sum", x, axis))


def _shift_samples() -> list[Any]:
    return [
        sample(values(4), axis=0),
        sample(values(4), axis=0, reverse=True),
        sample(values(4), axis=0, fill=1.0),
        sample(values(2, 3), axis=-1),
        sample(values(2, 3), axis=0, reverse=True, fill=1.0),
        sample(values(2, 3, 2), axis=1),
        sample(values(1), axis=0, fill=1.0),
        sample(values(0), axis=0),
        sample(values(2, 0), axis=1, reverse=True),
    ]


def _shift_reference(x: Any, axis: int, reverse: bool = False, fill: float = 0.0) -> Any:
    rolled = np.moveaxis(np.roll(x, -1 if reverse else 1, axis), axis, 0)
    if len(rolled):
        rolled[-1 if reverse else 0] = fill
    return np.moveaxis(rolled, 0, axis)


def _shift_back(g: Array, axis: int, reverse: bool) -> Array:
    return _shift(g, axis=axis, reverse=not reverse)


def _shift_tangent(t: Array, axis: int, reverse: bool) -> Array:
    return _shift(t, axis=axis, reverse=reverse)


@differentiable(
    vjps={"x": _shift_back},
    jvps={"x": _shift_tangent},
    cost=lambda out, x, **params: 0,
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    native_half=True,
    reference=_shift_reference,
    samples=_shift_samples,
)
def _shift(x: Array, /, *, axis: int = -1, reverse: bool = False, fill: float = 0.0) -> Array:
    """Return `x` moved by one along `axis`, with `fill` in the place that becomes free."""
    out = np.empty(x.shape, x.dtype)
    head, tail = slice(None, -1), slice(1, None)
    target, source, free = (head, tail, slice(-1, None)) if reverse else (tail, head, slice(0, 1))
    out[_along(axis, x.ndim, target)] = x[_along(axis, x.ndim, source)]
    out[_along(axis, x.ndim, free)] = fill
    return out


#: Up to this length, or from this many lanes on, one step after another is faster than pairs.
_SHORT = 16
_MANY_LANES = 512


def _recur(x: NDArray, a: NDArray) -> NDArray:
    """Run the recurrence along the first axis, in a number of NumPy calls that grows with the logarithm of it."""
    out = np.empty_like(x)
    length = len(x)
    if length <= _SHORT or x[0].size >= _MANY_LANES:
        out[:1] = x[:1]
        for k in range(1, length):
            np.multiply(a[k], out[k - 1], out=out[k : k + 1])
            out[k] += x[k]
        return out
    # Two steps are one step of the same form: x1 + a1 (x0 + a0 y) = (x1 + a1 x0) + (a1 a0) y.
    pairs = length // 2
    later = a[1::2]
    odd = _recur(x[1::2] + later * x[0 : 2 * pairs : 2], later * a[0 : 2 * pairs : 2])
    out[1::2] = odd
    out[0] = x[0]
    out[2::2] = x[2::2] + a[2::2] * odd[: len(out[2::2])]
    return out


def _recurrence_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, a = operands
    size = (x if batched[0] else a).shape[0]
    # Adding zeros of the full shape gives the operand that lacks it the batch axis.
    x, a = (
        y if is_batched else y + np.zeros((size, *y.shape), y.dtype)
        for y, is_batched in zip((x, a), batched, strict=True)
    )
    return recurrence(x, a, **{**params, "axis": params["axis"] % (len(x.shape) - 1) + 1})


def _recurrence_vjp(g: Array, a: Array, out: Array, axis: int, reverse: bool) -> tuple[Array, Array]:
    # The cotangent of x obeys the same recurrence from the other end: s_k = g_k + a_{k+1} s_{k+1}.
    s = recurrence(g, _shift(a, axis=axis, reverse=not reverse), axis=axis, reverse=not reverse)
    return s, s * _shift(out, axis=axis, reverse=reverse)


def _recurrence_by_x(t: Array, a: Array, axis: int, reverse: bool) -> Array:
    return recurrence(t, a, axis=axis, reverse=reverse)


def _recurrence_by_a(t: Array, a: Array, out: Array, axis: int, reverse: bool) -> Array:
    return recurrence(t * _shift(out, axis=axis, reverse=reverse), a, axis=axis, reverse=reverse)


def _recurrence_reference(x: Any, a: Any, axis: int = -1, reverse: bool = False) -> Any:
    x, a = np.moveaxis(x, axis, 0), np.moveaxis(a, axis, 0)
    out, state = np.empty_like(x), np.zeros(x.shape[1:])
    for k in reversed(range(len(x))) if reverse else range(len(x)):
        state = x[k] + a[k] * state
        out[k] = state
    return np.moveaxis(out, 0, axis)


@differentiable(
    vjp=_recurrence_vjp,
    jvps={"x": _recurrence_by_x, "a": _recurrence_by_a},
    cost=lambda out, *shapes, **params: 2 * math.prod(out),
    structure=Structure.LANES,
    batch=_recurrence_batch,
    precision="widen",
    linear=frozenset(("x",)),
    reference=_recurrence_reference,
    samples=lambda: [
        sample(values(4), values(4, seed=1)),
        sample(values(4), values(4, seed=1), reverse=True),
        sample(values(2, 3), values(2, 3, seed=1), axis=0),
        sample(values(2, 3), values(2, 3, seed=1), axis=-1, reverse=True),
        sample(values(2, 3, 2), values(2, 3, 2, seed=1), axis=1),
        sample(values(3), np.zeros(3)),
        sample(values(1), values(1, seed=1)),
        sample(values(0), values(0)),
        sample(values(39, low=-1, high=1), values(39, low=-1, high=1, seed=1)),
        sample(values(20, 2, low=-1, high=1), values(20, 2, low=-1, high=1, seed=1), axis=0, reverse=True),
        rejected(
            ShapeError,
            "recurrence: x has shape (3,) and a has shape (2,); the shapes must be the same.",
            np.ones(3),
            np.ones(2),
        ),
    ],
)
def recurrence(x: Array, a: Array, /, *, axis: int = -1, reverse: bool = False) -> Array:
    """Return the linear recurrence ``out[k] = x[k] + a[k] * out[k - 1]`` along `axis`.

    Running averages and discounted sums are of this form, and so is the derivative of a running product.

    Args:
        x: what is added at each step.
        a: the factors, of the same shape; the first has no effect.
        axis: the axis along which k counts.
        reverse: start at the end, so that ``out[k] = x[k] + a[k] * out[k + 1]``.

    Example:
        >>> nt.recurrence(np.array([1.0, 1.0, 1.0]), np.array([0.5, 0.5, 0.5]))
        array([1.  , 1.5 , 1.75])
    """
    if np.shape(x) != np.shape(a):
        raise ShapeError(
            f"recurrence: x has shape {np.shape(x)} and a has shape {np.shape(a)}; the shapes must be the same."
        )
    x, a = np.moveaxis(x, axis, 0), np.moveaxis(a, axis, 0)
    out = _recur(x[::-1], a[::-1])[::-1] if reverse else _recur(x, a)
    return np.moveaxis(out, 0, axis)


def exclusive_cumprod(x: Array, axis: int, reverse: bool = False) -> Array:
    """Return for each element the product of those before it (after it if `reverse`) along `axis`."""
    return _shift(cumprod(x, axis=axis, reverse=reverse), axis=axis, reverse=reverse, fill=1.0)


def _cumprod_vjp(g: Array, x: Array, out: Array, axis: int | None, reverse: bool) -> Array:
    # With e_i the product of those before i: dL/dx_i = e_i r_i, r_i = g_i + x_{i+1} r_{i+1}. Nothing is divided by x.
    shape = x.shape
    if axis is None:
        x, axis = x.reshape((-1,)), 0
    before = _shift(out, axis=axis, reverse=reverse, fill=1.0)
    after = recurrence(g, _shift(x, axis=axis, reverse=not reverse), axis=axis, reverse=not reverse)
    return (before * after).reshape(shape)


def _cumprod_jvp(t: Array, x: Array, out: Array, axis: int | None, reverse: bool) -> Array:
    # out_k = out_{k-1} x_k, so its tangent is a recurrence with factors x_k.
    if axis is None:
        x, t, axis = x.reshape((-1,)), t.reshape((-1,)), 0
    before = _shift(out, axis=axis, reverse=reverse, fill=1.0)
    return recurrence(before * t, x, axis=axis, reverse=reverse)


@differentiable(
    vjps={"x": _cumprod_vjp},
    jvps={"x": _cumprod_jvp},
    cost=_scan_cost,
    structure=Structure.LANES,
    batch=batching.along_one_axis,
    precision="widen",
    numpy=(np.cumprod, np.multiply.accumulate),
    reference=_reference(np.cumprod),
    samples=lambda: _scan_samples("cumprod"),
)
def cumprod(x: Array, /, axis: int | None = None, *, reverse: bool = False) -> Array:
    """Return the running product along `axis`. The derivative is right with any number of zeros.

    Args:
        x: any shape.
        axis: the axis to multiply along; None flattens x first.
        reverse: multiply from the end towards the start.

    Example:
        >>> nt.cumprod(np.array([1.0, 2.0, 3.0]))
        array([1., 2., 6.])
    """
    return _accumulate(np.multiply, x, axis, reverse)


@composed(
    numpy=np.cumulative_prod,
    samples=lambda: _cumulative_samples("cumulative_prod"),
)
def cumulative_prod(x: Array, axis: int | None = None) -> Array:
    """Return the running product along `axis`, which may be left out of vectors only.

    Example:
        >>> nt.cumulative_prod(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1)
        array([[ 1.,  2.],
               [ 3., 12.]])
    """
    return cumprod(x, axis=_only_axis("cumulative_prod", x, axis))
