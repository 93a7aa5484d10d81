"""Whose rule made a record: what a sweep records, for a derivative of a derivative, belongs to the line of the op."""

import sys
from bisect import bisect
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import CodeType
from typing import NamedTuple

from ..core.record import Record, call_site, describe_site, next_index
from .provenance import Explanation

#: Of how many steps of sweeps that record is known what they made: of the latest.
_MOST_STEPS = 100_000


class _Pass(NamedTuple):
    """The step of a sweep that passed a record, and made records from one index up to another."""

    start: int
    end: int
    #: The user's line that the sweep was called at, which is what the records have for theirs.
    called: tuple[CodeType, int]
    #: The op that was passed, and the line that ran it.
    op: str
    site: tuple[CodeType | None, int]


class RuleSites:
    """Remembers for the records that sweeps make which op's derivative they are a part of."""

    def __init__(self) -> None:
        self._passes: deque[_Pass] = deque(maxlen=_MOST_STEPS)

    def follow(self) -> Callable[[Record], None]:
        """Begin a sweep; return what is to be called with each record that it has just passed."""
        called = call_site(sys._getframe(1))
        start = next_index()

        def passed(record: Record) -> None:
            nonlocal start
            end = next_index()
            if end > start:
                owner = self._owner(record)
                op, site = (record.op.name, (record.code, record.lasti)) if owner is None else (owner.op, owner.site)
                self._passes.append(_Pass(start, end, called, op, site))
                start = end

        return passed

    def located(self, found: Explanation, record: Record) -> Explanation:
        """Return an explanation that is about a record with the line of the op whose derivative that is a part of."""
        owner = self._owner(record)
        if owner is None:
            return found
        where = f"in the derivative of {owner.op}, which {describe_site(*owner.called)} differentiates again"
        return replace(found, site=describe_site(*owner.site), cause=f"{where}: {found.cause}")

    def _owner(self, record: Record) -> _Pass | None:
        """Return the step that made a record, if that has the line of the call: one of a user's rule has its own."""
        position = bisect(self._passes, record.index, key=lambda each: each.start) - 1
        if position < 0:
            return None
        owner = self._passes[position]
        is_its = record.index < owner.end and (record.code, record.lasti) == owner.called
        return owner if is_its else None
