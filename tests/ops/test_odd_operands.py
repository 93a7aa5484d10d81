"""Operands and options that people give: lists, plain integers, labels, and what NumPy's functions take besides."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, OverwrittenError, UnsupportedError


def test_plain_integers_are_operands():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    assert np.diff(x, prepend=0).tolist() == [1.0, 1.0]
    assert nt.diff(np.array([1.0, 2.0]), append=True).tolist() == [1.0, -1.0]
    assert nt.broadcast_to(3, (2, 2)).tolist() == [[3, 3], [3, 3]]
    assert nt.expand(3, (2,)).tolist() == [3, 3]
    assert nt.clone(3) == 3
    assert nt.copy(True)


def test_lists_and_integers_can_be_integrated_and_differentiated():
    assert nt.trapezoid([1.0, 2.0, 4.0]) == 4.5
    assert nt.trapezoid([1.0, 2.0], x=[0.0, 1.0]) == 1.5
    assert nt.gradient([1.0, 2.0, 4.0]).tolist() == [1.0, 1.5, 2.0]
    assert nt.gradient(np.array([True, False])).tolist() == [-1.0, -1.0]
    assert nt.cumulative_trapezoid([1, 2, 3]).tolist() == [1.5, 4.0]


@pytest.mark.parametrize("function", [nt.trapezoid, nt.gradient, nt.cumulative_trapezoid])
def test_integers_give_the_default_dtype_as_tensors_do(function):
    assert function(np.arange(3)).dtype == function(nt.tensor(np.arange(3))).dtype == nt.default_dtype()


def message(*args):
    with pytest.raises(ArgumentError) as error:
        nt.einsum(*args)
    return str(error.value)


def test_labels_that_are_none_are_named():
    for label in (60, -1, 0.5):
        assert message(nt.ones(2), [label], [0]) == (
            f"einsum: {label!r} is no label; labels are integers from 0 to 51, and `...`."
        )
    assert message(3) == "einsum: 3 are no subscripts; write einsum('ij,jk->ik', a, b)."
    assert message(nt.ones(2), 0, [0]) == "einsum: 0 stands for labels; they are a list of integers, or subscripts."


def test_options_of_numpys_einsum_are_numpys_for_untracked_tensors():
    x = nt.tensor(np.ones((2, 3)))
    for options in ({"order": "F"}, {"dtype": "f8"}, {"casting": "safe"}):
        assert np.einsum("ij->i", x, **options).tolist() == [3.0, 3.0]
    with pytest.raises(UnsupportedError):
        np.einsum("ij->i", x.requires_grad_(), order="F")


def test_integers_keep_their_dtype_in_einsum():
    x = np.full(4, 50, np.int8)
    assert nt.einsum("i->", x) == np.einsum("i->", x) == -56


def test_writes_through_what_numpy_would_return_as_a_view_are_not_lost():
    with pytest.raises(OverwrittenError):
        np.einsum("ii->i", nt.ones(3, 3))[:] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        nt.einsum("ij->ji", np.ones((2, 3)))[0] = 1.0
    x = nt.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    (nt.einsum("ij->ji", x).sum() + (nt.einsum("ij->ji", x) ** 2).sum()).backward()
    assert np.array_equal(x.grad.numpy(), 1.0 + 2.0 * x.numpy())


FLOATS_OF_INTEGERS = {
    "median": nt.median,
    "quantile": lambda x: nt.quantile(x, 0.5),
    "percentile": lambda x: nt.percentile(x, 50),
    "kl_div": lambda x: nt.kl_div(x, x),
    "l1": lambda x: nt.l1(x, x),
    "huber": lambda x: nt.huber(x, x),
    "smooth_l1": lambda x: nt.smooth_l1(x, x),
    "interp": lambda x: nt.interp(x, x, x),
}


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool], ids=str)
@pytest.mark.parametrize("function", FLOATS_OF_INTEGERS.values(), ids=FLOATS_OF_INTEGERS)
def test_functions_of_floats_take_integers_as_tensors_and_arrays_alike(function, dtype):
    x = np.arange(2).astype(dtype)
    assert function(x).dtype == function(nt.tensor(x)).dtype == nt.default_dtype()


def test_integers_beside_floats_have_their_dtype():
    x, whole = np.array([0.5, 2.0]), np.array([2**40 + 1, 2**40 + 3])
    assert nt.l1(x, whole, reduction="none").tolist() == [2.0**40 + 0.5, 2.0**40 + 1.0]
