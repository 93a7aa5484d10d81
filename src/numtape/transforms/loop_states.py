"""States of a loop: trees whose float tensors move on, kept at some of the steps."""

import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from ..core.apply import COPY, new_record
from ..core.binomial import best_step, reach
from ..core.context import current
from ..core.record import describe_site
from ..core.stream import Stream, thread_stream
from ..core.value import LEAF, Value, array_of, wrap
from ..core.write import version_of
from ..dtypes import is_float
from ..errors import ArgumentError, OperandError, OverwrittenError
from ..tensors import Tensor


class Snapshot(NamedTuple):
    """The state before a step, and where random streams stood: the thread's, and others that steps have drawn from."""

    number: int
    state: Any
    stream: Stream
    places: dict[Stream, dict[str, Any]]

    def check(self) -> None:
        """Raise if the memory of a tensor was written to since."""
        for value in tensors_of(self.state):
            version, count = value.version
            if version.count != count:
                raise OverwrittenError(
                    f"checkpoint_loop: a tensor of shape {value.shape} that was part of the state before step "
                    f"{self.number} was overwritten since, at {describe_site(version.code, version.lasti)}; the "
                    "backward runs steps again from there. Write the new value to another tensor, or clone() it before."
                )


class Places:
    """Where states are kept in the first run: at the best places, or evenly if the number of steps is not known."""

    def __init__(self, length: int | None, snapshots: int) -> None:
        self.snapshots = snapshots
        self.stride = 1
        self.chosen: set[int] | None = None
        if length is not None:
            self.chosen = {0}
            number, free = 0, snapshots - 1
            while free > 0 and length - number > 1:
                number += best_step(length - number, free)
                free -= 1
                self.chosen.add(number)

    def keeps(self, number: int) -> bool:
        """Say whether the state before a step is kept."""
        if self.chosen is not None:
            return number in self.chosen
        if number >= self.stride * self.snapshots:
            self.stride *= 2
        return number % self.stride == 0

    def still_keeps(self, number: int) -> bool:
        """Say whether a state that was kept still is."""
        return self.chosen is not None or number % self.stride == 0


def enough(length: int) -> int:
    """Return how many snapshots it takes so that no step runs again more than twice."""
    snapshots = 1
    while reach(snapshots - 1, 2) < length:
        snapshots += 1
    return snapshots


def is_moved(leaf: Any) -> bool:
    """Say whether a part of a state is a float tensor."""
    return isinstance(leaf, Value) and is_float(leaf.dtype)


def tensors_of(state: Any) -> list[Any]:
    """Return the float tensors of a state."""
    return [leaf for leaf in tree.leaves(state) if is_moved(leaf)]


def with_tensors(state: Any, tensors: Sequence[Any]) -> Any:
    """Return a state with other float tensors."""
    rest = iter(tensors)
    return tree.map(lambda leaf: next(rest) if is_moved(leaf) else leaf, state)


def _view(x: Value) -> Any:
    """Return an untracked tensor of the same memory: writes to either are noticed by both."""
    version = version_of(x)
    return wrap(Tensor, x.array, None, (version, version.count))


def detached(state: Any) -> Any:
    """Return a state with untracked tensors of the same memory."""
    return with_tensors(state, list(map(_view, tensors_of(state))))


def _copy(leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return wrap(Tensor, leaf.array.copy())
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def tracked(state: Any) -> Any:
    """Return a state whose float tensors are leaves, of the same memory, with copies of what else is in it."""

    def track(leaf: Any) -> Any:
        if not is_moved(leaf):
            return _copy(leaf)
        made = _view(leaf)
        made.requires_grad = True
        return made

    return tree.map(track, state)


#: Stands behind what has left a step: somebody wants its gradient.
BEFORE = wrap(Tensor, np.zeros(()))
BEFORE.requires_grad = True


def end_leaves(state: Any) -> None:
    """Let what a step began with be a result of the step, which ends: whoever uses it later is told so."""
    for leaf in tensors_of(state):
        if leaf.node is LEAF:
            leaf.node = new_record(COPY, (BEFORE,), None, 1, None, leaf.shape, leaf.dtype, current())


def snapshot(state: Any, number: int, streams: Iterable[Stream]) -> Snapshot:
    """Return the state before a step, and where streams stand. What a step may write to is copied."""
    places = {stream: stream.place() for stream in streams}
    kept = tree.map(lambda leaf: _view(leaf) if is_moved(leaf) else _copy(leaf), state)
    return Snapshot(number, kept, thread_stream().copy(), places)


_MASK = (1 << 64) - 1


class Draws:
    """How far random streams were drawn from after each step: one that runs again and draws less is known by that."""

    def __init__(self) -> None:
        #: By stream, None for the thread's: the first step that drew from it, and the counters from there on.
        self._counters: dict[Stream | None, tuple[int, array[int]]] = {}

    def note(self, number: int, streams: Iterable[Stream]) -> None:
        """Note where streams stand after a step, all from which steps have drawn by then."""
        own = thread_stream()
        for stream in streams:
            if set(stream.place()) == {"key", "counter"}:  # Others draw by operation, in whatever order.
                key = None if stream is own else stream
                self._counters.setdefault(key, (number, array("Q")))[1].append(stream.counter & _MASK)

    def places(self) -> dict[Stream | None, int]:
        """Return where they stand."""
        return {key: (key or thread_stream()).counter for key in self._counters}

    def go_on(self, number: int, before: dict[Stream | None, int]) -> bool:
        """Let streams stand where they stood after a step that ran again, if they did before it or do already.

        Returns whether they do: what was drawn was drawn at the same places, or nothing was.
        """
        for key, (first, counters) in self._counters.items():
            stream = key or thread_stream()
            if number < first or stream.counter & _MASK == counters[number - first]:
                continue
            if stream.counter != before[key]:
                return False
            stream.counter += (counters[number - first] - stream.counter) & _MASK
        return True


#: What `repr` tells from others.
_TOLD = (bool, int, float, complex, str, slice, np.generic, np.dtype)


def checksum(values: Any, total: int = 0) -> int:
    """Return a number that tells arrays, numbers and names in a tree from others, beside a `total` so far.

    What has no value to compare, such as a function, is told by its class.
    """
    for leaf in tree.leaves(values, keeps_none=True):
        value = array_of(leaf)
        if isinstance(value, np.ndarray) and value.dtype != object:
            total = zlib.crc32(f"{value.shape}{value.dtype}".encode(), total)
            total = zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, total)
        else:
            total = zlib.crc32(repr(value if isinstance(value, _TOLD) else type(value)).encode(), total)
    return total


def check_state(before: Any, after: Any, number: int) -> None:
    """Raise if a step changed the form of the state."""
    old, new = tree.leaves(before), tree.leaves(after)
    if len(old) != len(new):
        raise OperandError(
            f"checkpoint_loop: step {number} returned a state of {len(new)} parts, and got one of {len(old)}; a step "
            "returns a state of the same form."
        )
    try:
        new = tree.leaves_like(before, after)  # Dicts go by their keys.
    except ArgumentError as error:
        raise OperandError(f"checkpoint_loop: step {number} returned a state of another form; {error}") from error
    for a, b in zip(old, new, strict=True):
        if is_moved(a) and not (is_moved(b) and a.shape == b.shape and a.dtype == b.dtype):
            got = f"a tensor of shape {b.shape} and dtype {b.dtype}" if isinstance(b, Value) else type(b).__name__
            raise OperandError(
                f"checkpoint_loop: step {number} returned {got} for a tensor of shape {a.shape} and dtype {a.dtype} of "
                "the state; a step returns a state of the same form."
            )
