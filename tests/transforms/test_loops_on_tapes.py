"""`nt.checkpoint_loop` inside of tapes: steps run again as they ran first, whatever the tape watches."""

import weakref

import numpy as np
import pytest

import numtape as nt

HALF = nt.tensor([0.5, 0.25], dtype="float64")


def descend(s):
    with nt.GradientTape() as tape:
        tape.watch(s)
        energy = (nt.sin(s) * s).sum()
    return s - 0.1 * tape.gradient(energy, s)


def energy(q):
    return (nt.sin(q) * q).sum()


STEPS = {
    "ones": lambda s: s * (nt.ones(2, dtype="float64") * 0.5),
    "tensor": lambda s: s * nt.exp(nt.tensor(np.array([0.1, 0.2]))),
    "arange": lambda s: s + nt.sin(nt.arange(2, dtype="float64")),
    "randn": lambda s: s + nt.sin(nt.randn(2, dtype="float64")),
    "detach": lambda s: s * nt.tanh(s.detach()),
    "a constant from outside": lambda s: s * nt.exp(HALF) + nt.ones(2, dtype="float64") * HALF,
    "a constant passed on": lambda s: s + 0.1 * nt.stack([HALF * 2.0, s]).sum(axis=0),
    "grad": lambda s: s - 0.1 * nt.grad(energy)(s),
    "value_and_grad": lambda s: s - 0.1 * nt.value_and_grad(energy)(s)[1],
    "hvp": lambda s: s - 0.1 * nt.hvp(energy, s, s)[1],
    "jvp": lambda s: s + 0.1 * nt.jvp(nt.sin, s, s)[1],
    "a tape": descend,
    "a loop": lambda s: nt.checkpoint_loop(lambda q: nt.sin(q) * (nt.ones(2, dtype="float64") * 0.5), s, 3),
}


def plain_loop(step, state, n, **_):
    for _ in range(n):
        state = step(state)
    return state


@pytest.mark.parametrize("tape_class", [nt.Tape, nt.GradientTape])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_step_may_make_constants_and_take_gradients_inside_of_a_tape(step, tape_class):
    def gradients(loop):
        nt.seed(0)
        x = nt.tensor([0.3, 0.7], dtype="float64", requires_grad=True)
        with tape_class(persistent=True) as tape:
            y = loop(step, x, 6, snapshots=2).sum()
        return [tape.gradient(y, source, unconnected="zero").numpy() for source in (x, HALF)] + [
            tape.forward_gradient(x, y).numpy()
        ]

    for found, expected in zip(gradients(nt.checkpoint_loop), gradients(plain_loop), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_what_a_step_makes_is_let_go_when_it_runs_again():
    made = []

    def step(s):
        constant = nt.ones(2, dtype="float64") * 0.9
        made.append(weakref.ref(constant))
        return s * constant

    x = nt.tensor([0.3, 0.7], dtype="float64")
    most = []
    with nt.Tape() as tape:
        y = nt.checkpoint_loop(lambda s: most.append(sum(ref() is not None for ref in made)) or step(s), x, 20)
        y = y.sum()
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), np.full(2, 0.9**20), rtol=1e-13)
    assert len(most) > 40
    assert max(most) <= 1


def test_a_step_that_does_something_else_is_still_named_inside_of_a_tape():
    calls = []

    def step(s):
        calls.append(1)
        ones = nt.ones(2)
        return s * (ones if len(calls) <= 6 else nt.exp(ones))

    x = nt.tensor([0.3, 0.7])
    with nt.Tape() as tape:
        y = nt.checkpoint_loop(step, x, 6).sum()
    with pytest.raises(nt.errors.GradientError, match="ran other ops, or on other shapes"):
        tape.gradient(y, x)


def slope_of_constant(s):
    with nt.GradientTape() as tape:
        y = tape.watch(HALF * 1.0)
        z = (y * y).sum()
    return s * 0.5 + s * tape.gradient(z, y)


TRANSFORMED = {
    "a tape": descend,
    "a tape of a constant": slope_of_constant,
    "grad of a constant": lambda s: s * nt.grad(lambda y: (y**3).sum())(HALF),
    "hvp of an array": lambda s: s * nt.hvp(energy, np.ones(2), np.ones(2)),
    "jvp of a constant": lambda s: s * nt.jvp(nt.sin, HALF, HALF)[1],
}


@pytest.mark.parametrize("step", TRANSFORMED.values(), ids=TRANSFORMED)
def test_a_step_may_take_gradients_inside_of_transforms(step):
    def gradients(loop):
        def f(x):
            return loop(step, x, 4, snapshots=2).sum()

        x, t = np.array([0.3, 0.7]), np.ones(2)
        return [nt.grad(f)(x), nt.jvp(f, x, t)[1], nt.jvp(f, nt.tensor(x), nt.tensor(t))[1].numpy()]

    for found, expected in zip(gradients(nt.checkpoint_loop), gradients(plain_loop), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
