"""The state of an optimizer as plain data: parameters become numbers, so that it can be saved and loaded elsewhere."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.value import Value, wrap
from ..dtypes import check_unmasked, is_float
from ..errors import ArgumentError, DtypeError, ShapeError
from .parameters import COMMON, check_option
from .rule import Group, State

#: What a group may have, or not, whatever optimizer it is of; older versions of PyTorch do not save the last.
_OPTIONAL = {*COMMON, "decoupled_weight_decay"}


def save_state(groups: list[Group], states: dict[Any, State]) -> dict[str, Any]:
    """Return groups and states with the position of a parameter in place of itself; arrays are copied."""
    params = [param for group in groups for param in group["params"]] or list(states)
    numbers = {param: number for number, param in enumerate(params)}
    return {
        "state": {
            numbers[param]: {name: _copied(value) for name, value in state.items()}
            for param, state in states.items()
            if param in numbers
        },
        "param_groups": [{**group, "params": [numbers[param] for param in group["params"]]} for group in groups],
    }


def load_state(
    title: str, groups: list[Group], saved: dict[str, Any], init: Callable[[Any, Group], State]
) -> tuple[list[Group], dict[Any, State]]:
    """Return groups and states of these parameters from what `save_state` returned, checked against `init`."""
    title = f"{title}.load_state_dict"
    try:
        saved_groups, saved_states = saved["param_groups"], saved["state"]
    except (TypeError, KeyError) as error:
        raise ArgumentError(f'{title}: the state of an optimizer is a dict with "state" and "param_groups".') from error
    is_right = isinstance(saved_groups, list | tuple) and isinstance(saved_states, dict)
    if not is_right or not all(isinstance(group, dict) and "params" in group for group in saved_groups):
        raise ArgumentError(
            f'{title}: "state" is to be a dict by parameters, and "param_groups" a list of dicts with "params".'
        )
    counts = [len(group["params"]) for group in groups]
    saved_counts = [len(group["params"]) for group in saved_groups]
    if counts != saved_counts:
        raise ArgumentError(
            f"{title}: the optimizer has groups of {counts} parameters, and the saved one of {saved_counts}; make it "
            "with the same parameters in the same groups."
        )
    for group, other in zip(groups, saved_groups, strict=True):
        missing, strange = (sorted(map(str, set(a) - set(b) - _OPTIONAL)) for a, b in ((group, other), (other, group)))
        if missing and strange:
            raise ArgumentError(
                f"{title}: the state is of another optimizer: it has {', '.join(strange)}, and not "
                f"{', '.join(missing)}."
            )
    if saved_states and not any(counts):
        raise ArgumentError(
            f"{title}: the optimizer has no parameters of its own to load states for; make it with them."
        )
    loaded = [
        {
            **group,
            **{name: check_option(title, name, _option(x)) for name, x in other.items() if name != "params"},
            "params": group["params"],
        }
        for group, other in zip(groups, saved_groups, strict=True)
    ]
    owners = {
        str(number): (param, group)
        for group, other in zip(loaded, saved_groups, strict=True)
        for number, param in zip(other["params"], group["params"], strict=True)
    }
    states: dict[Any, State] = {}
    for number, state in saved_states.items():
        if str(number) not in owners:
            raise ArgumentError(f"{title}: there is a state for parameter {number}, but no such parameter.")
        param, group = owners[str(number)]
        fresh = init(param, group)
        _check_names(f"{title}: the state of parameter {number}", state, fresh)
        # PyTorch's SGD counts no steps, and has a state from its first step on.
        counted = {"step": 1} if "step" in fresh and "step" not in state else {}
        states[param] = counted | {
            name: _restored(f"{title}: state {name!r} of parameter {number}", value, fresh.get(name), param)
            for name, value in state.items()
        }
    return loaded, states


def _check_names(what: str, state: Any, fresh: State) -> None:
    """Raise if a saved state lacks what the rule reads, or has what it does not know."""
    if not isinstance(state, dict):
        raise ArgumentError(f"{what} is {type(state).__name__}; it must be a dict.")
    # A number that is missing starts anew.
    missing = sorted(name for name, value in fresh.items() if name not in state and isinstance(value, Value))
    unexpected = sorted(map(str, set(state) - set(fresh)))
    if missing and unexpected:
        raise ArgumentError(f"{what} has {', '.join(unexpected)}, and not {', '.join(missing)}.")
    if missing:
        raise ArgumentError(f"{what} lacks {', '.join(missing)}.")
    for name, value in state.items():
        if isinstance(fresh.get(name), float | int):
            _check_number(what, name, value)


def _check_number(what: str, name: str, value: Any) -> None:
    """Raise if a saved part of a state is not one number, or is a count of steps that nobody can have taken."""
    array = _array(value) if hasattr(value, "__array__") else None
    number = value if array is None or array.size != 1 else array.item()
    if not isinstance(number, float | int):
        raise ArgumentError(f"{what} has {value!r} for {name}; it must be a number.")
    if name == "step" and not 0 <= number < math.inf:
        raise ArgumentError(f"{what} has {number!r} for {name}; it must be a finite number from 0 on.")


def _option(value: Any) -> Any:
    """Return an option as it is used here: formats turn tuples to lists, and PyTorch may keep a rate as a tensor."""
    if isinstance(value, list | tuple):
        return tuple(map(_option, value))
    return _array(value).item() if hasattr(value, "__array__") else value


def _array(value: Any) -> NDArray:
    """Return a copy of a tensor, ours or of another library, or of an array."""
    try:
        return np.asarray(value.array if isinstance(value, Value) else value).copy()
    except TypeError:  # PyTorch's bfloat16, which NumPy does not know.
        return np.asarray(value.float()).copy()


def _copied(value: Any) -> Any:
    return wrap(value.plain, value.array.copy()) if isinstance(value, Value) else value


def _restored(title: str, value: Any, fresh: Any, param: Any) -> Any:
    """Return a saved part of a state in the form of a fresh one, if there is one of its name."""
    if not hasattr(value, "__array__"):
        if isinstance(fresh, Value):
            raise ArgumentError(f"{title} is of type {type(value).__name__}; it must be a tensor or an array.")
        return value
    check_unmasked(title, value)
    array = _array(value)
    if fresh is None:
        return wrap(param.plain, array)
    if not isinstance(fresh, Value):
        return array.item()  # PyTorch keeps its counts as tensors.
    if array.shape != fresh.shape:
        raise ShapeError(f"{title} has shape {array.shape}, and here it has {fresh.shape}.")
    if array.dtype.kind not in "biuf" and not is_float(array.dtype):
        raise DtypeError(f"{title} has dtype {array.dtype}; it must hold real numbers.")
    return wrap(param.plain, array.astype(fresh.dtype, copy=False))
