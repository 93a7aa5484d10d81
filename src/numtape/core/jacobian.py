"""Whole Jacobians from batched sweeps over one recorded graph: forward, reverse, or both ways from a cut.

A Jacobian is returned in blocks: for each target and each source a matrix with a row for each element of the target and
a column for each element of the source, or None where nothing connects them.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .batching import Batched
from .forward import forward
from .record import Link, Record
from .reverse import collect, reverse
from .value import Value, wrap

Blocks = list[list[Any]]


@dataclass(frozen=True)
class Cut:
    """Links through which every path from the sources to the targets leads, and the work on either side of them.

    Work is in multiply-adds for one tangent or cotangent.
    """

    links: tuple[Link, ...]
    width: int
    work_before: int
    work_after: int


class Path:
    """The records through which targets depend on sources, oldest first, with what they cost."""

    def __init__(self, targets: Sequence[Link], sources: Sequence[Link]) -> None:
        self.targets = list(targets)
        self.sources = list(sources)
        reached = set(sources)
        self.records: list[Record] = []
        for record in reversed(collect(targets)):
            if any(link in reached for link in tracked(record)):
                reached.add(record)
                if record not in self.sources:
                    self.records.append(record)
        self.reached = reached
        self.outputs = sum(map(size_of, targets))
        self.inputs = sum(map(size_of, sources))
        self._works = [self._work(record) for record in self.records]
        #: Multiply-adds that carry one tangent or cotangent all the way.
        self.work = sum(self._works)

    def _work(self, record: Record) -> int:
        """Return the multiply-adds of one tangent through a record: a run of the op for each input that moves."""
        shapes = [link.shape if hasattr(link, "shape") else () for link in record.inputs]
        cost = record.op.facts.cost(record.shape, *shapes, **(record.params or {}))
        moved = [link for link in tracked(record) if link in self.reached]
        return sum(max(int(cost), size_of(record), size_of(link)) for link in moved)

    def cuts(self) -> Iterator[Cut]:
        """Go through the values that are alive after each record: each such set is a cut.

        A value is alive from its own record to the last one that reads it; targets and what they read stay.
        """
        last_read = {link: i for i, record in enumerate(self.records) for link in tracked(record)}
        ends: dict[int, list[Link]] = {}
        kept = set(self.targets)
        alive: dict[Link, None] = {}
        for link in (*self.sources, *self.records):
            if link not in kept and link in last_read:
                ends.setdefault(last_read[link], []).append(link)
        for source in self.sources:
            alive[source] = None
        width = self.inputs
        before = 0
        yield Cut(tuple(alive), width, 0, self.work)
        for i, (record, work) in enumerate(zip(self.records, self._works, strict=True)):
            before += work
            alive[record] = None
            width += size_of(record)
            for link in ends.get(i, ()):
                del alive[link]
                width -= size_of(link)
            # An op with several outputs is followed by records that pick them: there is no cut between.
            if not any(isinstance(link.shape, list) for link in alive):
                yield Cut(tuple(alive), width, before, self.work - before)

    def widest(self) -> int:
        """Return the most elements that are alive at once, for each tangent or cotangent of a sweep."""
        return max(cut.width for cut in self.cuts())


def tracked(record: Record) -> list[Link]:
    """Return the inputs of a record that were tracked."""
    return [link for i, link in enumerate(record.inputs) if record.needs >> i & 1]


def size_of(link: Link) -> int:
    """Return the number of elements behind a link, of all outputs of an op that has several."""
    shape = link.shape
    return sum(map(math.prod, shape)) if isinstance(shape, list) else math.prod(shape)


class Sweeper:
    """Runs batched sweeps; counts the tangents and cotangents that it carried.

    Args:
        batch: the class of batches.
        cls: the tensor class on which to record the sweeps, or None to run them on arrays.
        join: concatenates a list of tensors along an axis; for recorded sweeps.
        chunk_size: how many tangents or cotangents to carry at once.
    """

    def __init__(
        self, batch: type[Batched], cls: type[Value] | None, join: Callable[[list[Any], int], Any], chunk_size: int
    ) -> None:
        self.batch = batch
        self.cls = cls
        self.join = join
        self.chunk_size = chunk_size
        self.tangents = 0
        self.cotangents = 0

    def forward(self, sources: Sequence[Link], targets: Sequence[Link], are_independent: bool = False) -> list[Any]:
        """Return for each target a matrix with a column for each element of the sources; None if unconnected.

        Sources that are computed from one another can be taken as independent variables.
        """
        self.tangents += sum(map(size_of, sources))
        pieces: list[_Pieces] = [_Pieces(self, axis=1) for _ in targets]
        for seeds, first, size, count in self._chunks(sources, are_independent):
            for piece, arrived in zip(pieces, forward(seeds, targets, cls=self.cls), strict=True):
                piece.put(arrived, first, size, count)
        return [piece.joined() for piece in pieces]

    def reverse(self, targets: Sequence[Link], sources: Sequence[Link]) -> list[Any]:
        """Return for each source a matrix with a row for each element of the targets; None if unconnected."""
        self.cotangents += sum(map(size_of, targets))
        pieces: list[_Pieces] = [_Pieces(self, axis=0) for _ in sources]
        for seeds, first, size, count in self._chunks(targets, False):
            found = reverse(seeds, sources, cls=self.cls)
            for piece, source in zip(pieces, sources, strict=True):
                piece.put(found.get(source), first, size, count)
        return [piece.joined() for piece in pieces]

    def _chunks(self, links: Sequence[Link], all_links: bool) -> Iterator[tuple[list[tuple[Link, Any]], int, int, int]]:
        """Yield seeds for some of the unit vectors, the first one's number, how many they are and how many there are.

        The vectors are those of the space of all elements of the links. A link without a part in them is left out,
        unless all are wanted.
        """
        count = sum(map(size_of, links))
        for first in range(0, count, self.chunk_size):
            size = min(self.chunk_size, count - first)
            seeds = []
            offset = 0
            for link in links:
                length = size_of(link)
                begin, end = max(first, offset), min(first + size, offset + length)
                if begin < end or all_links:
                    rows = np.zeros((size, length), link.dtype)
                    rows[range(begin - first, end - first), range(begin - offset, end - offset)] = 1.0
                    members = rows.reshape((size, *link.shape))
                    seeds.append((link, self.batch.of(members if self.cls is None else wrap(self.cls, members))))
                offset += length
            yield seeds, first, size, count


class _Pieces:
    """A matrix that sweeps fill a few rows (axis 0) or columns (axis 1) at a time."""

    def __init__(self, sweeper: Sweeper, axis: int) -> None:
        self.sweeper = sweeper
        self.axis = axis
        self.matrix: Any = None
        #: For recorded sweeps: how many rows or columns each part has, and the part, or None where it is zero.
        self.parts: list[tuple[int, Any]] = []

    def put(self, arrived: Any, first: int, size: int, count: int) -> None:
        """Put what `size` of `count` sweeps brought into its place."""
        # What is not batched does not depend on the seeds; being linear in them, it is zero.
        rows = arrived.members.reshape((size, -1)) if isinstance(arrived, Batched) else None
        if rows is not None and self.axis:
            rows = rows.T
        if self.sweeper.cls is not None:
            self.parts.append((size, rows))
        elif rows is not None:
            if self.matrix is None:
                self.matrix = np.zeros((rows.shape[0], count) if self.axis else (count, rows.shape[1]), rows.dtype)
            part = slice(first, first + size)
            self.matrix[(slice(None), part) if self.axis else part] = rows

    def joined(self) -> Any:
        """Return the whole matrix; None if it is zero."""
        found = next((rows for _, rows in self.parts if rows is not None), None)
        if found is None or len(self.parts) == 1:
            return self.matrix if found is None else found
        length = found.shape[1 - self.axis]
        return self.sweeper.join(
            [
                np.zeros((length, size) if self.axis else (size, length), found.dtype) if rows is None else rows
                for size, rows in self.parts
            ],
            self.axis,
        )


def by_forward(path: Path, sweeper: Sweeper) -> Blocks:
    """Return the blocks of a Jacobian, a tangent for each input."""
    matrices = sweeper.forward(path.sources, path.targets)
    if len(path.sources) == 1:
        return [[matrix] for matrix in matrices]
    return [[None if matrix is None else matrix[:, part] for part in _slices(path.sources)] for matrix in matrices]


def by_reverse(path: Path, sweeper: Sweeper) -> Blocks:
    """Return the blocks of a Jacobian, a cotangent for each output."""
    matrices = sweeper.reverse(path.targets, path.sources)
    if len(path.targets) == 1:
        return [matrices]
    return [[None if matrix is None else matrix[part] for matrix in matrices] for part in _slices(path.targets)]


def _slices(links: Sequence[Link]) -> list[slice]:
    """Return where each link's elements stand if all are in a row."""
    ends = list(itertools.accumulate(map(size_of, links)))
    return list(itertools.starmap(slice, zip([0, *ends[:-1]], ends, strict=True)))


def by_cut(path: Path, cut: Cut, sweeper: Sweeper) -> Blocks:
    """Return the blocks of a Jacobian as products: tangents from the cut on, cotangents from the cut back."""
    after = sweeper.forward(cut.links, path.targets, are_independent=True)
    before = sweeper.reverse(cut.links, path.sources)
    return [[None if a is None or b is None else a @ b for b in before] for a in after]
