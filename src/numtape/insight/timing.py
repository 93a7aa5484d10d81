"""Time every op while somebody asks: a timed function stands around each op's forward, and goes away after.

Invariants:
- Off costs nothing: ops have their own forwards, and no code of the engine asks for a profile.
- On, a run of an op adds one entry to a flat list, and a step of a reverse sweep another. Nothing holds an array.
- A log belongs to the context that entered it, as the ambient state does; a forward in another context is just called.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from time import perf_counter as clock
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ..core.buffers import is_view_of
from ..core.declare import registry
from ..core.facts import Structure
from ..core.op import Op, every_op
from ..core.record import Record, call_site, is_users, latest, next_index, user_files
from ..core.scopes import Follower, Observer
from ..kernels.broadcasting import in_long_rows
from ..ops import load_all

#: Operations and bytes of a run, from its shapes; None if it was too short.
Work = tuple[int, int] | None
#: What a run adds to `Log.runs`: op, begin, end, the user's code object and instruction, work.
RUN_FIELDS = 6
#: What a step adds to `Log.steps`: the time at its end, the record's index, op, code object and instruction.
STEP_FIELDS = 5
#: In place of a record's index: a sweep began, it ended, or it goes on after somebody took a look at it.
SWEEP_BEGAN, SWEEP_ENDED, SWEEP_RESUMED = -1, -2, -3
#: Runs shorter than this consist of the call itself; a rate would say nothing about them.
SHORT_SECONDS = 2e-6

#: A user's code object and instruction.
Site = tuple[CodeType, int]

_getframe = sys._getframe


class Log(Observer, Follower):
    """What ran in one context, in the order in which it ended."""

    __slots__ = (
        "_root",
        "entries",
        "into_runs",
        "into_steps",
        "is_closed",
        "runs",
        "runs_of_records",
        "short_seconds",
        "stacks",
        "steps",
    )

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.steps: list[Any] = []
        #: What entries are added to: the same lists, and nothing at all once the log is closed.
        self.into_runs: Any = self.runs
        self.into_steps: Any = self.steps
        #: Runs that take less are noted without a look at what they computed.
        self.short_seconds = SHORT_SECONDS
        #: By the number of a run, the user's frames around it, outermost first; only where somebody asks.
        self.stacks: dict[int, tuple[Site, ...]] = {}
        #: By the index of a record, the number of the run that left it; only where somebody asks.
        self.runs_of_records: dict[int, int] = {}
        #: How many entries of profiles use it.
        self.entries = 0
        self.is_closed = False
        #: Where stacks begin.
        self._root: CodeType | None = None

    def add_details(self, has_stacks: bool) -> None:
        """From now on note the record that each run leaves and, if asked, the stack of each run."""
        if has_stacks and self._root is None:
            self._root, _ = call_site(_getframe(1))
        self.short_seconds = -1.0

    def look(self, seconds: float, op: Op, operands: tuple[Any, ...], params: dict[str, Any], result: Any) -> Work:
        """Note what is asked for about the run that comes next, and return its work if it tells a rate."""
        if self.short_seconds < 0.0 and not self.is_closed:
            number = len(self.runs) // RUN_FIELDS
            # Nothing takes an index between the forward of an op and the record that it leaves, if it leaves one.
            self.runs_of_records[next_index() + 1] = number
            if self._root is not None:
                self.stacks[number] = _stack(_getframe(2), self._root)
        return None if seconds < SHORT_SECONDS else _work(op, operands, params, result)

    def end_details(self) -> None:
        """Make sure that no record of later gets the last run, should it have left none."""
        self.runs_of_records.pop(next_index(), None)

    def close(self) -> None:
        """Take no more: a task that began inside of a profile may go on after it, in a copy of its context."""
        self.is_closed = True
        self.into_runs = self.into_steps = deque(maxlen=0)

    def on_sweep(self, records: Sequence[Record]) -> Follower:
        """Note when a sweep begins."""
        self._mark(SWEEP_BEGAN)
        return self

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        """Note when the step of a record ends."""
        # One statement, so that an interrupt leaves no half entry; it is faster than a call of `extend`.
        self.into_steps += (clock(), record.index, record.op, record.code, record.lasti)

    def resume(self) -> None:
        """Note that another observer has done its work, which is not the sweep's."""
        self._mark(SWEEP_RESUMED)

    def on_end(self) -> None:
        """Note when a sweep ends."""
        self._mark(SWEEP_ENDED)

    def _mark(self, what: int) -> None:
        self.into_steps += (clock(), what, None, None, 0)


def _stack(frame: FrameType | None, root: CodeType) -> tuple[Site, ...]:
    """Return the user's frames from `frame` outward to that of `root`, outermost first."""
    sites: list[Site] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename not in user_files:
            call_site(frame)  # It finds out whose file it is.
        if user_files[code.co_filename]:
            sites.append((code, frame.f_lasti))
        if code is root:
            break
        frame = frame.f_back
    return tuple(reversed(sites))


#: The log of this context.
current_log: ContextVar[Log | None] = ContextVar("numtape_log", default=None)
_peek = current_log.get


def _timed_single(op: Op, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward of an elementwise op of one operand, timed: as `_timed` does, in as few steps as possible."""

    def timed(x: Any) -> Any:
        log = _peek()
        if log is None:
            return forward(x)
        begin = clock()
        result = forward(x)
        end = clock()
        frame = _getframe(2)
        code = frame.f_code
        if code is latest.code or is_users(code):
            lasti = frame.f_lasti
        else:
            code, lasti = call_site(frame)
        seconds = end - begin
        work = None if seconds < log.short_seconds else log.look(seconds, op, (x,), {}, result)
        log.into_runs += (op, begin, end, code, lasti, work)
        return result

    return timed


def _timed_pair(op: Op, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward of an elementwise op of two operands, timed: as `_timed_single` does."""

    def timed(a: Any, b: Any) -> Any:
        log = _peek()
        if log is None:
            return forward(a, b)
        begin = clock()
        result = forward(a, b)
        end = clock()
        frame = _getframe(2)
        code = frame.f_code
        if code is latest.code or is_users(code):
            lasti = frame.f_lasti
        else:
            code, lasti = call_site(frame)
        seconds = end - begin
        work = None if seconds < log.short_seconds else log.look(seconds, op, (a, b), {}, result)
        log.into_runs += (op, begin, end, code, lasti, work)
        return result

    timed.in_long_rows = _timed(op, lambda *arrays: in_long_rows(forward, arrays, {}))  # type: ignore[attr-defined]
    return timed


def _timed(op: Op, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward of any op, timed."""

    def timed(*operands: Any, **params: Any) -> Any:
        log = _peek()
        if log is None:
            return forward(*operands, **params)
        begin = clock()
        result = forward(*operands, **params)
        end = clock()
        code, lasti = call_site(_getframe(1))
        seconds = end - begin
        work = None if seconds < log.short_seconds else log.look(seconds, op, operands, params, result)
        log.into_runs += (op, begin, end, code, lasti, work)
        return result

    return timed


def _work(op: Op, operands: tuple[Any, ...], params: dict[str, Any], result: Any) -> Work:
    """Return the operations of a run, and the bytes that it read and wrote; a view is neither."""
    if op.is_variadic:
        (operands,) = operands
    results = result if type(result) is tuple else (result,)
    read, written = (sum(getattr(x, "nbytes", 0) for x in arrays) for arrays in (operands, results))
    nbytes = read + written
    if op.facts.structure is Structure.MOVES:
        nbytes = 0 if is_view_of(result, operands) else 2 * written
    shape = [np.shape(x) for x in results] if type(result) is tuple else np.shape(result)
    try:
        flops = int(op.facts.cost(shape, *map(np.shape, operands), **params))
    except Exception:  # The cost of a user's op may be wrong; a profile must not end the program that it watches.
        flops = 0
    return flops, nbytes


_lock = threading.Lock()
_users = 0
#: By op: its own forward, and the timed one around it; kept, since making them all again would take longer.
_made: dict[Op, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def time_ops() -> None:
    """Put a timed function around the forward of every op, until each caller has called `leave_ops`."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            load_all()  # What is loaded later would not be timed.
            for op in list(every_op):
                made = _made.get(op)
                if made is None or made[0] is not op.forward:
                    made = _made[op] = (op.forward, _timer(op)(op, op.forward))
                op.forward = made[1]


def leave_ops() -> None:
    """Give every op its own forward back, once nobody times ops."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            for op, (own, timed) in list(_made.items()):
                if op.forward is timed:
                    op.forward = own
                if registry.get(op.name) is not op:
                    del _made[op]  # A user's op: it may go.


def _timer(op: Op) -> Callable[[Op, Callable[..., Any]], Callable[..., Any]]:
    if not op.is_elementwise or op.is_variadic or op.defaults or op.operand_defaults:
        return _timed
    return {1: _timed_single, 2: _timed_pair}.get(len(op.arguments), _timed)
