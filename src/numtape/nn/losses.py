"""Losses as layers; `reduction` is "mean", "sum" or "none"."""

from typing import Any

from .. import ops
from .._typing import Array
from ..errors import ArgumentError
from ..tensors import Tensor
from .checks import check_absent
from .module import Module


class _Loss(Module):
    """A loss with a reduction, and options that `repr` shows."""

    options: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ("mean", "sum", "none")
    reduction: str

    def _reduce_by(self, reduction: str) -> None:
        if reduction not in self.reductions:
            known = ", ".join(map(repr, self.reductions))
            raise ArgumentError(f"{type(self).__name__}: reduction is {reduction!r}; it must be one of {known}.")
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{name}={self.__dict__[name]!r}" for name in (*self.options, "reduction"))


class L1Loss(_Loss):
    """Return the mean of absolute differences.

    Example:
        >>> nt.nn.L1Loss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        0.25
    """

    def __init__(self, reduction: str = "mean") -> None:
        self._reduce_by(reduction)

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """Return the mean of squared differences.

    Example:
        >>> nt.nn.MSELoss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        0.125
    """

    def __init__(self, reduction: str = "mean") -> None:
        self._reduce_by(reduction)

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Return the mean of differences: squared below `beta`, absolute above.

    Example:
        >>> nt.nn.SmoothL1Loss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        0.0625
    """

    options = ("beta",)

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        self._reduce_by(reduction)
        self.beta = beta

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(_Loss):
    """Return the mean of differences: squared below `delta`, absolute above.

    Example:
        >>> nt.nn.HuberLoss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        0.0625
    """

    options = ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        self._reduce_by(reduction)
        self.delta = delta

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.huber_loss(input, target, delta=self.delta, reduction=self.reduction)


class HingeLoss(_Loss):
    """Return the mean of ``max(0, 1 - input * target)``, for targets of -1 and 1.

    Example:
        >>> nt.nn.HingeLoss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        0.25
    """

    def __init__(self, reduction: str = "mean") -> None:
        self._reduce_by(reduction)

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.hinge_loss(input, target, reduction=self.reduction)


class KLDivLoss(_Loss):
    """Return the divergence of log-probabilities from target probabilities.

    Example:
        >>> nt.nn.KLDivLoss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        -0.75
    """

    options = ("log_target",)
    reductions = ("mean", "batchmean", "sum", "none")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        self._reduce_by(reduction)
        self.log_target = log_target

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.kl_div_loss(input, target, log_target=self.log_target, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """Return the negative log-likelihood of counts; the input is the logarithm of their mean.

    Example:
        >>> nt.nn.PoissonNLLLoss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0])).item()
        1.4335016012191772
    """

    options = ("log_input", "eps")

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        check_absent("PoissonNLLLoss", "full", full, False)
        self._reduce_by(reduction)
        self.log_input = log_input
        self.eps = eps

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.poisson_nll_loss(input, target, log_input=self.log_input, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """Return the negative log-likelihood of targets with given means and variances.

    Example:
        >>> nt.nn.GaussianNLLLoss()(nt.tensor([0.5, 1.0]), nt.tensor([1.0, 1.0]), nt.tensor([1.0, 1.0])).item()
        0.0625
    """

    options = ("full", "eps")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        self._reduce_by(reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Array, target: Array, var: Array) -> Array:
        """Return the loss."""
        return ops.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """Return how far the angles of pairs are from what targets say: 1 for alike, -1 for unlike.

    Example:
        >>> nt.nn.CosineEmbeddingLoss()(nt.eye(2), nt.eye(2), nt.tensor([1.0, -1.0])).item()
        0.5
    """

    options = ("margin",)

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        self._reduce_by(reduction)
        self.margin = margin

    def forward(self, input1: Array, input2: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """Return by how much anchors are not nearer, by `margin`, to positives than to negatives.

    Example:
        >>> nt.nn.TripletMarginLoss()(nt.zeros(1, 2), nt.ones(1, 2), nt.ones(1, 2)).item()
        1.0
    """

    options = ("margin", "p", "eps", "swap")

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        self._reduce_by(reduction)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Array, positive: Array, negative: Array) -> Array:
        """Return the loss."""
        return ops.triplet_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class BCELoss(_Loss):
    """Return the cross-entropy of probabilities and targets between 0 and 1.

    Args:
        weight: a factor for each element, of a shape that broadcasts.
        reduction: "mean", "sum" or "none".

    Example:
        >>> nt.nn.BCELoss()(nt.tensor([0.5, 0.5]), nt.tensor([1.0, 0.0])).item()
        0.6931471824645996
    """

    weight: Tensor | None

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        self._reduce_by(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.bce_loss(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Return the cross-entropy of the sigmoid of logits and targets between 0 and 1.

    Args:
        weight: a factor for each element, of a shape that broadcasts.
        pos_weight: a factor for positive targets, of a shape that broadcasts.
        reduction: "mean", "sum" or "none".

    Example:
        >>> nt.nn.BCEWithLogitsLoss()(nt.tensor([0.0, 0.0]), nt.tensor([1.0, 0.0])).item()
        0.6931471824645996
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        self._reduce_by(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.bce_with_logits_loss(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class CrossEntropyLoss(_Loss):
    """Return the cross-entropy of logits and targets, which are class indices or probabilities.

    Args:
        weight: a factor for each class.
        ignore_index: a class index that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of a target is spread over all classes.

    Example:
        >>> nt.nn.CrossEntropyLoss()(nt.zeros(1, 4), nt.tensor([2])).item()
        1.3862943649291992
    """

    options = ("ignore_index", "label_smoothing")

    weight: Tensor | None

    def __init__(
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        self._reduce_by(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.cross_entropy_loss(
            input, target, self.weight, self.label_smoothing, self.ignore_index, reduction=self.reduction
        )


class NLLLoss(_Loss):
    """Return the negative of the log-probabilities of target classes.

    Args:
        weight: a factor for each class.
        ignore_index: a class index that does not count.
        reduction: "mean", "sum" or "none".

    Example:
        >>> nt.nn.NLLLoss()(nt.tensor([[-1.0, -2.0]]), nt.tensor([1])).item()
        2.0
    """

    options = ("ignore_index",)

    weight: Tensor | None

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        self._reduce_by(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return ops.nll_loss(input, target, self.weight, self.ignore_index, reduction=self.reduction)
