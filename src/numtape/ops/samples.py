"""Samples of ops: inputs on which the test matrix checks values, derivatives and error messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray


class Sample(NamedTuple):
    """Operands and static parameters on which an op is right and, in its float operands, differentiable."""

    args: tuple[Any, ...]
    params: dict[str, Any]
    #: Why derivatives are not checked here (a kink, a singular matrix); empty if they are.
    skip_derivatives: str = ""


class Rejected(NamedTuple):
    """Operands and parameters that must raise `error` with exactly `message`."""

    args: tuple[Any, ...]
    error: type[Exception]
    message: str
    params: dict[str, Any]


def sample(*args: Any, skip_derivatives: str = "", **params: Any) -> Sample:
    """Return a `Sample` of operands and parameters."""
    return Sample(args, params, skip_derivatives)


def rejected(error: type[Exception], message: str, *args: Any, **params: Any) -> Rejected:
    """Return a `Rejected` of operands and parameters."""
    return Rejected(args, error, message, params)


def values(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0, avoid: Sequence[float] = ()) -> NDArray:
    """Return float64 values between `low` and `high`, the same for the same arguments, none near a kink in `avoid`."""
    rng = np.random.default_rng([seed, *shape])
    drawn = np.asarray(rng.uniform(low, high, shape))
    for kink in avoid:
        drawn = np.where(np.abs(drawn - kink) < 0.05, kink + 0.1, drawn)
    return drawn


def distinct(*shape: int, seed: int = 0) -> NDArray:
    """Return float64 values at least 0.1 apart, in random order: no ties for max, sort and the like."""
    rng = np.random.default_rng([seed, *shape])
    count = int(np.prod(shape))
    return np.asarray(rng.permutation(count).reshape(shape) * 0.1 - count * 0.05 + 0.03)


#: Shapes that elementwise ops are sampled on: 0-d, empty, length 1, several axes.
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3), (1,), (0,), (2, 1, 3), (5, 7), (2, 0, 2), (1, 1))
#: Pairs of shapes that broadcast.
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1), (1, 3)),
    ((2, 3), ()),
    ((), (2, 2)),
    ((4, 1, 3), (2, 1)),
    ((0,), (1,)),
    ((1, 1, 1), (2,)),
)


def unary_samples(low: float = -2.0, high: float = 2.0, *more: Any, avoid: Sequence[float] = ()) -> list[Any]:
    """Return samples of an elementwise op of one operand between `low` and `high`, none near a kink in `avoid`."""
    return [*(sample(values(*shape, low=low, high=high, avoid=avoid)) for shape in SHAPES), *more]


def binary_samples(a: tuple[float, float] = (-2.0, 2.0), b: tuple[float, float] = (-2.0, 2.0), *more: Any) -> list[Any]:
    """Return samples of an elementwise op of two operands, each between bounds, with broadcasting."""
    pairs = [sample(values(*s, low=a[0], high=a[1]), values(*t, low=b[0], high=b[1], seed=1)) for s, t in PAIRS]
    return [*pairs, *more]


def does_not_broadcast(name: str) -> Rejected:
    """Return the rejected sample that every elementwise op of two operands a and b has."""
    from ..errors import ShapeError

    return rejected(
        ShapeError,
        f"{name}: a has shape (2, 3) and b has shape (4,); the shapes do not broadcast: from the last axis on, "
        "lengths must be equal or 1.",
        np.ones((2, 3)),
        np.ones(4),
    )
