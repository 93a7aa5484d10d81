"""Losses: how far predictions are from targets. Here those of numbers; further families are in files of their own."""

import math

import numpy as np

from .._typing import Array, Shape
from ..core.declare import composed, differentiable, elementwise
from ..errors import ArgumentError
from . import binary_losses as binary_losses
from . import class_losses as class_losses
from . import distribution_losses as distribution_losses
from . import embedding_losses as embedding_losses
from .arithmetic import abs
from .bounds import clip
from .loss_reductions import as_pair, check_reduction, check_same_shape, pair_samples, reduce, reduced
from .rectifiers import as_number
from .samples import SHAPES, rejected, sample, values


def _mse_scale(g: Array, shape: Shape, reduction: str) -> Array:
    # Without elements there is nothing to scale.
    return g * (2.0 / max(math.prod(shape), 1)) if reduction == "mean" else g * 2.0


def _mse_pull(
    g: Array, prediction: Array, target: Array, reduction: str, needs: tuple[bool, ...]
) -> tuple[Array, Array | None]:
    # d (p - t)^2 = 2 (p - t) (dp - dt)
    pulled = (prediction - target) * _mse_scale(g, prediction.shape, reduction)
    return pulled, -pulled if needs[1] else None


def _mse_push(t: Array, prediction: Array, target: Array, reduction: str) -> Array:
    pushed = (prediction - target) * _mse_scale(t, prediction.shape, reduction)
    return pushed if reduction == "none" else pushed.sum()


@differentiable(
    vjp=_mse_pull,
    jvps={
        "prediction": _mse_push,
        "target": lambda t, prediction, target, reduction: -_mse_push(t, prediction, target, reduction),
    },
    cost=lambda out, prediction, target, reduction: 3 * math.prod(prediction),
    to_float=True,
    precision="widen",
    also=("mse",),
    reference=reduced(lambda prediction, target: (prediction - target) ** 2),
    samples=lambda: pair_samples("mse_loss"),
)
def mse_loss(prediction: Array, target: Array, /, reduction: str = "mean") -> Array:
    """Return the mean squared error.

    Args:
        prediction: any shape.
        target: the same shape; nothing is broadcast.
        reduction: "mean" over all elements, "sum", or "none" for the error of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.mse_loss(np.array([1.0, 2.0]), np.array([0.0, 4.0]))
        array(2.5)
    """
    prediction, target = np.asarray(prediction), np.asarray(target)
    check_same_shape("mse_loss", prediction=prediction, target=target)
    check_reduction("mse_loss", reduction)
    difference = prediction - target
    if reduction == "none":
        return difference * difference
    flat = difference.ravel()
    total = np.dot(flat, flat)
    return total / prediction.size if reduction == "mean" else total


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    also=("l1",),
    kinks="where prediction equals target; the derivative there is taken as 0",
    reference=reduced(lambda prediction, target: np.maximum(prediction - target, target - prediction)),
    samples=lambda: pair_samples("l1_loss"),
)
def l1_loss(prediction: Array, target: Array, reduction: str = "mean") -> Array:
    """Return the mean absolute error.

    Args:
        prediction: any shape.
        target: the same shape; nothing is broadcast.
        reduction: "mean" over all elements, "sum", or "none" for the error of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.l1_loss(np.array([1.0, 2.0]), np.array([0.0, 4.0]))
        array(1.5)
    """
    prediction, target = as_pair(prediction, target)
    check_same_shape("l1_loss", prediction=prediction, target=target)
    check_reduction("l1_loss", reduction)
    return reduce(abs(prediction - target), reduction)


def _bend_reference(x: Array, delta: float) -> Array:
    return np.where(np.abs(x) <= delta, x * x / 2, delta * (np.abs(x) - delta / 2))


@elementwise(
    # The derivative is x, clipped to delta on both sides.
    partials={"x": lambda g, x, delta: g * clip(x, -delta, delta)},
    flops=5,
    to_float=True,
    reference=_bend_reference,
    samples=lambda: [
        *(sample(values(*shape, avoid=(-1, 1)), delta=1.0) for shape in SHAPES),
        sample(values(5, avoid=(-0.3, 0.3)), delta=0.3),
        sample(values(5), delta=5.0),
    ],
)
def _huber_bend(x: Array, /, *, delta: float) -> Array:
    """Return ``x ** 2 / 2`` up to `delta` and the tangent line beyond, on both sides of 0."""
    size = np.abs(x)
    bounded = np.minimum(size, delta)
    return bounded * (size - 0.5 * bounded)


def _check_not_negative(name: str, parameter: str, value: float) -> None:
    if not value >= 0:
        raise ArgumentError(f"{name}: {parameter} is {value}; it must not be negative.")


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    also=("huber",),
    reference=reduced(lambda prediction, target, delta=1.0: _bend_reference(prediction - target, delta)),
    samples=lambda: pair_samples(
        "huber_loss",
        sample(values(2, 3), values(2, 3, seed=1), delta=0.3),
        rejected(ArgumentError, "huber_loss: delta is 0; it must be positive.", np.ones(2), np.ones(2), delta=0),
    ),
)
def huber_loss(prediction: Array, target: Array, delta: float = 1.0, reduction: str = "mean") -> Array:
    """Return the Huber loss: half the squared error up to `delta`, and linear in the error beyond.

    Args:
        prediction: any shape.
        target: the same shape; nothing is broadcast.
        delta: the error at which the square becomes a line of slope `delta`.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.huber_loss(np.array([1.0, 2.0]), np.array([0.0, 4.0]), reduction="none")
        array([0.5, 1.5])
    """
    prediction, target = as_pair(prediction, target)
    check_same_shape("huber_loss", prediction=prediction, target=target)
    check_reduction("huber_loss", reduction)
    delta = as_number("huber_loss", "delta", delta)
    if not delta > 0:
        raise ArgumentError(f"huber_loss: delta is {delta}; it must be positive.")
    return reduce(_huber_bend(prediction - target, delta=delta), reduction)


def _smooth_l1_reference(prediction: Array, target: Array, beta: float = 1.0) -> Array:
    difference = prediction - target
    return _bend_reference(difference, beta) / beta if beta else np.abs(difference)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    also=("smooth_l1",),
    reference=reduced(_smooth_l1_reference),
    samples=lambda: pair_samples(
        "smooth_l1_loss",
        sample(values(2, 3), values(2, 3, seed=1), beta=0.3),
        sample(values(2, 3), values(2, 3, seed=1), beta=0.0),
        rejected(
            ArgumentError, "smooth_l1_loss: beta is -1.0; it must not be negative.", np.ones(2), np.ones(2), beta=-1.0
        ),
    ),
)
def smooth_l1_loss(prediction: Array, target: Array, beta: float = 1.0, reduction: str = "mean") -> Array:
    """Return the absolute error with a parabola of width `beta` in place of the kink: ``huber_loss / beta``.

    Args:
        prediction: any shape.
        target: the same shape; nothing is broadcast.
        beta: the error at which the parabola becomes a line of slope 1; 0 gives `l1_loss`.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.smooth_l1_loss(np.array([1.0, 2.0]), np.array([0.0, 4.0]), beta=2.0, reduction="none")
        array([0.25, 1.  ])
    """
    prediction, target = as_pair(prediction, target)
    check_same_shape("smooth_l1_loss", prediction=prediction, target=target)
    check_reduction("smooth_l1_loss", reduction)
    beta = as_number("smooth_l1_loss", "beta", beta)
    _check_not_negative("smooth_l1_loss", "beta", beta)
    difference = prediction - target
    loss = _huber_bend(difference, delta=beta) / beta if beta else abs(difference)
    return reduce(loss, reduction)
