"""Push tangents while ops run, so that forward mode needs no stored tape: memory does not grow with the number of ops.

Ops leave records as ever, since the faces are fast at that. A streaming tape pushes tangents through them in small
batches, then cuts their links: what is left of a record is the tangent of its tensor, and it goes with that tensor.
"""

import sys
from typing import Any, NoReturn

import numpy as np

from ..errors import GradientError
from .context import current
from .forward import Tangents, push_all
from .op import Facts, Op
from .reader import Reader
from .record import Gone, Record
from .tape import RecordingTape

#: Records that wait to be pushed: enough to make the sweep's own overhead small.
_BATCH = 256
_getrefcount = sys.getrefcount


class _Batch(list[Record]):
    """The records of a streaming tape that were not pushed yet."""

    __slots__ = ("tape",)

    def __init__(self, tape: "StreamingTape") -> None:
        self.tape = tape

    def append(self, record: Record) -> None:
        super().append(record)
        if len(self) >= _BATCH:
            self.tape.settle()


class StreamingTape(RecordingTape):
    """A tape that pushes tangents through its records and forgets them."""

    __slots__ = ("depth", "tangents")

    tangents: Tangents

    def __init__(self, sources: Tangents) -> None:
        super().__init__(watch_all=False)
        self.records: list[Record] = _Batch(self)
        self.tangents = sources
        #: The number of transforms around the function that this tape streams.
        self.depth = current().transforms + 1

    def settle(self) -> None:
        """Push tangents through the records that wait; forget the tangents of tensors that are gone."""
        batch = self.records[:]
        self.records.clear()
        if batch:
            push_all(batch, self.tangents, Reader(None))
            # Transforms and tapes within need the links of their records.
            state = current()
            if state.transforms == self.depth and state.tapes == (self,):
                for record in batch:
                    _cut(record)
            del batch
        tangents = self.tangents
        # Nobody else holds a record that has two references: the dictionary's and getrefcount's argument.
        for link in [link for link in tangents if type(link) is Record and _getrefcount(link) <= _HELD_BY_US]:
            del tangents[link]

    def end(self) -> None:
        """Forget everything."""
        self.records = []
        self.tangents = {}
        super().end()


#: The dictionary, the loop's variable and the argument of getrefcount.
_HELD_BY_US = 3


def _streamed() -> None:
    """The history of a tensor that a forward derivative has streamed past."""


def _raise_streamed(g: Any) -> NoReturn:
    raise GradientError(
        "backward: the loss was computed inside of a function that nt.jvp differentiates, which keeps no graph; use "
        "nt.grad inside of it, or call jvp with tensors instead of arrays."
    )


#: The inputs of a record whose links were cut: neither a record nor a source that anyone wants, so that sweeps which do
#: not need what lay behind stop there.
_CUT = (Gone((), np.dtype(np.float64)),)
#: The op of such a record.
STREAMED = Op(_streamed, _streamed, pulls={}, pushes={}, joint=_raise_streamed, facts=Facts(cost=lambda out: 0))


def _cut(record: Record) -> None:
    record.op = STREAMED
    record.inputs = _CUT
    record.params = None
    record.needs = 0
    record.array = None
