"""Make tensors of evenly spaced numbers; what these lie between may be tracked."""

from typing import Any

import numpy as np

from ._typing import Dtype, DtypeLike
from .core.apply import is_tracked
from .core.binding import naming_arguments
from .core.value import Lifted, Value
from .creation import finished, finished_on_tape, given_count, given_number
from .devices import check_device
from .dtypes import as_dtype, float64, float_beside, is_float
from .errors import ArgumentError
from .ops.casting import cast
from .tensors import Tensor


@naming_arguments
def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return evenly spaced numbers from `start` (0 if only one bound is given) up to but not including `stop`.

    If `start` or `step` is tracked, so is the result.

    Example:
        >>> nt.arange(3)
        tensor([0, 1, 2])
        >>> nt.arange(0.0, 1.0, 0.5)
        tensor([0. , 0.5])
    """
    check_device("arange", device)
    if stop is None:
        start, stop = 0, start
    bounds = [value_of("arange", what, x) for what, x in (("start", start), ("stop", stop), ("step", step))]
    if bounds[2] == 0:
        raise ArgumentError("arange: step is 0; it must not be.")
    places = np.arange(*bounds)
    is_moving, (first, distance) = numbers_of("arange", start=start, step=step)
    if is_moving:
        made = first + distance * np.arange(len(places))
        return finished_on_tape("arange", made, float_of(dtype, start, step), requires_grad, name)
    is_integer = dtype is None and not any(isinstance(bound, float) for bound in bounds)
    # In float64 first, so that the number of elements does not depend on the dtype.
    chosen = np.int64 if is_integer else float_of(dtype, start, stop, step)
    return finished(places.astype(chosen), requires_grad, name)


@naming_arguments
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, both included.

    If `start` or `stop` is tracked, so is the result.

    Example:
        >>> nt.linspace(0.0, 1.0, 3)
        tensor([0. , 0.5, 1. ])
        >>> nt.grad(lambda stop: nt.linspace(0.0, stop, 3).sum())(1.0)
        1.5
    """
    check_device("linspace", device)
    num = given_count("linspace", "num", num)
    is_moving, (first, last) = numbers_of("linspace", start=start, stop=stop)
    chosen = float_of(dtype, start, stop)
    if is_moving:
        shares = np.linspace(0.0, 1.0, num)
        made = first * (1.0 - shares) + last * shares
        return finished_on_tape("linspace", made, chosen, requires_grad, name)
    return finished(np.linspace(first, last, num).astype(chosen), requires_grad, name)


def numbers_of(caller: str, **given: Any) -> tuple[bool, list[Any]]:
    """Return real numbers that were given as Python's; in float64 on the tape if somebody may differentiate by one.

    Returns:
        Whether they are on the tape, and the numbers.
    """
    is_moving = any(map(_is_moving, given.values()))
    return is_moving, [(_wide if is_moving else value_of)(caller, what, number) for what, number in given.items()]


def _is_moving(number: Any) -> bool:
    if not isinstance(number, Value):
        return False
    return isinstance(number, Lifted) or (is_float(number.dtype) and is_tracked(number))


def _wide(caller: str, what: str, number: Any) -> Any:
    if isinstance(number, Lifted) and number.shape == ():
        return cast(number, float64)
    value = value_of(caller, what, number)
    return cast(number, float64) if isinstance(number, Value) else float(value)


def value_of(caller: str, what: str, number: Any) -> Any:
    """Return a real number, tracked or not, as one of Python's, or raise if it is none."""
    is_plain = isinstance(number, Value) and not isinstance(number, Lifted)
    return given_number(caller, what, number.array if is_plain else number)


def float_of(dtype: DtypeLike, *numbers: Any) -> Dtype:
    """Return a dtype that was given, or else that of float tensors among numbers, or else the default one."""
    return float_beside(number for number in numbers if isinstance(number, Value)) if dtype is None else as_dtype(dtype)
