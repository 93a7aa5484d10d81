"""The plain loop that `nt.checkpoint_loop` is compared with, and derivatives of every kind to compare."""

import inspect
from functools import partial

import numpy as np

import numtape as nt


def plain(step, state, n, **_):
    """Run the loop as Python does."""
    takes_number = sum(p.default is p.empty for p in inspect.signature(step).parameters.values()) == 2
    for i in range(n):
        state = step(state, i) if takes_number else step(state)
    return state


#: The loop, with states kept at the best places, at few, and with all values compared.
LOOPS = {
    "kept": nt.checkpoint_loop,
    "few": partial(nt.checkpoint_loop, snapshots=2),
    "verify": partial(nt.checkpoint_loop, snapshots=2, verify=True),
}


def leaf(*values):
    """Return a leaf that requires gradients."""
    return nt.tensor(np.array(values), requires_grad=True)


def constant(*values):
    """Return a tensor that does not."""
    return nt.tensor(np.array(values))


def total(parts):
    """Return the sum of squares of all tensors in a tree."""
    return sum((part**2).sum() for part in nt.tree.leaves(parts) if isinstance(part, nt.Tensor))


def backward(f, x):
    """By `backward`."""
    x = nt.tensor(x, requires_grad=True)
    f(x).backward()
    return x.grad


def on_tape(f, x):
    """By `gradient` of a tape that watches everything."""
    x = nt.tensor(x)
    with nt.Tape() as tape:
        y = f(x)
    return tape.gradient(y, x)


def backward_on_tape(f, x):
    """By `backward` of such a tape."""
    x = nt.tensor(x)
    with nt.Tape() as tape:
        y = f(x)
    return tape.backward(y)[x]


def on_gradient_tape(f, x):
    """By a tape that watches one tensor."""
    x = nt.tensor(x)
    with nt.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)


def forward_on_tape(f, x):
    """By a forward sweep."""
    x = nt.tensor(x)
    with nt.Tape(persistent=True) as tape:
        y = f(x)
    return tape.forward_gradient(x, y)


def by_tapes(f, x):
    """To second order, by two tapes that watch everything."""
    x = nt.tensor(x)
    with nt.Tape() as outer:
        outer.watch(x)
        with nt.Tape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x, unconnected="zero")
        norm = (g * g * x).sum()
    return outer.gradient(norm, x)


def kept_graph(f, x):
    """To second order, by `create_graph`."""
    x = nt.tensor(x)
    with nt.Tape(persistent=True) as tape:
        y = f(x)
    g = tape.backward(y, create_graph=True)[x]
    return tape.gradient((g * x).sum(), x)


#: Those that add up in the order of the plain loop, to the bit, and others.
EXACT = {
    "backward": backward,
    "tape": on_tape,
    "tape.backward": backward_on_tape,
    "gradient tape": on_gradient_tape,
}
OTHERS = {
    "forward": forward_on_tape,
    "grad": lambda f, x: nt.grad(f)(x),
    "jvp": lambda f, x: nt.jvp(f, x, np.cos(x))[1],
    "jvp of tensors": lambda f, x: nt.jvp(f, nt.tensor(x), nt.tensor(np.cos(x)))[1],
    "hessian": lambda f, x: nt.hessian(f)(x),
    "hessian forward": lambda f, x: nt.hessian(f, mode="forward")(x),
    "hvp": lambda f, x: nt.hvp(f, x, np.cos(x)),
    "grad of jvp": lambda f, x: nt.grad(lambda x: nt.jvp(f, x, nt.cos(x))[1])(x),
    "tapes": by_tapes,
    "create_graph": kept_graph,
}


def array(x):
    """Return the array behind a result, None for none."""
    return x.detach().numpy() if isinstance(x, nt.Tensor) else x


def assert_as_plain(program, derivative, x):
    """Assert that a program has the same derivative with each loop as with the plain one."""
    expected = array(derivative(lambda x: total(program(plain, x)), x))
    for loop in LOOPS.values():
        found = array(derivative(lambda x, loop=loop: total(program(loop, x)), x))
        if derivative in EXACT.values():
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
