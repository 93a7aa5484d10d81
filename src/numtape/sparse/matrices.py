"""SciPy's sparse matrices, loaded when first needed: which elements depend on which, as matrices of bools."""

import functools
import importlib
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import MissingExtraError

#: A `scipy.sparse.csr_array`.
Matrix = Any


@functools.cache
def _library() -> Any:
    return importlib.import_module("scipy.sparse")


def check_library(name: str) -> None:
    """Raise for the function `name` if SciPy, which is optional, is missing."""
    try:
        _library()
    except ImportError as error:
        raise MissingExtraError(f"{name}: sparse matrices need SciPy; pip install numtape[scipy]") from error


def matrix(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> Matrix:
    """Return a matrix from its rows: the entries of row i are those from ``indptr[i]`` to ``indptr[i + 1]``."""
    return _library().csr_array((data, indices, indptr), shape=shape)


def pairs(rows: NDArray, columns: NDArray, shape: tuple[int, int]) -> Matrix:
    """Return the matrix of bools that is set at rows and columns, which may repeat."""
    found = _library().csr_array((np.ones(len(rows), bool), (rows, columns)), shape=shape)
    found.sum_duplicates()
    return found


def selection(columns: NDArray, count: int) -> Matrix:
    """Return the matrix with one entry in each row, in the column given there; none where that is negative."""
    indptr = np.zeros(len(columns) + 1, np.int32)
    is_set = columns >= 0
    np.cumsum(is_set, out=indptr[1:])
    chosen = columns[is_set].astype(np.int32)
    return matrix(np.ones(len(chosen), bool), chosen, indptr, (len(columns), count))


def stacked(parts: list[Matrix]) -> Matrix:
    """Return matrices on top of each other."""
    return parts[0] if len(parts) == 1 else _library().vstack(parts, format="csr")


def rows_of(found: Matrix) -> NDArray:
    """Return the row of each entry."""
    return np.repeat(np.arange(found.shape[0], dtype=found.indices.dtype), np.diff(found.indptr))


def sorted_rows(found: Matrix) -> Matrix:
    """Return a matrix with the entries of each row in order, each once."""
    found.sum_duplicates()
    return found
