"""`linear_operator`: sparse matrices and SciPy's linear operators as differentiable ``L @ x``."""

import math
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..core.value import Value
from ..errors import ArgumentError, DtypeError, NotDifferentiableError, OperandError, ShapeError
from ..transforms.custom_ops import custom_op
from .loading import scipy_part
from .sparse_products import Pattern, as_columns, batched_columns, check_rows, from_columns, sparse_product


def linear_operator(a: Any, shape: Shape | None = None) -> "Operator":
    """Return a sparse matrix or a linear operator of SciPy as one that multiplies tensors, recorded.

    ``L @ x`` and ``x @ L`` take tensors and arrays: vectors, matrices and stacks of matrices. The reverse sweep uses
    the transpose, which a `LinearOperator` has if it has an ``rmatvec``. Both modes and any order work, and batches of
    (co)tangents are multiplied at once.

    Matrices are copied: what is written to `a` later changes neither products nor derivatives of earlier ones. What a
    `LinearOperator` computes is its own; it must not change until derivatives are taken.

    Args:
        a: a sparse matrix or array of `scipy.sparse`, a `scipy.sparse.linalg.LinearOperator`, a matrix; or a tuple
            (data, indices, indptr) in compressed rows, as `scipy.sparse.csr_array` takes it, whose data may be a
            tensor, by which products are differentiable too.
        shape: of the matrix that is given as a tuple; by default as wide as the indices need.

    Raises:
        OperandError: if `a` is none of these.
        DtypeError: if it is complex.

    Example:
        >>> import scipy.sparse
        >>> from numtape.interop.scipy import linear_operator
        >>> differences = linear_operator(scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(2, 3)))
        >>> nt.grad(lambda x: ((differences @ x) ** 2).sum())(np.array([1.0, 2.0, 4.0]))
        array([-2., -2.,  4.])
    """
    name = "linear_operator"
    if isinstance(a, Operator):
        return a
    if isinstance(a, tuple):
        return _from_parts(name, a, shape)
    sparse = scipy_part(name, "sparse")
    if shape is not None:
        raise ArgumentError(f"{name}: shape is for a matrix that is given as (data, indices, indptr); leave it out.")
    if isinstance(a, Value):
        raise OperandError(f"{name}: a is a tensor; multiply tensors with @, or give its sparse parts.")
    if sparse.issparse(a):
        check_matrix(name, a)
        _check_real(name, a.dtype)
        rows = sparse.csr_array(a, copy=True)
        values = rows.data if rows.dtype.kind == "f" else rows.data.astype(np.float64)
        return Sparse(values, Pattern(name, rows.indices, rows.indptr, rows.shape))
    try:
        given = a.copy() if isinstance(a, np.ndarray) else a
        found = scipy_part(name, "sparse.linalg").aslinearoperator(given)
    except (TypeError, ValueError) as error:
        raise OperandError(
            f"{name}: a is a {type(a).__name__}; it must be a sparse matrix, a LinearOperator, a matrix, or a tuple "
            "(data, indices, indptr)."
        ) from error
    _check_real(name, found.dtype)
    return Applied(found)


def check_matrix(name: str, a: Any) -> None:
    """Raise unless a sparse array has two axes."""
    if a.ndim != 2:
        raise ShapeError(f"{name}: a is a sparse array of shape {a.shape}; it must have two axes, as a matrix has.")


def _from_parts(name: str, parts: tuple[Any, ...], shape: Shape | None) -> "Sparse":
    values, pattern = sparse_parts(name, parts, shape)
    return Sparse(values, pattern)


def sparse_parts(name: str, parts: tuple[Any, ...], shape: Shape | None) -> tuple[Any, Pattern]:
    """Return the values and the pattern of a matrix that is given as (data, indices, indptr)."""
    if len(parts) != 3:
        raise ArgumentError(f"{name}: a is a tuple of {len(parts)}; it must be (data, indices, indptr).")
    values, indices, indptr = parts
    values = values if isinstance(values, Value) else np.array(values, np.float64)
    if shape is None:
        shape = (len(indptr) - 1, int(np.max(indices, initial=-1)) + 1)
    pattern = Pattern(name, indices, indptr, tuple(shape))
    if values.shape != (pattern.size,):
        raise ArgumentError(f"{name}: data has shape {values.shape} for {pattern.size} indices; there is one for each.")
    return values, pattern


class Operator:
    """A linear map that multiplies tensors: ``L @ x``, ``x @ L``, ``L.T``."""

    shape: Shape

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Multiply, where NumPy is asked to."""
        if ufunc is not np.matmul or method != "__call__" or kwargs:
            return NotImplemented
        left, right = inputs
        return left.__matmul__(right) if isinstance(left, Operator) else right.__rmatmul__(left)

    def apply(self, x: Any) -> Any:
        """Return the product with a vector, or with a stack of matrices."""
        raise NotImplementedError

    @property
    def T(self) -> "Operator":
        """The transpose."""
        raise NotImplementedError

    def __matmul__(self, x: Any) -> Any:
        return self.apply(_as_factor(x))

    def __rmatmul__(self, x: Any) -> Any:
        x = _as_factor(x)
        return self.T @ x if x.ndim == 1 else (self.T @ x.swapaxes(-1, -2)).swapaxes(-1, -2)


def _as_factor(x: Any) -> Any:
    """Return what a linear operator is multiplied with, a tensor or an array."""
    if isinstance(x, Operator) or hasattr(x, "tocsr") or hasattr(x, "matvec"):
        what = "linear operator" if hasattr(x, "matvec") or isinstance(x, Operator) else "sparse matrix"
        raise OperandError(
            f"linear_operator: the other operand is a {what} of shape {tuple(x.shape)}; it must be a tensor or an "
            "array. Apply one after the other, as in L @ (M @ x), or multiply sparse matrices first."
        )
    return x if isinstance(x, Value) else np.asarray(x)


class Sparse(Operator):
    """A sparse matrix, whose values may be a tensor."""

    def __init__(self, values: Any, pattern: Pattern, transposed: bool = False) -> None:
        self.values = values
        self.pattern = pattern
        self.transposed = transposed
        self.shape = pattern.lengths(transposed)

    def apply(self, x: Any) -> Any:
        """Return the product with a vector, or with a stack of matrices."""
        return sparse_product(self.values, x, pattern=self.pattern, transposed=self.transposed)

    @property
    def T(self) -> "Sparse":
        """The transpose."""
        return Sparse(self.values, self.pattern, not self.transposed)

    def __repr__(self) -> str:
        return f"<linear operator of shape {self.shape}, sparse with {self.pattern.size} values>"


class Applied(Operator):
    """A linear operator of SciPy's."""

    def __init__(self, operator: Any, transposed: bool = False) -> None:
        self.operator = operator
        self.transposed = transposed
        self.shape = tuple(operator.shape[::-1] if transposed else operator.shape)

    def apply(self, x: Any) -> Any:
        """Return the product with a vector, or with a stack of matrices."""
        return apply_operator(x, operator=self)

    @property
    def T(self) -> "Applied":
        """The transpose."""
        return Applied(self.operator, not self.transposed)

    def product(self, columns: NDArray) -> Any:
        """Return the product with an array of one or two axes."""
        if not columns.size:  # SciPy's operators go column by column, and do not know what none makes.
            return np.zeros((self.shape[0], *columns.shape[1:]), columns.dtype)
        if not self.transposed:
            return self.operator.matmat(columns) if columns.ndim == 2 else self.operator.matvec(columns)
        try:
            return self.operator.rmatmat(columns) if columns.ndim == 2 else self.operator.rmatvec(columns)
        except NotImplementedError as error:
            raise NotDifferentiableError(
                f"linear_operator: the {type(self.operator).__name__} of shape {tuple(self.operator.shape)} has no "
                "transpose, which the reverse sweep needs; give it rmatvec=, or use forward mode (nt.jvp)."
            ) from error

    def __repr__(self) -> str:
        return f"<linear operator of shape {self.shape}, {type(self.operator).__name__}>"


def _operator_cost(out: Any, *shapes: Any, operator: Applied) -> int:
    # What it does is not known; this is what a matrix in its place would take.
    return int(2 * math.prod(out) * operator.shape[1])


@custom_op(
    vjp={"x": lambda g, operator: apply_operator(g, operator=operator.T)},
    jvp={"x": lambda t, operator: apply_operator(t, operator=operator)},
    check=False,
    linear=("x",),
    batch=batched_columns,
    cost=_operator_cost,
)
def apply_operator(x: NDArray, /, *, operator: Applied) -> NDArray:
    """Return the product of a linear operator with a vector or a stack of matrices."""
    check_rows("linear_operator", operator.shape, x.shape)
    columns, stack = as_columns(x)
    out = np.asarray(operator.product(columns))
    if out.dtype.kind == "c":
        raise DtypeError("linear_operator: the product is complex, but numtape computes with real numbers.")
    return np.asarray(from_columns(out, stack))


def _check_real(name: str, dtype: Any) -> None:
    if dtype is not None and np.dtype(dtype).kind not in "biuf":
        raise DtypeError(f"{name}: a has dtype {dtype}, but numtape computes with real numbers.")
