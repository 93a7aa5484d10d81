"""Products of matrices with vectors: how their derivatives are recorded and computed."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.gradients import link_of, sweep
from numtape.core.graph import collect

SHAPE = (130, 140)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_cotangent_of_a_large_matrix_beside_a_vector_is_each_element_times_each(dtype):
    rng = np.random.default_rng(0)
    matrix, column, row = (rng.normal(size=n).astype(dtype) for n in (SHAPE, SHAPE[0], SHAPE[1]))
    expected = column[:, None] * row
    for function in (lambda a: ((a @ row) * column).sum(), lambda a: ((column @ a) * row).sum()):
        found = nt.grad(function)(matrix)
        assert found.dtype == dtype
        assert np.array_equal(found, expected)


def test_elements_that_are_not_finite_stay_where_they_are():
    column, row = np.ones(SHAPE[0]), np.ones(SHAPE[1])
    column[3], row[5] = np.inf, np.nan
    found = nt.grad(lambda a: ((a @ row) * column).sum())(np.ones(SHAPE))
    assert np.array_equal(found, column[:, None] * row, equal_nan=True)


@pytest.mark.parametrize(
    "product", [lambda a, x: a @ x, lambda a, x: x @ a], ids=["matrix times vector", "vector times matrix"]
)
def test_a_recorded_gradient_by_a_vector_is_one_product_and_no_transpose(product):
    rng = np.random.default_rng(0)
    matrix = nt.tensor(rng.normal(size=(4, 4)), requires_grad=True)
    x = nt.tensor(rng.normal(size=4), requires_grad=True)
    out = product(matrix, x)
    found = sweep([out], [nt.tensor(np.ones(4))], [x], create_graph=True)[link_of(x)]
    assert [record.op.name for record in collect([link_of(found)])] == ["matmul"]


def test_second_derivatives_of_a_quadratic_form_are_exact():
    rng = np.random.default_rng(0)
    matrix, x = rng.normal(size=(130, 130)), rng.normal(size=130)
    # By x, and then by the matrix: the cotangent u of (A + A^T) x gives u x^T + x u^T.
    u = rng.normal(size=130)
    slope = nt.grad(lambda x, a: x @ (a @ x))
    by_matrix = nt.grad(lambda a: (slope(nt.tensor(x), a) * u).sum())(matrix)
    assert np.allclose(by_matrix, np.outer(u, x) + np.outer(x, u), rtol=1e-14, atol=1e-14)
    assert np.allclose(nt.hessian(lambda x: x @ (matrix @ x))(x), matrix + matrix.T, rtol=1e-14, atol=1e-14)


def test_inner_takes_lists_on_either_side():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for a, b in ((nt.tensor(rows), rows), (rows, nt.tensor(rows))):
        assert nt.inner(a, b).tolist() == [[5.0, 11.0], [11.0, 25.0]]
