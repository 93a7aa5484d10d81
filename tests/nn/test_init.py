"""First values: their bounds and moments, both spellings, streams, and bad arguments."""

import math

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.errors import ArgumentError, OperandError, ShapeError
from numtape.nn import init

SHAPE = (40, 60)


def filled(function, *args, shape=SHAPE, **options):
    tensor = nt.zeros(shape, dtype=nt.float64)
    assert function(tensor, *args, **options) is tensor
    return tensor.array


@pytest.mark.parametrize(
    ("function", "options", "bound"),
    [
        (init.uniform_, dict(a=-3.0, b=3.0), 3.0),
        (init.xavier_uniform_, {}, math.sqrt(6.0 / 100.0)),
        (init.xavier_uniform_, dict(gain=2.0), 2.0 * math.sqrt(6.0 / 100.0)),
        (init.kaiming_uniform_, {}, math.sqrt(6.0 / 60.0)),
        (init.kaiming_uniform_, dict(mode="fan_out", nonlinearity="relu"), math.sqrt(6.0 / 40.0)),
        (init.kaiming_uniform_, dict(a=math.sqrt(5.0)), 1.0 / math.sqrt(60.0)),
    ],
)
def test_uniform_values_fill_their_bounds(function, options, bound):
    values = filled(function, rng=0, **options)
    assert 0.99 * bound < np.abs(values).max() <= bound
    assert abs(values.std() / (bound / math.sqrt(3.0)) - 1.0) < 0.03
    assert abs(values.mean()) < 0.05 * bound


@pytest.mark.parametrize(
    ("function", "options", "std"),
    [
        (init.normal_, dict(std=2.0), 2.0),
        (init.xavier_normal_, {}, math.sqrt(2.0 / 100.0)),
        (init.kaiming_normal_, {}, math.sqrt(2.0 / 60.0)),
        (init.kaiming_normal_, dict(nonlinearity="tanh"), 5.0 / 3.0 / math.sqrt(60.0)),
        (init.kaiming_normal_, dict(mode="fan_out", nonlinearity="linear"), 1.0 / math.sqrt(40.0)),
        (init.trunc_normal_, dict(std=0.1, a=-2.0, b=2.0), 0.1),
    ],
)
def test_normal_values_have_their_spread(function, options, std):
    values = filled(function, rng=0, **options)
    assert abs(values.std() / std - 1.0) < 0.05
    assert abs(values.mean()) < 0.1 * std
    assert (np.abs(values) > 2.0 * std).any()


def test_kernels_count_as_inputs_and_outputs():
    assert np.abs(filled(init.kaiming_uniform_, shape=(8, 4, 3, 3), rng=0)).max() <= math.sqrt(6.0 / 36.0)
    assert np.abs(filled(init.xavier_uniform_, shape=(8, 4, 3, 3), rng=0)).max() <= math.sqrt(6.0 / (36.0 + 72.0))


def test_truncated_values_lie_between_the_bounds():
    values = filled(init.trunc_normal_, rng=0, mean=1.0, std=5.0, a=0.0, b=2.0)
    assert values.min() >= 0.0
    assert values.max() <= 2.0
    with pytest.raises(ArgumentError) as raised:
        filled(init.trunc_normal_, a=10.0, b=11.0)
    assert str(raised.value) == (
        "trunc_normal_: a is 10.0 and b is 11.0; too little of a normal distribution with mean 0.0 and standard "
        "deviation 1.0 lies between them (0)."
    )


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 2), (4, 4)])
def test_orthogonal_matrices(shape):
    values = filled(init.orthogonal_, gain=2.0, shape=shape, rng=0).reshape(shape[0], -1)
    product = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(product, 4.0 * np.eye(len(product)), atol=1e-12)


def test_constants():
    assert (filled(init.constant_, 3.0) == 3.0).all()
    assert (filled(init.zeros_) == 0.0).all()
    assert (filled(init.ones_) == 1.0).all()
    assert (filled(init.eye_) == np.eye(*SHAPE)).all()


def test_every_function_goes_by_its_name_without_the_underscore():
    names = [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]
    assert len(names) == 16
    for name in names:
        assert getattr(init, name.rstrip("_")) is getattr(init, name)


def test_streams_reproduce():
    a, b, c = (filled(init.normal_, rng=seed) for seed in (1, 1, 2))
    assert (a == b).all()
    assert not (a == c).any()
    layers = []
    for _ in range(2):
        nt.seed(5)
        layers.append(nn.Linear(3, 3))
    assert (layers[0].weight.array == layers[1].weight.array).all()
    assert not (nn.Linear(3, 3).weight.array == layers[0].weight.array).any()


def test_weight_and_bias_of_one_seed_differ():
    layer = nn.Linear(1, 4, rng=0)
    assert not (layer.weight.array[:, 0] == layer.bias.array).any()
    cell = nn.LSTM(2, 2, rng=0)
    assert not (cell.weight_ih_l0.array == cell.weight_hh_l0.array).any()


def test_a_parameter_stays_a_leaf_that_requires_a_gradient():
    layer = nn.Linear(2, 2)
    init.xavier_uniform_(layer.weight)
    assert layer.weight.is_leaf
    assert layer.weight.requires_grad
    layer.reset_parameters(rng=1)
    assert (layer.weight.array == nn.Linear(2, 2, rng=1).weight.array).all()


def test_half_precision_is_filled_in_place():
    tensor = nt.zeros(4, 4, dtype=nt.bfloat16)
    assert init.kaiming_normal_(tensor, rng=0).dtype == nt.bfloat16
    assert tensor.array.any()


def test_bad_arguments():
    with pytest.raises(ShapeError) as raised:
        init.xavier_uniform_(nt.zeros(3))
    assert str(raised.value) == (
        "xavier_uniform_: the tensor has shape (3,); inputs and outputs are told from two axes or more. Use normal_ or "
        "uniform_ for others."
    )
    with pytest.raises(ArgumentError, match="kaiming_normal_: mode is 'fan'; it must be 'fan_in' or 'fan_out'"):
        init.kaiming_normal_(nt.zeros(2, 2), mode="fan")
    with pytest.raises(ArgumentError, match="calculate_gain: nonlinearity is 'step'; it must be one of linear, "):
        init.calculate_gain("step")
    with pytest.raises(OperandError, match=r"ones_: fills a tensor in place, not ndarray; make one with nt.empty or"):
        init.ones_(np.zeros(2))
    with pytest.raises(ShapeError, match=r"eye_: the tensor has shape \(3,\); it must be a matrix"):
        init.eye_(nt.zeros(3))
