"""Triangular decompositions of matrices: Cholesky and QR."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import Array, NDArray
from ..core import batching
from ..core.declare import composed, differentiable, face_of
from ..core.facts import Structure
from ..core.value import array_of
from ..errors import ArgumentError, GradientError, LinearAlgebraError, ShapeError
from .joining import concat
from .matrices import matmul
from .samples import rejected, sample, values
from .selection import where
from .shapes import as_array
from .systems import (
    check_square,
    cubic_cost,
    matrices_with,
    run,
    solve,
    square_rejected,
    symmetric_with,
    transposed,
)

#: How far a matrix may be from symmetric, in parts of its largest element, to be taken for its symmetric part.
_ASYMMETRY = 1e-2
_ASYMMETRIC = "is not symmetric; pass (x + x.mT) / 2, or fill the triangle that is missing"


def symmetric(x: Array) -> Array:
    """Return the symmetric parts of matrices."""
    return (x + transposed(x)) * 0.5


def symmetric_part(name: str, x: NDArray) -> NDArray:
    """Return the symmetric part, of which the function is one; raise if there is much else."""
    check_square(name, x)
    if x.size and np.max(np.abs(x - transposed(x))) > _ASYMMETRY * np.max(np.abs(x)):
        raise ArgumentError(f"{name}: x has shape {x.shape} and {_ASYMMETRIC}.")
    part: NDArray = symmetric(x)
    return part


def asymmetric_rejected(name: str) -> Any:
    """Return the rejected sample of every function of symmetric matrices."""
    return rejected(ArgumentError, f"{name}: x has shape (2, 2) and {_ASYMMETRIC}.", np.array([[2.0, 0.0], [1.0, 2.0]]))


def _triangle(x: Array, diagonal: float, is_upper: bool = False) -> Array:
    """Return the lower (or upper) triangle, with the diagonal multiplied by a number."""
    ones = np.ones(x.shape[-2:], x.dtype)
    mask = (np.triu(ones, 1) if is_upper else np.tril(ones, -1)) + np.eye(*x.shape[-2:], dtype=x.dtype) * diagonal
    return where(mask != 0, x * mask.astype(x.dtype), 0.0)


def _divided(x: Array, lower: Array) -> Array:
    """Return ``inv(L)^T x inv(L)``."""
    left = solve(transposed(lower), x)
    return transposed(solve(transposed(lower), transposed(left)))


def _cholesky_pull(g: Array, out: Array) -> Array:
    # With P(m) the lower triangle of m, half its diagonal: the symmetric part of inv(L)^T P(L^T g) inv(L).
    inner = _triangle(transposed(out) @ _triangle(g, 1.0), 0.5)
    return symmetric(_divided(inner, out))


def _cholesky_push(t: Array, out: Array) -> Array:
    # dL = L P(inv(L) dx inv(L)^T).
    left = solve(out, symmetric(t))
    return out @ _triangle(solve(out, transposed(left)), 0.5)


_INDEFINITE = "is not positive definite; add a small multiple of the identity if it should be"


@differentiable(
    vjps=dict(x=_cholesky_pull),
    jvps=dict(x=_cholesky_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    numpy=np.linalg.cholesky,
    samples=lambda: [
        sample(symmetric_with(3, 3)),
        sample(symmetric_with(2, 2, seed=1)),
        sample(symmetric_with(1, 1)),
        sample(symmetric_with(4, 4, low=0.5)),
        sample(symmetric_with(2, 3, 3)),
        sample(symmetric_with(2, 1, 2, 2)),
        sample(np.diag([1.0, 2.0, 0.5])),
        sample(values(0, 0)),
        sample(values(0, 2, 2)),
        *square_rejected("cholesky"),
        asymmetric_rejected("cholesky"),
        rejected(LinearAlgebraError, f"cholesky: x has shape (2, 2), and x {_INDEFINITE}.", -np.eye(2)),
        rejected(
            ArgumentError,
            f"cholesky: x has shape (2, 2, 2), and x[1] {_INDEFINITE}.",
            np.stack([np.eye(2), np.ones((2, 2)) - np.eye(2)]),
        ),
    ],
)
def _cholesky(x: Array, /) -> Array:
    """Return the lower triangular factors L of ``x = L @ L.mT``."""
    return run("cholesky", np.linalg.cholesky, symmetric_part("cholesky", x), _INDEFINITE)


@face_of(_cholesky)
def cholesky(x: Array, upper: bool = False) -> Array:
    """Return the lower triangular factors L of ``x = L @ L.mT``.

    The function is one of the symmetric part of `x`, so its gradient is symmetric.

    Args:
        x: symmetric positive definite matrices, of shape (..., n, n).
        upper: return the transpose of L.

    Raises:
        ArgumentError: if a matrix is not positive definite, or not nearly symmetric.

    Example:
        >>> nt.cholesky(np.array([[4.0, 2.0], [2.0, 10.0]]))
        array([[2., 0.],
               [1., 3.]])
    """
    return transposed(_cholesky(x)) if upper else _cholesky(x)


def _right_divided(x: Array, r: Array) -> Array:
    """Return ``x inv(r)`` for a triangular r of a QR decomposition."""
    array = array_of(r)
    sizes = np.abs(np.diagonal(array, axis1=-2, axis2=-1))
    limit = sizes.shape[-1] * np.finfo(sizes.dtype).eps * np.max(sizes, axis=-1, initial=0.0, keepdims=True)
    if np.any(sizes <= limit):
        raise GradientError(
            f"qr: the first {sizes.shape[-1]} columns of a matrix are linearly dependent; there, Q and R have no "
            "derivative."
        )
    return transposed(solve(transposed(r), transposed(x)))


def _qr_pull(g: Sequence[Any], out: tuple[Array, Array]) -> Array:
    # m = r g_r^T - g_q^T q, made symmetric from its lower triangle: (g_q + q m) inv(r)^T.
    g_q, g_r = g
    q, r = out
    m: Any = 0.0
    if g_r is not None:
        m = r @ transposed(_triangle(g_r, 1.0, is_upper=True))
    if g_q is not None:
        m = m - transposed(g_q) @ q
    lower = _triangle(m, 1.0)
    total = q @ (lower + transposed(_triangle(m, 0.0)))
    return _right_divided(total if g_q is None else total + g_q, transposed(r))


def _qr_push(t: Array, out: tuple[Array, Array]) -> tuple[Array, Array]:
    # With c = q^T dx inv(r) and w = tril(c, -1) - tril(c, -1)^T: dq = q w + dx inv(r) - q c and dr = (c - w) r.
    q, r = out
    scaled = _right_divided(t, r)
    c = transposed(q) @ scaled
    below = _triangle(c, 0.0)
    w = below - transposed(below)
    return q @ (w - c) + scaled, (c - w) @ r


@differentiable(
    vjps=dict(x=_qr_pull),
    jvps=dict(x=_qr_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="where columns are linearly dependent",
    reference=np.linalg.qr,
    samples=lambda: [
        sample(matrices_with(3, 3)),
        sample(matrices_with(4, 2)),
        sample(matrices_with(2, 2, seed=1)),
        sample(matrices_with(3, 1)),
        sample(matrices_with(1, 1)),
        sample(matrices_with(2, 4, 3)),
        sample(matrices_with(2, 1, 3, 2)),
        sample(values(3, 0)),
        sample(values(0, 3, 2)),
    ],
)
def _tall_qr(x: Array, /) -> tuple[Array, Array]:
    """Return the QR decomposition of matrices with at least as many rows as columns."""
    q, r = np.linalg.qr(x)
    return q, r


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Any
    R: Any


@composed(
    rounds_once=True,
    precision="widen",
    kinks="where the first columns are linearly dependent",
    numpy=np.linalg.qr,
    samples=lambda: [
        sample(matrices_with(3, 3)),
        sample(matrices_with(4, 2)),
        sample(matrices_with(2, 4)),
        sample(matrices_with(2, 2, 3)),
        sample(matrices_with(1, 3)),
        sample(matrices_with(3, 1)),
        sample(matrices_with(3, 2), mode="r"),
        sample(matrices_with(2, 3), mode="r"),
        sample(values(3, 0)),
        rejected(ShapeError, "qr: x has shape (3,); a matrix has two axes, a stack of them more.", np.ones(3)),
        rejected(
            ArgumentError,
            "qr: mode is 'complete'; modes are 'reduced' (q and r) and 'r' (r only).",
            np.ones((3, 2)),
            mode="complete",
        ),
    ],
)
def qr(x: Array, mode: str = "reduced") -> Any:
    """Return orthonormal columns `Q` and upper triangular `R` with ``x = Q @ R``.

    The derivative exists where the first ``min(m, n)`` columns are linearly independent.

    Args:
        x: of shape (..., m, n). With ``k = min(m, n)``, Q has shape (..., m, k) and R has shape (..., k, n).
        mode: "reduced", or "r" for R alone.

    Example:
        >>> q, r = nt.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
        >>> np.allclose(q @ r, [[3.0, 1.0], [4.0, 2.0]])
        True
    """
    if mode not in ("reduced", "r"):
        raise ArgumentError(f"qr: mode is {mode!r}; modes are 'reduced' (q and r) and 'r' (r only).")
    x = as_array(x)
    if len(x.shape) < 2:
        raise ShapeError(f"qr: x has shape {x.shape}; a matrix has two axes, a stack of them more.")
    rows, columns = x.shape[-2:]
    if rows >= columns:
        q, r = _tall_qr(x)
    else:
        # The first columns determine q; the others are only rotated.
        q, r = _tall_qr(x[..., :rows])
        r = concat((r, matmul(transposed(q), x[..., rows:])), axis=-1)
    return r if mode == "r" else QRResult(q, r)
