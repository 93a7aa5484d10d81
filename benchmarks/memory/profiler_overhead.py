"""What profiling costs: the time profiler on chains of small ops and on a model, and that it is gone afterwards.

Run: python benchmarks/memory/profiler_overhead.py [--rounds 31] [--json figures.json]
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness import Report, interleaved, options

import numtape as nt
from numtape import nn

CHAIN = 1_000
#: Chains that one profile sees: entering and leaving it is part of the cost, as it is for users.
CHAINS = 10


def chain(x: Any) -> Any:
    y = x
    for _ in range(CHAIN // 2):
        y = y * 0.999
        y = y + x
    return y


def repeated(work: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(CHAINS):
            work()

    return run


def profiled(work: Callable[[], Any], **asked: bool) -> Callable[[], None]:
    def run() -> None:
        with nt.profile(**asked):
            work()

    return run


def chains(report: Report, rounds: int) -> None:
    x = nt.tensor(np.full(8, 0.5, np.float32), requires_grad=True)
    ones = np.ones(8, np.float32)

    def both() -> None:
        x.grad = None
        chain(x).backward(ones)

    work = repeated(both)
    forward = repeated(lambda: chain(x))
    works = {
        "off": work,
        "on": profiled(work),
        "forward off": forward,
        "forward on": profiled(forward),
        "detailed": profiled(work, values=True, memory=True, stacks=True),
        "empty": profiled(lambda: None),
    }
    micro = {name: seconds * 1e6 / (CHAIN * CHAINS) for name, seconds in interleaved(works, rounds, 1).items()}
    on = micro["on"] - micro["off"]
    forward_on = micro["forward on"] - micro["forward off"]
    report.add("an op, forward and backward, not profiled", micro["off"], None, "us")
    report.add("time profiler on: added to an op, forward and backward", on, 0.6, "us")
    report.add("  to its run alone", forward_on, None, "us")
    report.add("  to its step in the backward alone", on - forward_on, None, "us")
    report.add("values, memory and stacks on: added to an op", micro["detailed"] - micro["off"], None, "us")
    report.add("entering and leaving a profile", micro["empty"] * CHAIN * CHAINS, None, "us")


def model(report: Report, rounds: int) -> None:
    rng = nt.Generator(0)
    layers = [nn.Linear(784, 256, rng=rng), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10, rng=rng)]
    network = nn.Sequential(*layers)
    images, labels = nt.randn(64, 784, rng=rng), nt.randint(0, 10, (64,), rng=rng)

    def step() -> None:
        network.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()

    work = repeated(step)
    medians = interleaved({"off": work, "on": profiled(work)}, rounds, 1)
    report.add("a model's step under the time profiler", medians["on"] / medians["off"], None)


def main() -> int:
    given = options(__doc__ or "")
    report = Report(f"profiler overhead, NumPy {np.__version__}, medians of {given.rounds} interleaved rounds")
    chains(report, given.rounds)
    model(report, given.rounds)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
