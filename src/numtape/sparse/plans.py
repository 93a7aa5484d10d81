"""Plans: which tangents and cotangents to sweep, and where each entry of the pattern is read from what they bring."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._typing import NDArray
from .colouring import Colours, colour_columns, colour_symmetric, fullest, star_places
from .matrices import Matrix, rows_of

#: How many thresholds of a two-sided plan are looked at, and how many of these are coloured.
_THRESHOLDS, _COLOURED = 32, 3


@dataclass(frozen=True)
class Side:
    """The sweeps of one mode: a tangent for each colour of columns, or a cotangent for each colour of rows."""

    is_forward: bool
    #: The colour of each column (forward) or row (reverse); -1 for those that this side leaves out.
    colours: Colours
    #: Which entries of the pattern this side gives, where in the result of a sweep each stands, and of which sweep.
    entries: NDArray
    places: NDArray
    shades: NDArray

    @property
    def count(self) -> int:
        """The number of sweeps."""
        return fullest(self.colours) + 1 if len(self.colours) else 0


@dataclass(frozen=True)
class Plan:
    """One way to compute all entries of a pattern: "columns", "rows", "two-sided" or "star"."""

    name: str
    sides: tuple[Side, ...]

    @property
    def tangents(self) -> int:
        """The number of tangents."""
        return sum(side.count for side in self.sides if side.is_forward)

    @property
    def cotangents(self) -> int:
        """The number of cotangents."""
        return sum(side.count for side in self.sides if not side.is_forward)

    @property
    def colours(self) -> int:
        """The number of sweeps."""
        return self.tangents + self.cotangents


class Plans:
    """The plans for one pattern, each made when it is first asked for."""

    def __init__(self, pattern: Matrix, is_symmetric: bool = False) -> None:
        self.pattern = pattern
        self.is_symmetric = is_symmetric
        self._rows = rows_of(pattern).astype(np.int64)
        self._columns = pattern.indices.astype(np.int64)

    @functools.cached_property
    def transposed(self) -> Matrix:
        """The pattern of the transpose."""
        return self.pattern.T.tocsr()

    @functools.cached_property
    def columns(self) -> Plan:
        """A tangent for each colour of columns."""
        return Plan("columns", (self._side(True, colour_columns(self.pattern)),))

    @functools.cached_property
    def rows(self) -> Plan:
        """A cotangent for each colour of rows."""
        return Plan("rows", (self._side(False, colour_columns(self.transposed)),))

    @functools.cached_property
    def star(self) -> Plan:
        """A tangent for each colour of a symmetric pattern's star colouring."""
        colours = colour_symmetric(self.pattern)
        return Plan("star", (Side(True, colours, np.arange(len(self._rows)), *star_places(self.pattern, colours)),))

    @functools.cached_property
    def two_sided(self) -> Plan:
        """Cotangents for the fullest rows and tangents for the others, or tangents for the fullest columns."""
        best = None
        for _, is_rows, is_full in sorted(self._splits(), key=lambda split: split[0])[:_COLOURED]:
            plan = self._split(is_rows, is_full)
            if best is None or plan.colours < best.colours:
                best = plan
        return best or Plan("two-sided", self.columns.sides)

    def promising(self) -> Iterator[Plan]:
        """Yield the plans that may be the one with the fewest sweeps; others are not coloured at all."""
        least_columns = fullest(np.diff(self.pattern.indptr))
        least_rows = fullest(np.bincount(self._columns, minlength=self.pattern.shape[1]))
        if self.is_symmetric:
            yield self.columns
            if least_columns > 1:
                yield self.star
            return
        first, second = ("columns", "rows") if least_columns <= least_rows else ("rows", "columns")
        best: Plan = getattr(self, first)
        yield best
        if max(least_columns, least_rows) < best.colours:
            other: Plan = getattr(self, second)
            yield other
            best = min(best, other, key=lambda plan: plan.colours)
        if any(least < best.colours for least, _, _ in self._splits(best.colours)):
            yield self.two_sided

    def _side(self, is_forward: bool, colours: Colours, entries: NDArray | None = None) -> Side:
        chosen = np.arange(len(self._rows)) if entries is None else entries
        rows, columns = self._rows[chosen], self._columns[chosen]
        places, coloured = (rows, columns) if is_forward else (columns, rows)
        return Side(is_forward, colours, chosen, places, colours[coloured])

    def _splits(self, limit: float = np.inf) -> list[tuple[int, bool, NDArray]]:
        """Return ways to take the fullest rows, or columns, apart: how many sweeps at least, and which lines they are.

        Those that cannot stay below a limit are left out.
        """
        found = []
        for is_rows, matrix in ((True, self.pattern), (False, self.transposed)):
            entries = np.diff(matrix.indptr)
            thresholds = np.unique(entries)[:-1]
            for threshold in _spread(thresholds[thresholds + 1 < limit]):
                is_full = entries > threshold
                inside = matrix.indices[np.repeat(is_full, entries)]
                found.append((int(threshold) + fullest(np.bincount(inside)), is_rows, is_full))
        return found

    def _split(self, is_rows: bool, is_full: NDArray) -> Plan:
        """Return the plan in which the fullest rows (or columns) are computed apart from the others."""
        matrix = self.pattern if is_rows else self.transposed
        is_apart = is_full[self._rows if is_rows else self._columns]
        apart = colour_columns(matrix[np.flatnonzero(is_full)].T.tocsr())
        colours = np.full(matrix.shape[0], -1)
        colours[is_full] = apart
        others = colour_columns(matrix[np.flatnonzero(~is_full)])
        sides = (
            self._side(is_rows, others, np.flatnonzero(~is_apart)),
            self._side(not is_rows, colours, np.flatnonzero(is_apart)),
        )
        return Plan("two-sided", tuple(sorted(sides, key=lambda side: not side.is_forward)))


def _spread(thresholds: NDArray) -> NDArray:
    """Return at most so many thresholds, evenly chosen."""
    if len(thresholds) <= _THRESHOLDS:
        return thresholds
    chosen: NDArray = thresholds[np.linspace(0, len(thresholds) - 1, _THRESHOLDS).astype(int)]
    return chosen
