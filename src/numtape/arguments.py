"""What functional transforms share: arguments as tensors to differentiate by, the call, results as they were given."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np

from . import tree
from .core.apply import watch_on_use
from .core.context import Exits, State, call_in, current, inside, peek
from .core.delivery import PASSED_ON, own_array
from .core.gradients import as_tensor, link_of
from .core.graph import Graph, begins_tracked, depends_on_argument, graph_of, is_moving
from .core.record import Record, next_index, note
from .core.tape import RecordingTape
from .core.value import LEAF, Extras, Lifted, Value, array_of, single_array, wrap
from .core.write import version_of
from .dtypes import float64, is_float, plain_array
from .errors import ArgumentError, DtypeError, OperandError
from .ops.casting import alias, clone
from .outputs import as_outputs, split_aux
from .tensors import Tensor

Argnums = int | Sequence[int]

# As tuples: a union would be made anew for each question.
_INTEGERS = (int, np.integer)
_ndarray = np.ndarray
_ARRAYS = (np.ndarray, np.generic)
_PYTHONS_NUMBERS = (float, int)
_NUMBERS = (float, int, complex, *_ARRAYS)


def argument_numbers(name: str, argnums: Argnums, count: int) -> list[int]:
    """Return which of `count` arguments are named, checked."""
    if type(argnums) is int and -count <= argnums < count:  # As most often.
        return [argnums]
    numbers = [int(argnums)] if isinstance(argnums, _INTEGERS) else list(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise ArgumentError(
                f"{name}: argnums has {number}, but the function got {count} positional arguments; argnums counts "
                "these, from 0 on."
            )
    if len(numbers) > 1 and len({number % count for number in numbers}) != len(numbers):
        raise ArgumentError(f"{name}: argnums is {argnums!r}; each argument may be named once.")
    return numbers


class Arguments:
    """The differentiated arguments of one call, as tensors that only this call differentiates by.

    A tensor that is tracked outside is aliased by a recorded identity, so that nested transforms keep apart what each
    differentiates by (no perturbation confusion) and outer ones still see through. The function may write to it in
    place: then it goes on as another one, and what was given stays what is differentiated by.
    """

    __slots__ = ("args", "given", "has_tensors", "is_single", "links", "since", "tensors", "trees")

    def __init__(self, name: str, args: tuple[Any, ...], argnums: Argnums, copies: bool = False) -> None:
        self.is_single = isinstance(argnums, _INTEGERS)
        # Writes to an array are not seen: where the graph outlives the call, it holds copies.
        self.args = replaced = list(tree.map(_copied, args) if copies else args)
        self.trees: list[Any] = []
        self.given: list[Any] = []
        self.tensors: list[Any] = []
        #: What records hold for the tensors.
        self.links: list[Any] = []
        #: No record of a smaller index depends on them.
        self.since = next_index()
        #: Whether any of the arguments is a tensor, so that results are.
        self.has_tensors = False
        numbers = argument_numbers(name, argnums, len(args))
        for number in numbers:
            argument = replaced[number]
            self.trees.append(argument)
            if type(argument) is _ndarray or tree.is_leaf(argument):
                replaced[number] = self._add_source(name, argument, number, 0)
            else:
                sources = [self._add_source(name, leaf, number, i) for i, leaf in enumerate(tree.leaves(argument))]
                replaced[number] = tree.unflatten(argument, sources)
        if not self.given and numbers and all(argument is None for argument in self.trees):
            raise OperandError(f"{name}: argument {numbers[0]} is None; there is nothing to differentiate by.")

    @classmethod
    def of_array(cls, args: tuple[Any, ...], number: int) -> Self:
        """Return what the constructor makes of arguments of which one is differentiated by, an array of floats."""
        made = cls.__new__(cls)
        made.since = next_index()
        made.args = list(args)
        array = args[number]
        made.args[number] = source = _source(Tensor, array, None)
        made.trees = made.given = [array]
        made.tensors = made.links = [source]
        made.is_single = True
        made.has_tensors = False
        return made

    def _add_source(self, name: str, leaf: Any, number: int, place: int) -> Any:
        if type(leaf) is _ndarray and leaf.dtype is float64:  # As most often.
            source = kept = link = _source(Tensor, leaf, None)
        else:
            source = kept = link = _as_source(leaf, (name, number, self.trees[-1], place))
            if type(source.node) is Record:
                link = source.node
                kept = wrap(source.plain, source.array, link, source.version)
            if isinstance(leaf, Value):
                self.has_tensors = True
        self.given.append(leaf)
        self.tensors.append(kept)
        self.links.append(link)
        return source

    def graph_of(self, values: Iterable[Value]) -> Graph:
        """Return the graph of values as far as it may depend on the sources."""
        return graph_of(list(map(link_of, values)), since=self.since)

    def release(self) -> None:
        """Let nobody track the sources any more; sweeps over what was recorded still find them."""
        for source in self.tensors:
            node = source.node
            if node is LEAF:
                extras = source.extras
                extras.is_argument = False
                extras.watchers -= 1
                if not extras.watchers and not extras.requires_grad:
                    source.node = None
            elif node is not None:
                note(node).is_argument = False

    def results(self, cotangents: Sequence[Any]) -> Any:
        """Return cotangents in the form in which the arguments were given."""
        if self.is_single:
            first = self.trees[0]
            is_leaf = bool(self.given) and first is self.given[0]
            return cotangents[0] if is_leaf else tree.unflatten(first, cotangents)
        rest = iter(cotangents)
        return tuple(tree.unflatten(t, [next(rest) for _ in tree.leaves(t)]) for t in self.trees)


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


#: For messages, the place of a leaf: the transform, the number of the argument, the argument, and which of its leaves.
_Place = tuple[str, int, Any, int]


def _described(place: _Place) -> str:
    name, number, argument, index = place
    return f"{name}: argument {number}{tree.paths(argument)[index]}"


def _as_source(leaf: Any, place: _Place) -> Any:
    """Return a tensor to differentiate by in place of an argument."""
    if isinstance(leaf, Value):
        _check_float(leaf.dtype, place)
        state = current()
        if leaf.node is None and state.watch_all:
            watch_on_use(state, leaf)
        if leaf.node is not None and state.grad:
            source = alias(leaf)
            if type(source.node) is Record:
                note(source.node).is_argument = True
            return source
        version_of(leaf)
        return _source(leaf.plain, single_array(leaf), leaf.version)
    if isinstance(leaf, bool) or not isinstance(leaf, _NUMBERS):
        raise OperandError(
            f"{_described(place)} is of type {type(leaf).__name__}, which has no derivative; arguments are tensors, "
            "arrays, numbers and trees of them."
        )
    if isinstance(leaf, np.ndarray):
        array = leaf if type(leaf) is np.ndarray and leaf.dtype.isnative else plain_array(_described(place), leaf)
    else:
        try:
            array = np.asarray(leaf, np.float64) if isinstance(leaf, _PYTHONS_NUMBERS) else np.asarray(leaf)
        except OverflowError as error:
            raise OperandError(f"{_described(place)} is an integer that no float64 holds ({error}).") from error
    _check_float(array.dtype, place)
    return _source(Tensor, array, None)


def _source(cls: type[Value], array: Any, version: Any) -> Any:
    """Return a leaf that stays one while the transform runs, whatever tapes watch and unwatch it."""
    source: Any = cls()
    source.array = array
    source.node = LEAF
    source.version = version
    source.extras = extras = Extras()
    extras.watchers = 1
    extras.since = next_index()
    extras.is_argument = True
    return source


def _check_float(dtype: Any, place: _Place) -> None:
    if dtype.kind == "c":
        raise DtypeError(
            f"{_described(place)} has dtype {dtype}, but numtape computes with real numbers; pass real and imaginary "
            "parts as two arguments."
        )
    if dtype.names is not None:
        raise DtypeError(
            f"{_described(place)} has the fields {', '.join(dtype.names)}, which numtape does not know; pass them as a "
            "dict of arrays."
        )
    if not is_float(dtype):
        raise DtypeError(f"{_described(place)} has dtype {dtype}, which has no derivative; use astype(float).")


def is_tracked_outside(inputs: Arguments, state: State | None = None) -> bool:
    """Say whether the result of a transform must be differentiable itself: something around it differentiates."""
    state = state or current()
    if not state.grad:
        return False
    if state.transforms or (state.tapes and any(tape.watch_all or tape.watched for tape in state.tapes)):
        return True
    return inputs.has_tensors and any(map(is_moving, inputs.given))


def must_record(inputs: Arguments, is_tracked: bool, outs: Sequence[Any]) -> bool:
    """Say whether the sweep must be recorded: something outside may differentiate through it.

    Something does in this thread, or the outputs depend on what others may differentiate by: a parameter, a watched
    tensor, or an argument of a transform that runs in another thread.
    """
    if is_tracked or not current().grad:
        return is_tracked
    return depends_on_others(inputs, outs)


def stays_recorded(inputs: Arguments, is_recorded: bool, results: Iterable[Any]) -> bool:
    """Say whether results that were recorded, since something around may differentiate, are to be tracked tensors.

    Those of arrays are if they depend on something else that is tracked. The results are the outputs of the function,
    and what a sweep found.
    """
    if not is_recorded or inputs.has_tensors:
        return is_recorded
    return depends_on_others(inputs, [result for result in results if isinstance(result, Value)])


def depends_on_others(inputs: Arguments, values: Sequence[Value]) -> bool:
    """Say whether tensors depend on one that is tracked and no argument of this call."""
    return has_others(inputs, inputs.graph_of(values))


def has_others(inputs: Arguments, graph: Graph) -> bool:
    """Say whether a graph begins with something that is tracked and no argument of this call."""
    return begins_tracked(graph, inputs.links)


def released(inputs: Arguments, aux: Any, is_recorded: bool, copies: bool = False, is_alone: bool = False) -> Any:
    """Return the auxiliary part of what a function returned: of what only this call tracked, the values.

    `is_alone` says that nothing which the function used is tracked outside.
    """
    if is_recorded:
        return aux
    own = set(inputs.links)
    given = [source.array for source in inputs.tensors if not isinstance(source, Lifted)]
    keeps_graphs = current().grad and not is_alone

    def release(leaf: Any) -> Any:
        if not isinstance(leaf, Value) or leaf.node is None:
            return leaf
        is_ours = link_of(leaf) in own
        if leaf.node is LEAF and not is_ours:
            return leaf
        if keeps_graphs and depends_on_others(inputs, [leaf]):
            return leaf
        # What is in the memory of an argument is copied: nobody would notice writes to it.
        is_theirs = any(np.may_share_memory(leaf.array, array) for array in given)
        return wrap(leaf.plain, leaf.array.copy() if copies or is_theirs else leaf.array)

    leaves = tree.leaves(aux)
    values = list(map(release, leaves))
    # Only what changes is built anew: an object that is passed through stays the same.
    is_same = all(a is b for a, b in zip(leaves, values, strict=True))
    return aux if is_same else tree.unflatten(aux, values)


def delivered(inputs: Arguments, found: dict[Any, Any], is_recorded: bool) -> list[Any]:
    """Return the cotangent of each argument: a tensor for a tensor, an array for an array, zeros if unconnected."""
    results: list[Any] = []
    for leaf, source, link in zip(inputs.given, inputs.tensors, inputs.links, strict=True):
        if link not in found:
            found[link] = np.zeros(source.shape, source.dtype)
        if is_recorded or isinstance(leaf, Value):
            results.append(as_tensor(found.pop(link), source, source.plain))
            continue
        if isinstance(found[link], Value):
            found[link] = array_of(found[link])
        array = own_array(found.pop(link), source.array, PASSED_ON)
        results.append(array if isinstance(leaf, _ARRAYS) else array.item())
    return distinct(results)


def distinct(gradients: list[Any]) -> list[Any]:
    """Return gradients with copies of those tensors that came before, as both operands of a sum get the same."""
    seen: set[int] = set()
    for i, gradient in enumerate(gradients):
        if isinstance(gradient, Value):
            if id(gradient) in seen:
                gradients[i] = clone(gradient)
            seen.add(id(gradient))
    return gradients


#: What a transform changes for the function that it calls.
_CHANGED = ("grad", "tapes", "transforms")
#: The calls of transforms that are running, in any thread, by their ids.
running: set[int] = set()


def depends_on_running(values: Sequence[Value]) -> bool:
    """Say whether tensors depend on an argument of a transform that is running, in whatever thread."""
    return bool(running) and depends_on_argument(graph_of(list(map(link_of, values))))


def run(
    function: Callable[..., Any], inputs: Arguments, kwargs: dict[str, Any], tape: RecordingTape | None = None
) -> tuple[Any, Exits]:
    """Call a function; also return where it turned tracked tensors into plain numbers."""
    inner = inside(peek() or current())
    inner.entry.changed = _CHANGED
    inner.transforms += 1
    inner.grad = True
    if tape is not None:
        inner.tapes = (*inner.tapes, tape)
    thread = inner.thread
    before, thread.exits = thread.exits, {}
    running.add(id(inputs))
    try:
        return call_in(inner, function, inputs.args, kwargs), thread.exits
    finally:
        running.discard(id(inputs))
        thread.end_exits(before)


def call(
    name: str,
    function: Callable[..., Any],
    inputs: Arguments,
    kwargs: dict[str, Any],
    has_aux: bool,
    tape: RecordingTape | None = None,
) -> tuple[Any, list[Any], Any]:
    """Call a function; return what it returned, its leaves as tensors, checked, and the auxiliary part."""
    out_tree, exits = run(function, inputs, kwargs, tape)
    aux = None
    if has_aux:
        out_tree, aux = split_aux(name, function, out_tree)
    return out_tree, as_outputs(name, function, out_tree, exits), aux


def check_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise OperandError(
            f"{name}: wants a function, not {type(function).__name__}; nt.{name} differentiates functions, and "
            "backward() a loss that is computed already."
        )


def check_argnums(name: str, argnums: Any) -> None:
    numbers = argnums if isinstance(argnums, list | tuple) else (argnums,)
    if not all(isinstance(number, int | np.integer) and not isinstance(number, bool) for number in numbers):
        raise ArgumentError(
            f"{name}: argnums is {argnums!r}; it must be an integer or a tuple of integers. The function's arguments "
            f"go to the result: nt.{name}(f)(x)."
        )
