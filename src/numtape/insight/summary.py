"""A graph as a table: one row per record, with shapes, bytes and the line that ran it."""

import html
import os
from collections.abc import Sequence

from ..core.context import FREED
from ..core.record import Record, link_name

HEADINGS = ("record", "op", "inputs", "shape", "dtype", "bytes", "kept", "line")
#: How many rows a printed table shows before it leaves out the middle.
MOST_ROWS = 40


def _row(record: Record, numbers: dict[Record, int]) -> tuple[str, ...]:
    inputs = ", ".join(link_name(link, numbers) for link in record.inputs)
    params = ", ".join(f"{k}={v!r}" for k, v in (record.params or {}).items())
    kept = "freed" if record.cell is FREED else "yes" if record.is_kept else "" if record.array is None else "dropped"
    return (
        f"%{numbers[record]}",
        record.op.name,
        _short(f"{inputs}; {params}" if params else inputs, 48),
        str(record.shape),
        str(record.dtype),
        f"{record.nbytes:,}",
        kept,
        _short_site(record.site),
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _short_site(site: str) -> str:
    path, _, rest = site.rpartition(os.sep)
    return _short(rest if path else site, 60)


def rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the cells of the table, oldest record first."""
    ordered = sorted(records, key=lambda r: r.index)
    numbers = {record: number for number, record in enumerate(ordered)}
    return [_row(record, numbers) for record in ordered]


def total(records: Sequence[Record]) -> str:
    """Return one line that adds up a graph."""
    kept = sum(record.nbytes for record in records if record.is_kept)
    made = sum(record.nbytes for record in records)
    return f"{len(records)} records, {made:,} bytes computed, {kept:,} bytes kept for derivatives"


def text(records: Sequence[Record]) -> str:
    """Return the table as text; the middle of a long one is left out."""
    cells = rows(records)
    hidden = len(cells) - MOST_ROWS
    if hidden > 0:
        half = MOST_ROWS // 2
        cells = [*cells[:half], ("...", f"{hidden} more", *[""] * 6), *cells[-half:]]
    table = [HEADINGS, *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:], total(records)])


def page(records: Sequence[Record]) -> str:
    """Return the table as HTML, for notebooks."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in HEADINGS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(records))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(total(records))}</p>"
