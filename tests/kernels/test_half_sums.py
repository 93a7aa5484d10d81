"""Sums of half numbers are correctly rounded however they lie and whatever they are, and take no memory to speak of."""

import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from numtape.kernels import half_sums
from numtape.kernels.half_sums import rounded, sum_of_halves

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def exactly(x, axis=None, keepdims=False):
    """Return correctly rounded sums, by integers: a half number is one times the smallest of its type."""
    scale = 24 if x.dtype == np.float16 else 133
    whole = np.vectorize(lambda v: int(Fraction(v) * 2**scale), otypes=[object])(x.astype(np.float64))
    totals = np.asarray(np.add.reduce(whole, axis=axis, keepdims=keepdims), object)

    def round_once(total):
        # To odd in float64, of which all bits but the last are exact; then to the half type.
        shift = max(abs(total).bit_length() - 53, 0)
        cut = abs(total) >> shift
        cut |= bool(abs(total) - (cut << shift))
        return float(Fraction(cut) * Fraction(2) ** (shift - scale)) * (-1.0 if total < 0 else 1.0)

    odd = np.vectorize(round_once, otypes=[np.float64])(totals) if totals.size else np.zeros(totals.shape)
    return rounded(np.asarray(odd), x.dtype).astype(np.float64)


def drawn(shape, dtype, spread, seed=0):
    rng = np.random.default_rng(seed)
    least, most = (-23, 15) if dtype == np.float16 else (-120, 120)
    exponents = rng.uniform(max(least, -spread), min(most, spread), shape)
    return (rng.choice([-1.0, 1.0], shape) * 2.0**exponents).astype(dtype)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("spread", [2, 14, 60, 120])
def test_sums_are_correctly_rounded_however_the_numbers_lie(spread, dtype):
    x = drawn((6, 9, 14), dtype, spread)
    x[:3, :, 7:] = -x[:3, :, :7]  # Some of these cancel, and others do not.
    x[:3, :, 6] = drawn((3, 9), dtype, spread, seed=1)
    forms = (x, np.asfortranarray(x), x[::-1, ::2], x.transpose(2, 0, 1), np.repeat(x, 2, axis=2)[..., ::2])
    for form in forms:
        for axis in (None, 0, 1, -1, (0, 2), (1, 2), (2, 0, 1), [0, 1]):
            for keepdims in (False, True):
                found = sum_of_halves(form, tuple(axis) if isinstance(axis, list) else axis, keepdims)
                given = tuple(axis) if isinstance(axis, list) else axis
                np.testing.assert_array_equal(found.astype(np.float64), exactly(form, given, keepdims))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("size", [2 * half_sums._ROW - 1, 2 * half_sums._ROW + 1, 3 * half_sums._ROW + 17, 70_001])
def test_long_sums_are_correctly_rounded_with_and_without_what_cancels(size, dtype):
    x = drawn(size, dtype, 40, seed=size)
    half = size // 2
    cancelling = x.copy()
    cancelling[half : 2 * half] = -cancelling[:half]
    cancelling[[3, 5]] *= dtype.type(1.0 + 2.0**-7)
    for each in (x, cancelling, cancelling[::-1], np.stack([x, cancelling]), np.stack([x, cancelling], axis=1)):
        np.testing.assert_array_equal(sum_of_halves(each, None, False).astype(float), exactly(each))
        for axis in range(each.ndim):
            if each.shape[axis] > 2:
                np.testing.assert_array_equal(sum_of_halves(each, axis, False).astype(float), exactly(each, axis))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_tie_that_is_decided_far_behind_is_found(dtype):
    digits = 10 if dtype == np.float16 else 7
    tie = [1.0, 2.0 ** -(digits + 1)]
    for tail, expected in ((2.0**-24, 1.0 + 2.0**-digits), (-(2.0**-24), 1.0), (0.0, 1.0)):
        x = np.zeros(20_000, dtype)
        x[[0, 9000]], x[[1, 15_000]] = tie, [2.0**14, -(2.0**14)]
        x[19_999] = tail
        assert float(sum_of_halves(x, None, False)) == expected
        assert float(sum_of_halves(x[::-1], 0, False)) == expected


@pytest.mark.filterwarnings("ignore:invalid")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_not_finite_is_no_concern_of_other_sums(dtype):
    x = np.zeros((5, 9000), dtype)
    x[0, 0], x[1, 1], x[2, 2], x[2, 3], x[3, 0] = np.inf, np.nan, np.inf, -np.inf, 3.0
    x[4, :3] = [2.0**15, 2.0**-14, -(2.0**15)]
    np.testing.assert_array_equal(sum_of_halves(x, 1, False).astype(float), [np.inf, np.nan, np.nan, 3.0, 2.0**-14])
    assert np.isnan(sum_of_halves(x, None, False).astype(float))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sums_take_little_memory(axis, cancels, dtype):
    x = drawn((1024, 1024), dtype, 60)
    if cancels:
        x[512:] = -x[:512]
        x[:, 512:] = -x[:, :512]
    tracemalloc.start()
    sum_of_halves(x, axis, False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 2.5 * x.nbytes
