"""Speed that is counted instead of timed: Python calls and allocations per op, so that it does not rot unseen."""

import sys
import tracemalloc

import numpy as np
import pytest

import numtape as nt
from numtape.core import recompute
from numtape.core.scopes import Scope


def called(function):
    """Return the names of the Python functions entered while running."""
    names = []

    def profile(frame, event, argument):
        # Freeing a record is a call on interpreters that need it, whenever that happens.
        if event == "call" and frame.f_code.co_name != "_free_links":
            names.append(frame.f_code.co_name)

    function()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


def python_calls(function):
    """Count the Python functions entered while running."""
    return len(called(function)) - 1


X = nt.tensor(np.ones(8, np.float32), requires_grad=True)
C = nt.tensor(np.ones(8, np.float32))


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (lambda: C * 0.999, 1),
        (lambda: C + C, 1),
        (lambda: X * 0.999, 2),
        (lambda: X + C, 2),
        (lambda: C.exp(), 2),
        (lambda: X.exp(), 3),
        (lambda: X[1:], 7),
        (lambda: X.sum(), 6),
        (lambda: X**2, 5),
    ],
)
def test_python_calls_of_an_op(function, most):
    assert python_calls(function) <= most


def test_python_calls_of_a_backward_step():
    def run(count):
        y = X
        for _ in range(count):
            y = y * 0.999
            y = y + X
        return python_calls(lambda: y.backward(np.ones(8, np.float32), retain_graph=True))

    # Two records: one rule called, one cotangent added up.
    assert run(50) - run(25) <= 25 * 3
    X.grad = None


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_python_calls_of_a_record_of_a_small_jacobian(mode):
    def run(count):
        def chain(x):
            for _ in range(count):
                x = x * 0.999
            return x

        derivative = nt.jacobian(chain, mode=mode)
        return python_calls(lambda: derivative(np.ones(3)))

    # It is recorded, priced and swept: one run of its partial, on all members.
    assert run(50) - run(25) <= 25 * 14


def test_parts_of_one_tensor_are_added_where_they_lie():
    """A loop over the elements of a vector takes time in proportion to its length, not to its square."""
    x = nt.tensor(np.linspace(0.0, 1.0, 50), requires_grad=True)

    def run():
        x.grad = None
        total = x[0] * 0.0
        for i in range(49):
            total = total + x[i] * x[np.array([i + 1])].sum()
        total.backward()

    # Only the first part that arrives is put into zeros.
    assert called(run).count("_put_back") == 1
    expected = np.zeros(50)
    expected[:-1] += x.numpy()[1:]
    expected[1:] += x.numpy()[:-1]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-15)


def test_memory_of_a_record():
    def chain(count):
        y = X
        for _ in range(count // 2):
            y = y * 0.999
            y = y + X
        return y

    chain(100)
    tracemalloc.start()
    try:
        y = chain(10_000)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size / 10_000 <= 400
    del y


def test_an_unneeded_value_is_not_kept():
    y = X * 2.0
    z = y + 1.0
    assert y.node.array is None
    w = z * z
    assert z.node.array is z.array
    assert w.node.array is None


def test_a_gradient_is_handed_over_without_a_copy():
    x = nt.tensor(np.ones((50, 50)), requires_grad=True)
    w = nt.tensor(np.ones((50, 50)), requires_grad=True)
    product = x @ w
    seed = nt.ones_like(x)  # A contiguous one: NumPy's product may copy another.
    tracemalloc.start()
    try:
        product.backward(seed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Two gradients and little else.
    assert peak < 2.6 * x.nbytes


def program(x):
    y = (x * 1.5 + x).exp() - 2.0 * x
    y = nt.where(y > 1.0, y, x * 0.5)[1:] / (1.0 + x[:-1] ** 2)
    return (y.reshape(-1, 1) @ y.reshape(1, -1)).max(axis=0).sum() + y.tanh().mean()


SQUARE = np.random.default_rng(0).normal(size=(9, 9)) + 3.0 * np.eye(9)
#: Short programs around the face of two operands: products, arrays on either side, results without axes.
PAIRS = [
    program,
    lambda x: (SQUARE.astype(x.dtype) @ x * x).sum(),
    lambda x: (x @ SQUARE.astype(x.dtype) + x).sum(),
    lambda x: x @ x,
    lambda x: nt.matmul(x[None, :], x[:, None]).sum(),
    lambda x: (SQUARE @ x).sum(),
    lambda x: nt.solve(SQUARE.astype(x.dtype), x).sum() + nt.solve(SQUARE.astype(x.dtype) * x[0], x).sum(),
    lambda x: (nt.cross(x.reshape(3, 3), SQUARE[:3, :3].astype(x.dtype)) * x.reshape(3, 3)).sum(),
    lambda x: (SQUARE.astype(x.dtype) * x - x).sum() + (SQUARE[0] / (2.0 + x)).sum(),
    lambda x: np.maximum(SQUARE[0].astype(x.dtype), x).sum(),
    lambda x: (lambda a, b, c: a * b + c**2)(*x[:3]) + sum(row.sum() for row in x.reshape(3, 3)),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("program", PAIRS)
def test_the_fast_faces_do_what_apply_does(program, dtype):
    data = np.linspace(-1.0, 1.0, 9).astype(dtype)
    plain = nt.tensor(data, requires_grad=True)
    fast = program(plain)
    scoped = nt.tensor(data, requires_grad=True)
    with Scope():
        slow = program(scoped)
    assert [(r.op.name, r.shape, r.dtype, r.needs, r.array is None, r.line) for r in nt.records(fast)] == [
        (r.op.name, r.shape, r.dtype, r.needs, r.array is None, r.line) for r in nt.records(slow)
    ]
    fast.backward()
    slow.backward()
    assert fast.numpy().tobytes() == slow.numpy().tobytes()
    assert plain.grad.numpy().tobytes() == scoped.grad.numpy().tobytes()


def test_a_dropped_value_is_made_again():
    x = nt.tensor(np.linspace(-1.0, 1.0, 9), requires_grad=True)
    y = program(nt.dropout(x, 0.5, rng=3))
    expected = nt.tensor(np.linspace(-1.0, 1.0, 9), requires_grad=True)
    program(nt.dropout(expected, 0.5, rng=3)).backward()
    for record in nt.records(y):
        if record.op.name != "pick":
            again = recompute.value(record)
            assert again.shape == record.shape
        record.array = None
    y.backward()
    assert x.grad.numpy().tobytes() == expected.grad.numpy().tobytes()
