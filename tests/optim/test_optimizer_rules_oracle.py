"""Training from the same weights takes the same path as in PyTorch, for every optimizer that both have."""

import numpy as np
import pytest

import numtape as nt

torch = pytest.importorskip("torch")

CASES = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.2, "amsgrad": True}),
    ("NAdam", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adadelta", {"lr": 1.0}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
]


def data():
    generator = np.random.default_rng(11)
    x, y = generator.normal(size=(32, 5)), generator.normal(size=(32, 2))
    return x, y, generator.normal(size=(5, 8)) * 0.4, generator.normal(size=(8, 2)) * 0.4


@pytest.mark.parametrize(("name", "options"), CASES)
def test_losses_equal_pytorchs_over_100_steps(name, options):
    x, y, first, second = data()
    theirs = [torch.tensor(w, requires_grad=True) for w in (first, second)]
    optimizer = getattr(torch.optim, name)(theirs, **options)
    expected = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = ((torch.tanh(torch.tensor(x) @ theirs[0]) @ theirs[1] - torch.tensor(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    ours = [nt.tensor(w, requires_grad=True) for w in (first, second)]
    optimizer = getattr(nt.optim, name)(ours, **options)
    found = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = ((nt.tanh(nt.tensor(x) @ ours[0]) @ ours[1] - nt.tensor(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours[0].numpy(), theirs[0].detach().numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam", "Adagrad", "RMSprop", "Adadelta", "SGD", "AdamW"])
def test_defaults_equal_pytorchs(name):
    theirs = getattr(torch.optim, name)([torch.zeros(2, requires_grad=True)]).defaults
    ours = getattr(nt.optim, name)([nt.zeros(2, requires_grad=True)]).defaults
    assert {key: theirs[key] for key in ours} == ours


def test_a_state_of_pytorch_loads():
    w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True, dtype=torch.float64)
    theirs = torch.optim.Adam([w], lr=0.1)
    for g in ([1.0, 2.0, -3.0], [0.5, 0.1, 0.2]):
        w.grad = torch.tensor(g, dtype=torch.float64)
        theirs.step()
    v = nt.tensor(w.detach().numpy().copy(), requires_grad=True)
    ours = nt.optim.Adam([v])
    ours.load_state_dict(theirs.state_dict())
    w.grad = torch.ones(3, dtype=torch.float64)
    theirs.step()
    ours.step([np.ones(3)])
    np.testing.assert_allclose(v.numpy(), w.detach().numpy(), rtol=1e-13)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam", "Adagrad", "RMSprop", "Adadelta", "SGD", "AdamW"])
def test_ascents_equal_pytorchs(name):
    start, grads = np.array([1.0, -2.0]), np.random.default_rng(0).normal(size=(5, 2))
    theirs, ours = torch.tensor(start, requires_grad=True), nt.tensor(start.copy(), requires_grad=True)
    one = getattr(torch.optim, name)([theirs], lr=0.1, weight_decay=0.1, maximize=True)
    other = getattr(nt.optim, name)([ours], lr=0.1, weight_decay=0.1, maximize=True, foreach=False)
    for grad in grads:
        theirs.grad = torch.tensor(grad)
        one.step()
        other.step([grad])
    assert None not in other._rule._programs.values()
    # PyTorch keeps NAdam's product of momenta in float32.
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-8 if name == "NAdam" else 1e-13)


def test_a_decay_apart_from_the_averages_equals_pytorchs():
    theirs, ours = torch.ones(2, requires_grad=True, dtype=torch.float64), nt.ones(2, dtype="float64")
    one = torch.optim.Adam([theirs], lr=0.1, weight_decay=0.5, decoupled_weight_decay=True)
    other = nt.optim.Adam([ours], lr=0.1, weight_decay=0.5, decoupled_weight_decay=True)
    for grad in ([1.0, 2.0], [-3.0, 0.5]):
        theirs.grad = torch.tensor(grad, dtype=torch.float64)
        one.step()
        other.step([np.array(grad)])
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-13)


def test_a_half_state_and_a_rate_as_a_tensor_load():
    theirs = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    one = torch.optim.SGD([theirs], lr=torch.tensor(0.5), momentum=0.9)
    theirs.grad = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    one.step()
    ours = nt.tensor([0.5, 0.0], requires_grad=True)
    other = nt.optim.SGD([ours], momentum=0.9)
    other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["lr"] == 0.5
    other.step([np.zeros(2)])
    np.testing.assert_allclose(ours.numpy(), np.array([0.5, 0.0]) - 0.5 * 0.9 * np.array([1.0, 2.0]), rtol=1e-6)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_state_goes_to_and_fro(name, options):
    start, gradients = np.array([1.0, -2.0]), np.random.default_rng(5).normal(size=(6, 2))
    theirs = torch.tensor(start, requires_grad=True)
    first = getattr(torch.optim, name)([theirs], **options)
    for g in gradients[:2]:
        theirs.grad = torch.tensor(g)
        first.step()
    ours = nt.tensor(theirs.detach().numpy().copy(), requires_grad=True)
    second = getattr(nt.optim, name)([ours], **options)
    second.load_state_dict(first.state_dict())
    for g in gradients[2:4]:
        theirs.grad, ours.grad = torch.tensor(g), nt.tensor(g)
        first.step()
        second.step()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=0, atol=1e-8)
    saved = second.state_dict()
    again = torch.tensor(ours.numpy(copy=True), requires_grad=True)
    third = getattr(torch.optim, name)([again], **options)
    state = {key: torch.tensor(np.array(value)) for key, value in saved["state"].get(0, {}).items()}
    third.load_state_dict({"state": {0: state} if state else {}, "param_groups": saved["param_groups"]})
    for g in gradients[4:]:
        theirs.grad, again.grad = torch.tensor(g), torch.tensor(g)
        first.step()
        third.step()
    np.testing.assert_allclose(again.detach().numpy(), theirs.detach().numpy(), rtol=0, atol=1e-8)
