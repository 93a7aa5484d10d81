"""Every op and composed function, on every sample, against every check."""

import numpy as np
import pytest

from numtape.core.op import Op
from numtape.testing import op_checks

ENTRIES = op_checks.entries()
NAMES = [entry.name for entry in ENTRIES]
CHECKS = [*op_checks.VALUE_CHECKS, *op_checks.DERIVATIVE_CHECKS]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_op(entry, check):
    with np.errstate(all="ignore"):
        op_checks.check_entry(entry, check)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_rejected_samples_raise_their_message(entry):
    for rejected in op_checks.rejections(entry):
        op_checks.check_rejected(entry, rejected)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_op_has_enough_samples_and_a_documented_face(entry):
    assert len(op_checks.samples(entry)) >= 8, "at least 8 samples"
    assert entry.face.__doc__
    if isinstance(entry, Op):
        assert entry.summary.endswith(".")
