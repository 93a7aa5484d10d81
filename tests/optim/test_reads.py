"""A rule that depends on more than its arguments is never frozen, wherever it keeps what it reads."""

import itertools
import random

import numpy as np
import pytest

import numtape as nt
from numtape import optim

_count = 0
_settings = {"factor": 0}


class OwnNumber(optim.Optimizer):
    count = 0

    def update(self, param, grad, state, lr):
        self.count += 1
        return param - self.count * lr * grad, {}


class OwnList(optim.Optimizer):
    def __init__(self, params, lr=1.0):
        super().__init__(params, lr=lr)
        self.counts = [0]

    def update(self, param, grad, state, lr):
        self.counts[0] += 1
        return param - self.counts[0] * lr * grad, {}


class NumPyNumber(optim.Optimizer):
    def __init__(self, params, lr=1.0):
        super().__init__(params, lr=lr)
        self.count = np.int64(0)

    def update(self, param, grad, state, lr):
        self.count = self.count + 1
        return param - float(self.count) * lr * grad, {}


class OfTheClass(optim.Optimizer):
    count = 0

    def update(self, param, grad, state, lr):
        OfTheClass.count += 1
        return param - OfTheClass.count * lr * grad, {}


class Global(optim.Optimizer):
    def update(self, param, grad, state, lr):
        global _count
        _count += 1
        return param - _count * lr * grad, {}


class InAStepOfItsOwn(optim.Optimizer):
    def step(self, *args, **kwargs):
        _settings["factor"] += 1
        return super().step(*args, **kwargs)

    def update(self, param, grad, state, lr):
        return param - _settings["factor"] * lr * grad, {}


class InAHelper(optim.Optimizer):
    count = 0

    def next(self):
        self.count += 1
        return self.count

    def update(self, param, grad, state, lr):
        return param - self.next() * lr * grad, {}


class InAParent(OwnNumber):
    def update(self, param, grad, state, lr):
        return super().update(param, grad, state, lr)


class MadeOnTheWay(optim.Optimizer):
    def update(self, param, grad, state, lr):
        if not hasattr(self, "count"):
            self.count = 0
        self.count += 1
        return param - self.count * lr * grad, {}


def enclosed():
    count = 0
    numbers = itertools.count(1)

    class Variable(optim.Optimizer):
        def update(self, param, grad, state, lr):
            nonlocal count
            count += 1
            return param - count * lr * grad, {}

    class Iterating(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param - next(numbers) * lr * grad, {}

    return [Variable, Iterating]


RULES = [OwnNumber, OwnList, NumPyNumber, OfTheClass, Global, InAStepOfItsOwn, InAHelper, InAParent, MadeOnTheWay]


@pytest.mark.parametrize("cls", [*RULES, *enclosed()], ids=lambda cls: cls.__name__)
def test_a_rule_that_counts_counts_each_step_once(cls):
    w = nt.zeros(1)
    optimizer = cls([w], lr=1.0)
    for _ in range(4):
        optimizer.step([np.ones(1)])
    assert w.item() == -10.0


def test_what_is_set_from_outside_between_steps_is_seen():
    factor = 1.0

    class Outside(optim.Optimizer):
        scale = 1.0

        def update(self, param, grad, state, lr):
            return param - self.scale * factor * lr * grad, {}

    w = nt.zeros(1)
    optimizer = Outside([w], lr=1.0)
    optimizer.step([np.ones(1)])
    factor = 10.0
    optimizer.step([np.ones(1)])
    Outside.scale = 10.0
    optimizer.step([np.ones(1)])
    assert w.item() == -111.0
    assert None not in optimizer._rule._programs.values()


def test_a_rule_that_draws_numbers_draws_them_in_each_step():
    class Drawing(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return param - random.random() * lr * grad, {}

    w = nt.zeros(1)
    optimizer = Drawing([w], lr=1.0)
    found = []
    for _ in range(4):
        optimizer.step([np.ones(1)])
        found.append(w.item())
    assert len(set(np.diff(found).round(6))) == 3


@pytest.mark.parametrize(
    "cls", [optim.SGD, optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adagrad, optim.RMSprop, optim.Adadelta]
)
def test_the_rules_of_the_library_are_captured(cls):
    optimizer = cls([nt.zeros(1)])
    optimizer.step([np.ones(1)])
    assert None not in optimizer._rule._programs.values()
