"""What strict determinism costs: training steps inside and outside of `nt.deterministic`, and products by one thread.

Products are also cut into tiles of a fixed size that two threads share, BLAS using one thread for each: the other way
to sums that do not depend on threads.

Run: python benchmarks/precision/determinism.py [--rounds 31] [--json figures.json]
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, interleaved, options
from training import SMALL, cnn, mlp, our_step

import numtape as nt
from numtape import nn
from numtape.kernels.blas import single_thread, threads

#: The products of an MLP 784-256-128-10 at batch 64 and of a large layer: rows, inner length, columns.
PRODUCTS = ((64, 784, 256), (784, 64, 256), (64, 256, 128), (1024, 1024, 1024))


def in_strict_mode(step: Callable[[], Any]) -> Callable[[], Any]:
    """Return a step that runs as one of a strict run: the scope is entered once, around all that is timed."""
    return nt.deterministic(global_seed=0)(step)


def repeated(step: Callable[[], Any], times: int) -> Callable[[], Any]:
    def work() -> None:
        for _ in range(times):
            step()

    return work


def steps(report: Report, rounds: int) -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(32, 1, 28, 28)).astype(np.float32)
    rows = rng.normal(size=(64, 784)).astype(np.float32)
    for name, model, x, times in (
        ("MLP 784-256-128-10 with Adam, batch 64", mlp(nn), rows, 20),
        ("CNN of 16 and 32 channels with SGD, batch 32", cnn(nn), images, 4),
    ):
        y = nt.tensor(rng.integers(0, 10, len(x)))
        optimizer = nt.optim.Adam if name.startswith("MLP") else nt.optim.SGD
        step = our_step(model, optimizer(model.parameters(), lr=SMALL), nt.tensor(x), y)
        many = repeated(step, times)
        strict = in_strict_mode(many)
        medians = interleaved({"off": nt.kernels.pinned("numpy")(many), "strict": strict}, rounds, 1)
        report.add(name, medians["off"] / times * 1e6, None, "us")
        report.add("  strict", medians["strict"] / times * 1e6, None, "us")
        report.add("  strict to off, both by NumPy", medians["strict"] / medians["off"], 1.6)
        # Apart from the above: the threads of BLAS, which wait busily after their last product, are in oneDNN's way.
        medians = interleaved({"as installed": many, "strict": strict}, rounds, 1)
        ratio = medians["strict"] / medians["as installed"]
        report.add("  strict to off with the providers installed here", ratio, None)


def products(report: Report, rounds: int) -> None:
    rng = np.random.default_rng(1)
    with ThreadPoolExecutor(2) as pool:
        for m, k, n in PRODUCTS:
            a = rng.normal(size=(m, k)).astype(np.float32)
            b = rng.normal(size=(k, n)).astype(np.float32)
            out = np.empty((m, n), np.float32)

            def plain(a: Any = a, b: Any = b, out: Any = out) -> None:
                np.matmul(a, b, out)

            def tiled(a: Any = a, b: Any = b, out: Any = out) -> None:
                middle = len(a) // 2
                other = pool.submit(np.matmul, a[:middle], b, out[:middle])
                np.matmul(a[middle:], b, out[middle:])
                other.result()

            medians = interleaved({"off": plain, "one": single(plain), "tiles": single(tiled)}, rounds, 10)
            report.add(f"product {m} x {k} x {n}, all threads", medians["off"] * 1e6, None, "us")
            report.add("  one thread", medians["one"] / medians["off"], None)
            report.add("  tiles shared by two threads", medians["tiles"] / medians["off"], None)


def single(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return work that runs while BLAS uses one thread."""

    def run() -> None:
        single_thread.hold()
        try:
            work()
        finally:
            single_thread.release()

    return run


def main() -> int:
    given = options(__doc__ or "")
    nt.seed(0)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    title = f"determinism, NumPy {np.__version__}, {threads()} BLAS threads, load {load:.1f} at the start"
    report = Report(f"{title}, medians of {given.rounds} interleaved rounds")
    steps(report, given.rounds)
    products(report, given.rounds)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
