"""A rule that depends on more than its arguments is never frozen, wherever it keeps what it reads."""

import itertools
import os
import random
from types import ModuleType

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


elsewhere = ModuleType("elsewhere")
exec(
    """
import functools, os
scale = 1.0
table = {"k": 1.0}
class Config: k = 1.0
config = Config()
def read(): return scale
def marked(): return marked.k
marked.k = 1.0
def with_default(table=table): return table["k"]
def with_number(k=1.0): return k
@functools.lru_cache
def cached(): return scale
""",
    vars(elsewhere),
)
box = 1.0
with_number = elsewhere.with_number


def set_all(value):
    """Change all that the rules below read."""
    global box
    elsewhere.scale = elsewhere.table["k"] = elsewhere.Config.k = elsewhere.config.k = elsewhere.marked.k = box = value
    elsewhere.with_number.__defaults__ = (value,)
    elsewhere.cached.cache_clear()
    os.environ["NUMTAPE_TEST"] = str(value)


class Base(optim.Optimizer):
    k = 1.0

    def __init__(self, params, lr=1.0):
        super().__init__(params, lr=lr)
        self.own = 1.0
        self.defaults["k"] = 1.0

    def tenfold(self):
        return 10.0 * self.k

    @property
    def half(self):
        return self.own / 2.0

    @staticmethod
    def fixed():
        return box


def rule(read, is_captured):
    """Return an optimizer whose rule is scaled by what `read` gives of it."""

    class Reading(Base):
        def update(self, param, grad, state, lr):
            raise AssertionError

    found = {}
    code = f"def update(self, param, grad, state, lr): return param - ({read}) * lr * grad, {{}}"
    exec(code, globals(), found)
    Reading.update = found["update"]
    return pytest.param(Reading, is_captured, id=read)


@pytest.mark.parametrize(
    ("cls", "is_captured"),
    [
        rule("elsewhere.read()", True),
        rule("elsewhere.scale", True),
        rule("elsewhere.Config.k", True),
        rule("box", True),
        rule("self.own", True),
        rule("self.k", True),
        rule("self.tenfold() / 10.0", True),
        rule("self.half * 2.0", True),
        rule("self.fixed()", True),
        rule("(lambda: self.own)()", True),
        rule("sum([self.own for _ in range(2)]) / 2.0", True),
        rule("elsewhere.with_number()", True),
        rule("elsewhere.table['k']", False),
        rule("elsewhere.config.k", False),
        rule("elsewhere.marked()", False),
        rule("elsewhere.with_default()", False),
        rule("elsewhere.cached()", False),
        rule("float(os.environ['NUMTAPE_TEST'])", False),
        rule("float(os.getenv('NUMTAPE_TEST'))", False),
        rule("getattr(self, 'own')", False),
        rule("vars(self)['own']", False),
        rule("self.__dict__['own']", False),
        rule("type(self).k", False),
        rule("self.__class__.k", False),
        rule("self.defaults['k']", False),
        rule("globals()['box']", False),
        rule("eval('box')", False),
        rule("(elsewhere if lr else nt).scale", False),
        rule("__import__('sys').modules['os'].environ['NUMTAPE_TEST'] and box", False),
        rule("(lambda f: f.k)(elsewhere.marked)", False),
        rule("with_number()", True),
    ],
)
def test_a_rule_sees_what_changes_wherever_it_reads_it(cls, is_captured):
    w = nt.zeros(1)
    before = dict(os.environ)
    set_all(1.0)
    optimizer = cls([w])
    try:
        optimizer.step([np.ones(1)])
        set_all(10.0)
        optimizer.own = optimizer.defaults["k"] = cls.k = 10.0
        optimizer.step([np.ones(1)])
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert w.item() == -11.0
    assert (None not in optimizer._rule._programs.values()) == is_captured


def test_a_function_that_is_replaced_is_looked_at_anew():
    class Replaced(Base):
        def update(self, param, grad, state, lr):
            return param - self.tenfold() * elsewhere.with_number() * lr * grad, {}

    set_all(1.0)
    w = nt.zeros(1)
    optimizer = Replaced([w])
    optimizer.step([np.ones(1)])
    Replaced.tenfold = lambda self: elsewhere.table["k"]
    optimizer.step([np.ones(1)])
    set_all(10.0)
    optimizer.step([np.ones(1)])
    assert w.item() == -111.0
    optimizer.tenfold = lambda: 0.0
    optimizer.step([np.ones(1)])
    Replaced.update = lambda self, param, grad, state, lr: (param + 1.0, {})
    optimizer.step([np.ones(1)])
    assert w.item() == -110.0


def test_another_function_that_reads_the_same_makes_another_program():
    class Replaced(Base):
        def update(self, param, grad, state, lr):
            return param - self.tenfold() * lr * grad, {}

    w = nt.zeros(1)
    optimizer = Replaced([w])
    optimizer.step([np.ones(1)])
    Replaced.tenfold = lambda self: 100.0 * self.k
    optimizer.step([np.ones(1)])
    assert w.item() == -110.0
    assert None not in optimizer._rule._programs.values()


def test_what_super_finds_may_change_as_well():
    class Parent(Base):
        k = 1.0

        def scale(self):
            return 1.0

    class Child(Parent):
        k = 5.0

        def scale(self):
            return 5.0

        def update(self, param, grad, state, lr):
            return param - super().k * super().scale() * lr * grad, {}

    w = nt.zeros(1)
    optimizer = Child([w])
    optimizer.step([np.ones(1)])
    Parent.k = 10.0
    optimizer.step([np.ones(1)])
    Parent.scale = lambda self: 10.0
    optimizer.step([np.ones(1)])
    assert w.item() == -111.0
    assert None not in optimizer._rule._programs.values()


def test_what_is_equal_but_not_the_same_makes_another_program():
    class Signed(Base):
        def update(self, param, grad, state, lr):
            return param - lr * grad / nt.maximum(self.own, -1.0), {}

    w = nt.zeros(1)
    optimizer = Signed([w])
    optimizer.own = 0.0
    optimizer.step([np.ones(1)])
    optimizer.own = -0.0
    optimizer.step([np.ones(1)])
    assert len(optimizer._rule._programs) == 2


def test_an_option_that_is_an_object_runs_whole():
    class Options:
        k = 1.0

    class Reading(optim.Optimizer):
        def update(self, param, grad, state, lr, options):
            return param - options.k * lr * grad, {}

    w = nt.zeros(1)
    options = Options()
    optimizer = Reading([w], lr=1.0, options=options)
    optimizer.step([np.ones(1)])
    options.k = 10.0
    optimizer.step([np.ones(1)])
    assert w.item() == -11.0


def test_a_rule_that_calls_its_parents_is_captured_with_all_of_them():
    class Parent(Base):
        def update(self, param, grad, state, lr):
            return param - self.own * lr * grad, {}

    class Child(Parent):
        def update(self, param, grad, state, lr):
            return super().update(param, 2.0 * grad, state, lr)

    class Counting(Parent):
        def update(self, param, grad, state, lr):
            return super().update(param, grad * self.tenfold(), state, lr)

        def tenfold(self):
            return super().tenfold()

    for cls, wanted in ((Child, -22.0), (Counting, -110.0)):
        w = nt.zeros(1)
        optimizer = cls([w])
        optimizer.step([np.ones(1)])
        optimizer.own = 10.0
        optimizer.step([np.ones(1)])
        assert w.item() == wanted
        assert None not in optimizer._rule._programs.values()


def test_a_rule_may_look_at_the_parameter_itself():
    class ByName(optim.Optimizer):
        def update(self, param, grad, state, lr):
            return (param - lr * grad if param.name == "a" else param + lr * grad), {}

    a, b = nt.zeros(1, name="a"), nt.zeros(1, name="b")
    ByName([a, b], lr=1.0).step([np.ones(1), np.ones(1)])
    assert (a.item(), b.item()) == (-1.0, 1.0)


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
