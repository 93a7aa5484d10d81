"""A module's state by path: give it out, and take it in, all of it or nothing."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..core.gradients import check_constant
from ..core.stream import Stream
from ..core.value import Value, wrap
from ..dtypes import check_unmasked, is_float
from ..errors import ArgumentError, DtypeError, OperandError
from ..grad_mode import no_grad
from ..ops import stop_gradient
from ..tensors import Tensor
from . import traversal
from .parameter import BY_CALL

if TYPE_CHECKING:
    from .module import Module


_WORD = 2**64 - 1
#: The name of what `get_extra_state` returns.
_EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The keys that a call of `load_state_dict` which is not strict left alone."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _entries(module: "Module", prefix: str = "") -> dict[str, Any]:
    """Return parameters and persistent buffers by path; a shared one stands under each of its paths."""
    return dict(traversal.members(module, (traversal.Kind.PARAMETER, traversal.Kind.BUFFER), prefix, is_unique=False))


def _streams(module: "Module", prefix: str = "") -> dict[str, Stream]:
    """Return the random streams that modules hold, such as a Dropout's, by path; no run goes on exactly without."""
    parts = traversal.modules(module, prefix, is_unique=False)
    found = [(path, name, value) for path, part in parts for name, value in part.__dict__.items()]
    return {f"{path}.{name}" if path else name: value for path, name, value in found if isinstance(value, Stream)}


def _extras(module: "Module", prefix: str = "") -> dict[str, Any]:
    """Return the modules that give out a state of their own making, as in PyTorch, by the path of that state."""
    parts = traversal.modules(module, prefix, is_unique=False)
    return {f"{path}.{_EXTRA}" if path else _EXTRA: part for path, part in parts if hasattr(part, "get_extra_state")}


def state_dict(module: "Module", prefix: str = "") -> dict[str, Any]:
    """Return the state of a module: untracked tensors that share its memory, and the words of its random streams.

    What a module returns from a method `get_extra_state` is also there, and given to its `set_extra_state` again.
    """
    prefix = prefix.removesuffix(".")
    state = {path: stop_gradient(value) for path, value in _entries(module, prefix).items()}
    streams = {path: wrap(Tensor, _words(stream)) for path, stream in _streams(module, prefix).items()}
    return state | streams | {path: part.get_extra_state() for path, part in _extras(module, prefix).items()}


def _words(stream: Stream) -> NDArray:
    """Return key and counter in words of 64 bits, the lower word first."""
    return np.array(
        [number >> shift & _WORD for number in (stream.key, stream.counter) for shift in (0, 64)], np.uint64
    )


def _set_words(stream: Stream, words: NDArray) -> None:
    key_low, key_high, counter_low, counter_high = words.tolist()
    stream.key, stream.counter = key_high << 64 | key_low, counter_high << 64 | counter_low


def load_state_dict(module: "Module", state: Any, strict: bool) -> IncompatibleKeys:
    """Write a state into a module, after all of it was checked."""
    name = type(module).__name__
    if not hasattr(state, "items"):
        raise OperandError(f"{name}.load_state_dict: wants a dict of tensors by path, not {type(state).__name__}.")
    streams = _streams(module)
    extras = _extras(module)
    own: dict[str, Any] = _entries(module) | {path: _words(stream) for path, stream in streams.items()}
    missing = [path for path in (*own, *extras) if path not in state]
    unexpected = [path for path in state if path not in own and path not in extras]
    arrays = {path: _array(name, path, value) for path, value in state.items() if path in own}
    shapes = [(path, array.shape, own[path].shape) for path, array in arrays.items() if array.shape != own[path].shape]
    if shapes or (strict and (missing or unexpected)):
        raise ArgumentError(_report(name, missing if strict else [], unexpected if strict else [], shapes))
    for path in streams.keys() & arrays.keys():
        if arrays[path].dtype != np.uint64:
            raise DtypeError(
                f"{name}.load_state_dict: {path!r} has dtype {arrays[path].dtype}; the state of a random stream is "
                "four words of dtype uint64, as state_dict() gives them."
            )
    with no_grad():
        for path, array in arrays.items():
            if path in streams:
                _set_words(streams[path], array)
            else:
                own[path][...] = array.astype(own[path].dtype)
    for path, part in extras.items():
        if path in state:
            part.set_extra_state(state[path])
    return IncompatibleKeys(missing, unexpected)


def _array(name: str, path: str, value: Any) -> NDArray:
    if isinstance(value, Value):
        check_constant(f"{name}.load_state_dict", BY_CALL, value)
        return value.array
    check_unmasked(f"{name}.load_state_dict: {path!r}", value)
    array = np.asarray(value)
    if array.dtype.kind not in "biu" and not (array.dtype.kind == "f" or is_float(array.dtype)):
        raise OperandError(
            f"{name}.load_state_dict: {path!r} is of type {type(value).__name__}; it must be a tensor or an array of "
            "real numbers."
        )
    return array


def _report(name: str, missing: list[str], unexpected: list[Any], shapes: list[tuple[str, Any, Any]]) -> str:
    """Return the message about a state that does not fit, with every key that is the matter."""
    lines = [f"{name}.load_state_dict: the state does not fit the module, and nothing was loaded."]
    if missing:
        lines.append(f"  missing: {', '.join(missing)}")
    if unexpected:
        lines.append(f"  unexpected: {', '.join(map(str, unexpected))}")
    lines += [f"  wrong shape: {path} has shape {given}, the module {own}" for path, given, own in shapes]
    repairs = []
    if shapes:
        repairs.append("Make the module with the sizes of the saved one.")
    if missing or unexpected:
        repairs.append("Rename the keys, or pass strict=False to load those that both have.")
    return "\n".join([*lines, " ".join(repairs)])
