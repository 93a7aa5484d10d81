"""Sparse Jacobians against dense ones: a tridiagonal system, and the residuals of bundle adjustment.

Run: python benchmarks/science/sparse.py [--rounds 15] [--json figures.json]
"""

import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, interleaved, options

import numtape as nt

UNKNOWNS = 10_000
CAMERAS, POINTS, OBSERVATIONS = 20, 2_000, 10_000


def tridiagonal(x: Any) -> Any:
    """A nonlinear boundary value problem, u'' = exp(u), by central differences."""
    u = np.pad(x, 1)
    return (u[2:] - 2.0 * u[1:-1] + u[:-2]) * (UNKNOWNS + 1) ** 2 - np.exp(x)


def rotated(vectors: Any, points: Any) -> Any:
    """Rotate points by rotation vectors (Rodrigues)."""
    angle = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    axis = vectors / angle
    along = (axis * points).sum(axis=1, keepdims=True)
    return np.cos(angle) * points + np.sin(angle) * np.cross(axis, points) + (1.0 - np.cos(angle)) * along * axis


def bundle(seed: int = 0) -> tuple[Callable[[Any], Any], Any]:
    """Return reprojection residuals as a function of one vector, and where to evaluate it.

    A camera has a rotation, a translation, a focal length and two coefficients of distortion.
    """
    rng = np.random.default_rng(seed)
    cameras = np.hstack(
        [
            rng.normal(0.0, 0.3, (CAMERAS, 3)),
            rng.normal(0.0, 0.2, (CAMERAS, 2)),
            rng.normal(-10.0, 0.2, (CAMERAS, 1)),
            rng.normal(500.0, 10.0, (CAMERAS, 1)),
            rng.normal(0.0, 0.01, (CAMERAS, 2)),
        ]
    )
    points = rng.normal(0.0, 1.0, (POINTS, 3))
    camera_of, point_of = rng.integers(CAMERAS, size=OBSERVATIONS), rng.integers(POINTS, size=OBSERVATIONS)
    seen = rng.normal(0.0, 50.0, (OBSERVATIONS, 2))

    def residuals(x: Any) -> Any:
        camera = x[: CAMERAS * 9].reshape(CAMERAS, 9)[camera_of]
        point = x[CAMERAS * 9 :].reshape(POINTS, 3)[point_of]
        moved = rotated(camera[:, :3], point) + camera[:, 3:6]
        plane = -moved[:, :2] / moved[:, 2:]
        squared = (plane**2).sum(axis=1, keepdims=True)
        lens = 1.0 + camera[:, 7:8] * squared + camera[:, 8:9] * squared**2
        return (camera[:, 6:7] * lens * plane - seen).reshape(-1)

    return residuals, np.concatenate([cameras.ravel(), points.ravel()])


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def largest_gap(sparse: Any, dense: Any) -> float:
    """Return the largest difference, relative to the largest entry, without a dense copy of the sparse matrix."""
    scale = float(np.abs(sparse.data).max())
    rows = range(0, dense.shape[0], 500)
    return max(float(np.abs(sparse[i : i + 500].toarray() - dense[i : i + 500]).max()) for i in rows) / scale


def system(report: Report, rounds: int) -> None:
    x = np.linspace(0.0, 1.0, UNKNOWNS)
    first = interleaved({"sparse": lambda: nt.jacobian(tridiagonal, sparse=True)(x)}, rounds, 1)["sparse"]
    known = nt.sparsity(tridiagonal, x)
    again = interleaved({"again": lambda: known.jacobian(x)}, rounds, 1)["again"]
    tracemalloc.start()
    sparse = nt.jacobian(tridiagonal, sparse=True)(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    dense_seconds, dense = seconds(lambda: nt.jacobian(tridiagonal)(x))
    report.add(f"tridiagonal, {UNKNOWNS:,} unknowns: pattern, colours and Jacobian", first * 1e3, None, "ms")
    report.add("  with the pattern known", again * 1e3, None, "ms")
    report.add("  dense", dense_seconds * 1e3, None, "ms")
    report.add("  sparse / dense", first / dense_seconds, 0.01)
    report.add("  peak memory", peak / 1e6, 20.0, "MB")
    report.add("  largest difference / 1e-11", largest_gap(sparse, dense) / 1e-11, 1.0)


def adjustment(report: Report, rounds: int) -> None:
    residuals, x = bundle()
    first = interleaved({"sparse": lambda: nt.jacobian(residuals, sparse=True)(x)}, rounds, 1)["sparse"]
    known = nt.sparsity(residuals, x)
    again = interleaved({"again": lambda: known.jacobian(x)}, rounds, 1)["again"]
    sparse = known.jacobian(x)
    by_columns, dense = seconds(lambda: nt.jacobian(residuals, mode="forward", chunk_size=1)(x))
    gap = largest_gap(sparse, dense)
    del dense
    batched, dense = seconds(lambda: nt.jacobian(residuals)(x))
    del dense
    print(known)
    report.add(f"bundle adjustment, {OBSERVATIONS:,} observations: the same", first * 1e3, None, "ms")
    report.add("  with the pattern known", again * 1e3, None, "ms")
    report.add("  dense, column by column", by_columns * 1e3, None, "ms")
    report.add("  dense, batched", batched * 1e3, None, "ms")
    report.add("  sparse / dense column by column", first / by_columns, 0.02)
    report.add("  sparse / dense batched", first / batched, None)
    report.add("  largest difference / 1e-11", gap / 1e-11, 1.0)


def main() -> int:
    given = options(__doc__ or "")
    report = Report("sparse Jacobians")
    system(report, given.rounds)
    adjustment(report, given.rounds)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
