"""What steps of `nt.checkpoint_loop` make and somebody keeps: leaves, tables, random numbers, and their gradients."""

from functools import lru_cache

import numpy as np
import pytest
from plain_loops import EXACT, LOOPS, OTHERS, array, assert_as_plain, constant, leaf, plain, total

import numtape as nt
from numtape.errors import GradientError

FACTOR = constant(0.3, 0.2)
WEIGHT = leaf(0.4, 0.5)
X = np.array([0.7, 1.1])


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
