"""The one-cycle schedule: the rate rises and falls once over all steps, and momentum the other way round."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .optimizer import Optimizer
from .schedules import LRScheduler, check_count, check_groups, check_optimizer, cosine_between, line_between

_CURVES = {"cos": cosine_between, "linear": line_between}


class OneCycleLR(LRScheduler):
    """Let the rate rise to `max_lr`, then fall far below where it began; step it once for each batch.

    Smith and Topin, 2018.

    Args:
        optimizer: whose rates to set.
        max_lr: the largest rate; one number, or one for each group.
        total_steps: the number of all steps; or give `epochs` and `steps_per_epoch`.
        epochs: how many epochs there are.
        steps_per_epoch: how many steps each of them has.
        pct_start: the part of the steps in which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: let momentum (or the first of betas) fall while the rate rises.
        base_momentum: the least momentum.
        max_momentum: the largest one.
        div_factor: by how much the first rate is smaller than `max_lr`.
        final_div_factor: by how much the last one is smaller than the first.
        three_phase: fall as long as it rose, and only then far down.
        last_epoch: the number of steps already taken, less one; -1 to start.

    Example:
        >>> optimizer = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.1, momentum=0.9)
        >>> schedule = nt.optim.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
        >>> [round(rate, 3) for rate in schedule.get_last_lr()]
        [0.04]
        >>> schedule.step()
        >>> schedule.step()
        >>> [round(rate, 3) for rate in schedule.get_last_lr()]
        [1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        groups = check_optimizer("OneCycleLR", optimizer).param_groups
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch.")
            total_steps = check_count("OneCycleLR", "epochs", epochs) * check_count(
                "OneCycleLR", "steps_per_epoch", steps_per_epoch
            )
        self.total_steps = check_count("OneCycleLR", "total_steps", total_steps)
        if not 0 <= pct_start <= 1:
            raise ArgumentError(f"OneCycleLR: pct_start is {pct_start!r}; it must be a number from 0 to 1.")
        if anneal_strategy not in _CURVES:
            raise ArgumentError(f'OneCycleLR: anneal_strategy is {anneal_strategy!r}; it must be "cos" or "linear".')
        self.anneal_strategy = anneal_strategy
        most = [float(max_lr)] * len(groups) if isinstance(max_lr, int | float) else [float(x) for x in max_lr]
        check_groups("OneCycleLR", optimizer, len(most), "numbers in max_lr")
        if cycle_momentum and not all("momentum" in group or "betas" in group for group in groups):
            raise ArgumentError(
                "OneCycleLR: the optimizer has no momentum or betas to cycle; use cycle_momentum=False."
            )
        self.cycle_momentum = cycle_momentum
        self._phases = self._plan(pct_start, three_phase)
        self._momenta = [max_momentum, base_momentum, max_momentum, max_momentum]
        self._rates = [
            [high / div_factor, high, *([high / div_factor] * three_phase), high / div_factor / final_div_factor]
            for high in most
        ]
        if last_epoch == -1:
            for group, rates in zip(groups, self._rates, strict=True):
                group["lr"] = group["initial_lr"] = rates[0]
        super().__init__(optimizer, last_epoch)

    def _plan(self, pct_start: float, three_phase: bool) -> list[float]:
        """Return the step at which each phase ends."""
        rise = float(pct_start * self.total_steps) - 1
        last = float(self.total_steps - 1)
        return [rise, float(2 * pct_start * self.total_steps) - 2, last] if three_phase else [rise, last]

    def _at(self, values: list[float], step: int) -> float:
        """Return where a quantity is that goes from value to value, phase by phase."""
        start = 0.0
        for phase, end in enumerate(self._phases):
            if step <= end or phase == len(self._phases) - 1:
                # A loop steps once after its last batch: the rate stays where it ended.
                part = min(1.0, (step - start) / (end - start)) if end != start else 1.0
                return _CURVES[self.anneal_strategy](values[phase], values[phase + 1], part)
            start = end
        raise AssertionError("a schedule has phases")

    def step(self) -> None:
        """Set the rates of the next step; raise after the last one."""
        if self.last_epoch >= self.total_steps:
            raise ArgumentError(
                f"OneCycleLR: all {self.total_steps} steps are taken; make the schedule with as many as it is stepped."
            )
        super().step()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned, and set the rates and momenta of that step."""
        super().load_state_dict(saved)
        self._cycle()

    def _set(self, chosen: Callable[[float, float, int], float]) -> None:
        check_groups("OneCycleLR", self.optimizer, len(self._rates), "largest rates; make it after the last group")
        for group, rates in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = self._at(rates, self.last_epoch)
        self._cycle()

    def _cycle(self) -> None:
        if self.cycle_momentum:
            for group in self.optimizer.param_groups[: len(self._rates)]:
                _set_momentum(group, self._at(self._momenta, self.last_epoch))


def _set_momentum(group: dict[str, Any], momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum
