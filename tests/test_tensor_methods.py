"""Methods of tensors take the further arguments that NumPy's and PyTorch's have, or say why not."""

import re

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, IndexingError, OperandError, ShapeError

X = np.array([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])


def test_astype_without_a_copy_is_the_tensor_itself_if_it_has_the_dtype():
    x = nt.tensor(X, requires_grad=True)
    assert x.astype(np.float64, copy=False) is x
    assert x.astype(np.float64) is not x
    assert x.astype("float32", copy=False).dtype == np.float32
    assert nt.cast(X, np.float64, copy=False) is X
    assert nt.cast(X, np.float64, copy=True) is not X
    recorded = np.astype(x, np.float32, copy=False)
    assert recorded.dtype == np.float32
    assert recorded.requires_grad
    with pytest.raises(OperandError, match=r"^cast: copy is 'K'; it must be True or False\.$"):
        x.astype(np.float64, copy="K")


def test_reshape_and_ravel_take_the_order_of_elements_that_there_is():
    x = nt.tensor(X, requires_grad=True)
    for y in (
        x.reshape(3, 2, order="C"),
        nt.reshape(x, (3, 2), order="C"),
        np.reshape(x, (3, 2), order="C"),
        np.reshape(x, (3, 2), "C"),
    ):
        assert y.tolist() == X.reshape(3, 2).tolist()
        assert y.requires_grad
    for y in (x.ravel("C"), x.ravel(order="C"), nt.ravel(x, "C"), np.ravel(x, "C")):
        assert y.tolist() == X.ravel().tolist()
        assert y.requires_grad
    message = (
        "reshape: order is 'F'; elements are taken in order 'C', the last index fastest. For 'F', reverse the axes "
        "before and after: x.T.reshape(*lengths[::-1]).T."
    )
    for call in (lambda: x.reshape(3, 2, order="F"), lambda: np.reshape(x, (3, 2), order="F")):
        with pytest.raises(ArgumentError, match=f"^{re.escape(message)}$"):
            call()
    np.testing.assert_array_equal(x.T.reshape(2, 3).T.numpy(), X.reshape(3, 2, order="F"))
    with pytest.raises(ArgumentError, match=r"^ravel: order is 'F'; elements are taken in order 'C'"):
        x.ravel("F")
    # NumPy's own function answers for an untracked tensor.
    np.testing.assert_array_equal(np.reshape(nt.tensor(X), (3, 2), order="F").numpy(), X.reshape(3, 2, order="F"))


def test_item_takes_a_flat_index_or_one_for_each_axis():
    x = nt.tensor(X)
    assert x.item(1) == 5.0
    assert x.item(-1) == 6.0
    assert x.item(1, 2) == 6.0
    assert x.item((1, 0)) == 4.0
    assert x.item(np.int64(2)) == 3.0
    assert type(x.item(1)) is float
    assert nt.tensor(2.0).item() == 2.0
    with pytest.raises(
        IndexingError, match=r"^item\(\): the tensor has shape \(2, 3\); index 6 is out of bounds for size 6\.$"
    ):
        x.item(6)
    with pytest.raises(IndexingError, match=r"^item\(\): the tensor has shape \(2, 3\); "):
        x.item(0, 0, 0)
    with pytest.raises(OperandError, match=r"^item\(\): 'a' is no index; give integers\.$"):
        x.item("a")
    with pytest.raises(ShapeError, match=r"^item\(\): the tensor has shape \(2, 3\); only one element makes a number"):
        x.item()


def test_add_and_sub_take_alpha_as_in_pytorch():
    x = nt.tensor(X, requires_grad=True)
    y = nt.tensor(X[::-1].copy(), requires_grad=True)
    total = x.add(y, alpha=2) + x.sub(y, alpha=0.5) + x.subtract(y, alpha=3)
    np.testing.assert_allclose(total.numpy(), 3 * X - 1.5 * X[::-1], rtol=1e-15)
    total.sum().backward()
    assert x.grad.tolist() == np.full((2, 3), 3.0).tolist()
    assert y.grad.tolist() == np.full((2, 3), -1.5).tolist()
    assert x.add(1.0).tolist() == (X + 1.0).tolist()
    assert x.sub(1.0).tolist() == (X - 1.0).tolist()
    out = nt.zeros(2, 3, dtype=np.float64)
    assert x.detach().add(y.detach(), alpha=2, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + 2 * X[::-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nt.tensor(2**70), "tensor: an integer of 71 bits is beyond those of int64; write it as a float."),
        (lambda: nt.tensor([1, -(2**64)]), "tensor: an integer of 65 bits is beyond those of int64; write it as a"),
        (lambda: nt.full((2,), 2**70), "full: an integer of 71 bits is beyond those of int64; write it as a float."),
        (lambda: nt.tensor("a"), "tensor: data of type str makes an array of <U1, which are no numbers; give numbers"),
        (lambda: nt.tensor([object()]), "tensor: data of type list makes an array of object, which are no numbers;"),
    ],
)
def test_an_integer_that_is_too_large_is_called_so(call, message):
    with pytest.raises(OperandError, match=f"^{re.escape(message)}"):
        call()
    assert nt.tensor(2.0**70).item() == 2.0**70


def test_arrays_that_share_the_memory_of_a_tensor_are_read_only():
    t = nt.tensor(X)
    shared = (np.asarray(t), t.numpy(), np.asarray(t, np.float64), np.asarray(t, copy=False), np.from_dlpack(t))
    for array in shared:
        assert np.shares_memory(array, t.numpy())
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 9.0
    for array in (np.array(t), np.asarray(t, copy=True), np.asarray(t, np.float32), t.numpy(copy=True)):
        assert not np.shares_memory(array, t.numpy())
        array[0, 0] = 9.0
    assert t.tolist() == X.tolist()


def test_saved_operands_cannot_be_changed_through_asarray():
    x = nt.tensor([1.0, 2.0])
    w = nt.tensor([3.0, 4.0], requires_grad=True)
    loss = (w * x).sum()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 100.0
    loss.backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_dlpack_exports_to_those_who_cannot_be_told_that_memory_is_read_only():
    t = nt.tensor(X)
    assert t.__dlpack__() is not None
    assert t.__dlpack__(max_version=(0, 8)) is not None
    assert t.__dlpack__(max_version=(1, 0)) is not None
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(t).tolist() == X.tolist()


def test_methods_of_ported_scripts():
    x = nt.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    assert x.contiguous() is x
    turned = x.t().contiguous()
    assert turned.view(-1).tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    (turned * np.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
    assert nt.ones(3).expand_as(x).shape == (2, 3)
    y = nt.ones(2)
    assert [z.dtype for z in (y.half(), y.int(), y.bfloat16())] == [nt.float16, nt.int32, nt.bfloat16]
    assert nt.zeros(3).masked_fill_(np.array([True, False, True]), 2.0).tolist() == [2.0, 0.0, 2.0]
    with pytest.raises(nt.errors.ShapeError, match="t: the tensor has shape"):
        nt.ones(1, 2, 3).t()
    assert x.view_as(nt.ones(3, 2)).shape == (3, 2)
    assert (x.is_contiguous(), x.t().is_contiguous()) == (True, False)
    assert (x.clamp_min(4).tolist(), x.clamp_max(1).tolist()) == ([[4, 4, 4], [4, 4, 5]], [[0, 1, 1], [1, 1, 1]])
    w = nt.tensor([-1.0, 2.0], requires_grad=True)
    ((w * 1.0).relu_() + (w * 0.0).exp_()).sum().backward()
    assert w.grad.tolist() == [0.0, 1.0]


def test_scatter_takes_a_number_by_name():
    index = nt.tensor([[1], [0]])
    assert nt.zeros(2, 2).scatter_(1, index, value=1.0).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    for wrong in ({}, {"src": nt.ones(2, 1), "value": 1.0}):
        with pytest.raises(nt.errors.ArgumentError, match="give what to write"):
            nt.zeros(2, 2).scatter_(1, index, **wrong)


def test_names_of_dtypes_and_numbers_in_ported_scripts():
    assert (nt.half, nt.float, nt.double) == (nt.float16, nt.float32, nt.float64)
    assert (nt.bool, nt.int, nt.long, nt.short) == (nt.bool_, nt.int32, nt.int64, nt.int16)
    assert nt.tensor([1, 255], dtype=nt.uint8).dtype == "uint8"
    assert nt.tensor([1.0]).to(nt.int8).dtype == "int8"
    assert (nt.pi, nt.e, nt.inf, nt.newaxis) == (np.pi, np.e, np.inf, None)
    assert np.isnan(nt.nan)
    assert {"long", "pi"} <= set(dir(nt))
    names = {}
    exec("from numtape import *", names)
    assert "float" not in names
    assert names["conv2d"] is nt.conv2d
    assert names["jacobian"] is nt.jacobian


def test_copies_and_scatters_of_ported_scripts():
    x = nt.ones(2)
    assert x.to("cpu") is x.to(nt.float32) is x
    assert x.to("cpu", copy=True) is not x
    assert x.to(nt.float64, copy=True).dtype == x.type_as(nt.zeros(1, dtype="float64")).dtype == nt.float64
    rows, w = nt.tensor([[0], [2]]), nt.tensor([[2.0], [3.0]], requires_grad=True)
    assert nt.zeros(2, 3).scatter_(1, rows, 1.0).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    (nt.ones(2, 3).scatter_(1, rows, w) * nt.ones(2, 3).scatter_add_(1, rows, w)).sum().backward()
    assert w.grad.tolist() == [[5.0], [7.0]]


def test_devices_are_taken_and_checked():
    assert nt.tensor([1.0], device="cpu").to("cpu", non_blocking=True).cpu().tolist() == [1.0]
    assert nt.ones(2).to("cpu", nt.float64).dtype == nt.float64
    made = [
        nt.zeros(2, device="cpu"),
        nt.arange(3, device="cpu:0"),
        nt.ones_like(nt.ones(2), device="cpu"),
        nt.randn(2, device="cpu"),
        nt.permutation(3, device="cpu"),
    ]
    assert {x.device for x in made} == {"cpu"}
    for wrong in (lambda: nt.randn(2, device="cuda"), lambda: nt.ones(2).cuda(), lambda: nt.ones(2).to("mps")):
        with pytest.raises(nt.errors.ArgumentError, match="there is no device"):
            wrong()


def test_random_numbers_like_another_tensor_and_of_a_size():
    like = nt.zeros(2, 3, dtype="float64")
    for drawn in (nt.rand_like(like), nt.randn_like(like)):
        assert (drawn.shape, drawn.dtype) == ((2, 3), nt.float64)
    assert nt.randn_like(like, dtype="float32", rng=0).tolist() == nt.randn(2, 3, rng=0).tolist()
    assert nt.randn(size=(2, 3)).shape == nt.rand(size=(2, 3)).shape == (2, 3)
    with pytest.raises(nt.errors.ArgumentError, match="normal: the shape was given twice"):
        nt.normal(0.0, 1.0, (2,), size=(2, 3))
    for drawn in (nt.randint(0, 5, size=(3,)), nt.normal(0.0, 1.0, size=3), nt.uniform(size=(3,))):
        assert drawn.shape == (3,)


def test_an_empty_tensor_shows_its_shape():
    assert repr(nt.zeros((0, 3))) == "tensor([], shape=(0, 3), dtype=float32)"
    assert repr(nt.zeros(0)) == "tensor([], dtype=float32)"
