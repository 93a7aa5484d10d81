"""Sums along axes: as NumPy's, whatever the layout, and accurate in float32 where NumPy's own are not."""

import numpy as np
import pytest

import numtape as nt
from numtape.kernels.sums import add_reduce, dot_channels

RNG = np.random.default_rng(0)
SHAPES = [
    (100, 20),
    (64, 3, 40),
    (30, 600),
    (600, 30),
    (5, 6, 7, 20),
    (200, 25, 20),
    (2000,),
    (50, 1, 50),
    (0, 5),
    (3000, 1),
]


def axes_of(ndim):
    several = [(0, ndim - 1), 1, ndim - 2] if ndim > 1 else []
    return [None, 0, -1, (0,), tuple(range(ndim)), (), *several]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_numpys_for_every_layout(shape, dtype):
    x = RNG.normal(size=shape).astype(dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    for view in (x, x.T, x[::2], np.moveaxis(x, 0, -1), x[::-1], np.broadcast_to(x, (3, *shape))):
        for axis in axes_of(view.ndim):
            for keepdims in (False, True):
                wanted = np.add.reduce(view.astype(np.float64), axis=axis, keepdims=keepdims)
                found = np.asarray(add_reduce(view, axis, keepdims))
                assert (found.shape, found.dtype) == (np.shape(wanted), np.dtype(dtype))
                size = np.add.reduce(np.abs(view.astype(np.float64)), axis=axis, keepdims=keepdims)
                assert np.all(np.abs(found - wanted) <= tolerance * size)
                assert not np.shares_memory(found, x)


@pytest.mark.parametrize("axis", [2, -3, (0, 0), (0, 5)])
def test_wrong_axes_raise_as_numpy_does(axis):
    with pytest.raises(ValueError, match=r"out of bounds|duplicate value"):
        add_reduce(np.ones((100, 30)), axis, False)


def test_what_np_errstate_asks_for_is_told():
    x = np.full((200, 20), 3e38, np.float32)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        add_reduce(x, -1, False)
    with np.errstate(over="ignore"):
        assert np.isinf(add_reduce(x, -1, False)).all()


def test_more_axes_than_letters():
    x = nt.tensor(np.ones((1,) * 52 + (2,)), requires_grad=True)
    w = nt.tensor(np.ones((2,) + (1,) * 52), requires_grad=True)
    (x * w).sum().backward()
    assert x.grad.numpy().ravel().tolist() == w.grad.numpy().ravel().tolist() == [2.0, 2.0]
    assert nt.ones((1,) * 51 + (32, 64)).sum(axis=-2).numpy().ravel().tolist() == [32.0] * 64


def test_a_strided_column_is_added_pairwise_as_numpy_does():
    x = np.full((1_000_000, 2), 0.1)[:, :1]
    assert add_reduce(x, 0, False)[0] == pytest.approx(100_000.0, rel=1e-13)


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: w * x,
        lambda w, x: x * w,
        lambda w, x: x / w,
        lambda w, x: w + x,
    ],
)
@pytest.mark.parametrize("shape", [(1_000_000, 2), (2, 1_000_000)], ids=str)
def test_gradients_by_what_is_repeated_are_accurate_in_float32(function, shape):
    x = np.full(shape, 0.1, np.float32)
    w = np.ones(2 if shape[1] == 2 else (2, 1), np.float32)
    total = nt.grad(lambda w: function(w, nt.tensor(x)).sum())
    wide = nt.grad(lambda w: function(w, nt.tensor(x.astype(np.float64))).sum())
    assert np.allclose(total(w), wide(w.astype(np.float64)), rtol=1e-5)


def test_sums_that_leave_out_nan_norms_and_einsum_are_accurate_in_float32():
    x = np.full((3_000_000, 2), 0.1, np.float32)
    wanted = x[:, 0].astype(np.float64).sum()
    for found in (nt.nansum(x, axis=0), nt.einsum("ij->j", x), nt.norm(x, ord=1, axis=0), nt.sum(x, axis=0)):
        assert np.allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("shape", [(5, 3, 4), (3000, 2, 1), (700, 2, 3)], ids=str)
def test_dots_of_channels(shape):
    a, b = RNG.normal(size=(2, *shape)).astype(np.float32)
    wanted = np.einsum("ncs,ncs->c", a.astype(np.float64), b.astype(np.float64))
    assert np.allclose(dot_channels(a, b), wanted, rtol=1e-5, atol=1e-3)


def test_the_variance_of_many_numbers_is_accurate():
    x = np.ones((20_000_000, 1), np.float32)
    x[::2] = -1.0
    _, _, variance = nt.ops.normalisation._batch_normalise(x)
    assert variance == pytest.approx(1.0, rel=1e-5)


VIEWS = {
    "repeated": lambda: (np.broadcast_to(np.float32([0.1, 0.2, 0.3]), (1_000_000, 3)), 0),
    "reversed": lambda: ((RNG.random((300_000, 3)) + 100.0).astype(np.float32)[::-1], 0),
    "several axes": lambda: (np.full((200, 200, 100, 2), 0.1, np.float32), (0, 1, 2)),
    "axes apart": lambda: (RNG.random((300, 4, 300, 2), dtype=np.float32), (0, 2)),
    "all of a transposed array": lambda: (np.full((3, 700_000), 0.1, np.float32).T, None),
    "all of a repeated number": lambda: (np.broadcast_to(np.float32(0.1), (1000, 3000)), None),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_float32_sums_are_accurate_whatever_the_layout(view):
    x, axis = view()
    wanted = x.astype(np.float64).sum(axis=axis)
    assert np.allclose(nt.sum(x, axis=axis), wanted, rtol=3e-6)
    assert np.allclose(nt.mean(x, axis=axis), wanted / (x.size / np.size(wanted)), rtol=3e-6)


def test_gradients_of_means_by_what_was_repeated_are_accurate():
    b = nt.zeros(3, requires_grad=True)
    (nt.zeros(1_000_000, 3) + b).mean().backward()
    nt.nn.functional.layer_norm(nt.zeros(300, 300, 3), (3,), None, b).mean().backward()
    nt.linear(nt.zeros(300_000, 2), nt.zeros(3, 2), b).mean().backward()
    nt.tile(b, (400_000, 1)).mean().backward()
    assert np.allclose(b.grad.numpy(), 4.0 / 3.0, rtol=3e-6)


def test_running_sums_and_their_gradients_do_not_drift():
    x = nt.tensor(np.full(2_000_000, 0.1, np.float32), requires_grad=True)
    total = nt.cumsum(x)
    assert total.numpy()[-1] == pytest.approx(200_000.0, rel=1e-6)
    (total * 0.1).sum().backward()
    assert x.grad.numpy()[0] == pytest.approx(200_000.0, rel=1e-6)


def test_weights_of_normalised_rows_have_accurate_gradients():
    x = RNG.normal(size=(300_000, 4)).astype(np.float32)
    for norm in (nt.nn.functional.layer_norm, nt.nn.functional.rms_norm):
        gradient = nt.grad(lambda w, x, norm=norm: (norm(x, (4,), w) ** 2).sum())
        found, wanted = gradient(np.ones(4, np.float32), x), gradient(np.ones(4), x.astype(np.float64))
        assert np.allclose(found, wanted, rtol=2e-6)
