"""Losses of embeddings: vectors that should lie near each other or apart."""

import numpy as np

from .._typing import Array
from ..core.declare import composed
from ..errors import ArgumentError, ShapeError
from .arithmetic import abs, add, mul, pow, sub
from .comparisons import equal, less
from .loss_reductions import check_reduction, check_same_shape, check_signs, reduce, reduced
from .origins import derived
from .rectifiers import as_number, relu
from .reductions import max, sum
from .samples import rejected, sample, values
from .selection import where
from .shapes import as_arrays


def _cosine(a: Array, b: Array) -> Array:
    """Return the cosine of the angle between vectors on the last axis; 0, nearly, if one of them is 0."""
    squares = [derived(sum, derived(mul, x, x, beside=(a, b)), axis=-1) for x in (a, b)]
    product = derived(add, squares[0], 1e-12) * derived(add, squares[1], 1e-12)
    return (a * b).sum(axis=-1) / product**0.5


def _cosine_reference(a: Array, b: Array, target: Array, margin: float = 0.0) -> Array:
    cosine = np.vecdot(a, b) / np.sqrt((np.vecdot(a, a) + 1e-12) * (np.vecdot(b, b) + 1e-12))
    return np.where(target == 1, 1 - cosine, np.clip(cosine - margin, 0, None))


@composed(
    to_float=True,
    also=("cosine_embedding",),
    rounds_once=True,
    promoted=("a", "b"),
    precision="widen",
    kinks="where the cosine is equal to margin; the derivative there is taken as 0",
    reference=reduced(_cosine_reference),
    samples=lambda: [
        sample(values(4, 3), values(4, 3, seed=1), np.array([1, -1, 1, -1])),
        sample(values(4, 3), values(4, 3, seed=1), np.array([1, -1, 1, -1]), reduction="sum"),
        sample(values(4, 3), values(4, 3, seed=1), np.array([1, -1, 1, -1]), reduction="none"),
        sample(values(4, 3), values(4, 3, seed=1), -np.ones(4, int), margin=-1.0, reduction="none"),
        sample(values(4, 3), values(4, 3, seed=1), -np.ones(4, int), margin=0.9),
        sample(values(3), values(3, seed=1), np.array(1)),
        sample(values(3), values(3, seed=1), np.array(-1), margin=-1.0),
        sample(values(2, 1), values(2, 1, seed=1), np.array([1, -1]), reduction="none"),
        sample(values(0, 3), values(0, 3), np.ones(0, int), reduction="sum"),
        rejected(
            ShapeError,
            "cosine_embedding_loss: a and b have shape (4, 3) and target has shape (3,); target must have shape (4,), "
            "one element for each pair of vectors.",
            np.ones((4, 3)),
            np.ones((4, 3)),
            np.ones(3),
        ),
        rejected(
            ShapeError,
            "cosine_embedding_loss: a has shape (4, 3) and b has shape (3,); the shapes must be equal, since losses "
            "do not broadcast. Did you mean to reshape one of them?",
            np.ones((4, 3)),
            np.ones(3),
            np.ones(4),
        ),
    ],
)
def cosine_embedding_loss(a: Array, b: Array, target: Array, margin: float = 0.0, reduction: str = "mean") -> Array:
    """Return ``1 - cos(a, b)`` for pairs that belong together and ``max(0, cos(a, b) - margin)`` for the others.

    Args:
        a: of shape (..., features).
        b: the same shape.
        target: of shape (...); 1 for a pair that belongs together and -1 for one that does not.
        margin: the cosine up to which pairs of target -1 cost nothing.
        reduction: "mean" over all pairs, "sum", or "none" for the loss of each pair.

    Raises:
        ShapeError: if the shapes do not match.
        ArgumentError: if target holds anything but -1 and 1.

    Example:
        >>> nt.cosine_embedding_loss(np.array([1.0, 0.0]), np.array([0.0, 2.0]), np.array(1))
        array(1.)
    """
    a, b, target = as_arrays(a, b, target)
    check_same_shape("cosine_embedding_loss", a=a, b=b)
    check_reduction("cosine_embedding_loss", reduction)
    if target.shape != a.shape[:-1] or not a.shape:
        raise ShapeError(
            f"cosine_embedding_loss: a and b have shape {a.shape} and target has shape {target.shape}; target must "
            f"have shape {a.shape[:-1]}, one element for each pair of vectors."
        )
    check_signs("cosine_embedding_loss", target)
    cosine = _cosine(a, b)
    return reduce(where(derived(equal, target, 1, beside=(a, b)), 1.0 - cosine, relu(cosine - margin)), reduction)


def _distance(a: Array, b: Array, beside: Array, p: float, eps: float) -> Array:
    """Return the p-norm of ``a - b + eps`` on the last axis."""
    difference = derived(add, derived(sub, a, b, beside=(beside,)), eps)
    if p == 2:
        return derived(pow, derived(sum, derived(mul, difference, difference), axis=-1), 0.5)
    if p == np.inf:
        return derived(max, derived(abs, difference), axis=-1)
    return derived(pow, derived(sum, derived(pow, derived(abs, difference), p), axis=-1), 1.0 / p)


def _triplet_reference(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
) -> Array:
    near, far = (np.linalg.norm(anchor - b + eps, p, axis=-1) for b in (positive, negative))
    if swap:
        far = np.minimum(far, np.linalg.norm(positive - negative + eps, p, axis=-1))
    return np.clip(near - far + margin, 0, None)


@composed(
    to_float=True,
    also=("triplet_margin_loss", "triplet"),
    rounds_once=True,
    precision="widen",
    kinks="where the distances differ by margin, and where the vectors of a pair are equal",
    reference=reduced(_triplet_reference),
    samples=lambda: [
        sample(values(4, 3), values(4, 3, seed=1), values(4, 3, seed=2)),
        sample(values(4, 3), values(4, 3, seed=1), values(4, 3, seed=2), reduction="sum"),
        sample(values(4, 3), values(4, 3, seed=1), values(4, 3, seed=2), reduction="none", margin=5.0),
        sample(values(4, 3), values(4, 3, seed=1), values(4, 3, seed=2), swap=True, margin=5.0),
        sample(values(4, 3), values(4, 3, seed=1) + 5.0, values(4, 3, seed=2) - 5.0, p=3, margin=5.0),
        sample(values(4, 3), values(4, 3, seed=1) + 5.0, values(4, 3, seed=2) - 5.0, p=np.inf, margin=5.0),
        sample(values(3), values(3, seed=1), values(3, seed=2), margin=5.0),
        sample(values(2, 2, 3), values(2, 2, 3, seed=1), values(2, 2, 3, seed=2), margin=5.0),
        sample(values(0, 3), values(0, 3), values(0, 3), reduction="sum"),
        rejected(
            ShapeError,
            "triplet_loss: anchor has shape (4, 3) and negative has shape (3,); the shapes must be equal, since losses "
            "do not broadcast. Did you mean to reshape one of them?",
            np.ones((4, 3)),
            np.ones((4, 3)),
            np.ones(3),
        ),
    ],
)
def triplet_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    """Return ``max(0, d(anchor, positive) - d(anchor, negative) + margin)``, with the distance d of the p-norm.

    Args:
        anchor: of shape (..., features).
        positive: the same shape; what should lie near the anchor.
        negative: the same shape; what should lie farther away, by `margin` at least.
        margin: the wanted difference of the distances.
        p: the norm's exponent; infinity for the largest of the differences.
        eps: added to each difference, so that the distance of equal vectors is differentiable.
        swap: take the distance from positive to negative if it is smaller than that from the anchor.
        reduction: "mean" over all triplets, "sum", or "none" for the loss of each triplet.

    Raises:
        ShapeError: if the shapes differ.
        ArgumentError: if p is not positive.

    Example:
        >>> anchor, positive, negative = np.array([0.0, 0.0]), np.array([0.0, 3.0]), np.array([2.0, 0.0])
        >>> float(nt.triplet_loss(anchor, positive, negative, eps=0.0))
        2.0
    """
    anchor, positive, negative = as_arrays(anchor, positive, negative)
    check_same_shape("triplet_loss", anchor=anchor, positive=positive, negative=negative)
    check_reduction("triplet_loss", reduction)
    p = as_number("triplet_loss", "p", p)
    if not p > 0:
        raise ArgumentError(f"triplet_loss: p is {p!r}; the exponent of a norm is positive.")
    far = _distance(anchor, negative, positive, p, eps)
    if swap:
        other = _distance(positive, negative, anchor, p, eps)
        far = where(derived(less, other, far), other, far)
    return reduce(relu(_distance(anchor, positive, negative, p, eps) - far + margin), reduction)
