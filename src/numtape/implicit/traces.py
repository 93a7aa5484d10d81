"""What a function recorded, told so that two runs can be compared: its ops, their order, and all numbers that enter.

Derivatives depend on the recording and on nothing else. So a function that records the same thing again, at the same
point, has the derivatives that it had, and one that reads something which has changed does not, in whatever units.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..core.context import Scope
from ..core.gradients import link_of
from ..core.record import Record, describe_site
from ..core.reverse import graph_of
from ..core.value import Value
from ..dtypes import is_float

#: Sums take them by turns; their signs keep what changes from cancelling.
_WEIGHTS = np.random.default_rng(0).uniform(0.5, 1.0, 1021) * np.random.default_rng(1).choice([-1.0, 1.0], 1021)

#: How many roundings a number may be off that a function computes again: threads may add in another order.
_ROUNDINGS = 64.0

_EXACT = (bool, int, str, bytes, type(None), type(Ellipsis), type, np.dtype)


class Print(NamedTuple):
    """What tells an array of floats from others, but for rounding: a weighted sum of its elements, and their norm."""

    shape: tuple[int, ...]
    total: float
    size: float
    eps: float

    def is_near(self, other: "Print") -> bool:
        """Say whether two prints differ by rounding alone."""
        if self.shape != other.shape or self.eps != other.eps:
            return False
        bound = _ROUNDINGS * self.eps * min(self.size, other.size)
        return abs(self.total - other.total) <= bound and abs(self.size - other.size) <= bound


class Trace(NamedTuple):
    """A recording: one row for each record, the oldest first, and last what came of it."""

    rows: list[tuple[Any, ...]]
    records: list[tuple[str, Any, int]]

    def difference(self, now: "Trace") -> str | None:
        """Return the op and the line at which another recording differs; None if it does not."""
        for number, (before, after) in enumerate(zip(self.rows, now.rows, strict=False)):
            if not _agree(before, after):
                return now.place(number)
        return None if len(self.rows) == len(now.rows) else now.place(min(len(self.rows), len(now.rows)) - 1)

    def place(self, number: int) -> str:
        """Return the op and the line of a row, in words."""
        op, code, lasti = self.records[min(number, len(self.records) - 1)] if self.records else ("its result", None, 0)
        return f"{op} at {describe_site(code, lasti)}"


class Results(Scope):
    """Notes what ops returned that users wrote, or whose parameters are objects: nobody knows what these hold."""

    skips_loops = True

    def __init__(self) -> None:
        self.prints: dict[Record, Any] = {}
        self._last: Any = None

    def around(self, op: Any, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute an op."""
        out = compute(op, arrays, params)
        is_known = not isinstance(op.forward, MethodType) and all(map(_is_known, params.values()))
        self._last = None if is_known else out
        return out

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Note the result that the record is of."""
        if self._last is not None:
            self.prints[record] = _told(self._last)
            self._last = None


def trace_of(outs: Sequence[Value], sources: Sequence[Value], results: Mapping[Record, Any]) -> Trace:
    """Return how values were computed from sources.

    Args:
        outs: what was computed.
        sources: the tensors that it is differentiated by; what lies behind them does not count.
        results: of records whose parameters do not tell what they do.
    """
    names: dict[Any, Any] = {link_of(source): ("source", number) for number, source in enumerate(sources)}
    links = [link_of(out) for out in outs]
    found = graph_of([link for link in links if type(link) is Record], {x for x in names if type(x) is Record})[0]
    teller = _Teller(names)
    rows = []
    for number, record in enumerate(reversed(found)):
        params = {key: _told(x) for key, x in (record.params or {}).items()}
        rows.append(
            (
                record.op.name,
                tuple(map(teller.told, record.inputs)),
                tuple(sorted(params)),
                tuple(params[key] for key in sorted(params)),
                results.get(record),
            )
        )
        names[record] = ("record", number)
    rows.append(tuple(map(teller.told, links)))
    return Trace(rows, [(record.op.name, record.code, record.lasti) for record in reversed(found)])


class _Teller:
    """Tells operands: what is known by its name, and others by their numbers, each array once."""

    def __init__(self, names: Mapping[Any, Any]) -> None:
        self._names = names
        self._prints: dict[int, Any] = {}

    def told(self, link: Any) -> Any:
        if isinstance(link, Record | Value) and link in self._names:
            return self._names[link]
        array = link.array if isinstance(link, Value) else link
        if not isinstance(array, np.ndarray):
            return _told(array)
        if id(array) not in self._prints:
            self._prints[id(array)] = _told(array)
        return self._prints[id(array)]


def _is_known(x: Any) -> bool:
    """Say whether `_told` tells all about a parameter."""
    if isinstance(x, tuple | list):
        return all(map(_is_known, x))
    if isinstance(x, dict):
        return all(map(_is_known, x.values()))
    return isinstance(x, (*_EXACT, float, np.ndarray, np.generic, slice))


def _told(x: Any) -> Any:
    """Return what tells numbers, arrays and parameters from others; of other objects their type."""
    if isinstance(x, _EXACT):
        return x
    if isinstance(x, slice):
        return ("slice", x.start, x.stop, x.step)
    if isinstance(x, tuple | list):
        return tuple(map(_told, x))
    if isinstance(x, dict):
        return tuple((key, _told(each)) for key, each in x.items())
    if isinstance(x, float | np.ndarray | np.generic):
        return _printed(np.asarray(x))
    trace = getattr(x, "trace", None)  # Of an equation within an equation.
    return (type(x).__name__, *trace.rows) if isinstance(trace, Trace) else type(x).__name__


def _printed(array: NDArray) -> Any:
    if not is_float(array.dtype):
        return _exact(array)
    eps = float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-8  # That of bfloat16.
    flat = array.astype(np.float64, copy=False).reshape(-1)
    scale = 1.0
    with np.errstate(all="ignore"):
        square = float(flat @ flat)
        if not 1e-200 < square < 1e200 and 0.0 < (largest := float(np.abs(flat).max(initial=0.0))) < np.inf:
            # By a power of two, so that squares stay in range and no digit changes.
            scale = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1))
            flat = flat / scale
            square = float(flat @ flat)
        if not math.isfinite(square):  # Sums would tell nothing.
            return _exact(array)
        return Print(array.shape, scale * _weighted(flat), scale * math.sqrt(square), eps)


def _exact(array: NDArray) -> Any:
    return array.shape, str(array.dtype), zlib.crc32(np.ascontiguousarray(array).tobytes())


def _weighted(flat: NDArray) -> float:
    """Return a sum of all elements with weights of their own."""
    count = len(_WEIGHTS)
    while len(flat) > count:
        whole = len(flat) // count * count
        flat = np.concatenate([flat[:whole].reshape(-1, count) @ _WEIGHTS, flat[whole:]])
    return float(flat @ _WEIGHTS[: len(flat)])


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, Print) and isinstance(b, Print):
        return a.is_near(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_agree, a, b))
    return type(a) is type(b) and bool(a == b)
