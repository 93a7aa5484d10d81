"""`nt.PerformanceBenchmark`: time regions and functions, compare them, and notice when something got slower."""

import difflib
import gc
import os
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter as clock
from typing import Any

from ..config import BenchmarkConfig
from ..errors import ArgumentError, OperandError
from . import benchmark_results
from .benchmark_results import BenchmarkResult, Comparison


def _named(results: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, results)) or "nothing"


class PerformanceBenchmark:
    """Measure how long things take, by name.

    `start_benchmark` and `end_benchmark` time a region as it runs; `run` and `run_interleaved` call functions, after a
    warm-up. Calls of one name add up, and none is left out.

    Args:
        config: what to measure, a `BenchmarkConfig`.

    Example:
        >>> benchmark = nt.PerformanceBenchmark(nt.BenchmarkConfig(num_warmup=2, num_iterations=20))
        >>> x = nt.ones(50, 50)
        >>> result = benchmark.run("square", lambda: x @ x)
        >>> result.calls, result.mean_time_ms > 0.0
        (20, True)
        >>> low, high = result.confidence_interval_ms
        >>> low <= result.median_time_ms <= high
        True
    """

    def __init__(self, config: BenchmarkConfig | None = None) -> None:
        if config is not None and not isinstance(config, BenchmarkConfig):
            raise OperandError(
                f"PerformanceBenchmark: config is of type {type(config).__name__}; give an nt.BenchmarkConfig."
            )
        self.config = config or BenchmarkConfig()
        #: What was found, by name.
        self.results: dict[str, BenchmarkResult] = {}
        self._running: dict[str, tuple[float, _Memory | None]] = {}

    def start_benchmark(self, name: str) -> None:
        """Begin to time a region. Regions of other names may run inside of it, or beside it.

        Raises:
            ArgumentError: if a region of this name is running.
        """
        _check_name("start_benchmark", name)
        if name in self._running:
            raise ArgumentError(f"start_benchmark: {name!r} is running; call end_benchmark({name!r}) first.")
        memory = _Memory() if self.config.measure_memory else None
        self._running[name] = (clock(), memory)

    def end_benchmark(self, name: str) -> BenchmarkResult:
        """End a region, and return what is known about its name by now.

        Raises:
            ArgumentError: if no region of this name is running.
        """
        now = clock()
        if name not in self._running:
            running = ", ".join(map(repr, self._running)) or "nothing"
            raise ArgumentError(
                f"end_benchmark: {name!r} is not running; call start_benchmark({name!r}) first. Running: {running}."
            )
        start, memory = self._running.pop(name)
        return self._add(name, [now - start], None if memory is None else memory.stop())

    def run(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> BenchmarkResult:
        """Call a function as often as the configuration says, and return what is known about its name by now.

        Memory is measured in one more call, since measuring it takes time.
        """
        _check_function(name, function)
        return self._run({name: lambda: function(*args, **kwargs)})[name]

    def run_interleaved(self, functions: Mapping[str, Callable[[], Any]]) -> dict[str, BenchmarkResult]:
        """Call functions in turn, round by round, so that a machine that drifts is fair to all; return their results.

        Example:
            >>> benchmark = nt.PerformanceBenchmark(nt.BenchmarkConfig(num_warmup=1, num_iterations=20))
            >>> x = nt.ones(200, 200)
            >>> results = benchmark.run_interleaved({"sum": lambda: x.sum(), "product": lambda: x @ x @ x @ x})
            >>> benchmark.compare("product", "sum").verdict
            'slower'
        """
        if not isinstance(functions, Mapping):
            raise OperandError(
                f"run_interleaved: wants a dict of functions by their names, not {type(functions).__name__}."
            )
        for name, function in functions.items():
            _check_function(name, function)
        return self._run(functions)

    def compare(self, name: str, baseline: str) -> Comparison:
        """Compare two names: how many times as long the first takes as the second."""
        return benchmark_results.compare(self._find("compare", name), self._find("compare", baseline))

    def regressions(
        self, baseline: "PerformanceBenchmark | str | os.PathLike[str]", threshold: float = 1.05
    ) -> list[Comparison]:
        """Return the names that surely take more than `threshold` times as long as they did, the worst first.

        Args:
            baseline: a benchmark of before, or the path of the JSON file of one.
            threshold: the largest ratio of medians that is let pass. A name counts only if the whole confidence
                interval of its ratio lies above.
        """
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold > 0:
            raise ArgumentError(f"regressions: threshold is {threshold!r}; it must be a positive number.")
        if not isinstance(baseline, PerformanceBenchmark | str | os.PathLike):
            raise OperandError(
                f"regressions: baseline is of type {type(baseline).__name__}; give an nt.PerformanceBenchmark, or the "
                "path of a file that to_json wrote."
            )
        before = baseline if isinstance(baseline, PerformanceBenchmark) else self.from_json(baseline)
        shared = [name for name in self.results if name in before.results]
        if not shared:
            raise ArgumentError(
                f"regressions: the baseline has {_named(before.results)}, and this benchmark {_named(self.results)}; "
                "no name is in both, so that there is nothing to compare."
            )
        found = [benchmark_results.compare(self.results[name], before.results[name]) for name in shared]
        return sorted((c for c in found if c.is_regression(threshold)), key=lambda c: -c.ratio)

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write all times, with the versions and the machine they were measured on, and return the path."""
        return benchmark_results.write_json(path, self.results, self.config)

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> "PerformanceBenchmark":
        """Return the benchmark that `to_json` wrote."""
        if not isinstance(path, str | os.PathLike):
            raise OperandError(
                f"PerformanceBenchmark.from_json: path is of type {type(path).__name__}; give the path of a file that "
                "to_json wrote."
            )
        results, config = benchmark_results.read_json(path)
        benchmark = cls(config)
        benchmark.results = results
        return benchmark

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write a row of figures for each name, and return the path."""
        return benchmark_results.write_csv(path, self.results)

    def _run(self, functions: Mapping[str, Callable[[], Any]]) -> dict[str, BenchmarkResult]:
        for _ in range(self.config.num_warmup):
            for function in functions.values():
                function()
        times = _interleaved(functions, self.config.num_iterations)
        peaks: dict[str, int] = {}
        if self.config.measure_memory:
            peaks = {name: _peak_of(function) for name, function in functions.items()}
        return {name: self._add(name, times[name], peaks.get(name)) for name in functions}

    def _add(self, name: str, times: list[float], peak: int | None) -> BenchmarkResult:
        before = self.results.get(name)
        if before is not None:
            times = [*before.times_seconds, *times]
            peak = max((each for each in (before.peak_bytes, peak) if each is not None), default=None)
        self.results[name] = BenchmarkResult(name, tuple(times), self.config, peak)
        return self.results[name]

    def _find(self, caller: str, name: str) -> BenchmarkResult:
        if name in self.results:
            return self.results[name]
        near = difflib.get_close_matches(str(name), self.results, n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, self.results)) or 'none yet'}."
        )
        raise ArgumentError(f"{caller}: there is no result named {name!r}; {hint}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.results.values())) or "no results"


class _Memory:
    """Counts the most bytes held from now on, beyond those held now."""

    def __init__(self) -> None:
        self._is_ours = not tracemalloc.is_tracing()
        if self._is_ours:
            tracemalloc.start()
        tracemalloc.reset_peak()
        self._start = tracemalloc.get_traced_memory()[0]

    def stop(self) -> int:
        """Return the count, and leave Python's tracing as it was."""
        peak = tracemalloc.get_traced_memory()[1] - self._start
        if self._is_ours:
            tracemalloc.stop()
        return max(0, peak)


def _interleaved(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in functions}
    was_enabled = gc.isenabled()
    gc.disable()  # A collection would be charged to whoever runs when it is due.
    try:
        for _ in range(rounds):
            for name, function in functions.items():
                start = clock()
                function()
                times[name].append(clock() - start)
    finally:
        if was_enabled:
            gc.enable()
    return times


def _peak_of(function: Callable[[], Any]) -> int:
    memory = _Memory()
    try:
        function()
    finally:
        peak = memory.stop()
    return peak


def _check_function(name: Any, function: Any) -> None:
    _check_name("run", name)
    if not callable(function):
        raise OperandError(
            f"run: {name!r} is given {type(function).__name__}, which cannot be called; give a function."
        )


def _check_name(caller: str, name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{caller}: the name is {name!r}; it must be a text that is not empty.")
