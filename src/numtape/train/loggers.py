"""Loggers: three methods that a training run calls, and a writer of CSV files."""

import csv
from pathlib import Path
from typing import Any, Protocol

from .history import History


class Logger(Protocol):
    """What `fit` tells about a run."""

    def start(self, settings: dict[str, Any]) -> None:
        """The run begins, or goes on."""

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """An epoch is over."""

    def finish(self, history: History) -> None:
        """The run is over."""


class CSVLogger:
    """Writes a line for each epoch; a resumed run goes on in the same file.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def start(self, settings: dict[str, Any]) -> None:
        """Begin a new file; if the run goes on, keep the lines of the epochs that are done."""
        if not settings.get("is_resumed"):
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            head, *lines = self.path.read_text().splitlines()
            done = [line for line in lines if int(line.split(",")[0]) <= settings["epoch"]]
            self.path.write_text("\n".join([head, *done]) + "\n")

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """Write a line."""
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(["epoch", *numbers])
            writer.writerow([epoch, *numbers.values()])

    def finish(self, history: History) -> None:
        """Nothing is left to do: every line was written at once."""
