"""Losses of classes and probabilities: cross-entropy and its relatives."""

import functools
import math
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.apply import is_tracked
from ..core.composing import rounded_once
from ..core.declare import composed, differentiable
from ..core.op import NON_DIFFERENTIABLE
from ..core.record import warn_user
from ..core.value import Value
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from .arithmetic import div, neg
from .bounds import maximum
from .casting import in_dtype_of
from .exponential import log
from .loss_reductions import check_reduction, reduce
from .rectifiers import as_constant, as_number
from .reductions import sum
from .samples import Rejected, Sample, rejected, sample, values
from .selection import where
from .shapes import as_array, as_arrays
from .softmax import lane_max, lane_sum, log_softmax, softmax


def _class_axis(shape: Shape) -> int:
    """Return the axis of the classes: 1, or 0 for a single prediction."""
    return min(1, len(shape) - 1)


def _check_classes(name: str, logits_name: str, shape: Shape, target: NDArray, weight: Any, ignore_index: int) -> None:
    if not shape:
        raise ShapeError(f"{name}: {logits_name} has shape (); it needs an axis of classes.")
    axis = _class_axis(shape)
    expected = shape[:axis] + shape[axis + 1 :]
    if target.shape != expected:
        raise ShapeError(
            f"{name}: {logits_name} has shape {shape} and target has shape {target.shape}; class indices must have "
            f"shape {expected}, without the axis of classes ({axis})."
        )
    if target.dtype.kind not in "iu":
        raise DtypeError(
            f"{name}: target has shape {target.shape} and dtype {target.dtype}; class indices are integers. Did you "
            "mean target.astype(int)?"
        )
    count = shape[axis]
    if weight is not None and weight.shape != (count,):
        raise ShapeError(
            f"{name}: weight has shape {weight.shape}; it must hold one number for each of {count} classes."
        )
    if target.size and (target.min() < 0 or target.max() >= count):
        outside = target[((target < 0) | (target >= count)) & (target != ignore_index)]
        if outside.size:
            raise IndexingError(
                f"{name}: target holds class {outside.flat[0]}, but {logits_name} has shape {shape} with {count} "
                f"classes on axis {axis}; class indices are 0 to {count - 1}, or {ignore_index} (ignore_index)."
            )


def _shares(
    target: NDArray, weight: Any, count: int, label_smoothing: float, ignore_index: int, reduction: str, dtype: Any
) -> tuple[NDArray, Any, NDArray, Any]:
    """Return, for each prediction, its class and the factors of its own class's and of every class's loss; and a total.

    The loss is the sum (for "none", the list) of ``own * loss[class] + rest * sum(weight * loss)``, divided by the
    total. An ignored prediction has class 0 and factors 0.
    """
    is_counted = target != ignore_index
    classes = np.where(is_counted, target, 0)
    own: Any = is_counted.astype(dtype)
    rest = (own * (label_smoothing / count)).astype(dtype)
    if weight is not None:
        own = own * weight.astype(dtype)[classes]
    total: Any = 1.0
    if reduction == "mean":
        total = sum(own) if isinstance(own, Value) else float(own.sum(dtype=np.float64))
    return classes, (own * (1.0 - label_smoothing)).astype(dtype), rest, total


def _at(classes: NDArray, axis: int) -> tuple[Any, ...]:
    """Return the index of each prediction's class."""
    if classes.ndim == 1:
        return np.arange(classes.shape[0]), classes
    key: list[Any] = list(np.ogrid[tuple(slice(n) for n in classes.shape)])
    key.insert(axis, classes)
    return tuple(key)


def _along(x: Any, axis: int) -> Any:
    """Give an array of one element for each prediction an axis of classes; leave a scalar as it is."""
    return x.reshape((*x.shape[:axis], 1, *x.shape[axis:])) if x.shape else x


def _on_classes(weight: Any, shape: Shape, dtype: Any) -> Any:
    """Return the weights of the classes, along their axis."""
    if weight is None:
        return np.ones((), dtype)
    return weight.astype(dtype).reshape((-1,) + (1,) * (len(shape) - 1 - _class_axis(shape)))


def _classes_pull(
    g: Array, logits: Array, target: Any, weight: Any, label_smoothing: float, ignore_index: int, reduction: str
) -> Array:
    # With q the weighted target distribution: d(-sum q log_softmax(x)) = (sum(q) softmax(x) - q) dx
    target, weight = (getattr(x, "array", x) for x in (target, weight))
    shape, dtype = logits.shape, logits.dtype
    axis = _class_axis(shape)
    classes, own, rest, total = _shares(target, weight, shape[axis], label_smoothing, ignore_index, reduction, dtype)
    weights = _on_classes(weight, shape, dtype)
    both = own + rest * (shape[axis] if weight is None else weights.sum())
    is_ignored = target == ignore_index
    if is_ignored.any():
        # What an ignored prediction holds, even NaN, has no part.
        logits = where(_along(is_ignored, axis), 0.0, logits)
    pulled = softmax(logits, axis=axis)
    # If nothing counts, the value is NaN, but no logit has a part in it.
    g = g / (total or 1.0)
    if type(pulled) is np.ndarray and isinstance(g, np.ndarray | np.generic):
        pulled *= _along(both * g, axis)
        pulled[_at(classes, axis)] -= own * g
        if label_smoothing:
            pulled -= _along(rest * g, axis) * weights
        return pulled
    wanted = np.zeros(shape, dtype)
    wanted[_at(classes, axis)] = own
    wanted += _along(rest, axis) * weights
    return (pulled * _along(both, axis) - wanted) * _along(g, axis)


def _classes_push(
    t: Array, logits: Array, target: Any, weight: Any, label_smoothing: float, ignore_index: int, reduction: str
) -> Array:
    one = np.ones((), logits.dtype)
    slope = _classes_pull(one, logits, target, weight, label_smoothing, ignore_index, reduction)
    return (slope * t).sum(axis=_class_axis(logits.shape) if reduction == "none" else None)


_CLASSES = np.array([2, 0, 1, 1])


def _classes_reference(
    logits: Array,
    target: Array,
    weight: Array = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    from_logits: bool = True,
) -> Array:
    axis = min(1, logits.ndim - 1)
    x = np.moveaxis(logits, axis, -1)
    log_probs = x - np.logaddexp.reduce(x, axis=-1, keepdims=True) if from_logits else np.log(x)
    count = x.shape[-1]
    weights = np.ones(count) if weight is None else weight
    if target.dtype.kind == "f":
        smooth = np.moveaxis(target, axis, -1) * (1 - label_smoothing) + label_smoothing / count
        loss = -(smooth * weights * log_probs).sum(-1)
        return {"mean": loss.sum() / max(loss.size, 1), "sum": loss.sum(), "none": loss}[reduction]
    loss, shares = np.zeros(target.shape), np.zeros(target.shape)
    for place in np.ndindex(*target.shape):
        c = target[place]
        if c != ignore_index:
            q = np.eye(count)[c] * weights[c] * (1 - label_smoothing) + label_smoothing / count * weights
            loss[place], shares[place] = -(q * log_probs[place]).sum(), weights[c]
    return {"mean": loss.sum() / shares.sum(), "sum": loss.sum(), "none": loss}[reduction]


def _class_samples(name: str, logits: str, *skipped: str) -> list[Any]:
    """Return samples of a loss of predictions and class indices, but those with parameters in `skipped`."""
    weight = np.array([0.5, 1.0, 2.0])
    targets = np.array([[0, 2], [1, 1]])
    ignoring = np.array([2, -100, 1, -100])
    made: list[Any] = [
        sample(values(4, 3), _CLASSES),
        sample(values(4, 3), _CLASSES, reduction="sum"),
        sample(values(4, 3), _CLASSES, reduction="none"),
        sample(values(4, 3), _CLASSES.astype(np.uint8), weight=weight),
        sample(values(4, 3), _CLASSES, weight=weight, reduction="none"),
        sample(values(4, 3), ignoring),
        sample(values(4, 3), ignoring, weight=weight),
        sample(values(4, 3), ignoring, weight=weight, label_smoothing=0.2),
        sample(values(4, 3), ignoring, reduction="none", label_smoothing=0.2),
        sample(values(4, 3), _CLASSES, ignore_index=1),
        sample(values(4, 3), _CLASSES, label_smoothing=0.1),
        sample(values(4, 3), _CLASSES, label_smoothing=0.1, reduction="sum"),
        sample(values(4, 3), _CLASSES, label_smoothing=0.1, weight=weight, reduction="none"),
        sample(values(2, 3, 2), targets),
        sample(values(2, 3, 2), targets, reduction="none", weight=weight, label_smoothing=0.3),
        sample(values(2, 3, 2, 1), targets[..., None], reduction="none"),
        sample(values(3), np.array(1)),
        sample(values(3), np.array(2), reduction="none"),
        sample(values(2, 1), np.array([0, 0])),
        sample(values(0, 3), np.zeros(0, int), reduction="sum"),
        sample(values(0, 3), np.zeros(0, int), reduction="none"),
        rejected(
            ShapeError,
            f"{name}: {logits} has shape (4, 3) and target has shape (3,); class indices must have shape (4,), without "
            "the axis of classes (1).",
            np.ones((4, 3)),
            np.zeros(3, int),
        ),
        rejected(
            DtypeError,
            f"{name}: target has shape (4,) and dtype float64; class indices are integers. Did you "
            "mean target.astype(int)?",
            np.ones((4, 3)),
            np.zeros(4),
        ),
        rejected(
            IndexingError,
            f"{name}: target holds class 3, but {logits} has shape (4, 3) with 3 classes on axis 1; class indices are "
            "0 to 2, or -100 (ignore_index).",
            np.ones((4, 3)),
            np.array([0, 3, 1, 2]),
        ),
        rejected(
            ShapeError,
            f"{name}: weight has shape (2,); it must hold one number for each of 3 classes.",
            np.ones((4, 3)),
            _CLASSES,
            weight=np.ones(2),
        ),
        rejected(
            ArgumentError,
            f"{name}: reduction is 'average'; it must be 'mean', 'sum' or 'none'.",
            np.ones((4, 3)),
            _CLASSES,
            reduction="average",
        ),
    ]
    return [s for s in made if not set(skipped) & set(s.params)]


def _with_weight(made: Sample | Rejected) -> Sample | Rejected:
    """Return a sample with the weight as an operand."""
    params = made.params.copy()
    args = (*made.args, params.pop("weight")) if "weight" in params else made.args
    return made._replace(args=args, params=params)


@differentiable(
    vjps={"logits": _classes_pull, "target": NON_DIFFERENTIABLE, "weight": NON_DIFFERENTIABLE},
    jvps={"logits": _classes_push, "target": NON_DIFFERENTIABLE, "weight": NON_DIFFERENTIABLE},
    cost=lambda out, logits, target, weight, **params: 13 * math.prod(logits),
    to_float=True,
    precision="widen",
    reference=_classes_reference,
    samples=lambda: [_with_weight(s) for s in _class_samples("cross_entropy_loss", "logits")],
)
def _cross_entropy_of_classes(
    logits: Array,
    target: Array,
    weight: Array = None,
    /,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Array:
    """Return the cross-entropy of logits and class indices."""
    check_reduction("cross_entropy_loss", reduction)
    target = np.asarray(target)
    _check_classes("cross_entropy_loss", "logits", logits.shape, target, weight, ignore_index)
    shape, dtype = logits.shape, logits.dtype
    axis = _class_axis(shape)
    classes, own, rest, total = _shares(target, weight, shape[axis], label_smoothing, ignore_index, reduction, dtype)
    shifted: NDArray = np.asarray(logits - lane_max(logits, axis))
    picked = shifted[_at(classes, axis)]
    if label_smoothing:
        weights = _on_classes(weight, shape, dtype)
        smooth = (shifted * weights).sum(axis=axis)
        rest_total = rest * (shape[axis] if weight is None else weights.sum())
    np.exp(shifted, out=shifted)
    log_total = np.log(lane_sum(shifted, axis)).reshape(target.shape)
    loss = own * (log_total - picked)
    if label_smoothing:
        loss += rest_total * log_total - rest * smooth
    # An ignored prediction counts nothing even if it is not finite.
    loss = np.where(target == ignore_index, np.zeros((), dtype), loss)
    return loss if reduction == "none" else loss.sum() / total


def _nll(
    name: str,
    log_probs_name: str,
    log_probs: Array,
    target: Array,
    weight: Array,
    label_smoothing: float,
    ignore_index: int,
    reduction: str,
) -> Array:
    """Return the cross-entropy of log-probabilities and class indices."""
    target, weight = as_constant(name, "target", target), None if weight is None else as_array(weight, log_probs)
    shape, dtype = log_probs.shape, log_probs.dtype
    _check_classes(name, log_probs_name, shape, target, weight, ignore_index)
    axis = _class_axis(shape)
    classes, own, rest, total = _shares(target, weight, shape[axis], label_smoothing, ignore_index, reduction, dtype)
    loss = log_probs[_at(classes, axis)] * -own
    if label_smoothing:
        loss = loss - (log_probs * _on_classes(weight, shape, dtype)).sum(axis=axis) * rest
    loss = where(target == ignore_index, 0.0, loss)
    return loss if reduction == "none" else div(sum(loss), total)


def _nll_reference(log_probs: Array, target: Array, **params: Any) -> Array:
    return _classes_reference(np.exp(log_probs), target, from_logits=False, **params)


@composed(
    also=("nll",),
    to_float=True,
    rounds_once=True,
    promoted=("log_probs",),
    precision="widen",
    reference=_nll_reference,
    samples=lambda: _class_samples("nll_loss", "log_probs", "label_smoothing"),
)
def nll_loss(
    log_probs: Array, target: Array, weight: Array = None, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Return the negative log-likelihood of classes: ``-log_probs[target]``, averaged.

    Args:
        log_probs: of shape (batch, classes, ...) or (classes,), as `log_softmax` gives them.
        target: class indices, of shape (batch, ...) or ().
        weight: one factor for each class; the mean is then weighted too. Gradients flow to it.
        ignore_index: predictions with this target do not count.
        reduction: "mean" over what counts, "sum", or "none" for the loss of each prediction.

    Raises:
        ShapeError: if the shapes do not match.
        DtypeError: if target does not hold integers.
        IndexingError: if target holds a class that does not exist.

    Example:
        >>> nt.nll_loss(np.log(np.array([[0.5, 0.5], [0.25, 0.75]])), np.array([0, 0]), reduction="none")
        array([0.69314718, 1.38629436])
    """
    check_reduction("nll_loss", reduction)
    return _nll("nll_loss", "log_probs", as_array(log_probs), target, weight, 0.0, ignore_index, reduction)


_looked_at_logits = False


def _look_at_logits(logits: Any, axis: int) -> None:
    """Warn, on the first call of the process, if logits look like probabilities."""
    global _looked_at_logits
    if _looked_at_logits:
        return
    _looked_at_logits = True
    if logits.shape[axis] < 2 or not logits.size or logits.min() < 0 or logits.max() > 1:
        return
    if np.all(np.abs(logits.sum(axis=axis, dtype=np.float64) - 1) < 1e-4):
        warn_user(
            "cross_entropy_loss: the logits lie between 0 and 1 and sum to 1, as probabilities do. The loss applies "
            "softmax itself: pass what comes before softmax, or from_logits=False.",
        )


def _distributions(*shape: int) -> Any:
    drawn = values(*shape, low=0.1, high=1.0, seed=3)
    return drawn / drawn.sum(axis=_class_axis(shape), keepdims=True)


@composed(
    promoted=("logits", "target"),
    precision="widen",
    also=("cross_entropy",),
    kinks="with from_logits=False, where a probability is that small that it is clipped",
    reference=_classes_reference,
    samples=lambda: [
        *_class_samples("cross_entropy_loss", "logits"),
        sample(values(4, 3), _distributions(4, 3)),
        sample(values(4, 3), _distributions(4, 3), reduction="sum", label_smoothing=0.1),
        sample(values(4, 3), _distributions(4, 3), reduction="none", weight=np.array([0.5, 1.0, 2.0])),
        sample(values(2, 3, 2), _distributions(2, 3, 2)),
        sample(values(2, 3, 2), _distributions(2, 3, 2), weight=np.array([0.5, 1.0, 2.0]), label_smoothing=0.1),
        sample(values(3), _distributions(3)),
        sample(_distributions(4, 3), _CLASSES, from_logits=False),
        sample(_distributions(4, 3), _CLASSES, from_logits=False, label_smoothing=0.2, reduction="none"),
        sample(_distributions(4, 3), _distributions(4, 3), from_logits=False),
        sample(_distributions(2, 3, 2), np.array([[0, 2], [1, -100]]), from_logits=False),
        rejected(
            DtypeError,
            "cross_entropy_loss: target has the shape of logits, (2, 3), and dtype int64; class probabilities are "
            "floats, and class indices have shape (2,). Did you mean target.astype(float)?",
            np.ones((2, 3)),
            np.eye(2, 3, dtype=np.int64),
        ),
        rejected(
            ArgumentError,
            "cross_entropy_loss: label_smoothing is 1.5; it must lie between 0 and 1.",
            np.ones((4, 3)),
            _CLASSES,
            label_smoothing=1.5,
        ),
    ],
)
def cross_entropy_loss(
    logits: Array,
    target: Array,
    weight: Array = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    from_logits: bool = True,
) -> Array:
    """Return the cross-entropy between predicted and wanted classes: ``-sum(target * log_softmax(logits))``.

    Args:
        logits: of shape (batch, classes, ...) or (classes,): what comes before softmax.
        target: class indices of shape (batch, ...) or (), or class probabilities of the shape of logits.
        weight: one factor for each class; the mean over class indices is then weighted too. Gradients flow to it.
        label_smoothing: the share of the wanted probability that is spread over all classes.
        ignore_index: predictions with this class index do not count.
        reduction: "mean" over what counts, "sum", or "none" for the loss of each prediction.
        from_logits: False if logits are probabilities already; their logarithm is then taken, of no less than the
            dtype's resolution.

    Raises:
        ShapeError: if the shapes do not match.
        DtypeError: if class indices are no integers, or class probabilities no floats.
        IndexingError: if target holds a class that does not exist.

    Example:
        >>> nt.cross_entropy_loss(np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 0]), reduction="none")
        array([0.12692801, 2.12692801])
    """
    logits, target = as_arrays(logits, target)
    check_reduction("cross_entropy_loss", reduction)
    label_smoothing = as_number("cross_entropy_loss", "label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"cross_entropy_loss: label_smoothing is {label_smoothing}; it must lie between 0 and 1.")
    is_classes = target.shape != logits.shape or not logits.shape
    if not is_classes and target.dtype.kind in "biu":
        indices = logits.shape[: _class_axis(logits.shape)] + logits.shape[_class_axis(logits.shape) + 1 :]
        raise DtypeError(
            f"cross_entropy_loss: target has the shape of logits, {logits.shape}, and dtype {target.dtype}; class "
            f"probabilities are floats, and class indices have shape {indices}. Did you mean target.astype(float)?"
        )
    if from_logits and logits.shape and not _looked_at_logits:
        _look_at_logits(getattr(logits, "array", logits), _class_axis(logits.shape))
    if from_logits and is_classes and not (isinstance(weight, Value) and is_tracked(weight)):
        return _cross_entropy_of_classes(
            logits, target, weight, label_smoothing=label_smoothing, ignore_index=ignore_index, reduction=reduction
        )
    return _cross_entropy_by_steps(logits, target, weight, label_smoothing, ignore_index, reduction, from_logits)


@functools.partial(rounded_once, promoted=("logits", "target"))
def _cross_entropy_by_steps(
    logits: Array,
    target: Array,
    weight: Array,
    label_smoothing: float,
    ignore_index: int,
    reduction: str,
    from_logits: bool,
) -> Array:
    """Return the cross-entropy that no op computes alone."""
    logits = in_dtype_of(target, logits)
    if from_logits:
        log_probs = log_softmax(logits, axis=_class_axis(logits.shape))
    else:
        log_probs = log(maximum(logits, float(np.finfo(np.promote_types(logits.dtype, np.float32)).eps)))
    if target.shape != logits.shape or not logits.shape:
        return _nll("cross_entropy_loss", "logits", log_probs, target, weight, label_smoothing, ignore_index, reduction)
    return _cross_entropy_of_distributions(log_probs, target, weight, label_smoothing, reduction)


def _cross_entropy_of_distributions(
    log_probs: Array, target: Array, weight: Array, label_smoothing: float, reduction: str
) -> Array:
    shape = log_probs.shape
    axis = _class_axis(shape)
    if label_smoothing:
        target = target * (1.0 - label_smoothing) + label_smoothing / shape[axis]
    product = log_probs * target
    if weight is not None:
        weight = as_array(weight, log_probs)
        if weight.shape != (shape[axis],):
            raise ShapeError(
                f"cross_entropy_loss: weight has shape {weight.shape}; it must hold one number for each of "
                f"{shape[axis]} classes."
            )
        product = product * _on_classes(weight, shape, log_probs.dtype)
    return neg(reduce(sum(product, axis=axis), reduction))
