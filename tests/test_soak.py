"""A hundred thousand steps without growth, in every way to take a gradient. Run with: pytest -m soak."""

import contextlib
import gc
import tracemalloc

import pytest

import numtape as nt

pytestmark = pytest.mark.soak
STEPS = 100_000


def leaf():
    return nt.tensor([1.0, 2.0], requires_grad=True)


def plain(w):
    (w * w).sum().backward()
    w.zero_grad()


def create_graph(w):
    with nt.Tape() as tape:
        loss = (w * w * w).sum()
    first = tape.backward(loss, create_graph=True)[w]
    first.sum().backward()
    w.zero_grad()


def nested_tapes(w):
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            loss = (w * w * w).sum()
        first = inner.gradient(loss, w)
    outer.gradient(first, w)


def exception_in_forward(w):
    with contextlib.suppress(nt.errors.ShapeError):
        (w * w) @ nt.ones(3)


def exception_in_backward(w):
    y = (w * 2.0).exp()
    z = (y * y).sum()
    y += 1.0
    try:
        z.backward()
    except nt.errors.OverwrittenError:
        w.zero_grad()


def functional(w):
    nt.grad(nt.grad(lambda x: x**3))(2.0)


@pytest.mark.parametrize(
    "step", [plain, create_graph, nested_tapes, exception_in_forward, exception_in_backward, functional]
)
@pytest.mark.parametrize("in_context", [False, True], ids=["default", "context"])
def test_no_growth(step, in_context):
    w = leaf()

    def run(count):
        for _ in range(count):
            step(w)

    def measure():
        run(100)
        gc.collect()
        before = len(gc.get_objects())
        tracemalloc.start()
        run(100)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        run(STEPS)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - size
        tracemalloc.stop()
        assert grown < 20_000
        assert abs(len(gc.get_objects()) - before) < 20

    if in_context:
        with nt.GradientContext() as ctx:
            measure()
            assert len(ctx.tape) == 0
    else:
        measure()
