"""The values of a graph, freed or not, made again step by step; what cannot be made again says why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.cells import FREED, Past
from ..core.reader import Reader, for_rule
from ..core.recompute import Made, is_at_hand, is_refilled, run_again, uncounted
from ..core.record import Gone, Record, describe_site, link_name
from ..core.value import Value
from ..core.write import stamp_at


@dataclass(frozen=True)
class Obstacle:
    """What stands in the way of making a value again: an operand that is gone or was overwritten."""

    record: Record
    text: str
    repair: str = "look at it inside of nt.detect_anomaly(), which sees every value while it is there."
    #: What can still be computed points to this op, whose derivative is not finite.
    lead: Any = None
    #: The first element that is not finite in what is still held, and its place.
    index: tuple[int, ...] | None = None
    value: float | None = None


class ObstacleMet(Exception):
    """A rule needs a value that cannot be made again. It never leaves this package."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle


def argument_name(record: Record, position: int) -> str:
    """Return what an op calls one of its operands."""
    op = record.op
    return f"{op.arguments[0]}[{position}]" if op.is_variadic else op.arguments[position]


def find_obstacle(record: Record, position: int) -> Obstacle | None:
    """Return why an operand that no record made is not what it was, or None if it can be read."""
    link = record.inputs[position]
    if type(record.cell) is Past:
        return Obstacle(
            record,
            f"a forward derivative has streamed past the ops before {record.site}",
            "ask inside of the function, or give tensors to jvp instead of arrays, which keeps the graph.",
        )
    read = f"{argument_name(record, position)!r}, which {record.op.name} read at {record.site},"
    if type(link) is Gone:
        if link.operand is None:
            shown = f"an untracked operand of shape {link.shape}"
            return Obstacle(
                record,
                f"{read} is gone: {shown} that nobody held after the backward that freed the graph",
                "hold that operand in a variable until you have asked, or run the step inside of nt.detect_anomaly().",
            )
        link = link.operand
    if isinstance(link, Value) and link.version is not None:
        version = link.version[0]
        if version.count != stamp_at(record, position):
            written = describe_site(version.code, version.lasti)
            return Obstacle(
                record,
                f"{read} was overwritten since at {written}: {link_name(link)} holds other values",
                "ask before that: nt.explain_nan(loss) between backward() and optimizer.step(), or run the step inside "
                "of nt.detect_anomaly().",
            )
    prints = record.notes.prints if record.notes is not None else None
    array = uncounted(link)
    if prints is not None and array is not None and is_refilled(array, prints[position]):
        return Obstacle(
            record,
            f"{read} was overwritten since: the NumPy array {link_name(link)} holds other values",
            "ask before it is written, or give a copy of it to the op.",
        )
    return None


def _obstacle_of_op(record: Record) -> Obstacle | None:
    """Return why an op cannot be run again, or None if it does the same each time."""
    if record.op.facts.deterministic:
        return None
    return Obstacle(
        record,
        f"the result of {record.op.name} at {record.site} is gone, and cannot be computed again: the op is declared "
        "with deterministic=False",
        "ask before the backward, or run the step inside of nt.detect_anomaly(), which sees what is there.",
    )


def is_close(found: Any, expected: Any, tolerance: float) -> bool:
    """Say whether two arrays are equal but for rounding, relative to the largest finite element."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype.kind in "biu":
        return bool(np.array_equal(found, expected))
    unit = float(np.finfo(np.float64 if expected.dtype == np.float64 else np.float32).eps)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    is_finite = np.isfinite(expected)
    if not np.array_equal(found[~is_finite], expected[~is_finite], equal_nan=True):
        return False
    size = np.abs(expected[is_finite]).max(initial=0.0)
    return bool(np.all(np.abs(found[is_finite] - expected[is_finite]) <= tolerance * unit * size))


class Replay:
    """The outputs of records, at hand or computed again, oldest first. The graph itself stays as it is."""

    def __init__(self, records: Sequence[Record], known: Made, keeps_all: bool = False) -> None:
        """Prepare to compute.

        Args:
            records: all records behind some targets, oldest first.
            known: outputs that the caller has.
            keeps_all: whether outputs stay in `made` after their last use.
        """
        self.records = records
        self.made: Made = dict(known)
        self.obstacles: dict[Record, Obstacle] = {}
        self._keeps_all = keeps_all

    def walk(self) -> Iterator[tuple[Record, Any]]:
        """Return each record with its output; None for one that has an obstacle before it."""
        left = _uses(self.records)
        for record in self.records:
            out = self._output(record)
            yield record, out
            for link in () if self._keeps_all else record.inputs:
                if type(link) is Record:
                    left[link] -= 1
                    if not left[link]:
                        self.made.pop(link, None)

    def _output(self, record: Record) -> Any:
        if record in self.made:
            return self.made[record]
        if is_at_hand(record):
            self.made[record] = record.array
            return record.array
        obstacle = self.obstacle_of(record) or _obstacle_of_op(record)
        if obstacle is not None:
            self.obstacles[record] = obstacle
            return None
        self.made[record] = run_again(record, self.made)
        return self.made[record]

    def obstacle_of(self, record: Record) -> Obstacle | None:
        """Return what stands in the way of computing a record again, once `walk` is there."""
        for position, link in enumerate(record.inputs):
            found = self.obstacles.get(link) if type(link) is Record else find_obstacle(record, position)
            if found is not None:
                return found
        return None

    def operands(self, record: Record) -> list[Any]:
        """Return the operands of the record that `walk` is at, none of which has an obstacle."""
        return [self.made[link] if type(link) is Record else _plain(link) for link in record.inputs]

    def own_operands(self, record: Record) -> list[Any]:
        """Return the operands that no record made; None in the place of others, and of those that cannot be read."""
        return [
            None if type(link) is Record or find_obstacle(record, position) is not None else _plain(link)
            for position, link in enumerate(record.inputs)
        ]


def _uses(records: Sequence[Record]) -> dict[Record, int]:
    uses: dict[Record, int] = {}
    for record in records:
        for link in record.inputs:
            if type(link) is Record:
                uses[link] = uses.get(link, 0) + 1
    return uses


def _plain(link: Any) -> Any:
    if type(link) is Gone:
        link = link.operand
    return link.array if isinstance(link, Value) else link


class ReplayReader(Reader):
    """Reads for rules also what a backward has freed, as far as it can be made again."""

    __slots__ = ("_replay",)

    def __init__(self, records: Sequence[Record], known: Made) -> None:
        """Prepare to read the operands and outputs of `records`, newest first."""
        super().__init__(None, records)
        self.warns = False  # Nobody runs a backward here.
        self._replay: Replay | None = None
        if any(record.cell is FREED for record in records):
            self._replay = Replay(records[::-1], known, keeps_all=True)
            for _ in self._replay.walk():
                pass

    def operand(self, record: Record, position: int) -> Any:
        """Return the value of an input, as rules want it."""
        link = record.inputs[position]
        if type(link) is not Record:
            obstacle = find_obstacle(record, position)
            if obstacle is not None:
                raise ObstacleMet(obstacle)
            if type(link) is Gone:
                return for_rule(record, _plain(link), position)
        return super().operand(record, position)

    def _missing(self, reader: Record, maker: Record) -> Any:
        if self._replay is None:
            return super()._missing(reader, maker)
        if maker in self._replay.obstacles:
            raise ObstacleMet(self._replay.obstacles[maker])
        return self._replay.made[maker]
