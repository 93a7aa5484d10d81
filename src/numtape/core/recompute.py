"""Make a dropped value again, from the op, parameters and links of its record. The only place that does so."""

from typing import Any

from .._typing import NDArray
from .apply import compute
from .record import Gone, Link, Record, operand_array


def value(record: Record) -> Any:
    """Return the output of a record, computing it and what it needs again where it is not kept.

    Nothing on the tape changes: values made again on the way are dropped again. Iterative, as every walk here.
    """
    made: dict[Record, Any] = {}
    stack = [record]
    while stack:
        top = stack[-1]
        if top in made:
            stack.pop()
            continue
        missing = [link for link in top.inputs if type(link) is Record and not _is_at_hand(link) and link not in made]
        if missing:
            stack.extend(missing)
            continue
        arrays = [_array(link, made) for link in top.inputs]
        made[top] = compute(top.op, arrays, top.params or {})
        stack.pop()
    return made[record]


def _is_at_hand(record: Record) -> bool:
    """Say whether a record's array is kept and still holds what the record computed."""
    return record.array is not None and (record.version is None or record.version[0].count == record.version[1])


def _array(link: Link, made: dict[Record, Any]) -> NDArray:
    if type(link) is Gone:
        raise ValueError("an operand of this record was freed")
    if type(link) is Record and link in made:
        array: NDArray = made[link]
        return array
    return operand_array(link)
