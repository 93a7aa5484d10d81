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
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..dtypes import HALF_DTYPES, float32
from ..errors import GradientError, ShapeError
from ..kernels.silence import silent
from ..kernels.sums import FEW, MOST_LABELS, add_reduce
from .apply import PICK
from .batching import Batched
from .cells import FREED
from .context import followers_of
from .graph import Graph, Way, graph_of, oldest_of, way_of
from .op import Rule
from .reader import Reader
from .recompute import check_reads, raise_freed
from .record import Gone, Link, Notes, Record
from .value import Lifted, Value, extras_of, wrap
from .write import mark_written

Cotangents = dict[Link, Any]
#: Called with a record, the cotangent of its output and the cotangents of its inputs (None where not wanted).
Step = Callable[[Record, Any, list[Any]], None]

_getrefcount = sys.getrefcount
_ndarray = np.ndarray
_add = np.add


def _count_kept(kept: dict[int, Any]) -> int:
    value = kept.get(0)
    return _getrefcount(value)


def _count_passed() -> int:
    value = object()
    return _count_given(value)


def _count_given(value: Any) -> int:
    return _getrefcount(value)


# What getrefcount says of an object that nobody else holds is measured, as the code below asks for it: until Python
# 3.13 every variable and argument counts, 3.14 lets arguments borrow the reference of the variable that is passed.
#: If a dictionary and a variable hold it.
KEPT = _count_kept({0: object()})
#: If its giver's variable, or nothing but our argument, holds it. A giver that goes on to use its variable must not
#: rely on this count: where arguments borrow, it is the same for every depth of calls.
_EXCLUSIVE = _count_passed()
#: The same if nothing but our argument can hold it, since the giver has no variable.
PASSED_ON = _count_given(object())


def reverse(
    seeds: Sequence[tuple[Link, Any]],
    sources: Iterable[Link] | None = None,
    *,
    cls: type[Value] | None = None,
    free: bool = False,
    keep_all: bool = False,
    required_only: bool = False,
    on_step: Step | None = None,
    ends: Set[Link] = frozenset(),
    graph: Graph | None = None,
    way: Way | None = None,
    is_silent: bool = True,
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
        ends: links that the sweep does not go past; their hooks wait for whoever adds up all that arrives there.
        graph: that of the targets, if the caller has it.
        way: that from the graph to the sources, if the caller has it.
        is_silent: whether NumPy says nothing of overflow and the like, whatever the caller told it.
    """
    wanted = None if sources is None else set(sources)
    if graph is None:
        graph = graph_of([link for link, _ in seeds], ends, 0 if wanted is None else oldest_of(wanted))
    records = graph[0]
    useful, wanted = way_of(graph, wanted, required_only) if way is None else way
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
    kept: Cotangents = {}
    reader = Reader(cls, records, cotangents)
    if not keep_all and on_step is None:
        reader.whole = wanted or frozenset()
    read = reader.operand
    restored = reader.restored
    followers = followers_of(records)
    with silent() if is_silent else nullcontext(), reader:
        for record in records:
            g = cotangents.pop(record, None)
            if g is None:
                continue
            if useful is not None and record not in useful:
                if keeps_some and _is_kept(record, g, keep_all, wanted):
                    kept[record] = g if record.notes is None else _hooked_by(record.notes, g)
                continue
            if record.notes is not None:
                g = _noted(record, g, sources is None and on_step is None)
            if keeps_some and _is_kept(record, g, keep_all, wanted):
                kept[record] = g
            reader.current = g
            op = record.op
            links = record.inputs
            plan = op.plans.get(record.needs)
            if plan is None or on_step is not None:
                _pull_any(record, g, reader, cotangents, on_step)
            else:
                # The common case, one or two operands: the same as `_pull_any`, without its generality.
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
            g = _hooked(leaf.extras.hooks, leaf.plain, g)
        kept[leaf] = g
    return kept


def pull(record: Record, g: Any, reader: "Reader") -> list[Any]:
    """Return the cotangents that one record passes to its inputs; None for those that were not tracked, or get none."""
    op = record.op
    if op is PICK:
        assert record.params is not None
        return [_Part(record.params["position"], g)]
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


def _pull_any(record: Record, g: Any, reader: "Reader", cotangents: Cotangents, on_step: Step | None) -> None:
    produced = pull(record, g, reader)
    for link, cotangent in zip(record.inputs, produced, strict=True):
        if cotangent is not None:
            accumulate(cotangents, link, cotangent)
    if on_step is not None:
        passed = [part.cotangent if type(part) is _Part else part for part in produced]
        on_step(record, list(map(_shown, g)) if type(g) is list else _shown(g), list(map(_shown, passed)))


def _shown(cotangent: Any) -> Any:
    """Return a cotangent as it is shown: NumPy's numbers, as its functions return them, are arrays without axes."""
    return np.asarray(cotangent) if isinstance(cotangent, np.generic) else cotangent


class _Part:
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
    if type(cotangent) is _Part:
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


def _noted(record: Record, g: Any, delivers: bool) -> Any:
    """Do what the notes of a record want done with its cotangent, and return what goes on."""
    notes = record.notes
    assert notes is not None
    if notes.prints is not None:
        check_reads(record, notes.prints)
    g = _hooked_by(notes, g)
    value = notes.retained() if delivers and notes.retained is not None else None
    if value is not None:
        # The sweep goes on with g, so its memory must not become the gradient's: a view is always copied.
        deliver(value, g if isinstance(g, Value) else _read_only(g))
    return g


def _hooked_by(notes: Notes, g: Any) -> Any:
    return g if notes.hooks is None else _hooked(*notes.hooks, g)


def _hooked(hooks: dict[int, Any], cls: type[Value], g: Any) -> Any:
    """Return a cotangent as hooks leave it. Batches, which whole Jacobians are made of, pass by."""
    if isinstance(g, Lifted):
        return g
    is_recorded = isinstance(g, Value)
    for hook in list(hooks.values()):
        given = g if isinstance(g, Value) else wrap(cls, _read_only(g))
        result = hook(given)
        if result is None:
            continue
        if not isinstance(result, Value) or result.shape != given.shape or result.dtype != given.dtype:
            shown = f"{type(result).__name__} of shape {np.shape(result)}"
            raise GradientError(
                f"register_hook: {getattr(hook, '__name__', 'a hook')} returned {shown} for a gradient of shape "
                f"{given.shape} and dtype {given.dtype}; a hook returns None or a tensor like the gradient."
            )
        g = result if is_recorded else result.array
    return g


def _read_only(g: Any) -> Any:
    """Return a view that cannot be written: other tensors may have the same memory for their gradient."""
    view = np.asarray(g).view()
    view.setflags(write=False)
    return view


def deliver(value: Value, cotangent: Any, is_unscaled: bool = False) -> None:
    """Add a cotangent to a tensor's ``.grad``: untracked, contiguous, with memory of its own.

    What was unscaled stays float32 for a half tensor: the half type may not hold what scaling has saved.
    """
    extras = extras_of(value)
    if isinstance(cotangent, Value):
        cotangent = cotangent.array
    is_wide = is_unscaled and value.dtype in HALF_DTYPES
    if extras.grad is None:
        extras.grad = wrap(value.plain, own_array(cotangent, cotangent if is_wide else value))
    else:
        total = extras.grad.array
        # A gradient that was widened, because a half would not hold it, stays so.
        is_kept = total.dtype == value.dtype or (value.dtype in HALF_DTYPES and total.dtype == float32)
        widens = is_wide and total.dtype != float32
        if total.flags.writeable and is_kept and not widens:
            with silent():  # As the sweep that it ends.
                np.add(total, cotangent, out=total, casting="same_kind")
            mark_written(extras.grad, None)
        else:
            like = cotangent if widens else extras.grad if is_kept else value
            with silent():
                extras.grad = wrap(value.plain, own_array(total + cotangent, like))


def own_array(array: Any, like: Any, most: int = _EXCLUSIVE) -> NDArray:
    """Return `array` in the dtype of `like`, as memory that nobody else holds; copied only if need be.

    A caller that passes ``found.pop(link)`` on, and has no variable of its own, says so by `PASSED_ON`.
    """
    if (
        type(array) is _ndarray
        and array.dtype == like.dtype
        and array.base is None
        and array.flags.carray  # Contiguous and writable.
        and _getrefcount(array) <= most
    ):
        return array
    if array.dtype == like.dtype:
        return np.array(array, order="C")
    with silent():  # As the sweep that it ends: beyond the range of halves is infinity.
        return np.array(array, dtype=like.dtype, order="C")
