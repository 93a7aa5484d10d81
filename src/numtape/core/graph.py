"""Which records targets depend on, what they begin with, and the way from there to the sources that are wanted.

Nothing here recurses: a graph may be a chain of a million records.
"""

from collections.abc import Iterable, Sequence, Set
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from ..errors import ClosedError, StreamedError
from .cells import Cell, Past
from .record import Gone, Link, Record
from .value import LEAF, Lifted, Value, is_seed

#: Records, newest first, and the operands that they begin with, arrays aside: tensors, numbers, what was freed.
Graph = tuple[list[Record], list[Any]]
#: The records through which wanted sources are reached, and these; None means all.
Way = tuple[set[Link] | None, set[Link] | None]

_ndarray = np.ndarray
_index = attrgetter("index")
_cell = attrgetter("cell")
_notes = attrgetter("notes")
_is_dead = attrgetter("is_dead")


def collect(targets: Sequence[Link]) -> list[Record]:
    """Return the records that the targets depend on, newest first."""
    return graph_of(targets)[0]


def graph_of(targets: Sequence[Link], ends: Set[Link] = frozenset(), since: int = 0) -> Graph:
    """Return the records that the targets depend on, newest first, and what they begin with.

    Records among `ends` are not looked behind; nor are those of a smaller index than `since`, with which the graph
    then begins.
    """
    found: set[Any] = set(ends)  # As if they had been looked at.
    leaves: list[Any] = []
    older: list[Record] = []
    pending: list[Sequence[Link]] = [targets]
    for links in pending:  # It grows on the way.
        for link in links:
            if type(link) is Record:
                if link not in found:
                    found.add(link)
                    if link.index >= since:
                        pending.append(link.inputs)
                    else:
                        older.append(link)
            elif type(link) is not _ndarray:
                leaves.append(link)
    if ends or older:
        found.difference_update(ends, older)
        leaves += older
    return sorted(found, key=_index, reverse=True), leaves


def oldest_of(sources: Iterable[Link]) -> int:
    """Return an index such that no record of a smaller one depends on any of the sources."""
    return min(map(_since, sources), default=0)


def _since(source: Link) -> int:
    if type(source) is Record:
        return source.index
    assert isinstance(source, Value)
    return 0 if source.extras is None else source.extras.since or 0


def begins_tracked(graph: Graph, own: Iterable[Any] = ()) -> bool:
    """Say whether a graph begins with a tensor that is tracked, none of one's `own`, and no sweep's seed."""
    own = set(own)
    if _has_argument(graph[0], own):
        return True
    if own.issuperset(graph[1]):  # As most often.
        return False
    older: list[Record] = []
    for link in graph[1]:
        if type(link) is Record:
            older.append(link)
        # What is gone was cut behind a forward derivative: it leads to what that differentiates by.
        elif type(link) is Gone or (is_moving(link) and link not in own and not is_seed(link)):
            return True
    if not older:
        return False
    records, leaves = graph_of(older)
    return (
        _is_streamed(records)
        or _has_argument(records, own)
        or any(is_moving(leaf) and not is_seed(leaf) for leaf in leaves)
    )


def begins_alone(graph: Graph, source: Value, cell: Cell) -> bool:
    """Say whether a graph begins with a source and arrays alone, and all its records are of one generation."""
    return {source}.issuperset(graph[1]) and {cell}.issuperset(map(_cell, graph[0]))


def _has_argument(records: Sequence[Record], own: Set[Any]) -> bool:
    """Say whether a transform that runs differentiates by what a record made, none of one's `own`."""
    if not any(map(_notes, records)):  # As most often.
        return False
    return any(notes.is_argument and record not in own for record in records if (notes := record.notes) is not None)


def _is_streamed(records: Sequence[Record]) -> bool:
    """Say whether links were cut behind a forward derivative that runs: they led to what it differentiates by."""
    return any(type(cell) is Past and not cell.is_over for cell in cells_of(records))


def depends_on_argument(graph: Graph) -> bool:
    """Say whether a graph goes through what a transform that runs differentiates by, in whatever thread."""
    records, leaves = graph
    return (
        _has_argument(records, frozenset())
        or _is_streamed(records)
        or any(isinstance(leaf, Value) and leaf.extras is not None and leaf.extras.is_argument for leaf in leaves)
    )


def is_moving(x: Any) -> bool:
    """Say whether somebody differentiates by something: it is tracked, or a series or batch."""
    return isinstance(x, Lifted) or (isinstance(x, Value) and x.node is not None)


def cells_of(records: Sequence[Record]) -> set[Cell]:
    """Return the generations that records are of."""
    return set(map(_cell, records))


def way_of(graph: Graph, wanted: set[Link] | None, required_only: bool = False, cells: Set[Cell] | None = None) -> Way:
    """Return the records through which wanted sources are reached, and these; None means all.

    Raise if one of the records is dead. The cells are those of the graph, if the caller has them.
    """
    records, leaves = graph
    is_any_dead = any(map(_is_dead, cells_of(records) if cells is None else cells))
    if wanted is None:
        if not is_any_dead:
            return None, None
        # Something is dead; it matters only if a wanted leaf lies behind it.
        links = {link for record in records for i, link in enumerate(record.inputs) if record.needs >> i & 1}
        wanted = {link for link in links if isinstance(link, Value) and _is_wanted(link, required_only)}
    elif not is_any_dead and wanted.issuperset(leaves):
        # Everything leads to wanted sources: the sweep need not ask at each step.
        return None, wanted
    oldest = oldest_of(wanted)
    useful: set[Link] = set()
    check_not_streamed(records, oldest)
    for record in reversed(records):
        needs = record.needs
        for link in record.inputs:
            if needs & 1 and (link in useful or link in wanted):
                if is_any_dead and record.cell.is_dead:
                    raise_dead(record)
                useful.add(record)
                break
            needs >>= 1
    return useful, wanted


def _is_wanted(leaf: Value, required_only: bool) -> bool:
    return leaf.requires_grad or (not required_only and leaf.node is LEAF)


def check_not_streamed(records: Sequence[Record], oldest: int = -1) -> None:
    """Raise if links of a record were cut behind which a source may lie, none of which is older than `oldest`."""
    if Past in map(type, cells_of(records)):  # Which is rare.
        for record in records:
            if type(record.cell) is Past and record.index > oldest:
                raise_streamed(record)


def raise_streamed(record: Record) -> NoReturn:
    """Raise for a record whose links were cut: a source may have been behind it."""
    assert isinstance(record.cell, Past)
    record.cell.is_missed = True
    raise StreamedError(
        f"a sweep would have to go past {record.site}, which a forward derivative has streamed past; use "
        "nt.grad inside of the function, or call jvp with tensors instead of arrays."
    )


def raise_dead(record: Record) -> NoReturn:
    """Raise for a record whose generation was cleared or closed."""
    raise ClosedError(
        f"{record.op.name}: the result of {record.site} belongs to {record.cell.owner}, which was cleared, rewound, "
        "reset or closed since, and a wanted source lies behind it. Take gradients before clearing, or detach() what "
        "crosses."
    )


def is_reached(target: Link, source: Link) -> bool:
    """Say whether a target depends on a source."""
    if target is source:
        return True
    records = graph_of([target], since=_since(source))[0]
    check_not_streamed(records)
    return any(link is source for record in records for i, link in enumerate(record.inputs) if record.needs >> i & 1)
