"""The bytes that a graph holds over forward and backward: as a profile measured them, or as its records predict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from .._typing import NDArray
from ..core.buffers import buffer_of
from ..core.record import Block, Record
from ..core.value import Value
from .graph import Numbers, Timeline
from .summary import inside_of


def timeline(records: Sequence[Record], numbers: Sequence[Numbers]) -> Timeline:
    """Return the bytes held after each record, which are given oldest first."""
    if records and all("live_bytes" in each for each in numbers):
        forward = tuple(int(each["live_bytes"]) for each in numbers)
        backward = tuple(
            int(each["backward_live_bytes"]) for each in reversed(numbers) if "backward_live_bytes" in each
        )
        return Timeline(forward, backward, is_measured=True)
    return _predicted(records)


def _predicted(records: Sequence[Record]) -> Timeline:
    """Predict: values that rules read are held until the sweep has passed their record, cotangents until it does.

    Values that were dropped together are made again when the first rule reads one of them, and held from then on; under
    a budget, one by one.
    """
    held = _held_bytes(records)
    live = 0
    forward = [live := live + each for each in held]
    backward = []
    waiting: set[Record] = set()
    restored: set[Record] = set()
    together: dict[Block, set[Record]] = defaultdict(set)
    for record in records:
        if type(record.array) is Block and record.array.limit is None and not record.array.is_unread:
            together[record.array].add(record)
    for record, value in zip(reversed(records), reversed(held), strict=True):
        if record.needs:
            cotangents = {record, *(link for i, link in enumerate(record.inputs) if record.needs >> i & 1)}
            new = {link for link in cotangents if type(link) is Record} - waiting
            dropped = {link for link in _reads(record) if type(link.array) is Block} - restored
            made = dropped.union(*(together[link.array] for link in dropped)) - restored
            live += sum(link.nbytes for link in new) + sum(link.nbytes for link in made)
            waiting |= new
            restored |= made
            backward.append(live + (0 if (inside := inside_of(record)) is None else inside.nbytes))
            live -= record.nbytes
        live -= value + (record.nbytes if record in restored else 0)
    return Timeline(tuple(forward), tuple(backward), is_measured=False)


def _held_bytes(records: Sequence[Record]) -> list[int]:
    """Return for each record the bytes that it holds and no older record does."""
    read = {link for record in records for link in _reads(record)}
    seen = {
        id(buffer_of(link.array))
        for record in records
        for link in record.inputs
        if isinstance(link, Value) and hasattr(link, "array")
    }
    found = []
    for record in records:
        inside = inside_of(record)
        held = 0 if inside is None else _new_bytes(inside.let_go, seen)
        if record.is_kept:
            held += _new_bytes(record.array if type(record.array) is tuple else (record.array,), seen)
        elif record.array is None and record in read and not record.op.facts.aliases:
            held += record.nbytes  # Freed since; views are taken to have held nothing of their own.
        found.append(held)
    return found


def _new_bytes(arrays: Iterable[NDArray], seen: set[int]) -> int:
    total = 0
    for array in arrays:
        buffer = buffer_of(array)
        if id(buffer) not in seen:
            seen.add(id(buffer))
            total += buffer.nbytes
    return total


def _reads(record: Record) -> Iterator[Record]:
    """Return the records whose outputs the derivative rules of a record read."""
    positions, reads_out = record.op.kept(record.needs)
    if reads_out:
        yield record
    for position in range(len(record.inputs)) if positions is None else positions:
        link = record.inputs[position] if position < len(record.inputs) else None
        if type(link) is Record:
            yield link
