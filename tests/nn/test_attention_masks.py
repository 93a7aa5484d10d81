"""Masks of attention that are added to scores: large negative numbers, in every dtype and by both ways of computing."""

import numpy as np
import pytest

import numtape as nt

HALVES = [nt.float16, nt.bfloat16]
FEATURES = 8


def words(count=3, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((2, count, FEATURES)).astype(dtype)


def masks():
    """Return masks by what they hold for a query that is masked altogether."""
    least = {"-1e9": -1e9, "least float32": np.finfo(np.float32).min, "least float64": np.finfo(np.float64).min}
    found = {}
    for name, value in least.items():
        found[name] = np.zeros((3, 3), np.float64)
        found[name][0] = value
        found[name][1, 1:] = value
    found["-1e9"] = found["-1e9"].astype(np.float32)
    return found


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_queries_masked_by_large_numbers_get_no_nan(name, dtype):
    x, mask = words(), masks()[name]
    expected = nt.scaled_dot_product_attention(*[nt.tensor(x)] * 3, mask).numpy()
    assert np.isfinite(expected).all()
    for given in (mask, nt.tensor(mask)):
        with nt.autocast(dtype=dtype):
            lowered = nt.scaled_dot_product_attention(*[nt.tensor(x, requires_grad=True)] * 3, given)
        plain = nt.scaled_dot_product_attention(*[nt.tensor(x.astype(dtype), requires_grad=True)] * 3, given)
        for found in (lowered, plain):
            assert found.dtype == dtype
            np.testing.assert_allclose(found.numpy().astype(float), expected, atol=0.05)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_of_masked_attention_are_those_of_float32(dtype):
    mask = masks()["-1e9"]

    def slopes(region):
        x, added = nt.tensor(words(), requires_grad=True), nt.tensor(mask, requires_grad=True)
        with region:
            out = nt.scaled_dot_product_attention(x, x, x, added)
        (out * words(seed=1)).sum().backward()
        return x.grad.numpy(), added.grad.numpy()

    expected = slopes(nt.autocast(enabled=False))
    for a, e in zip(slopes(nt.autocast(dtype=dtype)), expected, strict=True):
        np.testing.assert_allclose(a, e, atol=0.1)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_layers_take_masks_of_large_numbers(name, dtype, need_weights):
    x, mask = words(), masks()[name]
    padding = np.where([[False, False, True], [False, True, True]], mask.min(), 0.0)
    layer = nt.nn.MultiheadAttention(FEATURES, 2, batch_first=True, rng=0)
    half = nt.nn.MultiheadAttention(FEATURES, 2, batch_first=True, rng=0).to(dtype)
    for given in ({"attn_mask": mask}, {"key_padding_mask": padding}, {"attn_mask": mask, "key_padding_mask": padding}):
        expected, weights = layer(*[nt.tensor(x)] * 3, need_weights=need_weights, **given)
        with nt.autocast(dtype=dtype):
            lowered = layer(*[nt.tensor(x)] * 3, need_weights=need_weights, **given)
        plain = half(*[nt.tensor(x.astype(dtype))] * 3, need_weights=need_weights, **given)
        for found, found_weights in (lowered, plain):
            assert found.dtype == dtype
            np.testing.assert_allclose(found.numpy().astype(float), expected.numpy(), atol=0.05)
            if need_weights:
                np.testing.assert_allclose(found_weights.numpy().astype(float), weights.numpy(), atol=0.02)
        if need_weights:
            assert plain[1].dtype == dtype


def test_weights_of_half_layers_are_rounded_once():
    x = words(count=20, dtype=np.float16)
    layer = nt.nn.MultiheadAttention(FEATURES, 1, batch_first=True, bias=False, rng=0)
    with nt.no_grad():
        layer.in_proj_weight[...] = np.tile(np.eye(FEATURES) * 4.0, (3, 1))
    weights = layer.half()(*[nt.tensor(x)] * 3)[1]
    wide = x.astype(np.float64) * 4.0
    scores = wide @ wide.swapaxes(-1, -2) / np.sqrt(FEATURES)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(weights.numpy(), raised / raised.sum(-1, keepdims=True), rtol=2.0**-11, atol=2.0**-24)
