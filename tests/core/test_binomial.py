"""The best places to keep states, against a search over all of them."""

import functools

import pytest

from numtape.core.binomial import advances, best_step


@functools.cache
def fewest(units, slots):
    if units <= 1:
        return 0
    if slots == 0:
        return units * (units - 1) // 2
    return min(step + fewest(units - step, slots - 1) + fewest(step, slots) for step in range(1, units))


@pytest.mark.parametrize("slots", range(1, 8))
def test_no_schedule_runs_fewer_units_again(slots):
    for units in range(1, 40):
        assert advances(units, slots) == fewest(units, slots)


@pytest.mark.parametrize("slots", range(1, 8))
def test_the_first_step_is_one_of_the_best(slots):
    for units in range(slots + 1, 40):
        step = best_step(units, slots)
        assert 1 <= step < units
        assert step + fewest(units - step, slots - 1) + fewest(step, slots) == fewest(units, slots)


def test_known_numbers():
    assert advances(10, 0) == 45
    assert advances(10, 9) == 9
    assert advances(10, 3) == 14
