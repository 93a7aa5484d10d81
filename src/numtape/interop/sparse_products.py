"""Products with sparse matrices as ops: linear in the vector, and in the matrix's values where these are tensors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..core import batching
from ..core.apply import apply
from ..core.op import Op
from ..core.terms import Terms
from ..errors import ArgumentError, ShapeError
from ..transforms.custom_ops import custom_op
from .loading import scipy_part


class Pattern:
    """Where the values of a sparse matrix stand, in compressed rows.

    Args:
        name: of the function that was given the matrix, for messages.
        indices: the column of each value.
        indptr: where each row begins, and the end.
        shape: of the matrix.
    """

    def __init__(self, name: str, indices: Any, indptr: Any, shape: Shape) -> None:
        self.name = name
        # Copies, since the caller's may be overwritten before derivatives are taken.
        self.columns = np.array(indices)
        self.starts = np.array(indptr)
        self.shape = shape
        self.size = len(self.columns)
        if self.starts.shape != (shape[0] + 1,) or self.columns.ndim != 1 or self.starts[-1] != self.size:
            raise ArgumentError(
                f"{name}: indices have shape {self.columns.shape} and indptr {self.starts.shape} for a matrix of shape "
                f"{shape}; indptr has an entry for each row and one more, which is the number of indices."
            )
        if self.size and not (self.columns.min() >= 0 and self.columns.max() < shape[1]):
            raise ArgumentError(f"{name}: an index lies outside of the {shape[1]} columns of the matrix.")
        if self.starts[0] != 0 or np.any(np.diff(self.starts) < 0):
            raise ArgumentError(
                f"{name}: indptr must begin with 0 and never fall, since it says where each row begins."
            )
        self.rows = np.repeat(np.arange(shape[0]), np.diff(self.starts))

    def matrix(self, values: NDArray) -> Any:
        """Return the matrix as SciPy's."""
        sparse = scipy_part(self.name, "sparse")
        return sparse.csr_array((values, self.columns, self.starts), shape=self.shape)

    def places(self, transposed: bool) -> tuple[NDArray, NDArray]:
        """Return the row and the column of each value, in the matrix or its transpose."""
        return (self.columns, self.rows) if transposed else (self.rows, self.columns)

    def lengths(self, transposed: bool) -> tuple[int, ...]:
        """Return the shape of the matrix or of its transpose."""
        return tuple(self.shape[::-1] if transposed else self.shape)

    def __repr__(self) -> str:
        return f"<{self.size} values in {self.shape[0]} x {self.shape[1]}>"


def as_columns(x: Any) -> tuple[Any, Shape]:
    """Return a vector, or matrices of shape (..., n, k) as one matrix with n rows, and the shape that is left."""
    if x.ndim <= 2:
        return x, ()
    return x.swapaxes(0, -2).reshape(x.shape[-2], -1), x.swapaxes(0, -2).shape[1:]


def from_columns(out: Any, stack: Shape) -> Any:
    """Return what `as_columns` made of a stack, after a product, as a stack again."""
    return out.reshape(out.shape[0], *stack).swapaxes(0, -2) if stack else out


def check_rows(name: str, shape: Shape, x_shape: Shape) -> None:
    """Raise unless a matrix can be multiplied with a vector or with matrices of a shape."""
    if not x_shape:
        raise ShapeError(f"{name}: the other operand is a number; use * for that.")
    axis = "only axis" if len(x_shape) == 1 else "second-to-last axis"
    length = x_shape[0] if len(x_shape) == 1 else x_shape[-2]
    if length != shape[1]:
        raise ShapeError(
            f"{name}: the matrix has shape {tuple(shape)} and the other operand {tuple(x_shape)}; the {axis} of that "
            f"({length}) must have the length of the matrix's rows ({shape[1]})."
        )


def batched_columns(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Run an op whose last operand is a vector or a stack of matrices on many: vectors become columns."""
    *others, x = operands
    if any(batched[:-1]):
        return batching.loop(op, operands, batched, params)
    return apply(op, (*others, x.T), params).T if x.ndim == 2 else apply(op, operands, params)


def _product_cost(out: Any, *shapes: Any, pattern: Pattern, transposed: bool) -> int:
    return int(2 * pattern.size * math.prod(out) // max(1, pattern.lengths(transposed)[0]))


def _product_terms(out: Shape, values: Shape, x: Shape, *, pattern: Pattern, transposed: bool) -> list[Terms]:
    rows, columns = pattern.places(transposed)
    (height, width), count = pattern.lengths(transposed), 1 if len(x) == 1 else x[-1]
    place, value, column = np.ogrid[: math.prod(x[:-2]), : pattern.size, :count]
    outs, factors = place * height + rows[value], place * width + columns[value]
    return [Terms(outs * count + column, {0: value, 1: factors * count + column})]


def outer(y: Any, x: Any, pattern: Pattern, transposed: bool) -> Any:
    """Return the elements of y x^T at the places of the values, summed over columns and stacks."""
    rows, columns = pattern.places(transposed)
    if len(y.shape) == 1:
        return y[rows] * x[columns]
    products = y[..., rows, :] * x[..., columns, :]
    values_axis = len(products.shape) - 2
    return products.sum(axis=tuple(axis for axis in range(len(products.shape)) if axis != values_axis))


@custom_op(
    vjp={
        "values": lambda g, x, pattern, transposed: outer(g, x, pattern, transposed),
        "x": lambda g, values, pattern, transposed: sparse_product(
            values, g, pattern=pattern, transposed=not transposed
        ),
    },
    jvp={
        "values": lambda t, x, pattern, transposed: sparse_product(t, x, pattern=pattern, transposed=transposed),
        "x": lambda t, values, pattern, transposed: sparse_product(values, t, pattern=pattern, transposed=transposed),
    },
    check=False,
    is_linear_backward=True,
    linear=("values", "x"),
    batch=batched_columns,
    cost=_product_cost,
    structure="terms",
    terms=_product_terms,
    precision="lower",
)
def sparse_product(values: NDArray, x: NDArray, /, *, pattern: Pattern, transposed: bool) -> NDArray:
    """Return the product of a sparse matrix, or of its transpose, with a vector or a stack of matrices."""
    check_rows(pattern.name, pattern.lengths(transposed), x.shape)
    matrix = pattern.matrix(values)
    columns, stack = as_columns(x)
    return np.asarray(from_columns((matrix.T if transposed else matrix) @ columns, stack))
