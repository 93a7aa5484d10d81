"""`spsolve`: solutions of sparse linear systems, differentiable by the right side and by the matrix's values."""

import math
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import LinearAlgebraError, OperandError, ShapeError
from ..transforms.custom_ops import custom_op
from .loading import scipy_part
from .operators import check_matrix, sparse_parts
from .sparse_products import Pattern, as_columns, batched_columns, check_rows, from_columns, outer, sparse_product
from .vectors import as_operand

#: How often rows and columns are scaled, by turns, to bring their largest elements to 1.
_SCALINGS = 5


def spsolve(a: Any, b: Any) -> Any:
    """Return the solution x of ``a @ x = b`` for a sparse matrix, by one sparse factorisation.

    The adjoint is one more solve, with the transpose and the same factors. Both modes and any order work. The matrix is
    copied: what is written to it later does not change derivatives.

    Args:
        a: a square sparse matrix or array of `scipy.sparse`; or a tuple (data, indices, indptr) in compressed rows,
            as `scipy.sparse.csr_array` takes it, whose data may be a tensor.
        b: a tensor or an array: a vector of shape (n,), or matrices of shape (..., n, k). Integers count as float64,
            in a tensor as numtape's default float.

    Raises:
        LinearAlgebraError: if the matrix is singular, exactly or up to rounding.

    Example:
        >>> import scipy.sparse
        >>> from numtape.interop.scipy import spsolve
        >>> a = scipy.sparse.csr_array(np.array([[2.0, 0.0], [1.0, 4.0]]))
        >>> nt.grad(lambda b: spsolve(a, b).sum())(np.array([2.0, 5.0]))
        array([0.375, 0.25 ])
        >>> data, indices, indptr = a.data, a.indices, a.indptr
        >>> nt.grad(lambda data: spsolve((data, indices, indptr), np.array([2.0, 5.0])).sum())(data)
        array([-0.375, -0.25 , -0.25 ])
    """
    name = "spsolve"
    if hasattr(b, "tocsr"):
        raise OperandError(f"{name}: b is a sparse matrix; it must be a tensor or an array. Pass its toarray().")
    b = as_operand(b)
    if isinstance(a, tuple):
        length = b.shape[0 if b.ndim == 1 else -2] if b.ndim else 0
        values, pattern = sparse_parts(name, a, (length, length) if b.ndim and len(a[-1]) == length + 1 else None)
    else:
        sparse = scipy_part(name, "sparse")
        if not sparse.issparse(a):
            raise OperandError(
                f"{name}: a is a {type(a).__name__}; it must be a sparse matrix or a tuple (data, indices, indptr). "
                "Use nt.solve for dense matrices."
            )
        check_matrix(name, a)
        rows = sparse.csr_array(a, copy=True)
        values, pattern = as_operand(rows.data), System(name, rows.indices, rows.indptr, rows.shape)
    if pattern.shape[0] != pattern.shape[1]:
        raise ShapeError(f"{name}: a has shape {pattern.shape}; it must be square.")
    if not isinstance(pattern, System):
        pattern = System(name, pattern.columns, pattern.starts, pattern.shape)
    return sparse_solution(values, b, pattern=pattern, transposed=False)


class System(Pattern):
    """The pattern of a square matrix, which remembers the factors of the values that it last saw."""

    _last: tuple[NDArray, Any] | None = None

    def factors(self, values: NDArray) -> Any:
        """Return the sparse factors of the matrix with these values."""
        last = self._last
        if last is None or not np.array_equal(last[0], values):
            last = self._last = values.copy(), self._factorised(values)
        return last[1]

    def _factorised(self, values: NDArray) -> Any:
        linalg = scipy_part(self.name, "sparse.linalg")
        if not np.all(np.isfinite(values)):
            raise LinearAlgebraError(f"{self.name}: the matrix of shape {self.shape} contains NaN or infinity.")
        matrix = self.matrix(values.astype(np.float64)).tocsc()
        try:
            factors = linalg.splu(matrix)
        except RuntimeError as error:
            raise LinearAlgebraError(
                f"{self.name}: the matrix of shape {self.shape} is singular; check its pattern, or add a small "
                "multiple of the identity."
            ) from error
        condition = _condition(linalg, matrix, factors) if self.shape[0] else 1.0
        if not condition < 0.1 / np.finfo(np.float64).eps:
            raise LinearAlgebraError(
                f"{self.name}: the matrix of shape {self.shape} is singular up to rounding: its condition number is "
                f"{condition:.1e}, so no digit of a solution is right. Fix what it leaves open, as the level of a "
                "function of which it knows only differences, or add a small multiple of the identity."
            )
        return factors


def _condition(linalg: Any, matrix: Any, factors: Any) -> float:
    """Return the condition number of a matrix, about, scaled so that the units of unknowns and equations do not matter.

    The factors give products with the inverse, and a few of these its norm.
    """
    rows, columns, scaled = np.ones(matrix.shape[0]), np.ones(matrix.shape[0]), abs(matrix)
    for _ in range(_SCALINGS):
        scales = [np.sqrt(scaled.max(axis=axis).toarray().ravel()) for axis in (1, 0)]
        scaled = (scaled / scales[0][:, None] / scales[1]).tocsc()
        rows, columns = rows * scales[0], columns * scales[1]
    inverse = linalg.LinearOperator(
        matrix.shape,
        matvec=lambda x: columns * factors.solve(rows * x.ravel()),
        rmatvec=lambda x: rows * factors.solve(columns * x.ravel(), trans="T"),
        dtype=np.float64,
    )
    # With one vector at a time no random numbers are drawn.
    with np.errstate(all="ignore"):
        return float(scaled.sum(axis=0).max()) * float(linalg.onenormest(inverse, t=1))


def _solution_cost(out: Any, *shapes: Any, pattern: Pattern, transposed: bool) -> int:
    # The factors of a sparse matrix have some times its values.
    return int(20 * pattern.size * max(1, math.prod(out) // max(1, pattern.shape[0])))


def _pull(g: Any, values: Any, pattern: System, transposed: bool, out: Any, needs: tuple[bool, ...]) -> Any:
    # a dx = db - da x: the cotangent of b solves a^T y = g, and that of a is -y x^T, where a has values.
    y = sparse_solution(values, g, pattern=pattern, transposed=not transposed)
    return (-outer(y, out, pattern, transposed) if needs[0] else None), y


def _push_values(t: Any, values: Any, out: Any, pattern: System, transposed: bool) -> Any:
    moved = sparse_product(t, out, pattern=pattern, transposed=transposed)
    return -sparse_solution(values, moved, pattern=pattern, transposed=transposed)


def _push_b(t: Any, values: Any, pattern: System, transposed: bool) -> Any:
    return sparse_solution(values, t, pattern=pattern, transposed=transposed)


@custom_op(
    vjp=_pull,
    jvp={"values": _push_values, "b": _push_b},
    check=False,
    is_linear_backward=True,
    linear=("b",),
    batch=batched_columns,
    cost=_solution_cost,
    precision="widen",
    to_float=True,
)
def sparse_solution(values: NDArray, b: NDArray, /, *, pattern: System, transposed: bool) -> NDArray:
    """Return the solution of a sparse system, or of the one with its transpose."""
    check_rows(pattern.name, pattern.shape, b.shape)
    columns, stack = as_columns(b)
    right = np.ascontiguousarray(columns, np.float64)
    solution = pattern.factors(values).solve(right, trans="T" if transposed else "N")
    return np.asarray(from_columns(solution, stack)).astype(b.dtype, copy=False)
