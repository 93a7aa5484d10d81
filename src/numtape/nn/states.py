"""A module's state by path: give it out, and take it in, all of it or nothing."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..core.value import Value
from ..errors import ArgumentError, OperandError
from ..grad_mode import no_grad
from ..ops import stop_gradient
from ..tensors import Tensor
from . import traversal

if TYPE_CHECKING:
    from .module import Module


class IncompatibleKeys(NamedTuple):
    """The keys that a call of `load_state_dict` which is not strict left alone."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _entries(module: "Module", prefix: str = "") -> dict[str, Any]:
    """Return parameters and persistent buffers by path; a shared one stands under each of its paths."""
    return dict(traversal.members(module, (traversal.Kind.PARAMETER, traversal.Kind.BUFFER), prefix, is_unique=False))


def state_dict(module: "Module", prefix: str = "") -> dict[str, Tensor]:
    """Return the state of a module: untracked tensors that share its memory."""
    return {path: stop_gradient(value) for path, value in _entries(module, prefix.removesuffix(".")).items()}


def load_state_dict(module: "Module", state: Any, strict: bool) -> IncompatibleKeys:
    """Write a state into a module, after all of it was checked."""
    name = type(module).__name__
    if not hasattr(state, "items"):
        raise OperandError(f"{name}.load_state_dict: wants a dict of tensors by path, not {type(state).__name__}.")
    own = _entries(module)
    missing = [path for path in own if path not in state]
    unexpected = [path for path in state if path not in own]
    arrays = {path: _array(name, path, value) for path, value in state.items() if path in own}
    shapes = [(path, array.shape, own[path].shape) for path, array in arrays.items() if array.shape != own[path].shape]
    if shapes or (strict and (missing or unexpected)):
        raise ArgumentError(_report(name, missing if strict else [], unexpected if strict else [], shapes))
    with no_grad():
        for path, array in arrays.items():
            own[path][...] = array.astype(own[path].dtype)
    return IncompatibleKeys(missing, unexpected)


def _array(name: str, path: str, value: Any) -> NDArray:
    if isinstance(value, Value):
        return value.array
    array = np.asarray(value)
    if array.dtype.kind not in "biufV":
        raise OperandError(
            f"{name}.load_state_dict: {path!r} is of type {type(value).__name__}; it must be a tensor or an array of "
            "real numbers."
        )
    return array


def _report(name: str, missing: list[str], unexpected: list[str], shapes: list[tuple[str, Any, Any]]) -> str:
    """Return the message about a state that does not fit, with every key that is the matter."""
    lines = [f"{name}.load_state_dict: the state does not fit the module, and nothing was loaded."]
    if missing:
        lines.append(f"  missing: {', '.join(missing)}")
    if unexpected:
        lines.append(f"  unexpected: {', '.join(unexpected)}")
    lines += [f"  wrong shape: {path} has shape {given}, the module {own}" for path, given, own in shapes]
    repairs = []
    if shapes:
        repairs.append("Make the module with the sizes of the saved one.")
    if missing or unexpected:
        repairs.append("Rename the keys, or pass strict=False to load those that both have.")
    return "\n".join([*lines, " ".join(repairs)])
