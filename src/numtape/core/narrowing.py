"""Which cotangents may arrive summed: those that their record would sum anyway, and do nothing else with.

A difference ``x - means`` that repeats `means` along an axis passes on the sum of its cotangent along that axis. A rule
that computes the cotangent may be able to sum on the way, which can take much less work: for a product of matrices, the
sum of the rows of ``g @ w`` is that of the rows of ``g``, times `w`. It reads `wanted_shape` to know. Plans for a
budget of memory count such a cotangent as if it were whole, which is more than it takes.
"""

import math
from collections import Counter
from collections.abc import Container, Sequence, Set
from typing import Any

from .._typing import Shape
from .op import shape_of
from .record import Link, Record

#: The least elements of a cotangent for which it is looked who else reads its record.
LEAST = 1 << 14


class Narrowing:
    """Tells in which shape a sweep wants the cotangent of a record.

    Args:
        records: those of the sweep.
        whole: the links whose cotangents are wanted for themselves.
        arrived: the links at which cotangents have arrived; others must be like them.
    """

    __slots__ = ("_arrived", "_own", "_readers", "_records", "_whole")

    def __init__(self, records: Sequence[Record], whole: Set[Link], arrived: Container[Link]) -> None:
        self._records = records
        self._whole = whole
        self._arrived = arrived
        self._readers: Counter[Any] | None = None
        self._own: Set[Record] = frozenset()

    def shape(self, link: Any) -> Shape:
        """Return the shape in which the cotangent of an operand is wanted: 1 along the axes over which it is summed."""
        shape: Shape = shape_of(link)
        if type(link) is not Record or (summed := _summed(link)) == shape:
            return shape
        notes = link.notes
        is_seen = notes is not None and (notes.hooks is not None or notes.retained is not None)
        if is_seen or link in self._whole or link in self._arrived:
            return shape
        if self._readers is None:
            self._readers = Counter(read for record in self._records for read in record.inputs if type(read) is Record)
            self._own = set(self._records)
        # Who else reads it would bring a whole cotangent; where the sweep ends, somebody else takes it.
        return summed if self._readers[link] == 1 and link in self._own else shape


def _summed(record: Record) -> Shape:
    """Return the shape of a record's cotangent after the sums that it takes of it for every operand."""
    shape: Shape = record.shape
    op = record.op
    plan = op.plans.get(record.needs)
    if not (op.is_elementwise and op.facts.is_linear_backward and plan) or math.prod(shape) < LEAST:
        return shape
    lengths = [1] * len(shape)
    for position, _, _, rule in plan:
        if rule.reads:  # It is not the same for each element.
            return shape
        operand = shape_of(record.inputs[position])
        operand = (1,) * (len(shape) - len(operand)) + operand
        lengths = [max(length, other) for length, other in zip(lengths, operand, strict=True)]
    return tuple(lengths)
