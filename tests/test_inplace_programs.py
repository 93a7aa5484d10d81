"""Ten thousand random programs of views, in-place writes and ops equal their functional rewrite, or raise."""

import random

import numpy as np
import pytest

import numtape as nt
from numtape.errors import OverwrittenError
from numtape.ops.indexing import _setitem

STEPS = 8


class InPlace:
    """Runs a program as written: views share memory, writes happen in place."""

    def __init__(self, leaves):
        self.names = list(leaves)

    def value(self, i):
        return self.names[i]

    def new(self, value):
        self.names.append(value)

    def view(self, i, key):
        self.names.append(self.names[i][key])

    def write(self, i, key, kind, value):
        target = self.names[i]
        if kind == "set":
            target[key] = value
        elif key is Ellipsis:
            if kind == "add":
                target += value
            else:
                target *= value
            assert target is self.names[i]
        elif kind == "add":
            target[key] += value
        else:
            target[key] *= value


class Functional:
    """Runs the same program without a write: a buffer is a value, a name is an index array into a buffer."""

    def __init__(self, leaves):
        self.buffers = [leaf.reshape(-1) for leaf in leaves]
        self.names = [(i, np.arange(leaf.size).reshape(leaf.shape)) for i, leaf in enumerate(leaves)]

    def value(self, i):
        buffer, index = self.names[i]
        return self.buffers[buffer][index]

    def new(self, value):
        self.buffers.append(value.reshape(-1))
        self.names.append((len(self.buffers) - 1, np.arange(value.size).reshape(value.shape)))

    def view(self, i, key):
        buffer, index = self.names[i]
        self.names.append((buffer, index[key]))

    def write(self, i, key, kind, value):
        buffer, index = self.names[i]
        part = index[key]
        before = self.buffers[buffer][part]
        after = {"set": lambda: value, "add": lambda: before + value, "mul": lambda: before * value}[kind]()
        after = after * np.ones(part.shape)
        self.buffers[buffer] = _setitem(self.buffers[buffer], after, key=(part,))


KEYS = {
    4: [slice(0, 2), slice(2, 4), slice(None, None, -1), slice(1, 3), slice(0, 4, 2)],
    2: [slice(None, None, -1), slice(0, 1)],
    1: [slice(0, 1)],
}
OPS = {
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "exp": lambda a, b: (a * 0.1).exp(),
    "scale": lambda a, b: a * 0.7,
}


def make_program(rng):
    """Return a list of steps; each is a function of a machine."""
    shapes = [4, 4, 4]
    steps = []
    for _ in range(STEPS):
        kind = rng.choice(["op", "op", "op", "view", "view", "write", "write", "write"])
        i = rng.randrange(2, len(shapes))
        if kind == "op":
            j = rng.choice([k for k, n in enumerate(shapes) if n == shapes[i]])
            op = rng.choice(list(OPS))
            steps.append(("op", op, i, j))
            shapes.append(shapes[i])
        elif kind == "view":
            key = rng.choice(KEYS[shapes[i]])
            steps.append(("view", i, key))
            shapes.append(len(range(shapes[i])[key]))
        else:
            how = rng.choice(["set", "add", "mul"])
            key = rng.choice([Ellipsis, *KEYS[shapes[i]]])
            length = shapes[i] if key is Ellipsis else len(range(shapes[i])[key])
            others = [k for k, n in enumerate(shapes) if n == length]
            steps.append(("write", i, key, how, rng.choice([*others, None])))
    return steps


def run(machine, steps):
    for step in steps:
        if step[0] == "op":
            _, op, i, j = step
            a, b = machine.value(i), machine.value(j)
            machine.new(OPS[op](a, b))
        elif step[0] == "view":
            machine.view(*step[1:])
        else:
            _, i, key, how, j = step
            machine.write(i, key, how, 0.5 if j is None else machine.value(j))
    # The newest names are seldom stale; the others have been used by ops above.
    total = machine.value(len(machine.names) - 1).sum()
    for i in range(len(machine.names) - 2, len(machine.names)):
        value = machine.value(i)
        total = total + (value * value).sum()
    return total


def leaves():
    values = (np.array([0.3, -0.2, 0.5, 0.1]), np.array([-0.4, 0.6, 0.2, 0.7]))
    return [nt.tensor(x, requires_grad=True) for x in values]


@pytest.mark.parametrize("block", range(10))
def test_random_programs_equal_their_functional_rewrite_or_raise(block):
    equal = raised = 0
    for number in range(1000):
        steps = make_program(random.Random(1000 * block + number))
        expected_leaves = leaves()
        expected = run(Functional([*expected_leaves, expected_leaves[0] * 1.5]), steps)
        expected.backward()
        a, b = leaves()
        try:
            actual = run(InPlace([a, b, a * 1.5]), steps)
            actual.backward()
        except OverwrittenError:
            raised += 1
            continue
        equal += 1
        np.testing.assert_allclose(actual.item(), expected.item(), rtol=1e-12)
        for x, e in zip((a, b), expected_leaves, strict=True):
            gradient = np.zeros(4) if x.grad is None else x.grad.numpy()
            reference = np.zeros(4) if e.grad is None else e.grad.numpy()
            np.testing.assert_allclose(gradient, reference, rtol=1e-12, atol=1e-12, err_msg=str(steps))
    # Programs that never raise would mean that the test is too tame, and those that always do, useless.
    assert equal > 200
    assert raised > 200
