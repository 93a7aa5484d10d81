"""The sparsity pattern of a Jacobian: dependence of one record on the next, multiplied along the recorded graph.

For a Hessian the graph is that of the gradient. Rules of linear ops read no values, so that where a function is linear
its gradient depends on nothing, and the pattern shows it.
"""

from collections import Counter
from typing import Any

import numpy as np

from ..core.apply import PICK
from ..core.jacobian import Path, size_of, tracked
from ..core.record import Link, Record
from .dependence import Chain, dependence
from .matrices import Matrix, matrix, sorted_rows, stacked


def find_pattern(path: Path) -> Matrix:
    """Return which outputs of a path depend on which of its inputs: a sparse matrix of bools.

    The elements of all targets are its rows, in a row, and those of all sources its columns.
    """
    #: For each value that is alive, the inputs that its elements depend on; a list of these for several outputs.
    found: dict[Link, Any] = _starts(path)
    reached = {*path.sources, *path.records}
    reads = Counter(path.targets)
    for record in path.records:
        reads.update(_moved(record, reached))
    for record in path.records:
        found[record] = _along(record, found)
        for link in _moved(record, reached):
            reads[link] -= 1
            if not reads[link]:
                del found[link]
    return sorted_rows(stacked([_found_or_empty(path, found, target) for target in path.targets]))


def _moved(record: Record, reached: set[Link]) -> set[Link]:
    return {link for link in tracked(record) if link in reached}


def _found_or_empty(path: Path, found: dict[Link, Any], target: Link) -> Matrix:
    return found[target] if target in found else _empty(size_of(target), path.inputs)


def _starts(path: Path) -> dict[Link, Any]:
    starts: dict[Link, Any] = {}
    offset = 0
    for source in path.sources:
        size = size_of(source)
        columns = np.arange(offset, offset + size, dtype=np.int32)
        indptr = np.arange(size + 1, dtype=np.int32)
        starts[source] = matrix(np.ones(size, bool), columns, indptr, (size, path.inputs))
        offset += size
    return starts


def _empty(rows: int, columns: int) -> Matrix:
    return matrix(np.zeros(0, bool), np.zeros(0, np.int32), np.zeros(rows + 1, np.int32), (rows, columns))


def _along(record: Record, found: dict[Link, Any]) -> Any:
    """Return the inputs that a record's elements depend on, from those of its links."""
    if record.op is PICK:
        assert record.params is not None
        return found[record.inputs[0]][record.params["position"]]
    totals: list[Matrix] | None = None
    for position, link in enumerate(record.inputs):
        if not record.needs >> position & 1 or link not in found:
            continue
        parts = [_product(chain, found[link]) for chain in dependence(record, position)]
        totals = parts if totals is None else [_union(a, b) for a, b in zip(totals, parts, strict=True)]
    assert totals is not None
    return totals if isinstance(record.shape, list) else totals[0]


def _product(chain: Chain, found: Matrix) -> Matrix:
    for step in chain:
        found = step @ found
    return found


def _union(a: Matrix, b: Matrix) -> Matrix:
    return a if a is b else a + b
