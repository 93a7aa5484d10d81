"""Positional arguments mean what they mean in PyTorch, or are refused; NumPy's numbers count as numbers."""

import math

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.errors import ArgumentError, IndexingError, OperandError, ShapeError
from numtape.nn import functional as F


def test_the_fourth_argument_of_gaussian_nll_loss_is_full():
    x, y, v = np.array([1.0]), np.array([3.0]), np.array([1.0])
    assert F.gaussian_nll_loss(x, y, v, True).item() == pytest.approx(2.0 + math.log(2 * math.pi) / 2, abs=1e-12)
    assert F.gaussian_nll_loss(x, y, v, False, 4.0).item() == pytest.approx(0.5 * (math.log(4.0) + 1.0), abs=1e-12)


def test_the_third_argument_of_huber_loss_is_the_reduction():
    assert F.huber_loss(np.array([1.0, 2.0]), np.array([0.0, 4.0]), "sum", 1.0).item() == 2.0


def test_attention_takes_dropout_before_causality():
    x = np.random.default_rng(0).standard_normal((1, 3, 2))
    out = F.scaled_dot_product_attention(x, x, x, None, 0.0, True)
    assert np.array_equal(out, nt.scaled_dot_product_attention(x, x, x, is_causal=True))


def test_instance_norm_takes_weight_and_bias_after_the_statistics():
    x = np.array([[[1.0, 3.0]]])
    out = F.instance_norm(x, None, None, np.array([2.0]), np.array([1.0]), True, 0.1, 0.0)
    assert out.tolist() == [[[-1.0, 3.0]]]


def test_instance_norm_takes_momentum_before_affine():
    layer = nn.InstanceNorm2d(3, 1e-5, 0.1, True)
    assert layer.affine
    assert layer.weight.shape == (3,)
    assert not nn.InstanceNorm2d(3, 1e-5, 0.1).affine


def test_average_pooling_takes_ceil_mode_before_count_include_pad():
    layer = nn.AvgPool2d(3, 2, 1, False, False)
    assert layer.count_include_pad is False
    assert layer(nt.ones(1, 1, 4, 4)).tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


X = np.ones((1, 2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.PoissonNLLLoss(False, True), "PoissonNLLLoss: full is True; {} False."),
        (lambda: F.poisson_nll_loss(X, X, True, True), "poisson_nll_loss: full is True; {} False."),
        (lambda: nn.AvgPool1d(3, 2, 1, True), "AvgPool1d: ceil_mode is True; {} False."),
        (lambda: nn.AvgPool2d(3, 2, 1, True), "AvgPool2d: ceil_mode is True; {} False."),
        (lambda: nn.InstanceNorm2d(3, 1e-5, 0.1, True, True), "InstanceNorm2d: track_running_stats is True; {} False."),
        (lambda: F.instance_norm(X, np.ones(2)), "instance_norm: running_mean is of type ndarray; {} None."),
        (lambda: F.instance_norm(X, None, np.ones(2)), "instance_norm: running_var is of type ndarray; {} None."),
        (
            lambda: F.scaled_dot_product_attention(X, X, X, None, 0.5),
            "scaled_dot_product_attention: dropout_p is 0.5; {} 0.0.",
        ),
    ],
)
def test_options_that_are_not_supported_are_refused_by_name(call, message):
    with pytest.raises(ArgumentError) as raised:
        call()
    assert str(raised.value) == message.format("it is not supported here and must be")


# Numbers of NumPy.
def test_sizes_and_probabilities_may_be_numbers_of_numpy():
    layer = nn.Linear(np.int64(4), np.int32(2))
    assert repr(layer) == "Linear(in_features=4, out_features=2, bias=True)"
    assert repr(nn.Dropout(np.float32(0.5))) == "Dropout(p=0.5)"
    assert nn.Conv2d(np.int64(3), 2, (np.int64(3), 1), stride=np.int8(2)).stride == (2, 2)
    assert nn.LayerNorm(np.int64(3)).normalized_shape == (3,)
    with pytest.raises(ArgumentError) as raised:
        nn.Linear(np.float64(4.0), 2)
    assert str(raised.value) == f"Linear: in_features is {np.float64(4.0)!r}; it must be an integer of at least 0."
    with pytest.raises(ArgumentError):
        nn.Linear(np.True_, 2)


# Errors that name what was called.
@pytest.mark.parametrize("layer", [nn.AvgPool2d, nn.MaxPool1d, nn.Conv1d, nn.ConvTranspose2d, nn.BatchNorm1d, nn.LSTM])
def test_missing_arguments_name_the_class_that_was_called(layer):
    with pytest.raises(TypeError) as raised:
        layer()
    assert str(raised.value).startswith(f"{layer.__name__}.__init__() missing ")


def test_a_text_for_padding_is_checked_when_the_layer_is_made():
    with pytest.raises(ArgumentError) as raised:
        nn.Conv2d(1, 1, 3, padding="smae")
    assert str(raised.value) == "Conv2d: padding is 'smae'; it must be 'same', 'valid' or integers."


def test_rows_of_an_embedding_are_not_counted_from_the_end():
    layer = nn.Embedding(4, 2)
    with pytest.raises(IndexingError) as raised:
        layer(nt.tensor([0, -1]))
    assert str(raised.value) == (
        "embedding: index -1 is negative; along axis 0 of weight, which has shape (4, 2), indices run from 0 to 3. Add "
        "4 to those that count from the end."
    )
    assert layer(np.zeros((0, 3), np.int64)).shape == (0, 3, 2)


def test_lists_are_no_weights():
    layer = nn.Dense(2, 1, bias=False)
    with pytest.raises(OperandError) as raised:
        layer.set_weights([[1.0, 2.0]])
    assert str(raised.value) == ("Linear.set_weights: the new weight is of type list; it must be a tensor or an array.")
    with pytest.raises(OperandError) as raised:
        nn.functional_call(layer, {"weight": [[1.0, 2.0]]}, nt.ones(1, 2))
    assert str(raised.value) == "functional_call: weight is of type list; it must be a tensor or an array."
    with pytest.raises(ShapeError) as raised:
        nn.functional_call(layer, {"weight": np.ones((2, 1), np.float32)}, nt.ones(1, 2))
    assert str(raised.value) == (
        "functional_call: weight has shape (2, 1), and the model's own (1, 2); they must be equal."
    )
