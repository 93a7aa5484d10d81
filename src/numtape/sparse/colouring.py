"""Colourings: which columns, or rows, of a sparse matrix one sweep can compute together.

Columns of one colour have no row in common, so that from their sum each entry can be read. Greedy colouring with a mask
of the colours seen in each row takes one step for each entry; no colouring has fewer colours than the fullest row.
"""

from typing import Any

import numpy as np

from .._typing import NDArray
from .matrices import Matrix, rows_of

#: The colour of each column, -1 for those that are empty.
Colours = NDArray

#: How many more colours than the fullest row has entries are tried in turn, before a greedy colouring is taken.
_TRIES = 4


def fullest(counts: NDArray) -> int:
    """Return the largest of some numbers of entries."""
    return int(counts.max(initial=0))


def colour_columns(pattern: Matrix) -> Colours:
    """Return a colour for each column, such that no two columns of one colour have an entry in one row."""
    entries = np.bincount(pattern.indices, minlength=pattern.shape[1])
    least = fullest(np.diff(pattern.indptr))
    if least == np.count_nonzero(entries):
        return _numbered(np.where(entries > 0, np.arange(len(entries)), -1))
    turns = _in_turn(pattern, least)
    if turns is None:
        best = _greedy(pattern, np.arange(len(entries)))
        if fullest(best) + 1 > least:
            best = min(best, _greedy(pattern, np.argsort(-entries, kind="stable")), key=fullest)
        tries = range(least + 1, min(least + _TRIES, fullest(best) + 1))
        turns = next((turns for turns in (_in_turn(pattern, count) for count in tries) if turns is not None), None)
    return best if turns is None else _numbered(np.where(entries > 0, turns, -1))


def _in_turn(pattern: Matrix, count: int) -> Colours | None:
    """Return the colours 0, 1, 2, 0, 1, 2, ..., right for bands, if they are right here."""
    keys = rows_of(pattern).astype(np.int64) * count + pattern.indices % count
    if pattern.shape[0] * count > 16 * len(keys):
        return None
    is_right = fullest(np.bincount(keys)) <= 1
    return np.arange(pattern.shape[1]) % count if is_right else None


def _greedy(pattern: Matrix, order: NDArray) -> Colours:
    columns = pattern.tocsc()
    starts, rows = columns.indptr.tolist(), columns.indices.tolist()
    #: For each row, a bit for each colour that a column with an entry there has.
    seen = [0] * pattern.shape[0]
    colours = np.full(pattern.shape[1], -1)
    for column in order.tolist():
        own = rows[starts[column] : starts[column + 1]]
        if not own:
            continue
        taken = 0
        for row in own:
            taken |= seen[row]
        free = ~taken & (taken + 1)  # The lowest bit that is not set.
        for row in own:
            seen[row] |= free
        colours[column] = free.bit_length() - 1
    return colours


def _numbered(colours: NDArray) -> Colours:
    """Return colours numbered from 0 on without gaps; -1 stays."""
    _, numbers = np.unique(colours, return_inverse=True)
    return numbers.reshape(colours.shape) - int(bool(np.any(colours < 0)))


def colour_symmetric(pattern: Matrix) -> Colours:
    """Return a star colouring of a symmetric pattern: each entry, or the one across the diagonal, can be read.

    Neighbours differ, and no path of four vertices has two colours alone. All masks are kept up to date while colours
    are given, so that the work is proportional to the number of entries.
    """
    size = pattern.shape[0]
    starts, links = pattern.indptr.tolist(), pattern.indices.tolist()
    entries = np.diff(pattern.indptr)
    colours = [-1] * size
    #: For each vertex, the colours of its neighbours, and of each colour the first one, or -1 if there are more.
    seen = [0] * size
    first: list[dict[int, int]] = [{} for _ in range(size)]
    #: For each coloured vertex, the colours of neighbours that have another neighbour of its colour.
    closed = [0] * size
    for vertex in np.argsort(-entries, kind="stable").tolist():
        own = [link for link in links[starts[vertex] : starts[vertex + 1]] if link != vertex]
        taken = 0
        for link in own:
            taken |= seen[link] if colours[link] < 0 else (1 << colours[link]) | closed[link]
        free = ~taken & (taken + 1)
        colour = colours[vertex] = free.bit_length() - 1
        around = first[vertex]
        for link in own:
            seen[link] |= free
            there = colours[link]
            if there >= 0 and around[there] < 0:
                closed[link] |= free
            earlier = first[link].setdefault(colour, vertex)
            if earlier == vertex:
                continue
            first[link][colour] = -1
            if there >= 0:
                closed[vertex] |= 1 << there
                if earlier >= 0:
                    closed[earlier] |= 1 << there
    return np.where(entries > 0, np.array(colours, np.int64), -1) if size else np.zeros(0, np.int64)


def star_places(pattern: Matrix, colours: Colours) -> tuple[NDArray, NDArray]:
    """Return for each entry of a star coloured pattern where it is read: the row, and the colour."""
    rows, columns = rows_of(pattern).astype(np.int64), pattern.indices.astype(np.int64)
    keys: Any = rows * (fullest(colours) + 1) + colours[columns]
    _, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
    # A colour that occurs once in a row can be read there; else the entry across the diagonal can.
    is_alone = counts[numbers] == 1
    return np.where(is_alone, rows, columns), colours[np.where(is_alone, columns, rows)]
