"""Keep the last few saved states of a run, and the best one."""

import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from ..core.record import warn_user
from ..errors import ArgumentError, DamagedFileError, SavedFileError
from .reading import load
from .writing import save

_NAME = re.compile(r"step-(\d+)(?:\.metric-(.+))?\.safetensors")


class _Saved(NamedTuple):
    step: int
    metric: float | None
    path: Path


class Checkpoints:
    """Keep the states of a run in a directory: the last few, and the best one by a metric.

    Names tell step and metric (``step-00000020.metric-0.25.safetensors``), so there is no index to lose. A file is
    removed only after a newer one is complete and on the disk. `load_latest` and `load_best` pass over damaged files
    with a warning. One process should save to a directory; any number may read.

    Args:
        directory: where the files are; made if it does not exist.
        keep: how many of the latest to keep. The best one is kept beyond them.
        mode: "min" if a lower metric is better, as for a loss, or "max".

    Example:
        >>> import tempfile
        >>> checkpoints = nt.Checkpoints(tempfile.mkdtemp(), keep=2)
        >>> for step, loss in enumerate([0.9, 0.2, 0.4, 0.3]):
        ...     path = checkpoints.save(step, {"step": step}, metric=loss)
        >>> [path.name for path in checkpoints]
        ['step-00000001.metric-0.2.safetensors', 'step-00000002.metric-0.4.safetensors',
         'step-00000003.metric-0.3.safetensors']
        >>> checkpoints.load_latest(), checkpoints.load_best()
        ({'step': 3}, {'step': 1})
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3, mode: str = "min") -> None:
        if type(keep) is not int or keep < 1:
            raise ArgumentError(f"Checkpoints: keep is {keep!r}; it is the number of states to keep, 1 or more.")
        if mode not in ("min", "max"):
            raise ArgumentError(f"Checkpoints: mode is {mode!r}; it is 'min' or 'max'.")
        self.directory = Path(directory)
        self.keep = keep
        self.mode = mode
        self.directory.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, tree: Any, metric: float | None = None) -> Path:
        """Save a tree as the state after `step`, remove what need not be kept, and return the file's path.

        Args:
            step: a number that grows with the run; a state that was saved for the same step is replaced.
            tree: what `nt.save` takes.
            metric: what `best` compares; NaN is never the best.
        """
        if isinstance(step, bool) or not hasattr(step, "__index__") or step < 0:
            raise ArgumentError(f"Checkpoints.save: step is {step!r}; it must be an integer that is not negative.")
        step = int(step)
        suffix = "" if metric is None else f".metric-{_as_number(metric)!r}"
        path = self.directory / f"step-{step:08}{suffix}.safetensors"
        save(path, tree)
        self._remove_others(path, step)
        return path

    def latest(self) -> Path | None:
        """Return the file of the highest step, or None if there is none."""
        found = self._found()
        return found[-1].path if found else None

    def best(self) -> Path | None:
        """Return the file with the best metric, of equals the latest, or None if none has one."""
        ranked = self._ranked(self._found())
        return ranked[-1].path if ranked else None

    def load_latest(self) -> Any:
        """Return the state of the highest step whose file is intact; None if there are no files.

        Raises:
            DamagedFileError: there are files, and none is intact. Starting anew silently would be worse.
        """
        return self._load_last(self._found())

    def load_best(self) -> Any:
        """Return the state with the best metric whose file is intact; None if no file has a metric.

        Raises:
            DamagedFileError: there are files with a metric, and none is intact.
        """
        return self._load_last(self._ranked(self._found()))

    def __iter__(self) -> Any:
        return iter([saved.path for saved in self._found()])

    def _found(self) -> list[_Saved]:
        """Return the files by step."""
        matched = [(path, _NAME.fullmatch(path.name)) for path in self.directory.iterdir()]
        found = [_Saved(int(match[1]), _metric(match[2]), path) for path, match in matched if match]
        return sorted(found, key=lambda saved: (saved.step, saved.path.name))

    def _ranked(self, found: list[_Saved]) -> list[_Saved]:
        """Return the files that have a metric, the best one last."""
        sign = -1.0 if self.mode == "min" else 1.0
        measured = [(sign * saved.metric, saved) for saved in found if saved.metric is not None]
        return [saved for _, saved in sorted(measured, key=lambda pair: (pair[0], pair[1].step))]

    def _remove_others(self, new: Path, step: int) -> None:
        found = [saved for saved in self._found() if saved.step != step or saved.path == new]
        kept = {saved.path for saved in found[-self.keep :] + self._ranked(found)[-1:]} | {new}
        for path in self:
            if path not in kept:
                path.unlink(missing_ok=True)

    def _load_last(self, found: list[_Saved]) -> Any:
        for saved in reversed(found):
            try:
                return load(saved.path, trusted=True)  # What is in this folder was saved here.
            except (SavedFileError, OSError) as error:  # A disk may also refuse to read what it damaged.
                warn_user(f"Checkpoints: passed over a file: {error}")
        if found:
            raise DamagedFileError(f"Checkpoints: none of the {len(found)} files in {self.directory} is intact.")
        return None


def _as_number(metric: Any) -> float:
    try:
        return float(metric + 0.0)  # A text is no number, even if it could be read as one.
    except (TypeError, ValueError) as error:
        shown = repr(metric) if isinstance(metric, str | bytes) else f"of type {type(metric).__name__}"
        raise ArgumentError(f"Checkpoints.save: metric is {shown}; it must be a single number, or None.") from error


def _metric(text: str | None) -> float | None:
    """Return the metric of a file's name, or None without one that can be compared."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return None if math.isnan(value) else value
