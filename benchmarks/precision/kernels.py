"""Kernels: products, convolutions and conversions by each provider, and the CNN's training step, against PyTorch.

Run: python benchmarks/precision/kernels.py [--rounds 31] [--json figures.json]

Needs a machine that does nothing else: threads that wait for each other take many times as long beside other programs.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, interleaved, optional, options
from training import cnn, our_step, their_step

import numtape as nt
from numtape import nn
from numtape.kernels import convolution, halves, providers

Work = Callable[[], Any]

#: One layer of FACTS: batch, channels in and out, and the side of the image.
LAYER = (128, 16, 32, 14)


def by(name: str, work: Work) -> Work:
    """Return work that one provider runs."""

    def run() -> None:
        with providers.pinned(name):
            work()

    return run


def products(report: Report, rounds: int, torch: Any) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((64, 256, 128), (64, 784, 256), (512, 784, 256), (1024, 1024, 1024)):
        a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n)))
        for dtype in (nt.float32, nt.bfloat16, nt.float16):
            x, y = a.astype(dtype), b.astype(dtype)
            works: dict[str, Work] = {}
            for name in ("numpy", "auto"):
                works[name] = by(name, lambda x=x, y=y: providers.matmul(x, y))
            if torch is not None:
                kind = getattr(torch, str(dtype))
                p, q = torch.tensor(a).to(kind), torch.tensor(b).to(kind)
                works["torch"] = lambda p=p, q=q: p @ q
            repeats = max(3, int(2e8 / (m * k * n)))
            times = {name: interleaved({name: work}, rounds, repeats)[name] for name, work in works.items()}
            report.add(f"matmul {m}x{k}x{n} {dtype}, auto", times["auto"] * 1e6, None, "us")
            report.add("  ratio to NumPy", times["auto"] / times["numpy"], None)
            if torch is not None:
                report.add("  ratio to PyTorch", times["auto"] / times["torch"], None)


def layer(report: Report, rounds: int, torch: Any) -> None:
    rng = np.random.default_rng(1)
    count, inputs, outputs, side = LAYER
    how: Any = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x = rng.normal(size=(count, inputs, side, side)).astype(np.float32)
    weight = rng.normal(size=(outputs, inputs, 3, 3)).astype(np.float32)
    bias = rng.normal(size=outputs).astype(np.float32)
    g = rng.normal(size=(count, outputs, side, side)).astype(np.float32)

    def passes(module: Any) -> Work:
        def run() -> None:
            module.conv(x, weight, bias, *how)
            module.conv_input(g, weight, (side, side), *how)
            module.conv_weight(x, g, (3, 3), *how)

        return run

    works = {"ours": passes(providers)}
    if torch is not None:
        p, q, r, s = map(torch.tensor, (x, weight, bias, g))

        def theirs() -> None:
            torch.nn.functional.conv2d(p, q, r, padding=1)
            torch.ops.aten.convolution_backward(
                s, p, q, [outputs], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
            )

        works["torch"] = theirs
    times = interleaved(works, rounds, 5)
    # By itself: while the threads of one library wait for work, they keep those of another from it.
    times |= interleaved({"numpy": passes(convolution)}, rounds, 5)
    report.add(f"convolution 3x3, {inputs} to {outputs}, batch {count}, {side}x{side}", times["ours"] * 1e3, None, "ms")
    report.add("  ratio to NumPy alone", times["ours"] / times["numpy"], None)
    if torch is not None:
        report.add("  ratio to PyTorch, forward and backward", times["ours"] / times["torch"], 1.2)


def steps(report: Report, rounds: int, torch: Any) -> None:
    rng = np.random.default_rng(2)
    for batch, bound in ((32, None), (128, 1.3)):
        x, y = rng.normal(size=(batch, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, batch)
        model = cnn(nn)
        works = {"ours": our_step(model, nt.optim.SGD(model.parameters(), lr=0.01), nt.tensor(x), nt.tensor(y))}
        if torch is not None:
            peer = cnn(torch.nn)
            sgd = torch.optim.SGD(peer.parameters(), lr=0.01)
            works["torch"] = their_step(torch, peer, sgd, torch.tensor(x), torch.tensor(y))
        times = interleaved(works, rounds, 4)
        report.add(f"CNN of 16 and 32 channels with SGD, batch {batch}", times["ours"] * 1e3, None, "ms")
        if torch is not None:
            report.add("  ratio to PyTorch", times["ours"] / times["torch"], bound)


def conversions(report: Report, rounds: int) -> None:
    halves.compile_now()
    count = 1 << 20
    x = np.random.default_rng(3).normal(size=count).astype(np.float32)
    for dtype in (nt.float16, nt.bfloat16):
        half = x.astype(dtype)
        works: dict[str, Work] = {
            "down": lambda d=dtype: halves.to_half(x, d),
            "NumPy down": lambda d=dtype: x.astype(d),
            "up": lambda h=half: halves.to_float32(h),
            "NumPy up": lambda h=half: h.astype(np.float32),
        }
        times = interleaved(works, rounds, 5)
        for way, label in (("down", f"float32 to {dtype}"), ("up", f"{dtype} to float32")):
            report.add(label, times[way] / count * 1e9, None, "ns")
            report.add("  ratio to NumPy", times[way] / times[f"NumPy {way}"], None)


def main() -> int:
    given = options(__doc__ or "")
    torch = optional("torch")
    nt.seed(0)
    report = Report(f"kernels, {providers.describe()}, medians of {given.rounds} interleaved rounds")
    layer(report, given.rounds, torch)
    steps(report, given.rounds, torch)
    conversions(report, given.rounds)
    products(report, given.rounds, torch)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
