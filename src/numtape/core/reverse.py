"""Walk the records backward: from cotangents of the targets to cotangents of the sources.

Invariants:
- No recursion: the reachable records are collected with a stack and taken in order of falling index.
- One code path for both orders: on plain arrays (nothing is recorded), or on tensors (`create_graph`: the rules run as
  ops and leave records of their own). Only `Reader` knows the difference.
- Cotangents are fitted to their operand's shape and dtype, and added, here and nowhere else. An array is added to in
  place only if nobody else holds it.
- Cotangents of half values are carried in float32 and rounded on delivery.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from .._typing import NDArray
from ..dtypes import FLOAT_DTYPES, HALF_DTYPES, float32
from ..errors import ClosedError, FreedError, ShapeError
from . import recompute
from .apply import PICK
from .context import FREED
from .op import Reads, Rule
from .record import Gone, Link, Record
from .value import LEAF, Stamp, Value, extras_of, wrap
from .write import mark_written, raise_overwritten

Cotangents = dict[Link, Any]
#: Called with a record, the cotangent of its output and the cotangents of its inputs (None where not wanted).
Step = Callable[[Record, Any, list[Any]], None]

_getrefcount = sys.getrefcount
_ndarray = np.ndarray
_add = np.add
_index = attrgetter("index")

# Plain numbers: a rule's reads are looked at once per record.
OPERAND, PARAM, SHAPE, OUT, OUT_SHAPE, OPERANDS, SHAPES, INDEX = map(int, list(Reads)[:8])


def reverse(
    seeds: Sequence[tuple[Link, Any]],
    sources: Iterable[Link] | None = None,
    *,
    cls: type[Value] | None = None,
    free: bool = False,
    keep_all: bool = False,
    required_only: bool = False,
    on_step: Step | None = None,
) -> Cotangents:
    """Return the cotangents of the sources, given those of some targets.

    Args:
        seeds: pairs of a target's link and its cotangent.
        sources: the links whose cotangents are wanted; None for every tracked leaf.
        cls: the tensor class to run the rules on, so that they are recorded; None to run them on arrays.
        free: drop the arrays of the records behind the sweep.
        keep_all: also return the cotangents of intermediates.
        required_only: without `sources`, nobody wants the cotangents of leaves that are only watched.
        on_step: called after each record.
    """
    wanted = None if sources is None else set(sources)
    records = collect([link for link, _ in seeds])
    useful, wanted = _useful(records, wanted, required_only)
    cotangents: Cotangents = {}
    for link, cotangent in seeds:
        if type(link) is Record and link.cell is FREED:
            _raise_freed(link)
        accumulate(cotangents, link, fit(cotangent, link))
    kept: Cotangents = {}
    reader = Reader(cls)
    read = reader.operand
    with np.errstate(all="ignore"):
        for record in records:
            g = cotangents.pop(record, None)
            if g is None:
                continue
            if (wanted is not None and record in wanted) or (keep_all and type(g) is not list):
                kept[record] = g
            if useful is not None and record not in useful:
                continue
            if sources is None and record.notes is not None and record.notes.retained is not None:
                _deliver_retained(record, g)
            op = record.op
            needs = record.needs
            plan = op.plans[needs] if needs < len(op.plans) and on_step is None and op is not PICK else None
            if plan is None:
                _pull_any(record, g, reader, cotangents, on_step)
            else:
                # The common case, one or two operands: the same as `_pull_any`, without its generality.
                links = record.inputs
                for position, function, reads, rule in plan:
                    link = links[position]
                    if useful is not None and link not in useful and link not in wanted:  # type: ignore[operator]
                        continue
                    if function is None:
                        cotangent = g
                    elif reads is not None:
                        operand = links[reads]
                        # A number; everything else may be dropped, overwritten, half or in need of wrapping.
                        if type(operand) is not _ndarray or operand.ndim:
                            operand = read(record, reads)
                        cotangent = function(g, operand)
                    elif rule.reads:
                        cotangent = function(g, *reader.gather(record, rule, position))
                    else:
                        cotangent = function(g)
                    like = link if type(link) is Record else link.array
                    # An elementwise rule's result has the record's shape, which is cheaper to look at.
                    shape = record.shape if op.is_elementwise else cotangent.shape
                    if shape != like.shape or cotangent.dtype is not like.dtype:
                        cotangent = fit(cotangent, like)
                    if link in cotangents:
                        accumulate(cotangents, link, cotangent)
                    else:
                        cotangents[link] = cotangent
            if free:
                record.array = None
                record.cell = FREED
                if needs != (1 << len(record.inputs)) - 1:
                    _free_operands(record)
    # What is left belongs to leaves; a seed that is itself a wanted leaf is among them.
    kept.update(cotangents)
    return kept


def collect(targets: Sequence[Link]) -> list[Record]:
    """Return the records that the targets depend on, newest first."""
    stack = [link for link in targets if type(link) is Record]
    found = set(stack)
    stack = list(found)
    while stack:
        for link in stack.pop().inputs:
            if type(link) is Record and link not in found:
                found.add(link)
                stack.append(link)
    return sorted(found, key=_index, reverse=True)


def _useful(
    records: list[Record], wanted: set[Link] | None, required_only: bool
) -> tuple[set[Record] | None, set[Link] | None]:
    """Return the records through which wanted sources are reached, and these; None means all.

    Raise if one of the records is dead.
    """
    if wanted is None:
        if not any(cell.is_dead for cell in {record.cell for record in records}):
            return None, None
        # Something is dead; it matters only if a wanted leaf lies behind it.
        links = {link for record in records for i, link in enumerate(record.inputs) if record.needs >> i & 1}
        wanted = {link for link in links if isinstance(link, Value) and _is_wanted(link, required_only)}
    useful = set()
    for record in reversed(records):
        links_of_record = record.inputs
        for position, link in enumerate(links_of_record):
            if record.needs >> position & 1 and (link in wanted or (type(link) is Record and link in useful)):
                if record.cell.is_dead:
                    _raise_dead(record)
                useful.add(record)
                break
    return useful, wanted


def _is_wanted(leaf: Value, required_only: bool) -> bool:
    return leaf.requires_grad or (not required_only and leaf.node is LEAF)


def _raise_dead(record: Record) -> None:
    raise ClosedError(
        f"{record.op.name}: the result of {record.site} belongs to {record.cell.owner}, which was cleared, reset or "
        "closed since, and a wanted source lies behind it. Take gradients before clearing, or detach() what crosses."
    )


def pull(record: Record, g: Any, reader: "Reader") -> list[Any]:
    """Return the cotangents that one record passes to its inputs; None for those that were not tracked."""
    op = record.op
    if op is PICK:
        assert record.params is not None
        return [_Part(record.params["position"], g)]
    if type(g) is list:
        g = tuple(g)
    if isinstance(op.joint, Rule):
        joint = op.joint.function(g, *reader.gather(record, op.joint, 0))
    produced: list[Any] = []
    for position, link in enumerate(record.inputs):
        if not record.needs >> position & 1:
            produced.append(None)
            continue
        rule = op.pull(position)
        assert isinstance(rule, Rule)
        if isinstance(op.joint, Rule) and rule.function is op.joint.function:
            cotangent = joint[position]
        else:
            cotangent = rule.function(g, *reader.gather(record, rule, position))
        produced.append(fit(cotangent, link))
    return produced


def _pull_any(record: Record, g: Any, reader: "Reader", cotangents: Cotangents, on_step: Step | None) -> None:
    produced = pull(record, g, reader)
    for link, cotangent in zip(record.inputs, produced, strict=True):
        if cotangent is not None:
            accumulate(cotangents, link, cotangent)
    if on_step is not None:
        on_step(record, g, produced)


class _Part:
    """A cotangent of one of several outputs, on its way to the record that made them."""

    __slots__ = ("cotangent", "position")

    def __init__(self, position: int, cotangent: Any) -> None:
        self.position = position
        self.cotangent = cotangent


def accumulate(cotangents: Cotangents, link: Link, cotangent: Any) -> None:
    """Add a cotangent to what has arrived at a link."""
    before = cotangents.get(link)
    if before is None:
        if type(cotangent) is not _Part:
            cotangents[link] = cotangent
            return
        before = cotangents[link] = [None] * len(link.shape)
    if type(cotangent) is _Part:
        part = before[cotangent.position]
        before[cotangent.position] = cotangent.cotangent if part is None else part + cotangent.cotangent
        return
    # Three references mean that the sum is ours alone: the dictionary's, `before`, and getrefcount's argument.
    if type(before) is _ndarray and _getrefcount(before) == 3 and before.base is None and type(cotangent) is _ndarray:
        try:
            _add(before, cotangent, before)
            return
        except ValueError:  # The array is read-only.
            pass
    cotangents[link] = before + cotangent


def fit(cotangent: Any, link: Link) -> Any:
    """Undo broadcasting, and bring a cotangent to its operand's dtype (float32 for half operands)."""
    shape = link.shape
    if cotangent.shape != shape:
        cotangent = unbroadcast(cotangent, shape)
    dtype = float32 if link.dtype in HALF_DTYPES else link.dtype
    return cotangent if cotangent.dtype == dtype else cotangent.astype(dtype)


def unbroadcast(cotangent: Any, shape: tuple[int, ...]) -> Any:
    """Sum a cotangent over the axes along which an operand of `shape` was repeated."""
    extra = len(cotangent.shape) - len(shape)
    if extra < 0:
        raise ShapeError(f"a rule returned a cotangent of shape {cotangent.shape} for an operand of shape {shape}.")
    axes = tuple(range(extra)) + tuple(
        axis + extra for axis, length in enumerate(shape) if length == 1 and cotangent.shape[axis + extra] != 1
    )
    if axes:
        cotangent = cotangent.sum(axis=axes, keepdims=True)
    return cotangent.reshape(shape)


class Reader:
    """Finds what rules read: as arrays, or as tensors linked to their records when `cls` is given."""

    __slots__ = ("cls",)

    def __init__(self, cls: type[Value] | None) -> None:
        self.cls = cls

    def operand(self, record: Record, position: int) -> Any:
        """Return the value of an input, widened if half; raise if it is gone or was overwritten."""
        link: Any = record.inputs[position]
        kind = type(link)
        if kind is Record:
            if link.version is not None:
                _check_stamp(record, position, link.version, link.version[1])
            array = link.array
            if array is None:
                array = _missing(record, link)
            if self.cls is not None:
                return wrap(self.cls, array, link, link.version)
        elif isinstance(link, Value):
            if link.version is not None:
                notes = record.notes
                stamp = notes.stamps[position] if notes is not None and notes.stamps is not None else None
                _check_stamp(record, position, link.version, stamp or 0)
            if self.cls is not None:
                return link
            array = link.array
        elif kind is Gone:
            _raise_freed(record)
        else:
            return link
        return array if array.dtype not in HALF_DTYPES else array.astype(float32)

    def output(self, record: Record) -> Any:
        """Return the output of a record."""
        if record.version is not None:
            version, stamp = record.version
            if version.count != stamp:
                raise_overwritten(record, "its own result", version)
        array = record.array
        if array is None:
            array = _missing(record, record)
        if self.cls is not None:
            if type(array) is tuple:
                return tuple(self._part(record, i, part) for i, part in enumerate(array))
            return wrap(self.cls, array, record, record.version)
        if type(array) is tuple:
            return tuple(_widen(part) for part in array)
        return _widen(array)

    def _part(self, record: Record, position: int, array: NDArray) -> Any:
        """Wrap one of several outputs, with a new record that picks it."""
        from .apply import new_record
        from .context import current

        assert self.cls is not None
        if array.dtype not in FLOAT_DTYPES:
            return wrap(self.cls, array)
        return wrap(self.cls, array, new_record(PICK, (record,), {"position": position}, 1, None, array, current()))

    def gather(self, record: Record, rule: Rule, index: int) -> list[Any]:
        """Return all that a rule reads, in its order; `index` is the operand whose cotangent it computes."""
        found: list[Any] = []
        links = record.inputs
        for kind, key in rule.reads:
            if kind == PARAM:
                found.append(record.params[key])  # type: ignore[index]
            elif kind == OPERAND:
                found.append(self.operand(record, key))
            elif kind == SHAPE:
                found.append(_shape(links[key]))
            elif kind == OUT:
                found.append(self.output(record))
            elif kind == OUT_SHAPE:
                found.append(record.shape)
            elif kind == OPERANDS:
                found.append(tuple(self.operand(record, i) for i in range(len(links))))
            elif kind == SHAPES:
                found.append(tuple(map(_shape, links)))
            elif kind == INDEX:
                found.append(index)
            else:
                found.append(tuple(bool(record.needs >> i & 1) for i in range(len(links))))
        return found


def _shape(link: Link) -> Any:
    if type(link) is Record:
        return link.shape
    return np.shape(link.array if isinstance(link, Value) else link)


def _widen(array: NDArray) -> NDArray:
    return array if array.dtype not in HALF_DTYPES else array.astype(float32)


def _check_stamp(record: Record, position: int, version: Stamp, stamp: int) -> None:
    if version[0].count != stamp:
        name = record.op.arguments[0 if record.op.is_variadic else position]
        raise_overwritten(record, f"the value of {name!r}", version[0])


def _missing(reader: Record, maker: Record) -> NDArray:
    """Make a dropped value again; a freed one is an error."""
    if maker.cell is FREED or reader.cell is FREED:
        _raise_freed(reader)
    array: NDArray = recompute.value(maker)
    return array


def _raise_freed(record: Record) -> None:
    raise FreedError(
        f"{record.op.name} at {record.site}: an earlier backward has freed the arrays of this graph. Call the first "
        "backward with retain_graph=True, or add the losses and call backward once."
    )


def _free_operands(record: Record) -> None:
    for position, link in enumerate(record.inputs):
        if not record.needs >> position & 1 and getattr(link, "shape", None):
            links = list(record.inputs)
            links[position] = Gone(link.shape, link.dtype)
            record.inputs = tuple(links)


def _deliver_retained(record: Record, g: Any) -> None:
    assert record.notes is not None
    value = record.notes.retained()
    if value is not None:
        deliver(value, g)


def deliver(value: Value, cotangent: Any) -> None:
    """Add a cotangent to a tensor's ``.grad``: untracked, contiguous, with memory of its own."""
    extras = extras_of(value)
    if isinstance(cotangent, Value):
        cotangent = cotangent.array
    if extras.grad is None:
        extras.grad = wrap(value.plain, own_array(cotangent, value))
    else:
        total = extras.grad.array
        if total.flags.writeable and total.dtype == value.dtype:
            np.add(total, cotangent, out=total, casting="same_kind")
            mark_written(extras.grad, None)
        else:
            extras.grad = wrap(value.plain, own_array(total + cotangent, value))


#: The references to an array that only its giver holds: the caller's variable, our argument and getrefcount's. So a
#: caller passes ``found.pop(link)`` on, and keeps no variable of its own.
_EXCLUSIVE = 3


def own_array(array: Any, like: Any) -> NDArray:
    """Return `array` in the dtype of `like`, as memory that nobody else holds; copied only if need be."""
    if (
        type(array) is _ndarray
        and array.dtype == like.dtype
        and array.base is None
        and array.flags.c_contiguous
        and array.flags.writeable
        and _getrefcount(array) <= _EXCLUSIVE
    ):
        return array
    return np.array(array, dtype=like.dtype, order="C", copy=True)
