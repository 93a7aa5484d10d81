"""Steps that use what earlier ones have made of no state, or only look at earlier states: as the plain loop does."""

from functools import lru_cache

import numpy as np
import pytest
from plain_loops import EXACT, LOOPS, OTHERS, array, assert_as_plain, constant, leaf, plain, total

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


def sources_of(program):
    """Return what a program gives with each loop: gradients by all that steps have made, too."""
    for loop in (plain, *LOOPS.values()):
        with nt.Tape() as tape:
            x, y, sources = program(loop)
        yield [array(g) for g in tape.gradient(total(y) if not isinstance(y, nt.Tensor) else y, [x, *sources()])]


def masked_by(make):
    def program(loop):
        x, made = constant(0.7, 1.1), []

        def step(s, i):
            if i == 0:
                made[:] = make()
            return nt.sin(s) * made[0] + made[-1] * made[-1]

        return x, loop(step, x, 5).sum(), lambda: [FACTOR, WEIGHT, *made]

    return program


def tables_of(size):
    def program(loop):
        x, made = constant(0.7, 1.1), []

        @lru_cache(size)
        def table(k):
            made.append(nt.exp(FACTOR * WEIGHT * k))
            return made[-1]

        y = loop(lambda s, i: nt.sin(s) * table(i % 3), x, 7).sum()
        return x, y, lambda: [FACTOR, WEIGHT, *made]

    return program


def passed_on(loop):
    x, made = constant(0.7, 1.1), {}

    def step(s, i):
        if i == 0:
            made["leaf"], made["sine"] = leaf(0.5, 0.6), nt.sin(WEIGHT)
        return nt.sin(s[0] * s[1]) + s[2], made["leaf"], made["sine"]

    return x, sum(part.sum() for part in loop(step, (x, x * 1.0, x * 2.0), 4)), lambda: [WEIGHT, *made.values()]


MADE = {
    "constants": masked_by(lambda: [constant(0.5, 0.6), constant(0.5, 0.6)]),
    "leaves": masked_by(lambda: [leaf(0.5, 0.6), leaf(0.5, 0.6)]),
    "results": masked_by(lambda: [nt.exp(FACTOR * WEIGHT), nt.sin(FACTOR)]),
    "a table": tables_of(None),
    "a table of one": tables_of(1),
    "a table of two": tables_of(2),
    "what is passed on": passed_on,
}


@pytest.mark.parametrize("program", MADE.values(), ids=MADE)
def test_what_steps_make_and_others_use_gets_its_gradient(program):
    expected, *found = sources_of(program)
    for each in found:
        assert len(each) == len(expected)
        for a, b in zip(each, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def of_list(leaves):
    return lambda i: leaves.append(leaf(0.5 + i, 0.6)) or leaves[-1]


def of_dict(leaves):
    return lambda i: leaves[i] if i in leaves else leaves.setdefault(i, leaf(0.5 + i, 0.6))


def of_dict_anew(leaves):
    return lambda i: leaves.update({i: leaf(0.5 + i, 0.6)}) or leaves[i]


def of_the_first(leaves):
    def made(i):
        if i == 0:
            leaves[0] = leaf(0.5, 0.6)
        return leaves[0]

    return made


@pytest.mark.parametrize("kept", [(list, of_list), (dict, of_dict), (dict, of_dict_anew), (dict, of_the_first)])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_leaves_that_a_step_makes_and_somebody_keeps_get_their_gradients(loop, kept):
    make, fill = kept

    def gradients(loop):
        leaves, x = make(), leaf(0.7, 1.1)
        get = fill(leaves)
        y = loop(lambda s, i: nt.sin(s * get(i)), x, 5)
        count = len(leaves)
        y.sum().backward()
        made = list(leaves.values()) if isinstance(leaves, dict) else leaves
        return [x.grad.tolist(), *(each.grad.tolist() for each in made[:count])]

    assert gradients(loop) == gradients(plain)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_leaf_that_is_kept_for_its_own_gradient_is_no_matter(loop):
    def gradients(loop):
        kept, x = [None], leaf(0.7, 1.1)

        def step(s):
            kept[0] = s.detach().requires_grad_()
            (kept[0] ** 4).sum().backward()
            return nt.sin(s) - 0.01 * kept[0].grad

        loop(step, x, 5).sum().backward()
        assert kept[0].grad is not None  # Of the step that ran last.
        return x.grad.tolist()

    assert gradients(loop) == gradients(plain)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_another_leaf_in_the_place_of_one_that_was_made_outside_is_named(loop):
    held = [leaf(0.4, 0.3)]

    def step(s):
        y = nt.sin(s * held[0])
        held[0] = leaf(0.5, 0.6)
        return y

    y = loop(step, leaf(0.7, 1.1), 5).sum()
    with pytest.raises(GradientError, match=r"took .* from outside|gave other values"):
        y.backward()


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_random_numbers_of_the_first_step_that_are_others_again_are_named(loop):
    rng, made = np.random.default_rng(0), []

    def step(s, i):
        if i == 0:
            made[:] = [nt.tensor(rng.normal(size=2))]
        return nt.sin(s) * made[0]

    for cls in (nt.Tape, nt.GradientTape):
        x = constant(0.7, 1.1)
        with cls() as tape:
            tape.watch(x)
            y = loop(step, x, 5).sum()
        with pytest.raises(GradientError, match=r"took other tensors|took a tensor|gave other values"):
            tape.gradient(y, x)


def drawn_once(draw, rng):
    """Return a program that draws something if it is not there, and draws again in that step or later."""

    def program(loop, x):
        nt.seed(0)
        made, stream = {}, nt.Generator(3) if rng else None

        def step(s, i):
            if "it" not in made:
                made["it"] = nt.rand(2, dtype="float64", rng=stream)
            return nt.sin(s) * made["it"] + s * draw(i, stream)

        return loop(step, x, 5)

    return program


@pytest.mark.parametrize("rng", [False, True], ids=["the thread's", "a generator"])
@pytest.mark.parametrize("derivative", [*EXACT.values(), *OTHERS.values()], ids=[*EXACT, *OTHERS])
def test_what_is_drawn_once_shifts_no_other_draws(derivative, rng):
    def draw(i, stream):
        return nt.rand(2, dtype="float64", rng=stream) if i else 0.5 * nt.ones(2, dtype="float64")

    assert_as_plain(drawn_once(draw, rng), derivative, X)


@pytest.mark.parametrize("rng", [False, True], ids=["the thread's", "a generator"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_what_is_drawn_once_before_other_draws_of_its_step_is_named(loop, rng):
    program = drawn_once(lambda i, stream: nt.rand(2, dtype="float64", rng=stream), rng)
    with pytest.raises(GradientError, match=r"step 0 of .* (drew other random numbers|gave other values)"):
        total(program(loop, leaf(0.7, 1.1))).backward()


def test_the_weight_of_two_uses_in_each_step_is_added_up_as_in_the_plain_loop():
    def gradient(loop):
        w, x = leaf(0.31, 0.77), leaf(0.7, 1.1)
        loop(lambda s: nt.sin(s * w) + 0.3 * w * w, x, 50).sum().backward()
        return w.grad.tolist()

    assert gradient(nt.checkpoint_loop) == gradient(plain)


def test_long_chains_of_constants_and_of_what_is_computed_from_weights():
    w, x = leaf(1.0, 1.0), leaf(2.0, 3.0)

    def step(s):
        made, computed = nt.ones(2, dtype="float64"), w
        for _ in range(1500):
            made, computed = made * 1.0, computed * 1.0
        return s * made * computed

    nt.checkpoint_loop(step, x, 2).sum().backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([1.0, 1.0], [4.0, 6.0])
    with nt.Tape() as tape:
        y = nt.checkpoint_loop(step, x, 2).sum()
    assert tape.gradient(y, w).tolist() == [4.0, 6.0]
