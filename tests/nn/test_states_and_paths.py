"""What a module's state holds beside its tensors, states that do not fit, and the paths in errors."""

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.errors import ArgumentError, DtypeError, OperandError, ShapeError


def dropping(seed):
    return nn.Sequential(nn.Linear(4, 8, rng=0), nn.Dropout(0.5, rng=seed))


def test_a_resumed_dropout_with_a_stream_of_its_own_drops_the_same_elements(tmp_path):
    first, x = dropping(3), nt.ones(2, 4)
    first(x)
    nt.save(tmp_path / "model.safetensors", first)
    expected = [first(x).tolist() for _ in range(3)]
    second = dropping(99)
    second.load_state_dict(nt.load(tmp_path / "model.safetensors"))
    assert [second(x).tolist() for _ in range(3)] == expected


def test_the_stream_of_a_module_is_in_its_state_and_no_other_key_is():
    assert list(dropping(3).state_dict()) == ["0.weight", "0.bias", "1.rng"]
    assert list(dropping(None).state_dict()) == ["0.weight", "0.bias"]
    assert list(nn.Dropout(rng=1).state_dict("a.")) == ["a.rng"]


def test_a_long_key_and_counter_come_back_exactly():
    layer, other = nn.Dropout(rng=7), nn.Dropout(rng=8)
    layer.rng.counter = 2**100 + 5
    other.load_state_dict(layer.state_dict())
    assert (other.rng.key, other.rng.counter) == (layer.rng.key, 2**100 + 5)


def test_a_state_without_the_stream_is_refused_unless_not_strict():
    model, state = dropping(3), dropping(None).state_dict()
    with pytest.raises(ArgumentError) as raised:
        model.load_state_dict(state)
    assert str(raised.value) == (
        "Sequential.load_state_dict: the state does not fit the module, and nothing was loaded.\n"
        "  missing: 1.rng\n"
        "Rename the keys, or pass strict=False to load those that both have."
    )
    assert model.load_state_dict(state, strict=False) == (["1.rng"], [])


def test_the_state_of_a_stream_has_its_dtype():
    layer = nn.Dropout(rng=7)
    key = layer.rng.key
    with pytest.raises(DtypeError) as raised:
        layer.load_state_dict({"rng": np.ones(4)})
    assert str(raised.value) == (
        "Dropout.load_state_dict: 'rng' has dtype float64; the state of a random stream is four words of dtype uint64, "
        "as state_dict() gives them."
    )
    assert layer.rng.key == key


def test_keys_that_are_no_strings_are_reported():
    with pytest.raises(ArgumentError) as raised:
        nn.Linear(2, 1, bias=False).load_state_dict({0: np.ones((1, 2))})
    assert str(raised.value) == (
        "Linear.load_state_dict: the state does not fit the module, and nothing was loaded.\n"
        "  missing: weight\n"
        "  unexpected: 0\n"
        "Rename the keys, or pass strict=False to load those that both have."
    )


MISFIT = "0.1: Linear: the input has shape (5, 3) and the weight (1, 9); the last axis of the input must have length 9."


@pytest.mark.parametrize("door", ["call", "forward"])
def test_both_doors_of_a_model_give_the_same_path(door):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.Linear(9, 1)))
    with pytest.raises(ShapeError) as raised:
        (model if door == "call" else model.forward)(nt.ones(5, 2))
    assert str(raised.value) == MISFIT


def test_a_part_whose_forward_is_called_directly_is_in_the_path():
    class Outer(nn.Module):
        def __init__(self):
            self.body = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.Linear(9, 1)))

        def forward(self, x):
            return self.body.forward(x)

    for door in (Outer(), Outer().forward):
        with pytest.raises(ShapeError) as raised:
            door(nt.ones(5, 2))
        assert str(raised.value) == "body." + MISFIT


# Batches without samples.
def test_the_squared_error_of_an_empty_batch_has_an_empty_gradient():
    x = nt.zeros(0, 3).requires_grad_(True)
    with np.errstate(invalid="ignore"):
        loss = nt.mse_loss(x, nt.zeros(0, 3))
    loss.backward()
    assert np.isnan(loss.item())
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_takes_an_empty_batch(need_weights):
    x = nt.zeros(0, 5, 8).requires_grad_(True)
    out, weights = nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x, need_weights=need_weights)
    out.sum().backward()
    assert out.shape == x.grad.shape == (0, 5, 8)
    assert weights is None or weights.shape == (0, 5, 5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_takes_an_empty_batch(norm_first):
    x = nt.zeros(0, 5, 8).requires_grad_(True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    for mode in (True, False):
        out = layer.train(mode)(x)
        out.sum().backward()
        assert out.shape == x.grad.shape == (0, 5, 8)


class Counting(nn.Module):
    """A module with a state that is no tensor."""

    def __init__(self):
        self.linear = nn.Linear(1, 1)
        self.count = 0

    def get_extra_state(self):
        return {"count": self.count, "names": ["a", "b"]}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_a_module_may_add_a_state_of_its_own_making(tmp_path):
    model, other = nn.Sequential(Counting()), nn.Sequential(Counting())
    model[0].count = 5
    assert sorted(model.state_dict()) == ["0._extra_state", "0.linear.bias", "0.linear.weight"]
    nt.save(tmp_path / "state", model.state_dict())
    other.load_state_dict(nt.load(tmp_path / "state"))
    assert other[0].count == 5
    state = model.state_dict()
    del state["0._extra_state"]
    with pytest.raises(ArgumentError) as caught:
        other.load_state_dict(state)
    assert "missing: 0._extra_state" in str(caught.value)
    assert other.load_state_dict(state, strict=False).missing_keys == ["0._extra_state"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            np.ones((1, 2), complex),
            "Linear: the input has dtype complex128, but numtape computes with real numbers; "
            "pass real and imaginary parts as two inputs.",
        ),
        (
            type("Foreign", (), {"dtype": "torch.float32", "shape": (1, 2)})(),
            "Linear: the input is of type Foreign; it must be a tensor or an array.",
        ),
    ],
)
def test_an_input_of_another_world_is_named(x, message):
    with pytest.raises((DtypeError, OperandError)) as caught:
        nn.Linear(2, 2)(x)
    assert str(caught.value) == message


def test_a_mask_of_a_state_is_not_lost_silently():
    model = nn.Linear(2, 1)
    before = model.weight.numpy(copy=True)
    masked = np.ma.masked_array(np.ones((1, 2), np.float32), [[True, False]])
    with pytest.raises(OperandError) as caught:
        model.load_state_dict({**model.state_dict(), "weight": masked})
    assert str(caught.value) == (
        "Linear.load_state_dict: 'weight' is a masked array, whose mask would be ignored; pass x.filled(...), and "
        "choose elements with nt.where."
    )
    np.testing.assert_array_equal(model.weight.numpy(), before)
