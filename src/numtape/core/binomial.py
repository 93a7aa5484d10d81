"""Where to cut a run of records into parts, so that it can be walked backward in little memory at little extra time.

For a chain of equal steps and room for `slots` states the best places are known (binomial checkpointing: Griewank and
Walther, "Algorithm 799: revolve"). A run of records is not a chain; it is cut into units of about equal size at places
where few bytes cross, and these are then treated as one.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence, Set

from .record import Record

#: How many units a run is cut into at most.
_MOST_UNITS = 64


class Part:
    """A stretch of a run, and the values from before it that it must find at hand."""

    __slots__ = ("crossing", "start", "stop")

    def __init__(self, start: int, stop: int, crossing: tuple[Record, ...]) -> None:
        self.start = start
        self.stop = stop
        self.crossing = crossing


class Run:
    """A run of records, oldest first, of which some outputs are wanted; `size` gives the bytes of each."""

    def __init__(self, order: Sequence[Record], wanted: Set[Record], size: Callable[[Record], int]) -> None:
        self.order = order
        place = {record: i for i, record in enumerate(order)}
        sizes = [size(record) for record in order]
        is_held = [record in wanted for record in order]
        #: For each record, the place of the last one in the run that reads it.
        self.last_use = list(range(len(order)))
        for i, record in enumerate(order):
            for link in record.inputs:
                if type(link) is Record and link in place:
                    self.last_use[place[link]] = i
        for i in range(len(order) - 1, -1, -1):
            base = order[i].inputs[0] if order[i].inputs else None
            if not sizes[i] and type(base) is Record and base in place:  # A view holds what it is a view of.
                self.last_use[place[base]] = max(self.last_use[place[base]], self.last_use[i])
                is_held[place[base]] = is_held[place[base]] or is_held[i]
        #: The bytes of the wanted values before each place, and of the values that cross it.
        self.inside = [0]
        self.crossing_bytes = [0]
        #: The most bytes that running through takes, with everything that is wanted kept.
        self.peak = 0
        ends: dict[int, list[int]] = {}
        for i, last in enumerate(self.last_use):
            ends.setdefault(last, []).append(i)
        passing = crossing = 0
        for i, nbytes in enumerate(sizes):
            crossing += nbytes
            passing += 0 if is_held[i] else nbytes
            self.inside.append(self.inside[-1] + (nbytes if is_held[i] else 0))
            self.peak = max(self.peak, self.inside[-1] + passing)
            for j in ends.get(i, ()):
                crossing -= sizes[j]
                passing -= 0 if is_held[j] else sizes[j]
            self.crossing_bytes.append(crossing)

    def parts_within(self, room: float) -> list[Part]:
        """Return the parts to cut the run into: the last is put back whole, the others made again from their borders.

        Empty if no way was found to stay within the room, which is in bytes.
        """
        best: tuple[float, list[int]] | None = None
        count = 2
        while count <= min(_MOST_UNITS, len(self.order)):
            borders = self.borders(count)
            units = len(borders) - 1
            largest = max(self.inside[b] - self.inside[a] for a, b in itertools.pairwise(borders))
            widest = max((self.crossing_bytes[border] for border in borders[1:-1]), default=0)
            spare = room - largest - widest  # While a part runs, about as much passes through it as crosses a border.
            if spare >= 0 and units > 1:
                slots = units - 1 if not widest else min(units - 1, int(spare // widest))
                cost = advances(units, slots) / units
                if best is None or cost < best[0]:
                    best = (cost, self.chosen(borders, slots))
            count = count * 3 // 2 if count > 3 else count + 1
        return [] if best is None else self.parts(best[1])

    def borders(self, count: int) -> list[int]:
        """Return the ends of about `count` units with about as many wanted bytes each, cut where little crosses."""
        borders = [0]
        total = self.inside[-1]
        for unit in range(1, count):
            low = self._place(total * (unit - 0.25) / count)
            high = self._place(total * (unit + 0.25) / count)
            places = range(max(low, borders[-1] + 1), min(high + 1, len(self.order)))
            if places:
                borders.append(min(places, key=lambda place: (self.crossing_bytes[place], place)))
        return [*borders, len(self.order)]

    def _place(self, inside: float) -> int:
        return bisect.bisect_left(self.inside, inside)

    def chosen(self, borders: list[int], slots: int) -> list[int]:
        """Return the borders at which states are kept when the run is walked through with free slots."""
        chosen = [0]
        unit, units = 0, len(borders) - 1
        while units > 1 and slots:
            step = best_step(units, slots)
            unit, units, slots = unit + step, units - step, slots - 1
            chosen.append(borders[unit])
        if units > 1:  # The last unit is put back without a state before it.
            chosen.append(-borders[-2])
        return [*chosen, borders[-1]]

    def parts(self, borders: list[int]) -> list[Part]:
        """Return the parts between borders; a negative border is one at which no state is kept."""
        parts = []
        for start, stop in itertools.pairwise(borders):
            kept = start > 0
            start, stop = abs(start), abs(stop)
            crossing = tuple(r for i, r in enumerate(self.order[:start]) if self.last_use[i] >= start) if kept else ()
            parts.append(Part(start, stop, crossing))
        return parts


def advances(units: int, slots: int) -> int:
    """Return how many units must be run again to walk back over a chain, from its start and with free slots."""
    rounds = _rounds(units, slots)
    return rounds * units - math.comb(slots + 1 + rounds, slots + 2)


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
