"""Convolutions that threads share where BLAS is held to one: the same numbers, and the same bits for any threads."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import blas, convolution, pool, provided_convolution, providers, shared_convolution

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
            provided_convolution.conv(x, weight, bias, *where),
            provided_convolution.conv_input(y, weight, x.shape[2:], *where),
            provided_convolution.conv_weight(x, y, weight.shape[2:], *where),
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


def test_samples_are_grouped_by_size():
    found = {}
    for case in SHAPES:
        x, weight, _, y, stride, padding, groups = arguments(case)
        what = convolution.Convolution(x.shape, weight.shape, y.shape, x.dtype, stride, padding, (1, 1), groups)
        found[case] = [(part.start, part.stop) for part in shared_convolution._groups(what)]
    assert len(found.pop("many groups")) == 8
    assert found == {
        "strides and groups of channels": [(0, 15), (15, 31), (31, 47), (47, 63)],
        "little work": [(0, 3)],
        "one sample": [(0, 1)],
        "no samples": [(0, 0)],
    }


@pytest.mark.skipif(blas.library() is None, reason="the threads of this BLAS cannot be set")
def test_all_threads_have_the_error_state_of_the_caller(held, monkeypatch):
    monkeypatch.setattr(pool, "threads", lambda: 2)
    x, weight = np.full((64, 16, 16, 16), 1e30, np.float32), np.full((16, 16, 3, 3), 1e30, np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"), providers.pinned("numpy"):
        warnings.simplefilter("error")
        assert np.isinf(provided_convolution.conv(x, weight, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)).all()
    with np.errstate(over="raise"), providers.pinned("numpy"), pytest.raises(FloatingPointError):
        provided_convolution.conv(x, weight, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)


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


def test_work_at_the_end_of_the_program_does_not_wait_for_threads():
    program = (
        "import sys, numtape as nt\n"
        "from numtape.kernels import pool\n"
        "nt.seed(0)\n"
        "pool.threads = (2).__int__  # A function would keep this module alive.\n"
        "class Run:\n"
        "    def __init__(self):\n"
        "        self.nt, self.write = nt, sys.stdout.write\n"
        "        self.x, self.w = nt.ones(64, 16, 28, 28), nt.ones(32, 16, 3, 3)\n"
        "    def evaluate(self):\n"
        "        with self.nt.deterministic():\n"
        "            return self.nt.conv2d(self.x, self.w)\n"
        "    def __del__(self):\n"
        "        self.evaluate()\n"
        "        self.write('done')\n"
        "run = Run()\n"
        "run.evaluate()\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "done"
