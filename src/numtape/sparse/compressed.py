"""Compute the entries of a sparse Jacobian: batched sweeps from sums of unit vectors, each entry read in its place.

One more direction, random, goes along in a sweep. What it brings must be the product with the matrix; where it is not,
an entry outside of the pattern is looked for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from ..core.batching import Batched
from ..core.forward import forward
from ..core.jacobian import Path, size_of
from ..core.record import Link
from ..core.reverse import reverse
from ..dtypes import HALF_DTYPES, float32
from ..errors import PatternError
from ..lifted import BatchedTensor
from .matrices import Matrix, matrix
from .plans import Plan, Side

#: How many numbers a sweep may carry at a time, if the result has fewer.
_CARRIED = 1 << 20
#: What the product with the random direction may be off, relative to the sum of the absolute values of its terms.
_TOLERANCES = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-3}


def compute(name: str, path: Path, pattern: Matrix, plan: Plan, chunk_size: int | None = None) -> Matrix:
    """Return the Jacobian of a path as a sparse matrix, by the sweeps of a plan.

    Raises:
        PatternError: if the Jacobian has an entry outside of the pattern.
    """
    values = np.zeros(pattern.nnz, np.result_type(*map(_dtype, path.targets)))
    chunk = chunk_size or max(1, max(_CARRIED, 4 * pattern.nnz) // max(1, *path.widths))
    probed: tuple[bool, NDArray, NDArray] | None = None
    for side in plan.sides:
        starts = path.sources if side.is_forward else path.targets
        direction = _direction(sum(map(size_of, starts))) if probed is None else None
        brought = _sweep(path, side, values, direction, chunk)
        if direction is not None and brought is not None:
            probed = (side.is_forward, direction, brought)
    found = matrix(values, pattern.indices.copy(), pattern.indptr.copy(), pattern.shape)
    if probed is not None:
        _check(name, path, found, *probed)
    return found


def _dtype(link: Link) -> Dtype:
    dtype: Dtype = float32 if link.dtype in HALF_DTYPES else link.dtype
    return dtype


def _direction(size: int) -> NDArray:
    """Return a direction that is the same in every run, without small elements and without any structure."""
    rng = np.random.default_rng(size)
    return np.asarray(rng.uniform(0.5, 1.0, size) * rng.choice([-1.0, 1.0], size), np.float32).astype(np.float64)


def _sweep(path: Path, side: Side, values: NDArray, direction: NDArray | None, chunk: int) -> NDArray | None:
    """Fill in the entries of one side; return what the direction brings."""
    order = np.argsort(side.shades, kind="stable")
    ends = np.searchsorted(side.shades[order], np.arange(side.count + 1))
    count = side.count + (direction is not None)
    result = None
    for first in range(0, count, chunk):
        last = min(first + chunk, count)
        along = direction if last == count else None
        seeds = _seeds(path.sources if side.is_forward else path.targets, side.colours, first, last, along)
        brought = _brought(path, side.is_forward, seeds, last - first)
        if along is not None:
            result = brought[-1].astype(np.float64)
        chosen = order[ends[first] : ends[min(last, side.count)]]
        values[side.entries[chosen]] = brought[side.shades[chosen] - first, side.places[chosen]]
    return result


def _seeds(
    links: Sequence[Link], colours: NDArray, first: int, last: int, direction: NDArray | None
) -> list[tuple[Link, Batched]]:
    """Return the sums of unit vectors of some colours as batches; a direction takes the last place."""
    seeds: list[tuple[Link, Batched]] = []
    offset = 0
    for link in links:
        size = size_of(link)
        own = colours[offset : offset + size]
        members = np.zeros((last - first, size), _dtype(link))
        chosen = np.flatnonzero((own >= first) & (own < last))
        members[own[chosen] - first, chosen] = 1.0
        if direction is not None:
            members[-1] = direction[offset : offset + size]
        seeds.append((link, BatchedTensor.of(members.reshape((last - first, *link.shape)))))
        offset += size
    return seeds


def _brought(path: Path, is_forward: bool, seeds: list[tuple[Link, Batched]], size: int) -> NDArray:
    """Return what a sweep brings to the other end: a row for each seed."""
    ends = path.targets if is_forward else path.sources
    arrived: list[Any]
    if is_forward:
        arrived = forward(seeds, ends)
    else:
        found = reverse(seeds, ends)
        arrived = [found.pop(link, None) for link in ends]
    parts = []
    for link, part in zip(ends, arrived, strict=True):
        # What is not batched does not depend on the seeds; being linear in them, it is zero.
        is_zero = not isinstance(part, Batched)
        parts.append(np.zeros((size, size_of(link)), _dtype(link)) if is_zero else part.members.reshape((size, -1)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _check(name: str, path: Path, found: Matrix, is_forward: bool, direction: NDArray, brought: NDArray) -> None:
    """Raise if a product with the matrix is not what the sweep brought, and an entry is missing indeed."""
    across = found if is_forward else found.T
    with np.errstate(all="ignore"):
        gap = np.abs(across @ direction - brought)
        scale = abs(across) @ np.abs(direction) + np.abs(brought)
        is_off = np.isfinite(scale) & (gap > _tolerance(found.dtype) * scale)
    for place in np.flatnonzero(is_off)[:4].tolist():
        missing = _missing(path, found, is_forward, place)
        if missing is not None:
            row, column, value = missing
            raise PatternError(
                f"{name}: the derivative of output element {row} by input element {column} is {value:.6g}, but the "
                "sparsity pattern says that it is zero. Some op on the way has a `structure` that its derivative does "
                "not keep to; correct that of your custom ops, or use sparse=False."
            )


def _tolerance(dtype: Dtype) -> float:
    return _TOLERANCES.get(dtype, 1e-3)


def _missing(path: Path, found: Matrix, is_forward: bool, place: int) -> tuple[int, int, float] | None:
    """Return the largest entry outside of the pattern in a row (after a forward sweep) or column, if there is one."""
    # The row of an output comes from a cotangent, the column of an input from a tangent: the other way round.
    links = path.targets if is_forward else path.sources
    colours = np.full(sum(map(size_of, links)), -1)
    colours[place] = 0
    (line,) = _brought(path, not is_forward, _seeds(links, colours, 0, 1, None), 1)
    line = np.abs(line).astype(np.float64) * np.sign(line)
    inside = (found if is_forward else found.T.tocsr())[[place]].indices
    outside = line.copy()
    outside[inside] = 0.0
    at = int(np.argmax(np.abs(outside)))
    if not abs(outside[at]) > _tolerance(found.dtype) * np.abs(line).max():
        return None
    row, column = (place, at) if is_forward else (at, place)
    return row, column, float(line[at])
