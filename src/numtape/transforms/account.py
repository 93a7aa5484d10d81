"""What a tape with a memory budget holds: bytes of what ops have made and is alive, and how much more may be."""

import math
from typing import Any

from ..core.apply import PICK
from ..core.buffers import Buffers
from ..core.record import Record, warn_user
from ..errors import MemoryBudgetError
from .layouts import Strides


def as_megabytes(nbytes: float, is_least: bool = False) -> str:
    """Return bytes as text, to three decimals and at least four digits; a least number is rounded up to be enough."""
    megabytes = nbytes / 2**20
    decimals = max(3, 3 - math.floor(math.log10(megabytes))) if megabytes else 3
    if is_least:
        megabytes = math.ceil(megabytes * 10**decimals) / 10**decimals
    text = f"{megabytes:.{decimals}f} MB"
    return text if megabytes >= 0.1 else f"{text} ({math.ceil(nbytes):,} bytes)"


#: What is more than a budget by no more than this part of it is not worth a word; plans may exceed it by as much.
_SLIGHTLY = 0.02


class Account:
    """What is held, and how much more may be. It knows no records, since their blocks know it."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        #: The outputs of ops that are alive, whoever holds them.
        self.buffers = Buffers()
        #: The bytes of the largest output of an op.
        self.largest = 0
        #: The indices of records whose outputs are views.
        self.views: set[int] = set()
        #: The strides, in elements, of outputs that do not lie in order, by the indices of records.
        self.strides: dict[int, Strides] = {}
        #: What a plan has decided, by the index of the record that reads, in the order in which it does.
        self.plan: dict[int, list[float]] = {}
        #: Where and how the forward did not stay within the budget; None while it does.
        self.shortage: str | None = None
        #: The least that is known to be enough for the forward.
        self.least = 0.0
        self._is_planned = False
        self._has_exceeded = False

    def room(self) -> float:
        """Return how many bytes more may be held."""
        assert self.budget is not None
        return self.budget - self.buffers.live

    def decide(self, reader: Record, room: float) -> float:
        """Do as planned, if it was planned for: to use more, because it happens to be free, would be missed later."""
        if self.shortage is not None:
            raise MemoryBudgetError(
                f"memory_budget_mb: {self.shortage}, and {as_megabytes(self.budget or 0)} were given; nothing was kept "
                "since, and there is no backward. The end of the tape's `with`, or its own backward(), says the least "
                "that would do."
            )
        planned = self.plan.get(reader.index)
        self._is_planned = bool(planned)
        try:
            return planned.pop(0) if planned else room
        except IndexError:  # Another thread, which sweeps the same graph, has taken it.
            return room

    def size(self, record: Record) -> int:
        """Return the bytes that a record's output takes: none if it is a view."""
        return 0 if record.op is PICK or record.index in self.views else record.made_bytes

    def forget(self, record: Record) -> None:
        """Forget how the output of a record lies in memory."""
        self.views.discard(record.index)
        self.strides.pop(record.index, None)

    def hold(self, array: Any) -> None:
        """Count an array, or each of several, as long as it lives."""
        self.buffers.hold_all(array)

    def exceed(self, record: Record, missing: float) -> None:
        """Warn, once: a sweep that nobody planned for needs more than the budget."""
        is_much = missing > _SLIGHTLY * (self.budget or 0.0)
        if is_much and not self._is_planned and not self._has_exceeded:
            self._has_exceeded = True
            warn_user(
                f"memory_budget_mb: this sweep takes {as_megabytes(missing)} more than the budget, at {record.site}. "
                "Backwards are planned for if the tape is kept (`as tape`); Jacobians and forward sweeps are not.",
            )
