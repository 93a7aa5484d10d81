"""The growth alarm: memory grows each time the program comes to the same place; say so, and which line does it."""

import gc
from bisect import bisect
from collections.abc import Sequence
from typing import Any

from ..core.cells import FREED
from ..core.context import current
from ..core.record import Record, next_index, warn_user
from .activations import FORWARD, Activations
from .leaks import find_leaks, live_records

#: How often in a row memory must have grown at the same place for an alarm.
ALARM = 10


class Growth:
    """Watches a pair of numbers, bytes and records, for growth at each of many visits in a row."""

    __slots__ = ("is_reported", "last", "visits")

    def __init__(self) -> None:
        self.last = (0, 0)
        #: The index of the next record at each visit since the last one that found no growth.
        self.visits: list[int] = []
        self.is_reported = False

    def visit(self, live: int, records: int, index: int) -> bool:
        """Take note of the numbers, and of the index of the next record; say that they have grown too often."""
        grows = live > self.last[0] or records > self.last[1]
        shrinks = live < self.last[0] or records < self.last[1]
        if not grows or shrinks:
            self.visits = []
        self.visits.append(index)
        self.last = (live, records)
        return len(self.visits) > ALARM and not self.is_reported

    def confirm(self) -> bool:
        """Say, once, whether records from between most of the visits are alive: steps may grow and leave nothing."""
        gc.collect()
        between = {bisect(self.visits, record.index) for record in live_records()} - {0, len(self.visits)}
        # Those of the last step may be its own graph, which is not done yet.
        is_kept = len(between - {len(self.visits) - 1}) >= ALARM // 2
        self.visits = self.visits[-1:]
        self.is_reported = is_kept
        return is_kept


class WatchedActivations(Activations):
    """The accounting of a profiler, which also looks for growth between one backward and the next."""

    def __init__(self) -> None:
        super().__init__()
        self.since = next_index()
        self.growth: dict[str, Growth] = {}
        self._is_after_sweep = False

    def end_sweep(self, before: str) -> None:
        super().end_sweep(before)
        self._is_after_sweep = True

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        self.settle()
        # Only now, and not at the end of the sweep: a warning that is made an error must not cost the gradients.
        if self._is_after_sweep and self.phase is FORWARD:
            self._is_after_sweep = False
            self.watch_growth("after each backward", record.index)
        super().on_record(record, operands)

    def watch_growth(self, place: str, until: int | None = None) -> None:
        """Warn if memory has grown each time that the program came to a place; name what was recorded `until` then."""
        growth = self.growth.setdefault(place, Growth())
        index = next_index() if until is None else until
        if not growth.visit(self.live, records_alive(), index):
            return
        starts = growth.visits
        if not growth.confirm():
            return
        leaks = find_leaks(self.since, until, starts)
        leak = max(leaks, key=lambda x: (x.total is not None, x.is_carried, x.graphs > 1, x.records), default=None)
        if leak is not None:
            warn_user(f"GradientMemoryProfiler: memory grows {place}, {ALARM} times in a row: {leak}")


def records_alive() -> int:
    """Return how many records the current context and tapes have, freed ones included. Fast, and near enough."""
    state = current()
    cells = {state.context.cell, FREED, *(tape.cell for tape in state.tapes)}
    return sum(cell.live_records() for cell in cells)
