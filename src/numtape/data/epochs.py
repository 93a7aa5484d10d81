"""An epoch: the plan from which any of its batches can be made, and the iterator that hands them out."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .._typing import NDArray
from .collating import joined
from .columns import Floats
from .datasets import rows_of
from .prefetching import Prefetched, is_forked
from .sampling import drawing_from


@dataclass
class Progress:
    """How far a loop is: the epoch's number, and how many of its samples were handed out."""

    epoch: int
    position: int


@dataclass(frozen=True)
class Epoch:
    """All that the batches of an epoch follow from. It never changes, so a thread may read it."""

    dataset: Any
    key: int
    number: int
    #: The samples in their order; None for the order of the dataset.
    order: NDArray | None
    length: int
    batch_size: int
    drop_last: bool
    collate: Callable[[list[Any]], Any] | None
    floats: Floats
    #: Whether whole batches can be taken from the dataset, without samples in between.
    takes_rows: bool

    def end(self, position: int) -> int:
        """Return the position after the last batch, if batches begin at a position."""
        rest = self.length - position
        return position + (rest - rest % self.batch_size if self.drop_last else rest)

    def batches(self, position: int) -> Iterator[tuple[int, Any]]:
        """Make the batches from a position on, each with the position after it."""
        last = self.end(position)
        for start in range(position, last, self.batch_size):
            stop = min(start + self.batch_size, last)
            yield stop, self._batch(start, stop)

    def _batch(self, start: int, stop: int) -> Any:
        index = slice(start, stop) if self.order is None else self.order[start:stop]
        if self.takes_rows:
            return rows_of(self.dataset, index, self.floats)
        numbers = list(range(start, stop)) if self.order is None else self.order[start:stop].tolist()
        with drawing_from(self.key, self.number, start):
            samples = self._samples(numbers)
            return joined(samples, self.floats) if self.collate is None else self.collate(samples)

    def _samples(self, numbers: list[int]) -> list[Any]:
        # PyTorch's name for datasets that fetch many samples faster than one by one.
        if hasattr(self.dataset, "__getitems__"):
            return list(self.dataset.__getitems__(numbers))
        return [self.dataset[number] for number in numbers]


class Batches:
    """The iterator of one loop: it makes batches, or takes those that a thread made, and counts what it handed out."""

    def __init__(self, epoch: Epoch, progress: Progress, prefetch: int) -> None:
        self._epoch = epoch
        self._progress = progress
        self._end = epoch.end(progress.position)
        self._process = os.getpid()
        made = epoch.batches(progress.position)
        self._source: Iterator[tuple[int, Any]] = Prefetched(made, prefetch) if prefetch and not is_forked() else made

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        progress = self._progress
        if isinstance(self._source, Prefetched) and os.getpid() != self._process:
            # A fork has no thread that could make more; what the parent's made is not lost, but made again.
            self._source = self._epoch.batches(progress.position)
        try:
            position, batch = next(self._source)
        except StopIteration:
            # After an error in the dataset there is nothing more either, but the epoch is not over.
            if progress.position == self._end:
                progress.epoch, progress.position = progress.epoch + 1, 0
            raise
        progress.position = position
        return batch

    def __length_hint__(self) -> int:
        rest = self._end - self._progress.position
        return -(-rest // self._epoch.batch_size)
