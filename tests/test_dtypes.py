"""Promotion: one row per rule, and half precision as storage."""

import numpy as np
import pytest

import numtape as nt


def t(dtype, *shape):
    return nt.ones(*shape, dtype=dtype)


@pytest.mark.parametrize(
    ("result", "dtype"),
    [
        (lambda: t("float32", 2) * 2.5, "float32"),
        (lambda: t("float32", 2) / np.sqrt(3), "float32"),
        (lambda: np.sqrt(3) * t("float32", 2), "float32"),
        (lambda: t("float32", 2) * np.array(2.0), "float32"),
        (lambda: t("float32", 2) + t("float64"), "float32"),
        (lambda: t("float32") + np.float64(2.0), "float32"),
        (lambda: t("float32", 2) + t("float64", 2), "float64"),
        (lambda: t("float32", 2) + np.ones(2), "float64"),
        (lambda: t("float16", 2) + t("bfloat16", 2), "float32"),
        (lambda: t("float16", 2) + t("float32", 2), "float32"),
        (lambda: t("bfloat16", 2) * 2.0, "bfloat16"),
        (lambda: t("int64", 2) + t("float32", 2), "float32"),
        (lambda: t("bool", 2) * t("float16", 2), "float16"),
        (lambda: np.arange(2) * t("float32", 2), "float32"),
        (lambda: t("int64", 2) * 2.5, "float32"),
        (lambda: t("int64", 2) * np.float64(2.5), "float64"),
        (lambda: t("int64", 2) / t("int64", 2), "float32"),
        (lambda: t("int64", 2).exp(), "float32"),
        (lambda: t("int64", 2).mean(), "float32"),
        (lambda: t("int64", 2) + t("int32", 2), "int64"),
        (lambda: t("int64", 2) + 1, "int64"),
        (lambda: t("bool", 2).sum(), "int64"),
        (lambda: t("float16", 2) == t("float32", 2), "bool"),
        (lambda: t("float16", 3).sum(), "float16"),
    ],
)
def test_promotion(result, dtype):
    assert result().dtype == nt.dtypes.as_dtype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "join",
    [
        lambda t: nt.diff(t, prepend=0.0),
        lambda t: nt.diff(t, append=np.array(0.0)),
        lambda t: np.diff(t, append=0.0),
        lambda t: nt.hstack([t, 1.0]),
        lambda t: nt.hstack([1, t]),
        lambda t: nt.hstack([t, np.array(2.0)]),
        lambda t: nt.hstack([t, np.float64(2.0)]),
        lambda t: nt.hstack([t[0], 1.0]),
        lambda t: nt.vstack([t[0], 1.0]),
        lambda t: nt.dstack([1.0, t[0]]),
        lambda t: nt.column_stack([t[0], 1.0]),
        lambda t: nt.stack([t[0], 1.0]),
        lambda t: nt.stack([t[0], 1]),
        lambda t: nt.stack([True, t[0]]),
        lambda t: nt.stack([t[0], np.float64(1.0)]),
        lambda t: np.stack([t[0], 1.0]),
        lambda t: nt.concat([t, 1.0], axis=None),
        lambda t: nt.tensor([t[0], 1.0]),
        lambda t: nt.einsum("i,->i", t, 2.0),
        lambda t: nt.outer(t, 2.0),
        lambda t: nt.kron(t, 2.0),
        lambda t: nt.dot(t, 2.0),
        lambda t: nt.inner(t, 2.0),
        lambda t: nt.tensordot(t, 2.0, 0),
        lambda t: nt.vdot(t[0], 2.0),
        lambda t: nt.where(t > 0.0, t, 1.0),
        lambda t: nt.clip(t, 0.5, np.array(2.0)),
        lambda t: nt.interp(0.5, nt.tensor([0.0, 1.0], dtype=t.dtype), t),
        lambda t: nt.take_along_axis(t, np.array([0]), 0) + 1.0,
        lambda t: nt.scatter(t, 0, np.array([0]), 5.0),
        lambda t: nt.trapezoid(t, dx=np.float64(0.5)),
        lambda t: nt.average(t, weights=[1.0, 2.0]),
        lambda t: nt.addmm(1.0, t[None], t[:, None]),
    ],
)
def test_numbers_beside_a_tensor_never_change_its_float_dtype(join, dtype):
    x = nt.ones(2, dtype=dtype, requires_grad=True)
    y = join(x)
    assert y.dtype == x.dtype
    y.sum().backward()
    assert x.grad.dtype == x.dtype


@pytest.mark.parametrize(
    ("result", "dtype"),
    [
        (lambda: nt.where(t("float64", 2) > 0, 1.0, 0.0), "float32"),
        (lambda: nt.where(t("float16", 2) > 0, 1, 0.5), "float32"),
        (lambda: nt.where(t("float16", 2) > 0, 1, 0), "int64"),
        (lambda: np.where(t("float64", 2) > 0, 1.0, 0.0), "float32"),
        (lambda: nt.where(t("bool", 2), np.float64(1.0), 0.0), "float64"),
        (lambda: nt.stack([t("int64"), 2.5]), "float32"),
        (lambda: nt.hstack([t("int64", 2), 2.5]), "float32"),
        (lambda: nt.stack([t("int64"), 2]), "int64"),
        (lambda: nt.stack([t("float32"), t("float64")]), "float64"),
        (lambda: nt.hstack([t("float32", 2), t("float64")]), "float32"),
        (lambda: nt.hstack([t("float32", 2), np.ones(1)]), "float64"),
        (lambda: nt.zeros_like([1.0, 2.0]), "float32"),
        (lambda: nt.full_like(2.0, 3.0), "float32"),
        (lambda: nt.ones_like(np.ones(2)), "float64"),
        # NumPy's arrays and numbers alone mean what they mean there.
        (lambda: nt.where(np.array([True]), 1.0, 0.0), "float64"),
        (lambda: nt.stack([1.0, 2.0]), "float64"),
        (lambda: nt.hstack([1.0, 2]), "float64"),
    ],
)
def test_python_floats_alone_make_the_default_dtype_where_a_tensor_is_made(result, dtype):
    assert result().dtype == nt.dtypes.as_dtype(dtype)


def test_the_default_dtype_of_numbers_is_recorded():
    x = nt.tensor([1.0, -1.0], dtype=nt.float64, requires_grad=True)
    # Both branches are numbers; the record of what uses them keeps their dtype.
    sign = nt.where(x > 0.0, 1.0, -1.0)
    (x * sign).sum().backward()
    assert sign.dtype == np.float32
    assert x.grad.tolist() == [1.0, -1.0]


def test_python_floats_take_the_default_dtype_and_arrays_keep_theirs():
    assert nt.tensor([1.0]).dtype == np.float32
    assert nt.tensor(np.array([1.0])).dtype == np.float64
    assert nt.tensor([np.float64(1.0), 2.0]).dtype == np.float64
    assert nt.tensor([1.0, np.float64(2.0)]).dtype == np.float64
    assert nt.tensor([1, 2]).dtype == np.int64
    assert nt.arange(np.float32(0), np.float32(1), np.float32(0.25)).tolist() == [0.0, 0.25, 0.5, 0.75]


def test_the_default_dtype_can_be_set():
    nt.set_default_dtype("float64")
    try:
        assert nt.zeros(2).dtype == np.float64
        assert (nt.tensor([1, 2]) * 0.5).dtype == np.float64
    finally:
        nt.set_default_dtype("float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_values_are_computed_and_added_up_in_float32(dtype):
    ones = nt.ones(65_536, dtype=dtype, requires_grad=True)
    assert float(ones.mean()) == 1.0
    small = nt.full((4096,), 1.0, dtype=dtype, requires_grad=True)
    total = small.sum()
    assert float(total) == 4096.0
    # Many small cotangents arrive at one leaf: they are added in float32 and rounded once.
    x = nt.tensor(1.0, dtype=dtype, requires_grad=True)
    y = x * 0.001
    for _ in range(999):
        y = y + x * 0.001
    y.backward()
    assert float(x.grad) == pytest.approx(1.0, rel=1e-2)


def test_a_mixed_product_keeps_each_operands_gradient_dtype():
    a = nt.ones(3, dtype="float32", requires_grad=True)
    b = nt.ones(3, dtype="float64", requires_grad=True)
    c = nt.tensor(2.0, dtype="float64", requires_grad=True)
    ((a * c) * b).sum().backward()
    assert (a.grad.dtype, b.grad.dtype, c.grad.dtype) == (np.float32, np.float64, np.float64)


def test_integers_and_complex_numbers_are_refused():
    with pytest.raises(nt.errors.DtypeError):
        nt.tensor([1, 2], requires_grad=True)
    with pytest.raises(nt.errors.DtypeError):
        nt.tensor([1j])
    with pytest.raises(nt.errors.DtypeError):
        nt.ones(2) * 1j
    with pytest.raises(nt.errors.DtypeError):
        nt.neg(np.array([1j]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_integers_and_lists_beside_floats_take_their_dtype(dtype):
    x = nt.tensor([1.0, 2.0], dtype=dtype)
    assert nt.average(x, weights=[1, 3]).dtype == dtype
    assert nt.average(x, weights=nt.tensor([1, 3])).dtype == dtype
    assert nt.trapezoid(x, np.array([0, 1])).dtype == dtype
    assert nt.trapezoid(x, [0.0, 1.0]).dtype == dtype


FLOATS = [0.1, 0.2, 0.7]
#: What is computed of three numbers and a list of three floats.
BESIDE_A_LIST = {
    "add": lambda x, floats: x + floats,
    "reversed sub": lambda x, floats: floats - x,
    "power": lambda x, floats: x**floats,
    "equal": lambda x, floats: x == floats,
    "dot": nt.dot,
    "matmul": lambda x, floats: floats @ x,
    "einsum": lambda x, floats: nt.einsum("i,i->", x, floats),
    "where": lambda x, floats: nt.where([True, False, True], x, floats),
    "concat": lambda x, floats: nt.concat([x, floats]),
    "vstack": lambda x, floats: nt.vstack([floats, x]),
    "column_stack": lambda x, floats: nt.column_stack([floats, x]),
    "clip": lambda x, floats: nt.clip(x, floats, [0.3, 0.3, 0.8]),
    "interp": lambda x, floats: nt.interp(x, floats, [0.4, 0.6, 0.9]),
    "interp at a list": lambda x, floats: nt.interp(floats, x, x),
    "trapezoid": nt.trapezoid,
    "trapezoid of a list": lambda x, floats: nt.trapezoid(floats, x),
    "gradient": nt.gradient,
    "convolve": nt.convolve,
    "outer": nt.outer,
    "kron": nt.kron,
    "cross": nt.cross,
    "vdot": nt.vdot,
    "solve": lambda x, floats: nt.solve(nt.diag(x), floats),
    "lstsq": lambda x, floats: nt.lstsq(nt.diag(x), floats),
    "mse_loss": nt.mse_loss,
    "bce_loss, weighted": lambda x, floats: nt.bce_loss(x, x, weight=floats),
    "cross_entropy_loss, weighted": lambda x, floats: nt.cross_entropy_loss(x[None], np.array([1]), weight=floats),
    "full_like": nt.full_like,
    "searchsorted": nt.searchsorted,
    "in place": lambda x, floats: x.clone().__iadd__(floats),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BESIDE_A_LIST)
def test_floats_in_lists_have_the_digits_of_what_is_beside_them(name, dtype):
    x = nt.tensor([0.3, 0.5, 0.6], dtype=dtype)
    found, expected = (BESIDE_A_LIST[name](x, floats) for floats in (FLOATS, np.array(FLOATS, dtype)))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=4 * np.finfo(dtype).eps)


def test_floats_beside_float64_tensors_and_arrays_are_not_rounded():
    s = nt.tensor(np.float64(0.1))
    assert nt.tensor([[s, 0.1], [0.2, 1e300]]).tolist() == [[0.1, 0.1], [0.2, 1e300]]
    assert nt.tensor([nt.tensor(1.0), 0.1]).dtype == np.float32
    assert nt.tensor([nt.tensor(1), 0.5]).dtype == np.float32
    assert nt.full_like(nt.tensor([1, 2]), 16777217.0).tolist() == [16777217] * 2
    assert nt.full_like(nt.ones(2), 0.1, dtype="float64").tolist() == [0.1] * 2
    assert np.full_like(nt.tensor(np.ones(2)), 1e-50).tolist() == [1e-50] * 2
    assert nt.dot(np.ones(2), [1e-50, 1e-50]) == 2e-50
    gradient = nt.grad(lambda x: np.dot(x, [6.626e-34, 1.381e-46]))(np.ones(2))
    assert gradient.tolist() == [6.626e-34, 1.381e-46]
    assert nt.exp([1.0]).dtype == np.float32


def test_what_errstate_asks_for_is_raised_as_numpy_does():
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        nt.exp(nt.tensor([1000.0]))


HALVES = [("float16", "bfloat16"), ("bfloat16", "float16")]
HALF_WRITES = {
    "item": lambda y, b: y.__setitem__(..., b),
    "part": lambda y, b: y.__setitem__(slice(0, 2), b[:2]),
    "copy_": lambda y, b: y.copy_(b),
    "add_": lambda y, b: y.add_(b),
    "out": lambda y, b: nt.add(b, b, out=y),
    "ufunc": lambda y, b: np.add(b, b, out=y),
    "array": lambda y, b: nt.add(b.numpy(), b.numpy(), out=y.numpy(copy=True)),
    "data": lambda y, b: setattr(y, "data", b),
}


@pytest.mark.parametrize(("target", "source"), HALVES)
@pytest.mark.parametrize("write", HALF_WRITES.values(), ids=HALF_WRITES)
def test_each_half_dtype_is_written_to_by_the_other(write, target, source):
    y, b = nt.zeros(3, dtype=target), nt.ones(3, dtype=source)
    write(y, b)
    assert y.dtype == nt.dtypes.as_dtype(target)
    assert y.tolist() in ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0])


@pytest.mark.parametrize(("target", "source"), HALVES)
def test_a_recorded_write_of_the_other_half_dtype_has_its_gradient(target, source):
    b = nt.ones(3, dtype=source, requires_grad=True)
    y = nt.zeros(3, dtype=target)
    y[1:] = b[1:] * 2.0
    y.sum().backward()
    assert b.grad.dtype == b.dtype
    assert b.grad.tolist() == [0.0, 2.0, 2.0]


def test_integers_fill_their_dtype_and_what_has_a_dtype_wraps_around():
    assert nt.tensor([-128, 127], dtype="int8").tolist() == [-128, 127]
    assert nt.tensor([2.7, True], dtype="int8").tolist() == [2, 1]
    assert nt.tensor([2**64 - 1], dtype="uint64").tolist() == [2**64 - 1]
    assert nt.tensor(np.array([300]), dtype="uint8").tolist() == [44]
    assert nt.tensor([np.int64(300)], dtype="uint8").tolist() == [44]
    assert nt.tensor([300]).astype("uint8").tolist() == [44]
    drawn = nt.randint(-128, 128, (2000,), dtype="int8", rng=0)
    assert (drawn.min().item(), drawn.max().item()) == (-128, 127)
    assert len(set(nt.randint(-(2**63), 2**63, (9,), rng=0).tolist())) == 9
    assert nt.randint(2**64 - 1, 2**64, (1,), dtype="uint64").tolist() == [2**64 - 1]
    assert nt.permutation(128, dtype="int8").max().item() == 127
    assert nt.permutation(0, dtype="int8").shape == (0,)


def test_masked_fill_keeps_the_dtype_of_integers():
    mask = np.array([True, False])
    for dtype in ("int32", "uint8", "bool"):
        filled = nt.ones(2, dtype=dtype).masked_fill(mask, nt.tensor(0))
        assert filled.dtype == dtype
        assert filled.tolist() == [0, 1]
