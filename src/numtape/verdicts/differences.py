"""Difference quotients along a line, with what they say about their own trust: truncation, noise, kinks and steps.

Every stencil is one idea: the central difference D(h) is the derivative plus a polynomial in h**2, so its values at
several multiples of h are extrapolated to 0. The same weights take the mean of f(x + h) and f(x - h) back to f(x);
where that misses f(x), the function has a kink, a jump or a burst of noise there.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..errors import ArgumentError

#: How a scalar function changes along a line: a distance in; the change, and the size of the terms that it is made of.
Line = Callable[[float], tuple[float, float]]

EPSILON, LARGEST = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).max)
#: By how much the disagreement of two stencils is enlarged to bound the error of the better one.
CAUTION = 8.0
#: By how much two results of the same call may differ, relative to them: threads add in any order.
SAME = 64.0 * EPSILON
#: All steps have this odd factor, so that no period that people choose is a multiple of a step.
ODD = 1.1283791670955126


@dataclass(frozen=True)
class Stencil:
    """Which multiples of the step a difference quotient uses, and those of a second one that it is compared with."""

    offsets: tuple[float, ...]
    check: tuple[float, ...]
    #: The step that balances truncation and rounding of most functions.
    step: float

    @property
    def points(self) -> tuple[float, ...]:
        """All multiples of the step at which the function is evaluated, on both sides."""
        return tuple(sorted({*self.offsets, *self.check}))


STENCILS = {
    "central": Stencil((1.0,), (1.0, 2.0), 1e-5),
    "four_point": Stencil((1.0, 2.0), (1.0,), 1e-4),
    "six_point": Stencil((1.0, 2.0, 3.0), (1.0, 2.0), 1e-3),
    "richardson": Stencil((0.25, 0.5, 1.0), (0.25, 0.5), 3e-3),
}


def stencil_of(name: str, method: str) -> Stencil:
    """Return the stencil of a method; `name` is the function that was asked."""
    if method not in STENCILS:
        known = ", ".join(repr(known) for known in STENCILS)
        raise ArgumentError(f"{name}: there is no method {method!r}; the methods are {known}.")
    return STENCILS[method]


def check_options(name: str, tolerance: Any, step: Any) -> None:
    """Raise if a tolerance or a first step cannot be used; `name` is the function that was asked."""
    if not _is_number(tolerance) or not 0.0 < tolerance < 1.0:
        raise ArgumentError(f"{name}: tolerance is {tolerance!r}; it must lie between 0 and 1.")
    if step is not None and (not _is_number(step) or not 0.0 < step < math.inf):
        raise ArgumentError(f"{name}: step is {step!r}; it must be positive, or None to have it found.")


def _is_number(x: Any) -> bool:
    return isinstance(x, float | int | np.number) and not isinstance(x, bool)


@cache
def at_zero(nodes: tuple[float, ...]) -> tuple[float, ...]:
    """Return the weights that extrapolate values at `nodes` to 0 by the polynomial through them: 4/3, -1/3 for 1, 4."""
    return tuple(math.prod(m / (m - n) for m in nodes if m != n) for n in nodes)


def _extrapolate(nodes: Sequence[float], values: Sequence[float]) -> float:
    return sum(w * v for w, v in zip(at_zero(tuple(nodes)), values, strict=True))


@dataclass(frozen=True)
class Level:
    """What one step says about the derivative along a line."""

    step: float
    slope: float
    #: How far the second stencil is from the first.
    spread: float
    #: How far f(x) is from what its neighbours predict.
    gap: float
    #: The slopes to the left and to the right alone.
    left: float
    right: float
    #: The size of the terms that the function is made of.
    size: float
    #: The rounding error that its values have at least.
    rounding: float

    @property
    def is_finite(self) -> bool:
        """Whether the function was finite on both sides."""
        return math.isfinite(self.slope) and math.isfinite(self.gap)

    @property
    def noise(self) -> float:
        """The error of single values of the function, as far as this step shows it."""
        return CAUTION * self.spread * self.step + self.rounding

    @property
    def move(self) -> float:
        """How much the function moves, to both sides alike or not."""
        return max(self.gap, abs(self.slope) * self.step)

    def follows(self, slack: float = 4.0) -> bool:
        """Say whether f(x) itself lies on the curve through its neighbours, up to their own noise times `slack`."""
        return self.gap <= slack * self.noise

    def is_same(self, other: "Level") -> bool:
        """Say whether two measurements at the same points are equal, up to the order in which threads add."""
        moves = (abs(self.slope - other.slope), abs(self.left - other.left), abs(self.right - other.right))
        return self.is_finite == other.is_finite and not any(move * self.step > SAME * self.size for move in moves)


def measure(line: Line, stencil: Stencil, step: float, unit: float = EPSILON, jitter: float = 0.0) -> Level:
    """Evaluate a stencil.

    Args:
        line: the function along a line.
        stencil: where to evaluate it.
        step: the distance that the stencil multiplies.
        unit: the relative rounding error of the function's values.
        jitter: the error that the rounding of the points themselves makes.
    """
    points = stencil.points
    ahead = [line(k * step) for k in points]
    behind = [line(-k * step) for k in points]
    slopes = {k: (a[0] - b[0]) / (2.0 * k * step) for k, a, b in zip(points, ahead, behind, strict=True)}
    squares = [k * k for k in points]
    size = max((size for _, size in (*ahead, *behind) if math.isfinite(size)), default=0.0)
    slope, check = (
        _extrapolate([k * k for k in chosen], [slopes[k] for k in chosen])
        for chosen in (stencil.offsets, stencil.check)
    )
    return Level(
        step,
        slope,
        abs(slope - check),
        abs(_extrapolate(squares, [(a[0] + b[0]) / 2.0 for a, b in zip(ahead, behind, strict=True)])),
        _extrapolate(points, [-b[0] / (k * step) for k, b in zip(points, behind, strict=True)]),
        _extrapolate(points, [a[0] / (k * step) for k, a in zip(points, ahead, strict=True)]),
        size,
        unit * size + jitter,
    )


def first_steps(stencil: Stencil, x: float) -> list[float]:
    """Return the steps that suit most functions at `x`: on the scale of 1, and on the scale of x."""
    scales = [max(1.0, abs(x)), 1.0, abs(x)]
    return [stencil.step * ODD * scale for scale in dict.fromkeys(scales) if scale]


def ladder(x: float) -> list[float]:
    """Return steps from the finest that `x` can resolve to a third of its scale, two per decade."""
    finest = -20 if x == 0.0 else math.floor(math.log10(abs(x))) - 12
    coarsest = max(0, math.ceil(math.log10(abs(x))) if x else 0)
    # No power beyond these is a float.
    return [ODD * 10.0 ** (k / 2) for k in range(2 * max(finest, -300), 2 * min(coarsest, 308))]


@dataclass(frozen=True)
class Kink:
    """Slopes that stay apart however small the step is."""

    step: float
    left: float
    right: float
    error: float


def find_kink(levels: Sequence[Level]) -> Kink | None:
    """Return the kink at the point, if the slopes to both sides converge to different values."""
    best: Kink | None = None
    for finer, (fine, coarse) in enumerate(itertools.pairwise(levels)):
        change = abs(fine.left - coarse.left) + abs(fine.right - coarse.right)
        jump = abs(fine.right - fine.left)
        is_seen = jump * fine.step > 16.0 * fine.rounding and change < 0.05 * jump
        # Slopes may go on to change at all the finer steps, as those of log(x) do.
        error = (1 + finer) * change
        if is_seen and (best is None or error < best.error):
            best = Kink(fine.step, fine.left, fine.right, error)
    return best


def is_torn(levels: Sequence[Level]) -> bool:
    """Say whether the function jumps at the point itself: f(x) stays off its neighbours however near they are."""
    gaps = [level.gap for level in levels[:4]]  # The finest.
    return min(gaps) > 64.0 * levels[0].rounding and max(gaps) - min(gaps) < 0.01 * max(gaps)


def outliers(levels: Sequence[Level]) -> list[Level]:
    """Return the levels that are far noisier than both neighbours, as no function of x is."""
    noises = [level.noise + level.gap for level in levels]
    return [
        level
        for level, before, noise, after in zip(levels[1:], noises, noises[1:], noises[2:], strict=False)
        if noise > 16.0 * max(before, after)
    ]


def find_jumps(line: Line, level: Level, discrepancy: float, steps: Sequence[float]) -> tuple[float, float]:
    """Return the height and the width of the steps of a staircase, or zeros if the function is none.

    Near the point the function follows the slope of `level`. On both sides the place is searched where it leaves that
    by a jump, of about the height by which a slope different by `discrepancy` would leave it, or lower by some orders.
    """
    beyond = [level.step, *(t for t in steps if t > level.step)]
    heights, distances = [], []
    for sign in (1.0, -1.0):

        def residual(t: float, sign: float = sign) -> float:
            change = line(sign * t)[0]
            return change - level.slope * sign * t if math.isfinite(change) else 0.0

        residuals = [residual(t) for t in beyond]
        found = (_jump(residual, beyond, residuals, part * discrepancy) for part in (0.5, 0.1, 0.02, 0.004))
        height, distance = next((jump for jump in found if jump[0]), (0.0, 0.0))
        if not height:
            return 0.0, 0.0
        heights.append(height)
        distances.append(distance)
    return max(heights), sum(distances)


def _jump(
    residual: Callable[[float], float], steps: Sequence[float], residuals: Sequence[float], slope: float
) -> tuple[float, float]:
    """Return height and place of the jump by which a residual comes to exceed a slope, or zeros if it is no jump."""
    place = next((i for i, (t, r) in enumerate(zip(steps, residuals, strict=True)) if abs(r) > slope * t), 0)
    if not place:
        return 0.0, 0.0
    near, far = steps[place - 1], steps[place]
    before, after = residuals[place - 1], residuals[place]
    for _ in range(24):
        middle = math.sqrt(near * far)
        between = residual(middle)
        if abs(between) > slope * middle:
            far, after = middle, between
        else:
            near, before = middle, between
    return (abs(after - before), far) if abs(after - before) > 0.5 * slope * far else (0.0, 0.0)
