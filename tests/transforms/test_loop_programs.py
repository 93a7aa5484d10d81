"""Ordinary programs of `nt.checkpoint_loop`, to every order: right, and nothing that they do is suspected."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from plain_loops import by_tapes

import numtape as nt


def plain(step, state, n=None, until=None):
    number = 0
    while number < n if until is None else not until(state):
        state = step(state)
        number += 1
    return state


def constant(*values):
    return nt.tensor(np.array(values))


W = nt.tensor(np.array([0.4, 0.5, 0.6]), requires_grad=True)
C = constant(0.3, -0.2, 0.8)
MATRIX = nt.tensor(np.random.default_rng(0).normal(size=(3, 3)) * 0.3, requires_grad=True)
INDEX = nt.tensor(np.array([2, 0, 1]))
LAYER = nt.nn.Linear(3, 3, rng=0, dtype="float64")
NORM = nt.nn.BatchNorm1d(3).to("float64")
NET = nt.nn.Sequential(nt.nn.Linear(3, 4, rng=1), nt.nn.Tanh(), nt.nn.Linear(4, 3, rng=2)).to("float64")


@dataclasses.dataclass
class Ball:
    place: nt.Tensor
    speed: nt.Tensor


def energy(q):
    return (nt.sin(q) * q).sum()


def kicked(ball):
    speed = ball.speed - 0.1 * nt.sin(ball.place)
    return Ball(ball.place + 0.1 * speed, speed)


def descended(s):
    with nt.GradientTape() as tape:
        tape.watch(s)
        e = energy(s)
    return s - 0.1 * tape.gradient(e, s)


def normed(s):
    rows = nt.stack([s, s * 2.0, s - 1.0])
    return NORM(rows)[0] + s


def written(s):
    h = nt.zeros(3, dtype="float64")
    h[0] = s[1]
    h[1:] = nt.sin(s[:2])
    return h + s


def unrolled(s):
    q = s.detach().requires_grad_()
    energy(q).backward()
    return nt.sin(s) - 0.1 * q.grad


def noted(notes, s):
    notes.append(s.detach().sum().item())
    return nt.sin(s)


def averaged(s):
    # A pair of the state and an average that nothing of the state depends on.
    return nt.sin(s[0]), 0.9 * s[1] + 0.1 * s[0].detach()


@nt.custom_gradient
def cubed(x):
    return x**3, lambda g: 3.0 * g * x**2


PROGRAMS = {
    "no steps": lambda loop, x: loop(nt.sin, x, 0),
    "one step": lambda loop, x: loop(lambda s: nt.sin(s) * s, x, 1),
    "a pair": lambda loop, x: loop(lambda s: (s[0] + 0.1 * s[1], s[1] - 0.1 * nt.sin(s[0])), (x, x * 2.0), 4),
    "a pair that begins with a constant": lambda loop, x: loop(lambda s: (s[0] + s[1], s[1] * nt.sin(s[0])), (x, C), 4),
    "time": lambda loop, x: loop(lambda s: (nt.sin(s[0]) * nt.cos(s[1]), s[1] + 0.1), (x, nt.tensor(0.0)), 4)[0],
    "a dict": lambda loop, x: loop(lambda s: {"a": nt.sin(s["b"]), "b": s["a"] * C}, {"a": x, "b": x * x}, 4),
    "a dataclass": lambda loop, x: (lambda b: b.place * b.speed)(loop(kicked, Ball(x, C), 4)),
    "a tree": lambda loop, x: loop(
        lambda s: [(s[0][1], nt.sin(s[0][0])), {"k": s[1]["k"] * s[0][0]}], [(x, C), {"k": x}], 3
    ),
    "a part that stays": lambda loop, x: loop(lambda s: (nt.sin(s[0]) * s[1], s[1]), (x, x * 2.0), 4),
    "a constant part that stays": lambda loop, x: loop(lambda s: (nt.sin(s[0]) * s[1], s[1]), (x, C), 4),
    "parts that change places": lambda loop, x: loop(lambda s: (s[1], s[0] * 1.1, nt.sin(s[2])), (x, C, x), 5),
    "one tensor twice": lambda loop, x: loop(lambda s: (nt.sin(s[1]), s[0] * s[1]), (x, x), 3),
    "one result twice": lambda loop, x: loop(lambda s: (h := nt.sin(s[0]) * s[1], h), (x, x * x), 3),
    "a state that nothing is done to": lambda loop, x: loop(lambda s: s, x, 3) ** 3,
    "what is captured becomes the state": lambda loop, x: loop(lambda s: (W * s[1], W), (x, x), 3)[0] * x,
    "a constant becomes the state": lambda loop, x: loop(lambda s: (C * nt.sin(s[0]), C), (x, x), 3)[0] * x,
    "a constant captured": lambda loop, x: loop(lambda s: nt.sin(s * C) + C, x, 4),
    "constants computed": lambda loop, x: loop(lambda s: s * nt.exp(C * 0.5) + nt.ones(3, dtype="float64"), x, 4),
    "a parameter captured": lambda loop, x: loop(lambda s: nt.tanh(s * W), x, 4),
    "the start captured": lambda loop, x: loop(lambda s: nt.sin(s) * x + W, x, 4),
    "what was computed captured": lambda loop, x: (lambda v: loop(lambda s: nt.sin(s * v), x, 4))(nt.exp(x) * W),
    "a matrix": lambda loop, x: loop(lambda s: nt.tanh(MATRIX @ s), x, 4),
    "a NumPy array": lambda loop, x: loop(lambda s: nt.sin(s) * np.array([1.0, 2.0, 3.0]), x, 3),
    "a module": lambda loop, x: loop(lambda s: nt.tanh(LAYER(s)), x, 3),
    "a network": lambda loop, x: loop(lambda s: s + 0.1 * NET(s), x, 3),
    "dropout": lambda loop, x: loop(lambda s: nt.dropout(nt.sin(s), 0.3) + s, x, 4),
    "random numbers": lambda loop, x: loop(lambda s: nt.sin(s) + nt.randn(3, dtype="float64"), x, 4),
    "batch normalisation": lambda loop, x: loop(normed, x, 3),
    "an integer state": lambda loop, x: loop(lambda s: (nt.sin(s[0]) * s[1], s[1] + 1), (x, INDEX), 3)[0],
    "an index that stays": lambda loop, x: loop(lambda s: (nt.sin(s[0][s[1]]) * C, s[1]), (x, INDEX), 3)[0],
    "an index captured": lambda loop, x: loop(lambda s: nt.sin(s[INDEX]) * s, x, 3),
    "an array in the state": lambda loop, x: loop(lambda s: (nt.sin(s[0]) * s[1], s[1] + 1), (x, np.ones(3)), 3)[0],
    "a number in the state": lambda loop, x: loop(lambda s: (nt.sin(s[0]) * s[1], s[1] + 1), (x, 1.0), 3)[0],
    "a loop inside": lambda loop, x: loop(lambda s: loop(lambda q: nt.sin(q) * W, s, 2) * C, x, 3),
    "a loop inside with a constant part": lambda loop, x: loop(
        lambda s: loop(lambda q: (nt.sin(q[0]) * q[1], q[1]), s, 2), (x, C), 3
    ),
    "a loop in a loop in a loop": lambda loop, x: loop(lambda s: loop(lambda q: loop(nt.sin, q * C, 2), s, 2), x, 2),
    "until": lambda loop, x: loop(lambda s: nt.sin(s) * 0.7, x, until=lambda s: s.sum().item() < 0.3),
    "until with a pair": lambda loop, x: loop(
        lambda s: (nt.sin(s[0]), s[1] + 1.0), (x, nt.tensor(0.0)), until=lambda s: s[1].item() > 3.0
    )[0],
    "writes to a new tensor": lambda loop, x: loop(written, x, 3),
    "detached": lambda loop, x: loop(lambda s: nt.sin(s) * s.detach(), x, 3),
    "an average beside": lambda loop, x: loop(averaged, (x, C), 4),
    "without gradients in between": lambda loop, x: loop(lambda s: nt.sin(s) * nt.no_grad()(nt.cos)(s), x, 3),
    "a log": lambda loop, x: loop(partial(noted, []), x, 4),
    "a gradient by grad": lambda loop, x: loop(lambda s: s - 0.1 * nt.grad(energy)(s), x, 3),
    "a gradient by a tape": lambda loop, x: loop(descended, x, 3),
    "a gradient by a leaf": lambda loop, x: loop(unrolled, x, 3),
    "a gradient of a constant part": lambda loop, x: loop(
        lambda s: (nt.sin(s[0]) - 0.1 * nt.grad(energy)(s[1]), s[1] * 1.1), (x, C), 3
    )[0],
    "jvp": lambda loop, x: loop(lambda s: s + 0.1 * nt.jvp(nt.sin, s, s)[1], x, 3),
    "checkpoint": lambda loop, x: loop(lambda s: nt.checkpoint(lambda q: nt.sin(q * W), s), x, 3),
    "a custom gradient": lambda loop, x: loop(lambda s: nt.sin(cubed(s)), x, 3),
    "several outputs": lambda loop, x: loop(lambda s: nt.split(nt.sin(nt.concatenate([s, s * 2.0])), 2)[1], x, 3),
    "softmax and a mask": lambda loop, x: loop(lambda s: nt.where(C > 0, nt.softmax(s, axis=0), s * 0.5), x, 3),
    "autocast": lambda loop, x: nt.autocast()(lambda x: loop(lambda s: nt.sin(s) + (MATRIX @ C), x, 3))(x),
    "sorted": lambda loop, x: loop(lambda s: nt.sort(nt.sin(s) * C) + s[nt.argmax(s)], x, 3),
}


def total(make, loop):
    def f(x):
        nt.seed(4)
        return sum((part**2).sum() for part in nt.tree.leaves(make(loop, x)))

    return f


def array(x):
    return x.detach().numpy() if isinstance(x, nt.Tensor) else x


def third(f, x):
    return nt.grad(lambda x: (nt.grad(lambda x: (nt.grad(f)(x) * x).sum())(x) * x).sum())(x)


def kept(f, x):
    x = nt.tensor(x)
    with nt.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    g = tape.backward(y, create_graph=True)[x]
    return tape.gradient((g * x).sum(), x)


DERIVATIVES = {
    "grad": lambda f, x: nt.grad(f)(x),
    "hessian": lambda f, x: nt.hessian(f)(x),
    "hessian forward": lambda f, x: nt.hessian(f, mode="forward")(x),
    "hessian reverse": lambda f, x: nt.hessian(f, mode="reverse")(x),
    "hvp": lambda f, x: nt.hvp(f, x, np.cos(x)),
    "jvp of grad": lambda f, x: nt.jvp(nt.grad(f), x, np.cos(x))[1],
    "grad of jvp": lambda f, x: nt.grad(lambda x: nt.jvp(f, x, nt.cos(x))[1])(x),
    "third order": third,
    "tapes": by_tapes,
    "a tape that is kept": kept,
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_derivatives_of_every_order_equal_those_of_the_plain_loop(make, derivative):
    x = np.array([0.7, 1.1, 0.4])
    expected = array(derivative(total(make, plain), x))
    for options in ({}, {"verify": True, "snapshots": 2}):
        found = array(derivative(total(make, partial(nt.checkpoint_loop, **options)), x))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
