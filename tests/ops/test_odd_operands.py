"""Operands and options that people give: lists, plain integers, labels, and what NumPy's functions take besides."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, OperandError, OverwrittenError, ShapeError, UnsupportedError


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


def test_an_einsum_that_moves_axes_is_a_view_as_numpys_is():
    x = nt.ones(2, 3)
    out = nt.einsum("ij->ji", x)
    out += 1.0
    assert x.tolist() == [[2.0] * 3] * 2
    array = np.ones((2, 3))
    nt.einsum("ij->ji", array)[0] = 5.0
    assert array.tolist() == [[5.0, 1.0, 1.0]] * 2
    with pytest.raises(OverwrittenError):  # NumPy's diagonals may not be written.
        np.einsum("ii->i", nt.ones(3, 3))[:] = 2.0


@pytest.mark.parametrize("rtol", [None, 0.5])
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 4)])
def test_the_pseudoinverse_has_the_derivative_of_what_a_tolerance_leaves(shape, rtol):
    x = np.random.default_rng(0).normal(size=shape)
    values = np.linalg.svd(x, compute_uv=False)
    assert rtol is None or (values < rtol * values[..., :1]).any()
    np.testing.assert_allclose(nt.pinv(nt.tensor(x), rtol=rtol).numpy(), np.linalg.pinv(x, rtol=rtol), atol=1e-14)
    assert nt.check_gradients(lambda z: (nt.pinv(z, rtol=rtol) ** 2).sum(), x)


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


ONE_OPERAND = {
    "ij->ji": (2, 3),
    "ij->": (2, 3),
    "ij->j": (2, 3),
    "ii->i": (3, 3),
    "ii": (3, 3),
    "kij->jk": (2, 3, 4),
    "iji->j": (3, 2, 3),
    "...i->...": (2, 3),
}


@pytest.mark.parametrize("subscripts", ONE_OPERAND)
def test_the_derivative_of_an_einsum_of_one_operand_needs_no_values(subscripts):
    array = np.random.default_rng(0).normal(size=ONE_OPERAND[subscripts])
    x = nt.tensor(array, requires_grad=True)
    y = x * 2.0
    out = nt.einsum(subscripts, y) * 1.0
    y[0] = 1.0
    out.sum().backward()
    np.testing.assert_array_equal(out.numpy(), np.einsum(subscripts, 2.0 * array))
    # What it is linear in, it gives back: the sum of all results is the gradient times the operand.
    assert (x.grad.numpy() * array).sum() == pytest.approx(out.numpy().sum())
    assert nt.check_gradients(lambda z: (nt.einsum(subscripts, z) ** 2).sum(), array)


def test_class_weights_stay_what_they_are_beside_integers():
    scores, classes, weight = np.array([[0, 1, 1], [1, 1, -2]]), [2, 0], np.array([0.5, 1.0, 2.0])
    for loss in (nt.nll_loss, nt.cross_entropy_loss):
        assert loss(scores, classes, weight) == pytest.approx(loss(scores.astype(float), classes, weight), rel=1e-6)


def test_tile_and_meshgrid_copy():
    w = nt.tensor([1.0, 2.0])
    made = [nt.tile(w, (2, 1)), nt.tile(w, 1), nt.tile(w, 2), *nt.meshgrid(w, w), *nt.meshgrid(w, w, sparse=True)]
    before = [x.tolist() for x in made]
    w -= 0.5
    assert [x.tolist() for x in made] == before
    made[0] += 1.0
    assert np.shares_memory(nt.meshgrid(w, w, copy=False)[0].numpy(), w.numpy())


def test_floats_in_lists_keep_their_digits_in_grids():
    x = nt.tensor([1.0], dtype="float64")
    assert nt.meshgrid(x, [0.1])[1].item() == 0.1
    assert nt.atleast_1d(x, [0.1])[1].item() == 0.1


def test_operators_of_bits_and_products_write_in_place():
    mask = nt.tensor([True, True, True])
    part = mask[:2]
    part &= [False, True]
    assert mask.tolist() == [False, True, True]
    numbers = same = nt.tensor([5, 3])
    numbers ^= 1
    numbers |= 8
    assert same.tolist() == [12, 10]
    w = nt.tensor(np.eye(2), requires_grad=True)
    product = same = w * 1.0
    product @= np.ones((2, 2))
    assert same.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    product.sum().backward()
    assert w.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_powers_have_no_modulus():
    for exponent in (2, 3):
        with pytest.raises(TypeError, match="unsupported operand"):
            pow(nt.tensor([5.0]), exponent, 7)


def test_numpys_integers_are_seeds_and_arrays_are_orders_of_axes():
    assert nt.rand(2, rng=np.int64(3)).tolist() == nt.rand(2, rng=3).tolist()
    assert nt.ones((2, 3)).transpose(np.array([1, 0])).shape == (3, 2)


def test_integers_that_do_not_fit_are_refused_never_wrapped():
    for function in (nt.square, nt.sum, nt.neg, lambda x: nt.add(x, 1)):
        with pytest.raises(OperandError, match=r"an integer of 100 bits is beyond those of int64; write it as a float"):
            function(10**30)
    assert nt.mul(2.0, 2**64) == 2.0**65
    assert nt.equal(2**64, 2**64)
    assert nt.clip(5, 0, 2**64) == 5
    with pytest.raises(ArgumentError, match="add: Python integer 300 out of bounds for int8"):
        nt.add(np.int8(1), 300)
    assert nt.add(np.int8(1), np.array(300)) == 301
    assert not nt.less(np.uint8(1), -1)
    assert not nt.greater_equal(np.int8(1), 10**30)
    with pytest.raises(ShapeError, match="linear: weight has shape"):
        nt.linear(nt.ones(1, 1).to(nt.bfloat16), 10**30)


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16, nt.float32])
def test_the_dtype_of_labels_does_not_count(dtype):
    a = nt.ones(2, 3).to(dtype)
    assert nt.cosine_embedding_loss(a, a, np.ones(2)).dtype == dtype
