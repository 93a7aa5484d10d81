"""Whole Jacobians from batched sweeps over one recorded graph: forward, reverse, or both ways from a cut.

A Jacobian is returned in blocks: for each target and each source a matrix with a row for each element of the target and
a column for each element of the source, or None where nothing connects them.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from math import isfinite, prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..errors import NotDifferentiableError
from ..kernels.providers import matmul
from .batching import Batched
from .forward import forward
from .graph import Graph, check_not_streamed, graph_of, oldest_of, way_of
from .op import shape_of
from .record import Link, Record
from .reverse import reverse
from .value import Value, array_of, wrap_seed

Blocks = list[list[Any]]


class Cut(NamedTuple):
    """Links through which every path from the sources to the targets leads, and how many elements they have."""

    links: tuple[Link, ...]
    width: int
    #: How many records of the path are before it.
    position: int


class Path:
    """The records through which targets depend on sources, oldest first, and what a sweep over them costs.

    Args:
        targets: what is differentiated.
        sources: what by.
        graph: that of the targets, if the caller has it.
    """

    def __init__(self, targets: Sequence[Link], sources: Sequence[Link], graph: Graph | None = None) -> None:
        self.targets = list(targets)
        self.sources = list(sources)
        self.outputs = sum(map(size_of, targets))
        self.inputs = sum(map(size_of, sources))
        self.records: list[Record] = []
        work = 0
        #: How many of the multiply-adds unit vectors need not, as tangents of the sources or cotangents of the targets.
        self.spared_tangents = self.spared_cotangents = 0
        #: The number of the last record that reads a value.
        self._last_reads: dict[Link, int] = {}
        #: The elements of each value on a way from the sources, these among them.
        sizes = self._sizes = {link: size_of(link) for link in sources}
        last_reads, records = self._last_reads, self.records
        #: The graph of the targets; not all of it depends on the sources.
        oldest = oldest_of(sources)
        self.graph = graph or graph_of(targets, since=oldest)
        check_not_streamed(self.graph[0], oldest)
        number = 0
        for record in reversed(self.graph[0]):
            if record in sizes:  # A source.
                continue
            needs = record.needs
            least = size = -1
            for link in record.inputs:
                if needs & 1 and (read := sizes.get(link)) is not None:
                    if size < 0:
                        shape, flops = record.shape, record.op.facts.flops
                        size = size_of(record) if type(shape) is list else prod(shape)
                        least = max(record.flops if flops is None else size * flops, size)
                    last_reads[link] = number
                    work += least if least > read else read
                    if flops is None and record.op.facts.of_units is not None:
                        self._spare(record, link, least - size)
                needs >>= 1
            if size >= 0:
                records.append(record)
                sizes[record] = size
                number += 1
        #: Multiply-adds that carry one tangent or cotangent all the way.
        self.work = work
        #: How many elements a product of the two sides of a cut has: those of sources and targets that are connected.
        connected = sum([sizes[link] for link in sources if link in last_reads])
        self.product = connected * sum([sizes[link] for link in set(targets) if link in sizes])
        # Targets are alive to the end.
        last_reads.update(dict.fromkeys(targets, number))
        #: How many elements are alive before the first record and after each: from their record to their last reader.
        #: The values alive at one time are a cut. Each tangent or cotangent of a sweep takes as much memory.
        self.widths = self._widths(connected)
        #: The cut with the fewest elements.
        self.narrowest = self._narrowest()

    def _spare(self, record: Record, link: Link, multiply_adds: int) -> None:
        """Count what the op of a record does not compute for unit vectors in the place of an operand, or its output."""
        is_source = any(link is source for source in self.sources)
        is_target = len(record.shape) == 1 and any(record is target for target in self.targets)
        if len(link.shape) == 1 and (is_source or is_target) and _selects(record, link):
            self.spared_tangents += multiply_adds * is_source
            self.spared_cotangents += multiply_adds * is_target

    def _widths(self, connected: int) -> list[int]:
        sizes, last_reads, count = self._sizes, self._last_reads, len(self.records)
        # What is read on the way to other sources alone is no part of a cut.
        changes = [sizes[record] if record in last_reads else 0 for record in self.records]
        for link, last in last_reads.items():
            if last < count:
                changes[last] -= sizes[link]
        return list(itertools.accumulate(changes, initial=connected))

    def cut(self, position: int) -> Cut | None:
        """Return the values that are alive after `position` records; None amid the outputs of one op."""
        made = (*self.sources, *self.records[:position])
        last_reads = self._last_reads
        links = [link for link in made if last_reads.get(link, -1) >= position]
        if list in map(type, map(_shape, links)):
            return None
        return Cut(tuple(links), self.widths[position], position)

    def _narrowest(self) -> Cut:
        widths = self.widths
        cut = self.cut(widths.index(min(widths)))
        if cut is not None:  # As most often.
            return cut
        order = sorted(range(len(widths)), key=widths.__getitem__)
        return next(cut for cut in map(self.cut, order) if cut is not None)


def _selects(record: Record, link: Link) -> bool:
    """Say whether the op of a record only selects parts of other operands if one is a unit vector."""
    of_units = record.op.facts.of_units
    operands = [np.broadcast_to(0.0, shape_of(x)) for x in record.inputs]
    position = next(i for i, x in enumerate(record.inputs) if x is link)
    return of_units is not None and of_units(operands, position, slice(0, 1)) is not None


def tracked(record: Record) -> list[Link]:
    """Return the inputs of a record that were tracked."""
    return [link for i, link in enumerate(record.inputs) if record.needs >> i & 1]


def size_of(link: Link) -> int:
    """Return the number of elements behind a link, of all outputs of an op that has several."""
    shape = link.shape
    return sum(map(prod, shape)) if type(shape) is list else prod(shape)


class Sweeper:
    """Runs batched sweeps.

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

    def forward(
        self,
        sources: Sequence[Link],
        targets: Sequence[Link],
        records: Sequence[Record],
        is_silent: bool = True,
        unit: float = 1.0,
    ) -> list[Any]:
        """Return for each target a matrix with a column for each element of the sources; None if unconnected.

        The records are those between them, oldest first. All is times the `unit`.
        """
        count = sum(map(size_of, sources))
        pieces = [_Pieces(self, 1, count) for _ in targets]
        for first in range(0, count, self.chunk_size):
            size = min(self.chunk_size, count - first)
            seeds = self._seeds(sources, first, size, unit)
            arrived = forward(seeds, targets, cls=self.cls, is_silent=is_silent, records=records)
            # Nothing of one chunk is held while the next is swept.
            for piece in reversed(pieces):
                piece.put(arrived.pop(), first, size)
        return [piece.joined() for piece in pieces]

    def reverse(
        self,
        targets: Sequence[Link],
        sources: Sequence[Link],
        graph: Graph,
        is_silent: bool = True,
        unit: float = 1.0,
    ) -> list[Any]:
        """Return for each source a matrix with a row for each element of the targets; None if unconnected.

        The graph is that of the targets. All is times the `unit`.
        """
        count = sum(map(size_of, targets))
        pieces = [_Pieces(self, 0, count) for _ in sources]
        way = way_of(graph, set(sources))
        for first in range(0, count, self.chunk_size):
            size = min(self.chunk_size, count - first)
            seeds = self._seeds(targets, first, size, unit)
            found = reverse(seeds, sources, cls=self.cls, graph=graph, way=way, is_silent=is_silent)
            for piece, source in zip(pieces, sources, strict=True):
                piece.put(found.pop(source, None), first, size)
            del found
        return [piece.joined() for piece in pieces]

    def _seeds(self, links: Sequence[Link], first: int, size: int, unit: float) -> list[tuple[Link, Any]]:
        """Return `size` unit vectors from the `first` on, of the space of all elements of the links, as seeds.

        A link without a part in them is left out.
        """
        seeds = []
        offset = 0
        for link in links:
            length = size_of(link)
            if offset < first + size and first < offset + length:
                members = np.eye(size, length, first - offset, link.dtype).reshape((size, *link.shape))
                if unit != 1.0:
                    members *= unit
                if self.cls is not None:
                    batch = self.batch.of(wrap_seed(self.cls, members))
                elif unit == 1.0 and offset <= first and first + size <= offset + length and members.ndim == 2:
                    batch = self.batch.of_units(members, first - offset)
                else:
                    batch = self.batch.of(members)
                seeds.append((link, batch))
            offset += length
        return seeds


class _Pieces:
    """A matrix that sweeps fill a few rows (axis 0) or columns (axis 1) at a time."""

    def __init__(self, sweeper: Sweeper, axis: int, count: int) -> None:
        self.sweeper = sweeper
        self.axis = axis
        self.count = count
        self.matrix: Any = None
        #: For recorded sweeps: how many rows or columns each part has, and the part, or None where it is zero.
        self.parts: list[tuple[int, Any]] = []

    def put(self, arrived: Any, first: int, size: int) -> None:
        """Put what `size` sweeps from the `first` on brought into its place."""
        # What is not batched does not depend on the seeds; being linear in them, it is zero.
        rows = arrived.members.reshape((size, -1)) if isinstance(arrived, Batched) else None
        if rows is not None and self.axis:
            rows = rows.T
        if self.sweeper.cls is not None:
            self.parts.append((size, rows))
        elif rows is not None and size == self.count:
            self.matrix = rows
        elif rows is not None:
            if self.matrix is None:
                shape = (rows.shape[0], self.count) if self.axis else (self.count, rows.shape[1])
                self.matrix = np.zeros(shape, rows.dtype)
            part = slice(first, first + size)
            self.matrix[(slice(None), part) if self.axis else part] = rows

    def joined(self) -> Any:
        """Return the whole matrix, which others may hold as well; None if it is zero."""
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
    matrices = list(map(_own, sweeper.forward(path.sources, path.targets, path.records)))
    if len(path.sources) == 1:
        return [[matrix] for matrix in matrices]
    return [[None if matrix is None else matrix[:, part] for part in _slices(path.sources)] for matrix in matrices]


def by_reverse(path: Path, sweeper: Sweeper) -> Blocks:
    """Return the blocks of a Jacobian, a cotangent for each output."""
    matrices = list(map(_own, sweeper.reverse(path.targets, path.sources, path.graph)))
    if len(path.targets) == 1:
        return [matrices]
    return [[None if matrix is None else matrix[part] for matrix in matrices] for part in _slices(path.targets)]


def _own(matrix: Any) -> Any:
    """Return a matrix with rows in order, as memory that nobody else holds."""
    return np.array(matrix, order="C") if type(matrix) is np.ndarray and matrix.base is not None else matrix


def _slices(links: Sequence[Link]) -> list[slice]:
    """Return where each link's elements stand if all are in a row."""
    ends = list(itertools.accumulate(map(size_of, links)))
    return list(itertools.starmap(slice, zip([0, *ends[:-1]], ends, strict=True)))


_shape = attrgetter("shape")
_is_linear_backward = attrgetter("op.facts.is_linear_backward")


class LostAtCut(Exception):
    """The halves of a product at a cut do not tell what sweeps all the way would. It never leaves the package."""


def by_cut(path: Path, cut: Cut, sweeper: Sweeper) -> Blocks:
    """Return the blocks of a Jacobian as products: tangents from the cut on, cotangents from the cut back.

    Raises:
        LostAtCut: if a half has elements that are infinite, or too small.
    """
    records = path.records[: cut.position]
    if not all(map(_is_linear_backward, records)):
        bent = next(record for record in records if not _is_linear_backward(record))
        raise NotDifferentiableError(
            f"{bent.op.name}: a mixed sweep multiplies by its pull function, which may not be linear; use reverse "
            "mode, or declare it by nt.custom_op with is_linear_backward=True if it is."
        )
    graph_before = records[::-1], path.graph[1]
    # What is too small in one half may have been made large by the other: then unit vectors must be larger.
    for exponent in (0, *_EXPONENTS.get(path.sources[0].dtype.char, ())):
        unit = 2.0**exponent
        underflows: list[str] = []
        with np.errstate(all="ignore", under="call", call=lambda kind, flag, seen=underflows: seen.append(kind)):
            after = sweeper.forward(cut.links, path.targets, path.records[cut.position :], False, unit)
            before = sweeper.reverse(cut.links, path.sources, graph_before, False, unit)
            if not are_finite((*after, *before)):
                # An infinite derivative would meet zeros in the product, and spoil what a sweep keeps apart.
                raise LostAtCut("a derivative on one side of the cut is too large")
            if underflows:
                continue
            blocks = [[None if a is None or b is None else _product(a, b) for b in before] for a in after]
            if exponent == 0:
                return blocks
            if are_finite(itertools.chain(*blocks)):
                return [[None if block is None else block * unit**-2 for block in row] for row in blocks]
    raise LostAtCut("derivatives on one side of the cut are too small")


def _product(a: Any, b: Any) -> Any:
    return matmul(a, b) if type(a) is type(b) is np.ndarray else a @ b


def are_finite(matrices: Iterable[Any]) -> bool:
    """Say whether all elements of matrices are finite; None stands for zeros."""
    return all(_is_finite(array_of(matrix)) for matrix in matrices if matrix is not None)


def _is_finite(array: NDArray) -> bool:
    # One element that is not finite makes a sum that is not; so may many large ones.
    return isfinite(np.add.reduce(array, axis=None)) or bool(np.isfinite(array).all())


#: By the character of a dtype, exponents of two such that numbers as small as that part of 1 are seen in the product.
_EXPONENTS = {"d": (300,), "f": (30,)}
