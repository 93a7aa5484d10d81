"""A schedule that watches a loss: the rate falls when it no longer improves."""

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, OperandError
from .optimizer import Optimizer
from .parameters import is_number
from .schedules import check_groups, check_optimizer, check_saved


class ReduceLROnPlateau:
    """Multiply the rate by `factor` when a metric has not improved for more than `patience` steps.

    Args:
        optimizer: whose rates to set.
        mode: "min" if less is better, "max" if more is.
        factor: what the rate is multiplied by, below 1.
        patience: the number of steps without improvement to put up with.
        threshold: how much better counts as better.
        threshold_mode: "rel" if `threshold` is a part of the best value, "abs" if it is a difference.
        cooldown: the number of steps after a reduction in which nothing is counted.
        min_lr: the least rate; one number, or one for each group.
        eps: a smaller change of the rate is left out.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> for loss in [3.0, 2.0, 2.0, 2.0]:
        ...     schedule.step(loss)
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        title = "ReduceLROnPlateau"
        if mode not in ("min", "max"):
            raise ArgumentError(f'{title}: mode is {mode!r}; it must be "min" or "max".')
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f'{title}: threshold_mode is {threshold_mode!r}; it must be "rel" or "abs".')
        if not is_number(factor) or not 0 <= factor < 1:
            raise ArgumentError(
                f"{title}: factor is {factor!r}; it must be a number from 0 up to, but not including, 1."
            )
        self.optimizer = check_optimizer(title, optimizer)
        #: One for each group; a single number is for those that are added later as well.
        self.min_lrs = [float(min_lr)] if isinstance(min_lr, int | float) else list(map(float, min_lr))
        self.has_one_min_lr = isinstance(min_lr, int | float)
        self._least()
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self.last_epoch = 0

    def step(self, metrics: Any) -> None:
        """Look at the metric of a step, a number or a tensor of one element, and reduce the rates if it is time."""
        try:
            value = float(metrics)
        except (TypeError, ValueError) as error:
            raise OperandError(
                f"ReduceLROnPlateau.step: the metric is a number or a tensor of one element, not {metrics!r}."
            ) from error
        self.last_epoch += 1
        if self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self.threshold_mode == "abs":
            return sign * value < sign * self.best - self.threshold
        return sign * value < sign * self.best * (1.0 - sign * self.threshold)

    def _least(self) -> list[float]:
        """Return the least rate of each group."""
        if self.has_one_min_lr:
            self.min_lrs = self.min_lrs[:1] * len(self.optimizer.param_groups)
        check_groups("ReduceLROnPlateau", self.optimizer, len(self.min_lrs), "numbers in min_lr")
        return self.min_lrs

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self._least(), strict=True):
            rate = max(group["lr"] * self.factor, least)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """Return the rates that are set now, one for each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes and all that the schedule was made with."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned; the rates themselves are in the optimizer's state."""
        check_saved("ReduceLROnPlateau", saved, set(vars(self)))
        vars(self).update(saved)
