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
