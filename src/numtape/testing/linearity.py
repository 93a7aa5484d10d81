"""The test that reverse mode is linear: a rule that forgets its cotangent, or takes its size, is right for one."""

import numpy as np

from ..verdicts.differences import EPSILON
from ..verdicts.judging import Gauge
from .adjoint import SMALLEST
from .subject import Subject

#: The factor of the first cotangent, in its sum with another one; no fraction, which a rule that rounds might keep.
FACTOR = -1.6180339887498949
#: By how many times the tolerance, or the units of rounding, gradients must differ to be called so.
CLEAR = 64.0


def first_bent(subject: Subject, gauge: Gauge) -> str:
    """Return the name of the first argument whose gradient is not linear in the cotangents; empty if all are."""
    rng = np.random.default_rng(2)
    others = [w * rng.uniform(0.5, 1.5, w.shape) * rng.choice([-1.0, 1.0], w.shape) for w in subject.weights]
    sums = [FACTOR * w + v for w, v in zip(subject.weights, others, strict=True)]
    second, both = subject.gradients_at(subject.arrays, others), subject.gradients_at(subject.arrays, sums)
    for name, g, v, found, residue in zip(
        subject.names, subject.gradients, second, both, subject.residues, strict=True
    ):
        size = abs(FACTOR) * np.abs(g) + np.abs(v) + np.abs(found)
        if not np.all(np.isfinite(size)):
            continue  # Which other verdicts tell.
        # What rounding adds to a derivative of zero is small beside others, and as large as it was seen to be.
        rounding = max(gauge.unit, EPSILON) * float(np.max(size, initial=0.0)) + residue + SMALLEST
        if np.any(np.abs(found - (FACTOR * g + v)) > CLEAR * (gauge.tolerance * size + rounding)):
            return name
    return ""
