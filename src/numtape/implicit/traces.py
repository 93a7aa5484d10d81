"""What a function recorded, told so that two runs can be compared: its ops, their order, and all numbers that enter.

Derivatives depend on the recording and on nothing else. So a function that records the same thing again, at the same
point, has the derivatives that it had, and one that reads something which has changed does not, in whatever units.
"""

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..core.gradients import link_of
from ..core.graph import graph_of
from ..core.record import Record, describe_site
from ..core.scopes import Scope
from ..core.value import Value
from ..dtypes import HALF_DTYPES, is_float

#: Sums take them by turns; their signs keep what changes from cancelling.
_WEIGHTS = np.random.default_rng(0).uniform(0.5, 1.0, 64) * np.random.default_rng(1).choice([-1.0, 1.0], 64)

#: Those of words: odd, so that no word changes without its product.
_ODD = np.random.default_rng(2).integers(0, 2**63, 1021, np.uint64) * np.uint64(2) + np.uint64(1)

#: How many roundings a number may be off that a function computes again: threads may add in another order.
_ROUNDINGS = 64.0

#: That of halves, which are computed in float32 and rounded once.
_FEW_ROUNDINGS = 2.0

_EXACT = (bool, int, str, bytes, type(None), type(Ellipsis), type, np.dtype)


class Print(NamedTuple):
    """What tells an array of floats from others, but for rounding: sums of blocks, and by how much these may differ."""

    shape: tuple[int, ...]
    dtype: str
    sums: NDArray
    bound: float

    def is_near(self, other: "Print") -> bool:
        """Say whether two prints differ by rounding alone."""
        if self.shape != other.shape or self.dtype != other.dtype:
            return False
        return bool((np.abs(self.sums - other.sums) <= min(self.bound, other.bound)).all())


class Constant(NamedTuple):
    """An array that enters and is not tracked: its bits, what tells it but for rounding, and who has it."""

    bits: tuple[Any, ...]
    numbers: Any
    holders: tuple[weakref.ref[Any], ...]

    def agrees(self, now: "Constant") -> bool:
        """Say whether what enters now is the same: computed again, but for rounding; given from outside, bit by bit."""
        if self.bits == now.bits:
            return True
        # What a function computes for itself goes when its recording does, so what is left was there before.
        is_given = any(holder() is not None for holder in self.holders)
        return not is_given and _agree(self.numbers, now.numbers)


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
            self._prints[id(array)] = _constant(array, link)
        return self._prints[id(array)]


def _constant(array: NDArray, link: Any = None) -> Constant:
    """Tell an array, and who has it: the array that owns its memory, and the tensor if it is that of one."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    holders = (owner, link) if isinstance(link, Value) else (owner,)
    return Constant(_bits(array), _printed(array), tuple(map(weakref.ref, holders)))


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
    if isinstance(x, np.ndarray):
        return _constant(x)
    if isinstance(x, float | np.generic):
        return _printed(np.asarray(x))
    trace = getattr(x, "trace", None)  # Of an equation within an equation.
    return (type(x).__name__, *trace.rows) if isinstance(trace, Trace) else type(x).__name__


def _printed(array: NDArray) -> Any:
    if not is_float(array.dtype):
        return _bits(array)
    is_half = array.dtype in HALF_DTYPES
    eps = float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-8  # That of bfloat16.
    flat = array.astype(np.float64, copy=False).reshape(-1)
    with np.errstate(all="ignore"):
        sums = _block_sums(flat, _WEIGHTS)
        # Where terms cancel, an element may be off by the rounding of others, so that the largest counts for all.
        largest = max(float(flat.max(initial=0.0)), -float(flat.min(initial=0.0)))
        bound = (_FEW_ROUNDINGS if is_half else _ROUNDINGS) * eps * largest * math.sqrt(len(_WEIGHTS))
        if not np.isfinite(sums).all():  # They would tell nothing.
            return _bits(array)
    return Print(array.shape, str(array.dtype), sums, bound)


def _bits(array: NDArray) -> tuple[Any, ...]:
    """Return what tells an array of any kind from all others: sums of its words, which wrap around."""
    if array.dtype.hasobject:
        return array.shape, str(array.dtype), array.tobytes()
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = len(data) // 8 * 8
    words = data[:whole].view(np.uint64)
    while len(words) > len(_ODD):
        words = _block_sums(words, _ODD)
    return array.shape, str(array.dtype), int(words @ _ODD[: len(words)]), data[whole:].tobytes()


def _block_sums(flat: NDArray, weights: NDArray) -> NDArray:
    """Return a weighted sum of each block, the last of which may be shorter."""
    count = len(weights)
    whole = len(flat) // count * count
    rest = flat[whole:]
    return np.append(flat[:whole].reshape(-1, count) @ weights, rest @ weights[: len(rest)])


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, Print) and isinstance(b, Print):
        return a.is_near(b)
    if isinstance(a, Constant) and isinstance(b, Constant):
        return a.agrees(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_agree, a, b))
    return type(a) is type(b) and bool(a == b)
