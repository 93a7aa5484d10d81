"""Checkpoint strategies: peak activation bytes and time, against a plain tape.

Run: python benchmarks/memory/checkpointing.py [--rounds 15] [--json figures.json]
"""

import gc
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, interleaved, options

import numtape as nt
from numtape.insight.activations import Activations

Config = nt.CheckpointConfig


class Case:
    """A model, its input, and its loss on a tape."""

    def __init__(self, name: str, model: Any, x: Any) -> None:
        self.name = name
        self.model = model
        self.x = x
        self.parameters = list(model.parameters())

    def step(self, config: Any = None) -> None:
        """Run forward and backward. Each step draws other random numbers, as in training."""
        for parameter in self.parameters:
            parameter.grad = None
        with nt.GradientTape(checkpoint=config) as tape:
            loss = (self.model(self.x) ** 2).mean()
        tape.backward(loss)

    def measure(self, config: Any = None) -> tuple[Activations, list[Any]]:
        """Return the activation bytes of a step, and its gradients."""
        gc.collect()
        nt.seed(1)
        with Activations() as held:
            self.step(config)
        return held, [parameter.grad.numpy(copy=True) for parameter in self.parameters]

    def traced(self, config: Any = None) -> float:
        """Return tracemalloc's peak of a step in MB."""
        tracemalloc.start()
        self.step(config)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / 2**20


def perceptron(depth: int, width: int, batch: int) -> Case:
    nt.seed(0)
    layers = [part for _ in range(depth) for part in (nt.nn.Linear(width, width), nt.nn.GELU())]
    x = nt.tensor(np.random.default_rng(0).standard_normal((batch, width)).astype(np.float32))
    return Case(f"GELU MLP, {depth} layers", nt.nn.Sequential(*layers), x)


def transformer(depth: int) -> Case:
    nt.seed(0)
    layers = [nt.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True) for _ in range(depth)]
    x = nt.tensor(np.random.default_rng(0).standard_normal((8, 64, 128)).astype(np.float32))
    return Case(f"transformer, {depth} layers", nt.nn.Sequential(*layers), x)


def compare(report: Report, case: Case, name: str, config: Any, rounds: int, left: float, time: float | None) -> None:
    """Add what is left of the peak and how much longer a step takes; the gradients must be equal bit for bit."""
    plain, expected = case.measure()
    held, found = case.measure(config)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), "gradients differ"
    report.add(f"{case.name}: {name}, peak / plain", held.peak / plain.peak, left)
    if time is not None:
        report.add(f"{case.name}: {name}, time / plain", slowdown(case, config, rounds), time)
    traced, of_plain = case.traced(config), case.traced()
    report.add(f"{case.name}: {name}, tracemalloc peak (plain {of_plain:.1f})", traced, None, "MB")


def slowdown(case: Case, config: Any, rounds: int) -> float:
    """Return the median over rounds of the ratio of neighbours."""
    works: dict[str, Callable[[], Any]] = {"checkpointed": lambda: case.step(config), "plain": case.step}
    ratios = []
    for _ in range(rounds):
        times = interleaved(works, 1, 1)
        ratios.append(times["checkpointed"] / times["plain"])
    return statistics.median(ratios)


def budgets(report: Report, case: Case) -> None:
    plain, expected = case.measure()
    report.add(f"{case.name}: backward peak / peak of forward", plain.backward_peak / plain.forward_peak, 1.1)
    for share in np.linspace(0.2, 1.0, 10):
        budget = plain.peak * share
        held, found = case.measure(Config("auto", memory_budget_mb=budget / 2**20))
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), "gradients differ"
        report.add(f"{case.name}: AUTO at {share:.0%}, peak / budget", held.peak / budget, 1.05)


def main() -> int:
    given = options(__doc__ or "")
    report = Report("Checkpointing (activation bytes; gradients equal bit for bit)")
    shallow, attentive, deep = perceptron(50, 512, 128), transformer(24), perceptron(400, 256, 128)
    for case, every in ((shallow, 8), (attentive, 15)):  # 15 records are half of a layer.
        compare(report, case, f"BLOCK n={every}", Config("block", checkpoint_every_n=every), given.rounds, 0.6, 1.4)
        compare(report, case, "SELECTIVE", Config("selective"), given.rounds, 0.6, 1.4)
    compare(report, deep, "FULL", Config("full"), given.rounds, 0.1, 1.7)
    budget = 0.045 * deep.measure()[0].peak / 2**20
    compare(report, deep, "FULL, binomial", Config("full", memory_budget_mb=budget), given.rounds, 0.05, 2.4)
    budgets(report, shallow)
    budgets(report, attentive)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
