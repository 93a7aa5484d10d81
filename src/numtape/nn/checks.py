"""What layers check about their input and their arguments, so that their errors name both sides and the repair."""

from typing import Any

import numpy as np

from ..core.context import current
from ..core.scopes import casting
from ..counts import is_count
from ..dtypes import float64, is_float
from ..errors import ArgumentError, DtypeError, OperandError


def check_dtype(layer: Any, x: Any, weight: Any) -> None:
    """Raise if the input has another dtype than the weights: layers do not promote, but autocast may cast both.

    It never casts float64, which would run through the layer as it is.
    """
    name = type(layer).__name__
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype):
        raise OperandError(f"{name}: the input is of type {type(x).__name__}; it must be a tensor or an array.")
    is_cast = is_float(dtype) and float64 not in (dtype, weight.dtype) and casting(current().scopes) is not None
    if dtype != weight.dtype and not is_cast:
        if dtype.kind == "c":
            raise DtypeError(
                f"{name}: the input has dtype {dtype}, but numtape computes with real numbers; pass real and imaginary "
                "parts as two inputs."
            )
        repair = f", or model.to(nt.{dtype})" if is_float(dtype) else ""
        raise DtypeError(
            f"{name}: the input has dtype {dtype} and the weights have {weight.dtype}; use "
            f"x.astype(nt.{weight.dtype}){repair}."
        )


def is_integer(given: Any) -> bool:
    """Say whether something is an integer of Python or NumPy, and no bool."""
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def check_count(name: str, what: str, given: Any, least: int = 1) -> int:
    """Return a size, or raise if it is no integer of at least `least`."""
    if not is_count(given, least):
        raise ArgumentError(f"{name}: {what} is {given!r}; it must be an integer of at least {least}.")
    return int(given)


def check_probability(name: str, p: Any) -> float:
    """Return a probability, or raise if it is none."""
    if not (is_integer(p) or isinstance(p, float | np.floating)) or not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: p is {p!r}; a probability lies between 0 and 1.")
    return float(p)


def check_absent(name: str, what: str, given: Any, default: Any) -> None:
    """Raise if an option that stands here for PyTorch's sake only has another value than its default."""
    is_default = given is default or (isinstance(given, bool | int | float | str | np.generic) and given == default)
    if not is_default:
        shown = repr(given) if isinstance(given, bool | int | float | str) else f"of type {type(given).__name__}"
        raise ArgumentError(f"{name}: {what} is {shown}; it is not supported here and must be {default!r}.")


def per_axis(name: str, what: str, given: Any, axes: int, least: int = 1) -> tuple[int, ...]:
    """Return a size for each axis, given as one integer for all or as one for each."""
    sizes = (given,) * axes if is_integer(given) else tuple(given) if isinstance(given, list | tuple) else ()
    if len(sizes) != axes or not all(is_integer(n) and n >= least for n in sizes):
        many = f", or {axes} of them" if axes > 1 else ""
        raise ArgumentError(f"{name}: {what} is {given!r}; it must be an integer of at least {least}{many}.")
    return tuple(map(int, sizes))
