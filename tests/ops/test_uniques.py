"""Elements without repetitions: gradients flow through the selection, in every mode and through NumPy's function."""

import numpy as np
import pytest

import numtape as nt

X = np.array([3.0, 1.0, 2.0, 1.0])


@pytest.mark.parametrize("function", [nt.unique, np.unique, nt.Tensor.unique])
def test_the_gradient_of_unique_flows_to_the_first_of_equal_elements(function):
    x = nt.tensor(X, requires_grad=True)
    found = function(x)
    assert found.tolist() == [1.0, 2.0, 3.0]
    (found**2).sum().backward()
    assert x.grad.tolist() == [6.0, 2.0, 4.0, 0.0]


def test_unique_is_differentiated_in_every_mode():
    x = np.array([3.0, 1.0, 2.0])
    expected = [[0.0, 2.0, 0.0], [0.0, 0.0, 4.0], [6.0, 0.0, 0.0]]
    for mode in ("forward", "reverse", "mixed"):
        assert nt.jacobian(lambda x: np.unique(x) ** 2, mode=mode)(x).tolist() == expected
    assert nt.hessian(lambda x: (np.unique(x) ** 3).sum())(x).tolist() == np.diag(6.0 * x).tolist()
    found = nt.derivatives(lambda s: (nt.unique(nt.stack([s, s * s, s])) * np.array([1.0, 2.0])).sum(), 2.0, 2)
    assert [float(d) for d in found] == [10.0, 9.0, 4.0]
    assert nt.grad(lambda x: nt.unique(x).sum())(x).tolist() == [1.0, 1.0, 1.0]


def test_places_and_counts_are_integers_without_a_gradient():
    x = nt.tensor(X, requires_grad=True)
    found, index, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    assert found.requires_grad
    assert (index.tolist(), inverse.tolist(), counts.tolist()) == ([1, 2, 0], [2, 0, 1, 0], [2, 1, 1])
    assert not any(part.requires_grad for part in (index, inverse, counts))
    assert nt.unique(X, return_counts=True)[1].tolist() == [2, 1, 1]


def test_rows_without_repetitions():
    x = nt.tensor([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]], requires_grad=True)
    rows = nt.unique(x, axis=0)
    assert rows.tolist() == [[0.0, 5.0], [1.0, 2.0]]
    (rows * np.array([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [[3.0, 4.0], [1.0, 2.0], [0.0, 0.0]]


def test_nans_are_one_element_unless_told_otherwise():
    x = nt.tensor([np.nan, 1.0, np.nan])
    assert nt.unique(x).shape == (2,)
    assert np.unique(x, equal_nan=False).shape == (3,)
    assert np.unique(x.requires_grad_(), equal_nan=False).requires_grad
    # What numtape has no function for is never a constant without a word.
    with pytest.raises(nt.errors.UnsupportedError):
        np.unique_values(x)
