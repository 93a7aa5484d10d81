"""Every op and composed function, on every sample, against every check."""

import numpy as np
import pytest

from numtape.core.op import Op
from numtape.testing import mode_checks, op_checks

ENTRIES = op_checks.entries()
NAMES = [entry.name for entry in ENTRIES]
CHECKS = [*op_checks.VALUE_CHECKS, *op_checks.DERIVATIVE_CHECKS]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_op(entry, check):
    with np.errstate(all="ignore"):
        op_checks.check_entry(entry, check)


@pytest.mark.parametrize("check", mode_checks.MODE_CHECKS)
@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_all_modes_agree(entry, check):
    for sample in op_checks.samples(entry):
        if op_checks.has_derivative(entry, sample):
            with np.errstate(all="ignore"):
                mode_checks.MODE_CHECKS[check](entry, sample)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if isinstance(entry, Op)], ids=lambda entry: entry.name)
def test_the_jvp_reads_nothing_that_the_vjp_does_not(entry):
    mode_checks.check_reads(entry)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_rejected_samples_raise_their_message(entry):
    for rejected in op_checks.rejections(entry):
        op_checks.check_rejected(entry, rejected)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_op_has_enough_samples_and_a_documented_face(entry):
    assert len(op_checks.samples(entry)) >= 8, "at least 8 samples"
    assert (entry.face.__doc__ or "").partition("\n")[0].endswith(".")


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.facts.is_discrete], ids=lambda entry: entry.name)
def test_what_has_no_derivative_returns_no_floats(entry):
    """So nothing is silently a constant that has a derivative."""
    for sample in op_checks.samples(entry):
        found = entry.face(*sample.args, **sample.params)
        assert all(part.dtype.kind in "biu" for part in (found if isinstance(found, tuple) else (found,)))
