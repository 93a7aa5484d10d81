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


def plane(x, count=2):
    """Return the weighted projector onto the first eigenvectors."""
    v = nt.eigh(x).eigenvectors[:, :count]
    return (v @ v.T * WEIGHTS).sum()


def test_a_function_of_the_plane_that_vectors_of_equal_eigenvalues_span_has_a_gradient():
    weights = np.arange(9.0).reshape(3, 3)

    def function(x):
        v = np.linalg.eigh(x)[1][:, :2]
        return ((v @ v.T) * weights).sum()

    expected = [[0.0, 0.0, -4.0], [0.0, 0.0, -6.0], [-4.0, -6.0, 0.0]]
    np.testing.assert_allclose(nt.grad(function)(np.diag([1.0, 1.0, 2.0])), expected, atol=1e-14)
    for x in (symmetric(1.0, 1.0, 3.0), symmetric(-2.0, -2.0, 0.5), symmetric(0.0, 0.0, 0.5)):
        np.testing.assert_allclose(nt.grad(plane)(x), differences(plane, x), rtol=1e-7, atol=1e-8)
    # All of the space, whatever its basis.
    np.testing.assert_allclose(nt.grad(lambda x: plane(x, 3))(np.eye(3)), np.zeros((3, 3)), atol=1e-14)
    single = symmetric(1.0, 1.0, 3.0).astype(np.float32)
    np.testing.assert_allclose(nt.grad(plane)(single), nt.grad(plane)(symmetric(1.0, 1.0, 3.0)), rtol=1e-4, atol=1e-4)


def test_the_projector_onto_one_of_equal_eigenvectors_raises():
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.grad(lambda x: plane(x, 1))(symmetric(1.0, 1.0, 3.0))


def test_vectors_and_values_together_raise_also_if_the_weights_are_even_along_the_chosen_vectors():
    """Functions of both that have a derivative and that have none may have the same cotangents."""
    odd = np.array([[0.0, 1.0], [1.0, 0.0]])

    def rebuilt(x):
        w, v = nt.eigh(x)
        return (v * w @ v.T * odd).sum()

    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.grad(rebuilt)(np.eye(2))


@pytest.mark.parametrize(
    "values",
    [
        nt.eigvalsh,
        lambda x: nt.eigh(x).eigenvalues,
        lambda x: nt.diagonal(nt.eigh(x).eigenvectors.T @ x @ nt.eigh(x).eigenvectors),
        lambda x: nt.sqrt(nt.eigvalsh(x @ x)),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_vectors_raise_also_if_the_values_come_by_another_way(values, scale):
    def rebuilt(x):
        x = x * scale
        v = nt.eigh(x).eigenvectors
        return (v * values(x) @ v.T * WEIGHTS).sum()

    for x in (np.eye(3), symmetric(1.0, 1.0, 3.0)):
        with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
            nt.grad(rebuilt)(x)


def test_planes_raise_where_what_the_matrix_is_made_of_is_used_elsewhere():
    """What cannot be known to be right is an error."""
    x = nt.tensor(symmetric(1.0, 1.0, 3.0), requires_grad=True)
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        (plane(x) + (x * x).sum()).backward()
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.Tape().gradient([plane(x), x * 1.0], x)
    y = x * 1.0
    with pytest.raises(errors.GradientError, match=f"^eigh: {EQUAL}"):
        nt.Tape().gradient([plane(y), y], x)
    # Other leaves do not matter.
    w = nt.tensor(WEIGHTS, requires_grad=True)
    (plane(y) + (w * w).sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), differences(plane, x.numpy()), rtol=1e-7, atol=1e-8)


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


def polar(x):
    """Return the weighted nearest orthogonal matrix."""
    u, _, vh = nt.svd(x)
    return (u @ vh * WEIGHTS[: x.shape[0], : x.shape[1]]).sum()


@pytest.mark.parametrize("x", [np.eye(3), 2.0 * ROTATION, np.diag([2.0, 2.0, 1.0]), np.eye(3)[:, :2], np.eye(3)[:2]])
def test_a_function_of_the_planes_of_equal_singular_values_has_a_gradient(x):
    (slopes,) = op_checks.differences(op_checks.Case("polar", polar, [x]), [x], [WEIGHTS[: x.shape[0], : x.shape[1]]])
    actual = nt.grad(polar)(x)
    assert np.sum(actual * WEIGHTS[: x.shape[0], : x.shape[1]]) == pytest.approx(float(slopes), rel=1e-8)


def test_a_function_of_one_of_equal_singular_vectors_raises():
    for place in (0, 2):
        with pytest.raises(errors.GradientError, match=f"^svd: {EQUAL_SINGULAR}"):
            nt.grad(lambda x, place=place: (nt.svd(x)[place][0] * WEIGHTS[0]).sum())(2.0 * ROTATION)
    with pytest.raises(errors.GradientError, match=f"^svd: {EQUAL_SINGULAR}"):
        nt.grad(polar)(np.diag([2.0, 0.0, 0.0]))


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
        (lambda x: nt.embedding([-3], nt.tensor(x)), errors.IndexingError, "embedding: index -3 is out of bounds "),
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
