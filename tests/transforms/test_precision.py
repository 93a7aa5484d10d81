"""Autocast: which dtype each op runs in, casts on the tape, regions, overrides, derivatives, checkpointing."""

import asyncio
import contextvars
import gc
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core import recompute
from numtape.core.context import current
from numtape.core.op import Composite
from numtape.testing import op_checks

HALVES = [nt.bfloat16, nt.float16]


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dtypes_of(loss):
    return [(record.op.name, str(record.dtype)) for record in nt.records(loss)]


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


def test_integers_beside_floats_take_the_float_that_the_op_runs_in():
    with nt.autocast():
        assert (nt.tensor([[1, 2]]) @ nt.tensor([[3.0], [4.0]])).dtype == nt.bfloat16


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
        assert len(current().scopes[-1].copies) == 2  # The weight and x.
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
        x = nt.ones(2, 2)
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


# Regions.


def test_regions_nest_and_end():
    x = nt.ones(2, 2)
    with nt.autocast(nt.float16):
        assert (x @ x).dtype == nt.float16
        with nt.autocast(nt.bfloat16):
            assert (x @ x).dtype == nt.bfloat16
            with nt.autocast(enabled=False):
                assert (x @ x).dtype == nt.float32
            assert (x @ x).dtype == nt.bfloat16
        assert (x @ x).dtype == nt.float16
    assert (x @ x).dtype == nt.float32


def test_float32_is_a_region_without_casts():
    x = nt.ones(2, 2)
    with nt.autocast(), nt.autocast(dtype=nt.float32):
        assert (x @ x).dtype == nt.float32


def test_a_region_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), nt.autocast():
        raise ZeroDivisionError
    assert current().scopes == ()


def test_one_object_can_be_entered_again_and_inside_of_itself():
    region, x = nt.autocast(), nt.ones(2, 2)
    with region:
        with region:
            assert (x @ x).dtype == nt.bfloat16
        assert (x @ x).dtype == nt.bfloat16
    assert (x @ x).dtype == nt.float32


def test_functions_generators_and_coroutines_can_be_decorated():
    x = nt.ones(2, 2)

    @nt.autocast(dtype=nt.float16)
    def product():
        return (x @ x).dtype

    @nt.autocast()
    def products():
        yield (x @ x).dtype
        yield (x @ x).dtype

    @nt.autocast()
    async def awaited():
        return (x @ x).dtype

    assert product() == nt.float16
    steps = products()
    assert next(steps) == nt.bfloat16
    assert (x @ x).dtype == nt.float32
    assert next(steps) == nt.bfloat16
    with pytest.raises(StopIteration) as stop:
        awaited().send(None)
    assert stop.value.value == nt.bfloat16


def test_a_thread_has_its_own_regions():
    x, found = nt.ones(2, 2), []
    with nt.autocast():
        thread = threading.Thread(target=lambda: found.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert found == [nt.float32]


# Overrides.


def test_ops_can_be_lowered_and_widened_by_name():
    x = nt.ones(2, 2)
    with nt.autocast(autocast_ops=["exp", "softmax"], keep_fp32_ops=("matmul", "relu")):
        assert nt.exp(x).dtype == nt.bfloat16
        assert nt.softmax(x).dtype == nt.bfloat16
        assert (x @ x).dtype == nt.float32
        assert nt.relu(x.astype(nt.bfloat16)).dtype == nt.float32


def test_composed_functions_can_be_lowered_and_widened_by_name():
    x = nt.tensor(floats(2, 1, 4, 4))
    with nt.autocast(autocast_ops=["layer_norm"], keep_fp32_ops=["conv2d", "cross_entropy"]):
        assert nt.layer_norm(x, (4,)).dtype == nt.bfloat16
        assert nt.conv2d(x, nt.ones(1, 1, 3, 3)).dtype == nt.float32
        assert nt.conv1d(x[0], nt.ones(1, 4, 3)).dtype == nt.bfloat16
        assert nt.cross_entropy(x[0, 0], nt.tensor([0, 1, 2, 3])).dtype == nt.float32


def test_keep_fp32_wins_and_further_spellings_count():
    with nt.autocast(autocast_ops=["matmul", "mse"], keep_fp32_ops=["mm"]):
        assert (nt.ones(2, 2) @ nt.ones(2, 2)).dtype == nt.float32
        assert nt.mse_loss(nt.ones(2), nt.ones(2)).dtype == nt.bfloat16


@pytest.mark.parametrize("make", [nt.autocast, lambda **names: nt.Tape(amp=nt.AmpConfig(**names))])
def test_an_unknown_name_is_an_error_that_lists_near_ones(make):
    title = "autocast" if make is nt.autocast else "AmpConfig"
    with pytest.raises(nt.errors.ArgumentError) as error:
        make(keep_fp32_ops=["sofmax"])
    assert str(error.value) == (
        f"{title}: keep_fp32_ops has 'sofmax', and there is no op of that name. Did you mean 'softmax' or "
        "'log_softmax' or 'max'?"
    )


# Bad input: one clear line each.


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: nt.autocast("int8"),
            nt.errors.DtypeError,
            "autocast: dtype is 'int8'; it must be bfloat16, float16, or float32 to cast nothing.",
        ),
        (
            lambda: nt.autocast(nt.float64),
            nt.errors.DtypeError,
            "autocast: dtype is float64; it must be bfloat16, float16, or float32 to cast nothing.",
        ),
        (
            lambda: nt.autocast("flaot16"),
            nt.errors.DtypeError,
            "autocast: dtype is 'flaot16'; it must be bfloat16, float16, or float32 to cast nothing.",
        ),
        (
            lambda: nt.autocast("cuda"),
            nt.errors.DtypeError,
            "autocast: dtype is 'cuda'; it must be bfloat16, float16, or float32 to cast nothing, and there is one "
            "device, so that it is not named.",
        ),
        (
            lambda: nt.autocast("cuda", dtype=nt.float16),
            nt.errors.DtypeError,
            "autocast: dtype is 'cuda'; it must be bfloat16, float16, or float32 to cast nothing, and there is one "
            "device, so that it is not named.",
        ),
        (
            lambda: nt.autocast(device_type="cuda"),
            nt.errors.ArgumentError,
            "autocast: there is no device 'cuda'; numtape computes on \"cpu\".",
        ),
        (
            lambda: nt.autocast(None),
            nt.errors.DtypeError,
            "autocast: dtype is None; it must be bfloat16, float16, or float32 to cast nothing.",
        ),
        (
            lambda: nt.autocast(nt.float16, dtype=nt.float16),
            nt.errors.OperandError,
            "autocast: takes a dtype and whether it is enabled, each once; name the other settings.",
        ),
        (
            lambda: nt.autocast(keep_fp32_ops=None),
            nt.errors.OperandError,
            "autocast: keep_fp32_ops is None; it must be a sequence of names of ops.",
        ),
        (
            lambda: nt.AmpConfig(keep_fp32_ops=None),
            nt.errors.ArgumentError,
            "AmpConfig: keep_fp32_ops is None; it must be a sequence of names of ops.",
        ),
        (
            lambda: nt.autocast(enabled="yes"),
            nt.errors.OperandError,
            "autocast: enabled is 'yes'; it is True or False.",
        ),
        (
            lambda: nt.autocast(lambda x: x),
            nt.errors.OperandError,
            "autocast: takes a dtype; write `@nt.autocast()`, with parentheses, to decorate a function.",
        ),
        (
            lambda: nt.autocast(autocast_ops="matmul"),
            nt.errors.OperandError,
            "autocast: autocast_ops is 'matmul'; it must be a sequence of names: ['matmul'].",
        ),
        (
            lambda: nt.autocast(autocast_ops=["transpose"]),
            nt.errors.ArgumentError,
            "autocast: autocast_ops has 'transpose', which is made of other ops and runs in the dtype of what it gets; "
            "name those ops.",
        ),
        (
            lambda: nt.AmpConfig(precision_mode="float8"),
            nt.errors.ArgumentError,
            "AmpConfig: precision_mode is 'float8'; it must be one of 'float16', 'bfloat16', 'float32'.",
        ),
        (
            lambda: nt.AmpConfig(enabled=1),
            nt.errors.ArgumentError,
            "AmpConfig: enabled is 1; it must be a bool.",
        ),
        (
            lambda: nt.AmpConfig(keep_fp32_ops="softmax"),
            nt.errors.ArgumentError,
            "AmpConfig: keep_fp32_ops is 'softmax'; it must be a sequence of names of ops.",
        ),
        (
            lambda: nt.Tape(amp="float16"),
            nt.errors.OperandError,
            "Tape: amp must be an nt.AmpConfig, not str.",
        ),
        (
            lambda: nt.nn.Linear(2, 2)(nt.tensor([[1, 2]])),
            nt.errors.DtypeError,
            "Linear: the input has dtype int64 and the weights have float32; use x.astype(nt.float32).",
        ),
    ],
)
def test_bad_input_is_one_clear_line(make, kind, message):
    with nt.autocast(), pytest.raises(kind) as error:
        make()
    assert str(error.value) == message


# Derivatives.


def network(x, weights):
    for weight in weights:
        x = nt.tanh(x @ weight)
    return (x * x).sum()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_both_modes_give_the_same_derivative(dtype):
    weights = [nt.tensor(floats(4, 4, seed=i) / 2) for i in range(3)]
    x, t = floats(2, 4, seed=7), floats(2, 4, seed=8)

    @nt.autocast(dtype=dtype)
    def loss(x):
        return network(x, weights)

    _, pushed = nt.jvp(loss, x, t)
    gradient = nt.grad(loss)(x)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(pushed, np.sum(gradient * t), rtol=1e-5)
    plain = nt.grad(lambda x: network(x, weights))(x)
    np.testing.assert_allclose(gradient, plain, atol=(2.0**-5 if dtype == nt.bfloat16 else 2.0**-8))


def test_a_gradient_does_not_depend_on_where_it_is_taken():
    weights = [nt.tensor(floats(4, 4, seed=i) / 2, requires_grad=True) for i in range(3)]
    x = nt.tensor(floats(2, 4, seed=7))
    found = []
    for is_inside in (True, False):
        for weight in weights:
            weight.grad = None
        with nt.autocast():
            loss = network(x, weights)
            if is_inside:
                loss.backward()
        if not is_inside:
            loss.backward()
        found.append([weight.grad.numpy(copy=True) for weight in weights])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_second_derivatives_agree_in_all_modes_inside_and_outside():
    weights = [nt.tensor(floats(4, 4, seed=i) / 2) for i in range(2)]
    x, t = floats(2, 4, seed=7), floats(2, 4, seed=8)

    @nt.autocast()
    def loss(x):
        return network(x, weights)

    outside = nt.hvp(loss, x, t)
    with nt.autocast():
        inside = nt.hvp(lambda x: network(x, weights), x, t)
    np.testing.assert_array_equal(inside, outside)
    hessian = nt.hessian(loss)(x)
    np.testing.assert_allclose(np.tensordot(hessian, t, 2), outside, rtol=1e-4, atol=1e-5)
    plain = nt.hvp(lambda x: network(x, weights), x, t)
    np.testing.assert_allclose(outside, plain, atol=0.3)


def test_gradients_of_gradients_by_nested_tapes_are_right():
    x = nt.tensor(np.array([[2.0]], np.float32))
    with nt.autocast(), nt.GradientTape() as outer:
        outer.watch(x)
        with nt.GradientTape() as inner:
            inner.watch(x)
            y = (x @ x) @ x
        slope = inner.gradient(y, x)
    assert slope.item() == 12.0
    assert outer.gradient(slope, x).item() == 12.0


def test_power_series_pass_through():
    with nt.autocast(nt.float16):
        found = nt.derivatives(lambda x: nt.matmul(nt.stack([x, x]), nt.stack([x, x])), np.float32(3.0), 2)
    assert [float(each) for each in found] == [18.0, 12.0, 4.0]


# Checkpointing.


def step(x, weights):
    for weight in weights:
        x = nt.gelu(x @ weight)
    return nt.layer_norm(x, (8,))


def gradients_of(run, weights):
    for weight in weights:
        weight.grad = None
    with nt.autocast(nt.float16):
        loss = run()
    loss.backward()
    return [weight.grad.numpy(copy=True) for weight in weights]


def test_checkpointed_gradients_equal_the_plain_ones_bit_for_bit():
    weights = [nt.tensor(floats(8, 8, seed=i), requires_grad=True) for i in range(4)]
    x = nt.tensor(floats(4, 8, seed=9))
    plain = gradients_of(lambda: (step(x, weights) ** 2).sum(), weights)
    functional = gradients_of(lambda: (nt.checkpoint(step, x, weights) ** 2).sum(), weights)
    for a, b in zip(plain, functional, strict=True):
        np.testing.assert_array_equal(a, b)
    for strategy in ("block", "selective", "full"):
        config = nt.CheckpointConfig(strategy, checkpoint_every_n=3)
        for weight in weights:
            weight.grad = None
        with nt.Tape(checkpoint=config, amp=nt.AmpConfig(precision_mode="float16")) as tape:
            loss = (step(x, weights) ** 2).sum()
        tape.backward(loss)
        for a, weight in zip(plain, weights, strict=True):
            np.testing.assert_array_equal(a, weight.grad.numpy())


def test_loops_run_their_steps_again_in_the_same_precision():
    weight = nt.tensor(floats(8, 8) / 3, requires_grad=True)
    x = nt.tensor(floats(2, 8, seed=1))

    def one(x):
        return nt.tanh(x @ weight).astype(nt.float32)

    def plainly():
        y = x
        for _ in range(7):
            y = one(y)
        return (y * y).sum()

    (plain,) = gradients_of(plainly, [weight])
    (looped,) = gradients_of(lambda: (nt.checkpoint_loop(one, x, 7) ** 2).sum(), [weight])
    np.testing.assert_allclose(looped, plain, rtol=1e-6, atol=1e-6)


# Tapes.


def test_a_config_acts_inside_of_its_tape_and_nowhere_else():
    x = nt.ones(2, 2)
    with nt.Tape(amp=nt.AmpConfig()) as tape:
        y = x @ x
        with nt.autocast(enabled=False):
            z = x @ x
    assert (y.dtype, z.dtype, (x @ x).dtype) == (nt.bfloat16, nt.float32, nt.float32)
    assert tape.gradient(y.sum(), x).dtype == nt.float32


def test_the_innermost_config_counts():
    x = nt.ones(2, 2)
    with nt.autocast(nt.bfloat16), nt.Tape(amp=nt.AmpConfig(precision_mode="float16")):
        assert (x @ x).dtype == nt.float16
    with nt.Tape(amp=nt.AmpConfig(precision_mode="float16")), nt.autocast(nt.bfloat16):
        assert (x @ x).dtype == nt.bfloat16


def test_recording_by_calls_casts_until_it_stops():
    x = nt.ones(2, 2)
    tape = nt.Tape(amp=nt.AmpConfig())
    tape.start_recording()
    assert (x @ x).dtype == nt.bfloat16
    tape.stop_recording()
    assert (x @ x).dtype == nt.float32


@pytest.mark.parametrize("config", [nt.AmpConfig(enabled=False), nt.AmpConfig(precision_mode="float32")])
def test_a_config_that_is_off_casts_nothing(config):
    with nt.Tape(amp=config):
        assert (nt.ones(2, 2) @ nt.ones(2, 2)).dtype == nt.float32


def test_the_tape_holds_about_half_the_bytes():
    weights = [nt.tensor(floats(64, 64, seed=i) / 8, requires_grad=True) for i in range(6)]
    x = nt.tensor(floats(256, 64, seed=9))

    def bytes_kept(**options):
        with nt.Tape(watch_all=False, **options) as tape:
            y = x
            for weight in weights:
                y = nt.relu(y @ weight)
        return sum(record.nbytes for record in tape.records if record.is_kept and record.op.name != "cast")

    assert bytes_kept(amp=nt.AmpConfig()) <= 0.55 * bytes_kept()


def test_widened_ops_keep_half_operands_and_are_made_again_in_float32():
    x = nt.tensor(floats(4, 8), dtype=nt.float16, requires_grad=True) * 1.0
    with nt.autocast(nt.float16):
        y = nt.softmax(x) + nt.checkpoint(lambda x: nt.exp(nt.softmax(x)), x)
    records = nt.records(y)
    assert [str(record.dtype) for record in records] == ["float16", "float32", "float32", "float32", "float32"]
    assert all(link.dtype == nt.float16 for record in records[1:3] for link in record.inputs)
    np.testing.assert_array_equal(recompute.value(records[2]), nt.softmax(x.astype(nt.float32)).numpy())


def test_the_tape_as_numpy_code_computes_in_the_same_precision():
    weight = nt.tensor(floats(4, 4), requires_grad=True, name="weight")
    with nt.autocast():
        product = weight @ weight
        loss = nt.sum(product * product) + nt.exp(product * 0.1).sum()
    names = {}
    exec(nt.to_numpy_source(loss), names)
    value, gradients = names["gradient"](weight.numpy())
    loss.backward()
    assert value == loss.item()
    np.testing.assert_array_equal(gradients["weight"], weight.grad.numpy())


def test_composed_functions_know_the_function_behind_their_face():
    entries = [entry for entry in op_checks.entries() if isinstance(entry, Composite)]
    assert all(callable(entry.function) for entry in entries)


# Shared regions, and copies that nobody writes to.


def test_two_tasks_may_share_a_region():
    region = nt.autocast()
    x = nt.ones(2, 2)

    async def inside(first, second):
        async with asyncio.timeout(10):
            with region:
                first.set()
                await second.wait()
                assert (x @ x).dtype == nt.bfloat16
            assert (x @ x).dtype == nt.float32
            await asyncio.sleep(0)
            assert (x @ x).dtype == nt.float32

    async def both():
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(inside(first, second), inside(second, first))

    asyncio.run(both())


def test_two_threads_may_share_a_region():
    region = nt.autocast()
    x = nt.ones(2, 2)
    meeting = threading.Barrier(2, timeout=10)
    found = []

    def inside(is_first):
        with region:
            meeting.wait()
            if not is_first:
                meeting.wait()
            found.append((x @ x).dtype)
        found.append((x @ x).dtype)
        if is_first:
            meeting.wait()

    threads = [threading.Thread(target=inside, args=(is_first,)) for is_first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [nt.bfloat16, nt.float32] * 2


def test_the_half_copy_of_a_tensor_cannot_be_written_through_a_view():
    w = nt.ones(2, 2)
    with nt.autocast(autocast_ops=["reshape"]):
        y = nt.reshape(w, (4,))
        with pytest.raises(nt.errors.OverwrittenError) as error:
            y += 10.0
        assert (w @ w).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert str(error.value) == "add: the tensor's memory is read-only; use clone() to get memory of its own."


class Interrupting:
    """An operand that runs an op of its own, with an op beside it under way."""

    def __init__(self, x, run):
        self.x, self.run, self.found = x, run, []

    def __array__(self, dtype=None, copy=None):
        self.found.append(self.run(nt.relu, self.x).dtype)
        return np.ones(2, np.float32)


def in_thread(function, *args):
    found = []
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: found.append(context.run(function, *args)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("run", [in_thread, lambda function, *args: function(*args)])
def test_ops_that_run_at_the_same_time_in_one_region_do_not_change_each_other(run):
    half = nt.ones(2, dtype=nt.float16)
    with nt.autocast(nt.float16):
        operand = Interrupting(half, run)
        assert nt.pow(half, operand).dtype == nt.float32
    assert operand.found == [nt.float16]


def test_threads_that_share_a_region_give_the_numbers_of_one():
    half = nt.tensor(floats(16), dtype=nt.float16)

    def work():
        return {(str(nt.exp(half).dtype), str(nt.relu(half).dtype)) for _ in range(300)}

    async def main():
        with nt.autocast(nt.float16):
            return await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))

    assert asyncio.run(main()) == [{("float32", "float16")}] * 4


def test_an_op_that_raised_leaves_no_trace():
    half = nt.ones(2, dtype=nt.float16)
    with nt.autocast(nt.float16):
        with pytest.raises(nt.errors.OperandError):
            nt.pow(half, None)
        assert nt.relu(half).dtype == nt.float16


def test_squares_are_powers():
    half = nt.tensor([300.0, 40000.0], dtype=nt.float16, requires_grad=True)
    for names in ([], ["pow"]):
        with nt.autocast(nt.float16, keep_fp32_ops=names):
            squares = [half**2, half**2.0, nt.square(half), half.square()]
        assert {str(y.dtype) for y in squares} == {"float32"}
        assert {y.tolist()[0] for y in squares} == {90000.0}
    (squares[0] * 0.5).sum().backward()
    assert half.grad.tolist() == [300.0, 40000.0]


def test_lists_beside_tensors_are_cast_as_arrays_are():
    x, numbers = nt.ones(2, 2, requires_grad=True), [[1.0, 2.0], [3.0, 4.0]]
    with nt.autocast():
        product, swapped = x @ numbers, numbers @ x
        assert (product.dtype, swapped.dtype) == (nt.bfloat16, nt.bfloat16)
        assert (x.astype(nt.bfloat16) @ [[1, 2], [3, 4]]).dtype == nt.bfloat16
    assert product.tolist() == [[4.0, 6.0], [4.0, 6.0]]
    product.sum().backward()
    assert x.grad.tolist() == [[3.0, 7.0], [3.0, 7.0]]


def test_pytorchs_spelling_names_the_device():
    for region in (nt.autocast("cpu", dtype=nt.float16), nt.autocast("cpu", nt.float16, True)):
        assert (region.dtype, region.enabled) == (nt.float16, True)
    assert nt.autocast("cpu").dtype == nt.bfloat16
    assert not nt.autocast(device_type="cpu", dtype=nt.bfloat16, enabled=False).enabled
    assert not nt.autocast("cpu", nt.float16, False).enabled


def test_ops_of_users_are_lowered_and_widened_by_name():
    @nt.custom_op(vjp={"x": lambda g: g * 2.0}, check=False)
    def doubled_here(x, /):
        return x * 2.0

    x = nt.ones(2)
    with nt.autocast(autocast_ops=["doubled_here"]):
        assert doubled_here(x).dtype == nt.bfloat16
    with nt.autocast(keep_fp32_ops=["doubled_here"]):
        assert doubled_here(x.astype(nt.bfloat16)).dtype == nt.float32
    with pytest.raises(nt.errors.ArgumentError, match="Did you mean 'doubled_here'"):
        nt.autocast(keep_fp32_ops=["doubled_her"])


def test_a_precision_that_there_is_none_of_is_an_error_at_the_declaration():
    with pytest.raises(nt.errors.ArgumentError) as error:

        @nt.custom_op(vjp={"x": lambda g: g}, precision="lowerr")
        def same(x, /):
            return x.copy()

    assert str(error.value) == ("custom_op: there is no precision 'lowerr'; the precisions are lower, widen, keep.")
