"""Runge-Kutta methods as data, and one step of any of them, on arrays or on tensors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..core.batching import elementwise
from ..core.facts import Facts, Structure
from ..core.op import Op
from ..core.value import Value

Leaves = list[Any]
#: The right-hand side of y' = f(t, y), from a time and the leaves of y to the leaves of its slope.
Field = Callable[[Any, Leaves], Leaves]


@dataclass(frozen=True)
class Method:
    """An explicit method: stage i is f(t + nodes[i] h, y + h sum_j rows[i][j] k_j), and y moves h sum_i weights[i] k_i.

    If the last row is the weights, the last stage is the slope at the end of the step, which the next one starts with.
    """

    name: str
    order: int
    nodes: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    #: The weights of the error estimate; empty if there is none.
    errors: tuple[float, ...]
    #: For each stage, the coefficients of x, x^2, ... of its weight in the solution at a part x of the step.
    interpolant: tuple[tuple[float, ...], ...]

    @property
    def is_adaptive(self) -> bool:
        """Whether the method estimates its error."""
        return bool(self.errors)

    @property
    def passes_slope(self) -> bool:
        """Whether the last stage is the first of the next step."""
        return self.rows[-1] == self.weights


#: The classical method of order 4.
RK4 = Method(
    name="rk4",
    order=4,
    nodes=(0.0, 0.5, 0.5, 1.0),
    rows=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    errors=(),
    interpolant=((1.0, -3 / 2, 2 / 3), (0.0, 1.0, -2 / 3), (0.0, 1.0, -2 / 3), (0.0, -1 / 2, 2 / 3)),
)

#: Dormand and Prince (1980), of order 5 with an error estimate of order 4; interpolation by Shampine, of order 4.
DOPRI5 = Method(
    name="dopri5",
    order=5,
    nodes=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    rows=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    weights=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    errors=(-71 / 57600, 0.0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40),
    interpolant=(
        (1.0, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
        (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
        (0.0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
        (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
        (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
    ),
)

METHODS = {method.name: method for method in (DOPRI5, RK4)}


def step(method: Method, field: Field, t: Any, h: Any, y: Leaves, slope: Leaves | None) -> tuple[Leaves, list[Leaves]]:
    """Return the leaves of y after a step, and the stages.

    Args:
        method: of Runge-Kutta.
        field: the right-hand side.
        t: where the step begins; a number, or a tensor to differentiate by.
        h: its length.
        y: the leaves there.
        slope: f(t, y), if it is known.
    """
    stages = [field(t, y) if slope is None else slope]
    end = y
    for node, row in zip(method.nodes[1:], method.rows[1:], strict=True):
        end = moved(y, h, row, stages)
        stages.append(field(t + node * h, end))
    if not method.passes_slope:
        end = moved(y, h, method.weights, stages)
    return end, stages


def moved(y: Leaves, h: Any, weights: Sequence[float], stages: Sequence[Leaves]) -> Leaves:
    """Return y + h sum_i weights[i] stages[i], in one op for each leaf."""
    used = [i for i, weight in enumerate(weights) if weight]
    if isinstance(h, Value):
        slopes = weighted([weights[i] for i in used], [stages[i] for i in used])
        return [part + h * slope for part, slope in zip(y, slopes, strict=True)]
    return weighted([1.0, *(h * weights[i] for i in used)], [y, *(stages[i] for i in used)])


def weighted(weights: Sequence[float], terms: Sequence[Leaves]) -> Leaves:
    """Return sums of leaves times numbers."""
    params = {"weights": tuple(map(float, weights))}
    return [apply(WEIGHTED_SUM, parts, params) for parts in zip(*terms, strict=True)]


def _weighted_sum(operands: tuple[NDArray, ...], /, *, weights: tuple[float, ...]) -> NDArray:
    """Add operands of one shape, each times a number."""
    total = np.asarray(operands[0] * weights[0])
    for array, weight in zip(operands[1:], weights[1:], strict=True):
        total += array * weight
    return total


WEIGHTED_SUM = Op(
    _weighted_sum,
    _weighted_sum,
    pulls={"operands": lambda g, index, weights: g * weights[index]},
    pushes={"operands": lambda t, index, weights: t * weights[index]},
    is_variadic=True,
    facts=Facts(
        cost=lambda out, *operands, weights: 2 * len(weights) * math.prod(out),
        structure=Structure.ELEMENTWISE,
        linear=frozenset(("operands",)),
        batch=elementwise,
    ),
)
