"""Every layer and loss gives PyTorch's values and gradients from the same weights, and has its keys."""

import math

import numpy as np
import pytest
from layer_table import LAYERS, LOSSES

import numtape as nt
from numtape import nn, tree

torch = pytest.importorskip("torch")
F64 = torch.float64


def to_torch(x):
    if isinstance(x, tuple):
        return tuple(map(to_torch, x))
    made = torch.from_numpy(np.array(x))
    return made.requires_grad_() if made.dtype == F64 else made


def peer_of(case):
    arguments = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in case.arguments.items()}
    return getattr(torch.nn, case.name)(**arguments).to(F64)


def load_into(peer, layer):
    """Give a PyTorch layer the state of ours; its own `strict` check compares the keys and shapes."""
    peer.load_state_dict({path: torch.from_numpy(np.array(value.array)) for path, value in layer.state_dict().items()})


def inputs_of(given, memo):
    """Return the inputs as tensors of both libraries; one array that is given thrice stays one."""
    pairs = [memo.setdefault(id(x), (tree.map(as_leaf, x), to_torch(x))) for x in given]
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


def as_leaf(x):
    return nt.tensor(x, requires_grad=x.dtype == nt.float64)


def loss_of(outs, library):
    """Return a scalar that depends on every output, each with a weight of its own."""
    total = 0.0
    for out in outs:
        count = math.prod(out.shape)
        weights = np.linspace(-1.0, 2.0, count).reshape(tuple(out.shape))
        total = total + (out * (torch.from_numpy(weights) if library is torch else weights)).sum()
    return total


def assert_equal(ours, theirs, what, error=1e-10):
    found = 0.0 if theirs is None else theirs.detach().numpy()
    given = np.zeros(()) if ours is None else ours.array
    np.testing.assert_allclose(given, np.broadcast_to(found, given.shape), rtol=error, atol=error, err_msg=what)


@pytest.mark.parametrize("case", [case for case in LAYERS + LOSSES if case.has_peer], ids=str)
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_values_and_gradients_equal_pytorchs(case, mode):
    layer, peer = case.make().train(mode), peer_of(case).train(mode)
    load_into(peer, layer)
    ours, theirs = inputs_of(case.inputs, {})
    options = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in case.options.items()}
    outs = [out for out in tree.leaves(layer(*ours, **case.options)) if out is not None]
    peer_outs = [out for out in tree.leaves(peer(*theirs, **options)) if out is not None]
    assert len(outs) == len(peer_outs)
    for out, peer_out in zip(outs, peer_outs, strict=True):
        assert out.shape == tuple(peer_out.shape)
        assert_equal(out, peer_out, "value")
    loss_of(outs, nt).backward()
    loss_of(peer_outs, torch).backward()
    theirs_by_path = dict(peer.named_parameters())
    assert [path for path, _ in layer.named_parameters()] == list(theirs_by_path)
    for path, parameter in layer.named_parameters():
        assert_equal(parameter.grad, theirs_by_path[path].grad, path)
    for x, y in zip(tree.leaves(ours), tree.leaves(theirs), strict=True):
        if x.requires_grad:
            assert_equal(x.grad, y.grad, "input", case.peer_error)
    for path, buffer in peer.named_buffers():
        assert_equal(dict(layer.named_buffers())[path], buffer.to(F64), path)


@pytest.mark.parametrize("case", [case for case in LAYERS + LOSSES if case.has_peer], ids=str)
def test_state_keys_and_their_order_equal_pytorchs(case):
    ours = {path: value.shape for path, value in case.make().state_dict().items()}
    theirs = {path: tuple(value.shape) for path, value in peer_of(case).state_dict().items()}
    assert list(ours.items()) == list(theirs.items())


LARGE = {
    "Linear": (100, 200),
    "Conv1d": (16, 64, 5),
    "Conv2d": (16, 64, 3),
    "ConvTranspose2d": (64, 16, 3),
    "Embedding": (100, 64),
    "RNN": (50, 64, 2),
    "LSTM": (20, 64),
    "GRU": (20, 64),
    "MultiheadAttention": (64, 4),
    "TransformerEncoderLayer": (64, 4, 128),
    "BatchNorm2d": (8,),
    "LayerNorm": (8,),
    "GroupNorm": (2, 8),
    "RMSNorm": (8,),
    "PReLU": (3,),
}


@pytest.mark.parametrize("name", LARGE)
def test_first_values_are_distributed_as_pytorchs(name):
    nt.seed(0)
    torch.manual_seed(0)
    ours, theirs = getattr(nn, name)(*LARGE[name]), getattr(torch.nn, name)(*LARGE[name])
    assert {path: p.shape for path, p in ours.named_parameters()} == {
        path: tuple(p.shape) for path, p in theirs.named_parameters()
    }
    for path, parameter in theirs.named_parameters():
        mine, other = dict(ours.named_parameters())[path].array, parameter.detach().numpy()
        if np.ptp(other) == 0.0:
            np.testing.assert_array_equal(mine, other)
            continue
        # Both are samples: the spread of n numbers is uncertain by about 1 / sqrt(2 n).
        assert abs(mine.std() / other.std() - 1.0) < 4.0 / np.sqrt(mine.size), path
        assert abs(mine.mean() - other.mean()) < 6.0 * other.std() / np.sqrt(mine.size), path
        if name != "Embedding":
            # Uniform numbers come near their bounds.
            assert abs(np.abs(mine).max() / np.abs(other).max() - 1.0) < 12.0 / mine.size, path


def test_a_transformer_encoder_equals_pytorchs():
    nt.seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, dtype=nt.float64)
    ours = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8, dtype=nt.float64))
    inner = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, dtype=F64)
    theirs = torch.nn.TransformerEncoder(inner, 2, torch.nn.LayerNorm(8, dtype=F64), enable_nested_tensor=False)
    load_into(theirs, ours)
    x = np.random.default_rng(0).standard_normal((2, 5, 8))
    np.testing.assert_allclose(ours(x).array, theirs(torch.from_numpy(x)).detach().numpy(), rtol=1e-10, atol=1e-10)


def test_a_state_of_pytorch_loads():
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    ours.load_state_dict(theirs.state_dict())
    assert (ours[0].weight.array == theirs[0].weight.detach().numpy()).all()
