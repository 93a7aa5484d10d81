"""Walk the records forward: from tangents of the sources to tangents of the targets. The mirror image of `reverse`.

Invariants:
- Records are taken in order of rising index; in a sweep over a whole graph, a tangent is dropped after the last record
  that reads it.
- One code path for both orders, as in `reverse`: rules run on arrays, or on tensors and are recorded.
- A tangent has the shape and dtype of its value (float32 for half values); it is broadcast and cast here alone.
- What the JVP of an op reads, its VJP reads too (a test says so): a record keeps enough for both sweeps.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..dtypes import HALF_DTYPES, float32
from ..kernels.silence import silent
from .apply import PICK, apply
from .batching import Batched
from .cells import FREED
from .graph import check_not_streamed, graph_of, oldest_of, raise_dead
from .op import Marker, Op, Plan, Rule, same, shape_of
from .reader import Reader
from .recompute import check_reads, raise_freed
from .record import Link, Record
from .value import Value

Tangents = dict[Link, Any]

_ndarray = np.ndarray


def forward(
    seeds: Sequence[tuple[Link, Any]],
    targets: Sequence[Link],
    *,
    cls: type[Value] | None = None,
    ends: Set[Link] = frozenset(),
    is_silent: bool = True,
    records: Sequence[Record] | None = None,
) -> list[Any]:
    """Return the tangents of the targets, given those of some sources; None for a target that does not depend on them.

    Args:
        seeds: pairs of a source's link and its tangent.
        targets: the links whose tangents are wanted.
        cls: the tensor class to run the rules on, so that they are recorded; None to run them on arrays.
        ends: records that are not computed from others here: they have the tangents of their seeds, or none.
        is_silent: whether NumPy says nothing of overflow and the like, whatever the caller told it.
        records: those between the sources and the targets, oldest first, if the caller has them.
    """
    oldest = oldest_of(link for link, _ in seeds)
    if records is None:
        records = graph_of(targets, ends, oldest)[0][::-1]
    tangents: Tangents = {}
    for link, tangent in seeds:
        tangents[link] = fit(tangent, link) if link not in tangents else tangents[link] + fit(tangent, link)
    check_not_streamed(records, oldest)
    reader = Reader(cls, records)
    with reader:
        sources = {link for link, _ in seeds if type(link) is Record}
        push_all(records, tangents, reader, _last_reads(records, targets), is_silent=is_silent, sources=sources)
    return [tangents.get(link) for link in targets]


def push_all(
    records: Iterable[Record],
    tangents: Tangents,
    reader: Reader,
    last_reads: dict[Record, list[Link]] | None = None,
    find: Callable[[Link], Any] | None = None,
    is_silent: bool = True,
    sources: Set[Link] = frozenset(),
) -> None:
    """Push tangents through records, oldest first: for each record that one reaches, its own joins `tangents`.

    With `last_reads`, the tangents that a record is the last to read are dropped behind it. `find` is asked for the
    tangent of a link that has none. Records among the `sources` move by themselves, and with what they depend on;
    others that have a tangent were pushed before.
    """
    get = tangents.get
    read = reader.operand
    alive = None
    with silent() if is_silent else nullcontext():
        for record in records:
            total = seed = get(record)
            if seed is not None and record not in sources:
                continue
            op = record.op
            links = record.inputs
            plan = op.push_plans.get(record.needs)
            if plan is None:
                plan = op.push_plans[record.needs] = _plan(op, record.needs)
            if record.notes is not None:
                check_reads(record)
            if not plan or type(record.shape) is list:
                pushed = _push_any(record, tangents, reader, find)
                total = pushed if total is None else total if pushed is None else total + pushed
            else:
                # The common case, one or two operands: the same as `push`, without its generality.
                for position, function, reads, rule in plan:
                    tangent = get(links[position])
                    if tangent is None and (find is None or (tangent := find(links[position])) is None):
                        continue
                    if function is None:
                        pushed = tangent
                    elif (
                        type(tangent) is not _ndarray
                        and rule.is_partial
                        and isinstance(tangent, Batched)
                        and (pushed := tangent.mapped(rule, record, reader, position)) is not None
                    ):
                        pass
                    elif reads is not None:
                        operand = links[reads]
                        if type(operand) is not _ndarray:
                            operand = read(record, reads)
                        pushed = function(tangent, operand)
                    else:
                        pushed = rule.run(tangent, record, reader, position)
                    if pushed.shape != record.shape or pushed.dtype is not record.dtype:
                        pushed = fit(pushed, record)
                    total = pushed if total is None else total + pushed
            if total is not seed:
                if record.cell is not alive:
                    alive = record.cell
                    if alive is FREED:
                        raise_freed(record)
                    if alive.is_dead:
                        raise_dead(record)
                tangents[record] = total
            if last_reads is not None:
                for link in last_reads.get(record, ()):
                    tangents.pop(link, None)
                    if type(link) is Record and reader.restored:
                        reader.pass_by(link)


def _last_reads(records: Sequence[Record], targets: Sequence[Link]) -> dict[Record, list[Link]]:
    """Return for each record the records among its inputs that none after it links to."""
    seen: set[Link] = set(targets)
    last: dict[Record, list[Link]] = {}
    for record in reversed(records):
        for link in record.inputs:
            if type(link) is Record and link not in seen:
                seen.add(link)
                last.setdefault(record, []).append(link)
    return last


def fit(tangent: Any, like: Any) -> Any:
    """Repeat a tangent to its value's shape, and bring it to its value's dtype (float32 for half values)."""
    if tangent.shape != like.shape:
        tangent = tangent + np.zeros(like.shape, tangent.dtype)
    dtype = float32 if like.dtype in HALF_DTYPES else like.dtype
    return tangent if tangent.dtype == dtype else tangent.astype(dtype)


def _push_any(record: Record, tangents: Tangents, reader: Reader, find: Callable[[Link], Any] | None) -> Any:
    moved: list[Any] = []
    for position, link in enumerate(record.inputs):
        tangent = tangents.get(link) if record.needs >> position & 1 else None
        if tangent is None and find is not None and record.needs >> position & 1:
            tangent = find(link)
        moved.append(tangent)
    if all(tangent is None for tangent in moved):
        return None
    pushed = push(record, moved, reader)
    if pushed is None or isinstance(pushed, tuple):
        return pushed
    return fit(pushed, record)


def push(record: Record, tangents: list[Any], reader: Reader) -> Any:
    """Return the tangent of a record's output, given those of its inputs (None where an input has none).

    For an op with several outputs the result is a tuple, with None where nothing flows.
    """
    op = record.op
    if op is PICK:
        assert record.params is not None
        return tangents[0][record.params["position"]]
    moved = [i for i, tangent in enumerate(tangents) if tangent is not None]
    if any(op.push(i) is Marker.ITSELF_ALONE for i in moved):
        # Linear in all arguments together: one run of the op serves them all.
        operands = [
            tangents[i] if i in moved else _zero(reader, record, i, op.push(i)) for i in range(len(record.inputs))
        ]
        return apply(op, operands, record.params or {})
    total: Any = None
    for position in moved:
        pushed = _rule(op, position).run(tangents[position], record, reader, position)
        total = pushed if total is None else _add(total, pushed)
    return total


class _Itself(Rule):
    """The JVP of an argument in which an op is linear: the op itself, with the tangent in the argument's place."""

    __slots__ = ()

    def __init__(self, op: Op) -> None:
        super().__init__(op.forward, ())

        def run(tangent: Any, record: Record, reader: Reader, index: int) -> Any:
            operands = [tangent if i == index else reader.operand(record, i) for i in range(len(record.inputs))]
            return apply(op, operands, record.params or {})

        self.run = run


def _rule(op: Op, position: int) -> Rule:
    rule = op.push(position)
    if rule is Marker.ITSELF or (rule is Marker.ITSELF_ALONE and len(op.arguments) == 1):
        return _Itself(op)
    assert isinstance(rule, Rule)
    return rule


def _plan(op: Op, needs: int) -> Plan:
    """Return the rules of an op of one or two operands by the operands in `needs`; nothing if there is no such plan."""
    if op is PICK or op.is_variadic or len(op.arguments) > 2:
        return ()
    positions = [i for i in range(len(op.arguments)) if needs >> i & 1]
    if len(op.arguments) == 2 and any(op.push(i) is Marker.ITSELF_ALONE for i in positions):
        return ()
    rules = [(i, _rule(op, i)) for i in positions]
    return tuple((i, None if rule.function is same else rule.function, rule.operand, rule) for i, rule in rules)


def _zero(reader: Reader, record: Record, position: int, rule: Rule | Marker) -> Any:
    if rule is not Marker.ITSELF_ALONE:
        return reader.operand(record, position)
    # Of an operand that does not move the shape is enough: it may have been overwritten since.
    return np.zeros(shape_of(record.inputs[position]), record.dtype)


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True))
    return a + b
