"""Stop a run that no longer improves."""

from typing import Any

from ..errors import ArgumentError


class EarlyStopping:
    """Stops after `patience` epochs without improvement.

    Args:
        patience: how many epochs to wait.
        monitor: the number to look at; the validation loss, or the loss without validation, if not given.
        min_delta: the least change that counts as an improvement.
        maximize: whether more is better.

    Example:
        >>> stopping = nt.train.EarlyStopping(patience=2)
        >>> [stopping.should_stop({"loss": loss}) for loss in (1.0, 0.5, 0.6, 0.7)]
        [False, False, False, True]
    """

    def __init__(
        self, patience: int = 5, monitor: str | None = None, min_delta: float = 0.0, maximize: bool = False
    ) -> None:
        if not isinstance(patience, int) or patience < 1:
            raise ArgumentError(f"EarlyStopping: patience is {patience!r}; it must be a positive integer.")
        if min_delta < 0:
            raise ArgumentError(f"EarlyStopping: min_delta is {min_delta!r}; it must not be negative.")
        self.patience = patience
        self.monitor = monitor
        self.min_delta = min_delta
        self.maximize = maximize
        self.reset()

    def reset(self) -> None:
        """Forget all epochs."""
        self.best: float | None = None
        self.waited = 0

    def should_stop(self, numbers: dict[str, float]) -> bool:
        """Take the numbers of an epoch into account, and say whether to stop."""
        value = watched(self.monitor, numbers) * (-1.0 if self.maximize else 1.0)
        if value == value and (self.best is None or value < self.best - self.min_delta):  # NaN is no improvement.
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return the best number and how long ago it was."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.best, self.waited = state["best"], state["waited"]


def watched(name: str | None, numbers: dict[str, float]) -> float:
    """Return a number of an epoch by its name: by default the validation loss, or else the loss."""
    name = name or ("val_loss" if "val_loss" in numbers else "loss")
    if name not in numbers:
        raise ArgumentError(f"fit: there is no {name!r} to look at; there are {', '.join(numbers)}.")
    return numbers[name]
