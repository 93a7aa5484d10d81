"""From what was timed to spans of time: which lies inside of which, and what each took itself."""

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..core.op import Op
from ..core.record import describe_site
from .timing import RUN_FIELDS, STEP_FIELDS, SWEEP_BEGAN, SWEEP_ENDED, SWEEP_RESUMED, Log, Site, Work


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a log: what one entry of a profile saw. The bounds are places in the log's lists and times."""

    log: Log
    thread: threading.Thread
    runs: tuple[int, int]
    steps: tuple[int, int]
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


@dataclass(eq=False, slots=True)
class Span:
    """One run of an op, or the step of one record in a reverse sweep."""

    op: Op
    begin: float
    end: float
    site: Site
    is_step: bool
    #: The user's frames around it, outermost first.
    stack: tuple[Site, ...]
    work: Work = None
    #: The index of the record that a step passed, or that a run left, where that is known.
    record: int | None = None
    parent: "Span | None" = None
    inside_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it took, with what ran inside of it."""
        return self.end - self.begin

    @property
    def self_seconds(self) -> float:
        """How long it took, without what ran inside of it."""
        return max(0.0, self.end - self.begin - self.inside_seconds)

    def path(self) -> "list[Span]":
        """Return the spans around it and itself, outermost first."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


def spans_of(segment: Segment) -> list[Span]:
    """Return the spans of a segment in the order in which they began, each with the one that it lies in."""
    spans = sorted([*_runs(segment), *_steps(segment)], key=lambda span: (span.begin, -span.end))
    around: list[Span] = []
    for span in spans:
        while around and around[-1].end <= span.begin:
            around.pop()
        if around and span.end <= around[-1].end:
            span.parent = around[-1]
            span.parent.inside_seconds += span.seconds
        around.append(span)
    return spans


def _runs(segment: Segment) -> Iterator[Span]:
    log = segment.log
    # The next run took the index that the record of a run would have: it left none.
    records = {
        number: record for record, number in log.runs_of_records.items() if record + 1 not in log.runs_of_records
    }
    first, last = segment.runs
    for place in range(first, last, RUN_FIELDS):
        op, begin, end, code, lasti, work = log.runs[place : place + RUN_FIELDS]
        number = place // RUN_FIELDS
        site = (code, lasti)
        yield Span(op, begin, end, site, False, log.stacks.get(number, (site,)), work, records.get(number))


def _steps(segment: Segment) -> Iterator[Span]:
    """Yield the steps. One begins where the step before it ended; sweeps may run inside of sweeps, and may raise."""
    log = segment.log
    first, last = segment.steps
    before: list[float] = []
    for place in range(first, last, STEP_FIELDS):
        end, record, op, code, lasti = log.steps[place : place + STEP_FIELDS]
        if record == SWEEP_BEGAN:
            before.append(end)
        elif record == SWEEP_ENDED:
            before[-1:] = []
        elif record == SWEEP_RESUMED:
            before[-1:] = [end]
        else:
            # A profile that was entered inside of a sweep has not seen its begin.
            begin = before.pop() if before else segment.begin
            before.append(end)
            site = (code, lasti)
            number = log.runs_of_records.get(record)
            stack = (site,) if number is None else log.stacks.get(number, (site,))
            yield Span(op, begin, end, site, True, stack, None, record)


@dataclass(slots=True)
class Row:
    """What an op or a line took altogether, in runs and in steps of reverse sweeps.

    `seconds` and `backward_seconds` are with what ran inside; `self_seconds` and `backward_self_seconds` without. The
    operations and bytes are those of the runs that were long enough to tell a rate, which took `worked_seconds`.
    """

    name: str
    calls: int = 0
    seconds: float = 0.0
    self_seconds: float = 0.0
    steps: int = 0
    backward_seconds: float = 0.0
    backward_self_seconds: float = 0.0
    flops: int = 0
    nbytes: int = 0
    worked_seconds: float = field(default=0.0, repr=False)

    @property
    def flops_per_second(self) -> float | None:
        """Floating-point operations per second of the forward; None where nothing tells."""
        return self.flops / self.worked_seconds if self.flops and self.worked_seconds else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes that the forward read and wrote per second; None where nothing tells."""
        return self.nbytes / self.worked_seconds if self.nbytes and self.worked_seconds else None

    @property
    def all_self_seconds(self) -> float:
        """What it took itself, forward and backward."""
        return self.self_seconds + self.backward_self_seconds

    def add(self, span: Span, own: float, whole: float, is_counted: bool = True) -> None:
        """Add a span, of which `own` seconds are the row's alone and `whole` seconds with what ran inside."""
        if span.is_step:
            self.steps += is_counted
            self.backward_self_seconds += own
            self.backward_seconds += whole
        else:
            self.calls += is_counted
            self.self_seconds += own
            self.seconds += whole
        if span.work is not None and is_counted:
            self.flops += span.work[0]
            self.nbytes += span.work[1]
            self.worked_seconds += span.seconds


def rows_by_op(spans: Sequence[Span]) -> list[Row]:
    """Return a row for each op, the most expensive first."""
    rows: dict[str, Row] = {}
    for span in spans:
        # An op inside of itself: the outer run's time has that of the inner one already.
        is_inside = any(outer.op is span.op and outer.is_step == span.is_step for outer in span.path()[:-1])
        row = rows.setdefault(span.op.name, Row(span.op.name))
        row.add(span, span.self_seconds, 0.0 if is_inside else span.seconds)
    return _sorted(rows)


def rows_by_line(spans: Sequence[Span]) -> list[Row]:
    """Return a row for each line of the user, the most expensive first.

    What runs inside of an op or of a step is its line's own. A line's whole time includes that of the functions that it
    called, where stacks are known.
    """
    rows: dict[str, Row] = {}
    names = Names()
    for span in spans:
        if span.parent is not None:
            continue
        own = names.line(span.site)
        rows.setdefault(own, Row(own)).add(span, span.seconds, span.seconds)
        for line in {names.line(site) for site in span.stack} - {own}:
            rows.setdefault(line, Row(line)).add(span, 0.0, span.seconds, is_counted=False)
    return _sorted(rows)


def _sorted(rows: dict[str, Row]) -> list[Row]:
    return sorted(rows.values(), key=lambda row: (-row.all_self_seconds, row.name))


class Names:
    """Lines and functions of sites, each looked up once."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], str] = {}

    def line(self, site: Site) -> str:
        """Return ``file:line (source)``."""
        code, lasti = site
        key = (id(code), lasti)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = describe_site(code, lasti)
        return found

    def frame(self, site: Site) -> str:
        """Return ``function (file:line)``, without the directories."""
        code = site[0]
        number = self.line(site)[len(code.co_filename) :].partition(" ")[0]
        return f"{code.co_qualname} ({os.path.basename(code.co_filename)}{number})"


def numbers_of(spans: Sequence[Span]) -> dict[int, dict[str, float]]:
    """Return, by the index of a record, the seconds of its run and of its steps, and its operations."""
    numbers: dict[int, dict[str, float]] = {}
    steps: dict[int, Op] = {}
    for span in spans:
        if span.is_step and span.record is not None:
            steps[span.record] = span.op
            _add(numbers, span.record, "backward_seconds", span.seconds)
    for span in spans:
        # Where the record of another thread has taken the index, the ops differ.
        if not span.is_step and span.record is not None and steps.get(span.record, span.op) is span.op:
            _add(numbers, span.record, "seconds", span.seconds)
            if span.work is not None:
                _add(numbers, span.record, "flops", float(span.work[0]))
    return numbers


def _add(numbers: dict[int, dict[str, float]], record: int, name: str, number: float) -> None:
    known = numbers.setdefault(record, {})
    known[name] = known.get(name, 0.0) + number
