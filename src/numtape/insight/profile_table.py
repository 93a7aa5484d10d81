"""A profile as text: a row for each op or line, with times, shares and rates."""

import os
from collections.abc import Mapping, Sequence

from .spans import Row

_HEADINGS = ("calls", "self", "total", "back", "back self", "back total", "share", "FLOP/s", "bytes/s")
_WIDEST_NAME = 72


def table(by: str, rows: Sequence[Row], most: int, times: Mapping[str, float]) -> str:
    """Return the table: headings, the first rows, and a line that says where all of the time went."""
    shown = [(by, *_HEADINGS), *(_cells(row, times) for row in rows[:most])]
    widths = [max(len(cells[i]) for cells in shown) for i in range(len(shown[0]))]
    lines = [_line(cells, widths) for cells in shown]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if len(rows) > most:
        lines.append(f"... and {len(rows) - most} more")
    return "\n".join([*lines, _total(times)])


def _cells(row: Row, times: Mapping[str, float]) -> tuple[str, ...]:
    whole = sum(times.values())
    return (
        _short(row.name),
        str(row.calls) if row.calls else "",
        seconds_text(row.self_seconds),
        seconds_text(row.seconds),
        str(row.steps) if row.steps else "",
        seconds_text(row.backward_self_seconds),
        seconds_text(row.backward_seconds),
        f"{row.all_self_seconds / whole:.1%}" if whole else "",
        rate_text(row.flops_per_second),
        rate_text(row.bytes_per_second),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = cells
    numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
    return "  ".join((first.ljust(widths[0]), *numbers)).rstrip()


def _total(times: Mapping[str, float]) -> str:
    whole = sum(times.values())
    shares = ", ".join(f"{name} {value / whole if whole else 0:.1%}" for name, value in times.items())
    return f"{seconds_text(whole) or '0 s'}: {shares}"


def _short(name: str) -> str:
    """Return a name, or a line without its directories, cut to the widest."""
    place, opening, source = name.partition(" (")
    text = place.rpartition(os.sep)[2] + opening + source
    return text if len(text) <= _WIDEST_NAME else text[: _WIDEST_NAME - 3] + "..."


def seconds_text(seconds: float) -> str:
    """Return a time with its unit; nothing for none."""
    if not seconds:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def rate_text(rate: float | None) -> str:
    """Return a rate with its prefix; nothing if it is not known."""
    if rate is None:
        return ""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}"
    return f"{rate:.3g}"
