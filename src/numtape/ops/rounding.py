"""Rounding, whole quotients and remainders: constant between jumps, so that the derivative of what is cut off is 0."""

from typing import Any

import numpy as np

from .._typing import Array
from ..core.declare import elementwise
from ..core.op import ZERO
from ..errors import OperandError
from .samples import PAIRS, SHAPES, does_not_broadcast, rejected, sample, values


def _between(x: Array, unit: float = 1.0) -> Array:
    """Move values at least a fifth of a unit away from the multiples of half a unit, where roundings jump."""
    half = 0.5 * unit
    return (np.floor(x / half) + 0.4 + 0.2 * np.sin(x)) * half


def _rounded_samples(*more: Any) -> list[Any]:
    return [*(sample(_between(values(*shape, low=-3, high=3))) for shape in SHAPES), *more]


def _quotient_samples(name: str, *more: Any) -> list[Any]:
    """Return samples of two operands whose quotient lies between integers, both signs of each."""
    made = [*more, does_not_broadcast(name)]
    for s, t in PAIRS:
        b = values(*t, low=0.7, high=2.0, seed=1) * np.where(np.arange(int(np.prod(t))).reshape(t) % 2, -1.0, 1.0)
        whole = np.floor(values(*s, low=-4.0, high=4.0))
        # An operand shared by several quotients is drawn again until all of them are between integers.
        for seed in range(200):
            a = whole + values(*s, low=0.0, high=1.0, seed=seed)
            cut = np.asarray(a / b % 1.0)
            if np.all((cut > 0.05) & (cut < 0.95)):
                made.append(sample(a, b))
                break
    return made


_KINK = "where it jumps; the derivative is taken as 0"
_JUMPS = sample(np.array([-2.5, -1.0, -0.5, 0.0, 0.5, 1.5, 2.5]), skip_derivatives="at the jumps")
_INTEGERS = sample(np.array([-1, 0, 3]))


@elementwise(
    np.floor,
    partials={"x": ZERO},
    kinks=_KINK,
    numpy=np.floor,
    samples=lambda: _rounded_samples(_JUMPS, _INTEGERS),
)
def floor(x: Array, /) -> Array:
    """Return the largest integer not above x, elementwise. The derivative is 0.

    Example:
        >>> nt.floor(np.array([-1.5, 2.5]))
        array([-2.,  2.])
    """


@elementwise(
    np.ceil,
    partials={"x": ZERO},
    kinks=_KINK,
    numpy=np.ceil,
    samples=lambda: _rounded_samples(_JUMPS, _INTEGERS),
)
def ceil(x: Array, /) -> Array:
    """Return the smallest integer not below x, elementwise. The derivative is 0.

    Example:
        >>> nt.ceil(np.array([-1.5, 2.5]))
        array([-1.,  3.])
    """


@elementwise(
    np.trunc,
    partials={"x": ZERO},
    kinks=_KINK,
    numpy=(np.trunc, getattr(np, "fix", np.trunc)),  # NumPy 2.5 deprecates the latter.
    also=("fix",),
    samples=lambda: _rounded_samples(_JUMPS, _INTEGERS),
)
def trunc(x: Array, /) -> Array:
    """Return x without its digits after the point, elementwise. The derivative is 0.

    Example:
        >>> nt.trunc(np.array([-1.5, 2.5]))
        array([-1.,  2.])
    """


@elementwise(
    partials={"x": ZERO},
    kinks=_KINK,
    numpy=(np.round, np.around),
    also=("around",),
    samples=lambda: _rounded_samples(
        _JUMPS,
        _INTEGERS,
        sample(_between(values(5), 0.1), decimals=1),
        sample(np.round(values(2, 3), 2) + 0.001, decimals=2),
        sample(_between(values(4, low=-50, high=50), 10.0), decimals=-1),
        sample(np.array([123, -456]), decimals=-2),
        rejected(OperandError, "round: decimals is 1.5; it must be an integer.", values(2), decimals=1.5),
    ),
)
def round(x: Array, /, decimals: int = 0) -> Array:
    """Return x rounded to `decimals` digits after the point, halves to even, elementwise. The derivative is 0.

    Args:
        x: any shape.
        decimals: how many digits to keep; a negative number rounds to tens, hundreds and so on.

    Example:
        >>> nt.round(np.array([0.5, 1.5, 2.567]), decimals=1)
        array([0.5, 1.5, 2.6])
    """
    return np.round(x, decimals)


@elementwise(
    np.rint,
    partials={"x": ZERO},
    kinks=_KINK,
    to_float=True,
    numpy=np.rint,
    samples=lambda: _rounded_samples(_JUMPS, _INTEGERS),
)
def rint(x: Array, /) -> Array:
    """Return the nearest integer as a float, halves to even, elementwise. The derivative is 0.

    Example:
        >>> nt.rint(np.array([0.5, 1.5, 2.6]))
        array([0., 2., 3.])
    """


@elementwise(
    np.floor_divide,
    partials={"a": ZERO, "b": ZERO},
    kinks="where a / b is an integer; the derivative is taken as 0",
    numpy=np.floor_divide,
    domain="b != 0",
    samples=lambda: _quotient_samples(
        "floor_divide", sample(np.array([-7, 7]), 2), sample(np.array([-6.0, 6.0]), 2.0, skip_derivatives="jumps")
    ),
)
def floor_divide(a: Array, b: Array, /) -> Array:
    """Return the largest integer not above ``a / b``, elementwise. The derivative is 0.

    Example:
        >>> nt.floor_divide(np.array([-7.0, 7.0]), 2.0)
        array([-4.,  3.])
    """


@elementwise(
    np.remainder,
    # a % b = a - b * (a // b)
    partials={"a": lambda g: g, "b": lambda g, a, b: -g * floor_divide(a, b)},
    kinks="where a / b is an integer; the derivatives are those from above",
    numpy=np.remainder,
    also=("mod",),
    domain="b != 0",
    samples=lambda: _quotient_samples(
        "remainder", sample(np.array([-7, 7]), 2), sample(np.array([-6.0, 6.0]), 2.0, skip_derivatives="jumps")
    ),
)
def remainder(a: Array, b: Array, /) -> Array:
    """Return what `floor_divide` leaves over, ``a - b * (a // b)``, with the sign of b, elementwise.

    Example:
        >>> nt.remainder(np.array([-7.0, 7.0]), 4.0)
        array([1., 3.])
    """


@elementwise(
    np.fmod,
    # The quotient that was cut off, from what is left: trunc(a / b) would be wrong where a / b is rounded up.
    partials={"a": lambda g: g, "b": lambda g, a, b, out: -g * rint((a - out) / b)},
    kinks="where a / b is an integer; the derivatives are those from the side away from 0",
    numpy=np.fmod,
    domain="b != 0",
    samples=lambda: _quotient_samples(
        "fmod", sample(np.array([-7, 7]), 2), sample(np.array([-6.0, 6.0]), 2.0, skip_derivatives="jumps")
    ),
)
def fmod(a: Array, b: Array, /) -> Array:
    """Return ``a - b * trunc(a / b)``, the remainder with the sign of a, elementwise.

    Example:
        >>> nt.fmod(np.array([-7.0, 7.0]), 4.0)
        array([-3.,  3.])
    """
