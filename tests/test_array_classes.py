"""Arrays of other classes and byte orders than NumPy's own, as data, as operands and as arguments."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import DtypeError, OperandError

MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])


@pytest.fixture
def matrix():
    with pytest.warns(PendingDeprecationWarning):
        return np.matrix([[1.0, 2.0], [3.0, 4.0]])


@pytest.fixture
def on_disk(tmp_path):
    array = np.memmap(tmp_path / "array", dtype=np.float64, mode="w+", shape=(3,))
    array[:] = 2.0
    return array


class Labelled(np.ndarray):
    """A class of arrays that a user may have."""


def write(x, value):
    x[:] = value


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x * MASKED,
        lambda x: nt.mul(x, MASKED),
        lambda x: np.multiply(x, MASKED),
        lambda x: nt.mse_loss(x, MASKED),
        lambda x: nt.sum(MASKED),
        lambda x: nt.tensor(MASKED),
        lambda x: nt.from_numpy(MASKED),
        lambda x: write(x.clone(), MASKED),
        lambda x: nt.grad(nt.sum)(MASKED),
        lambda x: nt.cross_entropy(nt.zeros((3, 3)), MASKED.astype(int)),
    ],
)
def test_a_mask_is_not_ignored(use):
    with pytest.raises(OperandError, match=r"is a masked array, whose mask would be ignored; pass x\.filled"):
        use(nt.ones(3, requires_grad=True))


@pytest.mark.parametrize("use", [lambda x, m: x * m, lambda x, m: m * x, lambda x, m: x**m, lambda x, m: m @ x])
def test_a_matrix_whose_product_means_something_else_is_refused(use, matrix):
    with pytest.raises(OperandError, match=r"an operand is an np\.matrix, for which \* is a matrix product"):
        use(nt.ones(2, 2, requires_grad=True), matrix)


def test_a_matrix_is_data_like_any_other(matrix):
    assert nt.tensor(matrix).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_arrays_on_disk_are_constants_and_arguments(on_disk):
    assert nt.grad(lambda x: (x * on_disk).sum())(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert nt.grad(lambda x: (x * x).sum())(on_disk).tolist() == [4.0, 4.0, 4.0]
    assert nt.grad(lambda x: (x * x).sum())(on_disk[:1]).tolist() == [4.0]
    with nt.Tape() as tape:
        x = nt.ones(3, dtype="float64")
        y = (x * on_disk).sum()
    assert tape.gradient(y, x).tolist() == [2.0, 2.0, 2.0]


def test_results_for_a_class_of_the_user_are_plain():
    given = np.ones(2).view(Labelled)
    value, pull = nt.vjp(lambda x: x * given, given)
    assert type(value) is type(pull(np.ones(2))[0]) is np.ndarray


def test_numbers_of_the_other_byte_order_are_numbers():
    given = np.array([1.0, 2.0]).astype(">f8")
    x = nt.ones(2, dtype="float64", requires_grad=True)
    (x * given).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0]
    assert nt.tensor(given).dtype == np.float64
    assert nt.grad(lambda x: (x * x).sum())(given).tolist() == [2.0, 4.0]
    with pytest.raises(DtypeError, match="the other byte order"):
        nt.from_numpy(given)
