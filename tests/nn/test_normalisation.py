"""Running statistics of batch normalisation: batches that overflow, half layers."""

import numpy as np
import pytest

import numtape as nt


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_that_overflows_leaves_the_running_statistics_as_they_are(momentum):
    layer = nt.nn.BatchNorm1d(2, momentum=momentum)
    x = nt.tensor(np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32))
    layer(x)
    before = [buffer.numpy(copy=True) for buffer in layer.buffers()]
    with nt.autocast(dtype=nt.float16):
        layer(nt.full((4, 2), 300.0) @ nt.full((2, 2), 300.0))
    for buffer, kept in zip(layer.buffers(), before, strict=True):
        np.testing.assert_array_equal(buffer.numpy(), kept)
    layer(x)
    assert layer.num_batches_tracked.item() == 2
    assert all(np.isfinite(buffer.numpy()).all() for buffer in layer.buffers())


@pytest.mark.parametrize("is_converted", [False, True])
@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_a_half_layer_keeps_its_running_statistics_in_float32(dtype, is_converted):
    layer = nt.nn.BatchNorm1d(1).to(dtype) if is_converted else nt.nn.BatchNorm1d(1, dtype=dtype)
    x = nt.tensor([[-60000.0], [60000.0]], dtype=dtype)
    for _ in range(200):
        layer(x)
    assert (layer.running_mean.dtype, layer.running_var.dtype) == (nt.float32, nt.float32)
    large = float(x.numpy()[1, 0])
    np.testing.assert_allclose(layer.running_var.numpy(), [2.0 * large**2], rtol=1e-5)
    layer.eval()
    out = layer(x)
    assert out.dtype == dtype
    np.testing.assert_allclose(out.numpy().astype(np.float32), [[-(0.5**0.5)], [0.5**0.5]], rtol=2.0**-8)


def test_the_default_dtype_may_be_half():
    nt.set_default_dtype(nt.float16)
    try:
        layer = nt.nn.BatchNorm2d(3)
    finally:
        nt.set_default_dtype(nt.float32)
    assert (layer.weight.dtype, layer.running_var.dtype) == (nt.float16, nt.float32)


def test_a_batch_that_is_refused_is_not_counted():
    layer = nt.nn.BatchNorm1d(2)
    with pytest.raises(nt.errors.ArgumentError):
        layer(nt.ones(1, 2))
    assert layer.num_batches_tracked.item() == 0


# The function, without a layer.


def batches():
    rng = np.random.default_rng(0)
    return [nt.tensor(rng.standard_normal((8, 3)).astype(np.float32)) for _ in range(3)]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("make", [np.array, nt.tensor], ids=["arrays", "tensors"])
def test_the_function_leaves_running_statistics_as_they_are_at_a_batch_that_is_not_finite(make):
    mean, var = make(np.zeros(3, np.float32)), make(np.ones(3, np.float32))
    layer = nt.nn.BatchNorm1d(3)
    first, second, _ = batches()
    for x in (first, second * np.inf, second):
        nt.batch_norm(x, mean, var, training=True)
        layer(x)
    np.testing.assert_array_equal(np.asarray(mean), layer.running_mean.numpy())
    np.testing.assert_array_equal(np.asarray(var), layer.running_var.numpy())
    assert np.isfinite(np.asarray(mean)).all()
    assert layer.num_batches_tracked.item() == 2


@pytest.mark.parametrize("function", [nt.batch_norm, nt.nn.functional.batch_norm])
@pytest.mark.parametrize("make", [np.array, nt.tensor], ids=["arrays", "tensors"])
def test_a_skipped_step_puts_the_statistics_of_the_function_back(make, function):
    w = nt.ones(3).detach().requires_grad_()
    optimizer, scaler = nt.optim.SGD([w], lr=0.1), nt.GradScaler(init_scale=4.0)
    mean, var = make(np.zeros(3, np.float32)), make(np.ones(3, np.float32))
    for factor in (1.0, np.inf, 1.0):
        before = np.array(mean), np.array(var)
        optimizer.zero_grad()
        loss = sum(function(x * w, mean, var, training=True)[:1].sum() for x in batches())
        scaler.scale(loss * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        is_kept = np.array_equal(mean, before[0]) and np.array_equal(var, before[1])
        assert is_kept == (factor != 1.0)


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_statistics_of_half_batches_are_not_rounded_to_halves(dtype):
    x = nt.tensor(np.array([[-60000.0], [60000.0], [60000.0]], np.float32).astype(dtype))
    mean, var = nt.zeros(1), nt.ones(1)
    y = nt.batch_norm(x, mean, var, training=True, momentum=1.0)
    wide = x.numpy().astype(np.float64)
    assert y.dtype == dtype
    np.testing.assert_allclose(mean.item(), wide.mean(), rtol=1e-6)
    np.testing.assert_allclose(var.item(), wide.var(ddof=1), rtol=1e-6)


def test_batches_that_count_are_counted():
    count = nt.zeros(dtype="int64")
    mean, var = nt.zeros(3), nt.ones(3)
    for x in batches():
        nt.batch_norm(x, mean, var, training=True, num_batches_tracked=count)
    assert count.item() == 3


# Evaluation, in the dtype of training.


@pytest.mark.filterwarnings("ignore:overflow")
def test_evaluation_is_widened_as_training_is():
    x = nt.tensor(np.array([[1.0], [300.0]], np.float16))
    mean, var, weight, bias = nt.zeros(1), nt.tensor([1e-4]), nt.tensor([100.0]), nt.zeros(1)
    expected = nt.batch_norm(x.float(), mean, var, weight, bias).numpy()
    for names in ([], ["batch_norm"]):
        with nt.autocast(dtype=nt.float16, keep_fp32_ops=names):
            for given in ((weight, bias), (weight.to(nt.float16), bias.to(nt.float16)), (None, None)):
                assert nt.batch_norm(x, None, None, *given, training=True).dtype == nt.float32
                assert nt.batch_norm(x, mean, var, *given).dtype == nt.float32
            np.testing.assert_allclose(nt.batch_norm(x, mean, var, weight, bias).numpy(), expected, rtol=1e-6)
    model = nt.nn.Sequential(nt.nn.Conv2d(1, 2, 3), nt.nn.BatchNorm2d(2))
    for is_training in (True, False):
        model.train(is_training)
        with nt.autocast(dtype=nt.float16):
            assert model(nt.randn(2, 1, 8, 8, rng=0)).dtype == nt.float32


@pytest.mark.parametrize("training", [True, False])
def test_half_batches_beside_wider_parameters_are_as_wide_as_these(training):
    x = nt.tensor(np.array([[1.0], [3.0]], np.float16), requires_grad=True)
    mean, var = nt.zeros(1), nt.ones(1)
    for weight in (nt.tensor([1e6]), nt.tensor(np.array([1e6]))):
        y = nt.batch_norm(x, mean, var, weight, training=training)
        assert y.dtype == weight.dtype
        assert np.isfinite(y.numpy()).all()
        x.grad = None
        (y * 1e-6).sum().backward()
        assert x.grad.dtype == nt.float16
    for given in (
        (None, None),
        (nt.ones(1, dtype=nt.float16), None),
        (nt.ones(1, dtype=nt.float16), nt.zeros(1, dtype=nt.float16)),
    ):
        assert nt.batch_norm(x, mean, var, *given, training=training).dtype == nt.float16


@pytest.mark.parametrize("training", [True, False])
def test_integer_batches_are_floats(training):
    x, weight = np.array([[1, 2000], [2, 2001], [6, 2003]]), nt.tensor([1.5, -0.5], requires_grad=True)
    found = nt.batch_norm(x, np.array([3.0, 2001.0]), np.array([2.0, 1.0]), weight, training=training)
    expected = nt.batch_norm(
        x.astype(np.float32), np.array([3.0, 2001.0]), np.array([2.0, 1.0]), weight, training=training
    )
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    slopes = [
        nt.grad(lambda w, y=y: nt.batch_norm(y, None, None, w, training=True)[0].sum())(weight) for y in (x, x * 1.0)
    ]
    np.testing.assert_allclose(slopes[0].numpy(), slopes[1].numpy(), rtol=1e-5)
