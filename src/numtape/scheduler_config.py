"""The configuration of the scheduler, which every Jacobian needs; `config` has the others, loaded when one is made."""

from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, TypeVar

from .errors import ArgumentError

E = TypeVar("E", bound=Enum)


class SchedulingStrategy(Enum):
    """How a Jacobian is computed."""

    AUTO = "auto"
    FORWARD = "forward"
    REVERSE = "reverse"
    MIXED = "mixed"


@dataclass(frozen=True)
class SchedulerConfig:
    """How a `HybridScheduler` chooses.

    Args:
        strategy: a fixed mode, or AUTO to choose by size and cost.
        forward_mode_threshold: at this ratio of outputs to inputs or above, AUTO takes plain forward mode.
        reverse_mode_threshold: at this ratio or below, AUTO takes plain reverse mode.
        enable_mixed_mode: whether AUTO may sweep both ways from a narrow place in the graph.

    Example:
        >>> nt.SchedulerConfig(strategy="forward").strategy
        <SchedulingStrategy.FORWARD: 'forward'>
    """

    strategy: SchedulingStrategy | str = SchedulingStrategy.AUTO
    forward_mode_threshold: float = 10.0
    reverse_mode_threshold: float = 0.1
    enable_mixed_mode: bool = True

    def __post_init__(self) -> None:
        strategy = as_member("SchedulerConfig", "strategy", SchedulingStrategy, self.strategy)
        object.__setattr__(self, "strategy", strategy)
        for name in ("forward_mode_threshold", "reverse_mode_threshold"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
                raise ArgumentError(f"SchedulerConfig: {name} is {value!r}; it must be a positive number.")
        if self.reverse_mode_threshold > self.forward_mode_threshold:
            raise ArgumentError(
                f"SchedulerConfig: reverse_mode_threshold is {self.reverse_mode_threshold} and forward_mode_threshold "
                f"{self.forward_mode_threshold}; the ratio of outputs to inputs for reverse mode must be the lower one."
            )
        if not isinstance(self.enable_mixed_mode, bool):
            raise ArgumentError(f"SchedulerConfig: enable_mixed_mode is {self.enable_mixed_mode!r}; it must be a bool.")


def as_member(owner: str, name: str, kind: type[E], value: Any) -> E:
    """Return a member of an enumeration, given as itself or by its name in any case."""
    if isinstance(value, kind):
        return value
    for member in kind:
        if isinstance(value, str) and value.lower() == member.name.lower():
            return member
    names = ", ".join(repr(member.name.lower()) for member in kind)
    raise ArgumentError(f"{owner}: {name} is {value!r}; it must be one of {names}.")
