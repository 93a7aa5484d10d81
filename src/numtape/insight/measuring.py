"""Look at the values that ops make and the cotangents that sweeps carry: statistics, norms, and the bytes alive."""

from collections.abc import Callable, Sequence
from time import perf_counter as clock
from typing import Any

import numpy as np

from ..core.apply import PICK
from ..core.buffers import Buffers
from ..core.context import Observer, Scope
from ..core.op import Op
from ..core.record import Record
from ..core.value import Value
from ..dtypes import is_float
from .graph_numbers import norm_of, statistics
from .timing import Log

Numbers = dict[str, float]


class Measurer(Scope, Observer):
    """Measures while it is active, as a scope around ops and an observer of sweeps. It holds no value."""

    def __init__(self, log: Log, values: bool, memory: bool) -> None:
        self._log = log
        self._values = values
        self._buffers = Buffers() if memory else None
        #: By the index of a record, numbers about its value and its gradient.
        self.numbers: dict[int, Numbers] = {}
        #: Times, and the bytes that were alive at them.
        self.samples: list[tuple[float, int]] = []
        # The op that ran last, and numbers about what it made: the record that it leaves comes right after.
        self._last: tuple[Op | None, list[Numbers]] = (None, [])

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute the op and measure its results."""
        made = compute(op, arrays, params)
        parts = made if type(made) is tuple else (made,)
        if self._buffers is not None:
            for part in parts:
                # A view holds no memory of its own, and what it is a view of may be a leaf.
                if part.base is None or not op.facts.aliases:
                    self._buffers.hold(part)
            self._sample()
        self._last = (op, [self._numbers(part) for part in parts])
        return made

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Give a record the numbers of what its op made; after an op with several results, one of them each."""
        op, numbers = self._last
        if record.op is PICK and record.params is not None and len(numbers) > record.params["position"]:
            self.numbers[record.index] = numbers[record.params["position"]]
        elif record.op is op and len(numbers) == 1:
            (self.numbers[record.index],) = numbers

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        """Measure the cotangent of a record, and those that it passed on."""
        numbers = self.numbers.setdefault(record.index, {})
        array = _array(cotangent)
        if self._values and array is not None:
            numbers["grad_norm"] = norm_of(array)
        if self._buffers is not None:
            for passed in (array, *(_array(cotangents.get(link)) for link in record.inputs if _is_node(link))):
                if passed is not None:
                    self._buffers.hold(passed)
            numbers["backward_live_bytes"] = float(self._sample())
        self._log.resume()

    def _numbers(self, made: Any) -> Numbers:
        numbers: Numbers = {}
        if self._values and is_float(made.dtype):
            with np.errstate(all="ignore"):
                numbers = statistics(made)
        if self._buffers is not None:
            numbers["live_bytes"] = float(self._buffers.live)
        return numbers

    def _sample(self) -> int:
        assert self._buffers is not None
        live = self._buffers.live
        self.samples.append((clock(), live))
        return live


def _is_node(link: Any) -> bool:
    return isinstance(link, Record | Value)


def _array(cotangent: Any) -> Any:
    """Return a cotangent as an array; None for those of several outputs and batches of many."""
    if type(cotangent) is np.ndarray:
        return cotangent
    array = getattr(cotangent, "array", None)
    return array if type(array) is np.ndarray else None
