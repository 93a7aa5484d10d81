"""Where each node of a graph stands in a picture: rows by depth, neighbours near each other, long graphs in columns.

Invariants:
- An input stands in a row above what reads it, or in a column to the left.
- Positions are whole numbers, follow from the graph alone, and take a time that is linear in its size.
"""

import math
from collections.abc import Sequence

from .graph import Graph

#: The size of a node, and the distances between the left edges and the upper edges of neighbours.
NODE_WIDTH, NODE_HEIGHT = 168, 44
STEP_X, STEP_Y = 190, 74
#: Rows longer than this are broken.
MOST_IN_A_ROW = 32
#: Graphs with more rows than this are broken into columns, for a picture of about this proportion.
MOST_ROWS = 16
PROPORTION = 1.7
#: How often nodes are drawn to their neighbours, from the top and from the bottom in turn.
SWEEPS = 6

#: A node is a number here: records first, as they are numbered, then sources.
Neighbours = list[list[int]]


def layout(graph: Graph) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the centres of the records and of the sources of a graph."""
    above, below = _neighbours(graph)
    depths = _depths(graph, above, below)
    rows: list[list[int]] = [[] for _ in range(max(depths, default=-1) + 1)]
    for node, depth in enumerate(depths):
        rows[depth].append(node)
    xs = _align(rows, above, below, len(graph.records))
    rows = [row[i : i + MOST_IN_A_ROW] for row in rows for i in range(0, len(row), MOST_IN_A_ROW)]
    places = _fold(rows, xs)
    count = len(graph.records)
    return places[:count], places[count:]


def _neighbours(graph: Graph) -> tuple[Neighbours, Neighbours]:
    """Return for each node what it reads, and what reads it."""
    count = len(graph.records)
    above: Neighbours = [[] for _ in range(count + len(graph.sources))]
    below: Neighbours = [[] for _ in above]
    for number, record in enumerate(graph.records):
        for link in dict.fromkeys(link for link in record.inputs if not isinstance(link, str)):
            node = link if link >= 0 else count + ~link
            above[number].append(node)
            below[node].append(number)
    return above, below


def _depths(graph: Graph, above: Neighbours, below: Neighbours) -> list[int]:
    """Return the row of each node: records below all that they read, sources right above their first reader."""
    depths = [0] * len(above)
    for number in range(len(graph.records)):
        depths[number] = max((depths[node] + 1 for node in above[number]), default=0)
    for node in range(len(graph.records), len(above)):
        depths[node] = max(0, min((depths[reader] for reader in below[node]), default=1) - 1)
    return depths


def _align(rows: list[list[int]], above: Neighbours, below: Neighbours, count: int) -> list[float]:
    """Return the x of each node, and sort the rows by it: records near the mean of their neighbours.

    Records draw each other only, and sources stand to the right of a record of their row: so a chain is a straight line
    with its parameters at its side.
    """
    xs = [0.0] * len(above)
    near = [_nearest(nodes, count) for nodes in above], [_nearest(nodes, count) for nodes in below]
    wishes = [0.0] * len(above)
    for row in rows:
        _place(row, wishes, xs, count)
    for sweep in range(SWEEPS):
        first, second = near if sweep % 2 == 0 else near[::-1]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            for node in row:
                wishes[node] = _mean(first[node] or second[node], xs, xs[node])
            _place(row, wishes, xs, count)
    return xs


def _nearest(nodes: list[int], count: int) -> list[int]:
    """Return the records among nodes, or all if there are none."""
    return [node for node in nodes if node < count] or nodes


def _mean(nodes: Sequence[int], xs: Sequence[float], otherwise: float) -> float:
    return sum(xs[node] for node in nodes) / len(nodes) if nodes else otherwise


def _place(row: list[int], wishes: Sequence[float], xs: list[float], count: int) -> None:
    """Sort a row by wishes and give it positions: records as near to their wishes as there is room, sources beside.

    Records that want to stand too near to each other form a group, which as a whole stands at the mean of their wishes.
    """
    row.sort(key=lambda node: (wishes[node], node))
    heads = [i for i, node in enumerate(row) if node < count]
    if heads:  # A record comes first, so that each source has one to its left.
        row.insert(0, row.pop(heads[0]))
        heads[0] = 0
    else:
        heads = list(range(len(row)))
    # A group begins with a head, at the mean of its members' wishes less their distances from it.
    groups: list[tuple[int, float, int]] = []
    for head in heads:
        first, total, members = head, wishes[row[head]], 1
        while groups and groups[-1][1] / groups[-1][2] + first - groups[-1][0] > total / members:
            earlier, before, others = groups.pop()
            total += before - (first - earlier) * members
            first, members = earlier, members + others
        groups.append((first, total, members))
    for (first, total, members), end in zip(groups, [*(group[0] for group in groups[1:]), len(row)], strict=True):
        for i in range(first, end):
            xs[row[i]] = total / members + i - first


def _fold(rows: Sequence[Sequence[int]], xs: Sequence[float]) -> list[tuple[int, int]]:
    """Return places in pixels; the rows of a long graph continue at the top of the next column."""
    places = [(0, 0)] * len(xs)
    height = _column_height(rows)
    left = 0.0
    for start in range(0, len(rows), height):
        column = _without_gaps(rows[start : start + height], xs)
        least = min(min(line) for line in column)
        most = max(max(line) for line in column)
        for i, (row, line) in enumerate(zip(rows[start : start + height], column, strict=True)):
            for node, x in zip(row, line, strict=True):
                places[node] = (round((left + x - least) * STEP_X), i * STEP_Y)
        left += most - least + 1.5
    return places


def _without_gaps(rows: Sequence[Sequence[int]], xs: Sequence[float]) -> list[list[float]]:
    """Return the x of the nodes of a column; a row that was broken out of a longer one is moved to the middle."""
    column = [[xs[node] for node in row] for row in rows]
    middle = sum((line[0] + line[-1]) / 2 for line in column) / len(column)
    for line in column:
        shift = (line[0] + line[-1]) / 2 - middle
        if abs(shift) > MOST_IN_A_ROW / 2:
            line[:] = [x - shift for x in line]
    return column


def _column_height(rows: Sequence[Sequence[int]]) -> int:
    """Return how many rows to put into a column."""
    if len(rows) <= MOST_ROWS:
        return max(1, len(rows))
    width = (sum(map(len, rows)) / len(rows) + 1.5) * STEP_X
    columns = max(1, round(math.sqrt(PROPORTION * len(rows) * STEP_Y / width)))
    return max(MOST_ROWS // 2, math.ceil(len(rows) / columns))
