"""From a call to operands and static parameters: defaults, other spellings, and errors that name the arguments."""

import functools
import inspect
import operator
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

import numpy as np

from ..dtypes import FLOAT_DTYPES
from ..errors import ArgumentError, IndexingError, NotDifferentiableError, NumtapeError, OperandError
from .apply import is_tracked
from .op import REQUIRED, Op, kinds_of
from .record import shortened
from .value import Lifted, Value, has_lost_history

P = ParamSpec("P")
R = TypeVar("R")

_SPELLINGS = {"dim": "axis", "keepdim": "keepdims", "dims": "axis", "diagonal": "k"}
_BOOLS = frozenset((bool, np.bool_))
_OPTIONAL = float | None


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
    defaults, kinds = op.defaults, op.kinds
    params = defaults.copy()
    by_position: tuple[str, ...] = ()
    if args:
        if len(args) > op.positional:
            raise _too_many(op, args)
        by_position = tuple(params)[: len(args)]
        params.update(zip(by_position, args, strict=True))
    for name, value in given.items():
        spelled = name
        if name not in params:
            spelled = _SPELLINGS.get(name, name)
            if name in op.arguments:
                raise OperandError(f"{op.name}: argument {name!r} was given twice.")
            if spelled not in params:
                raise _unknown(op.name, name, (*op.arguments, *params, *(("out",) if op.is_elementwise else ())))
        if spelled in by_position or (spelled != name and spelled in given):
            as_name = f", the second time as {name!r}" if spelled != name else ""
            raise OperandError(f"{op.name}: argument {spelled!r} was given twice{as_name}.")
        params[spelled] = value
    if "axis" in params:
        params["axis"] = plain_axis(op.name, params["axis"])
    for name, default in defaults.items():
        value = params[name]
        if value is default:
            if value is REQUIRED:
                raise OperandError(f"{op.name}: argument {name!r} is missing.")
            continue
        if isinstance(value, Value):
            value = params[name] = as_static(op.name, name, value)
        if name in kinds:
            params[name] = as_kind(op.name, name, value, kinds[name])
    return params


def _too_many(op: Op, args: tuple[Any, ...]) -> OperandError:
    """Return the error of a call that gives more by position than an op takes so: NumPy may mean other things by it."""
    names = list(op.defaults)
    in_order = (*op.arguments, *names[: op.positional])
    named = names[op.positional :]
    only_named = f" {', '.join(named)} must be named." if named else ""
    count = len(args) - op.positional
    return OperandError(
        f"{op.name}: {count} argument{'s' if count > 1 else ''} too many by position, which takes "
        f"{', '.join(in_order)}.{only_named}{_hint(args[-1])}"
    )


def as_kind(title: str, name: str, value: Any, kind: Any) -> Any:
    """Return an argument if it is of the kind that it is annotated with: True or False, or a number, which no bool is.

    By position, the same place may be a flag here and something else in NumPy or PyTorch. Numbers are returned as
    Python's: those of NumPy would bring a dtype of their own into what is computed with them, and wrap around in it.
    """
    given = type(value)
    if given is kind or (given is int and kind is float):
        return value
    if kind is bool:
        if getattr(value, "dtype", None) == np.bool_ and not np.ndim(value):
            return bool(value)
        raise OperandError(f"{title}: {name} is {_shown(value)}; it must be True or False.{_hint(value)}")
    if kind == _OPTIONAL:
        return None if value is None else as_kind(title, name, value, float)
    if isinstance(value, Value) and value.shape == () and (isinstance(value, Lifted) or is_tracked(value)):
        return value  # A function made of ops may differentiate by it; an op refuses it.
    number = plain_number(value, kind)
    if number is None:
        wanted = "an integer" if kind is int else "a number"
        raise OperandError(f"{title}: {name} is {_shown(value)}; it must be {wanted}.")
    return number


def plain_number(value: Any, kind: type = float) -> Any:
    """Return a number of any type, or an array or tensor of no axes, as one of Python's; None if it is none.

    With the kind `int` only integers count. Bools never do.
    """
    given = type(value)
    if given is int or (given is float and kind is float):
        return value
    if given in _BOOLS:
        return None
    if isinstance(value, Integral):
        return int(value)
    if getattr(value, "shape", None) == () and isinstance(getattr(value, "dtype", None), np.dtype):
        if value.dtype.kind in "iu":
            return int(value)
        is_float = value.dtype.kind == "f" or value.dtype in FLOAT_DTYPES
        return float(value) if kind is float and is_float else None
    return float(value) if kind is float and isinstance(value, Real) else None


def integers_of(value: Any) -> tuple[int, ...] | None:
    """Return one integer, or a sequence of them, as Python's; None if it is something else."""
    one = plain_number(value, int)
    if one is not None:
        return (one,)
    try:
        found = tuple(plain_number(member, int) for member in value)
    except TypeError:
        return None
    return None if None in found else found


def _shown(value: Any) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def _hint(value: Any) -> str:
    """Return what to do about a dtype where none is taken."""
    is_dtype = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, float | int | np.generic))
    return " For another dtype, use astype()." if is_dtype else ""


def as_static(name: str, argument: str, value: Any) -> Any:
    """Return an untracked tensor as a number or an array that later writes do not change; raise if it is tracked.

    What is no tensor is returned as it is.
    """
    if not isinstance(value, Value):
        return value
    if isinstance(value, Lifted) or is_tracked(value):
        raise _tracked(name, argument)
    return value.array.copy() if value.shape else value.array.item()


def check_untracked(name: str, argument: str, value: Any) -> None:
    """Raise if an argument is a tracked tensor, or if one is in it, for which nobody has a derivative.

    One that a tape would only begin to watch is a constant here.
    """
    if isinstance(value, tuple | list):
        for each in value:
            check_untracked(name, argument, each)
    elif isinstance(value, Lifted) or (
        isinstance(value, Value) and (value.node is not None or has_lost_history(value))
    ):
        raise _tracked(name, argument)


def _tracked(name: str, argument: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{name}: argument {argument!r} has no derivative, but a tracked tensor was given; "
        f"pass {argument}.detach() if its gradient is not wanted."
    )


def plain_axis(name: str, axis: Any) -> Any:
    """Return axes as an int, a tuple of ints or None; an empty list means all axes."""
    if axis is None or type(axis) is int:
        return axis
    try:
        if isinstance(axis, list | tuple):
            return tuple(map(as_integer, axis)) or None
        return as_integer(axis)
    except TypeError as error:
        raise OperandError(f"{name}: axis is {axis!r}; an axis is an integer, or a tuple of integers.") from error


def as_integer(x: Any) -> int:
    """Return what stands for an integer, as axes and lengths do; a bool, which Python would count, does not."""
    if type(x) in _BOOLS:
        raise TypeError(f"{x!r} is a bool")
    return operator.index(x)


def has_spellings(function: Callable[..., Any]) -> bool:
    """Say whether a function has an argument that has other spellings."""
    return not _arguments(function).isdisjoint(_SPELLINGS.values())


def with_spellings(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that is no op also be called with the other spellings, and name its arguments if a call is wrong.

    Ops do the same in `bind_params`.
    """
    names = _arguments(function)
    title = cast(Any, function).__code__.co_name.strip("_")
    kinds = kinds_of(function)
    has_names = bool(kinds) or has_spellings(function)
    code = cast(Any, function).__code__
    # By position: flags, numbers and axes.
    places = [(i, n) for i, n in enumerate(code.co_varnames[: code.co_argcount]) if n in kinds or n == "axis"]
    first = places[0][0] if places else len(names)

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        if has_names and kwargs:
            _respell(title, names, kinds, kwargs)
        if len(args) > first:
            args = _checked(title, places, kinds, args)
        try:
            return function(*args, **kwargs)
        except _BARE as error:
            _explain(title, function, args, kwargs, error)

    return face


def naming_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that is no op name itself, and its arguments, if a call of it is wrong."""
    title = cast(Any, function).__code__.co_name

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except _BARE as error:
            _explain(title, function, args, kwargs, error)

    return face


#: Whose errors are about what a function of ours was given: ours, and NumPy's.
_OWN_FOLDERS = (__file__.rpartition("core")[0], np.__file__.rpartition("__init__")[0])


def _is_of_users(error: BaseException) -> bool:
    """Say whether an error came by way of a user's code, such as the ``__array__`` of an operand."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN_FOLDERS):
            return True
        trace = trace.tb_next
    return False


def _arguments(function: Callable[..., Any]) -> frozenset[str]:
    code = cast(Any, function).__code__
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _respell(title: str, names: frozenset[str], kinds: dict[str, Any], kwargs: dict[str, Any]) -> None:
    """Give arguments their own names, and axes their plain form, and check flags and numbers."""
    for name in [name for name in kwargs if name not in names and _SPELLINGS.get(name) in names]:
        spelled = _SPELLINGS[name]
        if spelled in kwargs:
            raise OperandError(f"{title}: argument {spelled!r} was given twice, the second time as {name!r}.")
        kwargs[spelled] = kwargs.pop(name)
    if "axis" in kwargs and "axis" in names:
        kwargs["axis"] = _plain_if_axis(title, kwargs["axis"], (list, tuple))
    for name in kwargs:
        if name in kinds:
            kwargs[name] = as_kind(title, name, kwargs[name], kinds[name])


def _plain_if_axis(title: str, axis: Any, sequences: tuple[type, ...] = ()) -> Any:
    """Return an axis as an integer of Python; what is none is left to the function, unless it is a bool."""
    if type(axis) is int or axis is None:
        return axis
    if type(axis) in _BOOLS or isinstance(axis, sequences):
        return plain_axis(title, axis)
    number = plain_number(axis, int)
    return axis if number is None else number


def _checked(title: str, places: list[tuple[int, str]], kinds: dict[str, Any], args: Any) -> Any:
    """Return arguments given by position, checked as those given by name are."""
    checked = list(args)
    for place, name in places:
        if place >= len(args):
            break
        value = args[place]
        if name == "axis":
            value = _plain_if_axis(title, value)
        checked[place] = as_kind(title, name, value, kinds[name]) if name in kinds else value
    return tuple(checked)


#: What Python and NumPy raise about arguments without naming the function: a function of ours calls no code of users.
_BARE = (TypeError, AttributeError, ValueError, IndexError, ZeroDivisionError, OverflowError)


def _explain(
    title: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> NoReturn:
    """Raise a better error than a bare one that a function met; others, and those of users' code, as they are."""
    if isinstance(error, NumtapeError) or _is_of_users(error):
        raise error
    raise _named(title, function, args, kwargs, error) from error


def _named(
    title: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> NumtapeError:
    """Return a better error than a bare one: about a call that does not fit the signature, or what the call was."""
    signature = inspect.signature(function)
    names = tuple(signature.parameters)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as misfit:
        for name in kwargs:
            if name not in names:
                return _unknown(title, name, names)
        named = [name for name, x in signature.parameters.items() if x.kind is inspect.Parameter.KEYWORD_ONLY]
        only_named = f" {', '.join(named)} must be named." if named else ""
        return OperandError(f"{title}: {misfit}; the arguments are {', '.join(names)}.{only_named}")
    shown = ", ".join(
        f"{name} of shape {x.shape}" if hasattr(x, "shape") else f"{name}={shortened(repr(x))}"
        for name, x in given.items()
    )
    kind: type[NumtapeError] = OperandError if isinstance(error, TypeError | AttributeError) else ArgumentError
    kind = IndexingError if isinstance(error, IndexError) else kind
    reason = str(error).rstrip(".\n ")
    return kind(f"{title}: {reason}; it was given {shown}. help(nt.{title}) tells what it takes.")


def _unknown(title: str, name: str, known: tuple[str, ...]) -> OperandError:
    return OperandError(f"{title}: there is no argument {name!r}; the arguments are {', '.join(known)}.")
