"""A graph as a table: one row per record, with shapes, bytes and the line that ran it."""

import os
from collections.abc import Sequence

from ..core.cells import FREED
from ..core.facts import Inside
from ..core.record import Block, Record, link_name

HEADINGS = ("record", "op", "inputs", "shape", "dtype", "bytes", "kept", "line")
#: How many rows a printed table shows before it leaves out the middle.
MOST_ROWS = 40
#: How many records a notebook draws; a saved notebook keeps the drawing.
MOST_DRAWN = 2000


def _row(record: Record, numbers: dict[Record, int]) -> tuple[str, ...]:
    inputs = ", ".join(link_name(link, numbers) for link in record.inputs)
    params = ", ".join(f"{k}={v!r}" for k, v in (record.params or {}).items())
    return (
        f"%{numbers[record]}",
        record.op.name,
        shorten(f"{inputs}; {params}" if params else inputs, 48),
        str(record.shape),
        str(record.dtype),
        f"{record.nbytes:,}",
        kept(record),
        shorten(short_site(record), 60),
    )


def shorten(text: str, most: int) -> str:
    """Return a text without its end if it is long."""
    return text if len(text) <= most else text[: most - 3] + "..."


def kept(record: Record) -> str:
    """Say in a word what became of a record's output: "yes", "freed", "dropped", or "" if no rule reads it."""
    if record.cell is FREED:
        return "freed"
    is_dropped = type(record.array) is Block and not record.array.is_unread
    return "yes" if record.is_kept else "dropped" if is_dropped else ""


def inside_of(record: Record) -> Inside | None:
    """Return what a record holds whose rule runs records of its own, as a loop does; None for others."""
    inside = record.op.facts.inside
    return None if inside is None or record.params is None or record.cell is FREED else inside(**record.params)


def short_site(record: Record) -> str:
    """Return the line that ran a record, without the directories of its file."""
    if record.code is None:
        return record.site
    path = record.code.co_filename
    return os.path.basename(path) + record.site.removeprefix(path)


def rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the cells of the table, oldest record first."""
    ordered = sorted(records, key=lambda r: r.index)
    numbers = {record: number for number, record in enumerate(ordered)}
    return [_row(record, numbers) for record in ordered]


def total(records: Sequence[Record]) -> str:
    """Return one line that adds up a graph."""
    kept = sum(record.nbytes for record in records if record.is_kept)
    kept += sum(array.nbytes for record in records if (inside := inside_of(record)) for array in inside.let_go)
    made = sum(record.nbytes for record in records)
    return f"{len(records)} records, {made:,} bytes computed, {kept:,} bytes kept for derivatives"


def text(records: Sequence[Record]) -> str:
    """Return the table as text; the middle of a long one is left out."""
    table = [HEADINGS, *_most_rows(records)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:], total(records)])


def _most_rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    cells = rows(records)
    hidden = len(cells) - MOST_ROWS
    if hidden <= 0:
        return cells
    half = MOST_ROWS // 2
    return [*cells[:half], ("...", f"{hidden} more", *[""] * 6), *cells[-half:]]


def page(records: Sequence[Record]) -> str:
    """Return what notebooks show: the graph to look around in, unless it is very large, and the table to unfold."""
    import html  # Only notebooks ask for this.

    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in HEADINGS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in _most_rows(records)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    line = html.escape(total(records))
    if not records or len(records) > MOST_DRAWN:
        return f"<p>{line}</p>{table}"
    from .describing import describe  # Only notebooks need it.
    from .page import frame

    # Displaying a tape must cost little, and run nothing: it shows no values and no gradients.
    return f"{frame(describe(records, values=False))}<details><summary>{line}</summary>{table}</details>"
