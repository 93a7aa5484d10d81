"""Functions of operands that are repeated along each other: NumPy's numbers, in its order of memory, in less time."""

import signal
import threading
import time
import tracemalloc

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ShapeError
from numtape.kernels import broadcasting
from numtape.kernels.broadcasting import in_long_rows

RNG = np.random.default_rng(0)
BY_COLUMNS = [((200, 1, 3), (150, 3)), ((200, 3), (150, 1, 3)), ((4, 50, 1, 2), (4, 1, 90, 2)), ((300, 1, 4), (300, 4))]
UNBUFFERED = [((500, 1), (300,)), ((500, 300), (500, 1)), ((60, 1, 200), (60, 200, 1)), ((300, 1, 1), (300, 1))]
REPEATED = [
    ((1000, 1, 20), (25, 20)),
    ((25, 20), (1000, 1, 20)),
    ((4, 50, 1, 16), (25, 16)),
    ((6000, 8), (8,)),
    ((1, 99), (400, 99)),
    ((1000, 1, 5), (1, 25, 5)),
]
AS_NUMPY = [
    ((9000, 1, 10), (1, 10)),
    ((50, 1, 20), (50, 25, 20)),
    ((8, 50, 1, 16), (8, 1, 25, 16)),
    ((60, 1, 2, 5), (70, 2, 5)),
    ((60, 1, 2, 3), (70, 2, 3)),
    ((60, 1, 3, 1), (1, 70, 1, 2)),
    ((0, 1, 3), (9000, 3)),
    ((100, 100, 3), (3,)),
    ((9000, 1, 3), (1, 3)),
    ((300, 200), (200,)),
    ((5, 1, 3), (4, 3)),
    ((30, 1, 3), (30, 3)),
    ((40000, 1), (1,)),
    ((1, 1, 1), (1,)),
]
FUNCTIONS = [np.subtract, np.maximum, np.divide, np.less]


def pair(a_shape, b_shape):
    return RNG.normal(size=a_shape), RNG.normal(size=b_shape)


@pytest.mark.parametrize("shapes", [*BY_COLUMNS, *REPEATED, *UNBUFFERED, *AS_NUMPY], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_and_layout_are_numpys(shapes, function):
    a, b = pair(*shapes)
    for x, y in (
        (a, b),
        (b, a),
        (np.asfortranarray(a), b[..., ::-1]),
        (a.astype(np.float32), b.astype(np.float32)),
        (a.astype(np.float32), b),
        ((10 * a).astype(int), (10 * b).astype(int)),
    ):
        with np.errstate(all="ignore"):
            out, expected = in_long_rows(function, (x, y), {}), function(x, y)
        assert (out.dtype, out.strides, out.base) == (expected.dtype, expected.strides, None)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shapes", [*BY_COLUMNS, *REPEATED, *UNBUFFERED], ids=str)
def test_these_are_computed_in_another_way(shapes):
    how = broadcasting._plan(*shapes).compute.__name__.removeprefix("_")
    expected = "by_columns" if shapes in BY_COLUMNS else "by_repeated" if shapes in REPEATED else "with_small_buffer"
    assert how.startswith(expected)


@pytest.mark.parametrize("shapes", AS_NUMPY, ids=str)
def test_these_are_left_to_numpy(shapes):
    assert broadcasting._plan(*shapes) is None


@pytest.mark.parametrize("shapes", [*BY_COLUMNS, *REPEATED, *UNBUFFERED], ids=str)
def test_derivatives(shapes):
    a, b = pair(*shapes)
    weights = RNG.normal(size=np.broadcast_shapes(*shapes))
    by_a, by_b = nt.grad(lambda a, b: nt.sum((a - b) ** 2 * weights), argnums=(0, 1))(a, b)
    cotangent = 2 * (a - b) * weights
    for found, operand, sign in ((by_a, a, 1), (by_b, b, -1)):
        extra = cotangent.ndim - operand.ndim
        axes = (*range(extra), *(i + extra for i, n in enumerate(operand.shape) if n == 1))
        expected = sign * cotangent.sum(axis=axes, keepdims=True).reshape(operand.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_every_path_takes_it(monkeypatch):
    a, b = pair((200, 1, 3), (150, 3))
    seen = []
    plan = broadcasting._plan(a.shape, b.shape)

    def compute(*args):
        seen.append(1)
        return plan.compute(*args)

    monkeypatch.setattr(broadcasting, "_plan", lambda *shapes: plan._replace(compute=compute))
    x, y = nt.tensor(a), nt.tensor(b)
    for difference in (lambda: x - y, lambda: x - b, lambda: nt.sub(a, b)):
        difference()
        with nt.profile() as profile:
            difference()
        assert "sub" in str(profile)
    assert len(seen) == 6


def test_a_custom_op_gets_its_operands_as_they_are():
    @nt.custom_op(vjp={"a": lambda g: g, "b": None}, structure="elementwise")
    def shifted(a, b, /):
        assert a.shape == (200, 1, 3)
        assert b.shape == (150, 3)
        return a - b

    shifted(nt.tensor(np.ones((200, 1, 3))), nt.tensor(np.ones((150, 3))))


def test_a_result_can_be_viewed_and_written_through_views():
    d = nt.tensor(np.ones((200, 1, 3))) - nt.tensor(np.zeros((150, 3)))
    d.view(-1, 3)[0] = 0.0
    d.reshape(-1)[3] = 5.0
    assert d[0, :2].tolist() == [[0.0, 0.0, 0.0], [5.0, 1.0, 1.0]]


def test_what_was_set_in_numpy_stays_set():
    a, b = nt.tensor(np.ones((500, 1))), nt.tensor(np.zeros(300))
    before = np.setbufsize(4096)
    try:
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
            a / b
        with np.errstate(divide="ignore"):
            assert np.isinf((a / b).numpy()).all()
        assert np.getbufsize() == 4096
    finally:
        np.setbufsize(before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals between threads")
def test_an_interrupt_leaves_the_buffer_as_it_was():
    a, b = nt.tensor(np.ones((500, 1))), nt.tensor(np.ones(300))
    main, is_done = threading.main_thread().ident, threading.Event()

    def interrupt():
        while not is_done.wait(0.0005):
            signal.pthread_kill(main, signal.SIGINT)

    caught = 0
    interrupter = threading.Thread(target=interrupt)
    end = time.monotonic() + 0.5
    try:
        interrupter.start()
        while time.monotonic() < end:
            try:
                for _ in range(100):
                    a - b
            except KeyboardInterrupt:
                caught += 1
    except KeyboardInterrupt:
        caught += 1
    while True:
        try:
            is_done.set()
            interrupter.join()
            break
        except KeyboardInterrupt:
            continue
    assert caught > 0
    assert np.getbufsize() == 8192


def test_numbers_among_the_operands():
    a, b = pair((200, 1, 3), (150, 3))
    out = nt.where(nt.tensor(a) > b, nt.tensor(b), 0.5)
    np.testing.assert_array_equal(out.numpy(), np.where(a > b, b, 0.5))
    np.testing.assert_array_equal(
        nt.clip(nt.tensor(a), b, np.ones((1, 1, 1, 1))).numpy(), np.clip(a, b, np.ones((1,) * 4))
    )


def test_shapes_that_do_not_broadcast_are_named_as_given():
    with pytest.raises(ShapeError, match=r"sub: a has shape \(200, 1, 3\) and b has shape \(150, 4\)"):
        nt.tensor(np.ones((200, 1, 3))) - nt.tensor(np.ones((150, 4)))


def test_a_comparison_takes_no_more_memory_than_its_result():
    a, b = pair((400, 1, 20), (400, 20))
    tracemalloc.start()
    try:
        result = in_long_rows(np.less, (a, b), {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * result.nbytes
