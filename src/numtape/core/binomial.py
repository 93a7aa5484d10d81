"""Where to cut a run of records into parts, so that it can be walked backward in little memory at little extra time.

For a chain of equal steps and room for `slots` states the best places are known (binomial checkpointing: Griewank and
Walther, "Algorithm 799: revolve"). A run of records is not a chain; it is cut into units of about equal size at places
where few bytes cross, and these are then treated as one.
"""

import bisect
import math
from collections.abc import Callable, Sequence, Set
from functools import lru_cache

import numpy as np

from .._typing import NDArray
from .record import Record

#: How often the records of a run are to be run again at most, on average: less memory is not worth more time.
_MOST_AGAIN = 12


class Parts:
    """How a run is made again: the ends of its parts, and the places of the values that are kept on the way through it.

    The last part is put back whole, with what its rules read from before it. Each other one is made again when the
    sweep gets there, of values that were kept for it.
    """

    __slots__ = ("ends", "kept")

    def __init__(self, ends: list[int], kept: list[int]) -> None:
        self.ends = ends
        self.kept = kept


class Run:
    """A run of records, oldest first. It holds none of them.

    Args:
        order: the records.
        wanted: those whose outputs are to be put back.
        size: gives the bytes of each output.
    """

    def __init__(self, order: Sequence[Record], wanted: Set[Record], size: Callable[[Record], int]) -> None:
        self._length = len(order)
        place = {record: i for i, record in enumerate(order)}
        sizes = [size(record) for record in order]
        #: For each record, the one in whose memory its output lies: itself, unless it is a view.
        owners = list(range(len(order)))
        makers, readers, is_of_rule = [], [], []
        for i, record in enumerate(order):
            positions, _ = record.op.kept(record.needs)
            for position, link in enumerate(record.inputs):
                if type(link) is Record and link in place:
                    makers.append(place[link])
                    readers.append(i)
                    is_of_rule.append(positions is None or position in positions)
                    if not sizes[i] and not position:
                        owners[i] = owners[place[link]]
        self._owners = np.array(owners, np.intp)
        self._makers, self._readers = np.array(makers, np.intp), np.array(readers, np.intp)
        self._is_of_rule = np.array(is_of_rule, bool)
        self._sizes = np.array(sizes, np.int64)
        self._is_wanted = np.array([record in wanted for record in order], bool)
        self._places = np.arange(len(order))
        #: For each record, the place behind the last one in the run that reads what lies in its memory.
        self._behind = self._places + 1
        np.maximum.at(self._behind, self._owners[self._makers], self._readers + 1)
        #: The bytes of the wanted values before each place, and of the values that cross it.
        self.inside = [0, *self._held_bytes(self._is_wanted).cumsum().tolist()]
        ends = np.bincount(self._behind, self._sizes, len(order) + 1)[1:]
        self.crossing_bytes = [0, *np.cumsum(self._sizes - ends).tolist()]
        #: The bytes that each record finds and leaves, if what was read for the last time goes at once.
        self._passing = np.cumsum(self._sizes) - np.cumsum(ends) + ends
        #: The units of each number that was tried, and the parts of each number of units and slots.
        self._borders: dict[int, list[int]] = {}
        self._ways: dict[tuple[int, int], tuple[list[int], float, float]] = {}

    def _held_bytes(self, is_kept: NDArray) -> NDArray:
        """Return the bytes of each output whose memory is held if some outputs are kept, and 0 for the others."""
        held = np.zeros_like(self._sizes)
        owners = self._owners[is_kept]
        held[owners] = self._sizes[owners]
        return held

    def _peaks(self, is_kept: NDArray) -> tuple[float, float]:
        """Return the most bytes that running through takes if some outputs are kept, and those that are held after."""
        kept = np.bincount(self._behind, self._held_bytes(is_kept), self._length + 1).cumsum()
        return float((self._passing + kept[:-1]).max(initial=0.0)), float(kept[-1])

    def cut_within(self, room: float, after: float = 0.0) -> tuple[Parts | None, float]:
        """Return how to cut the run, None if all of it is put back at once, and the bytes that it takes then.

        Of the ways that stay within the room, in bytes, it is the one that runs the least again; if there is none, it
        is the one that takes the least. So many bytes as `after` are needed besides when the run is over.
        """
        through, held = self._peaks(self._is_wanted)
        least = max(through, held + after)
        best = 0.0 if least <= room else math.inf
        chosen: list[int] | None = None
        count = 2
        while count <= self._length and best >= 1:
            borders = self._borders.get(count) or self._borders.setdefault(count, self.borders(count))
            units = len(borders) - 1
            fewest, slots = fewest_slots(units), units - 1
            most = slots
            while units > 1 and fewest <= most:  # Look for the largest number of states that there is room for.
                ends, through, held = self._ways.get((count, slots)) or self._way(count, slots)
                peak = max(through, held + after)
                cost = advances(units, slots) / units if peak <= room else math.inf
                if (cost, peak) < (best, least):
                    best, least, chosen = cost, peak, ends
                fewest, most = (slots + 1, most) if peak <= room else (fewest, slots - 1)
                slots = (fewest + most + 1) // 2
            count += max(1, count // 4)
        if chosen is None:
            return None, least
        return Parts(chosen, np.flatnonzero(self._is_kept(chosen)).tolist()), least

    def _way(self, count: int, slots: int) -> tuple[list[int], float, float]:
        """Return the ends of the parts of so many units, and what running through them takes and leaves."""
        ends = self.chosen(self._borders[count], slots)
        self._ways[count, slots] = way = (ends, *self._peaks(self._is_kept(ends)))
        return way

    def _is_kept(self, ends: list[int]) -> NDArray:
        """Return which outputs are kept: states, what is wanted in the last part, and what its rules read."""
        part = np.array(ends[1:-1]).searchsorted(self._places, "right")
        last = len(ends) - 2
        is_read = (part[self._readers] < last) | self._is_of_rule
        is_kept: NDArray = self._is_wanted & (part == last)
        is_kept[self._makers[(part[self._makers] < part[self._readers]) & is_read]] = True
        return is_kept

    def borders(self, count: int) -> list[int]:
        """Return the ends of about `count` units with about as many wanted bytes each, cut where little crosses."""
        borders = [0]
        total = self.inside[-1]
        for unit in range(1, count):
            low = bisect.bisect_left(self.inside, total * (unit - 0.25) / count, borders[-1] + 1)
            high = bisect.bisect_left(self.inside, total * (unit + 0.25) / count)
            places = range(low, min(high + 1, self._length))
            if places:
                borders.append(min(places, key=self.crossing_bytes.__getitem__))
        return [*borders, self._length]

    def chosen(self, borders: list[int], slots: int) -> list[int]:
        """Return the ends of parts if the run is walked through with free slots for states between them."""
        chosen = [0]
        unit, units = 0, len(borders) - 1
        while units > 1 and slots:
            step = best_step(units, slots)
            unit, units, slots = unit + step, units - step, slots - 1
            chosen.append(borders[unit])
        if units > 1:  # There is no state for the last unit: it is a part all the same.
            chosen.append(borders[-2])
        return [*chosen, borders[-1]]


@lru_cache(1 << 14)
def advances(units: int, slots: int) -> int:
    """Return how many units must be run again to walk back over a chain, from its start and with free slots."""
    rounds = _rounds(units, slots)
    return rounds * units - math.comb(slots + 1 + rounds, slots + 2)


@lru_cache(1 << 14)
def fewest_slots(units: int) -> int:
    """Return the fewest slots with which no more is run again than is worth it."""
    slots = 0
    while advances(units, slots) > _MOST_AGAIN * units:
        slots += 1
    return slots


@lru_cache(1 << 14)
def best_step(units: int, slots: int) -> int:
    """Return after how many units to keep the first state."""
    rounds = _rounds(units, slots)
    # The part before the state can then be walked back in one round less, the part behind it with one slot less.
    return max(1, reach(slots, rounds - 2), units - reach(slots - 1, rounds))


def _rounds(units: int, slots: int) -> int:
    """Return how often a unit is run again at most."""
    rounds = 0
    while reach(slots, rounds) < units:
        rounds += 1
    return rounds


def reach(slots: int, rounds: int) -> int:
    """Return how many units can be walked back if none is run again more than `rounds` times."""
    return math.comb(slots + 1 + rounds, slots + 1) if rounds >= 0 else 0
