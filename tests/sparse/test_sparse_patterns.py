"""Patterns hold every entry of the derivative, and little else."""

import numpy as np
import programs
import pytest
import scipy.sparse
from programs import assert_same

import numtape as nt
from numtape.testing.op_checks import case_of, entries, has_derivative, samples


def grid(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_sparse_jacobians_of_every_op_equal_dense_ones(entry):
    for sample in samples(entry):
        if not has_derivative(entry, sample):
            continue
        case = case_of(entry, sample)
        numbers = tuple(range(len(case.operands)))

        def function(*operands, case=case):
            return tuple(case.values(list(operands)))

        with np.errstate(all="ignore"):
            dense = nt.jacobian(function, argnums=numbers)(*case.operands)
            sparse = nt.jacobian(function, argnums=numbers, sparse=True)(*case.operands)
        for dense_row, sparse_row in zip(dense, sparse, strict=True):
            for a, b in zip(sparse_row, dense_row, strict=True):
                assert_same(a, b)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_sparse_hessians_of_every_op_equal_dense_ones(entry):
    for sample in samples(entry)[:2]:
        if not has_derivative(entry, sample):
            continue
        case = case_of(entry, sample)
        numbers = tuple(range(len(case.operands)))

        def function(*operands, case=case):
            return sum((out * out).sum() for out in case.values(list(operands)))

        with np.errstate(all="ignore"):
            dense = nt.hessian(function, argnums=numbers)(*case.operands)
            sparse = nt.hessian(function, argnums=numbers, sparse=True)(*case.operands)
        for dense_row, sparse_row in zip(dense, sparse, strict=True):
            for a, b in zip(sparse_row, dense_row, strict=True):
                assert_same(a, b)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    program = programs.random_program(seed)
    v = grid(12, seed=seed)
    assert_same(nt.jacobian(program, sparse=True)(v), nt.jacobian(program)(v))

    def energy(v):
        return (program(v) ** 2).sum()

    assert_same(nt.hessian(energy, sparse=True)(v), nt.hessian(energy)(v))


@pytest.mark.parametrize(
    ("function", "entries_of_each"),
    [
        (programs.laplacian_by_slices, 5 * 10 * 10),
        (programs.laplacian_by_rolls, 5 * 12 * 12),
        (programs.laplacian_by_padding, 5 * 12 * 12 - 4 * 12),
        (programs.laplacian_by_differences, 5 * 12 * 12 - 4 * 12),
        (programs.laplacian_by_convolution, 5 * 12 * 12 - 4 * 12),
    ],
)
def test_stencils_in_two_dimensions_have_five_points(function, entries_of_each):
    u = grid(12, 12)
    pattern = nt.sparsity(function, u)
    assert pattern.nnz == entries_of_each
    assert pattern.colours <= 7
    assert_same(pattern.jacobian(u), nt.jacobian(function)(u))


def test_an_upwind_scheme_chooses_its_neighbours_by_value_and_the_pattern_has_both():
    u = grid(30)
    pattern = nt.sparsity(programs.burgers, u)
    assert pattern.nnz == 3 * 30
    assert_same(pattern.jacobian(-u), nt.jacobian(programs.burgers)(-u))


def test_residuals_of_a_neural_ode_couple_neighbouring_states():
    states = grid(20, 3)
    pattern = nt.sparsity(programs.neural_ode_residuals, states)
    assert pattern.nnz == 19 * 3 * 6
    assert pattern.colours == 6
    assert_same(pattern.jacobian(states), nt.jacobian(programs.neural_ode_residuals)(states))


def test_elimination_of_a_banded_system():
    diagonal = 4.0 + grid(12) ** 2
    pattern = nt.sparsity(programs.thomas, diagonal)
    assert pattern.matrix.sum(axis=1).tolist() == [1, 2, 3, 4, 5]
    assert_same(pattern.jacobian(diagonal), nt.jacobian(programs.thomas)(diagonal))


def test_bundle_adjustment_with_gather_and_rotation():
    residuals, cameras, points = programs.bundle(4, 25, 60)
    by_camera, by_point = nt.jacobian(residuals, argnums=(0, 1), sparse=True)(cameras, points)
    assert (by_camera.nnz, by_point.nnz) == (60 * 2 * 5, 60 * 2 * 3)
    dense = nt.jacobian(residuals, argnums=(0, 1))(cameras, points)
    assert_same(by_camera, dense[0])
    assert_same(by_point, dense[1])
    assert nt.sparsity(residuals, cameras, points, argnums=(0, 1)).colours == 8


def test_batches_of_matrices_do_not_mix():
    x = grid(6, 3, 3) + 4.0 * np.eye(3)
    b = grid(6, 3, 2)
    assert nt.sparsity(nt.inv, x).nnz == 6 * 9 * 9
    assert nt.sparsity(nt.det, x).nnz == 6 * 9
    assert nt.sparsity(lambda x: nt.solve(x, b), x).nnz == 6 * 6 * 9
    assert nt.sparsity(lambda x: x @ x.mT, x).nnz == 6 * (3 * 3 + 6 * 6)


def test_zeros_of_a_constant_factor_are_zeros_of_the_pattern():
    matrix = np.diag(np.arange(1.0, 9.0)) + np.diag(np.ones(7), 1)
    x = grid(8)
    assert nt.sparsity(lambda x: matrix @ x, x).nnz == 15
    assert nt.sparsity(lambda x: x @ matrix, x).nnz == 15
    assert nt.sparsity(lambda x: np.einsum("ij,j->i", matrix, x), x).nnz == 15
    assert nt.sparsity(lambda x: nt.linear(x, matrix, np.zeros(8)), x).nnz == 15


def test_zeros_of_a_tracked_factor_are_not():
    matrix, x = np.eye(4), grid(4)
    by_matrix, by_x = nt.jacobian(lambda a, x: a @ x, argnums=(0, 1), sparse=True)(matrix, x)
    assert (by_matrix.nnz, by_x.nnz) == (16, 16)


def test_linear_parts_leave_no_trace_in_a_hessian():
    def function(x):
        return (np.diff(x) * 3.0).sum() + (x[::2] ** 2).sum() + x.mean() + (x[0] * x[5:]).sum()

    hessian = nt.hessian(function, sparse=True)(grid(10))
    assert hessian.nnz == 5 + 2 * 5
    assert_same(hessian, nt.hessian(function)(grid(10)))


def test_in_place_writes_are_followed():
    def function(x):
        y = x * 1.0
        y[2:4] = x[:2] ** 2
        y += np.roll(x, 1)
        return y

    x = grid(8)
    jacobian = nt.jacobian(function, sparse=True)(x)
    assert jacobian.nnz == 16
    assert_same(jacobian, nt.jacobian(function)(x))


def test_checkpointed_parts_have_their_own_patterns():
    def part(x):
        return np.sin(x) * np.roll(x, 1)

    def function(x):
        return nt.checkpoint(part, nt.checkpoint(part, x))

    x = grid(9)
    jacobian = nt.jacobian(function, sparse=True)(x)
    assert jacobian.nnz == 27
    assert_same(jacobian, nt.jacobian(function)(x))


def test_a_sparse_operator_gives_its_own_pattern():
    from numtape.interop.scipy import linear_operator

    matrix = scipy.sparse.csr_array(grid(30, 20) * (grid(30, 20, seed=1) > 1.3))
    operator = linear_operator(matrix)

    def function(x):
        return operator @ np.sin(x)

    for x in (grid(20), grid(2, 20, 3)):
        pattern = nt.sparsity(function, x)
        assert pattern.nnz == matrix.nnz * (1 if x.ndim == 1 else 6)
        assert_same(pattern.jacobian(x), nt.jacobian(function)(x))
