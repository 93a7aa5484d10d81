"""Derivatives under autocast: all modes, checkpoints, loops, and tapes with a configuration."""

import numpy as np
import pytest
from half_precision import HALVES, floats

import numtape as nt
from numtape.core import recompute
from numtape.core.op import Composite
from numtape.testing import op_checks

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


@pytest.mark.parametrize("function", [nt.sin, nt.tanh, nt.sigmoid, nt.gelu, nt.softplus, nt.log1p, nt.softmax])
def test_a_gradient_that_is_recorded_is_the_same_gradient(function):
    x, direction = nt.tensor(np.abs(floats(4, 5))), nt.tensor(floats(4, 5, seed=1))
    weight = nt.tensor(floats(5, 5, seed=2) / 2)

    def loss(x):
        with nt.autocast():
            return (function(nt.abs(x @ weight)) ** 2).astype(np.float32).mean()

    plain = nt.grad(loss)(x)
    recorded, pushed = nt.jvp(nt.grad(loss), x, direction)
    np.testing.assert_allclose(recorded.numpy(), plain.numpy(), rtol=1e-5, atol=1e-7)
    pulled = nt.grad(lambda x: (nt.grad(loss)(x) * direction).sum())(x)
    np.testing.assert_allclose(pushed.numpy(), pulled.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16])
@pytest.mark.parametrize("product", [nt.matmul, nt.dot, nt.inner, nt.vdot, nt.tensordot])
def test_products_of_vectors_are_recorded_in_float32_too(product, dtype):
    axes = (1,) if product is nt.tensordot else ()
    square = nt.autocast(dtype=dtype)(lambda v: product(v, v, *axes) ** 2)
    x = nt.tensor([100.0, 200.0])
    with nt.Tape(persistent=True) as tape:
        y = square(x)
    plain = nt.grad(square)(x).numpy()
    np.testing.assert_array_equal(tape.backward(y, create_graph=True)[x].numpy(), plain)
    value, slope = nt.value_and_grad(lambda v: nt.norm(nt.grad(square)(v)))(x)
    np.testing.assert_allclose(value.item(), np.linalg.norm(plain), rtol=1e-6)
    np.testing.assert_allclose(slope.numpy(), [268328.1, 536656.3], rtol=2e-3)


# The dtype of derivatives is that of what they are taken by.


def cubes(x):
    return x * x * x


def derivatives(x):
    """Return the derivatives of cubes by each transform that gives whole ones, by name."""
    found = {"grad": nt.grad(lambda x: cubes(x).sum())(x), "twice": nt.jacobian(nt.jacobian(cubes))(x)}
    for mode in ("auto", "forward", "reverse", "mixed"):
        found[f"jacobian {mode}"] = nt.jacobian(cubes, mode=mode)(x)
        found[f"hessian {mode}"] = nt.hessian(lambda x: cubes(x).sum(), mode=mode)(x)
    found["tree"] = nt.jacobian(lambda d: {"sum": d["x"].sum()})({"x": x})["sum"]["x"]
    with nt.Tape(persistent=True), nt.Tape(persistent=True) as tape:
        tape.watch(x)
        y = cubes(x)
        for mode in ("auto", "forward", "reverse", "mixed"):
            found[f"tape.jacobian {mode}"] = tape.jacobian(y, x, mode=mode)
        found["tape.forward_gradient"] = tape.forward_gradient(x, y)
        found["tape.gradient"] = tape.gradient(y, x)
    return found


@pytest.mark.parametrize("is_tracked", [False, True])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_whole_derivatives_by_half_tensors_are_half(dtype, is_tracked):
    x = nt.tensor(np.array([1.0, 2.0, 0.5], np.float32).astype(dtype)).set_requires_grad(is_tracked)
    expected = derivatives(nt.tensor(x.detach().numpy().astype(np.float32)))
    for name, found in derivatives(x).items():
        assert found.dtype == dtype, name
        np.testing.assert_array_equal(found.detach().numpy().astype(np.float32), expected[name].detach().numpy())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_jacobians_are_differentiated_on(dtype):
    x = nt.tensor(np.array([1.0, 2.0], np.float32).astype(dtype), requires_grad=True)
    nt.jacobian(cubes)(x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]
