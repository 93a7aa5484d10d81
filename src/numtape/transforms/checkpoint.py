"""Drop the values inside a function, and make them again in the backward: `checkpoint`, `checkpoint_sequential`."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.context import current
from ..core.recompute import drop, note_arrays
from ..core.record import Block, Record, describe_site, link_name
from ..core.scopes import Scope
from ..core.value import Value, writes_to
from ..counts import is_count
from ..errors import ArgumentError, OperandError, OverwrittenError


class Region(Scope):
    """The records made while it is active. What they read from outside of it is kept, so that they can run again."""

    skips_loops = True

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._inside: set[Record] = set()

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """List a record."""
        note_arrays(record, operands)
        pin(record, operands, self._inside)
        self.records.append(record)
        self._inside.add(record)


def pin(record: Record, operands: Sequence[Any], inside: "set[Record] | dict[Record, Any]") -> None:
    """Keep the operands of a record that were made elsewhere than `inside`, whether a rule reads them or not."""
    for link, operand in zip(record.inputs, operands, strict=False):
        if type(link) is Record and link not in inside and not link.is_kept and isinstance(operand, Value):
            link.array = operand.array


def checkpoint(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function and keep none of its intermediate values; the backward makes them again.

    The function runs once: what runs again are the ops that it left on the tape, with the same random draws, so the
    gradients are those of a plain call, bit for bit, by its arguments and by tensors that it captures.

    Args:
        function: a function of tensors that returns a tensor or a tree of tensors.
        *args: its arguments.
        **kwargs: its arguments by name.

    Raises:
        OperandError: if it returns something else than tensors.
        OverwrittenError: if it writes to its arguments in place.

    Example:
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> y = nt.checkpoint(lambda x: nt.exp(nt.sin(x)), x)
        >>> [record.is_kept for record in nt.records(y)]
        [False, False]
        >>> y.sum().backward()
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    if not callable(function):
        raise OperandError(
            f"checkpoint: wants a function and its arguments, not {name} first; call nt.checkpoint(f, x)."
        )
    if not current().grad:
        return function(*args, **kwargs)
    given = [leaf for leaf in tree.leaves((args, kwargs)) if isinstance(leaf, Value)]
    before = [writes_to(value) for value in given]
    arrays = [leaf for leaf in tree.leaves((args, kwargs)) if isinstance(leaf, np.ndarray)]
    with Region() as region, _read_only(arrays, name):
        result = function(*args, **kwargs)
    for value, count in zip(given, before, strict=True):
        if writes_to(value) != count:
            assert value.version is not None
            written = describe_site(value.version[0].code, value.version[0].lasti)
            raise OverwrittenError(
                f"checkpoint: {name} writes to its argument {link_name(value)} in place, at {written}, so it could not "
                "be run again; compute a new tensor there, or pass a clone()."
            )
    for leaf in tree.leaves(result) or [result]:
        if not isinstance(leaf, Value):
            raise OperandError(
                f"checkpoint: {name} returned {type(leaf).__name__}; it must return a tensor, or a tuple, list or dict "
                "of tensors."
            )
    drop(region.records, Block())
    return result


@contextmanager
def _read_only(arrays: list[NDArray], name: str) -> Iterator[None]:
    """Let nobody write to arrays: records refer to them, and have no way to notice."""
    locked = [array for array in arrays if array.flags.writeable and _can_be_unlocked(array)]
    for array in locked:
        array.setflags(write=False)
    try:
        yield
    except ValueError as error:
        if not locked or "read-only" not in str(error):
            raise
        raise OverwrittenError(
            f"checkpoint: {name} writes to a read-only array in place. Those among its arguments are while it runs, "
            "since it must be possible to run it again; compute a new array there, or pass a copy."
        ) from error
    finally:
        # A view only becomes writable while something that it is a view of is.
        for array in sorted(locked, key=lambda array: sum(1 for _ in _bases(array))):
            array.setflags(write=True)


def _can_be_unlocked(array: NDArray) -> bool:
    """Say whether NumPy would let an array that is writable be so again; if not, only fingerprints guard it."""
    if array.flags.owndata or any(base.flags.writeable for base in _bases(array)):
        return True
    owner: Any = array
    for owner in _bases(array):
        if owner.flags.owndata:
            return False
    try:
        return not memoryview(owner.base).readonly
    except TypeError:  # It is nobody's, or its owner does not share memory by itself, as that of `as_strided`.
        return False


def _bases(array: NDArray) -> Iterator[NDArray]:
    """Yield the array that an array is a view of, what that is a view of, and so on."""
    base = array.base
    while isinstance(base, np.ndarray):
        yield base
        base = base.base


def checkpoint_sequential(functions: Iterable[Callable[[Any], Any]], segments: int, x: Any) -> Any:
    """Pass a tensor through functions one after the other, such as an `nn.Sequential`, checkpointed in segments.

    Args:
        functions: the functions, or a module that iterates over its layers.
        segments: into how many stretches of about equal length they are cut; the last one is kept, since the backward
            needs it first.
        x: what the first function gets.

    Raises:
        OperandError: if these are not functions.
        ArgumentError: if `segments` is not a positive integer.

    Example:
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> nt.checkpoint_sequential([nt.sin, nt.exp, nt.cos, nt.tanh], 2, x).shape
        (2,)
    """
    try:
        layers = list(functions)
    except TypeError as error:
        raise OperandError(
            f"checkpoint_sequential: wants an nn.Sequential or a list of functions, not {type(functions).__name__}."
        ) from error
    for i, layer in enumerate(layers):
        if not callable(layer):
            raise OperandError(
                "checkpoint_sequential: wants an nn.Sequential or a list of functions; element "
                f"{i} of the {type(functions).__name__} is of type {type(layer).__name__}, which cannot be called."
            )
    if not is_count(segments):
        raise ArgumentError(f"checkpoint_sequential: segments is {segments!r}; it must be a positive integer.")
    segments = min(segments, max(1, len(layers)))
    ends = [len(layers) * i // segments for i in range(segments + 1)]
    for start, stop in itertools.pairwise(ends[:-1]):
        x = checkpoint(_chain, layers[start:stop], x)
    return _chain(layers[ends[-2] :], x)


def _chain(layers: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x
