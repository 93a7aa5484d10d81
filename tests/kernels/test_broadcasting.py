"""Elementwise functions of operands that are repeated along each other: NumPy's numbers, in rows that are long."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ShapeError
from numtape.kernels.broadcasting import in_long_rows

RNG = np.random.default_rng(0)
PAIRS = [
    ((200, 1, 3), (150, 3)),
    ((200, 3), (150, 1, 3)),
    ((1, 150, 3), (200, 1, 1)),
    ((1000, 1, 20), (25, 20)),
    ((60, 1, 2, 3), (70, 2, 3)),
    ((60, 1, 3, 1), (1, 70, 1, 2)),
    ((4, 50, 1, 3), (4, 1, 60, 3)),
    ((300, 1, 1), (300, 1)),
    ((0, 1, 3), (9000, 3)),
    ((100, 1, 64), (100, 64)),
    ((100, 100, 3), (3,)),
    ((9000, 1, 3), (1, 3)),
    ((5, 1, 3), (4, 3)),
    ((1, 1, 1), (1,)),
    ((500, 1), (300,)),
    ((500, 300), (500, 1)),
    ((30, 1, 3), (30, 3)),
]


def pair(a_shape, b_shape):
    return RNG.normal(size=a_shape), RNG.normal(size=b_shape)


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize("function", [np.subtract, np.maximum, np.divide])
def test_numbers_are_numpys(shapes, function):
    a, b = pair(*shapes)
    for x, y in ((a, b), (b, a), (np.asfortranarray(a), b[..., ::-1]), (a.astype(np.float32), b.astype(np.float32))):
        out, expected = in_long_rows(function, (x, y), {}), function(x, y)
        assert out.dtype == expected.dtype
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "last"),
    [
        ((200, 1, 3), (150, 3), 0),
        ((150, 1, 3), (200, 3), 1),
        ((1000, 1, 20), (25, 20), 0),
        ((100, 1, 64), (100, 64), 2),
        ((100, 100, 3), (3,), 2),
        ((5, 1, 3), (4, 3), 2),
        ((60, 1, 3), (60, 3), 2),  # Small operands.
    ],
)
def test_the_longest_axis_is_last_in_memory_where_rows_would_be_short(a_shape, b_shape, last):
    a, b = pair(a_shape, b_shape)
    out = nt.sub(nt.tensor(a), nt.tensor(b)).numpy()
    assert np.argmin(out.strides) == last
    assert sorted(out.strides)[0] == out.itemsize  # Without gaps.
    assert out.base is None or out.base.nbytes == out.nbytes


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


def test_the_layout_is_the_same_on_every_path():
    a, b = pair((200, 1, 3), (150, 3))
    t = nt.tensor(a)
    plain = nt.grad(lambda x: nt.sum(nt.sqrt(nt.sum((x - b) ** 2, -1))))(a)
    assert (t - nt.tensor(b)).numpy().strides == (t - b).numpy().strides == nt.sub(a, b).strides == (8, 4800, 1600)
    with nt.profile():
        profiled = nt.grad(lambda x: nt.sum(nt.sqrt(nt.sum((x - b) ** 2, -1))))(a)
    with nt.Tape() as tape:
        x = nt.tensor(a, requires_grad=True)
        loss = nt.checkpoint(lambda x: nt.sum(nt.sqrt(nt.sum((x - nt.tensor(b)) ** 2, -1))), x)
    checkpointed = tape.gradient(loss, x).numpy()
    np.testing.assert_array_equal(profiled, plain)
    np.testing.assert_array_equal(checkpointed, plain)


def test_numbers_among_the_operands():
    a, b = pair((200, 1, 3), (150, 3))
    out = nt.where(nt.tensor(a) > b, nt.tensor(b), 0.5)
    np.testing.assert_array_equal(out.numpy(), np.where(a > b, b, 0.5))
    np.testing.assert_array_equal(nt.clip(nt.tensor(a), b, 1.0).numpy(), np.clip(a, b, 1.0))


def test_shapes_that_do_not_broadcast_are_named_as_given():
    with pytest.raises(ShapeError, match=r"sub: a has shape \(200, 1, 3\) and b has shape \(150, 4\)"):
        nt.tensor(np.ones((200, 1, 3))) - nt.tensor(np.ones((150, 4)))


@pytest.mark.parametrize("shapes", PAIRS[:7], ids=str)
def test_derivatives(shapes):
    a, b = (x.astype(np.float64) for x in pair(*shapes))
    weights = RNG.normal(size=np.broadcast_shapes(*shapes))
    by_a, by_b = nt.grad(lambda a, b: nt.sum((a - b) ** 2 * weights), argnums=(0, 1))(a, b)
    cotangent = 2 * (a - b) * weights
    for found, operand, sign in ((by_a, a, 1), (by_b, b, -1)):
        extra = cotangent.ndim - operand.ndim
        axes = (*range(extra), *(i + extra for i, n in enumerate(operand.shape) if n == 1))
        expected = sign * cotangent.sum(axis=axes, keepdims=True).reshape(operand.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
