"""`GradientMemoryProfiler`: what a graph costs in bytes, by op, line and phase; checkpoints, leaks, growth."""

import difflib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..core.context import change, current
from ..errors import ArgumentError
from .activations import BACKWARD, FORWARD
from .activations import Activations as Activations
from .growth import WatchedActivations, records_alive
from .leaks import LeakReport, find_leaks
from .ledger import Account
from .memory_text import as_text

MEGABYTE = 2**20
_CHECKPOINT = "checkpoint"


class Row(NamedTuple):
    """A part of the memory: bytes alive now, and bytes that were alive at the peak."""

    name: str
    live: int
    peak: int


class Checkpoint(NamedTuple):
    """A named moment: bytes and records alive at it, the most bytes since the one before, tracemalloc's or None."""

    name: str
    live: int
    peak: int
    records: int
    traced: int | None


class GradientMemoryProfiler:
    """Account for the bytes that graphs and backwards hold: by op, by source line, by phase, and over time.

    The numbers are activation bytes: outputs of ops that records or the program hold, values made again in a backward,
    cotangents of records; without leaves, their gradients, and what an op needs inside. Profiling changes no result.
    It sees the ops of its own thread, between `start_profiling` and `stop_profiling` or in a ``with`` block; what it
    counted stays, also when the block raises.

    Example:
        >>> w = nt.ones(1000, requires_grad=True)
        >>> with nt.GradientMemoryProfiler() as profiler:
        ...     profiler.record_checkpoint("before")
        ...     loss = (w * 2.0).exp().sum()
        ...     profiler.record_checkpoint("after forward")
        ...     loss.backward()
        >>> profiler.get_memory_delta("before", "after forward") * 2**20
        4004.0
        >>> profiler.by_op()[0]
        Row(name='exp', live=0, peak=8000)
        >>> profiler.detect_leaks().num_suspicious
        0
    """

    def __init__(self) -> None:
        self._activations: WatchedActivations | None = None
        self._is_bare = False
        self.checkpoints: list[Checkpoint] = []

    def start_profiling(self) -> None:
        """Begin to count, from zero, until `stop_profiling` or the end of the enclosing ``with`` block of a scope."""
        self.stop_profiling()
        self._begin()
        state = current()
        change(scopes=(*state.scopes, self._activations), observers=(*state.observers, self._activations))
        self._is_bare = True

    def _begin(self) -> None:
        self._activations = WatchedActivations()
        self._activations.start_tracing()
        self.checkpoints = []

    def stop_profiling(self) -> None:
        """Count no new arrays; what was counted is counted until it dies. Stopping twice is fine."""
        mine = self._activations
        if mine is None or not self._is_bare:
            return
        self._is_bare = False
        mine.read_tracing()
        mine.settle()
        state = current()
        if mine in state.scopes:
            change(
                scopes=tuple(scope for scope in state.scopes if scope is not mine),
                observers=tuple(observer for observer in state.observers if observer is not mine),
            )

    def __enter__(self) -> Self:
        self.stop_profiling()
        self._begin()
        self.activations.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.activations.__exit__(kind, error, trace)

    def __del__(self) -> None:
        # A profiler that nobody has is of no use, and the thread's state would have it for ever.
        if getattr(self, "_is_bare", False):
            self.stop_profiling()

    @property
    def activations(self) -> WatchedActivations:
        """The accounting since the start: `live`, `peak`, `timeline`, ...

        Raises:
            ArgumentError: before the start.
        """
        if self._activations is None:
            raise ArgumentError(
                "GradientMemoryProfiler: nothing was profiled yet; call start_profiling(), or use the profiler as a "
                "with block."
            )
        return self._activations

    @property
    def live_bytes(self) -> int:
        """The bytes that are alive now."""
        return self.activations.live

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were alive at once."""
        return self.activations.peak

    def record_checkpoint(self, name: str) -> None:
        """Take note of the memory at a named moment. A name that comes again and again is watched for growth.

        Raises:
            ArgumentError: if the name is not a string.
        """
        if not isinstance(name, str):
            raise ArgumentError(f"record_checkpoint: name is {name!r}; it must be a string, such as 'after forward'.")
        mine = self.activations
        mine.read_tracing()
        mine.settle()
        mine.note(_CHECKPOINT, name)
        checkpoint = Checkpoint(name, mine.live, mine.high, records_alive(), mine.traced_peak)
        if any(earlier.name == name for earlier in self.checkpoints):
            # The last visit replaces the one before, so that a long loop needs no more memory than a short one.
            self.checkpoints = [earlier for earlier in self.checkpoints if earlier.name != name]
        self.checkpoints.append(checkpoint)
        mine.high = mine.live
        mine.watch_growth(f"at the checkpoint {name!r}")

    def get_memory_delta(self, start: str, end: str) -> float:
        """Return how many megabytes (2**20 bytes) more were alive at the checkpoint `end` than at `start`.

        Raises:
            ArgumentError: if there is no checkpoint of a name; the message lists those that there are.
        """
        return (self._checkpoint(end).live - self._checkpoint(start).live) / MEGABYTE

    def _checkpoint(self, name: str) -> Checkpoint:
        found = {checkpoint.name: checkpoint for checkpoint in self.checkpoints}
        if name not in found:
            near = difflib.get_close_matches(str(name), found, n=1)
            known = ", ".join(map(repr, found)) or "none"
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ArgumentError(f"get_memory_delta: there is no checkpoint {name!r}; there are: {known}.{hint}")
        return found[name]

    def by_op(self) -> list[Row]:
        """Return the bytes of each op, largest at the peak first."""
        return self._grouped(lambda account: account.op)

    def by_line(self) -> list[Row]:
        """Return the bytes of each line of the program, largest at the peak first."""
        return self._grouped(lambda account: account.line)

    def by_kind(self) -> list[Row]:
        """Return the bytes of values, of recomputed values and of cotangents, largest at the peak first."""
        return self._grouped(lambda account: account.kind)

    def by_phase(self) -> list[Row]:
        """Return forward, backward and each checkpoint, with the most bytes in each, and what is alive of it.

        Of a phase, alive is what was made in it; of a checkpoint, what was alive at it, and its peak is that of the
        time since the one before.
        """
        mine = self.activations
        made = {row.name: row.live for row in self._grouped(lambda account: account.phase)}
        phases = [Row(phase, made.get(phase, 0), mine.peaks[phase]) for phase in (FORWARD, BACKWARD)]
        return phases + [Row(f"at {c.name}", c.live, c.peak) for c in self.checkpoints]

    def _grouped(self, key: Callable[[Account], str]) -> list[Row]:
        ledger = self.activations.ledger
        live: dict[str, int] = {}
        peak: dict[str, int] = {}
        for numbers, balances in ((live, dict(ledger.balances)), (peak, ledger.at_peak)):
            for account, nbytes in balances.items():
                name = key(account)
                numbers[name] = numbers.get(name, 0) + nbytes
        rows = [Row(name, live.get(name, 0), peak.get(name, 0)) for name in {**live, **peak}]
        return sorted(rows, key=lambda row: (-row.peak, -row.live, row.name))

    def detect_leaks(self) -> LeakReport:
        """Return the graphs recorded since the start, in any thread, that are still alive; call it when none should be.

        A leak says which line recorded it, how much it holds, by which chain of references it is held, and which line
        makes it grow. Graphs that a backward has freed hold no arrays; a few of them are no leak. What `gc.freeze` has
        taken out of sight is not seen.

        Example:
            >>> w = nt.ones(3, requires_grad=True)
            >>> with nt.GradientMemoryProfiler() as profiler:
            ...     kept = (w * w).sum()
            >>> print(profiler.detect_leaks())  # doctest: +ELLIPSIS
            1. a graph of 2 records (0 bytes of arrays), recorded at ...
              held by ...
              drop it, call backward(), keep a detach()ed copy, or compute it in nt.no_grad()
        """
        self.activations.settle()
        return find_leaks(self.activations.since)

    def table(self, most_rows: int = 10) -> str:
        """Return the numbers as text: totals, and the largest parts by op, by line and by phase."""
        mine = self.activations
        mine.read_tracing()
        return as_text(
            [
                ("by op", self.by_op()),
                ("by line", self.by_line()),
                ("by kind", self.by_kind()),
                ("by phase", self.by_phase()),
            ],
            mine,
            most_rows,
        )

    def __str__(self) -> str:
        return self.table() if self._activations is not None else repr(self)

    def __repr__(self) -> str:
        mine = self._activations
        if mine is None:
            return "<GradientMemoryProfiler: nothing profiled>"
        return f"<GradientMemoryProfiler: {mine.live:,} bytes alive, {mine.peak:,} at the peak>"

    def plot(self, path: str | Path) -> None:
        """Draw the bytes over time into a PNG file: forward, backward, checkpoints, peak. Needs the `plot` extra.

        Raises:
            ArgumentError: if no op was recorded.
            MissingExtraError: without Matplotlib.
        """
        from .memory_plot import draw

        draw(self.activations, path)
