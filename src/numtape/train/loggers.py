"""Loggers: three methods that a training run calls, and a writer of CSV files."""

import csv
from pathlib import Path
from typing import Any, Protocol

from ..serialization.replacing import replace_file
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
            lines = self.path.read_text().splitlines()
            done = [line for line in lines[1:] if _epoch(line) <= settings["epoch"]]
            # Without an epoch that is done, the head may be cut off as well: it is written anew.
            kept = "".join(f"{line}\r\n" for line in [*lines[:1], *done]) if done else ""
            replace_file(self.path, [kept.encode()])

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """Write a line."""
        is_new = not self.path.exists() or not self.path.stat().st_size
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(["epoch", *numbers])
            writer.writerow([epoch, *numbers.values()])

    def finish(self, history: History) -> None:
        """Nothing is left to do: every line was written at once."""


def _epoch(line: str) -> float:
    """Return the epoch of a line; of one that a kill cut off, an epoch that never comes."""
    number, comma, _ = line.partition(",")
    return int(number) if comma and number.isdigit() else float("inf")
