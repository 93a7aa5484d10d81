"""Pseudoinverses, least squares, powers and norms of matrices."""

import functools
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core import batching
from ..core.composing import rounded_once
from ..core.declare import composed, differentiable, discrete, face_of, numpy_faces
from ..core.facts import Structure
from ..core.value import Value, array_of
from ..dtypes import float64, is_float, widened
from ..errors import ArgumentError, OperandError, ShapeError
from .matrices import matmul
from .norms import norm
from .origins import derived
from .reductions import sum as total
from .samples import rejected, sample, values
from .selection import where
from .shapes import as_array, as_arrays
from .spectra import svd, svdvals
from .systems import check_matrix, cubic_cost, inv, matrices_with, run, transposed


def _pinv_pull(g: Array, x: Array, out: Array) -> Array:
    # -p^T g p^T + (1 - x p) g^T p p^T + p^T p g^T (1 - p x), the transpose of the JVP below.
    p, q, h = out, transposed(out), transposed(g)
    left = (h @ p) @ q
    right = p @ h
    return left - x @ (p @ left) + q @ (right - (right @ p) @ x - g @ q)


def _pinv_push(t: Array, x: Array, out: Array) -> Array:
    # dp = -p dx p + p p^T dx^T (1 - x p) + (1 - p x) dx^T p^T p, as long as the rank does not change.
    p, q, u = out, transposed(out), transposed(t)
    left = q @ u
    right = (u @ q) @ p
    return p @ (left - (left @ x) @ p - t @ p) + right - p @ (x @ right)


def _pinv_reference(x: Any, rtol: Any = None) -> Any:
    return np.linalg.pinv(x, rtol=rtol)


@differentiable(
    vjps=dict(x=_pinv_pull),
    jvps=dict(x=_pinv_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="where the rank changes",
    numpy=np.linalg.pinv,
    reference=_pinv_reference,
    samples=lambda: [
        sample(matrices_with(3, 3)),
        sample(matrices_with(4, 2)),
        sample(matrices_with(2, 4)),
        sample(matrices_with(3, 1)),
        sample(matrices_with(1, 1)),
        sample(matrices_with(2, 4, 3)),
        sample(matrices_with(2, 1, 2, 3)),
        sample(matrices_with(3, 3), rtol=1e-3),
        sample(matrices_with(3, 2) @ np.diag([1.0, 0.0]), skip_derivatives="the rank changes"),
        sample(values(3, 0)),
        rejected(ShapeError, "pinv: x has shape (3,); a matrix has two axes, a stack of them more.", np.ones(3)),
    ],
)
def _pinv(x: Array, /, *, rtol: float | None = None) -> Array:
    """Return the pseudoinverses of matrices."""
    check_matrix("pinv", x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    cutoff = rtol
    return run("pinv", lambda m: np.linalg.pinv(m, rtol=cutoff), x, "has a decomposition that did not converge")


@discrete(
    samples=lambda: [
        sample(np.array([3.0, 2.0, 0.1]), rtol=0.1),
        sample(np.array([3.0, 2.0, 0.1]), rtol=0.0),
        sample(np.array([3.0, 2.0, 0.0]), rtol=0.0),
        sample(np.array([[3.0, 2.0], [0.2, 0.1]]), rtol=0.6),
        sample(np.array([[3.0, 2.0], [0.2, 0.1]]), rtol=np.array([[0.6], [0.1]])),
        sample(np.array([1.0]), rtol=0.5),
        sample(np.zeros((2, 0)), rtol=0.5),
        sample(np.array([np.nan, 1.0]), rtol=0.5),
    ],
)
def _stays(s: Array, /, *, rtol: Any) -> Array:
    """Return which singular values, in falling order, do not count as zero."""
    return s > rtol * s[..., :1]


@face_of(_pinv)
def pinv(
    x: Array, rcond: Array | float | None = None, hermitian: bool = False, rtol: Array | float | None = None
) -> Array:
    """Return the Moore-Penrose pseudoinverses of matrices.

    The derivative is that along changes of `x` that keep its rank. Where `rtol` cuts singular values off that are not
    zero, it is by way of `svd`.

    Args:
        x: of shape (..., m, n); the result has shape (..., n, m).
        rcond: NumPy's older name of `rtol`.
        hermitian: accepted for NumPy's sake.
        rtol: singular values up to this part of the largest count as zero; by default max(m, n) times the precision.

    Example:
        >>> nt.pinv(np.array([[2.0], [0.0]]))
        array([[0.5, 0. ]])
    """
    rtol = rcond if rtol is None else rtol
    if np.asarray(0.0 if rtol is None else array_of(rtol)).dtype.kind not in "biuf":
        raise OperandError(f"pinv: rcond is {rtol!r}; it must be a number, or one for each matrix.")
    if rtol is None or not isinstance(x, Value) or not _cuts_off(array_of(x), rtol):
        return _pinv(x, rtol=rtol)
    u, s, vh = svd(x)
    is_kept = derived(_stays, s, rtol=rtol)
    inverse = where(is_kept, 1.0 / where(is_kept, s, 1.0), 0.0)
    return matmul(transposed(vh) * inverse[..., None, :], transposed(u))


def _cuts_off(x: NDArray, rtol: float) -> bool:
    """Say whether a tolerance takes singular values of matrices for zero that are not."""
    if not is_float(x.dtype) or x.ndim < 2 or not x.size or not np.isfinite(x).all():
        return False
    values = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    parts = values / np.maximum(values[..., :1], np.finfo(np.float64).tiny)
    return bool(((parts <= rtol) & (parts > max(x.shape[-2:]) * np.finfo(widened(x.dtype)).eps)).any())


def _lstsq_reference(a: Any, b: Any) -> Any:
    return np.linalg.pinv(a) @ b if a.ndim > 2 else np.linalg.lstsq(a, b)[0]


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    reference=_lstsq_reference,
    samples=lambda: [
        sample(matrices_with(4, 2), values(4, seed=1)),
        sample(matrices_with(4, 2), values(4, 3, seed=1)),
        sample(matrices_with(3, 3), values(3, seed=1)),
        sample(matrices_with(2, 4), values(2, seed=1)),
        sample(matrices_with(2, 4), values(2, 3, seed=1)),
        sample(matrices_with(3, 1), values(3, seed=1)),
        sample(matrices_with(2, 4, 2), values(2, 4, 3, seed=1)),
        sample(matrices_with(2, 4, 2), values(4, seed=1)),
        rejected(
            ShapeError,
            "lstsq: a has shape (4, 2) and b has shape (3,); the rows of a (4) must be as many as those of b (3).",
            np.ones((4, 2)),
            np.ones(3),
        ),
    ],
)
def lstsq(a: Array, b: Array, rcond: float | None = None) -> Array:
    """Return the x of least norm among those that make the norm of ``a @ x - b`` least.

    The derivative is that along changes of `a` that keep its rank. (`np.linalg.lstsq` of tensors returns the
    residuals, the rank and the singular values too.)

    Args:
        a: of shape (..., m, n).
        b: a vector of shape (m,), or matrices of shape (..., m, k).
        rcond: singular values up to this part of the largest count as zero.

    Example:
        >>> nt.lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0])).round(12)
        array([2.])
    """
    a, b = as_arrays(a, b)
    rows = b.shape[0 if len(b.shape) == 1 else -2] if b.shape else None
    if len(a.shape) < 2 or rows != a.shape[-2]:
        raise ShapeError(
            f"lstsq: a has shape {a.shape} and b has shape {b.shape}; the rows of a "
            f"({a.shape[-2] if len(a.shape) > 1 else 'none'}) must be as many as those of b ({rows})."
        )
    return matmul(pinv(a, rcond), b)


def _numpy_lstsq(a: Array, b: Array, rcond: float | None = None) -> tuple[Array, Array, int, Array]:
    """Return all that `np.linalg.lstsq` does."""
    x = lstsq(a, b, rcond)
    s = svdvals(a)
    rows, columns = a.shape
    lengths = array_of(s)
    cutoff = max(rows, columns) * np.finfo(lengths.dtype).eps if rcond is None else rcond
    rank = int(np.sum(lengths > cutoff * np.max(lengths, initial=0.0)))
    rest = matmul(a, x) - b
    residuals = (rest * rest).sum(axis=0, keepdims=len(b.shape) == 1)
    return x, residuals if rank == columns < rows else residuals[:0], rank, s


numpy_faces[np.linalg.lstsq] = _numpy_lstsq


@composed(
    rounds_once=True,
    precision="widen",
    numpy=np.linalg.matrix_power,
    samples=lambda: [
        sample(matrices_with(3, 3), n=2),
        sample(matrices_with(3, 3), n=0),
        sample(matrices_with(3, 3), n=1),
        sample(matrices_with(3, 3), n=-1),
        sample(matrices_with(2, 2), n=7),
        sample(matrices_with(2, 2), n=-3),
        sample(matrices_with(2, 3, 3), n=3),
        sample(matrices_with(2, 1, 2, 2), n=-2),
        sample(matrices_with(1, 1), n=5),
        rejected(
            ShapeError,
            "matrix_power: x has shape (2, 3); matrices must be square, the last two axes of one length.",
            np.ones((2, 3)),
            n=2,
        ),
        rejected(OperandError, "matrix_power: n is 0.5; it must be an integer.", np.ones((2, 2)), n=0.5),
    ],
)
def matrix_power(x: Array, n: int) -> Array:
    """Return integer powers of square matrices; those of the inverse for negative `n`.

    Example:
        >>> nt.matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 3)
        array([[1., 3.],
               [0., 1.]])
    """
    x = as_array(x)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"matrix_power: x has shape {x.shape}; matrices must be square, the last two axes of one length."
        )
    if n in (0, 1):
        # The identity, or a copy; the derivative is zero, or one.
        return where(np.bool_(n), x, np.eye(x.shape[-1], dtype=x.dtype))
    power: Any = None
    square = inv(x) if n < 0 else x
    n = int(n) if n > 0 else -int(n)
    while n:
        if n % 2:
            power = square if power is None else matmul(power, square)
        n //= 2
        if n:
            square = matmul(square, square)
    return power


_ORDERS: tuple[Any, ...] = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)


@composed(
    precision="widen",
    numpy=np.linalg.matrix_norm,
    kinks="at 0, where the derivative is taken as 0; where singular values or sums are equal, or zero",
    samples=lambda: [
        *(sample(matrices_with(3, 2), ord=order) for order in _ORDERS),
        sample(matrices_with(3, 3)),
        sample(matrices_with(2, 3, 2), keepdims=True),
        sample(matrices_with(2, 3, 2), keepdims=True, ord="nuc"),
        sample(matrices_with(2, 1, 2, 3), ord=2),
        sample(matrices_with(2, 2, 3), keepdims=True, ord=1),
        sample(np.zeros((2, 2)), skip_derivatives="the norm of zero"),
        rejected(
            ArgumentError,
            "matrix_norm: ord is 3; norms are 'fro', 'nuc', 1, -1, 2, -2, inf, -inf.",
            np.ones((2, 2)),
            ord=3,
        ),
        rejected(ShapeError, "matrix_norm: x has shape (3,); a matrix has two axes, a stack of them more.", np.ones(3)),
    ],
)
def matrix_norm(x: Array, ord: Any = "fro", keepdims: bool = False) -> Array:
    """Return norms of matrices.

    Args:
        x: of shape (..., m, n); the result has shape (...).
        ord: "fro" (root of the sum of squares), "nuc" (sum of singular values), 2 and -2 (the largest and smallest
            singular value), 1 and -1 (the largest and smallest column sum of absolute values), inf and -inf (of rows).
        keepdims: keep the last two axes, with length 1.

    Example:
        >>> nt.matrix_norm(np.array([[3.0, 0.0], [0.0, -4.0]]), ord="nuc")
        array(7.)
    """
    x = as_array(x)
    if len(x.shape) < 2:
        raise ShapeError(f"matrix_norm: x has shape {x.shape}; a matrix has two axes, a stack of them more.")
    if ord not in _ORDERS:
        raise ArgumentError(f"matrix_norm: ord is {ord!r}; norms are {', '.join(map(repr, _ORDERS))}.")
    if ord not in ("nuc", 2, -2):
        return norm(x, ord, (-2, -1), keepdims)
    return _norm_of_singular_values(x, ord, keepdims)


@functools.partial(rounded_once, wide=float64)
def _norm_of_singular_values(x: Array, ord: Any, keepdims: bool) -> Array:
    s = svdvals(x)
    out = total(s, axis=-1) if ord == "nuc" else s[..., 0 if ord == 2 else -1]
    return out[..., None, None] if keepdims else out
