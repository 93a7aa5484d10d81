"""The declared cost of an op against operations counted on numbers that count."""

import math

import numpy as np
import pytest

from numtape.core.declare import registry
from numtape.core.op import Op


class Counting:
    """A number that counts the additions and multiplications made with it."""

    count = 0

    def __init__(self, value):
        self.value = value

    def _binary(self, other, function):
        Counting.count += 1
        return Counting(function(self.value, other.value if isinstance(other, Counting) else other))

    def __add__(self, other):
        return self._binary(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other):
        return self._binary(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._binary(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._binary(other, lambda a, b: a / b)

    def __neg__(self):
        return self._binary(0, lambda a, b: -a)


def counted(*shape):
    return np.array([Counting(float(i % 7 + 1)) for i in range(math.prod(shape))], object).reshape(shape)


@pytest.mark.parametrize(
    ("name", "shapes", "params"),
    [
        ("add", [(4, 5), (5,)], {}),
        ("sub", [(4, 5), (4, 1)], {}),
        ("mul", [(3,), (2, 3)], {}),
        ("div", [(3, 3), ()], {}),
        ("neg", [(7,)], {}),
        ("matmul", [(4, 30), (30, 5)], {}),
        ("matmul", [(2, 4, 30), (30, 5)], {}),
        ("matmul", [(40,), (40,)], {}),
        ("sum", [(10, 10)], {"axis": None, "keepdims": False}),
        ("sum", [(10, 10)], {"axis": 0, "keepdims": True}),
    ],
)
def test_cost_is_the_number_of_operations(name, shapes, params):
    op = registry[name]
    operands = [counted(*shape) for shape in shapes]
    Counting.count = 0
    forward = {"matmul": np.matmul, "sum": np.sum}.get(name, op.forward)
    out = np.asarray(forward(*operands, **params))
    declared = op.facts.cost(out.shape, *shapes, **params)
    # A sum of n needs n - 1 additions; the cost counts n.
    assert Counting.count <= declared <= 1.15 * Counting.count


@pytest.mark.parametrize("entry", [e for e in registry.values() if isinstance(e, Op)], ids=lambda e: e.name)
def test_every_cost_is_a_number_that_grows_with_the_operands(entry):
    if entry.name == "pick":
        return
    for sample in [s for s in entry.facts.samples() if hasattr(s, "skip_derivatives")][:4]:
        operands = list(sample.args[0]) if entry.is_variadic else list(sample.args)
        shapes = [np.shape(x) for x in operands]
        if not entry.is_variadic:
            shapes += [()] * (len(entry.arguments) - len(shapes))
        out = entry.face(*sample.args, **sample.params)
        out_shape = [np.shape(x) for x in out] if isinstance(out, tuple) else np.shape(out)
        cost = entry.facts.cost(out_shape, *shapes, **{**entry.defaults, **sample.params})
        assert int(cost) == cost >= 0
