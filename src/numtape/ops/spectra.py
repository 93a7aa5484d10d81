"""Singular values and vectors, and eigenvalues and eigenvectors of symmetric matrices."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import Array
from ..core import batching
from ..core.declare import differentiable, face_of, numpy_faces
from ..core.facts import Structure
from ..core.value import array_of
from ..errors import ArgumentError, GradientError, ShapeError
from .decompositions import asymmetric_rejected, symmetric, symmetric_part
from .samples import rejected, sample, values
from .selection import where
from .systems import check_matrix, cubic_cost, matrices_with, run, square_rejected, symmetric_with, transposed


def _is_equal(x: Array) -> Any:
    """Say for each pair of values, but for the same one twice, if they are equal but for rounding."""
    array = array_of(x)
    gaps = array[..., None, :] - array[..., :, None]
    scale = np.max(np.abs(array), axis=-1, initial=0.0)[..., None, None]
    is_equal = np.abs(gaps) <= 8 * array.shape[-1] * np.finfo(array.dtype).eps * scale
    return is_equal & ~np.eye(array.shape[-1], dtype=bool)


def _is_zero(s: Array, rows: int, columns: int) -> Any:
    """Say for each singular value if it is zero but for rounding."""
    array = array_of(s)
    largest = np.max(array, axis=-1, initial=0.0, keepdims=True)
    return array <= max(rows, columns) * np.finfo(array.dtype).eps * largest


def _inverse_differences(x: Array, is_equal: Any) -> Array:
    """Return ``1 / (x_j - x_i)``, and 0 on the diagonal and where the two are equal."""
    is_equal = is_equal | np.eye(x.shape[-1], dtype=bool)
    return _inverse_or_zero(x[..., None, :] - x[..., :, None], is_equal)


def _inverse_or_zero(x: Array, is_zero: Any) -> Array:
    return where(is_zero, 0.0, 1.0 / where(is_zero, 1.0, x))


def _is_felt(x: Any, scale: Any) -> Any:
    """Say which elements of matrices are not zero, beyond what rounding leaves of the largest element of `scale`."""
    x = array_of(x)
    largest = np.max(np.abs(array_of(scale)), axis=(-2, -1), initial=0.0, keepdims=True)
    return np.abs(x) > max(1e-12, 8 * x.shape[-1] * np.finfo(x.dtype).eps) * largest


def _is_told_apart(g: Any) -> Any:
    """Say which pairs of values have different cotangents.

    A differentiable function of the values alone has equal cotangents at equal values. With others, the vectors that
    belong to them matter, also if the cotangents of these happen to be zero, as in ``v @ diag(w) @ v.T`` for ``w = 0``.
    """
    if g is None:
        return False
    g = array_of(g)
    return _is_felt(g[..., None, :] - g[..., :, None], g[..., None, :])


def _refuse_pairs(name: str, values: str, alone: str, lost: Any) -> None:
    """Raise if a derivative would lose what belongs to a pair of equal values."""
    if np.any(lost):
        *_, i, j = np.argwhere(lost | np.swapaxes(lost, -1, -2))[0]
        raise GradientError(
            f"{name}: {values} {i} and {j} are equal, so the derivative of their vectors does not exist; "
            f"differentiate a function of the values ({alone}), or break the tie."
        )


def _refuse_zeros(lost: Any) -> None:
    """Raise if a derivative would lose what belongs to a zero singular value of a matrix that is not square."""
    if np.any(lost):
        place = np.argwhere(lost)[0][-1]
        raise GradientError(
            f"svd: singular value {place} is zero and the matrix is not square, so the derivative of its vectors does "
            "not exist; differentiate a function of the values (svdvals), or of the vectors of the other values."
        )


def diagonal_matrices(x: Array) -> Array:
    """Return diagonal matrices."""
    return where(np.eye(x.shape[-1], dtype=bool), x[..., None, :], 0.0)


def _svd_pull(g: Sequence[Any], out: tuple[Array, Array, Array]) -> Array:
    # With a and b the antisymmetric parts of u^T g_u and v^T g_v, e = 1 / (s_j - s_i) and h = 1 / (s_i + s_j):
    # u ((a + b) e + (a - b) h + diag(g_s)) v^T, and what g_u and g_v hold beside the columns of u and v, over s.
    g_u, g_s, g_vh = g
    u, s, vh = out
    rows, columns = u.shape[-2], vh.shape[-1]
    inner: Any = 0.0 if g_s is None else diagonal_matrices(g_s)
    beside: Any = 0.0
    if g_u is not None or g_vh is not None:
        is_zero = _is_zero(s, rows, columns)
        both_zero = is_zero[..., None, :] & is_zero[..., :, None]
        is_equal = _is_equal(s) | both_zero & ~np.eye(s.shape[-1], dtype=bool)
        over_values = _inverse_or_zero(s, is_zero)
        over_sums = _inverse_or_zero(s[..., None, :] + s[..., :, None], both_zero)
        matters = _is_told_apart(g_s)
        if rows != columns and g_s is not None:
            # As for equal values: at zero, a singular value by itself has a corner.
            _refuse_zeros(is_zero & (array_of(g_s) != 0))
        a: Any = 0.0
        b: Any = 0.0
        if g_u is not None:
            projected = transposed(u) @ g_u
            matters = matters | _is_felt(projected, g_u)
            a = (projected - transposed(projected)) * 0.5
            if rows > columns:
                rest = g_u - u @ projected
                _refuse_zeros(is_zero & np.any(_is_felt(rest, g_u), axis=-2))
                beside = (rest * over_values[..., None, :]) @ vh
        if g_vh is not None:
            projected = vh @ transposed(g_vh)
            matters = matters | _is_felt(projected, g_vh)
            b = (projected - transposed(projected)) * 0.5
            if columns > rows:
                rest = g_vh - transposed(projected) @ vh
                _refuse_zeros(is_zero & np.any(_is_felt(rest, g_vh), axis=-1))
                beside = (u * over_values[..., None, :]) @ rest
        _refuse_pairs("svd", "singular values", "svdvals", is_equal & matters)
        inner = inner + (a + b) * _inverse_differences(s, is_equal) + (a - b) * over_sums
    return u @ inner @ vh + beside


def _svd_push(t: Array, out: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    # With m = u^T dx v split into its symmetric part p and antisymmetric part q: du = u (p e + q h) and
    # dv = v (p e - q h), each with what lies beside the columns, and ds is the diagonal of m.
    u, s, vh = out
    rows, columns = u.shape[-2], vh.shape[-1]
    is_zero = _is_zero(s, rows, columns)
    both_zero = is_zero[..., None, :] & is_zero[..., :, None]
    is_equal = _is_equal(s) | both_zero & ~np.eye(s.shape[-1], dtype=bool)
    over_values = _inverse_or_zero(s, is_zero)
    over_sums = _inverse_or_zero(s[..., None, :] + s[..., :, None], both_zero)
    m = transposed(u) @ t @ transposed(vh)
    even, odd = (m + transposed(m)) * 0.5, (m - transposed(m)) * 0.5
    _refuse_pairs("svd", "singular values", "svdvals", is_equal & (_is_felt(even, t) | both_zero & _is_felt(odd, t)))
    turned = even * _inverse_differences(s, is_equal)
    twisted = odd * over_sums
    du = u @ (turned + twisted)
    dvh = transposed(turned - twisted) @ vh
    if rows > columns:
        rest = t @ transposed(vh) - u @ m
        _refuse_zeros(is_zero & np.any(_is_felt(rest, t), axis=-2))
        du = du + rest * over_values[..., None, :]
    if columns > rows:
        rest = transposed(u) @ t - m @ vh
        _refuse_zeros(is_zero & np.any(_is_felt(rest, t), axis=-1))
        dvh = dvh + rest * over_values[..., :, None]
    return du, (transposed(u) * transposed(t @ transposed(vh))).sum(axis=-1), dvh


_NOT_CONVERGED = "has a decomposition that did not converge"


def _svd_samples() -> list[Any]:
    return [
        sample(matrices_with(3, 3)),
        sample(matrices_with(4, 2)),
        sample(matrices_with(2, 4)),
        sample(matrices_with(2, 2, seed=1)),
        sample(matrices_with(3, 1)),
        sample(matrices_with(1, 1)),
        sample(matrices_with(2, 3, 2)),
        sample(matrices_with(2, 1, 2, 3)),
        sample(values(0, 3)),
        sample(np.eye(3), skip_derivatives="equal singular values"),
        rejected(
            ArgumentError,
            "{name}: x has shape (2, 2), and x contains NaN or infinity.",
            np.array([[1.0, np.nan], [0.0, 1.0]]),
        ),
        rejected(ShapeError, "{name}: x has shape (3,); a matrix has two axes, a stack of them more.", np.ones(3)),
    ]


def _named(name: str, samples: list[Any]) -> list[Any]:
    """Fill an op's name into the messages of rejected samples."""
    return [
        rejected(s.error, s.message.format(name=name), *s.args, **s.params) if hasattr(s, "message") else s
        for s in samples
    ]


@differentiable(
    vjps=dict(x=_svd_pull),
    jvps=dict(x=_svd_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="U and Vh where singular values are equal, or zero if x is not square: a derivative that needs their vectors "
    "raises GradientError, and so does forward mode; svdvals has it in both",
    reference=lambda x: np.linalg.svd(x, full_matrices=False),
    samples=lambda: _named("svd", _svd_samples()),
)
def _svd(x: Array, /) -> tuple[Array, Array, Array]:
    """Return the reduced singular value decomposition."""
    check_matrix("svd", x)
    u, s, vh = run("svd", lambda m: np.linalg.svd(m, full_matrices=False), x, _NOT_CONVERGED)
    return u, s, vh


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Any
    S: Any
    Vh: Any


@face_of(_svd)
def svd(x: Array, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return `U`, the singular values `S` and `Vh` with ``x = U @ diag(S) @ Vh``.

    Singular vectors are determined up to their sign, those of equal singular values up to a rotation; a function of
    them has a derivative only if it does not depend on that choice. Where singular values are equal, functions of S
    and of the vectors of the other values have one; for what needs the vectors of the equal ones, there is an error.
    In forward mode, use `svdvals` there.

    Args:
        x: of shape (..., m, n). With ``k = min(m, n)``, the results have shapes (..., m, k), (..., k) and (..., k, n).
        full_matrices: only False, unless the matrices are square: the further vectors are not determined by `x`.
        compute_uv: False returns S alone.

    Example:
        >>> nt.svd(np.array([[0.0, 2.0], [3.0, 0.0]])).S
        array([3., 2.])
    """
    if not compute_uv:
        return svdvals(x)
    if full_matrices:
        shape = np.shape(x) if not hasattr(x, "shape") else x.shape
        if len(shape) > 1 and shape[-1] != shape[-2]:
            raise ArgumentError(
                f"svd: x has shape {shape} and full_matrices=True, but the further vectors are not determined by x and "
                "have no derivative; pass full_matrices=False."
            )
    return SVDResult(*_svd(x))


def _numpy_svd(a: Array, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Do what `np.linalg.svd` does, whose default is another than ours."""
    return svd(a, full_matrices, compute_uv)


numpy_faces[np.linalg.svd] = _numpy_svd


def _svdvals_pull(g: Array, x: Array) -> Array:
    # ds_k = u_k^T dx v_k.
    u, _, vh = svd(x)
    return (u * g[..., None, :]) @ vh


def _svdvals_push(t: Array, x: Array) -> Array:
    u, _, vh = svd(x)
    return (transposed(u) * transposed(t @ transposed(vh))).sum(axis=-1)


@differentiable(
    vjps=dict(x=_svdvals_pull),
    jvps=dict(x=_svdvals_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="where singular values are equal, or zero",
    numpy=np.linalg.svdvals,
    samples=lambda: _named("svdvals", _svd_samples()),
)
def svdvals(x: Array, /) -> Array:
    """Return the singular values of matrices, largest first.

    Args:
        x: of shape (..., m, n); the result has shape (..., min(m, n)).

    Example:
        >>> nt.svdvals(np.array([[0.0, 2.0], [3.0, 0.0]]))
        array([3., 2.])
    """
    check_matrix("svdvals", x)
    return run("svdvals", lambda m: np.linalg.svd(m, compute_uv=False), x, _NOT_CONVERGED)


def _eigh_pull(g: Sequence[Any], out: tuple[Array, Array]) -> Array:
    # With a the antisymmetric part of v^T g_v and e = 1 / (w_j - w_i): v (a e + diag(g_w)) v^T, which is symmetric.
    g_w, g_v = g
    w, v = out
    inner: Any = 0.0 if g_w is None else diagonal_matrices(g_w)
    if g_v is not None:
        projected = transposed(v) @ g_v
        is_equal = _is_equal(w)
        matters = _is_felt(projected, g_v) | _is_told_apart(g_w)
        _refuse_pairs("eigh", "eigenvalues", "eigvalsh", is_equal & matters)
        inner = inner + (projected - transposed(projected)) * 0.5 * _inverse_differences(w, is_equal)
    return v @ inner @ transposed(v)


def _eigh_push(t: Array, out: tuple[Array, Array]) -> tuple[Array, Array]:
    # With m = v^T dx v: dw is the diagonal of m, and dv = v (m e).
    w, v = out
    t = symmetric(t)
    moved = t @ v
    m = transposed(v) @ moved
    is_equal = _is_equal(w)
    _refuse_pairs("eigh", "eigenvalues", "eigvalsh", is_equal & _is_felt(m, t))
    return (v * moved).sum(axis=-2), v @ (m * _inverse_differences(w, is_equal))


def _eigh_samples() -> list[Any]:
    return [
        sample(symmetric_with(3, 3)),
        sample(symmetric_with(3, 3, low=-1.0, high=2.5)),
        sample(symmetric_with(2, 2, seed=1)),
        sample(symmetric_with(1, 1)),
        sample(symmetric_with(4, 4, low=-3.0, high=1.0)),
        sample(symmetric_with(2, 3, 3)),
        sample(symmetric_with(2, 1, 2, 2)),
        sample(symmetric_with(3, 3), UPLO="U"),
        sample(values(0, 0)),
        sample(np.eye(3), skip_derivatives="equal eigenvalues"),
    ]


def _eigh_rejected(name: str) -> list[Any]:
    return [
        *square_rejected(name),
        asymmetric_rejected(name),
        rejected(ArgumentError, f"{name}: UPLO is 'X'; it must be 'L' or 'U'.", np.eye(2), UPLO="X"),
    ]


def _check_uplo(name: str, uplo: str) -> None:
    if uplo not in ("L", "U", "l", "u"):
        raise ArgumentError(f"{name}: UPLO is {uplo!r}; it must be 'L' or 'U'.")


@differentiable(
    vjps=dict(x=_eigh_pull),
    jvps=dict(x=_eigh_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="the eigenvectors where eigenvalues are equal: a derivative that needs their vectors raises GradientError, "
    "and so does forward mode; eigvalsh has it in both",
    numpy=np.linalg.eigh,
    samples=lambda: [*_eigh_samples(), *_eigh_rejected("eigh")],
)
def _eigh(x: Array, /, *, UPLO: str = "L") -> tuple[Array, Array]:
    """Return the eigenvalues and eigenvectors of symmetric matrices."""
    _check_uplo("eigh", UPLO)
    w, v = run("eigh", np.linalg.eigh, symmetric_part("eigh", x), _NOT_CONVERGED)
    return w, v


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


@face_of(_eigh)
def eigh(x: Array, UPLO: str = "L") -> Any:
    """Return the eigenvalues, smallest first, and eigenvectors, in columns, of symmetric matrices.

    The function is one of the symmetric part of `x`, so its gradient is symmetric. Eigenvectors are determined up to
    their sign, those of equal eigenvalues up to a rotation; a function of them has a derivative only if it does not
    depend on that choice. Where eigenvalues are equal, functions of the eigenvalues and of the other eigenvectors have
    one; for what needs the eigenvectors of the equal ones, there is an error. In forward mode, use `eigvalsh` there.

    Args:
        x: symmetric matrices, of shape (..., n, n).
        UPLO: "L" or "U"; without effect, since both triangles are read.

    Raises:
        ArgumentError: if a matrix is not nearly symmetric.
        GradientError: in a derivative that needs the eigenvectors of equal eigenvalues.

    Example:
        >>> nt.eigh(np.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
        array([1., 3.])
    """
    return EighResult(*_eigh(x, UPLO=UPLO))


def _eigvalsh_pull(g: Array, x: Array) -> Array:
    # dw_k = v_k^T dx v_k.
    v = eigh(x).eigenvectors
    return (v * g[..., None, :]) @ transposed(v)


def _eigvalsh_push(t: Array, x: Array) -> Array:
    v = eigh(x).eigenvectors
    return (v * (symmetric(t) @ v)).sum(axis=-2)


@differentiable(
    vjps=dict(x=_eigvalsh_pull),
    jvps=dict(x=_eigvalsh_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    kinks="where eigenvalues are equal",
    numpy=np.linalg.eigvalsh,
    samples=lambda: [*_eigh_samples(), *_eigh_rejected("eigvalsh")],
)
def eigvalsh(x: Array, /, UPLO: str = "L") -> Array:
    """Return the eigenvalues of symmetric matrices, smallest first; see `eigh`.

    Args:
        x: symmetric matrices, of shape (..., n, n).
        UPLO: "L" or "U"; without effect, since both triangles are read.

    Example:
        >>> nt.eigvalsh(np.array([[2.0, 1.0], [1.0, 2.0]]))
        array([1., 3.])
    """
    _check_uplo("eigvalsh", UPLO)
    return run("eigvalsh", np.linalg.eigvalsh, symmetric_part("eigvalsh", x), _NOT_CONVERGED)
