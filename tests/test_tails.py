"""Derivatives keep their digits far from 0, where a function is almost constant or almost 0."""

import functools

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


def logistic(x):
    return 1 / (1 + mp.exp(-x))


#: Each function, and the same in numbers of any precision.
TAILED = {
    "expm1": (nt.expm1, lambda x: mp.exp(x) - 1),
    "softplus": (nt.softplus, lambda x: mp.log(1 + mp.exp(x))),
    "logsigmoid": (nt.logsigmoid, lambda x: -mp.log(1 + mp.exp(-x))),
    "logaddexp": (lambda x: nt.logaddexp(x, x * 0.0), lambda x: mp.log(1 + mp.exp(x))),
    "logaddexp2": (lambda x: nt.logaddexp2(x * 0.0, x), lambda x: mp.log(1 + mp.mpf(2) ** x) / mp.log(2)),
    "silu": (nt.silu, lambda x: x * logistic(x)),
    "mish": (nt.mish, lambda x: x * mp.tanh(mp.log(1 + mp.exp(x)))),
    "softsign": (nt.softsign, lambda x: x / (1 + abs(x))),
}

#: From the tails to where odd derivatives are almost 0.
PLACES = [-700.0, -100.0, -40.0, -20.0, -5.0, -1e-3, -1e-10, 1e-10, 1e-3, 5.0, 20.0, 40.0, 100.0, 700.0]


@functools.cache
def exact_derivative(name, x, order):
    """Return a derivative to 30 digits: the differences are taken with so many that no tail is lost."""
    with mp.workdps(60 + int(abs(x))):
        found = mp.diff(TAILED[name][1], mp.mpf(x), order)
    return mp.mpf(found)


def reverse(function):
    return nt.grad(lambda x: function(x).sum())


def forward(function):
    return lambda x: nt.jvp(function, x, np.ones_like(x))[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mode", [reverse, forward])
@pytest.mark.parametrize("name", TAILED)
def test_derivatives_of_three_orders_keep_all_but_the_last_digits(name, mode, dtype):
    scale = 1.0 if dtype is np.float64 else 0.05
    x = (np.array(PLACES) * scale).astype(dtype)
    derivative = TAILED[name][0]
    for order in (1, 2, 3):
        derivative = mode(derivative)
        expected = np.array([float(exact_derivative(name, float(each), order)) for each in x])
        # Below the smallest normal number, digits go by underflow.
        tiny = np.finfo(dtype).smallest_normal
        np.testing.assert_allclose(derivative(x), expected, rtol=12 * np.finfo(dtype).eps, atol=4 * tiny)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_logarithms_of_sums_near_1_keep_their_digits(dtype):
    x = np.array(
        [[-40.0, 0.0], [0.0, -5.0], [-1e-3, -8.0], [0.0, 0.0], [3.0, -40.0], [-np.inf, 0.0], [-np.inf, -np.inf]], dtype
    )
    with mp.workdps(40):
        expected = [float(mp.log(mp.exp(float(a)) + mp.exp(float(b)))) for a, b in x[:-1]] + [-np.inf]
    rtol = float(8 * np.finfo(dtype).eps)
    np.testing.assert_allclose(nt.logsumexp(x, axis=1), expected, rtol=rtol)
    np.testing.assert_allclose(nt.logsumexp(x.T, axis=0, keepdims=True), [expected], rtol=rtol)
    assert float(nt.logsumexp(x[0])) == pytest.approx(expected[0], rel=rtol, abs=0.0)


LARGE = {np.float64: [1e150, 1e155, 1e200, 1e300], np.float32: [1e15, 1e19, 1e20, 1e30]}


@pytest.mark.parametrize("dtype", LARGE)
def test_derivatives_of_inverse_hyperbolic_functions_do_not_vanish_where_squares_overflow(dtype):
    x = np.array(LARGE[dtype], dtype)
    for function in (nt.asinh, nt.acosh):
        np.testing.assert_allclose(nt.elementwise_grad(function)(x), 1.0 / x, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(nt.elementwise_grad(nt.asinh)(-x), 1.0 / x, rtol=4 * np.finfo(dtype).eps)
    for function in (nt.asinh, nt.acosh):
        assert np.isfinite(nt.elementwise_grad(nt.elementwise_grad(function))(x)).all()


def test_derivatives_of_inverse_hyperbolic_functions_keep_their_digits():
    x = np.array([1e-300, 1e-8, 0.3, 1.0, 7.0, 1e5, 1e100])
    expected = [float(1 / mp.sqrt(mp.mpf(v) ** 2 + 1)) for v in x]
    np.testing.assert_allclose(nt.elementwise_grad(nt.asinh)(x), expected, rtol=4e-16)
    x = np.array([1.0 + 1e-15, 1.0 + 1e-8, 1.3, 7.0, 1e5, 1e100])
    expected = [float(1 / mp.sqrt((mp.mpf(v) - 1) * (mp.mpf(v) + 1))) for v in x]
    np.testing.assert_allclose(nt.elementwise_grad(nt.acosh)(x), expected, rtol=8e-16)


@pytest.mark.parametrize("dtype", LARGE)
def test_gelu_by_tanh_is_flat_or_straight_where_cubes_overflow(dtype):
    x = np.array(LARGE[dtype], dtype)
    slope = nt.elementwise_grad(lambda x: nt.gelu(x, "tanh"))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(slope(x), np.ones(4))
        np.testing.assert_array_equal(slope(-x), np.zeros(4))
        for sign in (1.0, -1.0):
            np.testing.assert_array_equal(nt.elementwise_grad(slope)(dtype(sign) * x), np.zeros(4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["relu", "elu", "gelu", "silu", "mish", "softplus", "hardswish"])
def test_activations_that_let_large_numbers_pass_have_slopes_1_and_0_at_the_largest(name, dtype):
    x = np.array([0.1, 0.3, 0.9]) * np.finfo(dtype).max
    x = np.concatenate([x, -x]).astype(dtype)
    options = [{"approximate": "none"}, {"approximate": "tanh"}] if name == "gelu" else [{}]
    for given in options:
        with np.errstate(over="ignore"):
            found = nt.elementwise_grad(lambda x, given=given: getattr(nt, name)(x, **given))(x)
        np.testing.assert_array_equal(found, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
