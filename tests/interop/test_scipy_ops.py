"""SciPy's sparse matrices and transforms as ops: the checks that every op must pass, and what is special to them."""

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import scipy.sparse
import scipy.sparse.linalg

import numtape as nt
from numtape.core.facts import Facts
from numtape.core.op import Composite
from numtape.errors import (
    ArgumentError,
    AxisError,
    DtypeError,
    GradientError,
    LinearAlgebraError,
    NotDifferentiableError,
    OperandError,
    ShapeError,
)
from numtape.interop.scipy import dct, fftconvolve, idct, linear_operator, spsolve
from numtape.ops.samples import sample, values
from numtape.testing import mode_checks, op_checks

#: 3 x 4, with an empty row.
MATRIX = np.array([[1.0, 0.0, -2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.5, 3.0, 0.0, 1.5]])
SPARSE = scipy.sparse.csr_array(MATRIX)
#: 3 x 3, far from singular.
SQUARE = np.array([[3.0, 0.0, 1.0], [0.0, -2.0, 0.0], [0.5, 1.0, 4.0]])
SQUARE_SPARSE = scipy.sparse.csr_array(SQUARE)


def entry(name, function, samples, reference):
    facts = Facts(cost=lambda *shapes, **params: 0, samples=lambda: samples, reference=reference)
    return Composite(name, function, facts, function)


def filled(pattern, data):
    """Return a dense matrix with values at the places of a sparse one."""
    out = np.zeros(pattern.shape, np.asarray(data).dtype)
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    np.add.at(out, (rows, pattern.indices), data)
    return out


def product_of_values(data, x):
    return linear_operator((data, SPARSE.indices, SPARSE.indptr), shape=(3, 4)) @ x


def solution_of_values(data, b):
    return spsolve((data, SQUARE_SPARSE.indices, SQUARE_SPARSE.indptr), b)


class Doubling(scipy.sparse.linalg.LinearOperator):
    """MATRIX twice, known by its products alone."""

    def __init__(self):
        super().__init__(np.float64, MATRIX.shape)

    def _matvec(self, x):
        return 2.0 * MATRIX @ x

    def _rmatvec(self, x):
        return 2.0 * MATRIX.T @ x


VECTORS = [sample(values(4)), sample(values(4, seed=1)), sample(values(4, 1)), sample(values(4, 3))]
STACKS = [sample(values(2, 4, 3)), sample(values(2, 1, 4, 2)), sample(values(4, 0)), sample(values(1, 4, 1))]
CONVOLVED = [
    sample(values(5), values(3, seed=1)),
    sample(values(3), values(5, seed=1), mode="same"),
    sample(values(6), values(3, seed=1), mode="valid"),
    sample(values(3), values(6, seed=1), mode="valid"),
    sample(values(6), values(4, seed=1), mode="same"),
    sample(values(4, 5), values(2, 3, seed=1), mode="same"),
    sample(values(2, 5), values(2, 3, seed=1), axes=1),
    sample(values(2, 5), values(1, 3, seed=1), axes=(-1,), mode="valid"),
    sample(values(5, 2, 3), values(2, 2, 2, seed=1), axes=(0, 2), mode="same"),
]
TRANSFORMED = [
    *(sample(values(5), type=kind, norm=norm) for kind in (1, 2, 3, 4) for norm in ("backward", "ortho", "forward")),
    sample(values(3, 4)),
    sample(values(3, 4), axis=0),
    sample(values(2, 3, 4), axis=1, type=3),
    sample(values(4), n=6),
    sample(values(4, 3), n=2, axis=0, type=1),
    sample(values(1)),
]
ENTRIES = [
    entry("sparse @ x", lambda x: linear_operator(SPARSE) @ x, VECTORS + STACKS, lambda x: MATRIX @ x),
    entry("operator @ x", lambda x: linear_operator(Doubling()) @ x, VECTORS + STACKS, lambda x: 2.0 * MATRIX @ x),
    entry(
        "x @ sparse",
        lambda x: x @ linear_operator(SPARSE),
        [sample(values(3)), sample(values(2, 3)), sample(values(2, 5, 3))],
        lambda x: x @ MATRIX,
    ),
    entry(
        "sparse.T @ x",
        lambda x: linear_operator(SPARSE).T @ x,
        [sample(values(3)), sample(values(3, 2)), sample(values(5, 3, 2))],
        lambda x: MATRIX.T @ x,
    ),
    entry(
        "sparse values @ x",
        product_of_values,
        [sample(values(5), values(4)), sample(values(5), values(4, 2)), sample(values(5), values(3, 4, 2))],
        lambda data, x: filled(SPARSE, data) @ x,
    ),
    entry(
        "spsolve",
        lambda b: spsolve(SQUARE_SPARSE, b),
        [sample(values(3)), sample(values(3, 2)), sample(values(2, 3, 2)), sample(values(3, 1))],
        lambda b: np.linalg.solve(SQUARE, b),
    ),
    entry(
        "spsolve of values",
        solution_of_values,
        [
            sample(SQUARE_SPARSE.data, values(3)),
            sample(SQUARE_SPARSE.data, values(3, 2)),
            sample(SQUARE_SPARSE.data, values(2, 3, 2)),
        ],
        lambda data, b: np.linalg.solve(filled(SQUARE_SPARSE, data), b),
    ),
    entry("fftconvolve", fftconvolve, CONVOLVED, scipy.signal.fftconvolve),
    entry("dct", dct, TRANSFORMED, scipy.fft.dct),
    entry("idct", idct, TRANSFORMED, scipy.fft.idct),
]
CHECKS = [*op_checks.VALUE_CHECKS, *op_checks.DERIVATIVE_CHECKS]
#: A constant matrix of float64 makes every product float64: checks in other dtypes are for the other entries.
CONSTANT = ("sparse @ x", "operator @ x", "x @ sparse", "sparse.T @ x", "spsolve")
IN_OTHER_DTYPES = ("low precision", "dtypes", "halves", "large halves", "beside integers", "beside float32")
PAIRS = [
    pytest.param(entry, check, id=f"{entry.name}, {check}")
    for entry in ENTRIES
    for check in CHECKS
    if not (entry.name in CONSTANT and check in IN_OTHER_DTYPES)
]


@pytest.mark.parametrize(("entry", "check"), PAIRS)
def test_op(entry, check):
    op_checks.check_entry(entry, check)


@pytest.mark.parametrize("check", mode_checks.MODE_CHECKS)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_all_modes_agree(entry, check):
    for each in op_checks.samples(entry):
        mode_checks.MODE_CHECKS[check](entry, each)


# What is special to sparse matrices and operators.


def raises(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_every_format_of_sparse_matrices_multiplies(kind):
    x = values(4)
    for made in (scipy.sparse.csr_array(MATRIX).asformat(kind), scipy.sparse.csr_matrix(MATRIX).asformat(kind)):
        gradient = nt.grad(lambda x, made=made: (linear_operator(made) @ x).sum())(x)
        np.testing.assert_allclose(gradient, MATRIX.sum(axis=0), rtol=1e-15)


def test_operators_of_arrays_give_arrays_and_numpy_leaves_products_to_them():
    operator = linear_operator(SPARSE)
    x = values(3)
    assert type(operator @ values(4)) is np.ndarray
    np.testing.assert_allclose(x @ operator, x @ MATRIX, rtol=1e-15)
    np.testing.assert_allclose(operator.T @ x, MATRIX.T @ x, rtol=1e-15)
    assert operator.shape == (3, 4)
    assert operator.T.shape == (4, 3)
    assert repr(operator) == "<linear operator of shape (3, 4), sparse with 5 values>"
    assert repr(linear_operator(Doubling()).T) == "<linear operator of shape (4, 3), Doubling>"
    assert linear_operator(operator) is operator


def test_integer_matrices_multiply_as_floats_and_the_wider_dtype_wins():
    integers = scipy.sparse.csr_array(np.array([[1, 2], [0, 3]]))
    np.testing.assert_allclose((linear_operator(integers) @ nt.tensor([1.0, 1.0])).numpy(), [3.0, 3.0])
    narrow = linear_operator(SPARSE.astype(np.float32))
    assert (narrow @ nt.tensor(np.ones(4, np.float32))).dtype == nt.float32
    assert (narrow @ nt.tensor(np.ones(4))).dtype == nt.float64
    assert (linear_operator(SPARSE) @ nt.tensor(np.ones(4, np.float32))).dtype == nt.float64


def test_a_jacobian_of_a_product_is_one_product_with_a_batch():
    counted = []

    class Counting(Doubling):
        def _matmat(self, x):
            counted.append(x.shape)
            return 2.0 * MATRIX @ x

    operator = linear_operator(Counting())
    found = nt.jacobian(lambda x: operator @ x, mode="forward", chunk_size=4)(values(4))
    np.testing.assert_allclose(found, 2.0 * MATRIX, rtol=1e-15)
    assert counted == [(4, 4)]


def test_an_operator_without_a_transpose_works_forward_and_says_so_backward():
    operator = linear_operator(scipy.sparse.linalg.LinearOperator((3, 4), matvec=lambda x: MATRIX @ x))
    x = values(4)
    np.testing.assert_allclose(nt.jvp(lambda x: operator @ x, x, np.ones(4))[1], MATRIX.sum(axis=1), rtol=1e-15)
    raises(
        NotDifferentiableError,
        "linear_operator: the _CustomLinearOperator of shape (3, 4) has no transpose, which the reverse sweep needs; "
        "give it rmatvec=, or use forward mode (nt.jvp).",
        lambda: nt.grad(lambda x: (operator @ x).sum())(x),
    )


def test_records_print_without_the_matrix():
    x = nt.tensor(values(4), requires_grad=True)
    assert "<5 values in 3 x 4>" in str(nt.summary((linear_operator(SPARSE) @ x).sum()))


def test_what_cannot_be_an_operator_is_refused():
    raises(
        OperandError,
        "linear_operator: a is a str; it must be a sparse matrix, a LinearOperator, a matrix, or a tuple (data, "
        "indices, indptr).",
        lambda: linear_operator("a"),
    )
    raises(
        OperandError,
        "linear_operator: a is a tensor; multiply tensors with @, or give its sparse parts.",
        lambda: linear_operator(nt.ones(2, 2)),
    )
    raises(
        DtypeError,
        "linear_operator: a has dtype complex128, but numtape computes with real numbers.",
        lambda: linear_operator(SPARSE * 1j),
    )
    raises(
        ArgumentError,
        "linear_operator: a is a tuple of 2; it must be (data, indices, indptr).",
        lambda: linear_operator((1.0, 2.0)),
    )
    raises(
        ArgumentError,
        "linear_operator: data has shape (2,) for 1 indices; there is one for each.",
        lambda: linear_operator((np.ones(2), [0], [0, 1])),
    )
    raises(
        ArgumentError,
        "linear_operator: an index lies outside of the 1 columns of the matrix.",
        lambda: linear_operator((np.ones(1), [1], [0, 1]), shape=(1, 1)),
    )
    raises(
        ArgumentError,
        "linear_operator: indices have shape (1,) and indptr (2,) for a matrix of shape (2, 2); indptr has an entry "
        "for each row and one more, which is the number of indices.",
        lambda: linear_operator((np.ones(1), [1], [0, 1]), shape=(2, 2)),
    )
    raises(
        ArgumentError,
        "linear_operator: shape is for a matrix that is given as (data, indices, indptr); leave it out.",
        lambda: linear_operator(SPARSE, shape=(3, 4)),
    )


def test_operands_of_the_wrong_length_are_refused():
    raises(
        ShapeError,
        "linear_operator: the matrix has shape (3, 4) and the other operand (3,); the only axis of that (3) must have "
        "the length of the matrix's rows (4).",
        lambda: linear_operator(SPARSE) @ np.ones(3),
    )
    raises(
        ShapeError,
        "spsolve: the matrix has shape (3, 3) and the other operand (2, 3); the second-to-last axis of that (2) must "
        "have the length of the matrix's rows (3).",
        lambda: spsolve(SQUARE_SPARSE, np.ones((2, 3))),
    )
    raises(
        ShapeError,
        "linear_operator: the other operand is a number; use * for that.",
        lambda: linear_operator(SPARSE) @ 2.0,
    )


# What is special to systems.


def test_the_adjoint_of_a_solution_uses_the_same_factors():
    factored = []
    factorise = scipy.sparse.linalg.splu

    def counting(matrix):
        factored.append(matrix.shape)
        return factorise(matrix)

    b = nt.tensor(values(3), requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy.sparse.linalg, "splu", counting)
        spsolve(SQUARE_SPARSE, b).sum().backward()
    assert factored == [(3, 3)]
    np.testing.assert_allclose(b.grad.numpy(), np.linalg.solve(SQUARE.T, np.ones(3)), rtol=1e-14)


def test_a_large_system_is_solved_and_differentiated():
    n = 2000
    a = scipy.sparse.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    b = np.random.default_rng(0).normal(size=n)
    value, gradient = nt.value_and_grad(lambda b: (spsolve(a, b) ** 2).sum())(b)
    x = scipy.sparse.linalg.spsolve(a.tocsc(), b)
    assert value == pytest.approx(x @ x, rel=1e-12)
    np.testing.assert_allclose(gradient, scipy.sparse.linalg.spsolve(a.T.tocsc(), 2.0 * x), rtol=1e-10)


def test_systems_that_cannot_be_solved_are_refused():
    singular = scipy.sparse.csr_array(np.array([[1.0, 2.0], [2.0, 4.0]]))
    raises(
        LinearAlgebraError,
        "spsolve: the matrix of shape (2, 2) is singular; check its pattern, or add a small multiple of the identity.",
        lambda: spsolve(singular, np.ones(2)),
    )
    raises(
        LinearAlgebraError,
        "spsolve: the matrix of shape (2, 2) contains NaN or infinity.",
        lambda: spsolve(singular * np.nan, np.ones(2)),
    )
    raises(ShapeError, "spsolve: a has shape (3, 4); it must be square.", lambda: spsolve(SPARSE, np.ones(3)))
    raises(
        OperandError,
        "spsolve: a is a ndarray; it must be a sparse matrix or a tuple (data, indices, indptr). Use nt.solve for "
        "dense matrices.",
        lambda: spsolve(SQUARE, np.ones(3)),
    )


# What is special to convolutions and transforms.


def test_convolutions_that_cannot_be_meant_are_refused():
    raises(
        ShapeError,
        "fftconvolve: a has shape (2,) and b (2, 2); both must have as many axes.",
        lambda: fftconvolve(np.ones(2), np.ones((2, 2))),
    )
    raises(
        ArgumentError,
        "fftconvolve: mode is 'half'; it is full, same or valid.",
        lambda: fftconvolve(np.ones(2), np.ones(2), mode="half"),
    )
    raises(
        ArgumentError,
        "fftconvolve: axes is (0, 0) for arrays of 1 axes; each may be named once.",
        lambda: fftconvolve(np.ones(2), np.ones(2), axes=(0, 0)),
    )
    raises(
        ShapeError,
        "fftconvolve: a has shape (3, 5) and b (2, 3); along axes that are not convolved, lengths must be equal, or 1.",
        lambda: fftconvolve(np.ones((3, 5)), np.ones((2, 3)), mode="same", axes=1),
    )
    raises(
        ShapeError,
        "fftconvolve: a has shape (2, 5) and b (3, 3); for mode='valid', one must be at least as long as the other "
        "along each axis that is convolved.",
        lambda: fftconvolve(np.ones((2, 5)), np.ones((3, 3)), mode="valid"),
    )
    assert fftconvolve(np.ones((1, 5)), np.ones((3, 3)), mode="valid").shape == (3, 3)


@pytest.mark.parametrize("shapes", [((2, 1), (2, 3)), ((2, 1), (3, 4)), ((2, 1), (2, 2)), ((1, 4), (3, 4))])
def test_convolutions_keep_the_shape_of_the_first_along_all_axes_as_scipys_do(shapes):
    a, b = values(*shapes[0]), values(*shapes[1])
    expected = scipy.signal.fftconvolve(a, b, mode="same", axes=0 if shapes[0][1] == 1 else 1)
    axes = 0 if shapes[0][1] == 1 else 1
    np.testing.assert_allclose(fftconvolve(a, b, mode="same", axes=axes), expected, atol=1e-12)
    assert nt.grad(lambda b: fftconvolve(a, b, mode="same", axes=axes).sum())(b).shape == b.shape


def test_convolutions_of_nothing_are_nothing_as_scipys_are():
    assert fftconvolve(np.ones(0), np.ones(2)).shape == scipy.signal.fftconvolve(np.ones(0), np.ones(2)).shape
    assert nt.grad(lambda a: fftconvolve(a, np.ones((0, 2)), axes=0).sum())(np.ones((3, 2))).shape == (3, 2)


def test_transforms_that_cannot_be_meant_are_refused():
    raises(ArgumentError, "dct: type is 5; it is 1, 2, 3 or 4.", lambda: dct(np.ones(3), type=5))
    raises(
        ArgumentError,
        "idct: norm is 'unit'; it is backward, ortho, forward or None.",
        lambda: idct(np.ones(3), norm="unit"),
    )
    raises(AxisError, "dct: axis is 1, but x has shape (3,).", lambda: dct(np.ones(3), axis=1))
    raises(ArgumentError, "dct: n is 0; it must be positive.", lambda: dct(np.ones(3), n=0))
    raises(
        ShapeError,
        "dct: x has shape (1,); a transform of type 1 takes at least two elements.",
        lambda: dct(np.ones(1), type=1),
    )
    raises(
        ShapeError,
        "idct: x has shape (0,); a transform of type 2 takes at least one element.",
        lambda: idct(np.ones(0)),
    )


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_the_inverse_transform_takes_back_the_transform(kind, norm):
    x = values(6)
    np.testing.assert_allclose(idct(dct(x, kind, norm=norm), kind, norm=norm), x, rtol=1e-13)


def neumann(n):
    """Return a Laplacian with no values at its borders: it does not see a constant, up to rounding."""
    line = scipy.sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    line[0, 0] = line[-1, -1] = -1.0
    line = line.tocsr() * (n - 1) ** 2 / 1.7
    return (
        scipy.sparse.kron(line, scipy.sparse.eye_array(n)) + scipy.sparse.kron(scipy.sparse.eye_array(n), line)
    ).tocsr()


def test_a_system_that_is_singular_up_to_rounding_is_not_solved():
    with pytest.raises(LinearAlgebraError, match=r"^spsolve: the matrix of shape \(100, 100\) is singular up to round"):
        spsolve(neumann(10), np.random.default_rng(0).normal(size=100))


def test_units_make_no_system_singular_and_bad_conditions_are_still_solved():
    scale = scipy.sparse.diags_array(10.0 ** np.linspace(-5.0, 5.0, 100))
    a = scale @ (neumann(10) - scipy.sparse.eye_array(100)) @ scale
    x = np.linspace(1.0, 2.0, 100) / scale.diagonal()
    # Pivots that are chosen in such units cost some digits.
    np.testing.assert_allclose(spsolve(a, a @ x), x, rtol=1e-6)
    b = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-12]])
    np.testing.assert_allclose(b @ spsolve(scipy.sparse.csr_array(b), np.array([1.0, 2.0])), [1.0, 2.0], rtol=1e-3)


def test_operators_and_sparse_matrices_are_no_vectors():
    operator = linear_operator(SQUARE_SPARSE)
    advice = (
        "it must be a tensor or an array. Apply one after the other, as in L @ (M @ x), or multiply sparse matrices "
        "first."
    )
    what = "linear_operator: the other operand is a linear operator of shape (3, 3); "
    raises(OperandError, what + advice, lambda: operator @ operator)
    what = "linear_operator: the other operand is a sparse matrix of shape (3, 3); "
    raises(OperandError, what + advice, lambda: operator @ SQUARE_SPARSE)
    raises(OperandError, what + advice, lambda: SQUARE_SPARSE @ operator)


def test_a_sparse_array_of_one_axis_is_no_matrix():
    line = scipy.sparse.coo_array(np.ones(3))
    message = "a is a sparse array of shape (3,); it must have two axes, as a matrix has."
    raises(ShapeError, f"linear_operator: {message}", lambda: linear_operator(line))
    raises(ShapeError, f"spsolve: {message}", lambda: spsolve(line, np.ones(3)))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "lil", "dense", "parts"])
def test_a_matrix_that_is_overwritten_later_does_not_change_derivatives(form):
    if form == "parts":
        matrix = (SQUARE_SPARSE.data.copy(), SQUARE_SPARSE.indices.copy(), SQUARE_SPARSE.indptr.copy())
        arrays = matrix
    elif form == "dense":
        matrix = SQUARE.copy()
        arrays = (matrix,)
    else:
        matrix = SQUARE_SPARSE.asformat(form).copy()
        arrays = [x for x in vars(matrix).values() if isinstance(x, np.ndarray)]
    x = nt.tensor(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    answers = [(linear_operator(matrix) @ x).sum()]
    if form != "dense":
        answers.append(spsolve(matrix, x).sum())
    for array in arrays:
        array[...] = 0
    for answer, expected in zip(answers, (SQUARE.sum(axis=0), np.linalg.inv(SQUARE).sum(axis=0)), strict=False):
        x.grad = None
        answer.backward()
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)


def test_a_falling_indptr_is_refused():
    for indptr in ([0, 2, 1, 3], [1, 2, 3, 3]):
        with pytest.raises(ArgumentError) as error:
            linear_operator((np.ones(3), [0, 1, 2], indptr))
        assert str(error.value) == (
            "linear_operator: indptr must begin with 0 and never fall, since it says where each row begins."
        )


def test_matmul_of_numpy_multiplies_by_operators():
    x = np.array([1.0, 2.0, 3.0])
    operator = linear_operator(SQUARE_SPARSE)
    np.testing.assert_allclose(np.matmul(operator, x), SQUARE @ x)
    np.testing.assert_allclose(np.matmul(x, operator), x @ SQUARE)
    tracked = nt.tensor(x, requires_grad=True)
    np.matmul(operator, tracked).sum().backward()
    np.testing.assert_allclose(tracked.grad.numpy(), SQUARE.sum(axis=0))
    with pytest.raises(TypeError):
        np.add(operator, x)
    with pytest.raises(TypeError):
        operator + x


def test_a_sparse_right_side_is_refused_with_what_to_do():
    with pytest.raises(OperandError) as error:
        spsolve(SQUARE_SPARSE, SQUARE_SPARSE)
    assert str(error.value) == "spsolve: b is a sparse matrix; it must be a tensor or an array. Pass its toarray()."


def test_numbers_are_convolved_as_by_scipy():
    assert fftconvolve(np.array(2.0), np.array(3.0)) == scipy.signal.fftconvolve(np.array(2.0), np.array(3.0))
    assert nt.grad(lambda a: fftconvolve(a, np.array(3.0)))(2.0) == 3.0


def test_a_wrong_transpose_is_noticed_before_it_makes_a_gradient():
    def operator(factor):
        return linear_operator(
            scipy.sparse.linalg.LinearOperator(
                (3, 4), matvec=lambda v: MATRIX @ v, rmatvec=lambda u: factor * (MATRIX.T @ u), dtype=np.float64
            )
        )

    right, wrong = operator(1.0), operator(1.1)
    np.testing.assert_allclose(nt.grad(lambda x: (right @ x).sum())(np.ones(4)), MATRIX.sum(axis=0))
    with pytest.raises(GradientError) as error:
        nt.grad(lambda x: (wrong @ x).sum())(np.ones(4))
    assert str(error.value).startswith(
        "linear_operator: rmatvec of the _CustomLinearOperator of shape (3, 4) is not the product with the transpose: "
        "for random u and v, <u, A v> is "
    )
    assert str(error.value).endswith("Gradients would be wrong; mend rmatvec, or use forward mode (nt.jvp).")
    assert nt.jvp(lambda x: (wrong @ x).sum(), np.ones(4), np.ones(4))[1] == MATRIX.sum()


def test_a_right_transpose_in_single_precision_is_trusted():
    matrix = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
    single = linear_operator(scipy.sparse.linalg.aslinearoperator(matrix))
    assert nt.grad(lambda x: (single @ x).sum())(np.ones(200, np.float32)).dtype == np.float32


@pytest.mark.parametrize("matrix", [SPARSE, MATRIX])
def test_an_operator_may_be_called_and_says_its_dtype(matrix):
    operator = linear_operator(matrix)
    x = nt.tensor(np.ones(4))
    np.testing.assert_array_equal(operator(x).numpy(), (operator @ x).numpy())
    np.testing.assert_array_equal(operator.dot(x).numpy(), (operator @ x).numpy())
    assert operator.dtype == np.float64
    assert nt.implicit.linear_solve(linear_operator(SQUARE_SPARSE), np.ones(3)).shape == (3,)


@pytest.mark.parametrize(
    "compute", [lambda a: 2 * a, lambda a: a * 2.0, lambda a: a + a, lambda a: a - a, lambda a: -a, lambda a: a / 2]
)
def test_operators_are_not_computed_with(compute):
    raises(
        OperandError,
        "linear_operator: +, -, * or / of the linear operator of shape (3, 4) is not there, only L @ x, x @ L and L.T; "
        "compute with products, as in 2 * (L @ x) + M @ x, or with the matrices before.",
        lambda: compute(linear_operator(SPARSE)),
    )
    with pytest.raises(
        OperandError, match=r"^linear_operator: np.multiply of the linear operator of shape \(3, 4\) is"
    ):
        np.ones(4) * linear_operator(SPARSE)


def test_a_sparse_matrix_in_numpys_product_leads_to_linear_operator():
    raises(
        OperandError,
        "matmul: operand 'a' is of type csr_array; it must be a tensor, an array or a number. Use "
        "numtape.interop.scipy.linear_operator(A) @ x.",
        lambda: np.dot(SPARSE, nt.tensor(np.ones(4), requires_grad=True)),
    )


INTEGERS = np.array([100000, 1, 1])


@pytest.mark.parametrize("given", [INTEGERS, INTEGERS.astype(np.int32), [100000, 1, 1], INTEGERS > 1])
def test_integers_are_transformed_in_float64_as_by_scipy(given):
    for ours, theirs in [
        (fftconvolve(given, given), scipy.signal.fftconvolve(given, given)),
        (dct(given), scipy.fft.dct(given)),
        (dct(given, n=5), scipy.fft.dct(given, n=5)),
        (idct(given), scipy.fft.idct(given)),
    ]:
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-15, atol=1e-5)


def test_a_system_of_integers_is_solved_in_float64():
    matrix = np.array([[100000001, 0], [1, 3]])
    expected = np.linalg.solve(matrix, [1, 1])
    sparse = scipy.sparse.csr_array(matrix)
    for a in (sparse, (sparse.data, sparse.indices, sparse.indptr)):
        for b in ([1, 1], np.array([1, 1]), nt.tensor([1, 1])):
            found = spsolve(a, b)
            assert found.dtype == np.float64
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-14)


def test_a_tensor_of_integers_takes_the_float_that_it_meets():
    integers = nt.tensor(INTEGERS)
    found = fftconvolve(integers, INTEGERS.astype(np.float64))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.numpy(), np.convolve(INTEGERS, INTEGERS), rtol=1e-10)
    assert fftconvolve(integers, INTEGERS).dtype == np.float64
    assert dct(integers).dtype == np.float32
