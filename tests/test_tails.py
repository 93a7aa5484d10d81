"""Derivatives keep their digits far from 0, where a function is almost constant or almost 0."""

import mpmath as mp
import numpy as np
import pytest

import numtape as nt

FAR = [-700.0, -40.0, -18.0, -1.0, 0.0, 1.0, 18.0, 40.0, 700.0]


def bell(x):
    """Return the derivative of the logistic function."""
    return float(mp.exp(-abs(x)) / (1 + mp.exp(-abs(x))) ** 2)


@pytest.mark.parametrize("x", FAR)
def test_second_derivatives_of_logsigmoid(x):
    assert nt.grad(nt.grad(nt.logsigmoid))(x) == pytest.approx(-bell(x), rel=1e-13, abs=0.0)
    assert nt.derivatives(nt.logsigmoid, x, 2)[2] == pytest.approx(-bell(x), rel=1e-13, abs=0.0)


def test_second_derivatives_of_logsigmoid_in_float32():
    found = nt.grad(nt.grad(nt.logsigmoid))(np.float32(-18.0))
    assert found.dtype == np.float32
    assert float(found) == pytest.approx(-bell(-18.0), rel=1e-6, abs=0.0)


@pytest.mark.parametrize("x", FAR)
def test_third_derivatives_of_logsigmoid(x):
    third = nt.grad(nt.grad(nt.grad(nt.logsigmoid)))(x)
    assert third == pytest.approx(bell(x) * float(mp.tanh(x / 2)), rel=1e-13, abs=0.0)


@pytest.mark.parametrize("x", FAR)
def test_second_derivatives_of_logaddexp(x):
    expected = bell(x) * np.array([[1.0, -1.0], [-1.0, 1.0]])
    for mode in ("forward", "reverse"):
        found = nt.hessian(lambda v: nt.logaddexp(v[0], v[1]), mode=mode)(np.array([x, 0.0]))
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("x", [-37.0, -20.0, -8.0, -4.1, -3.9, -1.0, 1.0, 8.0])
def test_gelu_and_its_derivatives(x):
    with mp.workdps(40):
        expected = [float(mp.diff(lambda t: t * mp.ncdf(t), x, n)) for n in range(3)]
    # Down to -4 the value is a small rest of 1, and below as exact as erfc.
    assert nt.gelu(x) == pytest.approx(expected[0], rel=1e-11 if x > -4.0 else 1e-12, abs=0.0)
    assert nt.grad(nt.gelu)(x) == pytest.approx(expected[1], rel=1e-11, abs=0.0)
    assert nt.grad(nt.grad(nt.gelu))(x) == pytest.approx(expected[2], rel=1e-12, abs=0.0)


def test_gelu_of_arrays_that_lie_otherwise_in_memory():
    x = np.linspace(-9.0, 9.0, 60).reshape(5, 12)
    np.testing.assert_array_equal(nt.gelu(x.T), nt.gelu(x).T)
    np.testing.assert_array_equal(nt.gelu(x[::2, ::-3]), nt.gelu(x)[::2, ::-3])
    assert np.isnan(nt.gelu(np.array([np.nan, -8.0]))).tolist() == [True, False]
