"""Schedules: learning rates as functions of the number of steps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..counts import is_count
from ..errors import ArgumentError, OperandError
from .optimizer import Optimizer
from .parameters import is_number


class LRScheduler:
    """Sets the learning rates of an optimizer's groups from those that they start with and the number of steps taken.

    A subclass writes `rate`; or `next_rate`, to go on from the rate that is set, whoever set it. The first rates are
    set when the schedule is made; `step` sets the next ones and is called after ``optimizer.step()``, once for each
    epoch or each batch, whatever the schedule counts.

    Args:
        optimizer: whose rates to set.
        last_epoch: the number of steps already taken, less one; -1 to start.

    Example:
        >>> class Halving(nt.optim.LRScheduler):
        ...     def rate(self, base, step):
        ...         return base / 2 ** step
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.8)
        >>> schedule = Halving(optimizer)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.4]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = check_optimizer(type(self).__name__, optimizer)
        for group in optimizer.param_groups:
            if last_epoch == -1:
                # A schedule that was made before may have changed the rate: all start from the same one.
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"{type(self).__name__}: last_epoch is {last_epoch}, but the optimizer's groups have no "
                    '"initial_lr" to go on from; load the optimizer\'s state first.'
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch + 1
        self._set(self.first_rate)

    def rate(self, base: float, step: int) -> float:
        """Return the learning rate after `step` steps of a group that starts with `base`."""
        raise NotImplementedError(f"{type(self).__name__}: a subclass of LRScheduler defines rate().")

    def next_rate(self, rate: float, base: float, step: int) -> float:
        """Return the learning rate after `step` steps of a group that starts with `base` and has `rate` now."""
        return self.rate(base, step)

    def first_rate(self, rate: float, base: float, step: int) -> float:
        """Return the learning rate of a group that has `rate` when the schedule is made."""
        return self.next_rate(rate, base, step)

    def step(self) -> None:
        """Set the rates of the next step; a group that was added later starts from the rate that it came with."""
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            self.base_lrs.append(float(group.setdefault("initial_lr", group["lr"])))  # type: ignore[arg-type]
        self.last_epoch += 1
        self._set(self.next_rate)

    def _set(self, chosen: Callable[[float, float, int], float]) -> None:
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = chosen(group["lr"], base, self.last_epoch)

    def get_last_lr(self) -> list[float]:
        """Return the rates that are set now, one for each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes and all that the schedule was made with, except for functions."""
        kept = {name: value for name, value in vars(self).items() if name != "optimizer" and not callable(value)}
        return {**kept, "last_lr": self.get_last_lr()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned, and set the rates that were set then."""
        check_saved(type(self).__name__, saved, {*vars(self), "last_lr"})
        vars(self).update({name: value for name, value in saved.items() if name != "last_lr"})
        for group, rate in zip(self.optimizer.param_groups, saved.get("last_lr", ()), strict=False):
            group["lr"] = rate


class ChainedLR(LRScheduler):
    """A schedule that changes the rate that is set: it works along with others, and with changes by hand.

    A subclass writes `factor`.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedules = [nt.optim.ExponentialLR(optimizer, 0.5), nt.optim.StepLR(optimizer, 2, gamma=0.25)]
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates += schedules[0].get_last_lr()
        ...     for schedule in schedules:
        ...         schedule.step()
        >>> rates
        [1.0, 0.5, 0.0625]
    """

    def factor(self, step: int) -> float:
        """Return what the rate is multiplied by in the step with this number, from 1 on."""
        raise NotImplementedError(f"{type(self).__name__}: a subclass of ChainedLR defines factor().")

    def next_rate(self, rate: float, base: float, step: int) -> float:
        """Return the rate that is set, times the factor."""
        return rate * self.factor(step)

    def first_rate(self, rate: float, base: float, step: int) -> float:
        """Return the rate that is set."""
        return rate


def check_optimizer(title: str, optimizer: Any) -> Optimizer:
    """Return the optimizer, or raise if it is none."""
    if not isinstance(optimizer, Optimizer):
        raise OperandError(f"{title}: takes the optimizer whose learning rates to set, not {type(optimizer).__name__}.")
    return optimizer


def check_groups(title: str, optimizer: Optimizer, count: int | None, what: str) -> None:
    """Raise if a schedule has something for each group, and there are other groups, added later for example."""
    groups = len(optimizer.param_groups)
    if count not in (None, groups):
        raise ArgumentError(f"{title}: there are {groups} groups and {count} {what}.")


def check_saved(title: str, saved: Any, known: set[str]) -> None:
    """Raise if something is not the state of such a schedule."""
    if not isinstance(saved, Mapping):
        raise OperandError(
            f"{title}.load_state_dict: takes the dict that state_dict returned, not {type(saved).__name__}."
        )
    unknown = sorted(str(name) for name in saved if name not in known)
    if unknown:
        raise ArgumentError(f"{title}.load_state_dict: {', '.join(unknown)} is not of this schedule.")


def check_factor(title: str, name: str, value: Any) -> float:
    """Return what rates are multiplied by, or raise if it is not a finite number from 0 on."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ArgumentError(f"{title}: {name} is {value!r}; it must be a finite number from 0 on.")
    return float(value)


def check_count(title: str, name: str, value: Any) -> int:
    """Return a number of steps, or raise if it is not an integer above 0."""
    if not is_count(value):
        raise ArgumentError(f"{title}: {name} is {value!r}; it must be an integer above 0.")
    return int(value)


class LambdaLR(LRScheduler):
    """The first rate times a function of the step; one function for all groups, or one for each.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.8)
        >>> schedule = nt.optim.LambdaLR(optimizer, lambda step: 0.5 ** step)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.4]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        check_optimizer("LambdaLR", optimizer)
        functions = [lr_lambda] if callable(lr_lambda) else lr_lambda
        if not isinstance(functions, Sequence) or not all(map(callable, functions)):
            raise ArgumentError(f"LambdaLR: lr_lambda is {lr_lambda!r}; it must be a function of the step, or a list.")
        # Functions, so that a saved state leaves them out.
        self._count: Callable[[], int | None] = lambda: None if callable(lr_lambda) else len(functions)
        self._factor: Callable[[int, int], float] = lambda group, step: functions[0 if callable(lr_lambda) else group](
            step
        )
        super().__init__(optimizer, last_epoch)

    def _set(self, chosen: Callable[[float, float, int], float]) -> None:
        check_groups("LambdaLR", self.optimizer, self._count(), "functions")
        for number, group in enumerate(self.optimizer.param_groups):
            factor = self._factor(number, self.last_epoch)
            group["lr"] = self.base_lrs[number] * check_factor("LambdaLR", "what the function returned", factor)


class StepLR(ChainedLR):
    """Multiply the rate by `gamma` every `step_size` steps.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += schedule.get_last_lr()
        ...     schedule.step()
        >>> rates
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = check_count("StepLR", "step_size", step_size)
        self.gamma = check_factor("StepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """Return `gamma` after each whole stretch of `step_size` steps, else 1."""
        return self.gamma if step % self.step_size == 0 else 1.0


class MultiStepLR(ChainedLR):
    """Multiply the rate by `gamma` at each of the `milestones`.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if not isinstance(milestones, Iterable) or not all(map(is_number, listed := list(milestones))):
            raise ArgumentError(f"MultiStepLR: milestones is {milestones!r}; it must be a list of numbers of steps.")
        self.milestones = sorted(listed)
        self.gamma = check_factor("MultiStepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """Return `gamma` for each time that the step is among the milestones."""
        return float(self.gamma ** self.milestones.count(step))

    def first_rate(self, rate: float, base: float, step: int) -> float:
        """Return the rate that is set, or if the first step is a milestone, that of after it."""
        return self.next_rate(rate, base, step)


class ExponentialLR(ChainedLR):
    """Multiply the rate by `gamma` in each step.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.ExponentialLR(optimizer, gamma=0.5)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = check_factor("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """Return `gamma`."""
        return self.gamma


class PolynomialLR(ChainedLR):
    """Let the rate fall to zero over `total_iters` steps, as a power of what is left.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.PolynomialLR(optimizer, total_iters=4, power=2.0)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5625]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = check_count("PolynomialLR", "total_iters", total_iters)
        self.power = power
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """Return by how much ``(1 - step / total_iters) ** power`` falls in this step; 1 after the last one."""
        if step > self.total_iters:
            return 1.0
        left, left_before = 1.0 - step / self.total_iters, 1.0 - (step - 1) / self.total_iters
        return float((left / left_before) ** self.power)


class CosineAnnealingLR(ChainedLR):
    """Let the rate fall from the first one to `eta_min` over `T_max` steps, along half a cosine; then it rises again.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.CosineAnnealingLR(optimizer, T_max=2)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = check_count("CosineAnnealingLR", "T_max", T_max)
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """Return by how much the height of the cosine above `eta_min` changes in this step."""
        return (1.0 + math.cos(math.pi * step / self.T_max)) / (1.0 + math.cos(math.pi * (step - 1) / self.T_max))

    def next_rate(self, rate: float, base: float, step: int) -> float:
        """Return the rate with its height above `eta_min` changed; from the foot of the cosine it rises anew."""
        if (step - 1 - self.T_max) % (2 * self.T_max) == 0:
            return rate + (base - self.eta_min) * (1.0 - math.cos(math.pi / self.T_max)) / 2.0
        return self.factor(step) * (rate - self.eta_min) + self.eta_min


class WarmupCosineLR(LRScheduler):
    """Let the rate rise in a line over `warmup_steps`, then fall along half a cosine to `eta_min` at `total_steps`.

    Args:
        optimizer: whose rates to set.
        warmup_steps: the number of steps up to the full rate; the first one has ``1 / warmup_steps`` of it.
        total_steps: the number of all steps; after them the rate stays at `eta_min`.
        eta_min: the last rate.
        last_epoch: the number of steps already taken, less one; -1 to start.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=1.0)
        >>> schedule = nt.optim.WarmupCosineLR(optimizer, warmup_steps=2, total_steps=4)
        >>> rates = []
        >>> for batch in range(5):
        ...     rates += schedule.get_last_lr()
        ...     schedule.step()
        >>> rates
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, total_steps: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.total_steps = check_count("WarmupCosineLR", "total_steps", total_steps)
        if not isinstance(warmup_steps, int) or not 0 <= warmup_steps < total_steps:
            raise ArgumentError(
                f"WarmupCosineLR: warmup_steps is {warmup_steps!r}; it must be an integer from 0 up to, but not "
                f"including, total_steps, {total_steps}."
            )
        self.warmup_steps = warmup_steps
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, step: int) -> float:
        """Return the rate on the line, on the cosine, or after both."""
        if step < self.warmup_steps:
            return base * (step + 1) / self.warmup_steps
        done = (min(step, self.total_steps) - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return cosine_between(base, self.eta_min, done)


def cosine_between(start: float, end: float, part: float) -> float:
    """Return the value at `part` of the way from `start` to `end` along half a cosine."""
    return end + (start - end) / 2.0 * (1.0 + math.cos(math.pi * part))


def line_between(start: float, end: float, part: float) -> float:
    """Return the value at `part` of the way from `start` to `end` along a line."""
    return (end - start) * part + start
