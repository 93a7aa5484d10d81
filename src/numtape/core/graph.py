"""Which records targets depend on, what they begin with, and the way from there to the sources that are wanted.

Nothing here recurses: a graph may be a chain of a million records.
"""

from collections.abc import Sequence, Set
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from ..errors import ClosedError, StreamedError
from .context import PAST
from .record import Link, Record
from .value import LEAF, Value

#: Records, newest first, and the operands that they begin with, arrays aside: tensors, numbers, what was freed.
Graph = tuple[list[Record], list[Any]]
#: The records through which wanted sources are reached, and these; None means all.
Way = tuple[set[Link] | None, set[Link] | None]

_ndarray = np.ndarray
_index = attrgetter("index")
_cell = attrgetter("cell")
_is_dead = attrgetter("is_dead")


def collect(targets: Sequence[Link]) -> list[Record]:
    """Return the records that the targets depend on, newest first."""
    return graph_of(targets)[0]


def graph_of(targets: Sequence[Link], ends: Set[Link] = frozenset()) -> Graph:
    """Return the records that the targets depend on, newest first, and what they begin with.

    Records among `ends` are not looked behind.
    """
    found: set[Any] = set(ends)  # As if they had been looked at.
    leaves: list[Any] = []
    pending: list[Sequence[Link]] = [targets]
    for links in pending:  # It grows on the way.
        for link in links:
            if type(link) is Record:
                if link not in found:
                    found.add(link)
                    pending.append(link.inputs)
            elif type(link) is not _ndarray:
                leaves.append(link)
    found -= ends
    return sorted(found, key=_index, reverse=True), leaves


def way_of(graph: Graph, wanted: set[Link] | None, required_only: bool = False) -> Way:
    """Return the records through which wanted sources are reached, and these; None means all.

    Raise if one of the records is dead.
    """
    records, leaves = graph
    is_any_dead = any(map(_is_dead, set(map(_cell, records))))
    if wanted is None:
        if not is_any_dead:
            return None, None
        # Something is dead; it matters only if a wanted leaf lies behind it.
        links = {link for record in records for i, link in enumerate(record.inputs) if record.needs >> i & 1}
        wanted = {link for link in links if isinstance(link, Value) and _is_wanted(link, required_only)}
    elif not is_any_dead and wanted.issuperset(leaves):
        # Everything leads to wanted sources: the sweep need not ask at each step.
        return None, wanted
    oldest = min((link.index if type(link) is Record else -1 for link in wanted), default=-1)
    useful: set[Link] = set()
    for record in reversed(records):
        if record.cell is PAST and record.index > oldest:
            raise_streamed(record)
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


def raise_streamed(record: Record) -> NoReturn:
    """Raise for a record whose links were cut: a source may have been behind it."""
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
    records = collect([target])
    for record in records:
        if record.cell is PAST:
            raise_streamed(record)
    return any(link is source for record in records for i, link in enumerate(record.inputs) if record.needs >> i & 1)
