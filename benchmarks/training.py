"""Training steps against PyTorch: an MLP with Adam, a CNN with SGD, the Adam update alone, and equal loss curves.

Run: python benchmarks/training.py [--rounds 31] [--json figures.json]
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Report, interleaved, optional, options

import numtape as nt
from numtape import nn

#: So small that a batch is not learned while it is timed: gradients that fade to denormal numbers are slow for all.
SMALL = 1e-6


def mlp(module: Any) -> Any:
    return module.Sequential(
        module.Linear(784, 256), module.ReLU(), module.Linear(256, 128), module.ReLU(), module.Linear(128, 10)
    )


def cnn(module: Any) -> Any:
    return module.Sequential(
        module.Conv2d(1, 16, 3, padding=1),
        module.ReLU(),
        module.MaxPool2d(2),
        module.Conv2d(16, 32, 3, padding=1),
        module.ReLU(),
        module.MaxPool2d(2),
        module.Flatten(),
        module.Linear(32 * 7 * 7, 10),
    )


def our_step(model: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], Any]:
    def step() -> None:
        loss = nt.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def their_step(torch: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], Any]:
    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def perceptrons(report: Report, rounds: int, torch: Any) -> None:
    rng = np.random.default_rng(0)
    for batch, bound in ((1, 1.8), (64, 1.25), (512, 1.25)):
        x = rng.normal(size=(batch, 784)).astype(np.float32)
        y = rng.integers(0, 10, batch)
        model = mlp(nn)
        adam = nt.optim.Adam(model.parameters(), lr=SMALL)
        works = {"ours": our_step(model, adam, nt.tensor(x), nt.tensor(y))}
        if torch is not None:
            theirs = mlp(torch.nn)
            fused = torch.optim.Adam(theirs.parameters(), lr=SMALL, fused=True)
            works["torch"] = their_step(torch, theirs, fused, torch.tensor(x), torch.tensor(y))
        # Many steps in a row: the threads of two libraries in one process wait busily for each other's work.
        medians = interleaved(works, rounds, {1: 64, 64: 20, 512: 6}[batch])
        report.add(f"MLP 784-256-128-10 with Adam, batch {batch}", medians["ours"] * 1e6, None, "us")
        if torch is not None:
            report.add("  ratio to PyTorch with fused Adam", medians["ours"] / medians["torch"], bound)


def convolutions(report: Report, rounds: int, torch: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(32, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, 32)
    model = cnn(nn)
    works = {"ours": our_step(model, nt.optim.SGD(model.parameters(), lr=0.01), nt.tensor(x), nt.tensor(y))}
    if torch is not None:
        theirs = cnn(torch.nn)
        sgd = torch.optim.SGD(theirs.parameters(), lr=0.01)
        works["torch"] = their_step(torch, theirs, sgd, torch.tensor(x), torch.tensor(y))
    medians = interleaved(works, rounds, 4)
    report.add("CNN of 16 and 32 channels with SGD, batch 32", medians["ours"] * 1e3, None, "ms")
    if torch is not None:
        report.add("  ratio to PyTorch", medians["ours"] / medians["torch"], 3.5)


def updates(report: Report, rounds: int, torch: Any) -> None:
    model = mlp(nn)
    optimizer = nt.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = nt.ones_like(p) * 0.01
    works: dict[str, Callable[[], Any]] = {"ours": optimizer.step}
    if torch is not None:
        theirs = mlp(torch.nn)
        adam = torch.optim.Adam(theirs.parameters(), fused=True)
        for p in theirs.parameters():
            p.grad = torch.full_like(p, 0.01)
        works["torch"] = adam.step
    medians = interleaved(works, rounds, 5)
    report.add("Adam update of 235,146 parameters", medians["ours"] * 1e6, None, "us")
    if torch is not None:
        report.add("  ratio to PyTorch's fused Adam", medians["ours"] / medians["torch"], 4.0)


def curves(report: Report, torch: Any) -> None:
    """Loss curves from the same weights, for every optimizer that both have, over 100 steps in float64."""
    if torch is None:
        return
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(64, 20)), rng.integers(0, 5, 64)
    settings = {
        "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        "Adam": {"lr": 0.01},
        "AdamW": {"lr": 0.01, "weight_decay": 0.1},
        "RMSprop": {"lr": 0.01, "momentum": 0.5},
        "Adagrad": {"lr": 0.05},
        "Adadelta": {"lr": 1.0},
        "NAdam": {"lr": 0.01},
        "RAdam": {"lr": 0.01},
    }
    worst = 0.0
    for name, options_of in settings.items():
        model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 5)).double()
        theirs = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5)).double()
        theirs.load_state_dict({key: torch.tensor(p.numpy(copy=True)) for key, p in model.state_dict().items()})
        ours = getattr(nt.optim, name)(model.parameters(), **options_of)
        peer = getattr(torch.optim, name)(theirs.parameters(), **options_of)
        for _ in range(100):
            loss = nt.cross_entropy(model(nt.tensor(x)), nt.tensor(y))
            other = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
            worst = max(worst, abs(loss.item() - other.item()))
            for optimizer, value in ((ours, loss), (peer, other)):
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
    report.add("largest difference of loss curves over 100 steps, 8 optimizers", worst * 1e8, 1.0, "e-8")


def main() -> int:
    given = options(__doc__ or "")
    torch = optional("torch")
    nt.seed(0)
    report = Report(f"training, NumPy {np.__version__}, medians of {given.rounds} interleaved rounds")
    perceptrons(report, given.rounds, torch)
    convolutions(report, given.rounds, torch)
    updates(report, given.rounds, torch)
    curves(report, torch)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
