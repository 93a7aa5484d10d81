"""What recording costs: chains of small ops, Rosenbrock's gradient, unrecorded ops, a million ops, the import.

Run: python benchmarks/eager_overhead.py [--rounds 31] [--json figures.json]
"""

import os
import subprocess
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
from harness import Report, interleaved, optional, options

import numtape as nt

CHAIN = 1_000
LONG_CHAIN = 1_000_000


def chain(y: Any, x: Any, count: int = CHAIN) -> Any:
    for _ in range(count // 2):
        y = y * 0.999
        y = y + x
    return y


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def chains(report: Report, rounds: int, torch: Any) -> None:
    data = np.full(8, 0.5, np.float32)
    x = nt.tensor(data, requires_grad=True)
    constant = nt.tensor(data)
    ones = np.ones(8, np.float32)

    def ours() -> None:
        x.grad = None
        chain(x, x).backward(ones)

    works = {
        "ours": ours,
        "forward": lambda: chain(x, x),
        "unrecorded": lambda: chain(constant, constant),
        "numpy": lambda: chain(data, data),
    }
    if torch is not None:
        tx = torch.full((8,), 0.5, requires_grad=True)
        tones = torch.ones(8)

        def theirs() -> None:
            tx.grad = None
            chain(tx, tx).backward(tones)

        works["torch"] = theirs
    with nt.no_grad():
        works["no_grad"] = nt.no_grad()(lambda: chain(x, x))
    medians = interleaved(works, rounds, 1)
    micro = {name: seconds * 1e6 / CHAIN for name, seconds in medians.items()}
    report.add("chain of 1,000 ops, forward and backward", micro["ours"], None, "us/op")
    if torch is not None:
        report.add("  PyTorch", micro["torch"], None, "us/op")
        report.add("  ratio to PyTorch", micro["ours"] / micro["torch"], 0.50)
    report.add("  backward / forward", (micro["ours"] - micro["forward"]) / micro["forward"], 2.0)
    report.add("  unrecorded op over NumPy", micro["unrecorded"] - micro["numpy"], 0.8, "us/op")
    report.add("  op under no_grad over NumPy", micro["no_grad"] - micro["numpy"], 0.8, "us/op")
    report.add("  recording over not recording", micro["forward"] - micro["unrecorded"], 1.5, "us/op")


def rosenbrocks(report: Report, rounds: int, torch: Any, autograd: Any) -> None:
    """The bounds are those of `nt.grad`; what a backward to a leaf takes is for information."""
    data = np.linspace(-1.0, 1.0, 10)
    x = nt.tensor(data, requires_grad=True)
    gradient = nt.grad(rosenbrock)
    works = {"ours": lambda: gradient(data)}
    leaves = {"ours": lambda: backward(x)}
    if torch is not None:
        tx = torch.tensor(data, requires_grad=True)
        works["torch"] = lambda: torch.autograd.grad(rosenbrock(tx), tx)
        leaves["torch"] = lambda: backward(tx)
    if autograd is not None:
        hips = autograd.grad(lambda z: autograd.numpy.sum(rosenbrock_terms(z)))
        works["autograd"] = lambda: hips(data)
    medians = interleaved(works, rounds, 20)
    report.add("gradient of Rosenbrock, n = 10", medians["ours"] * 1e6, None, "us")
    if torch is not None:
        report.add("  ratio to PyTorch", medians["ours"] / medians["torch"], 0.45)
    if autograd is not None:
        report.add("  ratio to HIPS autograd", medians["ours"] / medians["autograd"], 0.35)
    medians = interleaved(leaves, rounds, 20)
    report.add("  by backward to a leaf", medians["ours"] * 1e6, None, "us")
    if torch is not None:
        report.add("  by backward to a leaf, ratio to PyTorch's", medians["ours"] / medians["torch"], None)


def backward(x: Any) -> None:
    x.grad = None
    rosenbrock(x).backward()


def rosenbrock_terms(x: Any) -> Any:
    return 100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2


def long_chain(report: Report, torch: Any) -> None:
    x = nt.tensor(np.full(8, 0.5, np.float32), requires_grad=True)
    start = time.perf_counter()
    y = chain(x, x, LONG_CHAIN)
    y.backward(np.ones(8, np.float32))
    del y
    ours = time.perf_counter() - start
    tracemalloc.start()
    y = chain(x, x, LONG_CHAIN // 10)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del y
    report.add("chain of 1,000,000 ops: record, backward, free", ours, None, "s")
    if torch is not None:
        tx = torch.full((8,), 0.5, requires_grad=True)
        start = time.perf_counter()
        ty = chain(tx, tx, LONG_CHAIN)
        ty.backward(torch.ones(8))
        del ty
        report.add("  ratio to PyTorch", ours / (time.perf_counter() - start), 1.0)
    report.add("  memory", size / (LONG_CHAIN // 10), 600, "bytes/op")


def imports(report: Report, rounds: int) -> None:
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    # As after an installation, which compiles: without this, an environment that forbids it would show in the figure.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds(module: str) -> float:
        command = [sys.executable, "-c", code.format(module)]
        return float(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)

    seconds("numtape")
    pairs = [(seconds("numpy"), seconds("numtape")) for _ in range(max(5, rounds // 3))]
    numpy, numtape = (float(np.median(column)) for column in zip(*pairs, strict=True))
    report.add("import numtape above import numpy", (numtape - numpy) * 1e3, 60, "ms")


def main() -> int:
    given = options(__doc__ or "")
    torch, autograd = optional("torch"), optional("autograd")
    if autograd is not None:
        optional("autograd.numpy")
    report = Report(f"eager overhead, NumPy {np.__version__}, medians of {given.rounds} interleaved rounds")
    chains(report, given.rounds, torch)
    rosenbrocks(report, given.rounds, torch, autograd)
    long_chain(report, torch)
    imports(report, given.rounds)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
