"""Progress of a run: a bar where there is a terminal and tqdm, else a plain line for each epoch."""

import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO


class Progress:
    """Shows batches as they go by and the numbers of each epoch.

    Args:
        epochs: how many epochs there are in all.
        is_shown: True or False; None for a bar on a terminal with tqdm, and lines otherwise.
        out: where to write; the standard error stream if not given.
    """

    def __init__(self, epochs: int, is_shown: bool | None = None, out: TextIO | None = None) -> None:
        self.epochs = epochs
        self.is_shown = is_shown is not False
        self.out = out or sys.stderr
        self._bar_class = _find_tqdm() if self.is_shown and is_shown is None and self.out.isatty() else None
        self._bar: Any = None
        self._started = 0.0

    def batches(self, epoch: int, batches: Iterable[Any], total: int | None, done: int) -> Iterator[Any]:
        """Yield batches, and show how far the epoch is."""
        self._started = time.perf_counter()
        if self._bar_class is None:
            yield from batches
            return
        title = f"epoch {epoch}/{self.epochs}"
        with self._bar_class(batches, desc=title, total=total, initial=done, leave=False, file=self.out) as self._bar:
            yield from self._bar

    def show_loss(self, loss: float) -> None:
        """Show the loss of a step beside the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)

    def end_epoch(self, epoch: int, numbers: dict[str, float]) -> None:
        """Show the numbers of an epoch."""
        if self.is_shown:
            seconds = time.perf_counter() - self._started
            text = "  ".join(f"{name} {number:.4f}" for name, number in numbers.items())
            self.say(f"epoch {epoch}/{self.epochs}  {text}  {seconds:.1f} s")

    def say(self, text: str) -> None:
        """Write a line."""
        if self.is_shown:
            print(text, file=self.out, flush=True)


def _find_tqdm() -> Any:
    try:
        return importlib.import_module("tqdm").tqdm
    except ImportError:
        return None
