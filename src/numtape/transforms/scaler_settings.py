"""What loss scalers accept for their settings."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import ArgumentError

#: The smallest number that float32 holds in full precision.
_SMALLEST = float(np.finfo(np.float32).tiny)


def as_scale(name: str, value: Any) -> float:
    """Return a scale that float32 can hold in full precision, as it can the inverse."""
    if not _is_number(value) or not _SMALLEST <= value <= 1.0 / _SMALLEST:
        raise ArgumentError(
            f"LossScaler: {name} is {value!r}; it must be a number from 2**-126 to 2**126, so that float32 can hold it "
            "and its inverse."
        )
    return float(value)


def check_bounds(name: str, scale: float, least: float, most: float) -> None:
    """Raise for a scale that does not lie between its bounds."""
    if not least <= scale <= most:
        raise ArgumentError(
            f"LossScaler: {name} is {scale!r}; it must lie between min_scale ({least!r}) and max_scale ({most!r})."
        )


def as_count(name: str, value: Any, least: int = 1) -> int:
    """Return a number of steps, at least 1 or 0."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        kind = "a positive integer" if least else "an integer that is not negative"
        raise ArgumentError(f"LossScaler: {name} is {value!r}; it must be {kind}.")
    return int(value)


def as_growth(value: Any) -> float:
    """Return a factor above 1."""
    if not _is_number(value) or not 1.0 < value < math.inf:
        raise ArgumentError(f"LossScaler: growth_factor is {value!r}; it must be a number above 1.")
    return float(value)


def as_backoff(value: Any) -> float:
    """Return a factor between 0 and 1."""
    if not _is_number(value) or not 0.0 < value < 1.0:
        raise ArgumentError(f"LossScaler: backoff_factor is {value!r}; it must be a number between 0 and 1.")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
