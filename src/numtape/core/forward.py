"""Push tangents through a record: the mirror image of `reverse.pull`."""

from typing import Any

import numpy as np

from .apply import PICK, apply
from .op import Marker, Rule, Structure
from .reader import Reader
from .record import Record


def push(record: Record, tangents: list[Any], reader: Reader) -> Any:
    """Return the tangent of a record's output, given those of its inputs (None where an input has none).

    For an op with several outputs the result is a tuple, with None where nothing flows.
    """
    op = record.op
    if op is PICK:
        assert record.params is not None
        return tangents[0][record.params["position"]]
    moved = [i for i, tangent in enumerate(tangents) if tangent is not None]
    if any(op.push(i) is Marker.ITSELF_ALONE for i in moved):
        # Linear in all arguments together: one run of the op serves them all.
        operands = [
            tangents[i] if i in moved else _zero(reader, record, i, op.push(i)) for i in range(len(record.inputs))
        ]
        return apply(op, operands, record.params or {})
    total: Any = None
    for position in moved:
        tangent = _push_one(record, position, tangents[position], reader)
        total = tangent if total is None else _add(total, tangent)
    return total


def _zero(reader: Reader, record: Record, position: int, rule: Rule | Marker) -> Any:
    operand = reader.operand(record, position)
    return operand if rule is not Marker.ITSELF_ALONE else np.zeros(operand.shape, operand.dtype)


def _push_one(record: Record, position: int, tangent: Any, reader: Reader) -> Any:
    op = record.op
    rule = op.push(position)
    if rule is Marker.ITSELF:
        operands = [tangent if i == position else reader.operand(record, i) for i in range(len(record.inputs))]
        return apply(op, operands, record.params or {})
    assert isinstance(rule, Rule)
    pushed = rule.run(tangent, record, reader, position)
    if op.facts.structure is Structure.ELEMENTWISE and pushed.shape != record.shape:
        pushed = pushed + np.zeros(record.shape, pushed.dtype)
    return pushed


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True))
    return a + b
