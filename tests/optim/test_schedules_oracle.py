"""Schedules give the rates of PyTorch's classes of the same names."""

import numpy as np
import pytest

import numtape as nt

torch = pytest.importorskip("torch")

CASES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 7, 7], "gamma": 0.3}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    ("PolynomialLR", {"total_iters": 9, "power": 1.7}),
    ("LambdaLR", {"lr_lambda": lambda step: 1.0 / (1 + step)}),
    ("OneCycleLR", {"max_lr": 0.7, "total_steps": 25}),
    ("OneCycleLR", {"max_lr": 0.7, "total_steps": 25, "three_phase": True, "pct_start": 0.4}),
    ("OneCycleLR", {"max_lr": 0.7, "epochs": 5, "steps_per_epoch": 6, "anneal_strategy": "linear", "pct_start": 0.25}),
]


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_rates_and_momenta_equal_pytorchs(name, options):
    theirs = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.4, momentum=0.9)
    ours = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.4, momentum=0.9)
    their_schedule = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    our_schedule = getattr(nt.optim, name)(ours, **options)
    found, expected = [], []
    for _ in range(24):
        found.append((our_schedule.get_last_lr()[0], ours.param_groups[0]["momentum"]))
        expected.append((their_schedule.get_last_lr()[0], theirs.param_groups[0]["momentum"]))
        their_schedule.step()
        our_schedule.step()
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-16)


CHAINED = [CASES[0], CASES[1], CASES[2], CASES[3], CASES[4], ("MultiStepLR", {"milestones": [0, 4], "gamma": 0.3})]


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("second", CHAINED)
@pytest.mark.parametrize("first", [*CHAINED, CASES[5]])
def test_two_schedules_and_a_change_by_hand_work_together_as_in_pytorch(first, second):
    theirs = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.4)
    ours = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.4)
    their_schedules = [getattr(torch.optim.lr_scheduler, name)(theirs, **options) for name, options in (first, second)]
    our_schedules = [getattr(nt.optim, name)(ours, **options) for name, options in (first, second)]
    found, expected = [], []
    for epoch in range(24):
        found.append(ours.param_groups[0]["lr"])
        expected.append(theirs.param_groups[0]["lr"])
        if epoch == 5:
            ours.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = 0.25
        for schedule in (*their_schedules, *our_schedules):
            schedule.step()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-16)


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(("name", "options"), CHAINED)
def test_a_schedule_made_for_a_later_step_goes_on_as_in_pytorch(name, options):
    theirs = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.2)
    ours = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.2)
    ours.param_groups[0]["initial_lr"] = theirs.param_groups[0]["initial_lr"] = 0.4
    their_schedule = getattr(torch.optim.lr_scheduler, name)(theirs, last_epoch=3, **options)
    our_schedule = getattr(nt.optim, name)(ours, last_epoch=3, **options)
    found, expected = [], []
    for _ in range(12):
        found += our_schedule.get_last_lr()
        expected += their_schedule.get_last_lr()
        their_schedule.step()
        our_schedule.step()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateaus_equal_pytorchs(mode, threshold_mode):
    theirs = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.4)
    ours = nt.optim.SGD([nt.zeros(2, requires_grad=True)], lr=0.4)
    options = {"mode": mode, "threshold_mode": threshold_mode, "patience": 2, "cooldown": 1, "threshold": 0.1}
    their_schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    our_schedule = nt.optim.ReduceLROnPlateau(ours, **options)
    for value in np.random.default_rng(5).normal(size=60):
        their_schedule.step(value)
        our_schedule.step(value)
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-14)
