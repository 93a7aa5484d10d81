"""What losses have in common: checks of shapes and targets, reductions, and samples."""

from typing import Any

import numpy as np

from .._typing import Array
from ..dtypes import widened
from ..errors import ArgumentError, ShapeError
from .reductions import mean, sum
from .samples import SHAPES, rejected, sample, values
from .shapes import as_array, as_arrays

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(name: str, reduction: str, known: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise if `reduction` is not one of those known."""
    if reduction not in known:
        spelled = ", ".join(repr(word) for word in known[:-1])
        raise ArgumentError(f"{name}: reduction is {reduction!r}; it must be {spelled} or {known[-1]!r}.")


def check_same_shape(name: str, **operands: Array) -> None:
    """Raise if operands, given by name, differ in shape: a loss that broadcasts hides a mistake."""
    (first, a), *others = operands.items()
    for other, b in others:
        if a.shape != b.shape:
            raise ShapeError(
                f"{name}: {first} has shape {a.shape} and {other} has shape {b.shape}; the shapes must be equal, "
                "since losses do not broadcast. Did you mean to reshape one of them?"
            )


def as_pair(prediction: Array, target: Array) -> tuple[Array, Array]:
    """Return a prediction and its target as arrays or tensors; integers become floats, as wide as computing is."""
    prediction, target = as_arrays(prediction, target)
    if target.dtype.kind in "biu" and prediction.dtype.kind not in "biu":
        target = target.astype(widened(prediction.dtype))
    return prediction, target


def reduce(loss: Array, reduction: str) -> Array:
    """Return the mean or the sum of losses, or the losses."""
    if reduction == "none":
        return as_array(loss)
    return mean(loss) if reduction == "mean" else sum(loss)


def reduced(reference: Any) -> Any:
    """Return a reference with a parameter `reduction`, given that of the losses of elements."""

    def reference_of(*args: Any, reduction: str = "mean", **params: Any) -> Any:
        loss = np.asarray(reference(*args, **params))
        return loss if reduction == "none" else getattr(loss, reduction)()

    return reference_of


def check_signs(name: str, target: Array) -> None:
    """Raise if a target holds anything but -1 and 1."""
    signs: Any = getattr(target, "array", target)
    wrong = signs[np.abs(signs) != 1]
    if wrong.size:
        raise ArgumentError(
            f"{name}: target holds {wrong.flat[0]:g}; targets are -1 or 1. For labels 0 and 1 pass 2 * target - 1."
        )


def pair_samples(name: str, *more: Any) -> list[Any]:
    """Return samples of a loss of a prediction and a target of one shape, and the ways to get it wrong."""
    return [
        *(sample(values(*shape), values(*shape, seed=1), reduction="none") for shape in SHAPES),
        sample(values(2, 3), values(2, 3, seed=1)),
        sample(values(2, 3), values(2, 3, seed=1), reduction="sum"),
        sample(values(), values(seed=1)),
        sample(values(0), values(0), reduction="sum"),
        *more,
        rejected(
            ShapeError,
            f"{name}: prediction has shape (3,) and target has shape (3, 1); the shapes must be equal, since losses "
            "do not broadcast. Did you mean to reshape one of them?",
            np.ones(3),
            np.ones((3, 1)),
        ),
        rejected(
            ArgumentError,
            f"{name}: reduction is 'average'; it must be 'mean', 'sum' or 'none'.",
            np.ones(3),
            np.ones(3),
            reduction="average",
        ),
    ]
