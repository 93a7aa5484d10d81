"""Generations of records: all records of one can be made invalid at once, and be counted without a list of them."""

import gc
import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import Record
    from .scopes import Scope


class Cell:
    """A generation of records: those of one context between two clears, or of one stretch of a tape.

    Records point at their cell and nothing points back, so killing it invalidates them all in O(1). A stretch of a
    tape also dies with the cells that were current when it began: those of the tapes and the context around it.
    """

    __slots__ = ("_inherited", "_is_alive", "owner", "planners")

    def __init__(
        self, owner: str, outer: "Iterable[Cell]" = (), planners: "tuple[weakref.ref[Scope], ...]" = ()
    ) -> None:
        self.owner = owner
        #: The scopes that saw the records and plan for backwards over them. Weak, as they may list these.
        self.planners = planners
        # A list of one, so that cells inside can share it without holding this cell, whose holders are counted.
        self._is_alive = [True]
        self._inherited: tuple[list[bool], ...] = tuple(
            life for cell in outer for life in (cell._is_alive, *cell._inherited)
        )

    def kill(self) -> None:
        """Invalidate the records of this generation."""
        self._is_alive[0] = False

    @property
    def is_dead(self) -> bool:
        """Whether the generation was cleared, reset or closed."""
        return not self._is_alive[0] or bool(self._inherited and not all(life[0] for life in self._inherited))

    def live_records(self) -> int:
        """Count the records of this generation itself that are alive and not freed."""
        # Records are the only lasting holders of a cell besides its owner.
        return max(0, sys.getrefcount(self) - _IDLE)

    def count_records(self) -> int:
        """Count the records that `find_records` returns; fast while no tape records inside of this generation."""
        if sys.getrefcount(self._is_alive) > _ALONE:
            return len(self.find_records())
        return max(0, sys.getrefcount(self) - _IDLE)  # Not by `live_records`: its caller would be a holder.

    def find_records(self) -> "list[Record]":
        """Return the records of this generation and those inside of it that are alive and not freed, oldest first.

        Slow: it asks the garbage collector.
        """
        from .record import is_whole

        heirs = [holder for holder in gc.get_referrers(self._is_alive) if type(holder) is tuple]
        inside = [cell for cell in gc.get_referrers(*heirs) if type(cell) is Cell and not cell.is_dead] if heirs else []
        found = filter(is_whole, gc.get_referrers(self, *inside))
        return sorted(found, key=lambda record: record.index)


class Past(Cell):
    """The generation of records whose links were cut behind one streamed derivative. It is always dead."""

    __slots__ = ("is_missed", "is_over")

    def __init__(self) -> None:
        super().__init__("a streamed derivative")
        self.kill()
        #: Whether something looked for what was behind the records: the function has to run again.
        self.is_missed = False
        #: Whether the derivative was computed, so that nothing differentiates by what lay behind the records.
        self.is_over = False


#: The generation of records whose arrays a backward has freed. It is never dead: descriptions stay readable.
FREED = Cell("a backward")

#: What getrefcount says of a cell that only its owner holds: with `self` and its own argument, the latter not from
#: Python 3.14 on. Measured by counting from 0 on a cell that has no records yet.
_IDLE = 0
_IDLE = FREED.live_records()
#: What getrefcount says of the life of a cell that nobody shares.
_ALONE = sys.getrefcount(FREED._is_alive)
