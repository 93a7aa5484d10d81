"""What a benchmark found: the times of one name, the comparison of two, and their files."""

import csv
import json
import math
import os
import platform
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..config import BenchmarkConfig
from ..errors import ArgumentError
from . import time_statistics
from .profile_table import seconds_text

_FORMAT = "numtape benchmark"
_VERSION = 1
_COLUMNS = (
    "name",
    "calls",
    "mean_time_ms",
    "median_time_ms",
    "min_time_ms",
    "max_time_ms",
    "spread_ms",
    "confidence_low_ms",
    "confidence_high_ms",
    "num_outliers",
    "throughput_ops_per_sec",
    "peak_bytes",
)


_BOUNDS = ("confidence_low_ms", "confidence_high_ms")


@dataclass(frozen=True)
class BenchmarkResult:
    """The times of all calls of one name, none left out, and what they tell."""

    name: str
    times_seconds: tuple[float, ...]
    config: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    #: The most bytes that were held at a time beyond those at the start; None if not measured.
    peak_bytes: int | None = None

    @property
    def calls(self) -> int:
        """How many calls were measured."""
        return len(self.times_seconds)

    @property
    def mean_time_ms(self) -> float:
        """The mean, which a slow call moves."""
        return statistics.fmean(self.times_seconds) * 1e3

    @property
    def median_time_ms(self) -> float:
        """The median, which a slow call does not move."""
        return statistics.median(self.times_seconds) * 1e3

    @property
    def min_time_ms(self) -> float:
        """The fastest call."""
        return min(self.times_seconds) * 1e3

    @property
    def max_time_ms(self) -> float:
        """The slowest call."""
        return max(self.times_seconds) * 1e3

    @property
    def spread_ms(self) -> float:
        """How far calls lie from the median: a standard deviation that a slow call does not move."""
        return time_statistics.spread(self.times_seconds) * 1e3

    @property
    def confidence_interval_ms(self) -> tuple[float, float] | None:
        """Where the true median lies, with a confidence of 95%; None without statistical analysis.

        Fewer than six calls cannot tell: it is from 0 to infinity.
        """
        if not self.config.statistical_analysis:
            return None
        low, high = time_statistics.median_interval(self.times_seconds)
        return low * 1e3, high * 1e3

    @property
    def num_outliers(self) -> int | None:
        """How many calls lie far from the median; None without statistical analysis. They count in the mean."""
        return time_statistics.outliers(self.times_seconds) if self.config.statistical_analysis else None

    @property
    def throughput_ops_per_sec(self) -> float | None:
        """Calls per second; None if not asked for."""
        if not self.config.measure_throughput:
            return None
        total = sum(self.times_seconds)
        return self.calls / total if total else float("inf")

    def row(self) -> dict[str, Any]:
        """Return all figures by name, for tables and files."""
        low, high = self.confidence_interval_ms or (None, None)
        is_known = high is not None and math.isfinite(high)
        bounds = {"confidence_low_ms": low, "confidence_high_ms": high} if is_known else dict.fromkeys(_BOUNDS)
        return {name: bounds[name] if name in bounds else getattr(self, name) for name in _COLUMNS}

    def __str__(self) -> str:
        text = f"{self.name}: median {_text(self.median_time_ms)}"
        if self.confidence_interval_ms is not None and math.isfinite(self.confidence_interval_ms[1]):
            low, high = self.confidence_interval_ms
            text += f" [{_text(low)}, {_text(high)}]"
        text += f", mean {_text(self.mean_time_ms)}, calls {self.calls}"
        if self.num_outliers is not None:
            text += f", outliers {self.num_outliers}"
        if self.throughput_ops_per_sec is not None:
            text += f", {self.throughput_ops_per_sec:.4g} a second"
        return text if self.peak_bytes is None else f"{text}, peak {self.peak_bytes:,} bytes"


@dataclass(frozen=True)
class Comparison:
    """How long one thing takes beside another: the ratio of the medians, and where the true one lies."""

    name: str
    baseline: str
    ratio: float
    #: With a confidence of 95%.
    interval: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Whether it is "faster" or "slower" than the baseline, or there is "no difference" to be seen.

        There is "no verdict" on fewer than six calls, whose interval has no end.
        """
        if math.isinf(self.interval[1]):
            return "no verdict"
        return "faster" if self.interval[1] < 1 else "slower" if self.interval[0] > 1 else "no difference"

    def is_regression(self, threshold: float) -> bool:
        """Say whether it surely takes more than `threshold` times as long."""
        return self.interval[0] > threshold

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.name} takes {self.ratio:.3f} [{low:.3f}, {high:.3f}] of {self.baseline}: {self.verdict}"


def _text(milliseconds: float) -> str:
    return seconds_text(milliseconds * 1e-3) or "0 s"


def compare(result: BenchmarkResult, baseline: BenchmarkResult) -> Comparison:
    """Compare two results."""
    ratio = result.median_time_ms / baseline.median_time_ms
    interval = time_statistics.ratio_interval(result.times_seconds, baseline.times_seconds)
    return Comparison(result.name, baseline.name, ratio, interval)


def write_json(path: str | os.PathLike[str], results: Mapping[str, BenchmarkResult], config: BenchmarkConfig) -> Path:
    """Write all times and where they were measured."""
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "machine": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
        },
        "config": asdict(config),
        "results": [
            {**result.row(), "times_seconds": result.times_seconds, "config": asdict(result.config)}
            for result in results.values()
        ],
    }
    place = Path(path)
    place.write_text(json.dumps(document, indent=1) + "\n")
    return place


def read_json(path: str | os.PathLike[str]) -> tuple[dict[str, BenchmarkResult], BenchmarkConfig]:
    """Return the results that `write_json` wrote, and their configuration."""
    try:
        document = json.loads(Path(path).read_text())
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ValueError(f"its format is {document['format']!r}, version {document['version']!r}")
        results = {
            row["name"]: BenchmarkResult(
                row["name"],
                tuple(map(float, row["times_seconds"])),
                BenchmarkConfig(**row["config"]),
                row["peak_bytes"],
            )
            for row in document["results"]
        }
        return results, BenchmarkConfig(**document["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"PerformanceBenchmark: {os.fspath(path)} is no file that to_json wrote ({type(error).__name__}: {error})."
        ) from error


def write_csv(path: str | os.PathLike[str], results: Mapping[str, BenchmarkResult]) -> Path:
    """Write a row of figures for each name."""
    place = Path(path)
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(result.row() for result in results.values())
    return place
