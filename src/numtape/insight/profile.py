"""`nt.profile`: what each op and each line takes, forward and backward, as tables, traces and numbers by record."""

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter as clock
from typing import Any, NoReturn, Self, TypeVar

from ..core.context import current, entered
from ..counts import is_count
from ..errors import ArgumentError, OperandError
from . import trace
from .measuring import Measurer, Numbers
from .profile_table import table
from .spans import Row, Segment, Span, numbers_of, rows_by_line, rows_by_op, spans_of
from .timing import Log, current_log, leave_ops, time_ops

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(eq=False)
class _Entry:
    """A profile that was entered and not left: where the log stood, and what is to be put back."""

    log: Log
    scope: entered
    thread: threading.Thread
    runs: int
    steps: int
    begin: float

    def segment(self) -> Segment:
        """Return what was logged since."""
        runs, steps = (self.runs, len(self.log.runs)), (self.steps, len(self.log.steps))
        return Segment(self.log, self.thread, runs, steps, self.begin, clock())


class profile(Mapping[int, Numbers]):
    """Time the ops of a block or of a function, forward and backward.

    It sees the ops of the thread that entered it; enter the same one in other threads to see theirs as well. It may be
    entered again, and adds up; profiles may be nested. Results can be read at any time, also after the block raised.

    A profile is also a mapping, from the index of a record to numbers about it, for pictures such as `nt.to_html`. The
    seconds of the backward are always there; those of the forward, and whatever is asked for, if one of the arguments
    is given.

    Args:
        values: also collect statistics of values and norms of gradients. Slower by tens of microseconds an op.
        memory: also count activation bytes over time, as `nt.GradientMemoryProfiler` does: what records and sweeps
            hold, without leaves and their gradients. Slower as well.
        stacks: also note which functions called a line, for flame graphs. Slower by the depth of the calls.

    Example:
        >>> x = nt.ones(300, 300, requires_grad=True)
        >>> with nt.profile() as profile:
        ...     (x @ x).tanh().sum().backward()
        >>> sorted(row.name for row in profile.by_op())
        ['matmul', 'sum', 'tanh']
        >>> [(row.calls, row.steps, row.flops) for row in profile.by_op() if row.name == "matmul"]
        [(1, 1, 54000000)]
    """

    def __init__(self, *given: Any, values: bool = False, memory: bool = False, stacks: bool = False) -> None:
        if given:
            raise OperandError(
                f"profile: takes no positional arguments, but {type(given[0]).__name__} was given; write "
                "`with nt.profile():` or `@nt.profile()`, with parentheses."
            )
        for name, value in (("values", values), ("memory", memory), ("stacks", stacks)):
            if not isinstance(value, bool):
                raise ArgumentError(f"profile: {name} is {value!r}; it must be a bool.")
        self._asked = (values, memory, stacks)
        self._segments: list[Segment] = []
        self._measurers: list[tuple[threading.Thread, Measurer]] = []
        # Threads, and tasks of one thread, may enter and leave in any order; each finds its own by its log.
        self._entries: list[_Entry] = []
        self._spans: tuple[Any, list[Span]] = (None, [])
        self._numbers: tuple[Any, dict[int, Numbers]] = (None, {})

    def __enter__(self) -> Self:
        values, memory, stacks = self._asked
        state = current()
        log = current_log.get()
        if log is None or log.is_closed:
            log = Log()
        observers = state.observers if log in state.observers else (*state.observers, log)
        scopes = state.scopes
        if values or memory or stacks:
            log.add_details(stacks)
        if values or memory:
            measurer = Measurer(log, values, memory)
            self._measurers.append((threading.current_thread(), measurer))
            observers, scopes = (*observers, measurer), (*scopes, measurer)
        scope = entered(observers=observers, scopes=scopes)
        scope.__enter__()
        time_ops()
        current_log.set(log)
        log.entries += 1
        places = (len(log.runs), len(log.steps))
        self._entries.append(_Entry(log, scope, threading.current_thread(), *places, clock()))
        return self

    def __exit__(self, *exc: Any) -> None:
        entry = self._innermost()
        segment = entry.segment()
        self._entries.remove(entry)
        # What runs in a block inside of a block of this same profile is seen by the outer one.
        if all(other.log is not entry.log for other in self._entries):
            self._segments.append(segment)
        leave_ops()
        for thread, measurer in self._measurers:
            if thread is entry.thread:
                measurer.settle()
        entry.log.end_details()
        # Profiles may be left in any order, and in other contexts: the last one to go closes the log that they share.
        entry.log.entries -= 1
        if not entry.log.entries:
            entry.log.close()
        entry.scope.__exit__(*exc)
        if entry.log not in current().observers:
            current_log.set(None)

    def _innermost(self) -> _Entry:
        """Return the entry to leave: the last one of this context or, where contexts change between, of this thread."""
        log, thread = current_log.get(), threading.current_thread()
        found = [entry for entry in self._entries if entry.log is log]
        found = found or [entry for entry in self._entries if entry.thread is thread] or self._entries
        if not found:
            raise ArgumentError("profile: it is left but was not entered; write `with nt.profile():`.")
        return found[-1]

    def __call__(self, function: F) -> F:
        if not callable(function):
            raise OperandError(
                f"profile: decorates functions, not {type(function).__name__}; for a block, write `with nt.profile():`."
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise OperandError("profile: generators cannot be decorated; use `with nt.profile():` inside.")
        wrapped: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            wrapped = wait
        else:

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

            wrapped = call
        wrapped.profile = self
        result: F = wrapped
        return result

    @property
    def seconds(self) -> float:
        """How long the profile was active, over all entries."""
        return sum(segment.seconds for segment in self._all_segments())

    @property
    def forward_seconds(self) -> float:
        """How long the forwards of ops ran, those inside of reverse sweeps left out."""
        return sum(span.seconds for span in self.spans() if span.parent is None and not span.is_step)

    @property
    def backward_seconds(self) -> float:
        """How long reverse sweeps ran."""
        return sum(span.seconds for span in self.spans() if span.parent is None and span.is_step)

    @property
    def python_seconds(self) -> float:
        """The rest: Python itself, in the user's code and in recording."""
        return max(0.0, self.seconds - self.forward_seconds - self.backward_seconds)

    def spans(self) -> list[Span]:
        """Return the runs of ops and the steps of sweeps, thread by thread, in the order in which they began."""
        extent = self._extent()
        if self._spans[0] != extent:
            self._spans = (extent, [span for segment in self._all_segments() for span in spans_of(segment)])
        return self._spans[1]

    def by_op(self) -> list[Row]:
        """Return what each op took, the most expensive first."""
        return rows_by_op(self.spans())

    def by_line(self) -> list[Row]:
        """Return what each line of the user took, the most expensive first. A backward belongs to the forward's line.

        With ``stacks=True`` the seconds of a line include those of the lines in functions that it called.
        """
        return rows_by_line(self.spans())

    def table(self, by: str = "op", most: int = 20) -> str:
        """Return a table as text, with the most expensive rows.

        Args:
            by: "op" or "line".
            most: how many rows to show.

        Example:
            >>> with nt.profile() as profile:
            ...     y = nt.ones(1000) * 2.0
            >>> "Python" in profile.table()
            True
        """
        rows = {"op": self.by_op, "line": self.by_line}
        if by not in rows:
            raise ArgumentError(f"profile.table: by is {by!r}; it must be 'op' or 'line'.")
        if not is_count(most):
            raise ArgumentError(f"profile.table: most is {most!r}; it must be a positive integer.")
        times = {"ops": self.forward_seconds, "backward": self.backward_seconds, "Python": self.python_seconds}
        return table(by, rows[by](), most, times)

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open, and return its path.

        Each thread is a track of nested spans, with lines and rates; with ``memory=True`` a counter shows the bytes.
        """
        return trace.write_chrome_trace(path, self._all_segments(), self._samples())

    def to_flamegraph(self, path: str | os.PathLike[str]) -> Path:
        """Write collapsed stacks, one a line with its nanoseconds, and return the path.

        Speedscope, inferno and flamegraph.pl draw them. With ``stacks=True`` they show who called each line.
        """
        return trace.write_flamegraph(path, self._all_segments())

    def _samples(self) -> list[trace.Samples]:
        return [(thread, measurer.samples) for thread, measurer in self._measurers]

    def _all_segments(self) -> list[Segment]:
        """Return what was seen, up to now for blocks that are not left yet."""
        outermost = {entry.log: entry for entry in reversed(self._entries)}
        return [*self._segments, *(entry.segment() for entry in outermost.values())]

    def _extent(self) -> tuple[int, ...]:
        """Return numbers that change when more was seen."""
        return (len(self._segments), *(len(entry.log.runs) + len(entry.log.steps) for entry in self._entries))

    def _by_record(self) -> dict[int, Numbers]:
        extent = self._extent()
        if self._numbers[0] != extent:
            numbers = numbers_of(self.spans())
            for _, measurer in self._measurers:
                for index, measured in measurer.numbers.items():
                    numbers.setdefault(index, {}).update(measured)
            self._numbers = (extent, numbers)
        return self._numbers[1]

    def __getitem__(self, index: int) -> Numbers:
        return self._by_record()[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_record())

    def __len__(self) -> int:
        return len(self._by_record())

    def __bool__(self) -> bool:
        return True  # An empty profile is one as well.

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "profile: a profile refers to ops and to code, and cannot be pickled or copied; take dict(profile), which "
            "is plain numbers by record that nt.to_html and nt.to_json accept, or write it with to_chrome_trace(path)."
        )

    def __repr__(self) -> str:
        return f"<profile of {self.seconds:.3g} s>"

    def __str__(self) -> str:
        return self.table()
