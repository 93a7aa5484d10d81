"""Normalisation of rows, the last axes of an array: layer norm and root mean square norm."""

import math
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core.binding import integers_of
from ..core.declare import composed, differentiable
from ..dtypes import float_beside
from ..errors import OperandError, ShapeError
from ..kernels.sums import add_reduce, weighted_sum
from .rectifiers import as_number
from .samples import rejected, sample, values
from .shapes import as_array, broadcast_to


def _rows(x: Array, axes: int) -> Array:
    """Return `x` as a matrix whose rows are the last `axes` axes."""
    cut = len(x.shape) - axes
    return x.reshape((math.prod(x.shape[:cut]), math.prod(x.shape[cut:])))


def _column(weight: Any, length: int, dtype: Any) -> Any:
    """Return weights as a column, divided by their number: its product with rows is their weighted mean."""
    if weight is None:
        return np.full((length, 1), 1.0 / length if length else 0.0, dtype)
    return weight.reshape((length, 1)) * (1.0 / length if length else 0.0)


def _weighted(weights: Array, rows: Array) -> Array:
    """Return the sum of rows, each times the weight in a column."""
    if isinstance(weights, np.ndarray) and isinstance(rows, np.ndarray):
        return weighted_sum(weights.reshape(-1), rows)
    return weights.reshape((1, -1)) @ rows


def is_far(mean: Any, variance: Any) -> bool:
    """Say whether a mean is so large beside what is left without it that its rounding shows in the variance."""
    return bool((mean * mean > 16.0 * variance).any())


def _centred(rows: NDArray, eps: float) -> tuple[NDArray, NDArray]:
    """Return rows with their means taken off, and their variances plus `eps` as a column."""
    length = rows.shape[-1]
    column = _column(None, length, rows.dtype)
    mean = rows @ column
    out = rows - mean
    variance = np.vecdot(out, out)[:, None] / length + eps
    # What rounding has left of the mean shows in numbers near it; of rows of equal numbers it would be all.
    out -= add_reduce(out, -1, True) / length
    if is_far(mean, variance):
        variance = np.vecdot(out, out)[:, None] / length + eps
    return out, variance


def _centre(x: Array, eps: float) -> tuple[Array, Array]:
    """Return rows with their means taken off, and 1 / their standard deviations as a column."""
    length = x.shape[-1]
    if isinstance(x, np.ndarray) and length:
        out, scale = _centred(x, eps)
        return out, scale**-0.5
    centred = x - x @ _column(None, length, x.dtype)
    variance = (centred * centred) @ _column(None, length, x.dtype)
    return centred, (variance + eps) ** -0.5


def _layer_pull(
    g: Array, x: Array, weight: Array, axes: int, eps: float, needs: tuple[bool, ...]
) -> tuple[Array | None, Array | None, Array | None]:
    # With c = x - mean and u = g * weight: dx = (u - mean(u) - c mean(u c) / var) / std
    rows, g_rows = _rows(x, axes), _rows(g, axes)
    centred, inverse = _centre(rows, eps)
    products = g_rows * centred
    pulled = g_weight = g_bias = None
    if needs[0]:
        mean = _column(weight, rows.shape[-1], g_rows.dtype)
        u = g_rows if weight is None else g_rows * weight.reshape((1, -1))
        pulled = ((u - g_rows @ mean - centred * ((products @ mean) * inverse * inverse)) * inverse).reshape(x.shape)
    if needs[1]:
        g_weight = _weighted(inverse, products).reshape(x.shape[len(x.shape) - axes :])
    if needs[2]:
        g_bias = add_reduce(g_rows, 0, False).reshape(x.shape[len(x.shape) - axes :])
    return pulled, g_weight, g_bias


def _layer_push(t: Array, x: Array, weight: Array, axes: int, eps: float) -> Array:
    rows, t_rows = _rows(x, axes), _rows(t, axes)
    centred, inverse = _centre(rows, eps)
    h = centred * inverse
    mean = _column(None, rows.shape[-1], rows.dtype)
    pushed = ((t_rows - t_rows @ mean - h * ((t_rows * h) @ mean)) * inverse).reshape(x.shape)
    return pushed if weight is None else pushed * weight


def _layer_push_weight(t: Array, x: Array, axes: int, eps: float) -> Array:
    centred, inverse = _centre(_rows(x, axes), eps)
    return (centred * inverse).reshape(x.shape) * t


def _layer_reference(x: Array, weight: Array = None, bias: Array = None, axes: int = 1, eps: float = 1e-5) -> Array:
    over = tuple(range(-axes, 0))
    h = (x - np.mean(x, over, keepdims=True)) / np.sqrt(np.var(x, over, keepdims=True) + eps)
    return h * (1.0 if weight is None else weight) + (0.0 if bias is None else bias)


@differentiable(
    vjp=_layer_pull,
    jvps={"x": _layer_push, "weight": _layer_push_weight, "bias": lambda t, x_shape: broadcast_to(t, x_shape)},
    cost=lambda out, *shapes, **params: 8 * math.prod(out),
    to_float=True,
    precision="widen",
    reference=_layer_reference,
    samples=lambda: [
        sample(values(4, 5)),
        sample(values(4, 5), values(5, seed=1)),
        sample(values(4, 5), values(5, seed=1), values(5, seed=2)),
        sample(values(4, 5), None, values(5, seed=2)),
        sample(values(2, 3, 5), values(5, seed=1), values(5, seed=2), eps=0.1),
        sample(values(2, 3, 5), values(3, 5, seed=1), values(3, 5, seed=2), axes=2),
        sample(values(5), values(5, seed=1), values(5, seed=2)),
        sample(values(2, 3), values(2, 3, seed=1), values(2, 3, seed=2), axes=2),
        sample(values(3, 1), values(1, seed=1), values(1, seed=2)),
        sample(values(0, 3), values(3, seed=1), values(3, seed=2)),
    ],
)
def _layer_normalise(
    x: Array, weight: Array = None, bias: Array = None, /, *, axes: int = 1, eps: float = 1e-5
) -> Array:
    """Return `x` normalised over its last axes."""
    rows = _rows(x, axes)
    if not rows.size:
        return np.zeros(x.shape, x.dtype)
    out, variance = _centred(rows, eps)
    out *= variance**-0.5
    if weight is not None:
        out *= weight.reshape(-1)
    if bias is not None:
        out += bias.reshape(-1)
    return out.reshape(x.shape)


def _normalized_axes(name: str, x: Array, normalized_shape: Any, **parameters: Array) -> int:
    """Return how many axes to normalise over; raise if x or a parameter does not have them."""
    shape = integers_of(normalized_shape)
    if shape is None:
        raise OperandError(
            f"{name}: normalized_shape is {normalized_shape!r}; give the length of the last axis of x, or those of its "
            "last axes, as integers."
        )
    if not shape or x.shape[len(x.shape) - len(shape) :] != shape or len(shape) > len(x.shape):
        raise ShapeError(
            f"{name}: x has shape {x.shape} and normalized_shape is {shape}; the last axes of x must be those of "
            "normalized_shape."
        )
    for parameter, operand in parameters.items():
        if operand is not None and as_array(operand).shape != shape:
            raise ShapeError(
                f"{name}: {parameter} has shape {as_array(operand).shape} and normalized_shape is {shape}; they must "
                "be equal."
            )
    return len(shape)


def _normalized_mismatch(name: str) -> Any:
    return rejected(
        ShapeError,
        f"{name}: x has shape (2, 3) and normalized_shape is (2,); the last axes of x must be those of "
        "normalized_shape.",
        np.ones((2, 3)),
        2,
    )


#: The op itself, for normalisations that bring their operand into rows.
layer_norm_rows = _layer_normalise


@composed(
    precision="widen",
    reference=lambda x, normalized_shape, weight=None, bias=None, eps=1e-5: _layer_reference(
        x, weight, bias, np.size(normalized_shape), eps
    ),
    samples=lambda: [
        sample(values(4, 5), 5),
        sample(values(4, 5), (5,), values(5, seed=1)),
        sample(values(4, 5), [5], values(5, seed=1), values(5, seed=2)),
        sample(values(4, 5), 5, None, values(5, seed=2), eps=0.01),
        sample(values(2, 3, 4), (3, 4), values(3, 4, seed=1), values(3, 4, seed=2)),
        sample(values(5), 5, values(5, seed=1), values(5, seed=2)),
        sample(values(2, 1), 1),
        sample(values(0, 3), 3),
        _normalized_mismatch("layer_norm"),
        rejected(
            ShapeError,
            "layer_norm: weight has shape (2,) and normalized_shape is (3,); they must be equal.",
            np.ones((2, 3)),
            3,
            weight=np.ones(2),
        ),
    ],
)
def layer_norm(x: Array, normalized_shape: Any, weight: Array = None, bias: Array = None, eps: float = 1e-5) -> Array:
    """Return ``(x - mean) / sqrt(var + eps) * weight + bias``, with mean and variance over the last axes.

    Args:
        x: of shape (..., *normalized_shape).
        normalized_shape: the lengths of the axes to normalise over, or one length.
        weight: of shape normalized_shape; None for 1.
        bias: of shape normalized_shape; None for 0.
        eps: added to the variance, which is that with ``ddof=0``.

    Raises:
        ShapeError: if the shapes do not match.

    Example:
        >>> nt.layer_norm(np.array([[1.0, 3.0], [10.0, 30.0]]), 2, eps=0.0)
        array([[-1.,  1.],
               [-1.,  1.]])
    """
    x, eps = as_array(x), as_number("layer_norm", "eps", eps)
    axes = _normalized_axes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    return _layer_normalise(x, weight, bias, axes=axes, eps=eps)


def _rms_parts(x: Array, axes: int, eps: float) -> tuple[Array, Array, Array]:
    """Return x as rows, 1 / their root mean squares as a column, and the column that takes means of rows."""
    rows = _rows(x, axes)
    mean = _column(None, rows.shape[-1], rows.dtype)
    return rows, ((rows * rows) @ mean + eps) ** -0.5, mean


def _rms_pull(
    g: Array, x: Array, weight: Array, axes: int, eps: float, needs: tuple[bool, ...]
) -> tuple[Array | None, Array | None]:
    # With r = 1 / rms and u = g * weight: dx = r (u - x r^2 mean(u x))
    rows, inverse, _ = _rms_parts(x, axes, eps)
    g_rows = _rows(g, axes)
    products = g_rows * rows
    pulled = None
    if needs[0]:
        mean = _column(weight, rows.shape[-1], g_rows.dtype)
        u = g_rows if weight is None else g_rows * weight.reshape((1, -1))
        pulled = ((u - rows * ((products @ mean) * inverse * inverse)) * inverse).reshape(x.shape)
    g_weight = None
    if needs[1]:
        g_weight = _weighted(inverse, products).reshape(x.shape[len(x.shape) - axes :])
    return pulled, g_weight


def _rms_push(t: Array, x: Array, weight: Array, axes: int, eps: float) -> Array:
    rows, inverse, mean = _rms_parts(x, axes, eps)
    t_rows = _rows(t, axes)
    pushed = ((t_rows - rows * (((t_rows * rows) @ mean) * inverse * inverse)) * inverse).reshape(x.shape)
    return pushed if weight is None else pushed * weight


def _rms_push_weight(t: Array, x: Array, axes: int, eps: float) -> Array:
    rows, inverse, _ = _rms_parts(x, axes, eps)
    return (rows * inverse).reshape(x.shape) * t


def _rms_reference(x: Array, weight: Array = None, axes: int = 1, eps: float | None = None) -> Array:
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    over = tuple(range(-axes, 0))
    return x / np.sqrt(np.mean(x**2, over, keepdims=True) + eps) * (1.0 if weight is None else weight)


@differentiable(
    vjp=_rms_pull,
    jvps={"x": _rms_push, "weight": _rms_push_weight},
    cost=lambda out, *shapes, **params: 5 * math.prod(out),
    to_float=True,
    precision="widen",
    reference=_rms_reference,
    samples=lambda: [
        sample(values(4, 5), eps=1e-6),
        sample(values(4, 5), values(5, seed=1), eps=1e-6),
        sample(values(2, 3, 5), values(5, seed=1), eps=0.1),
        sample(values(2, 3, 5), values(3, 5, seed=1), axes=2, eps=1e-6),
        sample(values(5), values(5, seed=1), eps=1e-6),
        sample(values(2, 3), values(2, 3, seed=1), axes=2, eps=1e-6),
        sample(values(3, 1), values(1, seed=1), eps=0.5),
        sample(values(0, 3), values(3, seed=1), eps=1e-6),
    ],
)
def _rms_normalise(x: Array, weight: Array = None, /, *, axes: int = 1, eps: float) -> Array:
    """Return `x` divided by its root mean square over its last axes."""
    rows = _rows(x, axes)
    out = rows * (np.vecdot(rows, rows)[:, None] / rows.shape[-1] + eps) ** -0.5
    if weight is not None:
        out *= weight.reshape(-1)
    return out.reshape(x.shape)


@composed(
    precision="widen",
    reference=lambda x, normalized_shape, weight=None, eps=None: _rms_reference(
        x, weight, np.size(normalized_shape), eps
    ),
    samples=lambda: [
        sample(values(4, 5), 5),
        sample(values(4, 5), (5,), values(5, seed=1)),
        sample(values(4, 5), [5], values(5, seed=1), eps=0.1),
        sample(values(2, 3, 4), (3, 4), values(3, 4, seed=1)),
        sample(values(2, 3, 4), 4),
        sample(values(5), 5, values(5, seed=1)),
        sample(values(2, 1), 1, eps=0.5),
        sample(values(0, 3), 3),
        _normalized_mismatch("rms_norm"),
    ],
)
def rms_norm(x: Array, normalized_shape: Any, weight: Array = None, eps: float | None = None) -> Array:
    """Return ``x / sqrt(mean(x ** 2) + eps) * weight``, with the mean over the last axes.

    Args:
        x: of shape (..., *normalized_shape).
        normalized_shape: the lengths of the axes to normalise over, or one length.
        weight: of shape normalized_shape; None for 1.
        eps: added to the mean square; None for the resolution of the dtype that is computed in.

    Raises:
        ShapeError: if the shapes do not match.

    Example:
        >>> nt.rms_norm(np.array([3.0, 4.0, 0.0, 0.0]), 4)
        array([1.2, 1.6, 0. , 0. ])
    """
    x = as_array(x)
    axes = _normalized_axes("rms_norm", x, normalized_shape, weight=weight)
    if eps is None:
        eps = float(np.finfo(np.float64 if float_beside((x, weight)) == np.float64 else np.float32).eps)
    return _rms_normalise(x, weight, axes=axes, eps=as_number("rms_norm", "eps", eps))
