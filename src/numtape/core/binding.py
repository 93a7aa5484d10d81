"""From a call to operands and static parameters: defaults, other spellings, and errors that name the arguments."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from ..errors import NotDifferentiableError, NumtapeError, OperandError
from .apply import is_tracked
from .op import REQUIRED, Op
from .value import Lifted, Value

P = ParamSpec("P")
R = TypeVar("R")

_AXIS_SPELLINGS = {"dim": "axis", "keepdim": "keepdims", "dims": "axis"}


def fill_operands(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """Take operands given by keyword out of `params`, and the defaults of those left out."""
    filled = list(operands)
    required = len(op.arguments) - len(op.operand_defaults)
    for position in range(len(operands), len(op.arguments)):
        name = op.arguments[position]
        if name in params:
            filled.append(params.pop(name))
        elif position >= required:
            filled.append(op.operand_defaults[position - required])
        else:
            raise OperandError(f"{op.name}: operand {name!r} is missing; the operands are {', '.join(op.arguments)}.")
    return tuple(filled)


def take_out(op: Op, params: dict[str, Any]) -> Any:
    """Take `out` out of what was given by keyword, if the op has it: every elementwise one does."""
    return params.pop("out", None) if op.is_elementwise else None


def bind_params(op: Op, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the static parameters, by name, complete with defaults. The one place that knows other spellings."""
    params = op.defaults.copy()
    if args:
        if len(args) > len(params):
            raise OperandError(f"{op.name}: {len(args) - len(params)} arguments too many.")
        params.update(zip(params, args, strict=False))
    for name, value in given.items():
        if name not in params:
            spelled = _AXIS_SPELLINGS.get(name, name)
            if spelled not in params:
                raise _unknown(op.name, name, (*op.arguments, *params, *(("out",) if op.is_elementwise else ())))
            if spelled in given:
                raise OperandError(f"{op.name}: argument {spelled!r} was given twice, the second time as {name!r}.")
            name = spelled
        params[name] = value
    if "axis" in params:
        params["axis"] = plain_axis(op.name, params["axis"])
    for name, value in params.items():
        if value is REQUIRED:
            raise OperandError(f"{op.name}: argument {name!r} is missing.")
        if isinstance(value, Value):
            params[name] = as_static(op.name, name, value)
    return params


def as_static(name: str, argument: str, value: Any) -> Any:
    """Return an untracked tensor as a number or an array that later writes do not change; raise if it is tracked.

    What is no tensor is returned as it is.
    """
    if not isinstance(value, Value):
        return value
    if isinstance(value, Lifted) or is_tracked(value):
        raise NotDifferentiableError(
            f"{name}: argument {argument!r} has no derivative, but a tracked tensor was given; "
            f"pass {argument}.detach() if its gradient is not wanted."
        )
    return value.array.copy() if value.shape else value.array.item()


def plain_axis(name: str, axis: Any) -> Any:
    """Return axes as an int, a tuple of ints or None; an empty list means all axes."""
    if axis is None or type(axis) is int:
        return axis
    try:
        if isinstance(axis, list | tuple):
            return tuple(map(operator.index, axis)) or None
        return operator.index(axis)
    except TypeError as error:
        raise OperandError(f"{name}: axis is {axis!r}; an axis is an integer, or a tuple of integers.") from error


def takes_axis(function: Callable[..., Any]) -> bool:
    """Say whether a function has an argument that has other spellings."""
    return not _arguments(function).isdisjoint(_AXIS_SPELLINGS.values())


def with_spellings(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that is no op also be called with the other spellings, and name its arguments if a call is wrong.

    Ops do the same in `bind_params`.
    """
    names = _arguments(function)
    title = cast(Any, function).__code__.co_name.strip("_")
    has_spellings = takes_axis(function)

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        if has_spellings and kwargs:
            _respell(title, names, kwargs)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, NumtapeError):
                raise
            _explain(title, function, args, kwargs, error)

    return face


def _arguments(function: Callable[..., Any]) -> frozenset[str]:
    code = cast(Any, function).__code__
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _respell(title: str, names: frozenset[str], kwargs: dict[str, Any]) -> None:
    """Give arguments their own names, and axes their plain form."""
    for name in [name for name in kwargs if name in _AXIS_SPELLINGS and name not in names]:
        spelled = _AXIS_SPELLINGS[name]
        if spelled in kwargs:
            raise OperandError(f"{title}: argument {spelled!r} was given twice, the second time as {name!r}.")
        kwargs[spelled] = kwargs.pop(name)
    if isinstance(kwargs.get("axis"), list | tuple):
        kwargs["axis"] = plain_axis(title, kwargs["axis"])


def _explain(
    title: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError
) -> NoReturn:
    """Raise a better error than Python's if a call does not fit a function's signature, else the one it met inside."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as misfit:
        names = tuple(signature.parameters)
        for name in kwargs:
            if name not in names:
                raise _unknown(title, name, names) from None
        raise OperandError(f"{title}: {misfit}; the arguments are {', '.join(names)}.") from None
    raise error


def _unknown(title: str, name: str, known: tuple[str, ...]) -> OperandError:
    return OperandError(f"{title}: there is no argument {name!r}; the arguments are {', '.join(known)}.")
