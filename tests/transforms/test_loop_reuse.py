"""Steps that use what earlier ones have made of no state, or only look at earlier states: as the plain loop does."""

from functools import lru_cache

import numpy as np
import pytest
from plain_loops import EXACT, LOOPS, OTHERS, assert_as_plain, constant, leaf

import numtape as nt
from numtape.errors import GradientError

FACTOR = constant(0.3, 0.2)
WEIGHT = leaf(0.4, 0.5)
X = np.array([0.7, 1.1])


def of_the_first_step(make):
    """Return a program whose first step makes something, each time that it runs, which all use."""

    def program(loop, x):
        made = []

        def step(s, i):
            if i == 0:
                made[:] = [make()]
            return nt.sin(s) * made[0] + 0.1 * made[0]

        return loop(step, x, 5)

    return program


def made_once(make):
    """Return a program whose steps make something if it is not there."""

    def program(loop, x):
        made = {}

        def step(s):
            if "it" not in made:
                made["it"] = make()
            return nt.sin(s) * made["it"] + 0.1 * made["it"]

        return loop(step, x, 5)

    return program


def cached(size, make):
    """Return a program whose steps take things from a cache, which may have room for all of them or not."""

    def program(loop, x):
        table = lru_cache(size)(make)
        return loop(lambda s, i: nt.sin(s) * table(i % 3), x, 7)

    return program


def scaled(loop, x):
    scales = []

    def step(s):
        if not scales:
            scales.append(s.detach().abs().max() + 1.0)
        return nt.sin(s) / scales[0]

    return loop(step, x, 5)


def tabulated(loop, x):
    table = {}

    def step(s, i):
        if i not in table:
            table[i] = nt.exp(FACTOR * WEIGHT * float(i))
        return nt.sin(s * table[i])

    return loop(step, x, 5)


def in_loops(loop, x):
    made = {}

    def inner(q, i):
        if "it" not in made:
            made["it"] = nt.exp(FACTOR)
        if i == 0:
            made["first"] = nt.sin(WEIGHT)
        return nt.sin(q) * made["it"] + made["first"]

    return loop(lambda s: loop(inner, s, 3) * 0.9, x, 3)


def filled(loop, x):
    buffer = nt.zeros(2, dtype="float64")

    def step(s):
        with nt.no_grad():
            buffer.copy_(2.0 * s.detach())
        return nt.sin(s) + 2.0 * buffer.detach()

    return loop(step, x, 5)


def detached_before(loop, x):
    seen = []

    def step(s, i):
        seen.append(s.detach())
        return nt.sin(s) * seen[max(i - 1, 0)]

    return loop(step, x, 5)


REUSED = {
    "a mask": of_the_first_step(lambda: (nt.rand(2) > 0.3).astype("float64")),
    "random numbers": of_the_first_step(lambda: nt.rand(2, dtype="float64")),
    "a constant": of_the_first_step(lambda: constant(0.5, 0.6)),
    "a constant computed": of_the_first_step(lambda: nt.exp(FACTOR * 2.0)),
    "a weight computed": of_the_first_step(lambda: nt.exp(FACTOR * WEIGHT)),
    "a leaf": of_the_first_step(lambda: leaf(0.5, 0.6)),
    "a constant made once": made_once(lambda: constant(0.5, 0.6)),
    "a constant computed once": made_once(lambda: nt.exp(constant(0.5, 0.6))),
    "a weight computed once": made_once(lambda: nt.exp(FACTOR * WEIGHT)),
    "a leaf made once": made_once(lambda: leaf(0.5, 0.6)),
    "a cache": cached(None, lambda k: nt.exp(FACTOR * k)),
    "a small cache": cached(2, lambda k: nt.exp(FACTOR * k)),
    "a small cache of constants": cached(2, lambda k: constant(0.1 * k, 0.2)),
    "a small cache of weights": cached(2, lambda k: nt.exp(FACTOR * WEIGHT * k)),
    "a scale of the first state": scaled,
    "a table": tabulated,
    "loops inside": in_loops,
    "a buffer": filled,
    "a detached state": detached_before,
}


@pytest.mark.parametrize("derivative", [*EXACT.values(), *OTHERS.values()], ids=[*EXACT, *OTHERS])
@pytest.mark.parametrize("program", REUSED.values(), ids=REUSED)
def test_steps_may_use_what_others_have_made_of_no_state(program, derivative):
    def seeded(loop, x):
        nt.seed(0)
        return program(loop, x)

    assert_as_plain(seeded, derivative, X)


def pair(s, previous):
    return (s - previous).abs().max().item()


LOOKS = {
    "item": lambda s, p: p[0].item(),
    "float": lambda s, p: float(p.sum()),
    "numpy": lambda s, p: p.detach().numpy(),
    "text": lambda s, p: f"{p} {p!r}",
    "a difference": pair,
    "a comparison": lambda s, p: bool((s > p).any()),
    "a number that steers": lambda s, p: nt.no_grad()(pair)(s, p),
}


def looking_back(look):
    """Return a program whose steps look at the state before."""

    def program(loop, x):
        before = []

        def step(s):
            for previous in before:
                look(s, previous)
            before[:] = [s]
            return nt.sin(s) * 1.1

        return loop(step, x, 5)

    return program


def collecting(collect):
    """Return a program whose steps collect something in a list, and look at it."""

    def program(loop, x):
        log = []

        def step(s):
            collect(log, s)
            str(log[-2:])
            return nt.sin(s) * 1.1

        return loop(step, x, 5)

    return program


def written(loop, x):
    log = nt.zeros(9, 2, dtype="float64")

    def step(s, i):
        log[i] = s
        return nt.sin(s) * 1.1

    return loop(step, x, 5)


LOOKED_AT = {
    **{name: looking_back(look) for name, look in LOOKS.items()},
    "states": collecting(lambda log, s: log.append(s)),
    "results": collecting(lambda log, s: log.append(nt.sin(s).sum())),
    "a running sum": collecting(lambda log, s: log.append(s if not log else log[-1] + s)),
    "the best": collecting(lambda log, s: log.append(min([s.sum(), *log[-1:]], key=float))),
    "a buffer": written,
}


@pytest.mark.parametrize("derivative", [*EXACT.values(), *OTHERS.values()], ids=[*EXACT, *OTHERS])
@pytest.mark.parametrize("program", LOOKED_AT.values(), ids=LOOKED_AT)
def test_earlier_states_may_be_looked_at(program, derivative):
    assert_as_plain(program, derivative, X)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_an_earlier_state_that_is_used_is_named_with_the_line(loop):
    before = [constant(1.0, 2.0)]

    def step(s):
        difference = nt.sin(s - before[0])  # The line.
        before[:] = [s]
        return s + difference

    with pytest.raises(GradientError, match=r"uses, at .*nt\.sin\(s - before.*an earlier step has made.*detach\(\)"):
        loop(step, leaf(0.3, 0.7), 4)
    with pytest.raises(GradientError, match="its step returns a tensor"):
        loop(lambda s: before.append(s) or before[-2], leaf(0.3, 0.7), 4)
