"""The adjoint test: forward mode must be the transpose of reverse mode, for each element of each argument."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..api import jvp
from ..core.value import LEAF, Value, wrap
from ..errors import NumtapeError
from ..grad_mode import enable_grad
from ..tensors import Tensor
from ..verdicts.differences import EPSILON
from ..verdicts.judging import Gauge, Verdict
from .report import Adjoint
from .subject import Shaken, Subject

#: By how much the sum of errors at random may exceed the root of the sum of their squares.
SIGMAS = 4.0
#: How often a difference is measured again to see whether it is rounding, and how many units away from the point.
REPEATS, AWAY = 4, 64.0
#: By how much a difference must exceed the scatter of such measurements.
CLEAR = 4.0
#: Derivatives below this are rounded to subnormal numbers on their way.
SMALLEST = float(np.finfo(np.float64).tiny) / EPSILON


def adjoint_test(subject: Subject, gauge: Gauge) -> Adjoint:
    """Test that <w, J t> and <J^T w, t> are the same number along a random direction `t`.

    Each element of the direction is divided by the derivative that it meets, so that all contribute alike and a large
    derivative hides no wrong one: an error counts relative to the element's own derivative. One sweep does if the
    numbers agree; if not, some more tell rounding from a rule.
    """
    signs = [_random_signs(subject.rng, x.shape) for x in subject.arrays]
    adjoint = Adjoint(math.nan, math.nan, reason="a derivative is NaN or infinite")
    if not all(np.all(np.isfinite(g)) for g in subject.gradients):
        return adjoint
    # Where a direction of such sizes overflows on its way, a plain one may not.
    for units in (_units(subject, gauge), [np.ones(x.shape) for x in subject.arrays]):
        tangents = [sign / unit for sign, unit in zip(signs, units, strict=True)]
        try:
            ahead, terms = _pushed(subject, subject.arrays, tangents)
        except NumtapeError as error:
            return Adjoint(math.nan, math.nan, reason=f"forward mode says: {error}")
        back = _product(subject.gradients, tangents)
        size = terms + sum(float(np.sum(np.abs(g * t))) for g, t in zip(subject.gradients, tangents, strict=True))
        if not math.isfinite(size):
            continue
        # What each element adds if its derivative is wrong by 1: errors within the tolerance have random signs.
        parts = np.concatenate([np.abs(g * t).ravel() for g, t in zip(units, tangents, strict=True)])
        total = min(float(np.sum(parts)), SIGMAS * float(np.sqrt(np.sum(parts**2))))
        allowed = gauge.tolerance * total + 64.0 * gauge.unit * size
        excess = abs(ahead - back) - allowed
        if excess <= 0.0:
            return Adjoint(ahead, back)
        if excess > CLEAR * _scatter(subject, gauge, tangents):
            return Adjoint(ahead, back, Verdict.WRONG)
        return Adjoint(ahead, back, Verdict.PRECISION if gauge.unit > EPSILON else Verdict.NOISE)
    return adjoint


def _random_signs(rng: "np.random.Generator", shape: tuple[int, ...]) -> NDArray:
    """Return numbers around 1 and -1."""
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))


def _units(subject: Subject, gauge: Gauge) -> list[NDArray]:
    """Return what errors of each derivative are relative to: itself, as far as rounding lets it have a size.

    A derivative of zero is measured against the largest one, and if all are zero, against the value.
    """
    value = sum(float(np.sum(np.abs(w * y))) for w, y in zip(subject.weights, subject.outs, strict=True))
    units = []
    for x, g, residue in zip(subject.arrays, subject.gradients, subject.residues, strict=True):
        unit = np.maximum(np.abs(g), 8.0 * residue / gauge.tolerance)
        flat = gauge.largest or value / np.maximum(1.0, np.abs(x))
        units.append(np.maximum(np.where(unit == 0.0, flat, unit), SMALLEST))
    return units


def _pushed(subject: Subject, arrays: Sequence[NDArray], tangents: Sequence[Any]) -> tuple[float, float]:
    """Return <w, J t> by forward mode, and the size of its terms."""
    _, pushed = jvp(subject.of_floats, tuple(x.copy() for x in arrays), tuple(tangents))
    found = [np.asarray(t.array if isinstance(t, Value) else t, np.float64) for t in tree.leaves(pushed)]
    return _product(subject.weights, found), sum(
        float(np.sum(np.abs(w * t))) for w, t in zip(subject.weights, found, strict=True)
    )


def _product(weights: Sequence[NDArray], values: Sequence[NDArray]) -> float:
    return sum(float(np.sum(w * x)) for w, x in zip(weights, values, strict=True))


def _scatter(subject: Subject, gauge: Gauge, tangents: Sequence[NDArray]) -> float:
    """Return how far the differences of both modes lie apart some units away, where they round in other ways.

    An error of a rule is the same there. So is one that shows only at the point, as of a tie: there is none at all.
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(REPEATS):
        arrays = [x * (1.0 + AWAY * gauge.unit * rng.uniform(-1.0, 1.0, x.shape)) for x in subject.arrays]
        try:
            # Sweeps of tracked tensors run rules as ops, which round a little more here: what is added to something
            # large and lost would be lost in the same way again.
            with Shaken(rng, is_any=True), enable_grad():
                difference = _difference(subject, arrays, tangents, rng, lambda x: wrap(Tensor, x, LEAF))
        except Exception:  # As that of a rule that does not run on tensors.
            difference = _difference(subject, arrays, tangents, rng, lambda x: x)
        if math.isfinite(difference):
            found.append(difference)
    return max(found) - min(found) if found else 0.0


def _difference(
    subject: Subject,
    arrays: Sequence[NDArray],
    tangents: Sequence[NDArray],
    rng: "np.random.Generator",
    given: Callable[[NDArray], Any],
) -> float:
    """Return <w, J t> - <J^T w, t> from (co)tangents of other sizes; NaN outside of the domain."""
    ahead, back = rng.uniform(0.5, 2.0, 2)
    try:
        forward, _ = _pushed(subject, arrays, [given(ahead * t) for t in tangents])
        gradients = subject.gradients_at(arrays, [given(back * w) for w in subject.weights])
    except (ArithmeticError, ValueError):
        return math.nan
    return forward / float(ahead) - _product(gradients, tangents) / float(back)
