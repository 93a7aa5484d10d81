"""Autocast: which dtype each op runs in, what is left alone, and casts on the tape."""

import gc

import numpy as np
import pytest
from half_precision import HALVES, dtypes_of, floats

import numtape as nt
from numtape.core.context import current
from numtape.testing import op_checks


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_products_are_lowered_and_losses_widened(dtype):
    weight = nt.tensor(floats(3, 3), requires_grad=True)
    x = nt.tensor(floats(2, 3, seed=1))
    with nt.autocast(dtype=dtype):
        loss = nt.mse_loss(nt.relu(x @ weight), nt.zeros(2, 3))
    half = str(dtype)
    assert dtypes_of(loss) == [
        ("cast", half),
        ("matmul", half),
        ("relu", half),
        ("mse_loss", "float32"),
    ]
    loss.backward()
    assert weight.grad.dtype == nt.float32


@pytest.mark.parametrize("entry", op_checks.entries(), ids=lambda entry: entry.name)
def test_every_op_runs_as_its_precision_says_and_is_right_to_that(entry):
    expected_dtypes = {"lower": nt.bfloat16, "keep": nt.float32, "widen": nt.float32}
    for sample in op_checks.samples(entry):
        case = op_checks.case_of(entry, sample)
        if not case.operands or entry.name == "cast":
            continue
        with np.errstate(all="ignore"):
            operands = [nt.tensor(x.astype(np.float32)) for x in case.operands]
            plain = case.values(operands)
            with nt.autocast():
                found = case.values(operands)
        for a, b in zip(found, plain, strict=True):
            if b.dtype == nt.float32 and not sample.params.get("dtype"):
                assert a.dtype in {expected_dtypes[entry.facts.precision], b.dtype}
            size = np.nanmax(np.abs(np.where(np.isfinite(b.numpy()), b.numpy(), 0.0)), initial=1.0)
            atol = 0.0 if entry.facts.precision != "lower" else 2.0**-5 * size
            np.testing.assert_allclose(a.numpy().astype(float), b.numpy(), rtol=0.0, atol=atol)


@pytest.mark.parametrize("name", ["matmul", "linear", "conv", "conv_input", "conv_weight", "einsum", "tensordot"])
def test_products_say_lower(name):
    assert {e.name: e for e in op_checks.entries()}[name].facts.precision == "lower"


def test_the_precision_of_every_op_is_one_of_three_words():
    assert {entry.facts.precision for entry in op_checks.entries()} == {"lower", "keep", "widen"}


def test_every_loss_and_norm_is_widened():
    entries = {entry.name: entry for entry in op_checks.entries()}
    names = [name for name in entries if name.endswith("_loss") or name.endswith("norm")]
    assert len(names) > 15
    assert {name: entries[name].facts.precision for name in names} == dict.fromkeys(names, "widen")


def test_half_operands_of_widened_functions_give_float32():
    x = nt.tensor(floats(2, 4, 6), dtype=nt.float16)
    with nt.autocast(nt.float16):
        results = [
            nt.softmax(x),
            nt.layer_norm(x, (6,)),
            nt.group_norm(x, 2),
            nt.batch_norm(x, None, None, training=True),
            nt.l1_loss(x, nt.zeros_like(x)),
            nt.norm(x),
            x.sum(),
            nt.exp(x),
            nt.abs(x) ** 2.5,
        ]
    assert {str(y.dtype) for y in results} == {"float32"}


def test_functions_of_layers_run_as_their_ops_say():
    x, functional = nt.tensor(np.abs(floats(2, 4, 6)), dtype=nt.float16), nt.nn.functional
    with nt.autocast(nt.float16):
        widened = [
            functional.softplus(x),
            functional.avg_pool2d(x, 2),
            functional.avg_pool2d(x, 2, divisor_override=3),
            functional.normalize(x),
            functional.cosine_similarity(x, x),
        ]
        kept = [nt.glu(x), nt.tanhshrink(x), nt.median(x), nt.gradient(x, axis=0), functional.dropout1d(x, rng=0)]
    assert {str(y.dtype) for y in widened} == {"float32"}
    assert {str(y.dtype) for y in kept} == {"float16"}


def test_running_statistics_are_updated_in_place():
    layer = nt.nn.BatchNorm1d(3)
    with nt.autocast(nt.float16):
        layer(nt.tensor(floats(5, 3), dtype=nt.float16))
    assert layer.running_mean.dtype == nt.float32
    assert np.abs(layer.running_mean.numpy()).min() > 0.0


def test_attention_runs_its_products_low_and_its_softmax_wide():
    x = nt.tensor(floats(2, 4, 8), requires_grad=True)
    with nt.autocast():
        out = nt.scaled_dot_product_attention(x, x, x)
    names = dtypes_of(out)
    assert out.dtype == nt.bfloat16
    assert [dtype for name, dtype in names if name == "matmul"] == ["bfloat16", "bfloat16"]
    assert [dtype for name, dtype in names if name == "softmax"] == ["float32"]


def test_layers_accept_what_lower_layers_give():
    model = nt.nn.Sequential(nt.nn.Conv2d(1, 2, 3), nt.nn.BatchNorm2d(2), nt.nn.ReLU(), nt.nn.Flatten())
    model.append(nt.nn.Linear(2 * 4 * 4, 3))
    with nt.autocast():
        assert model(nt.tensor(floats(2, 1, 6, 6))).dtype == nt.bfloat16
    with pytest.raises(nt.errors.DtypeError, match="the input has dtype bfloat16 and the weights have float32"):
        model(nt.zeros(2, 1, 6, 6, dtype=nt.bfloat16))


def test_a_transformer_layer_runs():
    layer = nt.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    x = nt.tensor(floats(2, 5, 8))
    expected = layer(x).numpy()
    with nt.autocast():
        found = layer(x)
    np.testing.assert_allclose(found.numpy().astype(float), expected, atol=0.05)


# What is left alone.


def test_integers_are_never_cast():
    with nt.autocast():
        assert (nt.tensor([[1, 2]]) @ nt.tensor([[3], [4]])).dtype == nt.int64
        assert nt.tensor([300, 301]).sum().dtype == nt.int64
        assert nt.tensor([1, 2])[nt.tensor([0])].tolist() == [1]


def test_floats_beside_integers_are_not_cast():
    with nt.autocast():
        assert (nt.tensor([[1, 2]]) @ nt.tensor([[3.0], [4.0]])).dtype == nt.float32


def test_doubles_are_never_cast():
    x = nt.tensor(np.eye(2))
    with nt.autocast():
        assert (x @ x).dtype == nt.float64
        assert (x @ nt.ones(2, 2)).dtype == nt.float64


def test_arrays_alone_are_left_to_numpy():
    with nt.autocast():
        assert nt.matmul(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)).dtype == np.float32


def test_arrays_beside_tensors_are_cast():
    with nt.autocast():
        assert (nt.ones(2, 2) @ np.eye(2, dtype=np.float32)).dtype == nt.bfloat16


def test_writes_in_place_keep_their_dtype():
    x, out = nt.ones(2, 2), nt.zeros(2, 2)
    with nt.autocast():
        x += x @ x
        nt.exp(x, out=out)
    assert x.dtype == out.dtype == nt.float32


# Casts on the tape.


def test_a_weight_is_cast_once_and_its_cast_recorded_at_each_use():
    weight = nt.tensor(floats(3, 3), requires_grad=True)
    x = nt.tensor(floats(1, 3, seed=1))
    with nt.autocast():
        once = x @ weight
        twice = x @ weight
        first, second = (nt.records(y)[0] for y in (once, twice))
        assert (first.op.name, second.op.name) == ("cast", "cast")
        assert first is not second
        assert len(current().scopes[-1].copies) == 1  # That of the weight; x is data.
    (once + twice).sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), np.repeat(2 * x.numpy().T, 3, 1), rtol=2.0**-8)


def test_the_copy_of_a_weight_is_shared_and_made_anew_after_a_write():
    weight = nt.ones(2, 2, requires_grad=True)
    x = nt.ones(1, 2, requires_grad=True)
    with nt.autocast():
        copies = current().scopes[-1].copies
        x @ weight
        before = copies.of(weight, nt.bfloat16)
        assert copies.of(weight, nt.bfloat16) is before
        with nt.no_grad():
            weight *= 2.0
        assert (x @ weight).tolist() == [[4.0, 4.0]]
        assert copies.of(weight, nt.bfloat16) is not before


def test_an_optimizer_step_inside_of_the_region_is_seen():
    weight = nt.ones(1, 1, requires_grad=True)
    optimizer = nt.optim.SGD([weight], lr=0.25)
    with nt.autocast():
        for expected in (1.0, 0.75, 0.5):
            optimizer.zero_grad()
            y = nt.ones(1, 1) @ weight
            assert y.item() == expected
            y.sum().backward()
            optimizer.step()


def test_copies_go_with_their_tensors_and_with_the_region():
    with nt.autocast():
        copies = current().scopes[-1].copies
        x = nt.ones(2, 2, requires_grad=True)
        x @ x
        assert len(copies) == 1
        gc.disable()
        try:
            del x
            assert len(copies) == 0
        finally:
            gc.enable()


def test_a_tensor_that_was_overwritten_elsewhere_still_raises():
    base = nt.ones(2, 2, requires_grad=True) * 1.0
    view = base[0]
    base += 1.0
    with nt.autocast(), pytest.raises(nt.errors.OverwrittenError, match="was overwritten through another view"):
        view @ nt.ones(2, 2)
