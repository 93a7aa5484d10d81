"""Public functions that are written by hand around an op: every way to call them, on arrays and tensors."""

import numpy as np
import pytest
from face_table import FACES, HOLES, MASK, V, X

import numtape as nt
from numtape.core.declare import public, registry
from numtape.core.op import Op
from numtape.errors import ArgumentError, OperandError, ShapeError

#: The six-point stencil, exact for linear functions and of sixth order for others.
STENCIL = ((1, 45.0), (2, -9.0), (3, 1.0))
STEP = 1e-3

CALLS = [
    pytest.param(face, call, i >= len(face.functions), id=f"{face.name}-{number}-{i}")
    for number, face in enumerate(FACES)
    for i, call in enumerate((*face.functions, *face.methods))
]


def expected_gradient(face, weights):
    """Return the gradient of the weighted sum of the reference's elements, by differences."""
    gradient = np.zeros(face.x.shape)
    for place in np.ndindex(face.x.shape):
        if not np.isfinite(face.x[place]):
            continue  # A constant stands there.
        step = np.zeros(face.x.shape)
        step[place] = STEP
        for k, weight in STENCIL:
            delta = face.reference(face.x + k * step) - face.reference(face.x - k * step)
            gradient[place] += np.sum(weights * delta) * weight / (60 * STEP)
    return gradient


@pytest.mark.parametrize(("face", "call", "needs_tensor"), CALLS)
def test_every_way_to_call_gives_the_value_and_the_gradient(face, call, needs_tensor):
    expected = face.reference(face.x)
    before = face.x.copy()
    if not needs_tensor:
        on_array = call(face.x)
        assert isinstance(on_array, np.ndarray)
        np.testing.assert_allclose(on_array, expected, rtol=1e-13, atol=1e-14)
    x = nt.tensor(face.x, requires_grad=True)
    out = call(x)
    assert isinstance(out, nt.Tensor)
    assert out.shape == expected.shape
    assert out.dtype == np.float64
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-13, atol=1e-14)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, expected.shape)
    out.backward(weights)
    np.testing.assert_allclose(x.grad.numpy(), expected_gradient(face, weights), rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(face.x, before)


def test_every_handwritten_face_is_here():
    handwritten = {
        name
        for name, entry in registry.items()
        if isinstance(entry, Op) and name in public and public[name] is not entry.face
    }
    assert handwritten - {"allclose"} == {face.name for face in FACES}


def test_allclose_gives_a_python_bool():
    t = nt.tensor(X, requires_grad=True)
    for result in (nt.allclose(X, X), nt.allclose(t, X), nt.allclose(X, t + 1e-12), np.allclose(t, X)):
        assert result is True
    assert nt.allclose(t, X + 0.1) is False
    assert nt.allclose(t, X + 0.1, atol=0.2) is True
    assert nt.allclose(t, X + 0.1, 0.0, 0.2) is True
    assert nt.allclose(np.array([np.nan]), np.array([np.nan]), equal_nan=True) is True


def test_where_with_a_condition_alone_gives_positions():
    for x in (MASK, nt.tensor(MASK)):
        assert [list(part) for part in nt.where(x)] == [[0, 0, 1], [0, 2, 2]]
        assert [list(part) for part in np.where(x)] == [[0, 0, 1], [0, 2, 2]]
    with pytest.raises(
        ArgumentError, match=r"^where: one branch is missing; give both a and b, or none to get positions"
    ):
        nt.where(MASK, X)


def test_nan_to_num_takes_the_limits_of_the_dtype_and_never_overwrites():
    for dtype in (np.float32, np.float64):
        x = HOLES.astype(dtype)
        np.testing.assert_array_equal(nt.nan_to_num(x), np.nan_to_num(x))
        np.testing.assert_array_equal(nt.tensor(x).nan_to_num().numpy(), np.nan_to_num(x))
    with pytest.raises(ArgumentError, match=r"^nan_to_num: copy is False; x is never overwritten, so leave it True\.$"):
        nt.nan_to_num(HOLES, copy=False)


def test_clip_refuses_a_bound_given_twice_and_writes_to_out():
    with pytest.raises(OperandError, match=r"^clip: a bound is given twice, as min or max and as a_min or a_max;"):
        nt.clip(X, min=1.0, a_min=2.0)
    out = np.zeros((2, 3))
    nt.clip(X, 2.0, 4.0, out=out)
    np.testing.assert_array_equal(out, np.clip(X, 2.0, 4.0))


def test_topk_gives_indices_that_are_integers_without_a_gradient():
    values, indices = nt.tensor(X, requires_grad=True).topk(2)
    assert values.requires_grad
    assert not indices.requires_grad
    assert indices.dtype == np.int64
    assert indices.tolist() == [[1, 2], [2, 0]]


def test_cast_brings_the_gradient_back_to_the_dtype_of_the_leaf():
    for dtype in (nt.float16, nt.bfloat16, nt.float32):
        x = nt.tensor(X, requires_grad=True)
        low = x.astype(dtype)
        assert low.dtype == dtype
        (low * 2.0).sum().backward()
        assert x.grad.dtype == np.float64
        assert x.grad.tolist() == [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]


def test_a_cast_to_integers_has_no_gradient_whatever_the_float_dtype_before():
    for dtype in (nt.float16, nt.bfloat16, nt.float32, nt.float64):
        x = nt.tensor(X, dtype=dtype, requires_grad=True)
        for whole in (x.astype(int), nt.cast(x, nt.int64), x.long(), x.bool(), (x * 1.0).to(nt.int32)):
            assert not whole.requires_grad
            assert not (whole * 1.5).requires_grad


def test_dropout_keeps_the_mean_and_the_stream_moves_on():
    rng = nt.Generator(0)
    first, second = (nt.dropout(np.ones(10_000), 0.25, rng=rng) for _ in range(2))
    assert set(np.unique(first)) == {0.0, 1.0 / 0.75}
    assert abs(first.mean() - 1.0) < 0.02
    assert not np.array_equal(first, second)
    with pytest.raises(ArgumentError, match=r"^dropout: p is -0\.1; a probability lies between 0 and 1\.$"):
        nt.dropout(np.ones(2), -0.1)


def test_a_part_that_is_not_used_has_the_gradient_zero():
    for parts in (
        lambda x: nt.split(x, 3, axis=1),
        lambda x: nt.split(x, [1, 2], axis=1),
        lambda x: nt.chunk(x, 3, dim=1),
        lambda x: nt.array_split(x, 3, axis=1),
        lambda x: [part.reshape(2, 1) for part in nt.unbind(x, axis=1)],
        lambda x: np.split(x, 3, axis=1),
    ):
        x = nt.tensor(X, requires_grad=True)
        (parts(x)[1] * np.array([[2.0], [3.0]])).sum().backward()
        assert x.grad.tolist() == [[0.0, 2.0, 0.0], [0.0, 3.0, 0.0]]
    x = nt.tensor(X, requires_grad=True)
    nt.split(x, [2, 1], axis=1)[2].sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nt.reshape(X, 4, 2), "reshape: x has shape (2, 3) with 6 elements, which do not fit shape (4, 2)."),
        (lambda: nt.reshape(X, "ab"), "reshape: wants integers, or one tuple of them, not ('a', 'b')."),
        (lambda: nt.roll(X, (1, 2), (0,)), "roll: shift has 2 numbers and axis 1; give as many."),
        (lambda: nt.repeat(X, 1.5), "repeat: repeats are integers from 0 on, not 1.5."),
        (
            lambda: nt.repeat(X, [1, 2], axis=1),
            "repeat: repeats has shape (2,) and axis 1 of x has length 3; give one number, or one for each member.",
        ),
        (lambda: nt.diagonal(V), "diagonal: x has shape (4,); a matrix has at least two axes."),
        (lambda: nt.diagonal(X, axis1=1), "diagonal: axis1 and axis2 are both 1; a matrix has two axes."),
        (
            lambda: nt.svd(X, full_matrices=True),
            "svd: x has shape (2, 3) and full_matrices=True, but the further vectors are not determined by x and have "
            "no derivative; pass full_matrices=False.",
        ),
    ],
)
def test_wrong_arguments_raise_their_message(call, message):
    with pytest.raises((ArgumentError, OperandError, ShapeError)) as caught:
        call()
    assert str(caught.value) == message
