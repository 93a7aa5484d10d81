"""The numbers of a memory profiler as text: totals, then a table for each way to divide them."""

import os
from collections.abc import Sequence

from .activations import Activations

HEADINGS = ("alive", "at peak", "share")


def as_text(tables: Sequence[tuple[str, Sequence[tuple[str, int, int]]]], total: Activations, most_rows: int) -> str:
    """Return tables of names, bytes alive and bytes at the peak, under one line of totals."""
    blocks = [totals(total)]
    blocks += [_block(heading, rows, total.peak, most_rows) for heading, rows in tables]
    return "\n\n".join(blocks)


def totals(total: Activations) -> str:
    """Return one line that says what was alive, and when."""
    text = (
        f"peak {show(total.peak)} (forward {show(total.forward_peak)}, backward {show(total.backward_peak)}), "
        f"alive {show(total.live)}"
    )
    return text if total.traced_peak is None else f"{text}; tracemalloc's peak {show(total.traced_peak)}"


def show(nbytes: float) -> str:
    """Return a number of bytes in the unit that reads best."""
    if nbytes < 2**10:
        return f"{nbytes:.0f} B"
    for unit, size in (("KB", 2**10), ("MB", 2**20)):
        if nbytes < 1000 * size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GB"


def _block(heading: str, rows: Sequence[tuple[str, int, int]], peak: int, most_rows: int) -> str:
    shown = [(_short(name), show(live), show(at), f"{at / peak:.0%}" if peak else "") for name, live, at in rows]
    hidden = len(shown) - most_rows
    if hidden > 0:
        shown = [*shown[:most_rows], (f"({hidden} more)", "", "", "")]
    table = [(heading, *HEADINGS), *shown]
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in table
    ]
    return "\n".join(line.rstrip() for line in [lines[0], "-" * len(lines[0]), *lines[1:]])


def _short(name: str) -> str:
    """Leave the folders out of a line's name, and the end of a long one."""
    head, separator, rest = name.partition(" (")
    text = os.path.basename(head) + separator + rest
    return text if len(text) <= 60 else text[:57] + "..."
