"""Memory budgets of a tape: what is planned comes true, and what cannot be met is said, with what would do."""

import warnings

import numpy as np

import numtape as nt


def test_the_warning_about_a_backward_that_nobody_planned_points_at_the_users_line():
    x = nt.tensor(np.ones(1000), requires_grad=True)
    with nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=4 * 8000 / 2**20)):
        h = x
        for _ in range(60):
            h = nt.sin(h) * 1.1
        loss = (h * h).mean()
    del h
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss.backward()
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message).startswith("memory_budget_mb: this backward takes ")
    with open(__file__) as file:
        assert file.read().splitlines()[warning.lineno - 1].strip() == "loss.backward()"
