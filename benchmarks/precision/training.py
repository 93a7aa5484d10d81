"""Mixed precision: steps, activation bytes and accuracy in bfloat16 and float16, against float32 and PyTorch.

Run: python benchmarks/precision/training.py [--rounds 15] [--json figures.json]
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import LIMIT, Report, interleaved, optional, options

import numtape as nt
from numtape import nn
from numtape.cli.models import RECIPES
from numtape.kernels import halves

#: Prints the median of the seconds that PyTorch takes for a product of float16 matrices.
THEIR_PRODUCT = """
import statistics, time, torch
x = torch.randn(1024, 1024).half()
times = []
for _ in range(4):
    start = time.perf_counter()
    x @ x
    times.append(time.perf_counter() - start)
print(statistics.median(times[1:]))
"""
#: So small that a batch is not learned while it is timed.
SMALL = 1e-6
SIZES = (1024, 2048, 2048, 1024)
BATCH = 256
SEEDS = range(4)


def perceptron(module: Any) -> Any:
    """Return linear layers of a library, with ReLU in between."""
    layers = []
    for i in range(len(SIZES) - 1):
        layers += [module.Linear(SIZES[i], SIZES[i + 1]), module.ReLU()]
    return module.Sequential(*layers[:-1])


def region_of(dtype: Any) -> Any:
    """Return a region of autocast; None is float32."""
    return nt.autocast(enabled=False) if dtype is None else nt.autocast(dtype)


def our_step(dtype: Any) -> Callable[[], Any]:
    """Return a training step under autocast."""
    rng = np.random.default_rng(0)
    model = perceptron(nn)
    optimizer = nt.optim.SGD(model.parameters(), lr=SMALL)
    x, y = (nt.tensor(rng.standard_normal((BATCH, n)).astype(np.float32)) for n in (SIZES[0], SIZES[-1]))
    region = region_of(dtype)

    def step() -> None:
        optimizer.zero_grad()
        with region:
            loss = nt.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def their_step(torch: Any, dtype: Any) -> Callable[[], Any]:
    """Return the same of PyTorch."""
    model = perceptron(torch.nn)
    optimizer = torch.optim.SGD(model.parameters(), lr=SMALL)
    x, y = (torch.randn(BATCH, n) for n in (SIZES[0], SIZES[-1]))

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def steps(report: Report, rounds: int, torch: Any) -> None:
    """Time a step that is bound by matrix products."""
    has_kernels = halves.compile_now()
    works = {"float32": our_step(None), "bfloat16": our_step(nt.bfloat16), "float16": our_step(nt.float16)}
    if torch is not None:
        works["PyTorch bfloat16"] = their_step(torch, torch.bfloat16)
    medians = interleaved(works, rounds, 1)
    name = f"step of an MLP {'-'.join(map(str, SIZES))}, batch {BATCH}"
    report.add(f"{name}, float32", medians["float32"] * 1e3, None, "ms")
    by = f"bfloat16 to float32, provider {nt.kernels.provider()}"
    report.add(f"  {by}", medians["bfloat16"] / medians["float32"], 0.75)
    report.add("  float16 to float32", medians["float16"] / medians["float32"], 1.35 if has_kernels else 3.0)
    if torch is not None:
        report.add("  bfloat16 to PyTorch's bfloat16", medians["bfloat16"] / medians["PyTorch bfloat16"], 1.1)


def activations(report: Report) -> None:
    """Count the bytes that records hold for the backward, half copies of weights apart."""
    model = perceptron(nn)
    x = nt.tensor(np.random.default_rng(0).standard_normal((BATCH, SIZES[0])).astype(np.float32))
    weights = {parameter.shape for parameter in model.parameters()}
    kept = {}
    for dtype in (None, nt.bfloat16):
        with nt.GradientTape() as tape, region_of(dtype):
            nt.mse_loss(model(x), nt.zeros(BATCH, SIZES[-1]))
        kept[dtype] = sum(record.nbytes for record in tape.records if record.is_kept and record.shape not in weights)
    report.add("  activation bytes, bfloat16 to float32", kept[nt.bfloat16] / kept[None], 0.55)


def products(report: Report, rounds: int, torch: Any) -> None:
    """Time a product of float16 matrices; PyTorch's also as on the many CPUs without float16 arithmetic."""
    if torch is None:
        return
    a = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float16)
    ours, theirs = nt.tensor(a), torch.tensor(a)
    medians = interleaved({"ours": lambda: ours @ ours, "theirs": lambda: theirs @ theirs}, min(rounds, 5), 1)
    report.add("matmul 1024 in float16, to PyTorch's", medians["ours"] / medians["theirs"], 1 / 20)
    environment = {**os.environ, LIMIT: "AVX512_CORE_BF16"}
    answer = subprocess.run([sys.executable, "-c", THEIR_PRODUCT], env=environment, capture_output=True, check=True)
    report.add("  to PyTorch's on CPUs without float16 arithmetic", medians["ours"] / float(answer.stdout), None)


def accuracy(name: str, dtype: Any, seed: int) -> float:
    """Train a model of the demo on handwritten digits; return how many of others it gets right, in percent."""
    recipe = RECIPES[name]
    nt.seed(seed)
    model = recipe.make(nt.Generator(seed))
    images, labels = nt.data.digits("train")
    optimizer = nt.optim.AdamW(model.parameters(), lr=recipe.rate)
    scaler = nt.LossScaler.Dynamic() if dtype == nt.float16 else nt.LossScaler.Static(1.0)
    region = region_of(dtype)
    batches = len(images) // 32
    schedule = nt.optim.OneCycleLR(optimizer, recipe.rate, total_steps=recipe.epochs * batches)
    for epoch in range(recipe.epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(images))
        for part in np.array_split(order, batches):
            optimizer.zero_grad()
            with region:
                loss = nt.cross_entropy(model(images[part]), labels[part], label_smoothing=0.05)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
    model.eval()
    images, labels = nt.data.digits("test")
    with nt.no_grad(), region:
        right = model(images).argmax(axis=-1) == labels
    return 100.0 * float(right.numpy().mean())


def accuracies(report: Report) -> None:
    """Compare what models learn in each precision, from the same weights and in the same order."""
    for name in ("cnn", "transformer"):
        plain = float(np.mean([accuracy(name, None, seed) for seed in SEEDS]))
        report.add(f"digits, {name}: wrong in float32", 100.0 - plain, None, "points")
        for dtype in (nt.bfloat16, nt.float16):
            lost = plain - float(np.mean([accuracy(name, dtype, seed) for seed in SEEDS]))
            report.add(f"  lost in {dtype}", lost, 0.3, "points")


def main() -> int:
    given = options(__doc__ or "")
    torch = optional("torch")
    nt.seed(0)
    report = Report(f"mixed precision, NumPy {np.__version__}, medians of {given.rounds} interleaved rounds")
    steps(report, given.rounds, torch)
    activations(report)
    products(report, given.rounds, torch)
    accuracies(report)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
