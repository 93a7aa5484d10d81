"""Time a function of yours, or what numtape does on this machine, from the shell: ``numtape bench``."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .. import nn, optim
from ..api import value_and_grad
from ..config import BenchmarkConfig
from ..core.value import Value
from ..creation import tensor
from ..dtypes import is_float
from ..errors import NumtapeError
from ..insight.benchmark import PerformanceBenchmark
from ..insight.benchmark_results import compare
from ..insight.profile import profile
from ..jacobians import jacobian
from ..random_creation import randint, randn
from ..streams import Generator
from .target import UsageError, argument_lists, find, place_of

Work = Callable[[], Any]


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    target: str | None
    args: str | None
    gradient: bool
    profile: bool
    warmup: int
    iterations: int
    json: str | None
    csv: str | None
    baseline: str | None
    threshold: float


def run(asked: Asked, out: TextIO) -> int:
    """Time, print, write and compare; return 1 if something takes surely longer than the baseline, else 0."""
    before = _baseline(asked)
    works = _own_works() if asked.target is None else _works(asked, asked.target)
    config = BenchmarkConfig(num_warmup=asked.warmup, num_iterations=asked.iterations)
    benchmark = PerformanceBenchmark(config)
    try:
        for name, work in works.items():
            print(benchmark.run(name, work), file=out)
        if asked.profile:
            _print_profiles(works, out)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name} failed: {type(error).__name__}: {error} (at {place_of(error)}).") from error
    for path, write in ((asked.json, benchmark.to_json), (asked.csv, benchmark.to_csv)):
        if path is not None:
            print(f"written to {_written(path, write)}", file=out)
    return 0 if before is None else _compared(benchmark, before, asked, out)


def _baseline(asked: Asked) -> PerformanceBenchmark | None:
    """Read the baseline before anything runs, so that a mistake costs no time."""
    if asked.baseline is None:
        return None
    if not asked.threshold > 0:
        raise UsageError(f"--threshold is {asked.threshold}; it must be a positive number.")
    try:
        return PerformanceBenchmark.from_json(asked.baseline)
    except OSError as error:
        raise UsageError(f"--baseline {asked.baseline} cannot be read: {error.strerror}.") from error
    except NumtapeError as error:
        raise UsageError(f"--baseline {asked.baseline} is no file that --json wrote.") from error


def _written(path: str, write: Callable[[str], Path]) -> Path:
    try:
        return write(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def _print_profiles(works: dict[str, Work], out: TextIO) -> None:
    for name, work in works.items():
        with profile() as profiled:
            work()
        print(f"\n{name}\n{profiled.table()}", file=out)


def _compared(benchmark: PerformanceBenchmark, before: PerformanceBenchmark, asked: Asked, out: TextIO) -> int:
    shared = [name for name in benchmark.results if name in before.results]
    if not shared:
        known = ", ".join(before.results) or "nothing"
        raise UsageError(f"--baseline {asked.baseline} has {known}, and nothing of what was timed.")
    print(f"\nbeside {asked.baseline}", file=out)
    is_slower = False
    for name in shared:
        found = compare(benchmark.results[name], before.results[name])
        low, high = found.interval
        verdict = "REGRESSION" if found.is_regression(asked.threshold) else found.verdict
        is_slower = is_slower or verdict == "REGRESSION"
        print(f"{name}: {found.ratio:.3f} [{low:.3f}, {high:.3f}] {verdict}", file=out)
    return int(is_slower)


def _works(asked: Asked, target: str) -> dict[str, Work]:
    """Return the calls of a user's function to time, by name."""
    module, function = find(target)
    calls = (
        [()]
        if asked.args is None and _takes_nothing(function)
        else argument_lists(function, target, asked.args, module)
    )
    works: dict[str, Work] = {}
    for number, args in enumerate(calls):
        title = target if len(calls) == 1 else f"{target}[{number}]"
        works[title] = partial(function, *args)
        if asked.gradient:
            works[f"{title} with gradient"] = _gradient(function, target, args)
    return works


def _takes_nothing(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_argcount == 0 and not hasattr(function, "samples")


def _gradient(function: Callable[..., Any], target: str, args: tuple[Any, ...]) -> Work:
    positions = tuple(i for i, arg in enumerate(args) if _is_differentiable(arg))
    if not positions:
        raise UsageError(f"{target} is called with nothing to differentiate by; --gradient wants a float argument.")
    both = value_and_grad(function, argnums=positions)
    return partial(both, *args)


def _is_differentiable(arg: Any) -> bool:
    return isinstance(arg, float) or (isinstance(arg, Value | np.ndarray) and is_float(arg.dtype))


def _own_works() -> dict[str, Work]:
    """Return what shows how fast numtape is on a machine: small ops, large ops, a training step, a Jacobian."""
    rng = Generator(0)
    x = tensor(np.full(8, 0.5, np.float32), requires_grad=True)
    large = randn(1_000_000, rng=rng)
    square = randn(512, 512, rng=rng)
    weights = randn(100, 100, rng=rng, dtype="float64")
    point = np.linspace(-1.0, 1.0, 100)
    model = nn.Sequential(nn.Linear(784, 256, rng=rng), nn.ReLU(), nn.Linear(256, 10, rng=rng))
    optimizer = optim.Adam(model.parameters())
    images, labels = randn(64, 784, rng=rng), randint(0, 10, (64,), rng=rng)

    def chain() -> None:
        y = x
        for _ in range(500):
            y = y * 0.999 + x
        y.sum().backward()

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return {
        "1,000 small ops, forward and backward": chain,
        "tanh of 1,000,000 floats": lambda: large.tanh(),
        "product of 512x512 matrices": lambda: square @ square,
        "training step of a perceptron, batch 64": step,
        "Jacobian of 100 by 100": lambda: jacobian(lambda v: (weights @ v).tanh())(point),
    }
