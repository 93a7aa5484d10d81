"""`fftconvolve`: convolution of real arrays by fast Fourier transforms, as an op."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..core.apply import apply
from ..core.op import Op
from ..core.value import Value
from ..errors import ArgumentError, ShapeError
from ..ops import broadcast_to, pad
from ..transforms.custom_ops import custom_op
from .loading import scipy_part
from .vectors import as_operand

_MODES = ("full", "same", "valid")


def fftconvolve(a: Any, b: Any, mode: str = "full", axes: int | Sequence[int] | None = None) -> Any:
    """Return the convolution of two real arrays, computed as `scipy.signal.fftconvolve` does.

    Args:
        a: a tensor or an array. Integers count as float64, in a tensor as numtape's default float.
        b: one with as many axes.
        mode: "full" for all overlaps, "same" for the shape of `a`, "valid" for full overlaps only.
        axes: along which to convolve; all if not given. Along the others, the two broadcast.

    Example:
        >>> from numtape.interop.scipy import fftconvolve
        >>> np.round(fftconvolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])), 6)
        array([1., 3., 5., 3.])
    """
    a, b = (x if isinstance(x, Value) else np.asarray(x) for x in (a, b))
    if a.ndim != b.ndim:
        raise ShapeError(f"fftconvolve: a has shape {a.shape} and b {b.shape}; both must have as many axes.")
    if mode not in _MODES:
        raise ArgumentError(f"fftconvolve: mode is {mode!r}; it is full, same or valid.")
    if not a.ndim:
        return a * b  # As SciPy's.
    a, b = as_operand(a), as_operand(b)
    chosen = _as_axes(axes, a.ndim)
    rest = [axis for axis in range(-a.ndim, 0) if axis not in chosen]
    if any(b.shape[axis] not in (1, a.shape[axis]) and a.shape[axis] != 1 for axis in rest):
        raise ShapeError(
            f"fftconvolve: a has shape {a.shape} and b {b.shape}; along axes that are not convolved, lengths must be "
            "equal, or 1."
        )
    if 0 in (*a.shape, *b.shape):
        given: Any = a if isinstance(a, Value) else b
        return given.reshape((-1,))[:0]  # As SciPy's: nothing, along one axis.
    # What has length 1 broadcasts, as SciPy's does.
    lengths = [(a.shape[axis], b.shape[axis]) for axis in chosen if 1 not in (a.shape[axis], b.shape[axis])]
    if mode == "valid" and any(m < n for m, n in lengths) and any(m > n for m, n in lengths):
        raise ShapeError(
            f"fftconvolve: a has shape {a.shape} and b {b.shape}; for mode='valid', one must be at least as long as "
            "the other along each axis that is convolved."
        )
    for axis in rest:
        if mode == "same" and a.shape[axis] < b.shape[axis]:
            # The middle is kept along these axes too, so that the shape is that of a.
            b = b[(..., slice((b.shape[axis] - 1) // 2, (b.shape[axis] + 1) // 2), *[slice(None)] * (-1 - axis))]
    return fft_convolution(a, b, mode=mode, axes=chosen)


def _as_axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes as negative numbers, which count from the end: a batch in front does not change them."""
    given = range(ndim) if axes is None else [axes] if isinstance(axes, int) else list(axes)
    found = tuple(axis - ndim if axis >= 0 else axis for axis in given)
    if not found or len(set(found)) != len(found) or not all(-ndim <= axis < 0 for axis in found):
        raise ArgumentError(f"fftconvolve: axes is {axes!r} for arrays of {ndim} axes; each may be named once.")
    return found


def _in_full(g: Any, a_shape: Shape, b_shape: Shape, mode: str, axes: tuple[int, ...]) -> Any:
    """Return the cotangent of the full convolution, of which the other modes keep the middle."""
    widths = [(0, 0)] * len(g.shape)
    for axis in axes:
        lost = a_shape[axis] + b_shape[axis] - 1 - g.shape[axis]
        widths[axis] = (lost // 2, lost - lost // 2)
    return pad(g, tuple(widths)) if any(map(any, widths)) else g


def _flipped(x: Any, axes: tuple[int, ...]) -> Any:
    return x[tuple(slice(None, None, -1 if axis - len(x.shape) in axes else 1) for axis in range(len(x.shape)))]


# The transpose of a convolution is the correlation: the other operand reversed.
def _pull_a(g: Any, a_shape: Shape, b: Any, mode: str, axes: tuple[int, ...]) -> Any:
    return fft_convolution(_in_full(g, a_shape, b.shape, mode, axes), _flipped(b, axes), mode="valid", axes=axes)


def _pull_b(g: Any, a: Any, b_shape: Shape, mode: str, axes: tuple[int, ...]) -> Any:
    return fft_convolution(_in_full(g, a.shape, b_shape, mode, axes), _flipped(a, axes), mode="valid", axes=axes)


def _batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Run the op on many operands: one that all share is repeated, since "same" is the shape of the first."""
    size = next(len(x) for x, is_batched in zip(operands, batched, strict=True) if is_batched)
    repeated = [
        x if is_batched else broadcast_to(x, (size, *x.shape)) for x, is_batched in zip(operands, batched, strict=True)
    ]
    return apply(op, repeated, params)


def _cost(out: Any, a: Shape, b: Shape, *, mode: str, axes: tuple[int, ...]) -> int:
    full = [x + y for x, y in zip(a, b, strict=True)]
    return int(15 * math.prod(full) * math.log2(max(2, math.prod(full))))


@custom_op(
    vjp={"a": _pull_a, "b": _pull_b},
    jvp={
        "a": lambda t, b, mode, axes: fft_convolution(t, b, mode=mode, axes=axes),
        "b": lambda t, a, mode, axes: fft_convolution(a, t, mode=mode, axes=axes),
    },
    check=False,
    is_linear_backward=True,
    linear=("a", "b"),
    batch=_batch,
    cost=_cost,
    precision="widen",
    to_float=True,
)
def fft_convolution(a: NDArray, b: NDArray, /, *, mode: str, axes: tuple[int, ...]) -> NDArray:
    """Return the convolution of two real arrays along axes that count from the end."""
    out = scipy_part("fftconvolve", "signal").fftconvolve(a, b, mode=mode, axes=axes)
    return np.asarray(out)
