"""What a training run did: numbers for each epoch and each step, as arrays, as text and as a plot."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import ArgumentError, MissingExtraError


class History:
    """The numbers of a run, by name: ``history["loss"]`` has one for each epoch.

    Attributes:
        step_losses: the loss of every step.
        is_interrupted: whether a signal ended the run early; its state was saved if it had a folder.

    Example:
        >>> history = nt.train.History()
        >>> history.add({"loss": 0.5}); history.add({"loss": 0.25})
        >>> history["loss"]
        array([0.5 , 0.25])
    """

    def __init__(self) -> None:
        self._epochs: dict[str, list[float]] = {}
        self._steps: list[float] = []
        self.is_interrupted = False

    def add(self, numbers: dict[str, float]) -> None:
        """Add the numbers of an epoch."""
        before = len(self)
        for name, number in numbers.items():
            if name not in self._epochs:
                self._epochs[name] = [float("nan")] * before
            self._epochs[name].append(number)

    def add_step(self, loss: float) -> None:
        """Add the loss of a step."""
        self._steps.append(loss)

    @property
    def step_losses(self) -> NDArray:
        """The loss of every step."""
        return np.array(self._steps)

    def __getitem__(self, name: str) -> NDArray:
        if name not in self._epochs:
            raise KeyError(f"history: there is no {name!r}; there are {', '.join(self._epochs) or 'no numbers yet'}.")
        return np.array(self._epochs[name])

    def __contains__(self, name: object) -> bool:
        return name in self._epochs

    def __iter__(self) -> Iterator[str]:
        return iter(self._epochs)

    def __len__(self) -> int:
        return max((len(numbers) for numbers in self._epochs.values()), default=0)

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {numbers[-1]:.4g}" for name, numbers in self._epochs.items())
        return f"<History: {len(self)} epochs{', last ' + last if last else ''}>"

    def state_dict(self) -> dict[str, Any]:
        """Return all numbers."""
        return {"epochs": {name: np.array(n) for name, n in self._epochs.items()}, "steps": np.array(self._steps)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._epochs = {name: np.asarray(numbers).tolist() for name, numbers in state["epochs"].items()}
        self._steps = np.asarray(state["steps"]).tolist()

    def plot(self, path: str | Path) -> None:
        """Draw the losses and the other numbers over the epochs into a PNG file. Needs the `plot` extra."""
        if not len(self):
            raise ArgumentError("History.plot: there are no epochs to draw yet.")
        try:
            figures = importlib.import_module("matplotlib.figure")
        except ImportError as error:
            raise MissingExtraError("History.plot: needs Matplotlib; pip install numtape[plot].") from error
        losses = [name for name in self if name.endswith("loss")]
        others = [name for name in self if name not in losses]
        panels = [names for names in (losses, others) if names]
        figure = figures.Figure(figsize=(5.0 * len(panels), 3.6), layout="constrained")
        for place, names in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), place)
            if names is losses:
                self._draw_steps(axes)
            for name in names:
                axes.plot(np.arange(1, len(self[name]) + 1), self[name], marker="o", markersize=3, label=name)
            axes.set_xlabel("epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
            axes.legend()
        figure.savefig(path, dpi=120)

    def _draw_steps(self, axes: Any) -> None:
        """Draw the loss of each step behind those of the epochs; the scale is logarithmic if losses allow it."""
        steps = self.step_losses
        if len(steps):
            epochs = np.arange(1, len(steps) + 1) * (len(self) / len(steps))
            axes.plot(epochs, steps, color="lightgray", linewidth=0.8, label="loss of each step", zorder=1)
        if (steps > 0).all():
            axes.set_yscale("log")
