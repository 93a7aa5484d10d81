"""From tensors to the sweeps: seed them, deliver gradients to ``.grad``, explain when nothing is connected."""

import sys
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from math import isfinite
from typing import Any

import numpy as np

from .._typing import NDArray
from ..dtypes import FLOAT_DTYPES, check_unmasked
from ..errors import NotConnectedError, NotDifferentiableError, OperandError, ShapeError
from .context import BY_CALLS, BY_GRAD, Exit, Target, current, entered, peek, settle
from .delivery import deliver, own_array
from .forward import forward
from .graph import Graph, depends_on_argument, graph_of, oldest_of
from .marks import marks
from .record import Record, call_site, describe_site, shortened
from .reverse import Cotangents, reverse
from .tape import watching
from .value import LEAF, Lifted, Value, array_of, wrap, wrap_seed
from .write import check_history


def link_of(value: Value) -> Any:
    """Return what records hold for a value: the record that made it, or itself."""
    return value.node if type(value.node) is Record else value


def seed_of(name: str, target: Value, gradient: Any) -> Any:
    """Return the cotangent to start from: `gradient`, checked, or ones."""
    if gradient is None:
        return ones_like(target)
    if not isinstance(gradient, Value):
        if isinstance(gradient, np.ndarray) and type(gradient) is not np.ndarray:
            check_unmasked(f"{name}: the gradient given", gradient)
        try:
            array = np.asarray(gradient)
        except ValueError as error:
            raise OperandError(
                f"{name}: the gradient given, {shortened(repr(gradient))}, makes no array ({error})."
            ) from error
        if array.dtype not in FLOAT_DTYPES and array.dtype.kind not in "iu":
            raise OperandError(
                f"{name}: the gradient given is a tensor, an array or a real number, not {type(gradient).__name__} "
                f"({array.dtype})."
            )
        gradient = array.astype(target.dtype)
    if gradient.shape != target.shape:
        raise ShapeError(
            f"{name}: the gradient given has shape {gradient.shape} and the tensor {target.shape}; they must be equal."
        )
    return gradient


#: A cotangent of so many elements is worth a copy, so that what came of it can be explained.
_FEW = 256


def _described(seed: Any) -> Any:
    """Return what is kept of the cotangent that a sweep begins with: see `Target.seed`."""
    if seed is None:
        return None
    array = seed if type(seed) is np.ndarray else array_of(seed)
    if type(array) is not np.ndarray:
        return None
    if array.size <= _FEW:
        return array.copy()
    return None if (array == 1.0).all() else weakref.ref(seed)


def sweep(
    targets: Sequence[Value],
    seeds: list[Any],
    sources: Sequence[Value] | None,
    *,
    create_graph: bool = False,
    graph: Graph | None = None,
    **options: Any,
) -> Cotangents:
    """Run the reverse sweep from tensors; with `create_graph` its ops are recorded, otherwise it runs on arrays.

    A seed that is None stands for ones; the list is emptied, as `reverse` does. The options are those of that.
    """
    state = peek() or current()
    if targets:
        last = state.thread.last_target = Target(targets[0])
        last.seed = _described(seeds[0])
    for observer in state.observers:
        observer.on_targets(targets)
    cls = targets[0].plain if create_graph else None
    # Not by a name: what `zip` gave last it would hold throughout the sweep.
    pairs = [(link_of(target), _for_rules(cls, seed, target)) for target, seed in zip(targets, seeds, strict=True)]
    seeds.clear()
    wanted = None if sources is None else list(map(link_of, sources))
    if not create_graph:
        return reverse(pairs, wanted, graph=graph, **options)
    if graph is None:
        ends = options.get("ends", frozenset())
        graph = graph_of([link for link, _ in pairs], ends, 0 if wanted is None else oldest_of(wanted))
    with tracked_again(graph[0]), entered(grad=True):
        return reverse(pairs, wanted, cls=cls, graph=graph, **options)


def push_forward(
    targets: Sequence[Value], sources: Sequence[Value], tangents: Sequence[Any], *, create_graph: bool = False
) -> list[Any]:
    """Run the forward sweep from tensors; with `create_graph` its ops are recorded, otherwise it runs on arrays.

    The result has None where a target does not depend on the sources.
    """
    links = [link_of(target) for target in targets]
    cls = targets[0].plain if create_graph else None
    seeds = [(link_of(x), _for_rules(cls, tangent, x)) for x, tangent in zip(sources, tangents, strict=True)]
    if not create_graph:
        return forward(seeds, links)
    with tracked_again(graph_of(links, since=oldest_of(map(link_of, sources)))[0]), entered(grad=True):
        return forward(seeds, links, cls=cls)


def _for_rules(cls: type[Value] | None, given: Any, value: Value) -> Any:
    """Return the (co)tangent of a value as rules want it: as a tensor of a class, or as an array; None is ones."""
    if given is None:
        given = ones_like(value)
    if cls is None:
        return given.array if isinstance(given, Value) else given
    return given if isinstance(given, Value) else wrap_seed(cls, given)


def tracked_again(records: Sequence[Record]) -> AbstractContextManager[None]:
    """Let leaves that were tracked when some records were made count as tracked again while the rules of these run."""
    return watching(
        link
        for record in records
        for position, link in enumerate(record.inputs)
        if record.needs >> position & 1 and isinstance(link, Value)
    )


def as_tensor(cotangent: Any, like: Any, cls: type[Value]) -> Any:
    """Return a cotangent as a tensor of its operand's dtype: the tracked one itself, or memory of its own."""
    if isinstance(cotangent, Value):
        return cotangent if cotangent.dtype == like.dtype else cotangent.astype(like.dtype)  # type: ignore[attr-defined]
    return wrap(cls, own_array(cotangent, like))


def backward(name: str, target: Any, gradient: Any, free: bool) -> None:
    """Add the derivatives of `target` to the ``.grad`` of the leaves that require it."""
    check_target(name, target)
    settle(current())
    note_into_grad(target, gradient)
    free = free and is_freeable(target)
    graph, scales = marks.search([link_of(target)], [gradient])
    seeds = [None if gradient is None else seed_of(name, target, gradient)]
    found = sweep([target], seeds, None, free=free, required_only=True, graph=graph, is_planned=True)
    leaves = [link for link in found if isinstance(link, Value) and link.requires_grad]
    coming = [] if graph is None else marks.coming(leaves, scales)
    for leaf in leaves:
        deliver(leaf, found.pop(leaf))
    if coming:
        marks.arrive(coming)


def note_into_grad(*values: Any) -> None:
    """Remember the user's line if what goes into ``.grad``, where it is a constant, is differentiated by."""
    if is_differentiated_by(*values):
        current().thread.note_exit(*call_site(sys._getframe()), BY_GRAD)


def is_differentiated_by(*values: Any) -> bool:
    """Say whether a transform that runs around differentiates by one of some values, or by what it was made of.

    Under no_grad nothing is.
    """
    state = current()
    if not (state.transforms and state.grad):
        return False
    return any(isinstance(x, Lifted) for x in values) or depends_on_argument(
        graph_of([link_of(x) for x in values if isinstance(x, Value) and x.node is not None])
    )


def check_constant(name: str, repair: str, *values: Any) -> None:
    """Raise if what is to be written without a record is differentiated by: that derivative would be lost."""
    if is_differentiated_by(*values):
        raise NotDifferentiableError(
            f"{name}: what is given is written without a record, and a function that is being differentiated wants the "
            f"derivative by it; {repair}, or detach() what is given if that derivative is not wanted."
        )


def is_freeable(target: Value) -> bool:
    """Say whether a backward may free the graph of a target: that of one which is not finite is kept for a look."""
    array = target.array
    return isfinite(array.item()) if array.size == 1 else bool(np.isfinite(array).all())


def check_target(name: str, target: Any) -> None:
    """Raise if a target is not a tensor that depends on something tracked."""
    if not isinstance(target, Value):
        raise OperandError(
            f"{name}: wants the loss tensor itself, not {type(target).__name__}; call it with the tensor, not its id."
        )
    check_history(name, target)
    if target.node is None:
        raise NotConnectedError(f"{name}: {why_untracked(target)}")


def why_untracked(target: Value) -> str:
    """Explain why a tensor has no graph, and name the last line that left the tape unnoticed."""
    state = current()
    if target.array.dtype.kind in "biu":
        return f"the tensor has dtype {target.dtype}, which has no derivative; give one of floats that it came from."
    text = (
        "the tensor depends on nothing that is tracked. Make a leaf with requires_grad=True, watch it on a tape, "
        "and compute with nt or np functions outside of no_grad."
    )
    return text + describe_exits(state.thread.exits)


def describe_exits(exits: Iterable[Exit]) -> str:
    """Return the sentence that names the line where a tensor last left the tape; nothing if none did.

    The last one that did so by float() is named as well: ``math.sin(x)`` calls it, and a look by item() may follow.
    """
    text = ""
    for code, lasti, how in reversed(list(exits)):
        if not text:
            text = f" The last tensor that left the tape did so by {how} at {describe_site(code, lasti)}"
        elif how == BY_CALLS:
            text += f", and one before it by {how} at {describe_site(code, lasti)}"
        if how == BY_CALLS:
            break
    return text and f"{text}."


def is_leaf(value: Value) -> bool:
    """Say whether a value starts graphs instead of being computed by one."""
    return value.node is None or value.node is LEAF


def ones_like(value: Value) -> NDArray:
    """Return ones of a value's shape and dtype."""
    array = value.array
    if not array.ndim:  # As most often.
        return np.array(1.0, array.dtype)
    ones = np.empty(array.shape, array.dtype)
    ones.fill(1.0)  # Together in a third of the time of np.ones.
    return ones


def zeros_like(value: Value) -> NDArray:
    """Return zeros of a value's shape and dtype."""
    return np.zeros(value.shape, value.dtype)
