"""`dct` and `idct`: discrete cosine transforms as ops, whose transposes are transforms again."""

import math
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..errors import ArgumentError, AxisError, ShapeError
from ..ops import pad
from ..transforms.custom_ops import custom_op
from .loading import scipy_part
from .vectors import as_operand

_NORMS = ("backward", "ortho", "forward")
#: The type of the transpose, and of the inverse, of each type.
_OTHER = {1: 1, 2: 3, 3: 2, 4: 4}


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the discrete cosine transform of real values along an axis, as `scipy.fft.dct` does.

    Args:
        x: a tensor or an array. Integers count as float64, in a tensor as numtape's default float.
        type: 1, 2, 3 or 4.
        n: the length to transform: `x` is cut, or filled with zeros at the end.
        axis: along which to transform.
        norm: "backward" (also by default: no factor), "ortho" (orthogonal) or "forward" (divided by the length).

    Example:
        >>> from numtape.interop.scipy import dct
        >>> np.round(dct(np.array([1.0, 2.0, 3.0]), norm="ortho"), 6)
        array([ 3.464102, -1.414214,  0.      ])
    """
    return _transformed("dct", x, type, n, axis, "backward" if norm is None else norm)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `dct`, as `scipy.fft.idct` does: the same arguments take back what `dct` did.

    Example:
        >>> from numtape.interop.scipy import dct, idct
        >>> np.round(idct(dct(np.array([1.0, 2.0, 3.0]))), 6)
        array([1., 2., 3.])
    """
    inverse = {"backward": "forward", "forward": "backward"}
    name = "backward" if norm is None else norm
    return _transformed("idct", x, _OTHER.get(type, type), n, axis, inverse.get(name, name), type)


def _transformed(name: str, x: Any, type: int, n: int | None, axis: int, norm: str, given: int | None = None) -> Any:
    x = as_operand(x)
    if type not in _OTHER:
        raise ArgumentError(f"{name}: type is {given or type!r}; it is 1, 2, 3 or 4.")
    if norm not in _NORMS:
        raise ArgumentError(f"{name}: norm is {norm!r}; it is {', '.join(_NORMS)} or None.")
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(f"{name}: axis is {axis}, but x has shape {x.shape}.")
    axis -= x.ndim if axis >= 0 else 0
    if n is not None:
        x = _resized(name, x, n, axis)
    if x.shape[axis] < (2 if type == 1 else 1):
        least = "two elements" if type == 1 else "one element"
        raise ShapeError(f"{name}: x has shape {x.shape}; a transform of type {given or type} takes at least {least}.")
    return cosine_transform(x, type=type, axis=axis, norm=norm)


def _resized(name: str, x: Any, n: int, axis: int) -> Any:
    """Return x with the length n along an axis: cut, or with zeros at the end."""
    if n < 1:
        raise ArgumentError(f"{name}: n is {n}; it must be positive.")
    length = x.shape[axis]
    if n > length:
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, n - length)
        return pad(x, tuple(widths))
    return x[(..., slice(n), *[slice(None)] * (-axis - 1))] if n < length else x


def _transposed(g: Any, type: int, axis: int, norm: str) -> Any:
    """Return the transpose of a transform, applied.

    Types 1 to 4 are C W with a symmetric C of the same kind, or the transposed one, and weights W on a few inputs (or,
    of type 2, none); in the transpose they stand on the other side. An orthogonal transform has none.
    """
    other = _OTHER[type]
    before, after = _weights(type, g.shape[axis], norm)
    g = g if before is None else g * _along(before, axis)
    out = cosine_transform(g, type=other, axis=axis, norm=norm)
    return out if after is None else out * _along(after, axis)


def _weights(type: int, length: int, norm: str) -> tuple[NDArray | None, NDArray | None]:
    """Return the factors before and after the other transform that make it the transpose."""
    if norm == "ortho" or type == 4:
        return None, None
    ends = np.ones(length)
    if type == 1:
        ends[1:-1] = 2.0
        return 1.0 / ends, ends
    ends[0] = 2.0
    return (ends, None) if type == 2 else (None, 1.0 / ends)


def _along(weights: NDArray, axis: int) -> NDArray:
    return weights.reshape((-1,) + (1,) * (-axis - 1))


def _cost(out: Any, x: Any, *, type: int, axis: int, norm: str) -> int:
    return int(5 * math.prod(out) * math.log2(max(2, out[axis])))


def _batch(op: Any, operands: Any, batched: Any, params: dict[str, Any]) -> Any:
    # The axis counts from the end, so a batch in front does not change it.
    return apply(op, operands, params)


@custom_op(
    vjp={"x": _transposed},
    jvp={"x": lambda t, type, axis, norm: cosine_transform(t, type=type, axis=axis, norm=norm)},
    check=False,
    is_linear_backward=True,
    linear=("x",),
    structure="lanes",
    batch=_batch,
    cost=_cost,
    precision="widen",
    to_float=True,
)
def cosine_transform(x: NDArray, /, *, type: int, axis: int, norm: str) -> NDArray:
    """Return a discrete cosine transform along an axis that counts from the end."""
    return np.asarray(scipy_part("dct", "fft").dct(x, type=type, axis=axis, norm=norm))
