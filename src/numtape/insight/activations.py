"""Measure activation bytes: the buffers that records and sweeps hold, now, at most, and one after the other.

Counted are outputs of ops while a record or the program holds them; constants that were made inside, as by
``nt.randn``, while records hold them, and NumPy arrays that nobody else holds; values made again in a backward, and
cotangents of records. Not counted are leaves and memory that is a view of one, gradients of leaves, and what an op
needs inside.
"""

import sys
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

import numpy as np

from .._typing import NDArray
from ..core.buffers import Strays, buffer_of
from ..core.context import current
from ..core.op import Op
from ..core.record import Record, given_arrays
from ..core.reverse import reverse
from ..core.scopes import Follower, Observer, Scope
from ..core.value import Value
from .ledger import Ledger, arrays_in

FORWARD, BACKWARD = "forward", "backward"
#: How many points a timeline has before every two become one.
MOST_POINTS = 20_000


class Activations(Scope, Observer):
    """Count activation bytes while a block runs: ``with Activations() as bytes: ...``.

    It changes no result and holds no array. It sees the ops and sweeps of its own thread. What was recorded before the
    block does not count.

    Attributes:
        live: the bytes that are alive now, also after the block.
        peak: the most that were alive at once; `forward_peak` and `backward_peak` outside and inside of sweeps.
        timeline: pairs of an event, such as ``"forward mul"``, and the bytes alive after it. A long one loses detail,
            never its peaks.
        traced_peak: the peak of tracemalloc over the block, which sees everything that Python allocates; None if it is
            not tracing. The block resets tracemalloc's own.

    Example:
        >>> from numtape.insight.memory import Activations
        >>> x = nt.ones(1000, requires_grad=True)
        >>> with Activations() as bytes:
        ...     loss = nt.exp(x).sum()
        ...     loss.backward()
        >>> bytes.forward_peak, bytes.live
        (4004, 4)
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.phase = FORWARD
        self.peaks = {FORWARD: 0, BACKWARD: 0}
        #: The most bytes since somebody set it; checkpoints of a profiler do.
        self.high = 0
        self.timeline: list[tuple[str, int]] = []
        self.traced_peak: int | None = None
        self._names: dict[tuple[str, str], str] = {}
        #: The op that was computed last, and weak references to the buffers that it made.
        self._computed: tuple[Op | None, list[weakref.ref[Any]]] = (None, [])
        #: What ops made that left no record, and what was made of nothing; a later record may hold it.
        self._made: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._strays = Strays()

    @property
    def live(self) -> int:
        """The bytes that are alive now."""
        return self.ledger.live

    @property
    def peak(self) -> int:
        """The most bytes that were alive at once."""
        return self.ledger.peak

    @property
    def forward_peak(self) -> int:
        """The most bytes that were alive outside of sweeps."""
        return self.peaks[FORWARD]

    @property
    def backward_peak(self) -> int:
        """The most bytes that were alive inside of sweeps."""
        return self.peaks[BACKWARD]

    def __enter__(self) -> Self:
        state = current()
        self.start_tracing()
        self._entered.enter({"scopes": (*state.scopes, self), "observers": (*state.observers, self)})
        return self

    def __exit__(self, *exc: Any) -> None:
        self._entered.__exit__()
        self.read_tracing()
        self.settle()

    def start_tracing(self) -> None:
        if tracemalloc.is_tracing():
            for scope in current().scopes:
                if isinstance(scope, Activations):
                    scope.read_tracing()
            tracemalloc.reset_peak()

    def read_tracing(self) -> None:
        """Take note of tracemalloc's peak."""
        if tracemalloc.is_tracing():
            self.traced_peak = max(self.traced_peak or 0, tracemalloc.get_traced_memory()[1])

    def note(self, phase: str, name: str) -> None:
        """Add the bytes of now to the timeline."""
        live = self.ledger.live
        if live > self.peaks.get(phase, live):
            self.peaks[phase] = live
        self.high = max(self.high, live)
        event = self._names.get((phase, name))
        if event is None:
            event = self._names[phase, name] = f"{phase} {name}"
        self.timeline.append((event, live))
        if len(self.timeline) >= MOST_POINTS:
            pairs = zip(self.timeline[::2], self.timeline[1::2], strict=True)
            self.timeline = [max(pair, key=lambda point: point[1]) for pair in pairs]

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Remember what an op makes: buffers that are none of its operands'."""
        for reference in self._computed[1]:  # Of an op that left no record.
            buffer = reference()
            if buffer is not None:
                self._made[id(buffer)] = buffer
        out = compute(op, arrays, params)
        given = {id(buffer_of(array)) for array in arrays_in(arrays)}
        self._computed = (op, [weakref.ref(b) for b in map(buffer_of, arrays_in(out)) if id(b) not in given])
        return out

    def on_created(self, array: NDArray) -> None:
        """Remember what was made of nothing."""
        buffer = buffer_of(array)
        self._made[id(buffer)] = buffer

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Count what a new record, or the program, holds from now on."""
        self.settle()
        account = self.ledger.account(record, self.phase, "value")
        op, made = self._computed
        self._computed = (None, [])
        if op is record.op:
            for reference in made:
                buffer = reference()
                if buffer is not None:
                    self.ledger.enter(buffer, account)
        for array in self._strays.own():
            self.ledger.enter(array, account)
        for position, operand in enumerate(operands):
            if not record.needs >> position & 1 and isinstance(operand, Value | np.ndarray):
                for array in arrays_in(operand):
                    if id(buffer_of(array)) in self._made:
                        self.ledger.enter(array, account)
        for array in given_arrays(record):
            self._strays.add(array)
        self.note(self.phase, record.op.name)

    def on_sweep(self, records: Sequence[Record]) -> Follower:
        """Begin a backward."""
        sweep = _Sweep(self)
        self.phase = BACKWARD
        self.note(BACKWARD, "begins")
        return sweep

    def end_sweep(self, before: str) -> None:
        """End a backward; a sweep inside of another one ends where that goes on."""
        self.note(BACKWARD, "ends")
        self.phase = before

    def settle(self) -> None:
        """Leave a sweep that raised, which just stops."""
        if self.phase is BACKWARD and not _is_sweeping():
            self.phase = FORWARD


class _Sweep(Follower):
    """Counts what one reverse sweep holds: cotangents, and values that are made again."""

    def __init__(self, activations: Activations) -> None:
        self._activations = activations
        self._ledger = activations.ledger
        self._phase_before = activations.phase
        #: The gradients of leaves.
        self._of_leaves: list[weakref.ref[Any]] = []

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        """Count the cotangents that a step leaves to records."""
        self._activations.phase = BACKWARD
        account = self._ledger.account(record, BACKWARD, "cotangent")
        for array in arrays_in(cotangent):
            self._ledger.enter(array, account)
        waiting = [(link, cotangents.get(link)) for link in record.inputs if isinstance(link, Record | Value)]
        for link, g in waiting:
            if type(link) is not Record and type(g) is np.ndarray:
                self._of_leaves.append(weakref.ref(buffer_of(g)))
        # Before what is new: a sum may have taken the place of what is only a gradient now.
        self._let_leaves_go(cotangents)
        for link, g in waiting:
            if type(link) is Record:
                for array in arrays_in(g):
                    self._ledger.enter(array, account)
        self._activations.note(BACKWARD, record.op.name)

    def _let_leaves_go(self, cotangents: dict[Any, Any]) -> None:
        """Count an array no more that became the gradient of a leaf, unless a record waits for it, too."""
        if not self._of_leaves:
            return
        waiting = {
            id(buffer_of(array)) for link, g in cotangents.items() if type(link) is Record for array in arrays_in(g)
        }
        still = []
        for reference in self._of_leaves:
            buffer = reference()
            if buffer is not None and id(buffer) in waiting:
                still.append(reference)
            elif buffer is not None:
                self._ledger.remove(buffer)
        self._of_leaves = still

    def on_made_again(self, record: Record, made: Any) -> None:
        """Count what was made again."""
        account = self._ledger.account(record, BACKWARD, "recomputed")
        for array in arrays_in(made):
            if not _lies_in_a_leaf(record, array):
                self._ledger.enter(array, account)
        self._activations.note(BACKWARD, record.op.name)

    def on_end(self) -> None:
        """End a backward. An array that became the gradient of a leaf is no cotangent any more."""
        for reference in self._of_leaves:
            buffer = reference()
            if buffer is not None:
                self._ledger.remove(buffer)
        self._activations.end_sweep(self._phase_before)


def _is_sweeping() -> bool:
    """Say whether a reverse sweep is running in this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is reverse.__code__:
            return True
        frame = frame.f_back
    return False


def _lies_in_a_leaf(record: Record, array: Any) -> bool:
    """Say whether an output of a record is a view of what is no output of an op."""
    link: Any = record
    while type(link) is Record and link.inputs:
        link = link.inputs[0]
    return isinstance(link, Value) and buffer_of(array) is buffer_of(link.array)
