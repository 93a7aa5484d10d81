"""Metrics that add up over batches: accuracy, top-k accuracy, confusion matrix, coefficient of determination."""

from typing import Any, Protocol

import numpy as np

from .._typing import NDArray
from ..core.value import array_of
from ..dtypes import check_unmasked
from ..errors import ArgumentError, ShapeError

#: The class number of what is to be ignored, as in `cross_entropy`.
IGNORED = -100


class Metric(Protocol):
    """What `fit` wants of a metric: it sees each batch, and can be saved amid an epoch."""

    name: str

    def reset(self) -> None:
        """Forget all batches."""

    def update(self, prediction: Any, target: Any) -> None:
        """Take a batch into account."""

    def compute(self) -> Any:
        """Return the metric of all batches since `reset`."""

    def state_dict(self) -> dict[str, Any]:
        """Return what was added up."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""


class _Sums:
    """Adds up an array of numbers; what a metric is made of."""

    name = "metric"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.sums = np.zeros(shape)

    def reset(self) -> None:
        """Forget all batches."""
        self.sums = np.zeros(self.sums.shape)

    def state_dict(self) -> dict[str, Any]:
        """Return what was added up."""
        return {"sums": self.sums.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.sums = np.array(state["sums"], np.float64)


class TopK(_Sums):
    """The share of samples whose class is among the `k` highest scores.

    Args:
        k: how many scores count.

    Example:
        >>> metric = nt.train.TopK(2)
        >>> metric.update(np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]), np.array([2, 2]))
        >>> metric.compute()
        0.5
    """

    def __init__(self, k: int) -> None:
        if not isinstance(k, int) or k < 1:
            raise ArgumentError(f"TopK: k is {k!r}; it must be a positive integer.")
        super().__init__((2,))
        self.k = k
        self.name = f"top{k}"

    def update(self, prediction: Any, target: Any) -> None:
        """Take a batch of scores (n, classes, ...) and class numbers (n, ...) into account."""
        scores, classes = _scores(type(self).__name__, prediction, target)
        own = np.take_along_axis(scores, classes[:, None], 1)
        # As argmax does, a tie goes to the class with the lower number. NaN is below nothing: such a sample is a miss.
        below = (scores < own) | ((scores == own) & (np.arange(scores.shape[1]) >= classes[:, None]))
        self.sums += np.array([np.count_nonzero((~below).sum(1) < self.k), len(classes)])

    def compute(self) -> float:
        """Return the share."""
        hits, count = self.sums
        return float(hits / count) if count else float("nan")


class Accuracy(TopK):
    """The share of samples whose class has the highest score.

    Example:
        >>> metric = nt.train.Accuracy()
        >>> metric.update(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
        >>> metric.compute()
        0.5
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.name = "accuracy"


class ConfusionMatrix(_Sums):
    """How often each class (row) was taken for each (column).

    Args:
        classes: the number of classes.

    Example:
        >>> metric = nt.train.ConfusionMatrix(2)
        >>> metric.update(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 1, 0]))
        >>> metric.compute().tolist()
        [[0, 1], [1, 1]]
    """

    name = "confusion"

    def __init__(self, classes: int) -> None:
        if not isinstance(classes, int) or classes < 1:
            raise ArgumentError(f"ConfusionMatrix: classes is {classes!r}; it must be a positive integer.")
        super().__init__((classes, classes))

    def update(self, prediction: Any, target: Any) -> None:
        """Take a batch of scores (n, classes, ...) and class numbers (n, ...) into account."""
        scores, classes = _scores("ConfusionMatrix", prediction, target)
        if scores.shape[1] != len(self.sums):
            raise ShapeError(
                f"ConfusionMatrix: predictions have {scores.shape[1]} classes, but the matrix has {len(self.sums)}."
            )
        np.add.at(self.sums, (classes, scores.argmax(1)), 1)

    def compute(self) -> NDArray:
        """Return the counts."""
        return self.sums.astype(np.int64)

    def __str__(self) -> str:
        counts = self.compute()
        width = max(len(str(counts.max(initial=0))), len(str(len(counts) - 1))) + 1
        head = "true\\taken".ljust(11) + "".join(str(i).rjust(width) for i in range(len(counts)))
        rows = [str(i).rjust(10) + " " + "".join(str(n).rjust(width) for n in row) for i, row in enumerate(counts)]
        return "\n".join([head, *rows])


class R2(_Sums):
    """The coefficient of determination: 1 for perfect predictions, 0 for those no better than the mean.

    Of several outputs to a sample it is the mean of theirs.

    Example:
        >>> metric = nt.train.R2()
        >>> metric.update(np.array([1.0, 2.0, 3.5]), np.array([1.0, 2.0, 3.0]))
        >>> metric.compute()
        0.875
    """

    name = "r2"

    def __init__(self) -> None:
        # For each output, count, mean and squared deviations of the targets, squared errors; means are updated, since
        # sums of squares cancel. The number of outputs is that of the first batch.
        super().__init__((4, 0))

    def reset(self) -> None:
        """Forget all batches."""
        self.sums = np.zeros((4, 0))

    def update(self, prediction: Any, target: Any) -> None:
        """Take a batch of predictions and targets of one shape into account."""
        predicted, wanted = (x.astype(np.float64, copy=False) for x in _arrays("R2", prediction, target))
        if predicted.shape != wanted.shape:
            raise ShapeError(
                f"R2: predictions have shape {predicted.shape} and targets {wanted.shape}; they must be equal."
            )
        if not wanted.size:
            return
        size = len(wanted) if wanted.ndim else 1
        predicted, wanted = predicted.reshape(size, -1), wanted.reshape(size, -1)
        if not self.sums.size:
            self.sums = np.zeros((4, wanted.shape[1]))
        if wanted.shape[1] != self.sums.shape[1]:
            raise ShapeError(
                f"R2: a sample has {wanted.shape[1]} outputs, and those before had {self.sums.shape[1]}; reset() first."
            )
        count, mean, deviation, error = self.sums
        total = count + size
        shift = wanted.mean(0) - mean
        self.sums[:] = (
            total,
            mean + shift * size / total,
            deviation + ((wanted - wanted.mean(0)) ** 2).sum(0) + shift**2 * count * size / total,
            error + ((predicted - wanted) ** 2).sum(0),
        )

    def compute(self) -> float:
        """Return the coefficient; NaN if all targets of an output are equal."""
        _, _, deviation, error = self.sums
        is_known = deviation.size > 0 and bool(deviation.all())
        return float(np.mean(1.0 - error / deviation)) if is_known else float("nan")


def _arrays(name: str, prediction: Any, target: Any) -> tuple[NDArray, NDArray]:
    """Return predictions and targets as arrays; raise if a mask would be lost."""
    predicted, wanted = array_of(prediction), array_of(target)
    check_unmasked(f"{name}: the prediction", predicted)
    check_unmasked(f"{name}: the target", wanted)
    return np.asarray(predicted), np.asarray(wanted)


def _scores(name: str, prediction: Any, target: Any) -> tuple[NDArray, NDArray]:
    """Return scores (n, classes) and class numbers (n,), without samples that are to be ignored."""
    scores, classes = _arrays(name, prediction, target)
    if scores.ndim < 2 or classes.shape != (scores.shape[0], *scores.shape[2:]):
        raise ShapeError(
            f"{name}: predictions have shape {scores.shape} and targets {classes.shape}; wanted are scores "
            "(n, classes, ...) and class numbers (n, ...); those of probabilities are their argmax(1)."
        )
    if classes.dtype.kind not in "iu":
        raise ArgumentError(f"{name}: targets have dtype {classes.dtype}; they must be class numbers, as integers.")
    scores, classes = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1]), classes.reshape(-1)
    if IGNORED in classes:
        scores, classes = scores[classes != IGNORED], classes[classes != IGNORED]
    if classes.size and not (classes.min() >= 0 and classes.max() < scores.shape[1]):
        wrong = classes[(classes < 0) | (classes >= scores.shape[1])][0]
        raise ArgumentError(
            f"{name}: a target is {wrong}, but there are {scores.shape[1]} classes, from 0 on; those to be ignored are "
            f"{IGNORED}."
        )
    return scores.astype(np.float64, copy=False), classes.astype(np.int64, copy=False)
