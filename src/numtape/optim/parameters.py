"""What optimizers are given: parameters in every form, groups of them, options and gradients, all checked."""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from .._typing import NDArray
from ..core.binding import check_untracked
from ..core.gradients import check_constant, is_leaf
from ..core.value import Value
from ..dtypes import FLOAT_DTYPES, check_unmasked, widened
from ..errors import ArgumentError, DtypeError, GradientError, OperandError, ShapeError
from ..tensors import Tensor

#: Tensors, pairs of names and tensors, groups as dicts with "params", a model with parameters(), or one tensor; a
#: number is the learning rate of an optimizer that gets its parameters with each step.
Parameters: TypeAlias = Any

#: For options of these names: what they must be, and the bounds, of which the upper one may be excluded.
_BOUNDS: dict[str, tuple[str, float, float]] = {
    "lr": ("a finite number from 0 on", 0.0, math.inf),
    "betas": ("two numbers from 0 up to, but not including, 1", 0.0, 1.0),
    "rho": ("a number from 0 up to, but not including, 1", 0.0, 1.0),
    "alpha": ("a number from 0 up to, but not including, 1", 0.0, 1.0),
    "momentum": ("a finite number from 0 on", 0.0, math.inf),
    "weight_decay": ("a finite number from 0 on", 0.0, math.inf),
    "eps": ("a finite number from 0 on", 0.0, math.inf),
    "lr_decay": ("a finite number from 0 on", 0.0, math.inf),
    "momentum_decay": ("a finite number from 0 on", 0.0, math.inf),
    "initial_accumulator_value": ("a finite number from 0 on", 0.0, math.inf),
}


#: By these PyTorch chooses among implementations of the same step; there is one here.
_WITHOUT_EFFECT = ("foreach", "fused", "capturable", "differentiable")
#: What a group of any optimizer may have besides its options: PyTorch's settings, the mark of schedules, and labels.
COMMON = ("maximize", *_WITHOUT_EFFECT, "initial_lr", "name", "param_names")
#: What options are called elsewhere, too far from their names here to be found by spelling.
_ELSEWHERE = {"learning_rate": "lr", "rate": "lr", "epsilon": "eps", "beta1": "betas", "beta2": "betas"}


def is_number(x: Any) -> bool:
    """Say whether something is a plain real number."""
    return isinstance(x, Real) and not isinstance(x, bool)


def check_option(title: str, name: str, value: Any) -> Any:
    """Return an option as plain Python numbers; raise if it has a name that is known and a value that is not right."""
    check_untracked(title, name, value)  # An update is not recorded.
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray | Value) and value.shape == ()):
        value = value.item()  # type: ignore[union-attr]
    if name in _BOUNDS:
        what, low, high = _BOUNDS[name]
        numbers = value if name == "betas" else (value,)
        count = 2 if name == "betas" else 1
        is_right = isinstance(numbers, tuple) and len(numbers) == count
        if not is_right or not all(is_number(x) and low <= x < high for x in numbers):
            raise ArgumentError(f"{title}: {name} is {value!r}; it must be {what}.")
    return value


def check_names(title: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise if a group has almost an option, or one of other optimizers; besides, it may carry what it likes."""
    options = sorted(known)
    for name in given:
        if name in options or name in COMMON:
            continue
        near = [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in options else get_close_matches(str(name), options, 1, 0.8)
        if near or name in _BOUNDS:
            repair = f"is it {near[0]!r}?" if near else f"the options are {', '.join(options)}."
            raise ArgumentError(f"{title}: a group has an option {name!r}, which no rule reads; {repair}")


def accepted(title: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what an optimizer takes besides its options: whether to ascend. What PyTorch sets its kernels by is left.

    Raises:
        OperandError: for any other name.
    """
    unknown = [name for name in settings if name not in ("maximize", *_WITHOUT_EFFECT)]
    if unknown:
        raise OperandError(f"{title}: got an unexpected keyword argument {unknown[0]!r}.")
    return {"maximize": bool(settings.get("maximize"))}


def rate_first(init: Callable[..., None]) -> Callable[..., None]:
    """Let an optimizer be made without parameters, by numbers alone: ``Adam(0.001, 0.9, 0.999, 1e-8)``."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and is_number(args[0]):
            kwargs |= _by_name(type(self).__name__, signature, args, kwargs)
            args = (None,)
        init(self, *args, **kwargs)

    return made


def _by_name(title: str, signature: inspect.Signature, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Give numbers the names of the options in order; an option that is a tuple takes as many as it has."""
    found: dict[str, Any] = {}
    rest = list(args)
    for name, parameter in list(signature.parameters.items())[2:]:
        if not rest or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            break
        count = len(parameter.default) if isinstance(parameter.default, tuple) else 1
        if count > 1 and not isinstance(rest[0], tuple):
            if len(rest) < count:
                raise ArgumentError(f"{title}: {name} takes {count} numbers, and only {len(rest)} are left.")
            found[name], rest = tuple(rest[:count]), rest[count:]
        else:
            found[name] = rest.pop(0)
    twice = sorted(set(found) & set(given))
    if rest or twice:
        what = f"{len(rest)} numbers too many" if rest else f"{twice[0]} is given twice"
        order = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        raise OperandError(f"{title}: {what}; the order is {', '.join(order[2:])}.")
    return found


def tensors_of(title: str, params: Parameters) -> list[Tensor]:
    """Return parameters as a list of float leaves, each of them once."""
    return list(names_of(title, params))


def names_of(title: str, params: Parameters) -> dict[Tensor, str | None]:
    """Return parameters, float leaves, each of them once, with the names that they are given with."""
    if isinstance(params, Value):
        params = [params]
    elif callable(getattr(params, "parameters", None)):
        params = params.named_parameters() if hasattr(params, "named_parameters") else params.parameters()
    elif isinstance(params, Mapping):
        params = params.items()
    if not isinstance(params, Iterable):
        raise OperandError(f"{title}: parameters are an iterable of tensors, not {type(params).__name__}.")
    found: dict[Tensor, str | None] = {}
    for place, each in enumerate(params):
        name, param = each if isinstance(each, tuple) and len(each) == 2 else (None, each)
        label = f"parameter {place}" if name is None else f"parameter {name!r}"
        check_parameter(title, label, param)
        if param in found:
            raise ArgumentError(f"{title}: {label} is given twice; each parameter belongs to one group, once.")
        found[param] = None if name is None else str(name)
    return found


def check_parameter(title: str, label: str, param: Any) -> None:
    """Raise if something cannot be optimized."""
    if not isinstance(param, Tensor):
        raise OperandError(f"{title}: {label} is of type {type(param).__name__}; parameters are tensors.")
    if param.dtype not in FLOAT_DTYPES:
        raise DtypeError(f"{title}: {label} has dtype {param.dtype}; only float tensors have gradients to follow.")
    if not is_leaf(param):
        raise GradientError(
            f"{title}: {label} is not a leaf: it was computed from other tensors. Optimize those, or detach() it and "
            "set requires_grad=True."
        )


def groups_of(title: str, params: Parameters) -> list[dict[str, Any]]:
    """Return parameters, or groups of them given as dicts, as groups."""
    if isinstance(params, Mapping) and "params" in params:
        return [dict(params)]
    if isinstance(params, Value | Mapping) or callable(getattr(params, "parameters", None)):
        return [{"params": params}]
    if not isinstance(params, Iterable):
        tensors_of(title, params)
    listed = list(params)
    if listed and all(isinstance(each, Mapping) for each in listed):
        return [dict(each) for each in listed]
    return [{"params": listed}]


def gradient_of(title: str, param: Tensor, gradient: Any, written: set[int]) -> NDArray:
    """Return a gradient that was given for a parameter as an array of its shape; a copy if its memory is `written`."""
    check_unmasked(f"{title}: the gradient of {name_of(param)}", gradient)
    check_constant(title, "compute new parameters, as p - lr * g, and use these", gradient)
    array = gradient.array if isinstance(gradient, Value) else np.asarray(gradient)
    if array.dtype not in FLOAT_DTYPES and array.dtype.kind not in "biu":
        raise OperandError(f"{title}: a gradient is a tensor, an array or None, not {type(gradient).__name__}.")
    if array.shape != param.shape:
        raise ShapeError(
            f"{title}: {name_of(param)} has shape {param.shape} and its gradient {array.shape}; they must be equal."
        )
    return array.astype(widened(param.dtype), copy=owner_of(array) in written)


def owner_of(array: NDArray) -> int:
    """Return the identity of the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


def name_of(param: Tensor) -> str:
    """Return what errors call a parameter."""
    return f"parameter {param.name!r}" if param.name else "the parameter"
