"""What a tape is to the engine: a list of the records made while it is active, and the tensors that it watches."""

from .context import Cell
from .record import Record
from .value import Value, extras_of, update_node


class RecordingTape:
    """The records of one tape, newest last, and its watched tensors.

    A watched tensor is a source of gradients until `unwatch`; the tape unwatches when it is consumed, reset, closed
    or dropped. Tensors do not know their tapes, they only count them.
    """

    __slots__ = ("cell", "cells", "records", "used", "watch_all", "watched")

    def __init__(self, watch_all: bool) -> None:
        self.watch_all = watch_all
        self.records: list[Record] = []
        self.cell = Cell("a tape")
        self.cells = [self.cell]
        #: Watched by the user, and by use while `watch_all` recorded.
        self.watched: dict[int, Value] = {}
        self.used: dict[int, Value] = {}

    def watch(self, value: Value) -> None:
        """Make a tensor a source until this tape ends."""
        _watch(self.watched, value)

    def watch_on_use(self, value: Value) -> None:
        """Make a tensor a source until this tape starts anew or ends."""
        _watch(self.used, value)

    def start_cell(self) -> None:
        """Start a new generation of records without invalidating the old ones."""
        self.cell = Cell("a tape")
        self.cells.append(self.cell)

    def start_segment(self) -> None:
        """Forget the records and the tensors watched by use; tensors keep their graphs."""
        self.records = []
        _unwatch(self.used)
        self.cell = Cell("a tape")
        self.cells = [self.cell]

    def rewind(self, records: int, cells: int) -> None:
        """Invalidate and forget what came after a mark."""
        for cell in self.cells[cells:]:
            cell.is_dead = True
        del self.records[records:]
        del self.cells[cells:]
        self.start_cell()

    def unwatch(self) -> None:
        """Stop watching."""
        _unwatch(self.used)
        _unwatch(self.watched)

    def end(self) -> None:
        """Invalidate everything recorded, and stop watching."""
        for cell in self.cells:
            cell.is_dead = True
        self.unwatch()
        self.start_segment()

    def __del__(self) -> None:
        self.unwatch()


def _watch(watched: dict[int, Value], value: Value) -> None:
    if id(value) in watched:
        return
    watched[id(value)] = value
    if type(value.node) is not Record:
        extras_of(value).watchers += 1
        update_node(value)


def _unwatch(watched: dict[int, Value]) -> None:
    for value in watched.values():
        if type(value.node) is not Record:
            extras_of(value).watchers -= 1
            update_node(value)
    watched.clear()
