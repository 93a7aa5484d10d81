"""Normalisation of channels, axis 1 of an array, over a batch: batch norm."""

import functools
import math
import weakref
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.composing import rounded_once
from ..core.declare import composed, differentiable
from ..core.effects import Update, note_updates, will_update
from ..core.value import Value, array_of
from ..core.write import check_writable, mark_unrecorded
from ..dtypes import HALF_DTYPES, float_beside, widened
from ..errors import ArgumentError, OperandError, ShapeError
from ..kernels.half_sums import HALVES
from ..kernels.halves import to_float32, to_half
from ..kernels.sums import add_reduce, dot_channels
from . import row_normalisation as row_normalisation
from .arithmetic import add, mul, sub
from .rectifiers import as_constant, as_number
from .row_normalisation import is_far
from .samples import rejected, sample, values
from .shapes import as_array, broadcast_to


def _channels(x: Array) -> Array:
    """Return `x` with all axes after that of the channels as one."""
    return x.reshape((x.shape[0], x.shape[1], math.prod(x.shape[2:])))


def _each_channel(parameter: Array) -> Array:
    return parameter.reshape((1, -1, 1))


def _mean(x: Array) -> Array:
    """Return the mean of each channel, with axes of length 1."""
    return add_reduce(x, (0, 2), True) / float(max(x.shape[0] * x.shape[2], 1))


def _mean_product(a: Array, b: Array) -> Array:
    """Return the mean of ``a * b`` of each channel, with axes of length 1."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return _each_channel(dot_channels(a, b) * (1.0 / max(a.shape[0] * a.shape[2], 1)))
    return _mean(a * b)


def _centre(x: Array, eps: float) -> tuple[Array, Array]:
    """Return channels with their means taken off, and 1 / their standard deviations."""
    channels = _channels(x)
    mean = _mean(channels)
    centred = channels - mean
    variance = _mean_product(centred, centred) + eps
    if type(centred) is np.ndarray:
        centred -= _mean(centred)
        if is_far(mean, variance):
            variance = _mean_product(centred, centred) + eps
    return centred, variance**-0.5


def _batch_pull(
    g: tuple[Array, Array, Array], x: Array, weight: Array, eps: float, needs: tuple[bool, ...]
) -> tuple[Array, Array, Array]:
    # With c = x - mean: dx = weight / std (g - mean(g) - c mean(g c) / var), and the like for mean and var.
    g_out, g_mean, g_var = g
    centred, inverse = _centre(x, eps)
    count = centred.shape[0] * centred.shape[2]
    pulled: Any = np.zeros(centred.shape, centred.dtype) if g_out is None else None
    g_weight = g_bias = np.zeros(centred.shape[1], centred.dtype)
    if g_out is not None:
        g_channels = _channels(g_out)
        g_mean_of, product_mean = _mean(g_channels), _mean_product(g_channels, centred)
        scale = inverse if weight is None else inverse * _each_channel(weight)
        if needs[0]:
            pulled = (g_channels - g_mean_of - centred * (product_mean * inverse * inverse)) * scale
        g_weight = (product_mean * inverse * count).reshape((-1,))
        g_bias = (g_mean_of * count).reshape((-1,))
    if needs[0]:
        if g_mean is not None:
            pulled = pulled + _each_channel(g_mean) * (1.0 / count)
        if g_var is not None:
            pulled = pulled + centred * (_each_channel(g_var) * (2.0 / count))
        pulled = pulled.reshape(x.shape)
    return pulled, g_weight, g_bias


def _batch_push(t: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array, Array]:
    centred, inverse = _centre(x, eps)
    t_channels = _channels(t)
    t_mean, product_mean = _mean(t_channels), _mean_product(t_channels, centred)
    scale = inverse if weight is None else inverse * _each_channel(weight)
    pushed = (t_channels - t_mean - centred * (product_mean * inverse * inverse)) * scale
    return pushed.reshape(x.shape), t_mean.reshape((-1,)), (product_mean * 2.0).reshape((-1,))


def _batch_push_weight(t: Array, x: Array, eps: float) -> tuple[Array, None, None]:
    centred, inverse = _centre(x, eps)
    return (centred * (inverse * _each_channel(t))).reshape(x.shape), None, None


def _batch_push_bias(t: Array, x_shape: Shape) -> tuple[Array, None, None]:
    return broadcast_to(t.reshape((-1,) + (1,) * (len(x_shape) - 2)), x_shape), None, None


def _batch_reference(x: Array, weight: Array = None, bias: Array = None, eps: float = 1e-5) -> Any:
    over = (0, *range(2, x.ndim))
    mean, var = np.mean(x, over), np.var(x, over)
    shape = (-1,) + (1,) * (x.ndim - 2)
    h = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    out = h * (1.0 if weight is None else weight.reshape(shape)) + (0.0 if bias is None else bias.reshape(shape))
    return out, mean, var


@differentiable(
    vjp=_batch_pull,
    jvps={"x": _batch_push, "weight": _batch_push_weight, "bias": _batch_push_bias},
    cost=lambda out, x, *shapes, **params: 8 * math.prod(x),
    to_float=True,
    precision="widen",
    native_half=True,
    wide_outputs=(1, 2),
    reference=_batch_reference,
    samples=lambda: [
        sample(values(5, 3)),
        sample(values(5, 3), values(3, seed=1)),
        sample(values(5, 3), values(3, seed=1), values(3, seed=2)),
        sample(values(5, 3), None, values(3, seed=2), eps=0.1),
        sample(values(4, 3, 2), values(3, seed=1), values(3, seed=2)),
        sample(values(2, 3, 2, 2), values(3, seed=1), values(3, seed=2)),
        sample(values(2, 1, 3), values(1, seed=1), values(1, seed=2)),
        sample(values(1, 2, 5), values(2, seed=1), values(2, seed=2)),
    ],
)
def _batch_normalise(
    x: Array, weight: Array = None, bias: Array = None, /, *, eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    """Return each channel normalised over the batch, with the means and the variances (of ``ddof=0``).

    Means and variances of halves are float32: one of float16 numbers may be as large as 2**32.
    """
    if x.dtype in HALVES:
        wide: list[Any] = [None if operand is None else to_float32(operand) for operand in (x, weight, bias)]
        out, mean, var = _normalised(wide[0], wide[1], wide[2], eps, is_half=True)
        return to_half(out, x.dtype), mean, var
    return _normalised(x, weight, bias, eps, is_half=False)


def _normalised(x: Any, weight: Any, bias: Any, eps: float, is_half: bool) -> tuple[NDArray, NDArray, NDArray]:
    """Do what `_batch_normalise` does, on operands of one width that may have been halves."""
    channels = _channels(x)
    mean = _mean(channels)
    out: NDArray = channels - mean
    count = out.shape[0] * out.shape[2]
    var = dot_channels(out, out) / count
    # What rounding has left of the mean shows in numbers near it, of halves above all, which are close together there.
    left = np.add.reduce(out, (0, 2), np.float64, keepdims=True) / max(count, 1) if is_half else _mean(out)
    out -= left.astype(out.dtype)
    if is_far(mean.reshape(-1), var + eps):
        var = dot_channels(out, out) / count
    scale = (var + eps) ** -0.5
    out *= _each_channel(scale if weight is None else scale * weight)
    if bias is not None:
        out += _each_channel(bias)
    return out.reshape(x.shape), mean.reshape(-1), var


def _check_buffer(argument: str, buffer: Any) -> NDArray:
    """Return the array of a running statistic that can be written."""
    if isinstance(buffer, Value):
        array: NDArray = as_constant("batch_norm", argument, buffer)
        check_writable("batch_norm", buffer, True)
        return array
    if not isinstance(buffer, np.ndarray):
        raise OperandError(
            f"batch_norm: {argument} is of type {type(buffer).__name__}; it is updated in place and must be an array "
            "or a tensor."
        )
    return buffer


def _follow(result: Array, statistics: list[tuple[Any, NDArray, NDArray]], momentum: float, count: Any) -> None:
    """Move running statistics, given with their arrays, towards those of a batch, unless it has none that are finite.

    A step that overflows is skipped, and the batch that did it must not stay for good.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        moved = [
            (buffer, array, array + (momentum * (value.astype(array.dtype) - array)).astype(array.dtype))
            for buffer, array, value in statistics
        ]
    if not all(np.isfinite(new).all() for *_, new in moved):
        return
    if count is not None:
        array = _check_buffer("num_batches_tracked", count)
        moved.append((count, array, array + 1))
    note_updates(result, [Update(weakref.ref(buffer), array.copy()) for buffer, array, _ in moved])
    for buffer, array, new in moved:
        will_update(array)
        array[...] = new
        if isinstance(buffer, Value):
            mark_unrecorded(buffer)


def _batch_norm_reference(
    x: Array,
    running_mean: Any,
    running_var: Any,
    weight: Array = None,
    bias: Array = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    if training:
        return _batch_reference(x, weight, bias, eps)[0]
    shape = (-1,) + (1,) * (x.ndim - 2)
    h = (x - np.reshape(running_mean, shape)) / np.sqrt(np.reshape(running_var, shape) + eps)
    return h * (1.0 if weight is None else weight.reshape(shape)) + (0.0 if bias is None else bias.reshape(shape))


_RUNNING = ([0.5, -1.0, 2.0], [1.0, 0.5, 2.0])


@composed(
    precision="widen",
    reference=_batch_norm_reference,
    samples=lambda: [
        sample(values(5, 3), None, None, training=True),
        sample(values(5, 3), None, None, values(3, seed=1), values(3, seed=2), training=True),
        sample(values(4, 3, 2), None, None, values(3, seed=1), values(3, seed=2), True, 0.1, 0.5),
        sample(values(4, 3), running_mean=np.zeros(3), running_var=np.ones(3), training=True),
        sample(values(5, 3), *_RUNNING),
        sample(values(5, 3), *_RUNNING, values(3, seed=1)),
        sample(values(5, 3), *_RUNNING, None, values(3, seed=2)),
        sample(values(4, 3, 2), *_RUNNING, values(3, seed=1), values(3, seed=2)),
        sample(values(2, 3, 2, 2), *_RUNNING, values(3, seed=1), values(3, seed=2), eps=0.1),
        sample(values(1, 3), *_RUNNING),
        sample(values(0, 3), *_RUNNING),
        rejected(
            ArgumentError,
            "batch_norm: x has shape (1, 3); training needs more than one value for each channel, to have a variance.",
            np.ones((1, 3)),
            None,
            None,
            training=True,
        ),
        rejected(
            ArgumentError,
            "batch_norm: running_mean and running_var are needed unless training is True.",
            np.ones((2, 3)),
            None,
            None,
        ),
        rejected(
            ShapeError,
            "batch_norm: x has shape (2, 3) and running_var has shape (2,); it must hold one number for each of 3 "
            "channels, on axis 1 of x.",
            np.ones((2, 3)),
            np.ones(3),
            np.ones(2),
        ),
        rejected(
            OperandError,
            "batch_norm: running_mean is of type list; it is updated in place and must be an array or a tensor.",
            np.ones((2, 3)),
            *_RUNNING,
            training=True,
        ),
        rejected(
            ShapeError,
            "batch_norm: x has shape (3,); it must have shape (batch, channels, ...).",
            np.ones(3),
            *_RUNNING,
        ),
    ],
)
def batch_norm(
    x: Array,
    running_mean: Any,
    running_var: Any,
    weight: Array = None,
    bias: Array = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: Any = None,
) -> Array:
    """Return x with each channel normalised, then scaled and shifted.

    In training, mean and variance are those of the batch, and the running ones move towards them by `momentum`, in
    place and outside of the record. A batch whose mean or variance is not finite leaves them as they are, and a step
    that a loss scaler skips puts them back. Otherwise the running ones are used.

    Args:
        x: of shape (batch, channels, ...).
        running_mean: an array or untracked tensor of one number for each channel, or None in training.
        running_var: the same, for variances; those of batches go in with ``ddof=1``.
        weight: a factor for each channel; None for 1.
        bias: a summand for each channel; None for 0.
        training: whether to use and to remember the batch's statistics.
        momentum: how far the running statistics move, from 0 to 1.
        eps: added to the variance, which is that with ``ddof=0``.
        num_batches_tracked: an array or tensor that counts the batches which the running statistics followed, or None.

    Raises:
        ShapeError: if the shapes do not match.
        ArgumentError: if a batch has one value for each channel only, or running statistics are missing.

    Example:
        >>> mean, var = np.zeros(1), np.ones(1)
        >>> nt.batch_norm(np.array([[1.0], [3.0]]), mean, var, training=True, eps=0.0)
        array([[-1.],
               [ 1.]])
        >>> mean, var
        (array([0.2]), array([1.1]))
    """
    x, eps = as_array(x), as_number("batch_norm", "eps", eps)
    check_channels("batch_norm", x, 2, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: running_mean and running_var are needed unless training is True.")
        mean = as_constant("batch_norm", "running_mean", running_mean)
        var = as_constant("batch_norm", "running_var", running_var)
        return _batch_norm_by(x, mean, var, weight, bias, eps, x.dtype in HALF_DTYPES)
    momentum = as_number("batch_norm", "momentum", momentum)
    count = x.shape[0] * math.prod(x.shape[2:])
    if count < 2:
        raise ArgumentError(
            f"batch_norm: x has shape {x.shape}; training needs more than one value for each channel, to have a "
            "variance."
        )
    buffers = [
        (buffer, _check_buffer(argument, buffer), position)
        for position, argument, buffer in ((0, "running_mean", running_mean), (1, "running_var", running_var))
        if buffer is not None
    ]
    parts = _batch_normalise(x, weight, bias, eps=eps)
    if buffers:
        # The variance goes in with ``ddof=1``.
        values = array_of(parts[1]), array_of(parts[2]) * (count / (count - 1))
        statistics = [(buffer, array, values[position]) for buffer, array, position in buffers]
        _follow(parts[0], statistics, momentum, num_batches_tracked)
    return parts[0]


@functools.partial(rounded_once, promoted=("x", "weight", "bias"))
def _batch_norm_by(x: Array, mean: Any, var: Any, weight: Array, bias: Array, eps: float, is_half: bool) -> Array:
    """Return x, which may have been of halves, normalised by given means and variances."""
    dtype = widened(float_beside([operand for operand in (x, weight, bias) if operand is not None]))
    scale: Any = ((var + eps) ** -0.5).astype(dtype)
    if weight is not None:
        scale = mul(weight, scale)
    mean = mean.astype(dtype)
    if is_half:
        # Centred first: in large numbers of few digits, the difference is what counts.
        return scale_and_shift(sub(x, _on_channels(mean, len(x.shape))), scale, bias)
    shift = mul(scale, mean)
    shift = -shift if bias is None else sub(bias, shift)
    return scale_and_shift(x, scale, shift)


def check_channels(name: str, x: Array, least_axes: int, **parameters: Array) -> None:
    """Raise if x has no channels, or if a parameter does not hold one number for each of them."""
    if len(x.shape) < least_axes:
        axes = "(batch, channels, ...)" if least_axes == 2 else "(batch, channels, length, ...)"
        raise ShapeError(f"{name}: x has shape {x.shape}; it must have shape {axes}.")
    for parameter, operand in parameters.items():
        if operand is not None and as_array(operand).shape != (x.shape[1],):
            raise ShapeError(
                f"{name}: x has shape {x.shape} and {parameter} has shape {as_array(operand).shape}; it must hold one "
                f"number for each of {x.shape[1]} channels, on axis 1 of x."
            )


def _on_channels(parameter: Array, ndim: int) -> Array:
    """Return an array of one number for each channel in a shape that broadcasts along axis 1."""
    return as_array(parameter).reshape((-1,) + (1,) * (ndim - 2))


def scale_and_shift(x: Array, weight: Array, bias: Array) -> Array:
    ndim = len(x.shape)
    if weight is not None:
        x = mul(x, _on_channels(weight, ndim))
    return x if bias is None else add(x, _on_channels(bias, ndim))
