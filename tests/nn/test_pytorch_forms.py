"""Names and arguments that programs for PyTorch use: they work, or say in one line why not."""

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.errors import ArgumentError, OperandError, ShapeError, UnknownNameError
from numtape.nn import functional as F

X = np.array([[-1.0, 2.0], [3.0, 0.5]])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_without_an_axis_softmax_takes_the_last_of_a_matrix_and_asks_for_more(name):
    layer = {"softmax": nn.Softmax, "log_softmax": nn.LogSoftmax, "softmin": nn.Softmin}[name]()
    for x in (X, X[0], np.array(1.0)):
        assert np.array_equal(getattr(F, name)(x), getattr(nt, name)(x, axis=-1))
        assert np.array_equal(layer(x), getattr(nt, name)(x, axis=-1))
    for x, axis in ((np.ones((2, 3, 4)), 0), (np.ones((2, 3, 4, 5)), 1)):
        for call in (layer, getattr(F, name)):
            with pytest.raises(ArgumentError) as caught:
                call(x)
            assert (
                f"{name}: the input has shape {x.shape} and dim is not given; PyTorch would take axis {axis}, "
                in str(caught.value)
            )
        assert np.array_equal(getattr(F, name)(x, dim=1), getattr(nt, name)(x, axis=1))
    assert F.softmax(X, 1, dtype="float32").dtype == np.float32


def test_inplace_is_accepted_without_effect():
    for name, arguments in (
        ("relu", ()), ("relu6", ()), ("leaky_relu", (0.1,)), ("elu", (1.0,)), ("selu", ()), ("celu", (1.0,)),
        ("silu", ()), ("mish", ()), ("hardtanh", (-1.0, 1.0)), ("hardswish", ()), ("hardsigmoid", ()),
        ("threshold", (0.1, 0.0)),
    ):  # fmt: skip
        plain = getattr(nt, name)(X, *arguments)
        assert np.array_equal(getattr(F, name)(X, *arguments, inplace=True), plain)
        assert np.array_equal(getattr(F, name)(X, *arguments, True), plain)
    assert np.array_equal(F.dropout(X, 0.5, True, True, rng=0), nt.dropout(X, 0.5, True, rng=0))
    assert np.array_equal(F.dropout(X, 0.5, True, inplace=True, rng=0), nt.dropout(X, 0.5, True, rng=0))
    assert X[0, 0] == -1.0


def test_softplus_is_linear_above_its_threshold():
    x = nt.tensor([0.5, 3.0], requires_grad=True)
    out = F.softplus(x, 2.0, 4.0)
    np.testing.assert_allclose(out.numpy(), [np.log1p(np.exp(1.0)) / 2.0, 3.0], rtol=1e-6)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1.0 / (1.0 + np.exp(-1.0)), 1.0], rtol=1e-6)


def test_whole_channels_are_dropped():
    out = nn.Dropout2d(0.5, rng=0)(nt.ones(4, 8, 3, 3)).numpy()
    kept = out.reshape(32, 9)
    assert set(np.unique(kept)) == {0.0, 2.0}
    assert (kept == kept[:, :1]).all()
    assert nn.Dropout1d(0.5).eval()(nt.ones(2, 3, 4)).tolist() == np.ones((2, 3, 4)).tolist()
    with pytest.raises(ArgumentError) as caught:
        F.dropout2d(np.ones((2, 2)))
    assert str(caught.value) == "dropout2d: the input has shape (2, 2); it must have 4 axes, or 3 for one sample."


def test_heads_of_queries_share_heads_of_keys():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(1, 4, 3, 2)), rng.normal(size=(1, 2, 3, 2))
    out = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    wide = np.repeat(k, 2, axis=1)
    np.testing.assert_array_equal(out, nt.scaled_dot_product_attention(q, wide, wide))


def test_cosine_similarity_of_zeros_is_zero():
    out = F.cosine_similarity(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 1.0]]))
    np.testing.assert_allclose(out, [np.sqrt(0.5), 0.0], rtol=1e-12)


def test_cosine_similarity_broadcasts_before_it_takes_norms():
    np.testing.assert_allclose(F.cosine_similarity(np.ones((3, 4)), np.ones((1, 4)), dim=0), np.ones(4), rtol=1e-12)
    np.testing.assert_allclose(F.cosine_similarity(np.ones((5, 3)), [1.0, 1.0, 1.0]), np.ones(5), rtol=1e-12)
    with pytest.raises(ShapeError) as caught:
        F.cosine_similarity(np.ones((3, 4)), np.ones((2, 4)))
    assert str(caught.value) == (
        "cosine_similarity: x1 has shape (3, 4) and x2 has shape (2, 4); the shapes do not broadcast: from the last "
        "axis on, lengths must be equal or 1."
    )


def test_devices_and_dtypes_of_layers():
    for make in (
        lambda **k: nn.Linear(2, 2, **k),
        lambda **k: nn.Conv2d(1, 1, 1, **k),
        lambda **k: nn.ConvTranspose1d(1, 1, 1, padding_mode="zeros", **k),
        lambda **k: nn.Embedding(2, 2, **k),
        lambda **k: nn.LSTM(2, 2, proj_size=0, **k),
        lambda **k: nn.RNN(2, 2, **k),
        lambda **k: nn.GRUCell(2, 2, **k),
        lambda **k: nn.MultiheadAttention(2, 1, **k),
        lambda **k: nn.TransformerEncoderLayer(2, 1, 4, **k),
        lambda **k: nn.BatchNorm1d(2, **k),
        lambda **k: nn.LayerNorm(2, **k),
        lambda **k: nn.GroupNorm(1, 2, **k),
        lambda **k: nn.RMSNorm(2, **k),
        lambda **k: nn.InstanceNorm2d(2, affine=True, **k),
        lambda **k: nn.PReLU(**k),
    ):
        layer = make(device="cpu", dtype=nt.float64)
        assert {p.dtype for p in layer.parameters()} == {np.dtype(np.float64)}
        with pytest.raises(ArgumentError) as caught:
            make(device="cuda:0")
        name = type(layer).__name__
        assert str(caught.value) == f"{name}: there is no device 'cuda:0'; numtape computes on \"cpu\"."


def test_a_module_is_converted_in_every_spelling():
    for convert in (
        lambda m: m.to(dtype=nt.float64),
        lambda m: m.to("cpu", nt.float64),
        lambda m: m.to(device="cpu", dtype="float64"),
        lambda m: m.to(nt.ones(1, dtype="float64")),
    ):
        assert convert(nn.Linear(1, 1)).weight.dtype == np.float64
    assert nn.Linear(1, 1).to(device="cpu").weight.dtype == np.float32
    with pytest.raises(OperandError) as caught:
        nn.Linear(1, 1).to()
    assert str(caught.value) == "Linear.to: takes a dtype, a device or a tensor."
    with pytest.raises(ArgumentError) as caught:
        nn.Linear(1, 1).cuda()
    assert str(caught.value) == "Linear.to: there is no device 'cuda'; numtape computes on \"cpu\"."


def test_parts_are_found_by_path():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    assert model.get_submodule("1.0") is model[1][0]
    assert model.get_submodule("") is model
    assert model.get_parameter("0.bias") is model[0].bias
    assert model.get_buffer("1.0.running_mean") is model[1][0].running_mean
    with pytest.raises(UnknownNameError) as caught:
        model.get_parameter("0.weights")
    assert str(caught.value) == "Sequential: there is no parameter '0.weights'. Did you mean '0.weight'?"


def test_lists_and_dicts_of_parameters():
    weights = nn.ParameterList([nt.ones(2), nn.Parameter([3.0])])
    weights.append(np.zeros(1))
    weights[0] = nt.zeros(2)
    assert [p.shape for p in weights.parameters()] == [(2,), (1,), (1,)]
    assert [p.tolist() for p in weights[1:]] == [[3.0], [0.0]]
    assert weights[-1] is weights[2]
    named = nn.ParameterDict({"a": nt.ones(2)})
    named["b"] = nt.zeros(3)
    assert named.keys() == ["a", "b"]
    assert [p.shape for p in named.parameters()] == [(2,), (3,)]
    del named["a"]
    assert "a" not in named
    assert len(named) == 1
    assert list(named.state_dict()) == ["b"]


def test_parameters_as_one_vector():
    model = nn.Linear(2, 2)
    vector = nn.utils.parameters_to_vector(model.parameters())
    (vector * vector).sum().backward()
    np.testing.assert_allclose(model.weight.grad.numpy(), 2.0 * model.weight.numpy(), rtol=1e-6)
    nn.utils.vector_to_parameters(np.arange(6.0), model.parameters())
    assert model.weight.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert model.bias.tolist() == [4.0, 5.0]
    with pytest.raises(ShapeError) as caught:
        nn.utils.vector_to_parameters(np.arange(5.0), model.parameters())
    assert str(caught.value) == (
        "vector_to_parameters: the vector has shape (5,) and the parameters have 6 elements; it must have shape (6,)."
    )
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0).item() > 0.0


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_cell_is_one_step_of_its_layer(name):
    layer, cell = getattr(nn, name)(2, 3), getattr(nn, f"{name}Cell")(2, 3)
    cell.load_state_dict({path.removesuffix("_l0"): value for path, value in layer.state_dict().items()})
    x = nt.tensor(np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32))
    state, outs = None, []
    for step in x:
        state = cell(step, state)
        outs.append(state[0] if name == "LSTM" else state)
    np.testing.assert_allclose(nt.stack(outs).numpy(), layer(x)[0].numpy(), rtol=1e-5)


def test_a_summary_takes_a_shape():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).double()
    assert [row[2] for row in model.summary((5, 4)).rows] == ["(5, 3)", "(5, 3)", "(5, 3)"]
    assert str(model.summary((5, 4))) == str(model.summary(np.ones((5, 4))))


@pytest.mark.parametrize(
    ("package", "wrong", "message"),
    [
        (nt.nn, "Liner", "numtape.nn: there is no 'Liner'. Did you mean nt.nn.Linear?"),
        (F, "sofmax", "numtape.nn.functional: there is no 'sofmax'. Did you mean nt.nn.functional.softmax?"),
        (nt.optim, "Adamm", "numtape.optim: there is no 'Adamm'. Did you mean nt.optim.Adam?"),
        (nt.data, "Dataloader", "numtape.data: there is no 'Dataloader'. Did you mean nt.data.DataLoader?"),
        (nt.train, "fitt", "numtape.train: there is no 'fitt'. Did you mean nt.train.fit?"),
        (nt.train, "zzz", "numtape.train: there is no 'zzz'."),
    ],
)
def test_a_name_that_is_not_there_gets_a_suggestion(package, wrong, message):
    with pytest.raises(UnknownNameError) as caught:
        getattr(package, wrong)
    assert str(caught.value) == message
    assert not hasattr(package, wrong)


def test_lists_of_modules_can_be_added_and_popped():
    relu, tanh, gelu = nn.ReLU(), nn.Tanh(), nn.GELU()
    both = nn.Sequential(relu) + nn.Sequential(tanh)
    assert type(both) is nn.Sequential
    assert list(both) == [relu, tanh]
    both += [gelu]
    assert both.pop(0) is relu
    assert list(both) == [tanh, gelu]
    assert list(nn.ModuleList([relu]) + nn.ModuleList([tanh])) == [relu, tanh]
    with pytest.raises(TypeError):
        both + 3


def test_options_that_stand_for_pytorchs_sake_have_its_defaults():
    assert nn.Embedding(7, 3, None, None, 2.0, False, False).weight.shape == (7, 3)
    assert nn.MultiheadAttention(8, 2, 0.0, True, False, False).num_heads == 2
    with pytest.raises(ArgumentError) as caught:
        nn.Embedding(7, 3, max_norm=1.0)
    assert str(caught.value) == "Embedding: max_norm is 1.0; it is not supported here and must be None."
    with pytest.raises(ArgumentError) as caught:
        nn.MultiheadAttention(8, 2, add_zero_attn=True)
    assert str(caught.value) == "MultiheadAttention: add_zero_attn is True; it is not supported here and must be False."


def test_padding_to_the_same_length_is_for_a_stride_of_one():
    with pytest.raises(ArgumentError) as caught:
        nn.Conv2d(4, 4, 3, stride=(1, 2), padding="same")
    assert str(caught.value) == "Conv2d: padding is 'same' and stride (1, 2); it is for a stride of 1."


@pytest.mark.parametrize("padding_idx", [2, -1, np.int64(-1)])
def test_the_row_of_padding_is_counted_from_the_end_if_negative(padding_idx):
    table = nt.ones((3, 2), requires_grad=True)
    F.embedding(np.array([0, 2, 2]), table, padding_idx).sum().backward()
    assert table.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("padding_idx", [3, -4, 1.0, True, "a"])
def test_a_row_of_padding_that_is_none_is_named(padding_idx):
    with pytest.raises(ArgumentError) as caught:
        F.embedding(np.array([0]), nt.ones((3, 2)), padding_idx)
    assert str(caught.value) == (
        f"embedding: padding_idx is {padding_idx!r}; it must be an integer from -3 to 2, since there are 3 rows."
    )


def test_attention_is_hidden_by_a_mask_and_by_causality_together():
    x = np.random.default_rng(0).normal(size=(3, 2))
    mask = np.array([[True, True, True], [True, False, True], [False, True, True]])
    both = F.scaled_dot_product_attention(x, x, x, mask, is_causal=True)
    np.testing.assert_array_equal(both, F.scaled_dot_product_attention(x, x, x, mask & np.tri(3, dtype=bool)))
