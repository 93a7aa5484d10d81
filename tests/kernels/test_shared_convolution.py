"""Convolutions that threads share where BLAS is held to one: the same numbers, and the same bits for any threads."""

import warnings

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import blas, convolution, pool, providers, shared_convolution

SHAPES = {
    "many groups": ((130, 8, 32, 32), (8, 8, 3, 3), (1, 1), ((1, 1), (1, 1)), 1),
    "strides and groups of channels": ((63, 8, 33, 33), (32, 4, 3, 3), (2, 1), ((0, 1), (2, 0)), 2),
    "little work": ((3, 2, 5, 5), (4, 2, 3, 3), (1, 1), ((0, 0), (0, 0)), 1),
    "one sample": ((1, 16, 40, 40), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), 1),
    "no samples": ((0, 2, 5, 5), (4, 2, 3, 3), (1, 1), ((0, 0), (0, 0)), 1),
}


def arguments(case):
    x_shape, weight_shape, stride, padding, groups = SHAPES[case]
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in (x_shape, weight_shape, weight_shape[:1]))
    windows = convolution.out_size(x_shape[2:], weight_shape[2:], stride, padding, (1, 1))
    y = rng.normal(size=(len(x), len(weight), *windows)).astype(np.float32)
    return x, weight, bias, y, stride, padding, groups


def results(case):
    """Return a convolution and both of its transposes, as the provider computes them."""
    x, weight, bias, y, stride, padding, groups = arguments(case)
    where = (stride, padding, (1, 1), groups)
    with providers.pinned("numpy"):
        return (
            providers.conv(x, weight, bias, *where),
            providers.conv_input(y, weight, x.shape[2:], *where),
            providers.conv_weight(x, y, weight.shape[2:], *where),
        )


@pytest.fixture
def held():
    blas.single_thread.hold()
    yield
    blas.single_thread.release()


@pytest.mark.skipif(blas.library() is None, reason="the threads of this BLAS cannot be set")
@pytest.mark.parametrize("case", SHAPES)
def test_the_bits_do_not_depend_on_the_threads_and_the_numbers_are_the_same(case, monkeypatch):
    expected = results(case)
    found = []
    blas.single_thread.hold()
    try:
        for threads in (1, 2, 3, 8):
            monkeypatch.setattr(pool, "threads", lambda threads=threads: threads)
            found.append(results(case))
    finally:
        blas.single_thread.release()
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(found[0], expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def test_samples_are_grouped_by_size(monkeypatch):
    seen = []
    monkeypatch.setattr(pool, "run", lambda do, calls: seen.append([part for call in calls for part in call[2]]))
    for case in SHAPES:
        x, weight, bias, y, stride, padding, groups = arguments(case)
        what = convolution.Convolution(x.shape, weight.shape, y.shape, x.dtype, stride, padding, (1, 1), groups)
        shared_convolution.conv(what, x, weight, bias)
    assert list(map(len, seen)) == [8, 4, 1, 1, 1]
    assert [sorted((part.start, part.stop) for part in parts) for parts in seen[1:]] == [
        [(0, 15), (15, 31), (31, 47), (47, 63)],
        [(0, 3)],
        [(0, 1)],
        [(0, 0)],
    ]


@pytest.mark.skipif(blas.library() is None, reason="the threads of this BLAS cannot be set")
def test_all_threads_have_the_error_state_of_the_caller(held, monkeypatch):
    monkeypatch.setattr(pool, "threads", lambda: 2)
    x, weight = np.full((64, 16, 16, 16), 1e30, np.float32), np.full((16, 16, 3, 3), 1e30, np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"), providers.pinned("numpy"):
        warnings.simplefilter("error")
        assert np.isinf(providers.conv(x, weight, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)).all()
    with np.errstate(over="raise"), providers.pinned("numpy"), pytest.raises(FloatingPointError):
        providers.conv(x, weight, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)


@pytest.mark.skipif(blas.library() is None, reason="the threads of this BLAS cannot be set")
def test_kernels_may_use_the_threads_that_blas_may_not():
    before = nt.get_num_threads()
    try:
        nt.set_num_threads(2)
        with nt.deterministic():
            assert (nt.get_num_threads(), pool.threads()) == (1, 2)
            nt.set_num_threads(3)
            assert pool.threads() == 3
        assert pool.threads() == 3
    finally:
        nt.set_num_threads(before)
