"""Determinants of square matrices, and their logarithms."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core import batching
from ..core.declare import differentiable
from ..core.facts import Structure
from ..core.value import Lifted, Value, array_of
from ..errors import ArgumentError, GradientError, NotDifferentiableError
from .samples import sample, values
from .spectra import diagonal_matrices
from .systems import check_square, cubic_cost, inv, matrices_with, run, square_rejected, transposed


def _products_but_one(s: NDArray) -> NDArray:
    """Return, for each element along the last axis, the product of all others."""
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return np.asarray(before * after)


def _products_but_two(s: NDArray) -> NDArray:
    """Return, for each two elements along the last axis, the product of all others; 0 on the diagonal.

    The elements fall along the axis. Dividing by the larger of the two is right unless it is zero; then there is
    another zero among the others, but for the last two elements.
    """
    n = s.shape[-1]
    is_zero = s == 0
    larger = np.where(is_zero, 0.0, 1.0 / np.where(is_zero, 1.0, s))
    upper = np.triu(larger[..., :, None] * _products_but_one(s)[..., None, :], 1)
    if n > 1:
        upper[..., n - 2, n - 1] = np.prod(s[..., : n - 2], axis=-1)
    return np.asarray(upper + transposed(upper))


def _sign(u: NDArray, vh: NDArray) -> NDArray:
    return np.asarray(np.sign(np.linalg.det(u) * np.linalg.det(vh)))[..., None, None]


def _cofactors_slope(t: Array, x: Array) -> Array:
    """Return the derivative of the cofactors in a direction; it is its own transpose, being a second derivative."""
    if isinstance(x, Lifted) or (isinstance(x, Value) and x.node is not None):
        return _cofactors_slope_by_inverse(t, x)
    x = array_of(x)
    # In the bases of the singular vectors x is diagonal, and there d cof_ii = sum_k p_ik dx_kk and d cof_ij = -p_ij
    # dx_ji, where p_ij is the product of all singular values but the i-th and j-th.
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    products = _products_but_two(s)
    m = transposed(u) @ t @ transposed(vh)
    diagonal = (m * np.eye(s.shape[-1], dtype=s.dtype)).sum(axis=-1)
    inner = diagonal_matrices((products * diagonal[..., None, :]).sum(axis=-1)) - products * transposed(m)
    return _sign(u, vh) * (u @ inner @ vh)


def _cofactors_slope_by_inverse(t: Array, x: Any) -> Array:
    # Third derivatives and on: with b = inv(x)^T, d cof = <b, dx> cof - cof dx^T b.
    s = np.linalg.svd(array_of(x), compute_uv=False)
    if np.any(s[..., -1:] <= np.sqrt(np.finfo(s.dtype).eps) * s[..., :1]):
        raise NotDifferentiableError(
            f"det: x has shape {x.shape} and is singular or nearly so; there, only first and second derivatives are "
            "available."
        )
    b = transposed(inv(x))
    cofactor = det(x)[..., None, None] * b
    return (b * t).sum(axis=(-2, -1), keepdims=True) * cofactor - cofactor @ transposed(t) @ b


def _det_samples() -> list[Any]:
    return [
        sample(matrices_with(3, 3)),
        sample(matrices_with(2, 2, seed=1)),
        sample(matrices_with(1, 1)),
        sample(matrices_with(4, 4)),
        sample(matrices_with(2, 3, 3)),
        sample(matrices_with(2, 1, 2, 2)),
        sample(np.diag([1.0, -2.0, 1.0])),
        sample(values(0, 0)),
        sample(values(0, 2, 2)),
    ]


def _singular_samples(skip_derivatives: str = "") -> list[Any]:
    return [
        sample(x, skip_derivatives=skip_derivatives)
        for x in (
            np.ones((2, 2)),
            np.zeros((2, 2)),
            np.zeros((3, 3)),
            np.diag([1.0, 1.0, 0.0]),
            np.diag([2.0, 0.0, 0.0]),
            np.arange(9.0).reshape(3, 3),
            np.stack([np.eye(3), np.ones((3, 3))]),
            values(4, 2) @ values(2, 4, seed=1),
        )
    ]


def _cofactors_reference(x: Any) -> Any:
    """Compute each cofactor as the determinant of a minor."""
    out = np.empty_like(x)
    for i in range(x.shape[-1]):
        for j in range(x.shape[-1]):
            minor = np.delete(np.delete(x, i, -2), j, -1)
            out[..., i, j] = (-1.0) ** (i + j) * np.linalg.det(minor)
    return out


@differentiable(
    vjps=dict(x=_cofactors_slope),
    jvps=dict(x=_cofactors_slope),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    reference=_cofactors_reference,
    samples=lambda: [
        *_det_samples(),
        *_singular_samples("third derivatives of det are not available at singular matrices"),
        *square_rejected("cofactors"),
    ],
)
def cofactors(x: Array, /) -> Array:
    """Return the matrices of cofactors: the transposes of the adjugates, and the derivatives of the determinants.

    Example:
        >>> nt.cofactors(np.array([[1.0, 2.0], [2.0, 4.0]])).round(12)
        array([[ 4., -2.],
               [-2.,  1.]])
    """
    check_square("cofactors", x)
    if not x.size:
        return x.copy()
    try:
        inverse = np.linalg.inv(x)
        condition = np.linalg.norm(x, 1, (-2, -1)) * np.linalg.norm(inverse, 1, (-2, -1))
        if np.all(condition < np.finfo(x.dtype).eps ** -0.4):
            return np.linalg.det(x)[..., None, None] * transposed(inverse)
    except np.linalg.LinAlgError:
        pass
    # cof(u s v^T) = det(u) det(v) u cof(s) v^T, right for singular matrices too.
    u, s, vh = run("cofactors", np.linalg.svd, x, "has a decomposition that did not converge")
    return _sign(u, vh) * ((u * _products_but_one(s)[..., None, :]) @ vh)


def _det_pull(g: Array, x: Array) -> Array:
    return g[..., None, None] * cofactors(x)


def _det_push(t: Array, x: Array) -> Array:
    return (cofactors(x) * t).sum(axis=(-2, -1))


@differentiable(
    vjps=dict(x=_det_pull),
    jvps=dict(x=_det_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    numpy=np.linalg.det,
    samples=lambda: [*_det_samples(), *_singular_samples(), *square_rejected("det")],
)
def det(x: Array, /) -> Array:
    """Return the determinants of square matrices. First and second derivatives are right at singular matrices too.

    Args:
        x: of shape (..., n, n); the result has shape (...).

    Example:
        >>> nt.det(np.array([[2.0, 0.0], [0.0, 4.0]]))
        array(8.)
    """
    check_square("det", x)
    return np.linalg.det(x)


def _inverse(x: Array) -> Array:
    try:
        return inv(x)
    except ArgumentError as error:
        raise GradientError(
            f"slogdet: x has shape {x.shape} and is singular, where the logarithm of the determinant is -inf and has "
            "no derivative."
        ) from error


def _slogdet_pull(g: Sequence[Any], x: Array) -> Array:
    # d log|det x| = <inv(x)^T, dx>; the sign is constant.
    g_log = g[1]
    if g_log is None:
        return np.zeros(x.shape, x.dtype)
    return g_log[..., None, None] * transposed(_inverse(x))


def _slogdet_push(t: Array, x: Array) -> tuple[None, Array]:
    return None, (transposed(_inverse(x)) * t).sum(axis=(-2, -1))


@differentiable(
    vjps=dict(x=_slogdet_pull),
    jvps=dict(x=_slogdet_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="at singular matrices, where the logarithm is -inf",
    numpy=np.linalg.slogdet,
    samples=lambda: [
        *_det_samples(),
        *_singular_samples("singular matrices: the logarithm is -inf")[1:5],
        *square_rejected("slogdet"),
    ],
)
def slogdet(x: Array, /) -> tuple[Array, Array]:
    """Return the signs of the determinants of square matrices, and the logarithms of their absolute values.

    The sign is -1, 0 or 1, and its derivative 0. For a singular matrix the results are 0 and -inf.

    Args:
        x: of shape (..., n, n); the results have shape (...).

    Example:
        >>> sign, logarithm = nt.slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> float(sign), float(logarithm)
        (-1.0, 0.0)
    """
    check_square("slogdet", x)
    sign, logarithm = np.linalg.slogdet(x)
    return np.asarray(sign), np.asarray(logarithm)
