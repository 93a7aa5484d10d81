"""Drop values, and make them again from the ops, parameters and links of their records. The only place that does so.

Invariants:
- An op computes what it computed before, bit for bit: its parameters hold its random draws, and what it reads is at
  hand or made again. A value that was overwritten since is an error, never read.
- Iterative, as every walk here.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..dtypes import HALF_DTYPES, float32
from ..errors import FreedError
from ..kernels.halves import to_float32
from .apply import PICK, compute
from .record import Block, Gone, Record
from .value import Value
from .write import check_stamp, stamp_at

Made = dict[Record, Any]


def value(record: Record) -> Any:
    """Return the output of a record, making it and what it needs again where it is not kept. Nothing else changes."""
    return record.array if is_at_hand(record) else remake(missing([record]), {record})[record]


def is_at_hand(record: Record) -> bool:
    """Say whether a record's array is kept and still holds what the record computed."""
    return record.is_kept and (record.version is None or record.version[0].count == record.version[1])


def missing(targets: Iterable[Record]) -> list[Record]:
    """Return the records to run again so that the targets are made, oldest first."""
    found = {target for target in targets if not is_at_hand(target)}
    stack = list(found)
    while stack:
        for link in stack.pop().inputs:
            if type(link) is Record and link not in found and not is_at_hand(link):
                found.add(link)
                stack.append(link)
    return sorted(found, key=lambda record: record.index)


def remake(records: Sequence[Record], wanted: set[Record]) -> Made:
    """Run records again, oldest first, and return the outputs of the wanted ones; others go after their last use."""
    uses: dict[Record, int] = {}
    for record in records:
        for link in record.inputs:
            if type(link) is Record:
                uses[link] = uses.get(link, 0) + 1
    made: Made = {}
    for record in records:
        made[record] = run_again(record, made)
        for link in record.inputs:
            if type(link) is Record:
                uses[link] -= 1
        for done in (record, *record.inputs):
            if type(done) is Record and not uses.get(done) and done not in wanted:
                made.pop(done, None)
    return made


def run_again(record: Record, made: Made) -> Any:
    """Compute the output of a record from its operands: those in `made`, and those at hand."""
    arrays = [_operand(record, position, made) for position in range(len(record.inputs))]
    params = record.params or {}
    if record.op is PICK:
        return arrays[0][params["position"]]
    return compute(record.op, _widened(record, arrays), params)


def _widened(record: Record, arrays: list[Any]) -> list[Any]:
    """Return operands as the op got them: where halves gave float32, it got float32."""
    dtype = record.dtype[0] if isinstance(record.dtype, list) else record.dtype
    if dtype != float32:
        return arrays
    return [to_float32(x) if isinstance(x, np.ndarray) and x.dtype in HALF_DTYPES else x for x in arrays]


def _operand(record: Record, position: int, made: Made) -> Any:
    link = record.inputs[position]
    if type(link) is Gone:
        link = link.operand
        if link is None:
            raise_freed(record)
    if type(link) is Record:
        array = made.get(link)
        if array is not None:
            return array
        if link.version is not None:
            check_stamp(record, position, link.version, link.version[1])
        return link.array
    if isinstance(link, Value):
        if link.version is not None:
            check_stamp(record, position, link.version, stamp_at(record, position))
        return link.array
    return link


def drop(records: Iterable[Record], block: Block) -> None:
    """Drop the arrays of records, oldest first, as far as they can be made again from what is left."""
    lost: set[Record] = set()
    for record in records:
        if not all(_is_readable(record, position, lost) for position in range(len(record.inputs))):
            if not is_at_hand(record):
                lost.add(record)
        elif record.is_kept:
            record.array = block


def _is_readable(record: Record, position: int, lost: set[Record]) -> bool:
    """Say whether an operand of a record is, or can be made, what it was when the record was made."""
    link = record.inputs[position]
    if isinstance(link, Value):
        return link.version is None or link.version[0].count == stamp_at(record, position)
    return link not in lost if type(link) is Record else type(link) is not Gone


def raise_freed(record: Record) -> NoReturn:
    """Raise for a record whose graph an earlier backward has freed."""
    raise FreedError(
        f"{record.op.name} at {record.site}: an earlier backward has freed the arrays of this graph. Call the first "
        "backward with retain_graph=True, or add the losses and call backward once."
    )
