"""The verdict on one derivative: whether it is right, and if not, or if that cannot be seen, why."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from .differences import (
    CAUTION,
    EPSILON,
    Kink,
    Level,
    Line,
    Stencil,
    find_jumps,
    find_kink,
    first_steps,
    is_torn,
    ladder,
    measure,
    outliers,
)

#: A derivative of zero has no size of its own: it counts as checked once differences are zero within this part of the
#: largest one. Where the slope bends, as that of relu(x)**2 at 0, they cannot tell more than the root of rounding.
ZERO = 1e-7
#: The same for a derivative that is not zero because of rounding alone.
NEGLIGIBLE = 1e-9
#: Steps that are higher and wider than this part of the function and of its argument are not due to rounding.
COARSE = 0.05
#: Steps of this part of the argument see what a function does at a point; what is between coarser ones they do not.
FINE = 1e-3
#: At how many points gradients are added up over a distance.
NODES = 4


class Verdict(StrEnum):
    """What a check found about one derivative, worst last."""

    RIGHT = "right"
    #: The function is not differentiable at the point: its slopes to both sides differ.
    KINK = "kink"
    #: The function computes in less than float64, so that difference quotients are quantised.
    PRECISION = "precision"
    #: The function's rounding errors are larger than the change that a derivative makes.
    NOISE = "cancellation noise"
    #: Two calls with the same arguments differ.
    NON_DETERMINISTIC = "non-deterministic"
    #: The value or the gradient is NaN or infinite.
    NOT_FINITE = "not finite"
    WRONG = "wrong rule"


SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}


@dataclass(frozen=True)
class Finding:
    """The verdict on one derivative, and the numbers behind it."""

    verdict: Verdict
    analytic: float
    numeric: float
    error: float
    #: What else led to the verdict, in words; empty if the numbers tell all.
    note: str = ""


@dataclass(frozen=True)
class Gauge:
    """What all derivatives of a function are judged by."""

    stencil: Stencil
    tolerance: float
    #: The step to try first, relative to elements beyond 1; the stencil's own if not given.
    step: float | None = None
    #: The largest gradient, the measure of what is negligible.
    largest: float = 0.0
    #: The unit of rounding of the lowest precision that the function computes in.
    unit: float = EPSILON
    #: The largest intermediate value, whose rounding errors may surface.
    peak: float = 0.0
    #: By how much rounding in less than float64, also of the argument itself, moves the function.
    grain: float = 0.0

    @property
    def rounding(self) -> float:
        """The relative rounding error of the function's values; several ops in low precision add theirs up."""
        return 4.0 * self.unit if self.unit > EPSILON else EPSILON


@dataclass(frozen=True)
class Spot:
    """A derivative to judge: the line, the derivative along it that the rules give, and where on the line we are."""

    line: Line
    analytic: float
    x: float
    #: The slope to places far away: the measure for a function that is flat here.
    reach: float = 0.0
    #: By how much rounding changes the derivative that the rules give.
    residue: float = 0.0
    #: The size of the function.
    value: float = 0.0
    #: The derivative that the rules give at some distance on the line.
    gradient: Callable[[float], float] | None = None
    #: What the function raised on the line, by the distance: the line adds to it.
    raised: dict[float, str] = field(default_factory=dict)

    @property
    def is_residue(self) -> bool:
        """Whether the derivative that the rules give is zero but for rounding, next to the function."""
        effect = abs(self.analytic) * max(1.0, abs(self.x))
        return abs(self.analytic) <= 8.0 * self.residue and effect <= NEGLIGIBLE * self.value

    @property
    def note(self) -> str:
        """What the function raised nearest to the point; empty if it did not."""
        return self.raised[min(self.raised, key=abs)] if self.raised else ""


#: The spot at some distance on the same line, for a look at both sides of a kink.
Aside = Callable[[float], Spot]


@dataclass(frozen=True)
class _Estimate:
    """The numeric derivative: a value and a bound of its error."""

    numeric: float
    bound: float
    level: Level


def judge(spot: Spot, gauge: Gauge, aside: Aside | None = None) -> Finding:
    """Return the verdict on a derivative; `aside` lets a kink be told from a wrong rule at a kink."""
    if not math.isfinite(spot.analytic):
        return Finding(Verdict.NOT_FINITE, spot.analytic, math.nan, math.inf)
    given = None if gauge.step is None else [gauge.step * max(1.0, abs(spot.x))]
    tried = []
    for step in given or first_steps(gauge.stencil, spot.x):
        level = _measured(spot, gauge, step)
        estimate = _near(spot, gauge, level)
        is_clear = spot.analytic != 0.0 or estimate.numeric == 0.0  # Else a finer step may see what was lost.
        if level.is_finite and is_clear and _is_right(spot, gauge, estimate):
            finding = _finding(Verdict.RIGHT, spot, gauge, estimate)
            break
        tried.append(level)
    else:
        # From coarse to fine: what moves at all is seen first.
        measured = [_measured(spot, gauge, step) for step in reversed(ladder(spot.x))][::-1]
        finding = _diagnose(spot, gauge, aside, measured)
        tried += outliers(measured)
    # What did not settle the matter may have been a chance: the same points must give the same values again.
    if any(not level.is_same(_measured(spot, gauge, level.step)) for level in tried):
        return replace(finding, verdict=Verdict.NON_DETERMINISTIC, error=math.inf)
    return finding


def _diagnose(spot: Spot, gauge: Gauge, aside: Aside | None, measured: list[Level]) -> Finding:
    levels = [level for level in measured if level.is_finite]
    if not levels:
        return replace(_at_an_edge(spot, gauge, aside, measured), note=spot.note)
    if all(level.size == 0.0 for level in levels) and abs(spot.analytic) * levels[-1].step < EPSILON * gauge.peak:
        # Nothing moves, and nothing could be seen to move next to the largest intermediate value.
        return Finding(Verdict.NOISE, spot.analytic, 0.0, 1.0)
    if is_torn(levels):
        beside = first_steps(gauge.stencil, spot.x)[0]
        is_wrong = _is_wrong_beside(gauge, aside, (beside, -beside))
        return Finding(Verdict.WRONG if is_wrong else Verdict.KINK, spot.analytic, math.inf, math.inf)
    estimate = _best(spot, gauge, levels, 0.0)
    if estimate is not None and _is_right(spot, gauge, estimate):
        return _finding(Verdict.RIGHT, spot, gauge, estimate)
    witness = _witness(spot, levels, gauge.tolerance * abs(spot.analytic), 3)
    if witness is not None and not (estimate is not None and _is_wrong(spot, gauge, estimate)):
        return _finding(Verdict.RIGHT, spot, gauge, _Estimate(witness.slope, 0.0, witness))
    kink = find_kink(levels)
    # An estimate that misses f(x) itself comes from steps that are beyond the kink and says nothing against it.
    if kink is not None and (
        estimate is None
        or abs(kink.right - kink.left) < 64.0 * estimate.bound
        or (kink.step < estimate.level.step and not estimate.level.follows())
    ):
        finer = [level for level in levels if level.step < kink.step]
        # A kink next to the point is none at the point.
        discrepancy = max(abs(kink.left - spot.analytic), abs(kink.right - spot.analytic))
        if _witness(spot, finer, 0.01 * discrepancy, 2) is None:
            return _at_a_kink(spot, gauge, aside, kink)
    if estimate is None:
        return Finding(Verdict.NOISE, spot.analytic, math.nan, math.inf)
    if not _is_wrong(spot, gauge, estimate):
        verdict = Verdict.PRECISION if gauge.unit > EPSILON else Verdict.NOISE
        return _finding(verdict, spot, gauge, estimate)
    return _unless_stepped(spot, gauge, aside, levels, estimate)


def _unless_stepped(spot: Spot, gauge: Gauge, aside: Aside | None, levels: list[Level], estimate: _Estimate) -> Finding:
    """Return the verdict "wrong rule", unless the difference is that of a function that moves in steps."""
    discrepancy = abs(spot.analytic - estimate.numeric)
    height, width = find_jumps(spot.line, estimate.level, discrepancy, [level.step for level in levels])
    # Steps explain a difference in slope of about height / width, none that is far smaller. High and wide steps are the
    # function's own, as those of round(x): between them its slope is what it is.
    is_own = height > COARSE * spot.value and width > COARSE * max(1.0, abs(spot.x))
    is_stepped = height > 0.0 and discrepancy * width >= 0.05 * height and not is_own
    if is_stepped:
        estimate = _best(spot, gauge, levels, height) or estimate
        if not _is_wrong(spot, gauge, estimate):
            return _finding(_hidden(spot, gauge, aside, height, width), spot, gauge, estimate)
    if _is_evident(spot, gauge, levels, estimate, height if is_stepped else 0.0):
        return _finding(Verdict.WRONG, spot, gauge, estimate)
    return _finding(_hidden(spot, gauge, aside, height, width), spot, gauge, estimate)


def _hidden(spot: Spot, gauge: Gauge, aside: Aside | None, height: float, width: float) -> Verdict:
    """Return what hides the derivative of a function that moves in steps of some height and width, or in none."""
    is_stepped = height > 8.0 * EPSILON * gauge.peak and _is_flat_elsewhere(spot, aside, width)
    return Verdict.PRECISION if gauge.unit > EPSILON or is_stepped else Verdict.NOISE


def _is_flat_elsewhere(spot: Spot, aside: Aside | None, width: float) -> bool:
    """Say whether the function moves in steps also far from the point, as rounding does and cancellation does not."""
    if aside is None:
        return False
    try:
        line = aside(max(1.0, abs(spot.x)) / 2.0).line
    except (ArithmeticError, ValueError):
        return False  # Outside of the domain.
    return sum(line(width * k / 64.0)[0] == 0.0 for k in (-2, -1, 1, 2)) >= 3


def _is_evident(spot: Spot, gauge: Gauge, levels: list[Level], estimate: _Estimate, height: float) -> bool:
    """Say whether a difference is more than one step's word against the gradient."""
    moves = [level.move for level in levels]
    # A function that moves much at the finest steps has details that no step resolves.
    if any(move > 0.01 * max(moves) for move in moves[:3]):
        return False
    discrepancy = abs(spot.analytic - estimate.numeric)
    finer = [level for level in levels if level.step < estimate.level.step]
    # Next to a stretch where nothing moves although the argument does, all is a staircase; beyond the estimate, only
    # one of low steps, since high ones are the function's own.
    stair = _stair(levels, discrepancy)
    height = max(
        height,
        gauge.grain,
        _stair([*finer, estimate.level], discrepancy),
        stair if stair <= COARSE * spot.value else 0.0,
    )
    if 0.0 < max(moves) <= 8.0 * height:
        return False
    # What is less than the rounding of the outputs, or of a flat function elsewhere or on its way, may be rounded away.
    elsewhere = max(gauge.peak, *(level.size for level in levels)) if estimate.numeric == 0.0 else 0.0
    widest = max(level.step for level in levels if abs(level.slope - estimate.numeric) <= 0.1 * discrepancy)
    if discrepancy * widest <= max(EPSILON * max(spot.value, elsewhere), 4.0 * height):
        return False
    # Finer steps that agree with the gradient have seen what coarser ones do not.
    between = [_measured(spot, gauge, estimate.level.step * 10.0 ** (-k / 6)) for k in range(18, 0, -1)]
    if any(_witness(spot, seen, 0.01 * discrepancy, 2) is not None for seen in (finer, between)):
        return False
    if _is_one_sided(spot, finer, discrepancy):
        return False
    # Steps of a second set, between those that the estimate was chosen from.
    others = [_measured(spot, gauge, estimate.level.step * factor) for factor in (0.3, 0.55, 0.8)]
    if not all(level.is_finite and abs(level.slope - estimate.numeric) < 0.1 * discrepancy for level in others):
        return False
    # Where rounding hides what finer steps would tell, or what they tell is not a straight line, one point is too few.
    finest = min(level.step for level in levels if abs(level.slope - estimate.numeric) <= 0.1 * discrepancy)
    is_fine = finest <= FINE * max(1.0, abs(spot.x))
    is_straight = gauge.unit == EPSILON and not any(_leaves(level, estimate.numeric, discrepancy) for level in finer)
    return (is_fine and is_straight) or _is_wrong_around(spot, estimate, height)


def _stair(levels: list[Level], discrepancy: float) -> float:
    """Return how much the function moves next to steps at which it does not move at all, though it should."""
    flat = [i for i, level in enumerate(levels) if not level.move and discrepancy * level.step > 64.0 * level.rounding]
    return max((level.move for level in levels[flat[-1] :][:3]), default=0.0) if flat else 0.0


def _is_one_sided(spot: Spot, levels: list[Level], discrepancy: float) -> bool:
    """Say whether slopes to one side alone agree with the gradient, three in a row, as next to a jump."""
    for side in ("left", "right"):
        row = 0
        for level in levels:
            slope = getattr(level, side)
            is_seen = slope != 0.0 or discrepancy * level.step > 64.0 * level.rounding
            row = row + 1 if is_seen and abs(slope - spot.analytic) <= 0.03 * discrepancy else 0
            if row == 3:
                return True
    return False


def _leaves(level: Level, slope: float, discrepancy: float) -> bool:
    """Say whether the function leaves a straight line by about as much as the discrepancy, and not by rounding."""
    off = max(abs(level.slope - slope) * level.step, level.gap)
    return off > max(0.25 * discrepancy * level.step, 4.0 * level.rounding)


def _is_wrong_around(spot: Spot, estimate: _Estimate, height: float) -> bool:
    """Say whether the gradients around the point do not add up to the change of the function, either.

    Steps that are too coarse for a function, as some periods of a sine are, agree with each other on any slope; finer
    ones would tell, but rounding hides them. A gradient that is right adds up over all distances, but for jumps, and
    these are not everywhere: short pieces are looked at, too, as short as steps of some height let them be.
    """
    gradient = spot.gradient
    if gradient is None:
        return False
    nodes, weights = np.polynomial.legendre.leggauss(NODES)

    def error(span: float, center: float) -> float:
        mean = 0.5 * sum(w * gradient(center + span * t) for t, w in zip(nodes, weights, strict=True))
        return float(mean - (spot.line(center + span)[0] - spot.line(center - span)[0]) / (2.0 * span))

    off, step = spot.analytic - estimate.numeric, estimate.level.step
    pieces = [(part * step, 0.0) for part in (1.0, 0.8, 0.55, 0.3)]
    short = 12.0 * height / abs(off)
    pieces += [(short, 2.0 * k * short) for k in range(4) if 0.0 < short < 0.1 * step]
    # To both sides of the point alike, so that what is wrong by a factor is wrong by the same amount.
    sides = ([error(span, at) for at in {center, -center}] for span, center in pieces)
    return all(0.5 < sum(errors) / len(errors) / off < 2.0 for errors in sides)


def _witness(spot: Spot, levels: list[Level], allowed: float, count: int) -> Level | None:
    """Return a level that agrees with the gradient as some next to it do: noise does so by chance, but not in a row."""
    row: list[Level] = []
    for level in levels:
        agrees = level.slope != 0.0 and level.follows() and abs(level.slope - spot.analytic) <= allowed
        row = [*row, level] if agrees else []
        if len(row) == count:
            return level
    return None


def _near(spot: Spot, gauge: Gauge, level: Level) -> _Estimate:
    """Return what one level says, with a bound that counts all that it shows as an error."""
    return _Estimate(level.slope, (level.noise + level.gap) / level.step + _own_error(spot, gauge), level)


def _best(spot: Spot, gauge: Gauge, levels: list[Level], height: float) -> _Estimate | None:
    """Return the estimate with the smallest bound, from levels in the order of their steps.

    Noise that a fine step shows is there at coarser ones, too. A step that contradicts a finer one is too coarse for
    the function, and so are those beyond it.
    """
    best: _Estimate | None = None
    noise = height
    for level in levels:
        noise = max(noise, level.noise)
        # Where the function moves in steps of some height, its slopes are no better than these are to its size.
        stepped = 4.0 * height / level.size * abs(level.slope) if level.size else 0.0
        bound = noise / level.step + _own_error(spot, gauge) + stepped
        # Next to steps, f(x) may be off by as much as they are high; only a level that shows no such thing counts.
        if height and not level.follows(1.0):
            continue
        # At a bend of the slope, as that of x * abs(x) at 0, f(x) is off by less and less than the step.
        bound += 0.0 if level.follows() else level.gap / level.step
        if best is not None and abs(level.slope - best.numeric) > 4.0 * (best.bound + bound):
            break
        if best is None or bound < best.bound:
            best = _Estimate(level.slope, bound, level)
    return best


def _measured(spot: Spot, gauge: Gauge, step: float) -> Level:
    # The rounding of x + h moves the function as well.
    jitter = EPSILON * abs(spot.x * spot.analytic)
    return measure(spot.line, gauge.stencil, step, gauge.rounding, jitter)


def _own_error(spot: Spot, gauge: Gauge) -> float:
    """Return the rounding error of the derivative that the rules give."""
    return 8.0 * spot.residue + 16.0 * gauge.unit * abs(spot.analytic)


def _scale(spot: Spot, estimate: _Estimate) -> float:
    return max(abs(spot.analytic), abs(estimate.numeric))


def _is_right(spot: Spot, gauge: Gauge, estimate: _Estimate) -> bool:
    """Say whether the derivative agrees, and would not if it were wrong by more than the tolerance."""
    allowed = gauge.tolerance * _scale(spot, estimate)
    if spot.analytic == 0.0:
        allowed = max(allowed, ZERO * max(gauge.largest, spot.reach))
        return estimate.bound <= allowed and abs(estimate.numeric) <= 2.0 * estimate.bound
    difference = abs(spot.analytic - estimate.numeric)
    if spot.is_residue and estimate.bound <= NEGLIGIBLE * gauge.largest:
        return difference <= max(allowed, estimate.bound)
    # The bound is cautious: numbers that agree to the tolerance do not need all of that.
    return difference <= allowed and estimate.bound <= CAUTION * allowed


def _is_wrong(spot: Spot, gauge: Gauge, estimate: _Estimate) -> bool:
    allowed = gauge.tolerance * _scale(spot, estimate)
    return abs(spot.analytic - estimate.numeric) > max(allowed, 3.0 * estimate.bound)


def _finding(verdict: Verdict, spot: Spot, gauge: Gauge, estimate: _Estimate) -> Finding:
    difference = abs(spot.analytic - estimate.numeric)
    scale = max(_scale(spot, estimate), 2.0 * estimate.bound / gauge.tolerance if verdict is Verdict.RIGHT else 0.0)
    return Finding(verdict, spot.analytic, estimate.numeric, difference / scale if scale else 0.0)


def _at_a_kink(spot: Spot, gauge: Gauge, aside: Aside | None, kink: Kink) -> Finding:
    """A kink, unless the derivative is no slope between those of both sides, or wrong to one side of it."""
    numeric = max(kink.left, kink.right, key=lambda slope: abs(slope - spot.analytic))
    error = abs(numeric - spot.analytic) / max(abs(numeric), abs(spot.analytic))
    slack = kink.error + 0.01 * abs(kink.right - kink.left)
    low, high = min(kink.left, kink.right) - slack, max(kink.left, kink.right) + slack
    is_wrong = not low <= spot.analytic <= high or _is_wrong_beside(gauge, aside, (kink.step, -kink.step))
    return Finding(Verdict.WRONG if is_wrong else Verdict.KINK, spot.analytic, numeric, error)


def _at_an_edge(spot: Spot, gauge: Gauge, aside: Aside | None, measured: list[Level]) -> Finding:
    """The verdict where the function is finite to one side at most."""
    sides = [
        (sign * level.step, slope)
        for level in measured
        for sign, slope in ((1.0, level.right), (-1.0, level.left))
        if math.isfinite(slope)
    ]
    if not sides:
        return Finding(Verdict.NOT_FINITE, spot.analytic, math.nan, math.inf)
    distance, slope = sides[len(sides) // 2]
    near = ladder(spot.x)[0] / 64.0
    if all(math.isfinite(spot.line(sign * near)[0]) for sign in (1.0, -1.0)):
        # The edge lies beside the point, nearer than any step that would tell.
        return Finding(Verdict.NOISE, spot.analytic, slope, math.inf)
    verdict = Verdict.WRONG if _is_wrong_beside(gauge, aside, (distance,)) else Verdict.KINK
    return Finding(verdict, spot.analytic, slope, math.inf)


def _is_wrong_beside(gauge: Gauge, aside: Aside | None, distances: tuple[float, ...]) -> bool:
    return aside is not None and any(judge(aside(t), gauge).verdict is Verdict.WRONG for t in distances)
