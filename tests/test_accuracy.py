"""Values and gradients where a formula taken by its word loses digits, overflows, or hides a NaN."""

import numpy as np
import pytest

import numtape as nt

INF, NAN = np.inf, np.nan


def gradients(function, *arguments):
    arrays = [np.asarray(argument) for argument in arguments]
    total = nt.grad(lambda *operands: function(*operands).sum(), argnums=tuple(range(len(arrays))))
    with np.errstate(all="ignore"):
        return [np.asarray(gradient) for gradient in total(*arrays)]


@pytest.mark.parametrize(
    ("a", "b", "by_a", "by_b"),
    [
        (0.0, INF, 0.0, 1.0),
        (INF, 0.0, 1.0, 0.0),
        (0.0, -INF, 1.0, 0.0),
        (-INF, -INF, 0.0, 0.0),
        (INF, INF, 0.5, 0.5),
        (-INF, INF, 0.0, 1.0),
        (1e17, 1e17, 0.5, 0.5),
        (NAN, 0.0, NAN, NAN),
        (0.0, NAN, NAN, NAN),
    ],
)
@pytest.mark.parametrize("function", [nt.logaddexp, nt.logaddexp2])
def test_the_gradients_of_logaddexp_are_shares_also_at_infinities(function, a, b, by_a, by_b):
    np.testing.assert_array_equal(gradients(function, a, b), [by_a, by_b])


def test_the_gradients_of_logaddexp_sum_to_one_for_large_operands_in_float32():
    a, b = np.float32([1e6, 3e4]), np.float32([1e6 + 1, 3e4 + 0.25])
    by_a, by_b = gradients(nt.logaddexp, a, b)
    np.testing.assert_allclose(by_a, [0.2689414213699951, 0.43782349911420193], rtol=1e-6)
    np.testing.assert_allclose(by_a + by_b, [1.0, 1.0], rtol=1e-6)


def test_the_second_derivative_of_logaddexp_at_equal_operands_is_a_quarter():
    second = nt.grad(nt.grad(lambda a: nt.logaddexp(a, 1.0)))
    np.testing.assert_allclose(second(np.array(1.0)), 0.25, rtol=1e-15)


def test_the_values_of_logaddexp_are_those_of_numpy_also_at_infinities():
    a, b = (x.ravel() for x in np.meshgrid([-INF, -800.0, -1.0, 0.0, 2.0, 800.0, INF, NAN], [-INF, 0.5, 799.0, INF]))
    for function, reference in ((nt.logaddexp, np.logaddexp), (nt.logaddexp2, np.logaddexp2)):
        with np.errstate(all="raise", under="ignore"):
            value = function(a, b)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(value, reference(a, b), rtol=1e-15)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nt.elu, 9.357622968840175e-14),
        (nt.selu, 1.6451630773416185e-13),
        (nt.celu, 9.357622968840175e-14),
    ],
)
def test_the_slope_of_exponential_units_far_below_zero_keeps_its_digits(function, expected):
    for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-14)):
        (slope,) = gradients(function, np.array([-30.0], dtype))
        np.testing.assert_allclose(slope, [expected], rtol=tolerance)


@pytest.mark.parametrize("from_logits", [True, False])
def test_a_cross_entropy_of_ignored_predictions_alone_is_nan_with_the_gradient_zero(from_logits):
    target = np.array([-100, -100])

    def loss(x):
        return nt.cross_entropy_loss(x, target, from_logits=from_logits)

    x = np.array([[0.2, 0.7], [0.5, 0.5]])
    with np.errstate(all="ignore"):
        assert np.isnan(loss(x))
        np.testing.assert_array_equal(nt.grad(loss)(x), np.zeros((2, 2)))


def test_an_ignored_prediction_that_is_nan_has_the_gradient_zero():
    x = np.array([[NAN, 1.0], [0.0, 0.0]])
    gradient = nt.grad(lambda x: nt.cross_entropy_loss(x, np.array([-100, 0])))(x)
    np.testing.assert_array_equal(gradient, [[0.0, 0.0], [-0.5, 0.5]])


@pytest.mark.parametrize("order", ["C", "F"])
def test_float32_means_and_deviations_over_a_long_first_axis_are_accurate(order):
    x = np.asarray(1000.5 + np.random.default_rng(0).standard_normal((250_000, 4)), np.float32, order=order)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(nt.mean(x, axis=0), exact.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(nt.sum(x, axis=0), exact.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(nt.std(x, axis=0), exact.std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(nt.var(x, axis=(0,), ddof=1), exact.var(axis=0, ddof=1), rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, (0, 1), (1, 2), (0, 1, 2), -2])
@pytest.mark.parametrize("keepdims", [False, True])
def test_float32_sums_by_blocks_have_the_shape_and_value_of_numpys(axis, keepdims):
    x = np.arange(2 * 1500 * 3, dtype=np.float32).reshape(2, 1500, 3) % 7
    expected = x.astype(np.float64).sum(axis=axis, keepdims=keepdims)
    total = nt.sum(x, axis=axis, keepdims=keepdims)
    assert total.dtype == np.float32
    np.testing.assert_array_equal(total, expected, strict=False)
    assert total.shape == expected.shape


def test_the_deviation_of_equal_numbers_is_zero_even_if_their_mean_is_rounded():
    x = np.full((10_000, 2), 1000.3, np.float32)
    np.testing.assert_array_equal(nt.std(x, axis=0), [0.0, 0.0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_gradient_of_logsumexp_sums_to_one_in_every_dtype(dtype):
    x = nt.tensor([20.0, 20.5, 21.0], dtype=dtype, requires_grad=True)
    nt.logsumexp(x).backward()
    gradient = x.grad.numpy().astype(np.float64)
    np.testing.assert_allclose(gradient.sum(), 1.0, rtol=1e-2)
    np.testing.assert_allclose(gradient, [0.1863237, 0.3071959, 0.5064804], rtol=2e-2)


def test_the_gradient_of_logsumexp_of_large_float32_numbers_sums_to_one():
    (gradient,) = gradients(nt.logsumexp, np.float32([1e6, 1e6 + 0.5, 1e6 + 1]))
    np.testing.assert_allclose(gradient, [0.1863237, 0.3071959, 0.5064804], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (nt.relu, [NAN, -1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 1.0]),
        (nt.relu6, [NAN, -1.0, 3.0, 7.0], [1.0, 0.0, 1.0, 0.0]),
        (nt.max, [1.0, NAN, 3.0], [0.0, 1.0, 0.0]),
        (nt.min, [1.0, NAN, 3.0], [0.0, 1.0, 0.0]),
        (nt.max, [NAN, NAN, 3.0], [0.5, 0.5, 0.0]),
    ],
)
def test_the_gradient_reaches_the_elements_that_are_nan(function, x, expected):
    np.testing.assert_array_equal(gradients(function, x), [expected])


@pytest.mark.parametrize("function", [nt.maximum, nt.minimum])
def test_the_gradient_of_a_choice_of_two_goes_to_the_operand_that_is_nan(function):
    by_a, by_b = gradients(function, [1.0, NAN], [NAN, 1.0])
    np.testing.assert_array_equal(by_a, [0.0, 1.0])
    np.testing.assert_array_equal(by_b, [1.0, 0.0])


def test_the_derivative_of_a_power_of_zero_by_a_negative_exponent_is_minus_infinity():
    _, by_b = gradients(nt.pow, [0.0, 0.0, 0.0, 2.0], [-1.0, 0.0, 2.0, -1.0])
    np.testing.assert_allclose(by_b, [-INF, 0.0, 0.0, 0.34657359027997264], rtol=1e-15)


def test_the_gradient_of_logit_is_nan_where_its_value_is():
    (gradient,) = gradients(nt.logit, [-0.5, 0.0, 0.5, 1.0, 1.5])
    np.testing.assert_array_equal(gradient, [NAN, INF, 4.0, INF, NAN])


def test_addmm_with_beta_zero_ignores_what_the_addend_holds():
    a, b, addend = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.full(2, NAN)
    np.testing.assert_array_equal(nt.addmm(addend, a, b, beta=0), b)
    by_addend, by_a = nt.grad(lambda c, a: nt.addmm(c, a, b, beta=0).sum(), argnums=(0, 1))(addend, a)
    np.testing.assert_array_equal(by_addend, [0.0, 0.0])
    np.testing.assert_array_equal(by_a, [[3.0, 7.0], [3.0, 7.0]])


def test_a_variance_below_eps_counts_as_eps_and_keeps_its_gradient():
    mean, target, var = np.array([1.0, 1.0]), np.array([0.0, 0.0]), np.array([0.25, -1e9])

    def loss(var):
        return nt.gaussian_nll_loss(mean, target, var, eps=0.5, reduction="sum")

    # log(0.5) / 2 + 1 / (2 * 0.5) for each, and the slope 1 / (2 * 0.5) - 1 / (2 * 0.25).
    np.testing.assert_allclose(loss(var), 2 * (np.log(0.5) / 2 + 1.0), rtol=1e-15)
    np.testing.assert_allclose(nt.grad(loss)(var), [-1.0, -1.0], rtol=1e-15)


def test_one_variance_may_serve_a_whole_last_axis():
    mean, target = np.array([[1.0, 2.0]]), np.array([[0.0, 4.0]])
    by_var = nt.grad(lambda var: nt.gaussian_nll_loss(mean, target, var, reduction="sum"))(np.array([[1.0]]))
    np.testing.assert_allclose(by_var, [[1.0 - 2.5]], rtol=1e-15)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([2.0, 4.0, 0.5], [2.0, 1.0, 8.0]),
        ([2.0, 0.0, 0.5], [0.0, 1.0, 0.0]),
        ([1e200, 1e200, 1e-200], [1.0, 1.0, INF]),
        ([1e-200, 1e-200, 1e200], [1.0, 1.0, 0.0]),
    ],
)
def test_the_gradient_of_a_product_is_the_product_of_the_others(x, expected):
    np.testing.assert_allclose(gradients(nt.prod, x), [expected], rtol=1e-15)


def test_the_gradient_of_the_huber_loss_is_the_error_within_delta():
    (gradient,) = gradients(lambda x: nt.huber_loss(x, np.zeros(4), 2.0, reduction="sum"), [-5.0, -1.0, 0.0, 3.0])
    np.testing.assert_array_equal(gradient, [-2.0, -1.0, 0.0, 2.0])


def test_the_angle_has_its_slope_at_any_size():
    for size in (1e-170, 1e-20, 1.0, 1e20, 1e160):
        assert nt.grad(lambda y, size=size: nt.atan2(y, size))(size) == pytest.approx(0.5 / size)


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-305])
@pytest.mark.parametrize("axis", [None, 0])
def test_a_norm_whose_squares_leave_the_range_is_right(scale, axis):
    x = np.array([3.0, 4.0]) * scale
    value, gradient = nt.value_and_grad(lambda x: nt.norm(x, axis=axis))(x)
    np.testing.assert_allclose(value, 5.0 * scale, rtol=1e-15)
    np.testing.assert_allclose(gradient, [0.6, 0.8], rtol=1e-15)


def test_norms_of_float32_do_not_overflow_before_they_must():
    x = nt.tensor([3e25, 4e25], requires_grad=True)
    nt.norm(x).backward()
    np.testing.assert_allclose(x.grad, [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("order", ["fro", "nuc", 2, -2, 1, -1, INF])
def test_matrix_norms_of_zeros_have_the_gradient_zero(order):
    assert not gradients(lambda x: nt.norm(x, ord=order, axis=(-2, -1)), np.zeros((2, 3, 3)))[0].any()
