"""``out=``: every elementwise op writes its result where it is told to, and the write is recorded."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.declare import public, registry
from numtape.core.op import Marker, Op
from numtape.errors import ArgumentError, DtypeError, OperandError, ShapeError
from numtape.ops.samples import Sample


def elementwise_ops():
    """Return the public ops that were declared elementwise, or are comparisons."""
    return [
        op
        for op in registry.values()
        if isinstance(op, Op)
        and op.is_elementwise
        and Marker.ITSELF not in op.pushes
        and op.name in public
        and "dtype" not in op.defaults  # A cast decides on its dtype itself.
    ]


@pytest.mark.parametrize("op", elementwise_ops(), ids=lambda op: op.name)
def test_every_elementwise_op_writes_its_result_and_records_it(op):
    face = public[op.name]
    given = next(s for s in op.facts.samples() if isinstance(s, Sample) and all(np.size(x) > 1 for x in s.args))
    params = dict(given.params)
    leaves = [nt.tensor(x, requires_grad=not op.facts.is_discrete and x.dtype == np.float64) for x in given.args]
    front = [params.pop("n")] if op.name == "polygamma" else []
    plain = face(*front, *leaves, **params)
    out = nt.zeros_like(plain.detach())
    assert face(*front, *leaves, out=out, **params) is out
    np.testing.assert_array_equal(out.detach().numpy(), plain.detach().numpy())
    if plain.requires_grad:
        weights = np.arange(1.0, 1.0 + plain.size).reshape(plain.shape)
        (plain * weights).sum().backward()
        expected = [x.grad for x in leaves]
        for x in leaves:
            x.grad = None
        (out * weights).sum().backward()
        for x, wanted in zip(leaves, expected, strict=True):
            assert (x.grad is None) == (wanted is None)
            if wanted is not None:
                np.testing.assert_array_equal(x.grad.numpy(), wanted.numpy())


def test_an_op_with_parameters_writes_over_its_own_operand():
    x = nt.tensor([-1.0, 2.0], requires_grad=True)
    y = x * 1.0
    assert nt.elu(y, alpha=0.5, out=y) is y
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.5 * np.exp(-1.0), 1.0], rtol=1e-6)


def test_a_bound_that_is_left_out_may_go_with_out():
    out = nt.zeros(2)
    assert nt.clip(nt.tensor([-1.0, 2.0]), min=0.0, out=out) is out
    assert out.tolist() == [0.0, 2.0]


def test_numpys_round_writes_to_a_tensor_and_is_recorded():
    x, out = nt.tensor([1.26], requires_grad=True), nt.zeros(1)
    assert np.round(x, 1, out=out) is out
    assert out.tolist() == pytest.approx([1.3])
    assert out.requires_grad


def test_an_array_is_not_written_for_a_tensor_that_a_tape_would_watch():
    with nt.Tape(), pytest.raises(OperandError) as caught:
        nt.gelu(nt.ones(2), out=np.zeros(2))
    assert str(caught.value) == (
        "gelu: out is an array, which cannot be tracked, but an operand is; give a tensor as out, or leave the tape "
        "with numpy()."
    )


def test_positions_are_not_written_to_out():
    with pytest.raises(ArgumentError) as caught:
        nt.where(nt.ones(2), out=nt.zeros(2))
    assert str(caught.value) == ("where: out goes with both branches, a and b; positions are always new arrays.")


def test_what_a_mask_leaves_out_is_not_computed():
    x = nt.tensor([-1.0, 2.0, 0.0], requires_grad=True)
    with np.errstate(all="raise"):
        y = np.log(x, where=np.array([False, True, False]), out=nt.zeros(3))
        y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.5, 0.0]


def test_options_of_numpy_that_stand_for_keywords_record():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    padded = np.pad(x, 1, mode="constant", constant_values=3.0)
    assert padded.tolist() == [3.0, 1.0, 2.0, 3.0]
    padded.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_an_array_of_another_kind_is_named():
    out = np.zeros(3, int)
    with pytest.raises(DtypeError) as caught:
        nt.sin(np.arange(3.0), out=out)
    assert str(caught.value) == (
        "sin: a result of float64 cannot be stored in an array of int64; give an out of float64, or cast the result "
        "with astype."
    )
    assert out.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(2,), (), (3, 2)])
def test_an_array_of_another_shape_is_named(shape):
    with pytest.raises(ShapeError) as caught:
        nt.sin(np.arange(3.0), out=np.zeros(shape))
    assert str(caught.value) == f"sin: the result has shape (3,), which does not broadcast to out of shape {shape}."


def test_a_result_is_broadcast_to_a_larger_array():
    out = np.ones((2, 3))
    assert nt.exp(np.zeros((1, 3)), out=out) is out
    assert nt.add(np.zeros(3), 1.0, out=out).tolist() == np.ones((2, 3)).tolist()


@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
def test_what_a_ufunc_computes_in_part_has_the_dtype_of_the_whole():
    mask, large = np.array([True, False]), np.array([2**31 + 1, 2])
    for ufunc in (np.add, np.maximum, np.floor_divide, np.bitwise_and, np.greater, np.equal, np.logical_and):
        part, whole = ufunc(nt.tensor(large), 1, where=mask), ufunc(large, 1)
        assert part.dtype == whole.dtype
        assert part.tolist() == [whole[0].item(), 0]
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = nt.ones(2, dtype=dtype)
        assert np.isnan(x, where=mask).dtype == bool
        assert np.exp(x, where=mask).dtype == nt.exp(x).dtype
    for dtype in ("int8", "uint8"):
        assert np.add(nt.ones(2, dtype=dtype), 1, where=mask).dtype == dtype


@pytest.mark.parametrize("x", [[0.0, -1.0], 0.0])
def test_a_ufunc_computes_nothing_where_no_condition_holds(x):
    never = np.zeros_like(x, dtype=bool)
    calls = (np.log, np.sqrt, np.arccosh, np.arctanh, lambda x, where: np.divide(1.0, x, where=where))
    for call in calls:
        derivatives = (nt.value_and_grad, nt.jacobian, nt.hessian)
        value, *rest = (f(lambda x, call=call: nt.sum(call(x, where=never)))(np.array(x)) for f in derivatives)
        for each in (*value, *rest):
            assert not np.any(each)
        tangent = nt.jvp(lambda x, call=call: call(x, where=never), np.array(x), np.ones_like(x))[1]
        assert np.array_equal(tangent, np.zeros_like(x))
    w, out = nt.tensor(x, requires_grad=True), nt.full(np.shape(x), 5.0)
    assert np.log(w, where=never, out=out) is out
    (out * w).sum().backward()
    assert w.grad.tolist() == np.full_like(x, 5.0).tolist()
    for dtype in ("uint8", "int64", "float16", "float32"):
        x = nt.zeros(2, dtype=dtype)
        for ufunc in (np.exp, np.isnan, np.square):
            assert ufunc(x, where=[False, False]).dtype == ufunc(x, where=[True, False]).dtype
        assert np.add(x, 1, where=[[False], [False]]).shape == (2, 2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_result_is_broadcast_to_a_larger_tensor_and_recorded(dtype):
    x, out = nt.tensor([[1.0, 2.0]], dtype=dtype, requires_grad=True), nt.zeros(3, 2, dtype=dtype)
    assert np.square(x, out=out) is out
    assert out.tolist() == [[1.0, 4.0]] * 3
    (out * nt.tensor([[1.0], [2.0], [3.0]], dtype=dtype)).sum().backward()
    assert x.grad.tolist() == [[12.0, 24.0]]
    assert nt.add(np.zeros(2), 1.0, out=nt.zeros(3, 2)).tolist() == [[1.0, 1.0]] * 3
    assert np.exp(nt.zeros(1, 4), out=nt.zeros(3, 4)).tolist() == [[1.0] * 4] * 3


@pytest.mark.parametrize("mask", [np.array([1.0, 0.0]), np.array([1, 0]), nt.tensor([1.0, 0.0]), np.float64(1.0)])
def test_a_mask_of_a_ufunc_is_of_bools(mask):
    for x in (nt.ones(2), nt.ones(2, requires_grad=True)):
        with pytest.raises(OperandError) as caught:
            np.exp(x, where=mask, out=nt.zeros(2))
        message = f"np.exp: where has dtype {mask.dtype}; it must be of bools, such as where != 0."
        assert str(caught.value) == message
    assert np.exp(nt.zeros(2), where=[1, 0], out=nt.zeros(2)).tolist() == [1.0, 0.0]  # NumPy, too, lets lists be.


def test_a_mask_that_does_not_fit_is_named():
    with pytest.raises(ShapeError) as caught:
        np.exp(nt.ones(3, 4), out=nt.ones(3, 4), where=np.ones((2, 2), bool))
    assert str(caught.value) == (
        "np.exp: where has shape (2, 2) and the operands have (3, 4), (3, 4); the shapes do not broadcast: from the "
        "last axis on, lengths must be equal or 1."
    )
