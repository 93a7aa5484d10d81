"""Run work of ours and of peers in interleaved rounds in one process, and print and save ratios of medians.

The machine drifts within a process, so only interleaved rounds (ours, peer, ours, ...) give ratios that can be trusted.
Peers that are not installed are left out.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numtape.kernels import cpu
from numtape.kernels.machine import CORE_VARIABLE, machine_class

#: Variables that hold NumPy's BLAS to another CPU than this one. They tell the peers, who bring their own, nothing.
HOLDS = (CORE_VARIABLE, "OPENBLAS_L2_SIZE")
#: The variable that names the instructions which oneDNN may use.
LIMIT = "ONEDNN_MAX_CPU_ISA"

Work = Callable[[], Any]


def interleaved(works: dict[str, Work], rounds: int, repeats: int) -> dict[str, float]:
    """Return the median seconds of one call of each piece of work."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            for _ in range(repeats):
                work()
            times[name].append((time.perf_counter() - start) / repeats)
    return {name: statistics.median(values) for name, values in times.items()}


class Report:
    """Collects figures with the bound each has to keep, prints them as a table and writes them as JSON."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[dict[str, Any]] = []

    def add(self, figure: str, value: float, bound: float | None, unit: str = "x") -> None:
        """Add a figure; `bound` is the largest value allowed, None for information only."""
        verdict = "" if bound is None else "ok" if value <= bound else "MISSED"
        self.rows.append({"figure": figure, "value": value, "bound": bound, "unit": unit, "verdict": verdict})

    def finish(self, path: str | None) -> int:
        """Print the table, write the JSON, and return 1 if a bound was missed."""
        width = max(len(row["figure"]) for row in self.rows)
        print(f"\n{self.title}\n  on {machine_class()}{_told()}")
        for row in self.rows:
            bound = "" if row["bound"] is None else f"at most {row['bound']:g}"
            print(f"  {row['figure']:{width}}  {row['value']:10.3f} {row['unit']:8} {bound:14} {row['verdict']}")
        if path is not None:
            Path(path).write_text(
                json.dumps({"title": self.title, "machine": machine_class(), "rows": self.rows}, indent=2) + "\n"
            )
            print(f"  written to {path}")
        return int(any(row["verdict"] == "MISSED" for row in self.rows))


def _told() -> str:
    """Return what the environment tells BLAS to do, which it may not do by itself."""
    told = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("OPENBLAS_")]
    return f" ({', '.join(told)})" if told else ""


def options(description: str) -> argparse.Namespace:
    """Parse the options that all benchmarks share; begin anew without what holds NumPy's BLAS, if that is asked for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=31, help="interleaved rounds (at least 15)")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--unheld", action="store_true", help=f"measure without {' and '.join(HOLDS)}, if they are set")
    given = parser.parse_args()
    held = {name: os.environ[name] for name in HOLDS if name in os.environ}
    if held and given.unheld:
        rest = {name: value for name, value in os.environ.items() if name not in held}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], rest)
    return given


def optional(name: str) -> Any:
    """Import a peer, or return None and say so."""
    if not cpu.has_tiles():
        # PyTorch's oneDNN would use matrix instructions whose tiles the machine hides, which ends the process.
        os.environ.setdefault(LIMIT, "AVX512_CORE_FP16")
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        print(f"{name} is not installed; its figures are left out")
        return None
