"""What single layers do beyond the common checks: statistics, masks, states, randomness and messages."""

import math

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.errors import ArgumentError, DtypeError, OperandError, ShapeError


def rows(*shape, seed=0, dtype=np.float64):
    return nt.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


# Linear.
def test_arrays_are_accepted_and_lists_are_not():
    layer = nn.Linear(2, 1)
    assert type(layer(np.ones((3, 2), np.float32))) is nt.Tensor
    with pytest.raises(OperandError) as raised:
        layer([[1.0, 2.0]])
    assert str(raised.value) == "Linear: the input is of type list; it must be a tensor or an array."


def test_layers_do_not_promote():
    with pytest.raises(DtypeError) as raised:
        nn.Sequential(nn.Linear(2, 1))(np.ones((3, 2)))
    assert str(raised.value) == (
        "0: Linear: the input has dtype float64 and the weights have float32; use x.astype(nt.float32), or "
        "model.to(nt.float64)."
    )
    with pytest.raises(DtypeError) as raised:
        nn.Linear(2, 1)(np.ones((3, 2), np.uint8))
    assert str(raised.value) == (
        "Linear: the input has dtype uint8 and the weights have float32; use x.astype(nt.float32)."
    )


def test_a_training_step_with_watched_weights_of_a_dense_layer():
    model = nn.Dense(3, 1, bias=False, dtype=nt.float64, rng=0)
    inputs = rows(8, 3)
    targets = inputs @ nt.tensor(np.array([[1.0], [-2.0], [0.5]]))
    losses = []
    for _ in range(50):
        tape = nt.GradientTape()
        weights = tape.watch(model.weights().clone())
        loss = nt.mse_loss(inputs @ weights.T, targets)
        losses.append(loss.item())
        grads = tape.gradient([loss], [weights])
        with nt.no_grad():
            model.set_weights(model.weights() - grads[0] * 0.1)
    assert losses[-1] < 0.5 * losses[0]
    assert type(model.weights()) is nn.Parameter
    with pytest.raises(ShapeError) as raised:
        model.set_weights(nt.ones(3, 1))
    assert str(raised.value) == (
        "Linear.set_weights: the new weight has shape (3, 1) and the layer's has (1, 3); they must be equal."
    )


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16])
def test_half_precision_layers(dtype):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)).to(dtype)
    out = model(rows(3, 4).to(dtype))
    assert out.dtype == dtype
    out.sum().backward()
    assert {p.grad.dtype for p in model.parameters()} == {dtype}


def test_sizes_must_be_sizes():
    with pytest.raises(ArgumentError) as raised:
        nn.Linear(2.0, 3)
    assert str(raised.value) == "Linear: in_features is 2.0; it must be an integer of at least 0."
    with pytest.raises(ArgumentError) as raised:
        nn.Conv2d(3, 4, 2, groups=2)
    assert str(raised.value) == "Conv2d: groups is 2; it must divide in_channels (3) and out_channels (4)."
    with pytest.raises(ArgumentError) as raised:
        nn.Conv2d(3, 4, (2, 2, 2))
    assert str(raised.value) == ("Conv2d: kernel_size is (2, 2, 2); it must be an integer of at least 1, or 2 of them.")
    with pytest.raises(ArgumentError, match="ConvTranspose2d: padding is 'same'; it must be given as integers"):
        nn.ConvTranspose2d(1, 1, 2, padding="same")
    with pytest.raises(ArgumentError, match=r"GroupNorm: num_groups \(2\) does not divide num_channels \(3\)"):
        nn.GroupNorm(2, 3)
    with pytest.raises(ArgumentError, match=r"Dropout: p is 1.5; a probability lies between 0 and 1"):
        nn.Dropout(1.5)
    with pytest.raises(ArgumentError, match=r"MultiheadAttention: num_heads \(2\) does not divide embed_dim \(3\)"):
        nn.MultiheadAttention(3, 2)
    with pytest.raises(ArgumentError, match="Embedding: padding_idx is 4; there are 4 rows"):
        nn.Embedding(4, 2, padding_idx=4)
    with pytest.raises(ArgumentError, match="RNN: nonlinearity is 'gelu'; it must be 'tanh' or 'relu'"):
        nn.RNN(1, 1, nonlinearity="gelu")
    with pytest.raises(ArgumentError, match="TransformerEncoderLayer: activation is 'selu'; it must be"):
        nn.TransformerEncoderLayer(2, 1, activation="selu")
    with pytest.raises(ArgumentError) as raised:
        nn.MSELoss(reduction="all")
    assert str(raised.value) == "MSELoss: reduction is 'all'; it must be one of 'mean', 'sum', 'none'."


# Dropout.
def test_dropout_drops_in_training_only_and_keeps_the_mean():
    layer = nn.Dropout(0.25, rng=0)
    out = layer(nt.ones(10_000)).array
    assert set(np.unique(out)) == {np.float32(0.0), np.float32(1.0 / 0.75)}
    assert abs(out.mean() - 1.0) < 0.02
    x = nt.ones(3)
    assert layer.eval()(x) is x


def test_a_seeded_dropout_goes_on_from_call_to_call_and_reproduces():
    a, b, x = nn.Dropout(0.5, rng=3), nn.Dropout(0.5, rng=3), nt.ones(64)
    first, second = a(x).array, a(x).array
    assert not (first == second).all()
    assert (b(x).array == first).all()
    assert (b(x).array == second).all()


def test_the_threads_stream_reproduces_dropout():
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.1))
    outs = []
    for _ in range(2):
        nt.seed(1)
        outs.append(model(nt.ones(50)).array)
    assert (outs[0] == outs[1]).all()


# Normalisation.
def test_running_statistics_follow_the_batches():
    layer = nn.BatchNorm1d(2, momentum=0.5, dtype=nt.float64)
    x = rows(6, 2)
    layer(x)
    np.testing.assert_allclose(layer.running_mean.array, 0.5 * x.array.mean(0))
    np.testing.assert_allclose(layer.running_var.array, 0.5 + 0.5 * x.array.var(0, ddof=1))
    assert layer.num_batches_tracked.item() == 1
    layer.eval()(x)
    assert layer.num_batches_tracked.item() == 1
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0, 0.0]
    assert layer.running_var.tolist() == [1.0, 1.0]
    assert layer.num_batches_tracked.item() == 0


def test_without_momentum_all_batches_count_alike():
    layer = nn.BatchNorm1d(1, momentum=None, dtype=nt.float64)
    batches = [rows(5, 1, seed=seed) for seed in range(3)]
    for batch in batches:
        layer(batch)
    np.testing.assert_allclose(layer.running_mean.array, np.mean([b.array.mean() for b in batches]))


def test_running_statistics_move_once_in_transforms_too():
    layer = nn.BatchNorm1d(2, dtype=nt.float64)
    nt.grad(lambda m: (m(rows(6, 2)) ** 3).sum())(layer)
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_names_both_shapes():
    with pytest.raises(ShapeError) as raised:
        nn.BatchNorm2d(3)(nt.ones(2, 4, 5, 5))
    assert str(raised.value) == (
        "BatchNorm2d: the input has shape (2, 4, 5, 5) and there are 3 features; the input must have shape (batch, "
        "channels, height, width), with 3 channels."
    )


# Embedding.
def test_the_padding_row_starts_as_zeros_and_gets_no_gradient():
    layer = nn.Embedding(4, 2, padding_idx=-1)
    assert layer.padding_idx == 3
    assert layer.weight.array[3].tolist() == [0.0, 0.0]
    layer(nt.tensor([3, 1, 1])).sum().backward()
    assert layer.weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]


def test_pretrained_tables_are_frozen_unless_told_otherwise():
    table = np.arange(6.0).reshape(3, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert layer(nt.tensor(2)).tolist() == [4.0, 5.0]
    assert not layer.weight.requires_grad
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad
    with pytest.raises(ShapeError, match=r"Embedding.from_pretrained: the table has shape \(3,\); it must be a matrix"):
        nn.Embedding.from_pretrained(np.ones(3))


# Recurrent layers.
def test_a_state_of_the_wrong_shape_or_count():
    layer = nn.LSTM(2, 3)
    x = nt.ones(4, 5, 2)
    with pytest.raises(ShapeError) as raised:
        layer(x, (nt.zeros(1, 4, 3), nt.zeros(1, 5, 3)))
    assert str(raised.value) == "LSTM: h0 has shape (1, 4, 3); it must be (1, 5, 3)."
    with pytest.raises(ArgumentError) as raised:
        layer(x, nt.zeros(1, 5, 3))
    assert str(raised.value) == "LSTM: the state has 1 parts; it must be h0 and c0."
    with pytest.raises(ShapeError, match=r"LSTM: the input has shape \(0, 5, 2\), without any step"):
        layer(nt.ones(0, 5, 2))


def test_running_in_two_parts_with_the_state_equals_running_at_once():
    layer, x = nn.GRU(2, 3, num_layers=2, dtype=nt.float64, rng=0), rows(6, 2, 2)
    whole, last = layer(x)
    first, state = layer(x[:2])
    second, end = layer(x[2:], state)
    np.testing.assert_allclose(nt.concat([first, second]).array, whole.array, rtol=1e-12)
    np.testing.assert_allclose(end.array, last.array, rtol=1e-12)


def test_dropout_between_layers_acts_in_training_only():
    layer = nn.LSTM(2, 8, num_layers=2, dropout=0.5, rng=0)
    x = nt.ones(3, 1, 2)
    assert not (layer(x)[0].array == layer(x)[0].array).all()
    layer.eval()
    assert (layer(x)[0].array == layer(x)[0].array).all()


# Attention.
def test_masks_leave_keys_out_and_weights_sum_to_one():
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True, dtype=nt.float64, rng=0), rows(2, 3, 4)
    padding = np.array([[False, False, True], [False, True, True]])
    _, weights = layer(x, x, x, key_padding_mask=padding)
    assert (weights.array[0, :, 2] == 0.0).all()
    assert (weights.array[1, :, 0] == 1.0).all()
    np.testing.assert_allclose(weights.array.sum(-1), 1.0)


def test_causal_attention_equals_its_mask_on_both_ways_of_computing():
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True, dtype=nt.float64, rng=0), rows(2, 3, 4)
    mask = np.triu(np.ones((3, 3), bool), 1)
    outs = [
        layer(x, x, x, need_weights=need, attn_mask=given, is_causal=causal)[0].array
        for need in (True, False)
        for given, causal in ((mask, False), (None, True), (np.where(mask, -np.inf, 0.0), False))
    ]
    for out in outs[1:]:
        np.testing.assert_allclose(out, outs[0], rtol=1e-12, atol=1e-12)


def test_a_query_without_keys_gets_zeros_and_no_nan_gradients():
    layer = nn.MultiheadAttention(4, 2, batch_first=True, dtype=nt.float64, rng=0)
    x = rows(1, 3, 4).requires_grad_()
    mask = np.zeros((3, 3), bool)
    mask[1] = True
    for need in (True, False):
        out, weights = layer(x, x, x, attn_mask=mask, need_weights=need)
        np.testing.assert_allclose(out.array[0, 1], layer.out_proj.bias.array)
        assert weights is None or (weights.array[0, 1] == 0.0).all()
        (out**2).sum().backward()
        assert not x.grad.has_nan()


def test_wrong_masks_are_explained():
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True), rows(2, 3, 4, dtype=np.float32)
    with pytest.raises(ShapeError) as raised:
        layer(x, x, x, attn_mask=np.ones((2, 3), bool))
    assert str(raised.value) == (
        "MultiheadAttention: attn_mask has shape (2, 3); it must be (3, 3) or (4, 3, 3): batch times heads, queries, "
        "keys."
    )
    with pytest.raises(ShapeError) as raised:
        layer(x, x, x, key_padding_mask=np.ones((3, 2), bool))
    assert str(raised.value) == "MultiheadAttention: key_padding_mask has shape (3, 2); it must be (2, 3): batch, keys."
    with pytest.raises(DtypeError) as raised:
        layer(x, x, x, attn_mask=np.ones((3, 3), int))
    assert str(raised.value) == "MultiheadAttention: a mask has dtype int64; it must be of bools or of floats."


def test_attention_dropout_acts_in_training_only():
    layer, x = nn.MultiheadAttention(4, 2, dropout=0.5, rng=0), nt.ones(5, 2, 4)
    assert not (layer(x, x, x)[0].array == layer(x, x, x)[0].array).all()
    layer.eval()
    assert (layer(x, x, x)[0].array == layer(x, x, x)[0].array).all()


# Functions under PyTorch's names.
def test_functional_names():
    x = rows(2, 3)
    target = nt.tensor([0, 2])
    f = nn.functional
    np.testing.assert_array_equal(f.cross_entropy(x, target).array, nt.cross_entropy_loss(x, target).array)
    np.testing.assert_array_equal(f.softmax(x, dim=0).array, nt.softmax(x, axis=0).array)
    assert f.leaky_relu(nt.tensor(-1.0), 0.5).item() == -0.5
    assert f.pad(nt.ones(1, 2), (1, 2, 0, 1)).shape == (2, 5)
    np.testing.assert_allclose(np.linalg.norm(f.normalize(x).array, axis=1), 1.0)
    with pytest.raises(ArgumentError, match=r"pad: x has shape \(2, 3\) and pad is \(1,\); it must hold a pair"):
        f.pad(x, (1,))


# A model learns, whatever records it.
def two_moons():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0.0, math.pi, 100)
    upper = np.stack([np.cos(angle), np.sin(angle)], 1)
    lower = np.stack([1.0 - np.cos(angle), 0.5 - np.sin(angle)], 1)
    return nt.tensor(np.concatenate([upper, lower])), nt.tensor(np.repeat([0, 1], 100))


def gradients_by_leaves(model, x, y):
    model.zero_grad()
    nt.cross_entropy(model(x), y).backward()
    return [p.grad for p in model.parameters()]


def gradients_by_tape(model, x, y):
    with nt.Tape() as tape:
        loss = nt.cross_entropy(model(x), y)
    grads = tape.backward(loss)
    return [grads[p] for p in model.parameters()]


def gradients_by_watching(model, x, y):
    tape = nt.GradientTape()
    tape.watch(model)
    return tape.gradient(nt.cross_entropy(model(x), y), list(model.parameters()))


def gradients_by_context(model, x, y):
    model.zero_grad()
    with nt.GradientContext():
        nt.compute_gradients(nt.cross_entropy(model(x), y))
    return [p.grad for p in model.parameters()]


def gradients_by_function(model, x, y):
    return list(nt.grad(lambda m: nt.cross_entropy(m(x), y))(model).parameters())


WAYS = [
    gradients_by_leaves,
    gradients_by_tape,
    gradients_by_watching,
    gradients_by_context,
    gradients_by_function,
]


@pytest.mark.parametrize("dtype", [nt.float32, nt.float64], ids=str)
@pytest.mark.parametrize("gradients", WAYS)
def test_a_small_model_learns(gradients, dtype):
    nt.seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)).to(dtype)
    x, y = two_moons()
    x = x.to(dtype)
    for _ in range(120):
        grads = gradients(model, x, y)
        with nt.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p -= 2.0 * g
    assert (model(x).array.argmax(1) == y.array).mean() > 0.9
