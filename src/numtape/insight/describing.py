"""From records to a graph as plain data: number them and what they begin with, and find out about each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.binding import as_kind
from ..core.cells import Past
from ..core.gradients import check_target, link_of
from ..core.graph import collect
from ..core.record import Gone, Record, link_name
from ..core.value import Value
from ..errors import OperandError
from .graph import Graph, Node, Numbers, Profile, Source
from .graph_flow import layers_of, mark_all
from .graph_memory import timeline
from .graph_numbers import measure
from .summary import kept, short_site, shorten

#: How much of a text that a user wrote (a parameter, a name, a source line) is shown.
MOST_TEXT = 200


def graph_of(
    name: str, what: Any, profile: Profile | None = None, values: bool = True, named: Iterable[Value] = ()
) -> Graph:
    """Return the graph behind a tensor, of a tape, or of records; a `Graph` as it is.

    Args:
        name: the function that asks, for messages.
        what: a tracked tensor, something that has `records`, a sequence of records, or a graph.
        profile: numbers by the index of a record; without it they are read from the values that are kept.
        values: whether to read these, and to run a sweep for the norms of gradients.
        named: tensors whose names their records show.
    """
    if profile is not None and not isinstance(profile, Mapping):
        raise OperandError(
            f"{name}: the profile is of type {type(profile).__name__}; it must be a mapping from the index of a record "
            "to a dict of numbers."
        )
    values = as_kind(name, "values", values, bool)
    if isinstance(what, Graph):
        return what
    if isinstance(what, Value):
        check_target(name, what)
        target = what.node if type(what.node) is Record else None
        return describe(collect([link_of(what)]), profile, values, named=[what], target=target)
    records = what if isinstance(what, list | tuple) else getattr(what, "records", None)
    if not isinstance(records, list | tuple) or not all(isinstance(record, Record) for record in records):
        raise OperandError(
            f"{name}: wants a tensor, a tape, a list of records or a graph first, not {type(what).__name__}; write "
            f"nt.{name}(loss, ...)."
        )
    return describe(records, profile, values, named)


def describe(
    records: Sequence[Record],
    profile: Profile | None = None,
    values: bool = True,
    named: Iterable[Value] = (),
    target: Record | None = None,
) -> Graph:
    """Return records as plain data.

    Args:
        records: in any order.
        profile: numbers by the index of a record.
        values: whether to find numbers where no profile gives them.
        named: tensors whose names their records show.
        target: the record whose gradient is looked at; the newest one otherwise.
    """
    ordered = sorted(records, key=lambda record: record.index)
    measured = measure(ordered, profile, values, target)
    table = _Sources()
    numbers = {record: number for number, record in enumerate(ordered)}
    links = [tuple(table.link(record, i, numbers) for i in range(len(record.inputs))) for record in ordered]
    sources = [_source(link, kind, measured.of_source(link)) for link, kind in table.found]
    names = {value.node: _name_of(value) for value in named if type(value.node) is Record}
    layers, layer_of_record = layers_of(links, sources)
    found = [measured.of_record(record) for record in ordered]
    marks = mark_all([each.get("grad_norm") for each in found])
    nodes = tuple(
        _node(record, links[i], names.get(record, ""), layer_of_record[i], found[i], marks[i])
        for i, record in enumerate(ordered)
    )
    goal = None if measured.target is None else numbers[measured.target]
    return Graph(nodes, tuple(sources), layers, timeline(ordered, found), goal, measured.notes)


class _Sources:
    """Numbers what records begin with, each once."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, str]] = []
        self._numbers: dict[int, int] = {}

    def link(self, record: Record, position: int, numbers: Mapping[Record, int]) -> int | str:
        """Return how a node tells one of its inputs."""
        link = record.inputs[position]
        if type(link) is Record:
            return numbers[link] if link in numbers else ~self._number(link, "earlier")
        if record.needs >> position & 1:
            return ~self._number(link, "leaf")
        if isinstance(link, Value | np.ndarray | Gone) and link.shape:
            return ~self._number(link, "constant")
        return shorten(link_name(link), MOST_TEXT)

    def _number(self, link: Any, kind: str) -> int:
        # The records hold what they link to, so that an id stays what it is.
        number = self._numbers.setdefault(id(link), len(self.found))
        if number == len(self.found):
            self.found.append((link, kind))
        elif kind == "leaf":
            self.found[number] = (link, kind)
        return number


def _source(link: Any, kind: str, numbers: Numbers) -> Source:
    name = f"{link.op.name} (earlier)" if type(link) is Record else shorten(link_name(link), MOST_TEXT)
    shape, dtype = _shape_and_dtype(link)
    nbytes = link.nbytes if type(link) is Record else math.prod(shape) * link.dtype.itemsize
    return Source(name, kind, shape, dtype, nbytes, numbers)


def _node(record: Record, inputs: tuple[int | str, ...], name: str, layer: str, numbers: Numbers, mark: str) -> Node:
    shape, dtype = _shape_and_dtype(record)
    params = ", ".join(f"{k}={shorten(repr(v), MOST_TEXT)}" for k, v in (record.params or {}).items())
    if type(record.cell) is not Past:  # Without its links nobody can tell.
        numbers.setdefault("flops", float(record.flops))
    return Node(
        op=record.op.name,
        kind=record.op.facts.structure.name.lower(),
        inputs=inputs,
        shape=shape,
        dtype=dtype,
        nbytes=record.nbytes,
        kept=kept(record),
        site=shorten(short_site(record), MOST_TEXT),
        file=record.code.co_filename if record.code is not None else "",
        params=params,
        name=name,
        layer=layer,
        numbers=numbers,
        mark=mark,
    )


def _shape_and_dtype(link: Any) -> tuple[tuple[Any, ...], str]:
    if isinstance(link.shape, list):
        return tuple(map(tuple, link.shape)), ", ".join(map(str, link.dtype))
    return tuple(link.shape), str(link.dtype)


def _name_of(value: Value) -> str:
    return shorten(value.name or "", MOST_TEXT)
