"""Losses of distributions: the divergence of one from another, and likelihoods of what is observed."""

import math

import numpy as np

from .._typing import Array
from ..core.declare import composed
from ..errors import ArgumentError, ShapeError
from .arithmetic import add, div
from .comparisons import greater
from .exponential import exp, log, xlogy
from .loss_reductions import as_pair, check_reduction, check_same_shape, pair_samples, reduce, reduced
from .origins import derived, held
from .reductions import sum
from .samples import SHAPES, rejected, sample, values
from .selection import where
from .shapes import as_array


def _kl_div_reference(prediction: Array, target: Array, reduction: str = "mean", log_target: bool = False) -> Array:
    probability = np.exp(target) if log_target else target
    logarithm = target if log_target else np.log(np.where(target == 0, 1, target))
    loss = np.asarray(probability * (logarithm - prediction))
    if reduction == "batchmean":
        return loss.sum() / (len(loss) if loss.ndim else 1)
    return loss if reduction == "none" else getattr(loss, reduction)()


_KL_REDUCTIONS = ("mean", "batchmean", "sum", "none")


@composed(
    to_float=True,
    also=("kl_div",),
    rounds_once=True,
    precision="widen",
    reference=_kl_div_reference,
    samples=lambda: [
        *(sample(values(*s), values(*s, low=0.1, seed=1), reduction="none") for s in SHAPES),
        *(sample(values(3, 2), values(3, 2, low=0.1, seed=1), reduction=r) for r in _KL_REDUCTIONS),
        *(sample(values(3, 2), values(3, 2, seed=1), log_target=True, reduction=r) for r in _KL_REDUCTIONS),
        sample(values(), values(low=0.1, seed=1), reduction="batchmean"),
        sample(np.array([-1.0, -2.0]), np.array([0.0, 1.0]), skip_derivatives="log at 0"),
        rejected(
            ShapeError,
            "kl_div_loss: prediction has shape (3,) and target has shape (3, 1); the shapes must be equal, since "
            "losses do not broadcast. Did you mean to reshape one of them?",
            np.ones(3),
            np.ones((3, 1)),
        ),
        rejected(
            ArgumentError,
            "kl_div_loss: reduction is 'average'; it must be 'mean', 'batchmean', 'sum' or 'none'.",
            np.ones(3),
            np.ones(3),
            reduction="average",
        ),
    ],
)
def kl_div_loss(prediction: Array, target: Array, reduction: str = "mean", log_target: bool = False) -> Array:
    """Return the Kullback-Leibler divergence of predicted from wanted distributions: ``target * (log(target) - p)``.

    Args:
        prediction: log-probabilities, of any shape.
        target: probabilities of the same shape, or their logarithms if `log_target`.
        reduction: "batchmean", the sum over everything divided by the length of the first axis, is the divergence;
            "mean" over all elements, "sum", or "none" for the term of each element.
        log_target: whether target holds logarithms.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.kl_div_loss(np.log(np.array([[0.5, 0.5]])), np.array([[1.0, 0.0]]), reduction="batchmean")
        array(0.69314718)
    """
    prediction, target = as_pair(prediction, target)
    check_same_shape("kl_div_loss", prediction=prediction, target=target)
    check_reduction("kl_div_loss", reduction, _KL_REDUCTIONS)
    if log_target:
        loss = derived(exp, target, beside=(prediction,)) * (target - prediction)
    else:
        loss = derived(xlogy, target, target, beside=(prediction,)) - target * prediction
    if reduction == "batchmean":
        return div(sum(loss), loss.shape[0] if loss.shape else 1)
    return reduce(loss, reduction)


def _poisson_reference(prediction: Array, target: Array, log_input: bool = True, eps: float = 1e-8) -> Array:
    if log_input:
        return np.exp(prediction) - target * prediction
    return prediction - target * np.log(prediction + eps)


@composed(
    to_float=True,
    also=("poisson_nll",),
    rounds_once=True,
    precision="widen",
    reference=reduced(_poisson_reference),
    samples=lambda: pair_samples(
        "poisson_nll_loss",
        sample(values(2, 3, low=0.5), values(2, 3, seed=1), log_input=False),
        sample(values(2, 3, low=0.5), values(2, 3, seed=1), log_input=False, eps=0.1, reduction="none"),
    ),
)
def poisson_nll_loss(
    prediction: Array, target: Array, log_input: bool = True, eps: float = 1e-8, reduction: str = "mean"
) -> Array:
    """Return the negative log-likelihood of counts under a Poisson distribution, but for a term of target alone.

    Args:
        prediction: the logarithm of the expected count, or the count itself if `log_input` is False.
        target: counts, of the same shape.
        log_input: whether prediction is a logarithm.
        eps: added to an expected count before its logarithm is taken.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.poisson_nll_loss(np.array([0.0, 0.0]), np.array([1.0, 2.0]))
        array(1.)
    """
    prediction, target = as_pair(prediction, target)
    check_same_shape("poisson_nll_loss", prediction=prediction, target=target)
    check_reduction("poisson_nll_loss", reduction)
    if log_input:
        return reduce(derived(exp, prediction, beside=(target,)) - target * prediction, reduction)
    logarithm = derived(log, derived(add, prediction, eps, beside=(target,)))
    return reduce(prediction - target * logarithm, reduction)


def _gaussian_reference(prediction: Array, target: Array, var: Array, eps: float = 1e-6, full: bool = False) -> Array:
    spread = np.maximum(var, eps)
    loss = np.log(spread) / 2 + (prediction - target) ** 2 / spread / 2
    return loss + 0.5 * np.log(2 * np.pi) if full else loss


@composed(
    to_float=True,
    also=("gaussian_nll",),
    rounds_once=True,
    precision="widen",
    kinks="where var is eps or less; the derivative there is taken as that at eps from above",
    reference=reduced(_gaussian_reference),
    samples=lambda: [
        *(
            sample(values(*shape), values(*shape, seed=1), values(*shape, low=0.5, seed=2), reduction="none")
            for shape in SHAPES
        ),
        sample(values(2, 3), values(2, 3, seed=1), values(2, 3, low=0.5, seed=2)),
        sample(values(2, 3), values(2, 3, seed=1), values(2, 3, low=0.5, seed=2), full=True, reduction="sum"),
        sample(
            values(2, 3),
            values(2, 3, seed=1),
            values(2, 3, low=0.5, high=0.9, seed=2),
            eps=1.0,
            skip_derivatives="bound",
        ),
        sample(values(2, 3), values(2, 3, seed=1), values(2, 1, low=0.5, seed=2), reduction="none"),
        sample(values(3), values(3, seed=1), values(1, low=0.5, seed=2)),
        rejected(
            ShapeError,
            "gaussian_nll_loss: prediction has shape (2, 3) and var has shape (1, 3); var must have shape (2, 3), or "
            "(2, 1) for one variance along the last axis.",
            np.ones((2, 3)),
            np.ones((2, 3)),
            np.ones((1, 3)),
        ),
        rejected(
            ShapeError,
            "gaussian_nll_loss: prediction has shape (3,) and target has shape (1,); the shapes must be equal, since "
            "losses do not broadcast. Did you mean to reshape one of them?",
            np.ones(3),
            np.ones(1),
            np.ones(3),
        ),
    ],
)
def gaussian_nll_loss(
    prediction: Array, target: Array, var: Array, eps: float = 1e-6, full: bool = False, reduction: str = "mean"
) -> Array:
    """Return the negative log-likelihood of targets under normal distributions of given means and variances.

    Args:
        prediction: the means, of any shape.
        target: the same shape.
        var: the variances, of the same shape, or with a last axis of length 1; those below `eps` count as `eps`, but
            keep the derivative, so that they can grow again.
        eps: the least variance.
        full: add the constant ``log(2 pi) / 2``.
        reduction: "mean" over all elements, "sum", or "none" for the loss of each element.

    Raises:
        ShapeError: if the shapes differ.

    Example:
        >>> nt.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), np.array([1.0]))
        array(2.)
    """
    prediction, target = as_pair(prediction, target)
    var = as_array(var, prediction)
    check_same_shape("gaussian_nll_loss", prediction=prediction, target=target)
    shape = prediction.shape
    shared = (*shape[:-1], 1) if shape else ()
    if var.shape not in (shape, shared):
        raise ShapeError(
            f"gaussian_nll_loss: prediction has shape {shape} and var has shape {var.shape}; var must have shape "
            f"{shape}, or {shared} for one variance along the last axis."
        )
    check_reduction("gaussian_nll_loss", reduction)
    # The value is eps, the derivative that of var.
    spread = where(derived(greater, var, eps), var, var - held(var) + eps)
    difference = prediction - target
    loss = (log(spread) + difference * difference / spread) * 0.5
    return reduce(loss + 0.5 * math.log(2.0 * math.pi) if full else loss, reduction)
