"""Look at the values that ops make and the cotangents that sweeps carry: statistics, norms, and the bytes alive."""

from collections.abc import Callable, Sequence
from time import perf_counter as clock
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import PICK
from ..core.op import Op
from ..core.record import Record
from ..core.scopes import Follower, Observer, Scope
from ..dtypes import is_float
from .activations import Activations
from .graph_numbers import norm_of, statistics
from .timing import Log

Numbers = dict[str, float]


class Measurer(Scope, Observer):
    """Measures while it is active, as a scope around ops and an observer of sweeps. It holds no value."""

    def __init__(self, log: Log, values: bool, memory: bool) -> None:
        self._log = log
        self._values = values
        #: The accounting, which is that of the memory profiler.
        self._bytes = Activations() if memory else None
        #: By the index of a record, numbers about its value and its gradient.
        self.numbers: dict[int, Numbers] = {}
        #: Times, and the bytes that were alive at them.
        self.samples: list[tuple[float, int]] = []
        # The op that ran last, and numbers about what it made: the record that it leaves comes right after.
        self._last: tuple[Op | None, list[Numbers]] = (None, [])

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute the op and measure its results."""
        counted = self._bytes
        made = compute(op, arrays, params) if counted is None else counted.around(op, compute, arrays, params)
        self._last = (op, [self._numbers(part) for part in (made if type(made) is tuple else (made,))])
        return made

    def on_created(self, array: NDArray) -> None:
        """Count what a record may hold."""
        if self._bytes is not None:
            self._bytes.on_created(array)

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Give a record the numbers of what its op made; after an op with several results, one of them each."""
        op, found = self._last
        numbers: Numbers = {}
        if record.op is PICK and record.params is not None and len(found) > record.params["position"]:
            numbers = found[record.params["position"]]
        elif record.op is op and len(found) == 1:
            (numbers,) = found
        if self._bytes is not None:
            self._bytes.on_record(record, operands)
            numbers["live_bytes"] = float(self._sample(self._bytes))
        if numbers:
            self.numbers[record.index] = numbers

    def on_sweep(self, records: Sequence[Record]) -> Follower:
        """Begin to measure a sweep."""
        return _MeasuredSweep(self, None if self._bytes is None else self._bytes.on_sweep(records))

    def measure(self, record: Record, cotangent: Any) -> None:
        """Take the numbers of a record that a sweep has passed."""
        numbers = self.numbers.setdefault(record.index, {})
        array = _array(cotangent)
        if self._values and array is not None:
            numbers["grad_norm"] = norm_of(array)
        if self._bytes is not None:
            numbers["backward_live_bytes"] = float(self._sample(self._bytes))
        self._log.resume()

    def end_sweep(self) -> None:
        """Take the bytes at the end of a sweep."""
        if self._bytes is not None:
            self._sample(self._bytes)

    def settle(self) -> None:
        """Leave a sweep that raised."""
        if self._bytes is not None:
            self._bytes.settle()

    def _numbers(self, made: Any) -> Numbers:
        numbers: Numbers = {}
        if self._values and is_float(made.dtype):
            with np.errstate(all="ignore"):
                numbers = statistics(made)
        return numbers

    def _sample(self, counted: Activations) -> int:
        live = counted.live
        self.samples.append((clock(), live))
        return live


class _MeasuredSweep(Follower):
    """Measures the cotangents of one sweep, and counts what it holds."""

    def __init__(self, measurer: Measurer, counted: Follower | None) -> None:
        self._measurer = measurer
        self._counted = counted

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        """Measure the cotangent of a record, and those that it passed on."""
        if self._counted is not None:
            self._counted.on_step(record, cotangent, cotangents)
        self._measurer.measure(record, cotangent)

    def on_made_again(self, record: Record, made: Any) -> None:
        """Count what was made again."""
        if self._counted is not None:
            self._counted.on_made_again(record, made)

    def on_end(self) -> None:
        """End the count of the sweep."""
        if self._counted is not None:
            self._counted.on_end()
        self._measurer.end_sweep()


def _array(cotangent: Any) -> Any:
    """Return a cotangent as an array; None for those of several outputs and batches of many."""
    if type(cotangent) is np.ndarray:
        return cotangent
    array = getattr(cotangent, "array", None)
    return array if type(array) is np.ndarray else None
