"""Schedules set the rates that their formulas say, resume from a saved state, and refuse what makes no sense."""

import math

import numpy as np
import pytest

import numtape as nt
from numtape import optim
from numtape.errors import ArgumentError, OperandError


def optimizer(lr=1.0, **options):
    return optim.SGD([nt.zeros(2, requires_grad=True)], lr=lr, **options)


def rates(schedule, count):
    found = []
    for _ in range(count):
        found.append(schedule.get_last_lr()[0])
        schedule.step()
    return found


def test_step():
    assert rates(optim.StepLR(optimizer(), 2, gamma=0.5), 5) == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_multistep_counts_a_milestone_given_twice_twice():
    assert rates(optim.MultiStepLR(optimizer(), [3, 1, 3], gamma=0.5), 5) == [1.0, 0.5, 0.5, 0.125, 0.125]


def test_exponential():
    assert rates(optim.ExponentialLR(optimizer(), gamma=0.5), 4) == [1.0, 0.5, 0.25, 0.125]


def test_polynomial_ends_at_zero():
    assert rates(optim.PolynomialLR(optimizer(), total_iters=4, power=2.0), 6) == [1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]


def test_cosine():
    expected = [0.2 + 0.4 * (1 + math.cos(math.pi * t / 5)) for t in range(8)]
    assert rates(optim.CosineAnnealingLR(optimizer(), 5, eta_min=0.2), 8) == pytest.approx(expected, abs=1e-15)


def test_warmup_cosine_rises_in_a_line_falls_on_a_cosine_and_stays():
    found = rates(optim.WarmupCosineLR(optimizer(2.0), warmup_steps=4, total_steps=8, eta_min=1.0), 10)
    cosine = [1.0 + 0.5 * (1 + math.cos(math.pi * t / 4)) for t in range(5)]
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, *cosine, 1.0], abs=1e-15)


def test_a_function_for_each_group():
    both = optim.SGD([{"params": [nt.zeros(1)]}, {"params": [nt.zeros(1)], "lr": 0.5}], lr=1.0)
    schedule = optim.LambdaLR(both, [lambda step: 1.0 / (1 + step), lambda step: 2.0**step])
    schedule.step()
    schedule.step()
    assert schedule.get_last_lr() == [1.0 / 3, 2.0]


def test_one_cycle_moves_rate_and_momentum_in_opposite_directions():
    chosen = optim.Adam([nt.zeros(1)], betas=(0.9, 0.99))
    schedule = optim.OneCycleLR(chosen, max_lr=1.0, total_steps=10)
    momenta, found = [], []
    for _ in range(10):
        momenta.append(chosen.param_groups[0]["betas"][0])
        found.append(schedule.get_last_lr()[0])
        if len(found) < 10:
            schedule.step()
    assert found[0] == pytest.approx(0.04)
    assert found[2] == 1.0
    assert found[-1] == pytest.approx(4e-6)
    assert momenta[0] == 0.95
    assert momenta[2] == pytest.approx(0.85)
    assert momenta[-1] == pytest.approx(0.95)
    assert chosen.param_groups[0]["betas"][1] == 0.99


def test_one_cycle_does_not_go_on_after_its_last_step():
    schedule = optim.OneCycleLR(optimizer(momentum=0.9), max_lr=1.0, epochs=2, steps_per_epoch=1)
    schedule.step()
    last = schedule.get_last_lr()
    schedule.step()
    assert schedule.get_last_lr() == last
    with pytest.raises(ArgumentError) as caught:
        schedule.step()
    assert str(caught.value) == ("OneCycleLR: all 2 steps are taken; make the schedule with as many as it is stepped.")
    assert schedule.last_epoch == 2


@pytest.mark.parametrize(("mode", "values"), [("min", [3.0, 2.0, 2.0, 2.0, 2.0]), ("max", [3.0, 4.0, 4.0, 3.0, 4.0])])
def test_a_plateau_reduces_the_rate_after_patience(mode, values):
    chosen = optimizer()
    schedule = optim.ReduceLROnPlateau(chosen, mode=mode, factor=0.5, patience=2)
    found = []
    for value in values:
        schedule.step(value)
        found += schedule.get_last_lr()
    assert found == [1.0, 1.0, 1.0, 1.0, 0.5]


def test_a_plateau_takes_a_loss_tensor_and_stops_at_the_least_rate():
    schedule = optim.ReduceLROnPlateau(optimizer(), factor=0.1, patience=0, min_lr=0.05)
    for _ in range(4):
        schedule.step(nt.tensor(1.0, requires_grad=True) * 1.0)
    assert schedule.get_last_lr() == [0.05]


MAKERS = [
    lambda o: optim.StepLR(o, 2),
    lambda o: optim.MultiStepLR(o, [2, 5]),
    lambda o: optim.ExponentialLR(o, 0.9),
    lambda o: optim.PolynomialLR(o, 9),
    lambda o: optim.CosineAnnealingLR(o, 9),
    lambda o: optim.WarmupCosineLR(o, 3, 9),
    lambda o: optim.LambdaLR(o, lambda step: 0.9**step),
    lambda o: optim.OneCycleLR(o, 1.0, 12),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_schedule_resumes_bit_for_bit(make):
    first = optimizer(0.3, momentum=0.9)
    schedule = make(first)
    for _ in range(4):
        schedule.step()
    second = optimizer(0.3, momentum=0.9)
    again = make(second)
    second.load_state_dict(first.state_dict())
    again.load_state_dict(schedule.state_dict())
    for _ in range(4):
        schedule.step()
        again.step()
        assert again.get_last_lr() == schedule.get_last_lr()
        assert first.param_groups[0]["momentum"] == second.param_groups[0]["momentum"]


def test_two_schedules_multiply_the_rate_one_after_the_other():
    chosen = optimizer()
    schedules = [optim.ExponentialLR(chosen, 0.5), optim.StepLR(chosen, 3, gamma=0.25)]
    found = []
    for _ in range(5):
        found += schedules[0].get_last_lr()
        for schedule in schedules:
            schedule.step()
    assert found == [1.0, 0.5, 0.25, 0.03125, 0.015625]


def test_a_rate_set_by_hand_is_gone_on_from():
    chosen = optimizer()
    schedule = optim.ExponentialLR(chosen, 0.5)
    schedule.step()
    chosen.param_groups[0]["lr"] = 8.0
    assert rates(schedule, 3) == [8.0, 4.0, 2.0]


def test_a_schedule_made_after_another_starts_from_the_same_first_rate():
    chosen = optimizer()
    optim.LambdaLR(chosen, lambda step: 0.125)
    assert optim.StepLR(chosen, 2).base_lrs == [1.0]
    assert chosen.param_groups[0]["lr"] == 0.125


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_schedules_resume_in_any_order_with_a_rate_set_by_hand(order):
    pairs = []
    for _ in range(2):
        chosen = optimizer(0.5)
        pairs.append((chosen, [optim.CosineAnnealingLR(chosen, 9), optim.StepLR(chosen, 2)]))
    (first, schedules), (second, again) = pairs
    first.param_groups[0]["lr"] = 0.75
    for schedule in schedules:
        schedule.step()
    for place in order:
        again[place].load_state_dict(schedules[place].state_dict())
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]
    for schedule in (*schedules, *again):
        schedule.step()
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]


def test_a_plateau_resumes():
    first, second = optimizer(), optimizer()
    schedule, again = optim.ReduceLROnPlateau(first, patience=1), optim.ReduceLROnPlateau(second, patience=1)
    for value in (1.0, 1.0):
        schedule.step(value)
    again.load_state_dict(schedule.state_dict())
    again.step(1.0)
    assert again.get_last_lr() == [0.1]


def test_a_schedule_changes_the_steps_without_capturing_the_rule_again():
    w = nt.tensor([0.0], requires_grad=True)
    chosen = optim.SGD([w], lr=1.0)
    schedule = optim.ExponentialLR(chosen, 0.5)
    for _ in range(3):
        chosen.step([nt.ones(1)])
        schedule.step()
    assert w.item() == -1.75
    assert len(chosen._rule._programs) == 1


ERRORS = [
    (lambda: optim.StepLR(optimizer(), 0), "StepLR: step_size is 0; it must be an integer above 0."),
    (
        lambda: optim.CosineAnnealingLR(optimizer(), 2.5),
        "CosineAnnealingLR: T_max is 2.5; it must be an integer above 0.",
    ),
    (
        lambda: optim.WarmupCosineLR(optimizer(), 5, 5),
        "WarmupCosineLR: warmup_steps is 5; it must be an integer from 0 up to, but not including, total_steps, 5.",
    ),
    (
        lambda: optim.LambdaLR(optimizer(), [abs, abs]),
        "LambdaLR: there are 1 groups and 2 functions.",
    ),
    (
        lambda: optim.OneCycleLR(optimizer(momentum=0.9), 1.0),
        "OneCycleLR: give total_steps, or both epochs and steps_per_epoch.",
    ),
    (
        lambda: optim.OneCycleLR(optimizer(momentum=0.9), 1.0, 10, anneal_strategy="sine"),
        'OneCycleLR: anneal_strategy is \'sine\'; it must be "cos" or "linear".',
    ),
    (
        lambda: optim.OneCycleLR(optim.Adagrad([nt.zeros(1)]), 1.0, 10),
        "OneCycleLR: the optimizer has no momentum or betas to cycle; use cycle_momentum=False.",
    ),
    (
        lambda: optim.ReduceLROnPlateau(optimizer(), mode="less"),
        'ReduceLROnPlateau: mode is \'less\'; it must be "min" or "max".',
    ),
    (
        lambda: optim.ReduceLROnPlateau(optimizer(), factor=1.5),
        "ReduceLROnPlateau: factor is 1.5; it must be a number from 0 up to, but not including, 1.",
    ),
    (
        lambda: optim.StepLR(optimizer(), 2, last_epoch=3),
        'StepLR: last_epoch is 3, but the optimizer\'s groups have no "initial_lr" to go on from; load the '
        "optimizer's state first.",
    ),
    (
        lambda: optim.StepLR(optimizer(), 2).load_state_dict({"T_max": 3}),
        "StepLR.load_state_dict: T_max is not of this schedule.",
    ),
]


@pytest.mark.parametrize(("make", "message"), ERRORS)
def test_a_schedule_that_makes_no_sense_says_why(make, message):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert str(caught.value) == message


def test_a_schedule_wants_an_optimizer():
    with pytest.raises(OperandError) as caught:
        optim.StepLR([nt.zeros(1)], 2)
    assert str(caught.value) == "StepLR: takes the optimizer whose learning rates to set, not list."


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda o: optim.StepLR(o, 1, gamma=0.5), [0.5, 0.1]),
        (lambda o: optim.LambdaLR(o, lambda step: 0.5**step), [0.5, 0.1]),
        (lambda o: optim.CosineAnnealingLR(o, 2), [0.5, 0.1]),
        (lambda o: optim.MultiStepLR(o, [1], gamma=0.5), [0.5, 0.1]),
        (lambda o: optim.PolynomialLR(o, 2), [0.5, 0.1]),
        (lambda o: optim.WarmupCosineLR(o, 1, 3), [1.0, 0.2]),
    ],
)
def test_a_group_that_is_added_later_follows_the_schedule(make, wanted):
    optimizer = optim.SGD([nt.zeros(1, requires_grad=True)], lr=1.0)
    schedule = make(optimizer)
    optimizer.add_param_group({"params": [nt.zeros(1, requires_grad=True)], "lr": 0.2})
    schedule.step()
    np.testing.assert_allclose(schedule.get_last_lr(), wanted, rtol=1e-15)


def test_a_plateau_reduces_the_rate_of_a_group_that_is_added_later():
    optimizer = optim.SGD([nt.zeros(1, requires_grad=True)], lr=1.0)
    schedule = optim.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    optimizer.add_param_group({"params": [nt.zeros(1, requires_grad=True)], "lr": 0.2})
    for _ in range(2):
        schedule.step(1.0)
    assert schedule.get_last_lr() == [0.5, 0.1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: optim.LambdaLR(o, [lambda step: 0.5]), "LambdaLR: there are 2 groups and 1 functions."),
        (
            lambda o: optim.OneCycleLR(o, 0.1, 10),
            "OneCycleLR: there are 2 groups and 1 largest rates; make it after the last group.",
        ),
        (
            lambda o: optim.ReduceLROnPlateau(o, patience=0, min_lr=[0.1]),
            "ReduceLROnPlateau: there are 2 groups and 1 numbers in min_lr.",
        ),
    ],
)
def test_a_schedule_with_something_for_each_group_says_that_one_was_added(make, message):
    optimizer = optim.SGD([nt.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    schedule = make(optimizer)
    metric = [1.0] if isinstance(schedule, optim.ReduceLROnPlateau) else []
    if metric:
        schedule.step(*metric)
    optimizer.add_param_group({"params": [nt.zeros(1, requires_grad=True)], "lr": 0.2})
    with pytest.raises(ArgumentError) as caught:
        schedule.step(*metric)
    assert str(caught.value) == message
