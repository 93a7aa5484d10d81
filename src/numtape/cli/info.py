"""Print what numtape runs on: versions, BLAS and threads, SIMD, CPUs, providers and extras: ``numtape info``."""

import importlib
import os
import platform
from importlib import metadata
from typing import Any, TextIO

import numpy as np

from .. import __version__
from ..kernels import blas, providers
from ..kernels.machine import CORE_VARIABLE, is_taken_for_older, machine_class

#: The package that each extra brings.
EXTRAS = {
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "progress": "tqdm",
    "plot": "matplotlib",
    "io": "safetensors",
    "onednn": "onednn-cpu-gomp",
    "compile": "llvmlite",
}
#: What sets the number of threads of BLAS libraries, in the order in which they look.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")


def run(out: TextIO) -> int:
    """Write the table; return 0."""
    rows = gather()
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}", file=out)
    return 0


def gather() -> dict[str, str]:
    """Return all facts by their names."""
    config: dict[str, Any] = np.show_config(mode="dicts")  # type: ignore[assignment]
    return {
        "numtape": __version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "NumPy": np.__version__,
        "ml_dtypes": metadata.version("ml_dtypes"),
        "platform": platform.platform(),
        "CPUs": f"{usable_cpus()} usable of {os.cpu_count()}",
        "SIMD": _simd(config),
        "BLAS": _blas(config),
        "BLAS threads": _threads(),
        "CPU class": machine_class(),
        "providers": providers.describe(),
        **{f"extra {name}": _extra(name, package) for name, package in EXTRAS.items()},
    }


def usable_cpus() -> int:
    """Return how many CPUs this process may run on, where the system says so, or else how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _simd(config: dict[str, Any]) -> str:
    found = config.get("SIMD Extensions", {})
    return " ".join([*found.get("baseline", []), *found.get("found", [])]) or "none that NumPy uses"


def _blas(config: dict[str, Any]) -> str:
    built = config.get("Build Dependencies", {}).get("blas", {})
    name = f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()
    library = blas.library()
    if library is None or not is_taken_for_older():
        return name
    if CORE_VARIABLE in os.environ:
        repair = f", as {CORE_VARIABLE} is set; without it, it might use this CPU's AVX-512"
    else:  # OpenBLAS knows CPUs by their numbers, and takes those that are newer than it is for older ones.
        repair = f"; with {CORE_VARIABLE}=SKYLAKEX set, it would use this CPU's AVX-512"
    return f"{name}, with kernels for {library.core}{repair}"


def _threads() -> str:
    """Return the number of BLAS threads: as threadpoolctl counts them, or else as the environment sets them."""
    try:
        pools = importlib.import_module("threadpoolctl").threadpool_info()
    except ImportError:
        chosen = [f"{os.environ[name]} ({name})" for name in _THREAD_VARIABLES if name in os.environ]
        return chosen[0] if chosen else f"{usable_cpus()} unless the library was told otherwise"
    counts = [str(pool["num_threads"]) for pool in pools if pool.get("user_api") == "blas"]
    return ", ".join(counts) or "unknown"


def _extra(name: str, package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f'{package} is missing: pip install "numtape[{name}]"'
