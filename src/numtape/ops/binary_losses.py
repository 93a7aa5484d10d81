"""Losses of two classes: binary cross-entropy of probabilities or logits, and the hinge."""

from typing import Any

import numpy as np

from .._typing import Array
from ..core.declare import composed, elementwise
from ..errors import ArgumentError, ShapeError
from .arithmetic import add, mul, neg, sub
from .bounds import maximum
from .exponential import log, log1p, sigmoid, softplus
from .loss_reductions import as_pair, check_reduction, check_same_shape, check_signs, reduce, reduced
from .origins import derived
from .rectifiers import relu
from .samples import PAIRS, SHAPES, rejected, sample, values
from .shapes import as_array, as_arrays

#: No probability costs more than this, also that of 0 where 1 is wanted.
_MOST = 100.0


def _weighted(name: str, prediction: str, loss: Array, weight: Array) -> Array:
    """Return losses times a weight that broadcasts to their shape."""
    if weight is None:
        return loss
    weight = as_array(weight, loss)
    check_fits(name, prediction, loss.shape, "weight", weight.shape)
    return loss * weight


def check_fits(name: str, prediction: str, shape: tuple[int, ...], argument: str, other: tuple[int, ...]) -> None:
    """Raise if an argument of shape `other` does not broadcast to the shape of the losses."""
    try:
        fits = np.broadcast_shapes(shape, other) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name}: {prediction} has shape {shape} and {argument} has shape {other}, which does not broadcast to it."
        )


def _probabilities(*shape: int, seed: int = 0) -> Any:
    return values(*shape, low=0.1, high=0.9, seed=seed)


def _bce_reference(prediction: Array, target: Array, weight: Array = 1.0) -> Array:
    with np.errstate(all="ignore"):
        good, bad = (np.maximum(np.log(p), -100.0) for p in (prediction, 1.0 - prediction))
    return -(target * good + (1.0 - target) * bad) * (1.0 if weight is None else weight)


@elementwise(
    partials={
        # d -(t log p + (1 - t) log(1 - p)) = (p - t) / (p (1 - p)) dp + log((1 - p) / p) dt
        "prediction": lambda g, prediction, target: (
            g * (prediction - target) / maximum(prediction * (1.0 - prediction), 1e-12)
        ),
        "target": lambda g, prediction: g * (maximum(log1p(-prediction), -_MOST) - maximum(log(prediction), -_MOST)),
    },
    flops=24,
    to_float=True,
    precision="widen",
    reference=_bce_reference,
    samples=lambda: [
        *(sample(_probabilities(*a), _probabilities(*b, seed=1)) for a, b in PAIRS),
        sample(
            np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0]), skip_derivatives="the ends of the range"
        ),
    ],
)
def _bce_of_elements(prediction: Array, target: Array, /) -> Array:
    """Return the binary cross-entropy of each probability, its logarithms no less than -100."""
    if np.any(prediction < 0) or np.any(prediction > 1):
        raise ArgumentError(
            f"bce_loss: prediction holds numbers from {np.min(prediction)} to {np.max(prediction)}; probabilities lie "
            "between 0 and 1. For logits use bce_with_logits_loss."
        )
    with np.errstate(divide="ignore"):
        good, bad = np.log(prediction), np.log1p(-prediction)
    return -(target * np.maximum(good, -_MOST) + (1.0 - target) * np.maximum(bad, -_MOST))


def _shape_mismatch(name: str, prediction: str) -> Any:
    return rejected(
        ShapeError,
        f"{name}: {prediction} has shape (3,) and target has shape (3, 1); the shapes must be equal, since losses do "
        "not broadcast. Did you mean to reshape one of them?",
        np.ones(3),
        np.ones((3, 1)),
    )


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    also=("binary_cross_entropy", "bce"),
    reference=reduced(_bce_reference),
    samples=lambda: [
        *(sample(_probabilities(*s), _probabilities(*s, seed=1), reduction="none") for s in SHAPES),
        sample(_probabilities(2, 3), _probabilities(2, 3, seed=1)),
        sample(_probabilities(2, 3), _probabilities(2, 3, seed=1), reduction="sum"),
        sample(_probabilities(2, 3), _probabilities(2, 3, seed=1), values(3, low=0.5, seed=2)),
        sample(_probabilities(2, 3), _probabilities(2, 3, seed=1), values(2, 1, low=0.5, seed=2), reduction="none"),
        sample(_probabilities(2, 2), np.array([[0, 1], [1, 0]])),
        _shape_mismatch("bce_loss", "prediction"),
        rejected(
            ArgumentError,
            "bce_loss: prediction holds numbers from -1.0 to 2.0; probabilities lie between 0 and 1. For logits use "
            "bce_with_logits_loss.",
            np.array([-1.0, 2.0]),
            np.ones(2),
        ),
        rejected(
            ShapeError,
            "bce_loss: prediction has shape (2,) and weight has shape (3,), which does not broadcast to it.",
            np.full(2, 0.5),
            np.ones(2),
            weight=np.ones(3),
        ),
        rejected(
            ArgumentError,
            "bce_loss: reduction is None; it must be 'mean', 'sum' or 'none'.",
            np.full(2, 0.5),
            np.ones(2),
            reduction=None,
        ),
    ],
)
def bce_loss(prediction: Array, target: Array, weight: Array = None, reduction: str = "mean") -> Array:
    """Return the binary cross-entropy of probabilities: ``-target * log(p) - (1 - target) * log(1 - p)``, averaged.

    Logarithms count as no less than -100. Where the probabilities come from a sigmoid, `bce_with_logits_loss` of what
    goes into it is more accurate.

    Args:
        prediction: probabilities, of any shape.
        target: the same shape; 0, 1, or probabilities.
        weight: a factor for each loss, of a shape that broadcasts to that of prediction.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.
        ArgumentError: if prediction lies outside of 0 to 1.

    Example:
        >>> nt.bce_loss(np.array([0.5, 0.75]), np.array([1.0, 1.0]), reduction="none")
        array([0.69314718, 0.28768207])
    """
    prediction, target = as_pair(prediction, target)
    check_same_shape("bce_loss", prediction=prediction, target=target)
    check_reduction("bce_loss", reduction)
    return reduce(_weighted("bce_loss", "prediction", _bce_of_elements(prediction, target), weight), reduction)


@elementwise(
    partials={
        "logits": lambda g, logits, target: g * (sigmoid(logits) - target),
        "target": lambda g, logits: -g * logits,
    },
    flops=24,
    to_float=True,
    precision="widen",
    reference=lambda logits, target: target * np.logaddexp(0, -logits) + (1 - target) * np.logaddexp(0, logits),
    samples=lambda: [
        *(sample(values(*a), _probabilities(*b, seed=1)) for a, b in PAIRS),
        sample(np.array([-1000.0, 1000.0, -1000.0, 1000.0]), np.array([0.0, 1.0, 1.0, 0.0])),
    ],
)
def _bce_of_logits(logits: Array, target: Array, /) -> Array:
    """Return the binary cross-entropy of each logit."""
    # -t log s(x) - (1 - t) log(1 - s(x)) = max(x, 0) - t x + log(1 + exp(-|x|))
    return np.maximum(logits, 0) - logits * target + np.log1p(np.exp(-np.abs(logits)))


def _with_logits_reference(logits: Array, target: Array, weight: Array = None, pos_weight: Array = None) -> Array:
    good = target * np.logaddexp(0, -logits) * (1.0 if pos_weight is None else pos_weight)
    return (good + (1 - target) * np.logaddexp(0, logits)) * (1.0 if weight is None else weight)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    also=("binary_cross_entropy_with_logits", "bce_with_logits"),
    reference=reduced(_with_logits_reference),
    samples=lambda: [
        *(sample(values(*s), _probabilities(*s, seed=1), reduction="none") for s in SHAPES),
        sample(values(2, 3), _probabilities(2, 3, seed=1)),
        sample(values(2, 3), _probabilities(2, 3, seed=1), reduction="sum"),
        sample(values(2, 3), _probabilities(2, 3, seed=1), values(3, low=0.5, seed=2)),
        sample(values(2, 3), _probabilities(2, 3, seed=1), pos_weight=values(3, low=0.5, seed=2)),
        sample(
            values(2, 3), _probabilities(2, 3, seed=1), values(2, 1, low=0.5), pos_weight=values(3, low=0.5, seed=2)
        ),
        sample(values(2, 2), np.array([[0, 1], [1, 0]]), pos_weight=values(low=0.5)),
        sample(np.array([-1000.0, 1000.0]), np.array([1.0, 0.0]), pos_weight=np.array(2.0), reduction="none"),
        _shape_mismatch("bce_with_logits_loss", "logits"),
        rejected(
            ShapeError,
            "bce_with_logits_loss: logits has shape (2,) and pos_weight has shape (3,), which does not broadcast to "
            "it.",
            np.ones(2),
            np.ones(2),
            pos_weight=np.ones(3),
        ),
    ],
)
def bce_with_logits_loss(
    logits: Array, target: Array, weight: Array = None, *, pos_weight: Array = None, reduction: str = "mean"
) -> Array:
    """Return the binary cross-entropy of ``sigmoid(logits)``, exact also where sigmoid is 0 or 1 in its dtype.

    Args:
        logits: of any shape: what goes into the sigmoid.
        target: the same shape; 0, 1, or probabilities.
        weight: a factor for each loss, of a shape that broadcasts to that of logits.
        pos_weight: a factor for the loss of targets 1 only, of a shape that broadcasts to that of logits.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.bce_with_logits_loss(np.array([0.0, 1000.0]), np.array([1.0, 1.0]), reduction="none")
        array([0.69314718, 0.        ])
    """
    name = "bce_with_logits_loss"
    logits, target = as_pair(logits, target)
    check_same_shape(name, logits=logits, target=target)
    check_reduction(name, reduction)
    if pos_weight is None:
        loss = _bce_of_logits(logits, target)
    else:
        pos_weight = as_array(pos_weight, logits)
        check_fits(name, "logits", logits.shape, "pos_weight", pos_weight.shape)
        # w t softplus(-x) + (1 - t) softplus(x), with softplus(x) = x + softplus(-x)
        more = derived(mul, derived(sub, pos_weight, 1.0, beside=(logits, target)), target)
        factor = derived(add, more, 1.0)
        rest = derived(mul, derived(sub, 1.0, target, beside=(pos_weight, logits)), logits, beside=(pos_weight,))
        loss = rest + mul(factor, derived(softplus, derived(neg, logits, beside=(pos_weight, target))))
    return reduce(_weighted(name, "logits", loss, weight), reduction)


def _signs(*shape: int) -> Any:
    return np.where(values(*shape, seed=2) > 0, 1, -1)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    also=("hinge",),
    kinks="where target * prediction is 1; the derivative there is taken as 0",
    reference=reduced(lambda prediction, target: np.clip(1 - target * prediction, 0, None)),
    samples=lambda: [
        *(sample(values(*shape, avoid=(-1, 1)), _signs(*shape), reduction="none") for shape in SHAPES),
        sample(values(2, 3, avoid=(-1, 1)), _signs(2, 3)),
        sample(values(2, 3, avoid=(-1, 1)), _signs(2, 3), reduction="sum"),
        rejected(
            ShapeError,
            "hinge_loss: prediction has shape (3,) and target has shape (3, 1); the shapes must be equal, since "
            "losses do not broadcast. Did you mean to reshape one of them?",
            np.ones(3),
            np.ones((3, 1)),
        ),
        rejected(
            ArgumentError,
            "hinge_loss: target holds 0; targets are -1 or 1. For labels 0 and 1 pass 2 * target - 1.",
            np.ones(2),
            np.array([0, 1]),
        ),
    ],
)
def hinge_loss(prediction: Array, target: Array, reduction: str = "mean") -> Array:
    """Return the mean of ``max(0, 1 - target * prediction)``, for targets -1 and 1.

    Args:
        prediction: scores of any shape; their sign is the predicted class.
        target: -1 or 1 for each score.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.
        ArgumentError: if target holds anything else.

    Example:
        >>> nt.hinge_loss(np.array([0.5, -2.0]), np.array([1, -1]))
        array(0.25)
    """
    prediction, target = as_arrays(prediction, target)
    check_same_shape("hinge_loss", prediction=prediction, target=target)
    check_reduction("hinge_loss", reduction)
    check_signs("hinge_loss", target)
    prediction, target = as_pair(prediction, target)
    return reduce(relu(1.0 - prediction * target), reduction)
