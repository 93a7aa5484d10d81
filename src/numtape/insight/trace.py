"""Write what was timed as files that other tools draw: Chrome traces, and collapsed stacks for flame graphs."""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .spans import Names, Segment, Span, spans_of

#: A thread; times, and the bytes that were alive at them.
Samples = tuple[threading.Thread, list[tuple[float, int]]]

#: Traces count in microseconds, collapsed stacks in nanoseconds.
_MICRO = 1e6
_NANO = 1e9


def write_chrome_trace(path: str | os.PathLike[str], segments: Sequence[Segment], samples: Sequence[Samples]) -> Path:
    """Write segments, and samples of the bytes alive in each thread, as a trace, and return its path."""
    place = Path(path)
    events = [*_trace_events(segments, samples)]
    place.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":")))
    return place


def _trace_events(segments: Sequence[Segment], samples: Sequence[Samples]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    origin = min((segment.begin for segment in segments), default=0.0)
    names = Names()
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "numtape"}}
    # Numbers of our own: a thread may get the identity of one that has ended.
    threads = [segment.thread for segment in segments] + [thread for thread, _ in samples]
    tracks = {thread: number for number, thread in enumerate(dict.fromkeys(threads), 1)}
    for thread, number in tracks.items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": thread.name}}
    for segment in segments:
        common = {"ph": "X", "pid": process, "tid": tracks[segment.thread]}
        yield common | {"name": "profile", "cat": "profile"} | _times(segment.begin, segment.end, origin)
        for span in spans_of(segment):
            name, kind = (f"{span.op.name} backward", "backward") if span.is_step else (span.op.name, "forward")
            times = _times(span.begin, span.end, origin)
            yield common | {"name": name, "cat": kind, "args": _arguments(span, names)} | times
    for thread, counted in samples:
        counter: dict[str, Any] = {"ph": "C", "name": f"memory of {thread.name}", "pid": process}
        if sum(other.name == thread.name for other in tracks) > 1:
            counter["id"] = tracks[thread]
        for time, live in counted:
            yield counter | {"ts": (time - origin) * _MICRO, "args": {"bytes": live}}


def _times(begin: float, end: float, origin: float) -> dict[str, float]:
    return {"ts": (begin - origin) * _MICRO, "dur": (end - begin) * _MICRO}


def _arguments(span: Span, names: Names) -> dict[str, Any]:
    arguments: dict[str, Any] = {"line": names.line(span.site)}
    if span.record is not None:
        arguments["record"] = span.record
    if span.work is not None and span.seconds > 0:
        flops, nbytes = span.work
        arguments |= {
            "flops": flops,
            "bytes": nbytes,
            "GFLOP/s": flops / span.seconds / 1e9,
            "GB/s": nbytes / span.seconds / 1e9,
        }
    return arguments


def write_flamegraph(path: str | os.PathLike[str], segments: Sequence[Segment]) -> Path:
    """Write the time of each stack, itself only, and return the path; what no op took is Python's."""
    totals: dict[str, int] = {}
    names = Names()
    for segment in segments:
        rest = segment.seconds
        for span in spans_of(segment):
            stack = ";".join(_frames(span, names))
            totals[stack] = totals.get(stack, 0) + round(span.self_seconds * _NANO)
            rest -= span.seconds if span.parent is None else 0.0
        totals["Python"] = totals.get("Python", 0) + max(0, round(rest * _NANO))
    place = Path(path)
    place.write_text("".join(f"{stack} {count}\n" for stack, count in sorted(totals.items())))
    return place


def _frames(span: Span, names: Names) -> Iterator[str]:
    """Yield the frames of a span: forward or backward, the user's functions, and ops, outermost first."""
    root, *inner = span.path()
    yield "backward" if root.is_step else "forward"
    yield from (names.frame(site).replace(";", ",") for site in root.stack)
    for each in (root, *inner):
        yield f"{each.op.name} backward" if each.is_step else each.op.name
