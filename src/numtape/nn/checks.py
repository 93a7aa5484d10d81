"""What layers check about their input and their arguments, so that their errors name both sides and the repair."""

from typing import Any

from ..dtypes import is_float
from ..errors import ArgumentError, DtypeError, OperandError


def check_dtype(layer: Any, x: Any, weight: Any) -> None:
    """Raise if the input has another dtype than the weights: layers do not promote."""
    name = type(layer).__name__
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        raise OperandError(f"{name}: the input is of type {type(x).__name__}; it must be a tensor or an array.")
    if dtype != weight.dtype:
        repair = f", or model.to(nt.{dtype})" if is_float(dtype) else ""
        raise DtypeError(
            f"{name}: the input has dtype {dtype} and the weights have {weight.dtype}; use "
            f"x.astype(nt.{weight.dtype}){repair}."
        )


def check_count(name: str, what: str, given: Any, least: int = 1) -> int:
    """Return a size, or raise if it is no integer of at least `least`."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ArgumentError(f"{name}: {what} is {given!r}; it must be an integer of at least {least}.")
    return given


def check_probability(name: str, p: Any) -> float:
    """Return a probability, or raise if it is none."""
    if not isinstance(p, int | float) or isinstance(p, bool) or not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: p is {p!r}; a probability lies between 0 and 1.")
    return float(p)


def per_axis(name: str, what: str, given: Any, axes: int, least: int = 1) -> tuple[int, ...]:
    """Return a size for each axis, given as one integer for all or as one for each."""
    sizes = (given,) * axes if isinstance(given, int) else tuple(given) if isinstance(given, list | tuple) else ()
    if len(sizes) != axes or not all(isinstance(n, int) and not isinstance(n, bool) and n >= least for n in sizes):
        many = f", or {axes} of them" if axes > 1 else ""
        raise ArgumentError(f"{name}: {what} is {given!r}; it must be an integer of at least {least}{many}.")
    return sizes
