"""Sparse Jacobians where they pay: in least squares, and through products with sparse matrices."""

import numpy as np
import pytest
import scipy.sparse

import numtape as nt
from numtape.interop.scipy import least_squares, linear_operator


def chain(x):
    """Residuals of a chain of unknowns: each with its neighbours."""
    return nt.concat([10.0 * (x[1:] - x[:-1] ** 2), 1.0 - x])


def test_a_large_sparse_problem_gets_a_sparse_jacobian_by_itself():
    found = least_squares(chain, np.full(800, 1.2))
    assert scipy.sparse.issparse(found.jacobian)
    assert found.jacobian.nnz == 3 * 800 - 2
    np.testing.assert_allclose(found.x, np.ones(800), atol=1e-6)


def test_a_small_problem_gets_a_dense_one():
    assert isinstance(least_squares(chain, np.full(20, 1.2)).jacobian, np.ndarray)


def test_a_large_dense_problem_gets_a_dense_one():
    matrix = np.random.default_rng(0).normal(size=(1200, 900)) + 30.0 * np.eye(1200, 900)
    assert isinstance(least_squares(lambda x: matrix @ x - 1.0, np.zeros(900), max_nfev=3).jacobian, np.ndarray)


def test_one_may_insist_on_either():
    start = np.full(20, 1.2)
    sparse, dense = (least_squares(chain, start, sparse=is_sparse) for is_sparse in (True, False))
    assert scipy.sparse.issparse(sparse.jacobian)
    assert isinstance(dense.jacobian, np.ndarray)
    np.testing.assert_allclose(sparse.x, dense.x, atol=1e-6)
    np.testing.assert_allclose(sparse.jacobian.toarray(), dense.jacobian, atol=1e-5)
    np.testing.assert_allclose(sparse.variance, dense.variance, atol=1e-12)


def test_the_covariance_of_a_sparse_fit_is_that_of_a_dense_one():
    rng = np.random.default_rng(1)
    matrix, y = scipy.sparse.random_array((60, 10), density=0.3, rng=rng).tocsr(), rng.normal(size=60)
    operator = linear_operator(matrix)
    sparse, dense = (
        least_squares(lambda x: operator @ x - y, np.zeros(10), sparse=is_sparse) for is_sparse in (True, False)
    )
    np.testing.assert_allclose(sparse.covariance, dense.covariance, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (2, 5, 3)])
def test_products_with_sparse_matrices_have_their_pattern(shape):
    matrix = scipy.sparse.csr_array(np.array([[1.0, 0, 0, 2, 0], [0, 0, 3, 0, 0], [0, 4, 0, 0, 5], [0, 0, 0, 0, 0]]))
    operator = linear_operator(matrix)
    x = np.random.default_rng(2).normal(size=shape)
    found = nt.jacobian(lambda x: operator @ x, sparse=True)(x)
    assert found.nnz == matrix.nnz * x.size // 5
    expected = nt.jacobian(lambda x: operator @ x)(x)
    np.testing.assert_allclose(found.toarray(), expected.reshape(found.shape), rtol=1e-15)


def test_values_of_a_sparse_matrix_have_the_pattern_of_their_places():
    matrix = scipy.sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    x = np.array([1.0, 2.0, 3.0])
    found = nt.jacobian(lambda data: linear_operator((data, matrix.indices, matrix.indptr)) @ x, sparse=True)(
        matrix.data
    )
    np.testing.assert_allclose(found.toarray(), [[1.0, 3.0, 0.0], [0.0, 0.0, 2.0]])
    assert found.nnz == 3
