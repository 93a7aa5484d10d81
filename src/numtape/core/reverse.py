"""Walk the records backward: from cotangents of the targets to cotangents of the sources.

Invariants:
- No recursion: the reachable records are collected with a stack and taken in order of falling index.
- One code path for both orders: on plain arrays (nothing is recorded), or on tensors (`create_graph`: the rules run as
  ops and leave records of their own). Only `Reader` knows the difference.
- Cotangents are fitted to their operand's shape and dtype, and added, here and nowhere else. An array is added to in
  place only if nobody else holds it.
- Cotangents of half values are carried in float32 and rounded on delivery.
- What a sweep holds is foreseen by `transforms/walking.py`, which mirrors the loop, `accumulate` and `fit`: a change of
  when arrays are made, shared or let go is a change there.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import nullcontext
from operator import attrgetter
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..dtypes import HALF_DTYPES, float32
from ..errors import ShapeError
from ..kernels.silence import silent
from ..kernels.sums import FEW, MOST_LABELS, add_reduce
from .apply import PICK
from .batching import Batched
from .cells import FREED
from .delivery import hooked, hooked_by, noted
from .graph import Graph, Way, cells_of, graph_of, oldest_of, way_of
from .op import Rule
from .reader import Reader
from .recompute import raise_freed
from .record import Gone, Link, Record
from .scopes import followers_of
from .value import Value

Cotangents = dict[Link, Any]

_getrefcount = sys.getrefcount
_ndarray = np.ndarray
_add = np.add
_planners = attrgetter("planners")


def _count_kept(kept: dict[int, Any]) -> int:
    value = kept.get(0)
    return _getrefcount(value)


def _counts_of(seeds: Sequence[tuple[Link, Any]]) -> list[tuple[Link, int]]:
    counts = []
    for link, cotangent in seeds:
        counts.append((link, _getrefcount(cotangent)))
    return counts


# What getrefcount says of an object that nobody else holds is measured, as the code below asks for it: until Python
# 3.13 every variable and argument counts, 3.14 lets arguments borrow the reference of the variable that is passed.
#: If a dictionary and a variable hold it.
KEPT = _count_kept({0: object()})
#: If nobody but a list of seeds holds it.
_SEED = _counts_of([(None, object())])[0][1]


def reverse(
    seeds: Sequence[tuple[Link, Any]],
    sources: Iterable[Link] | None = None,
    *,
    cls: type[Value] | None = None,
    free: bool = False,
    keep_all: bool = False,
    required_only: bool = False,
    ends: Set[Link] = frozenset(),
    graph: Graph | None = None,
    way: Way | None = None,
    is_silent: bool = True,
    is_planned: bool = False,
) -> Cotangents:
    """Return the cotangents of the sources, given those of some targets.

    Args:
        seeds: pairs of a target's link and its cotangent. A list is emptied, so that what nobody else holds goes when
            the sweep has passed it.
        sources: the links whose cotangents are wanted; None for every tracked leaf.
        cls: the tensor class to run the rules on, so that they are recorded; None to run them on arrays.
        free: drop the arrays of the records behind the sweep.
        keep_all: also return the cotangents of intermediates.
        required_only: without `sources`, nobody wants the cotangents of leaves that are only watched.
        ends: links that the sweep does not go past; their hooks wait for whoever adds up all that arrives there.
        graph: that of the targets, if the caller has it.
        way: that from the graph to the sources, if the caller has it.
        is_silent: whether NumPy says nothing of overflow and the like, whatever the caller told it.
        is_planned: whether scopes that plan for backwards, to keep a memory budget, do so for this one.
    """
    wanted = None if sources is None else set(sources)
    if graph is None:
        graph = graph_of([link for link, _ in seeds], ends, 0 if wanted is None else oldest_of(wanted))
    records = graph[0]
    if way is None:
        cells = cells_of(records)
        way = way_of(graph, wanted, required_only, cells)
        if is_planned and any(map(_planners, cells)):
            held = {link for link, count in _counts_of(seeds) if count > _SEED}
            keeps = set(records) if keep_all else held.union(wanted or ())
            plan_for(records, keeps, way, free, cls is not None)
    useful, wanted = way
    keeps_some = keep_all or (wanted is not None and Record in map(type, wanted))
    cotangents: Cotangents = {}
    has_batches = False
    for link, cotangent in seeds:
        if type(link) is Record and link.cell is FREED:
            raise_freed(link)
        cotangent = fit(cotangent, link)
        has_batches |= isinstance(cotangent, Batched)
        if link not in cotangents:
            cotangents[link] = cotangent
        else:
            accumulate(cotangents, link, cotangent)
    cotangent = None
    if type(seeds) is list:
        seeds.clear()
    kept: Cotangents = {}
    reader = Reader(cls, records, cotangents)
    followers = reader.followers = followers_of(records)
    if not keep_all:  # Who follows the sweep sees what it does: looking changes no bits.
        reader.whole = wanted or frozenset()
    read = reader.operand
    restored = reader.restored
    with silent() if is_silent else nullcontext(), reader:
        for record in records:
            g = cotangents.pop(record, None)
            if g is None:
                continue
            if useful is not None and record not in useful:
                if keeps_some and _is_kept(record, g, keep_all, wanted):
                    kept[record] = g if record.notes is None else hooked_by(record.notes, g)
                continue
            if record.notes is not None:
                g = noted(record, g, sources is None)
            if keeps_some and _is_kept(record, g, keep_all, wanted):
                kept[record] = g
            reader.current = g
            op = record.op
            links = record.inputs
            plan = op.plans.get(record.needs)
            if plan is None:
                for link, cotangent in zip(links, pull(record, g, reader), strict=True):
                    if cotangent is not None:
                        accumulate(cotangents, link, cotangent)
                cotangent = None
            else:
                # The common case, one or two operands: the same as `pull`, without its generality.
                for position, function, reads, rule in plan:
                    link = links[position]
                    if useful is not None and link not in useful and link not in wanted:  # type: ignore[operator]
                        continue
                    like = link if type(link) is Record else link.array
                    is_whole = record.shape == like.shape
                    if function is None:
                        cotangent = g
                        if is_whole and record.dtype is like.dtype:  # As most often: it fits as it is.
                            if link not in cotangents:
                                cotangents[link] = g
                            else:
                                accumulate(cotangents, link, g)
                            continue
                    elif (
                        has_batches
                        and rule.is_partial
                        and isinstance(g, Batched)
                        and (cotangent := g.mapped(rule, record, reader, position)) is not None
                    ):
                        pass
                    elif reads is not None:
                        operand = links[reads]
                        # A number or an array; a tensor may be dropped, overwritten, half or in need of wrapping.
                        if type(operand) is not _ndarray:
                            operand = read(record, reads)
                        if is_whole or not rule.is_product or not (type(operand) is type(g) is _ndarray):
                            cotangent = function(g, operand)
                        else:
                            cotangent = sum_of_products(g, operand, like.shape)
                    elif rule.reads or not op.is_elementwise:
                        if (
                            link in cotangents
                            and (add_back := op.facts.add_back) is not None
                            and _add_back(cotangents, link, g, add_back, record.params)
                        ):
                            continue
                        cotangent = rule.run(g, record, reader, position)
                    else:
                        # The same at each element: what was repeated is summed first, which leaves less to do.
                        cotangent = function(g if is_whole else unbroadcast(g, like.shape))
                    # An elementwise rule's result has the record's shape, so that it need not be looked at.
                    fits = is_whole if op.is_elementwise else cotangent.shape == like.shape
                    if not fits or cotangent.dtype is not like.dtype:
                        cotangent = fit(cotangent, like)
                    if link not in cotangents:
                        cotangents[link] = cotangent
                    else:
                        accumulate(cotangents, link, cotangent)
                operand = cotangent = None  # What nobody else holds goes now.
            if followers:
                for follower in followers:
                    follower.on_step(record, g, cotangents)
            if restored:
                reader.pass_by(record)
            if free:
                record.array = None
                record.cell = FREED
                if record.needs != op.all_needs:
                    # There is nothing to free in a number beside the only other operand.
                    other = links[record.needs & 1] if len(links) == 2 else None
                    if type(other) is not _ndarray or other.ndim:
                        _free_operands(record)
    for follower in followers:
        follower.on_end()
    # What is left belongs to leaves; a seed that is itself a wanted leaf is among them.
    for leaf, g in cotangents.items():
        if type(leaf) is Record or leaf in ends:
            kept[leaf] = g
            continue
        assert isinstance(leaf, Value)
        if leaf.extras is not None and leaf.extras.hooks is not None:
            g = hooked(leaf.extras.hooks, leaf.plain, g)
        kept[leaf] = g
    return kept


def plan_for(
    records: Sequence[Record], keeps: Set[Link], way: Way, frees: bool = False, is_recorded: bool = False
) -> None:
    """Let scopes that plan for backwards over records, newest first, get ready for one; see `Scope.plan`."""
    for scope in {scope for cell in cells_of(records) for ref in cell.planners if (scope := ref()) is not None}:
        scope.plan(records, frees, keeps, is_recorded, way)


def pull(record: Record, g: Any, reader: "Reader") -> list[Any]:
    """Return the cotangents that one record passes to its inputs; None for those that were not tracked, or get none."""
    op = record.op
    if op is PICK:
        assert record.params is not None
        return [Part(record.params["position"], g)]
    if type(g) is list:
        g = tuple(g)
    if op.joint is not None:
        joint = op.joint.run(g, record, reader, 0)
    produced: list[Any] = []
    for position, link in enumerate(record.inputs):
        if not record.needs >> position & 1:
            produced.append(None)
            continue
        rule = op.pull(position)
        assert isinstance(rule, Rule)
        if op.joint is not None and rule.function is op.joint.function:
            cotangent = joint[position]
        else:
            cotangent = rule.run(g, record, reader, position)
        if cotangent is not None:
            cotangent = fit(cotangent, link, reader.wanted_shape(record, position) if rule.can_sum else None)
        produced.append(cotangent)
    return produced


class Part:
    """A cotangent of one of several outputs, on its way to the record that made them."""

    __slots__ = ("cotangent", "position")

    def __init__(self, position: int, cotangent: Any) -> None:
        self.position = position
        self.cotangent = cotangent


def accumulate(cotangents: Cotangents, link: Link, cotangent: Any) -> None:
    """Add a cotangent to what has arrived at a link."""
    before = cotangents.get(link)
    # The sum is ours alone if the dictionary and `before` hold it, and nobody else.
    if (
        type(before) is _ndarray
        and type(cotangent) is _ndarray
        and _getrefcount(before) == KEPT
        and before.base is None
    ):
        try:
            _add(before, cotangent, before)
            return
        except ValueError:  # The array is read-only.
            pass
    if type(cotangent) is Part:
        if before is None:
            before = cotangents[link] = [None] * len(link.shape)
        part = before[cotangent.position]
        before[cotangent.position] = cotangent.cotangent if part is None else part + cotangent.cotangent
    else:
        cotangents[link] = cotangent if before is None else before + cotangent


def _add_back(cotangents: Cotangents, link: Link, g: Any, add_back: Callable[..., None], params: Any) -> bool:
    """Add a part of the cotangent of a link to what has arrived there, if that is ours alone."""
    before = cotangents.get(link)
    # As in `accumulate`.
    if (
        type(before) is _ndarray
        and (type(g) is _ndarray or isinstance(g, np.generic))
        and _getrefcount(before) == KEPT
        and before.base is None
        and before.dtype is g.dtype
    ):
        try:
            add_back(before, g, **params)
            return True
        except ValueError:  # The array is read-only.
            pass
    return False


def fit(cotangent: Any, link: Link, shape: Shape | None = None) -> Any:
    """Undo broadcasting, and bring a cotangent to its operand's dtype (float32 for half operands).

    The shape is that in which it is wanted, if not the operand's.
    """
    if shape is None:
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
        cotangent = add_reduce(cotangent, axes, True)
    return cotangent.reshape(shape)


def sum_of_products(g: NDArray, factor: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return ``unbroadcast(g * factor, shape)``, without an array of the products where few enough are added up."""
    addends = g.size // max(1, math.prod(shape))
    is_accurate = g.dtype == np.float64 or addends <= FEW
    if factor.dtype != g.dtype or factor.ndim > g.ndim or 0 in g.shape or g.ndim > MOST_LABELS or not is_accurate:
        summed: NDArray = unbroadcast(g * factor, shape)
        return summed
    # Axes are numbered as those of g; an axis of length 1 is left out of the factor and of the result.
    axes = range(g.ndim)
    first = g.ndim - factor.ndim
    taken = [i for i, length in enumerate(factor.shape) if length != 1]
    kept = [i + g.ndim - len(shape) for i, length in enumerate(shape) if length != 1]
    factor = factor.reshape([factor.shape[i] for i in taken])
    total: NDArray = np.einsum(g, axes, factor, [i + first for i in taken], kept)
    return np.asarray(total).reshape(shape)


def _free_operands(record: Record) -> None:
    for position, link in enumerate(record.inputs):
        if not record.needs >> position & 1 and getattr(link, "shape", None):
            links = list(record.inputs)
            links[position] = Gone(link.shape, link.dtype, link)
            record.inputs = tuple(links)


def _is_kept(record: Record, g: Any, keep_all: bool, wanted: Set[Link] | None) -> bool:
    """Say whether somebody wants the cotangent of an intermediate; those of several outputs are of no tensor."""
    return (keep_all and type(g) is not list) or (wanted is not None and record in wanted)
