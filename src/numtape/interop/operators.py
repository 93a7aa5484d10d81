"""`linear_operator`: sparse matrices and SciPy's linear operators as differentiable ``L @ x``."""

import math
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..core.value import Value
from ..errors import ArgumentError, DtypeError, GradientError, NotDifferentiableError, OperandError, ShapeError
from ..transforms.custom_ops import custom_op
from .loading import scipy_part
from .sparse_products import Pattern, as_columns, batched_columns, check_rows, from_columns, sparse_product

#: By how much a transpose may differ from the one of its operator, in parts of the products.
_ASYMMETRY = 1e-6


def linear_operator(a: Any, shape: Shape | None = None) -> "Operator":
    """Return a sparse matrix or a linear operator of SciPy as one that multiplies tensors, recorded.

    ``L @ x`` and ``x @ L`` take tensors and arrays: vectors, matrices and stacks of matrices. The reverse sweep uses
    the transpose, which a `LinearOperator` has if it has an ``rmatvec``. Both modes and any order work, and batches of
    (co)tangents are multiplied at once. ``L(x)`` and ``L.dot(x)`` are ``L @ x``.

    Matrices are copied: what is written to `a` later changes neither products nor derivatives of earlier ones. What a
    `LinearOperator` computes is its own; it must not change until derivatives are taken. When its transpose is used
    first, it is compared with the operator itself on two random vectors.

    Args:
        a: a sparse matrix or array of `scipy.sparse`, a `scipy.sparse.linalg.LinearOperator`, a matrix; or a tuple
            (data, indices, indptr) in compressed rows, as `scipy.sparse.csr_array` takes it, whose data may be a
            tensor, by which products are differentiable too.
        shape: of the matrix that is given as a tuple; by default as wide as the indices need.

    Raises:
        OperandError: if `a` is none of these.
        DtypeError: if it is complex.
        GradientError: when a derivative is taken, if an ``rmatvec`` is not that of the transpose.

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
    return Applied(Products(found, is_trusted=isinstance(a, np.ndarray)))


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

    @property
    def dtype(self) -> Any:
        """The dtype of the matrix."""
        raise NotImplementedError

    def __call__(self, x: Any) -> Any:
        """Return ``L @ x``."""
        return self @ x

    def dot(self, x: Any) -> Any:
        """Return ``L @ x``."""
        return self @ x

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Multiply, where NumPy is asked to."""
        if ufunc is not np.matmul or method != "__call__" or kwargs:
            raise _no_arithmetic(self, f"np.{ufunc.__name__}")
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

    def _refuse(self, *others: Any) -> Any:
        raise _no_arithmetic(self, "+, -, * or /")

    __mul__ = __rmul__ = __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __neg__ = _refuse


def _no_arithmetic(operator: Operator, what: str) -> OperandError:
    return OperandError(
        f"linear_operator: {what} of the linear operator of shape {operator.shape} is not there, only L @ x, x @ L and "
        "L.T; compute with products, as in 2 * (L @ x) + M @ x, or with the matrices before."
    )


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

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    def apply(self, x: Any) -> Any:
        """Return the product with a vector, or with a stack of matrices."""
        return sparse_product(self.values, x, pattern=self.pattern, transposed=self.transposed)

    @property
    def T(self) -> "Sparse":
        """The transpose."""
        return Sparse(self.values, self.pattern, not self.transposed)

    def __repr__(self) -> str:
        return f"<linear operator of shape {self.shape}, sparse with {self.pattern.size} values>"


class Products:
    """Products with a linear operator of SciPy's and with its transpose, which is checked when it is used first."""

    def __init__(self, operator: Any, is_trusted: bool) -> None:
        self.operator = operator
        self._is_trusted = is_trusted

    def times(self, columns: NDArray) -> Any:
        """Return the product with an array of one or two axes."""
        return self.operator.matmat(columns) if columns.ndim == 2 else self.operator.matvec(columns)

    def transposed_times(self, columns: NDArray) -> Any:
        """Return the product of the transpose with an array of one or two axes."""
        try:
            if not self._is_trusted:
                self._check()
                self._is_trusted = True
            return self.operator.rmatmat(columns) if columns.ndim == 2 else self.operator.rmatvec(columns)
        except NotImplementedError as error:
            raise NotDifferentiableError(
                f"linear_operator: the {type(self.operator).__name__} of shape {tuple(self.operator.shape)} has no "
                "transpose, which the reverse sweep needs; give it rmatvec=, or use forward mode (nt.jvp)."
            ) from error

    def _check(self) -> None:
        """Raise unless <u, A v> is <A^T u, v>: nothing else tells that a gradient is wrong."""
        rng = np.random.default_rng(0)
        dtype = np.float32 if self.operator.dtype == np.float32 else np.float64
        u, v = (rng.normal(size=length).astype(dtype) for length in self.operator.shape)
        there = np.asarray(self.operator.matvec(v), np.float64)
        back = np.asarray(self.operator.rmatvec(u), np.float64)
        left, right = float(u @ there), float(back @ v)
        scale = float(np.linalg.norm(u) * np.linalg.norm(there) + np.linalg.norm(back) * np.linalg.norm(v))
        allowed = max(_ASYMMETRY, 1e3 * float(np.finfo(dtype).eps))
        # What is not finite shows in products by itself.
        if abs(left - right) > allowed * scale:
            raise GradientError(
                f"linear_operator: rmatvec of the {type(self.operator).__name__} of shape "
                f"{tuple(self.operator.shape)} is not the product with the transpose: for random u and v, <u, A v> is "
                f"{left:.6g} and <rmatvec(u), v> is {right:.6g}. Gradients would be wrong; mend rmatvec, or use "
                "forward mode (nt.jvp)."
            )


class Applied(Operator):
    """A linear operator of SciPy's."""

    def __init__(self, products: Products, transposed: bool = False) -> None:
        self.products = products
        self.operator = products.operator
        self.transposed = transposed
        self.shape = tuple(self.operator.shape[::-1] if transposed else self.operator.shape)

    @property
    def dtype(self) -> Any:
        """The dtype that the operator says that it has."""
        return self.operator.dtype

    def apply(self, x: Any) -> Any:
        """Return the product with a vector, or with a stack of matrices."""
        return apply_operator(x, operator=self)

    @property
    def T(self) -> "Applied":
        """The transpose."""
        return Applied(self.products, not self.transposed)

    def product(self, columns: NDArray) -> Any:
        """Return the product with an array of one or two axes."""
        if not columns.size:  # SciPy's operators go column by column, and do not know what none makes.
            return np.zeros((self.shape[0], *columns.shape[1:]), columns.dtype)
        return self.products.transposed_times(columns) if self.transposed else self.products.times(columns)

    def __repr__(self) -> str:
        return f"<linear operator of shape {self.shape}, {type(self.operator).__name__}>"


def _operator_cost(out: Any, *shapes: Any, operator: Applied) -> int:
    # What it does is not known; this is what a matrix in its place would take.
    return int(2 * math.prod(out) * operator.shape[1])


@custom_op(
    vjp={"x": lambda g, operator: apply_operator(g, operator=operator.T)},
    jvp={"x": lambda t, operator: apply_operator(t, operator=operator)},
    check=False,
    is_linear_backward=True,
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
