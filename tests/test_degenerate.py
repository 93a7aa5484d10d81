"""Degenerate operands: equal and zero eigenvalues and singular values, and what else is right or a clear error."""

import inspect
import math
import re

import numpy as np
import pytest

import numtape as nt
from numtape import errors
from numtape.kernels import erf as kernels
from numtape.testing import op_checks

RNG = np.random.default_rng(7)
WEIGHTS = RNG.normal(size=(3, 3))
ROTATION = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
EQUAL = "eigenvalues . and . are equal, so the derivative of their vectors does not exist"
EQUAL_SINGULAR = "singular values . and . are equal, so the derivative of their vectors does not exist"
ZERO_SINGULAR = "singular value . is zero and the matrix is not square"


def symmetric(*eigenvalues):
    return ROTATION * np.array(eigenvalues) @ ROTATION.T


def spectral(function):
    """Return the weighted sum of the elements of a matrix function, by `eigh`."""

    def total(x):
        w, v = nt.eigh(x)
        return (v * function(w) @ v.T * WEIGHTS[: x.shape[0], : x.shape[0]]).sum()

    return total


def reconstructed(x):
    u, s, vh = nt.svd(x)
    return (u * s @ vh * WEIGHTS[: x.shape[0], : x.shape[1]]).sum()


def pushed(function, x, tangent):
    return op_checks.jvp(op_checks.Case("case", function, [x]), [x], [tangent])


def differences(function, x, step=1e-6):
    """Return the gradient of a function of symmetric matrices by central differences, as a symmetric matrix."""
    out = np.zeros(x.shape)
    for i, j in np.ndindex(x.shape):
        t = np.zeros(x.shape)
        t[i, j] += 0.5
        t[j, i] += 0.5
        out[i, j] = (float(function(x + step * t)) - float(function(x - step * t))) / (2 * step)
    return out


@pytest.mark.parametrize("function", [nt.sqrt, nt.exp, lambda w: w], ids=["sqrt", "exp", "identity"])
@pytest.mark.parametrize("x", [np.eye(2), np.eye(3), symmetric(1.0, 1.0, 3.0), symmetric(2.0, 1.0, 1.0)])
def test_a_function_of_vectors_of_equal_eigenvalues_raises(function, x):
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.grad(spectral(function))(x)
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        pushed(spectral(function), x, np.ones(x.shape))


def test_the_plane_that_vectors_of_equal_eigenvalues_span_raises_though_it_has_a_derivative():
    def plane(x):
        v = nt.eigh(x).eigenvectors[:, :2]
        return (v @ v.T * WEIGHTS).sum()

    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.grad(plane)(symmetric(1.0, 1.0, 3.0))


@pytest.mark.parametrize("x", [np.diag([0.0, 0.0, 1.0]), np.zeros((2, 2))])
def test_zero_eigenvalues_raise_though_the_cotangent_of_their_vectors_is_zero(x):
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.grad(spectral(lambda w: w))(x)


def test_a_function_of_equal_eigenvalues_alone_has_a_gradient():
    x = symmetric(1.0, 1.0, 3.0)
    for function in (lambda x: (nt.eigh(x).eigenvalues ** 3).sum(), lambda x: (nt.eigvalsh(x) ** 3).sum()):
        np.testing.assert_allclose(nt.grad(function)(x), 3 * x @ x, rtol=1e-12, atol=1e-12)


def test_a_function_of_the_vectors_of_other_eigenvalues_has_a_gradient():
    x = symmetric(1.0, 1.0, 3.0)

    def function(x):
        v = nt.eigh(x).eigenvectors[:, 2]
        return (v[:, None] * v * WEIGHTS).sum() + nt.eigh(x).eigenvalues[2]

    np.testing.assert_allclose(nt.grad(function)(x), differences(function, x), rtol=1e-7, atol=1e-8)


def test_different_eigenvalues_are_right_also_if_they_are_near():
    x = symmetric(1.0, 1.001, 3.0)
    actual = nt.grad(spectral(nt.sqrt))(x)
    np.testing.assert_allclose(actual, differences(spectral(nt.sqrt), x), rtol=1e-6, atol=1e-6)


def test_equal_eigenvalues_of_one_matrix_of_a_stack_raise():
    x = np.stack([np.diag([1.0, 2.0]), np.eye(2)])
    with pytest.raises(errors.GradientError, match=r"^eigh: eigenvalues 0 and 1 are equal"):
        nt.grad(lambda x: (nt.eigh(x).eigenvectors * WEIGHTS[:2, :2]).sum())(x)


def test_a_tangent_that_does_not_mix_equal_eigenvalues_has_a_derivative():
    tangent = np.diag([1.0, 2.0])
    dw, dv = pushed(lambda x: tuple(nt.eigh(x)), np.eye(2), tangent)
    np.testing.assert_array_equal(dw, [1.0, 2.0])
    np.testing.assert_array_equal(dv, np.zeros((2, 2)))


def test_second_derivatives_of_equal_eigenvalues_raise():
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.grad(lambda x: (nt.grad(lambda y: (nt.eigvalsh(y) ** 2).sum())(x) * WEIGHTS[:2, :2]).sum())(np.eye(2))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.eye(2), EQUAL_SINGULAR),
        (np.eye(3), EQUAL_SINGULAR),
        (np.eye(3)[:, :2], EQUAL_SINGULAR),
        (np.diag([2.0, 0.0, 0.0]), EQUAL_SINGULAR),
        (np.zeros((2, 2)), EQUAL_SINGULAR),
        (np.diag([2.0, 0.0, 0.0])[:, :2], ZERO_SINGULAR),
        (np.diag([2.0, 0.0, 0.0])[:2], ZERO_SINGULAR),
    ],
)
def test_a_function_of_vectors_of_equal_or_zero_singular_values_raises(x, message):
    with pytest.raises(errors.GradientError, match=f"^svd: {message}"):
        nt.grad(reconstructed)(x)
    with pytest.raises(errors.GradientError, match=f"^svd: ({message}|{EQUAL_SINGULAR})"):
        pushed(reconstructed, x, np.arange(1.0, 1.0 + x.size).reshape(x.shape) ** 2)


@pytest.mark.parametrize("x", [np.diag([2.0, 1.0, 0.0]), WEIGHTS[:, :2].copy(), WEIGHTS[:2].copy(), WEIGHTS])
def test_what_svd_gives_makes_up_the_matrix_and_its_gradient(x):
    actual = nt.grad(reconstructed)(x)
    np.testing.assert_allclose(actual, WEIGHTS[: x.shape[0], : x.shape[1]], rtol=1e-10, atol=1e-12)


def test_a_function_of_singular_values_alone_has_a_gradient():
    for x in (np.eye(3), np.eye(3)[:, :2], np.eye(3)[:2]):
        np.testing.assert_allclose(nt.grad(lambda x: (nt.svd(x).S ** 2).sum())(x), 2 * x, atol=1e-12)


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
@pytest.mark.parametrize("axis", [(0, 1), (2, 0), (-1, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_singular_values_are_numpys(ord, axis, keepdims):
    x = RNG.normal(size=(2, 3, 4))
    np.testing.assert_allclose(nt.norm(x, ord, axis, keepdims), np.linalg.norm(x, ord, axis, keepdims), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: nt.flip(x, 2), errors.AxisError, "flip: axis 2 is out of bounds for array of dimension 2; "),
        (lambda x: nt.roll(x, 1, 2), errors.AxisError, "roll: axis 2 is out of bounds for array of dimension 2; "),
        (lambda x: nt.roll(x, (1, 2), 0), errors.ArgumentError, "roll: shift has 2 numbers and axis 1; give as many."),
        (lambda x: nt.repeat(x, -1, 0), errors.OperandError, "repeat: repeats are integers from 0 on, not -1."),
        (lambda x: nt.repeat(x, [1, 2, 3], 0), errors.ShapeError, "repeat: repeats has shape (3,) and axis 0 of x "),
        (lambda x: nt.diagonal(x[0]), errors.ShapeError, "diagonal: x has shape (3,); a matrix has at least two axes."),
        (lambda x: nt.embedding([2], x), errors.IndexingError, "embedding: index 2 is out of bounds for axis 0 "),
        (
            lambda x: nt.embedding([-3], nt.tensor(x)),
            errors.IndexingError,
            "embedding: index -3 is negative; along axis 0 ",
        ),
    ],
)
def test_what_moves_elements_says_what_is_wrong(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call(np.ones((2, 3)))


def test_the_signature_of_where_can_be_read():
    assert "object at" not in str(inspect.signature(nt.where))


def test_erf_and_erfc_of_float32_are_as_accurate_as_float32_is():
    x = np.concatenate([np.linspace(-6, 9, 6001), np.geomspace(1e-30, 1, 99)]).astype(np.float32)
    for function, exact in ((kernels.erf, math.erf), (kernels.erfc, math.erfc)):
        actual = function(x)
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, [exact(float(v)) for v in x], rtol=6e-7, atol=0)


def test_erf_and_erfc_of_float32_are_exact_at_the_ends():
    x = np.array([0.0, -0.0, np.inf, -np.inf, 3e38, -3e38, np.nan], np.float32)
    np.testing.assert_array_equal(kernels.erf(x), [0.0, -0.0, 1.0, -1.0, 1.0, -1.0, np.nan])
    np.testing.assert_array_equal(kernels.erfc(x), [1.0, 1.0, 0.0, 2.0, 0.0, 2.0, np.nan])
    assert np.signbit(kernels.erf(x))[1]
