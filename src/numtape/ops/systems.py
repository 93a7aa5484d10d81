"""Inverses and solutions of linear systems, and what all of linear algebra shares."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import differentiable
from ..core.facts import Structure
from ..core.op import Op
from ..errors import LinearAlgebraError, ShapeError
from ..taylor import quotient
from .samples import rejected, sample, values


def transposed(x: Array) -> Array:
    """Return the transposes of matrices."""
    return x.swapaxes(-1, -2)


def check_matrix(name: str, x: Any, argument: str = "x") -> None:
    """Raise unless `x` holds matrices."""
    if np.ndim(x) < 2:
        raise ShapeError(f"{name}: {argument} has shape {np.shape(x)}; a matrix has two axes, a stack of them more.")


def check_square(name: str, x: Any, argument: str = "x") -> None:
    """Raise unless `x` holds square matrices."""
    check_matrix(name, x, argument)
    shape = np.shape(x)
    if shape[-1] != shape[-2]:
        raise ShapeError(
            f"{name}: {argument} has shape {shape}; matrices must be square, the last two axes of one length."
        )


def run(name: str, function: Callable[[Any], Any], x: NDArray, complaint: str, argument: str = "x") -> Any:
    """Run a function of `np.linalg`; where LAPACK gives up, say so of the matrix that is to blame."""
    try:
        return function(x)
    except np.linalg.LinAlgError as error:
        place = next((index for index in np.ndindex(x.shape[:-2]) if _fails(function, x[index])), ())
        which = f"{argument}[{', '.join(map(str, place))}]" if place else argument
        if not np.all(np.isfinite(x[place])):
            complaint = "contains NaN or infinity"
        raise LinearAlgebraError(f"{name}: {argument} has shape {x.shape}, and {which} {complaint}.") from error


def _fails(function: Callable[[Any], Any], matrix: NDArray) -> bool:
    try:
        function(matrix)
    except np.linalg.LinAlgError:
        return True
    return False


def cubic_cost(out: Any, *shapes: Shape, **params: Any) -> int:
    """Count what a factorisation of the first operand costs, to the order of magnitude."""
    return 2 * math.prod(shapes[0]) * min(shapes[0][-2:])


def matrices_with(*shape: int, seed: int = 0) -> NDArray:
    """Return matrices, for samples, whose singular values lie apart between 1 and 3."""
    left = np.linalg.svd(values(*shape, seed=seed), full_matrices=False)
    lengths = np.linspace(3.0, 1.0, min(shape[-2:]))
    return np.asarray((left.U * lengths) @ left.Vh)


def symmetric_with(*shape: int, seed: int = 0, low: float = 1.0, high: float = 3.0) -> NDArray:
    """Return symmetric matrices, for samples, whose eigenvalues lie apart between `low` and `high`."""
    x = values(*shape, seed=seed)
    vectors = np.linalg.eigh(x + transposed(x)).eigenvectors
    return np.asarray((vectors * np.linspace(low, high, shape[-1])) @ transposed(vectors))


def square_rejected(name: str) -> list[Any]:
    """Return the rejected samples of every function of square matrices."""
    return [
        rejected(
            ShapeError,
            f"{name}: x has shape (2, 3); matrices must be square, the last two axes of one length.",
            np.ones((2, 3)),
        ),
        rejected(
            ShapeError,
            f"{name}: x has shape (3,); a matrix has two axes, a stack of them more.",
            np.ones(3),
        ),
    ]


def _inv_pull(g: Array, out: Array) -> Array:
    # d inv(x) = -inv(x) dx inv(x).
    return -(transposed(out) @ g @ transposed(out))


def _inv_push(t: Array, out: Array) -> Array:
    return -(out @ t @ out)


_SINGULAR = "is singular; use pinv or lstsq, or add a small multiple of the identity"


@differentiable(
    vjps=dict(x=_inv_pull),
    jvps=dict(x=_inv_push),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=batching.elementwise,
    precision="widen",
    to_float=True,
    numpy=np.linalg.inv,
    also=("inverse",),
    samples=lambda: [
        sample(matrices_with(3, 3)),
        sample(matrices_with(2, 2, seed=1)),
        sample(matrices_with(1, 1)),
        sample(matrices_with(4, 4)),
        sample(matrices_with(2, 3, 3)),
        sample(matrices_with(2, 1, 2, 2)),
        sample(np.diag([1.0, -2.0, 0.5])),
        sample(values(0, 0)),
        sample(values(0, 2, 2)),
        *square_rejected("inv"),
        rejected(LinearAlgebraError, f"inv: x has shape (2, 2), and x {_SINGULAR}.", np.ones((2, 2))),
        rejected(
            LinearAlgebraError,
            f"inv: x has shape (2, 2, 2), and x[1] {_SINGULAR}.",
            np.stack([np.eye(2), np.ones((2, 2))]),
        ),
    ],
)
def inv(x: Array, /) -> Array:
    """Return the inverses of square matrices; prefer `solve` where a system is to be solved.

    Args:
        x: of shape (..., n, n).

    Raises:
        LinearAlgebraError: if a matrix is singular.

    Example:
        >>> nt.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
        array([[0.5 , 0.  ],
               [0.  , 0.25]])
    """
    check_square("inv", x)
    return run("inv", np.linalg.inv, x, _SINGULAR)


def _columns(x: Array, b_shape: Shape) -> Array:
    """Return right-hand sides or solutions as matrices: a vector b makes vectors."""
    return x[..., None] if len(b_shape) == 1 else x


def _like(x: Array, b_shape: Shape) -> Array:
    return x[..., 0] if len(b_shape) == 1 else x


def _solve_pull(g: Array, a: Array, b_shape: Shape, out: Array, needs: tuple[bool, ...]) -> tuple[Any, Any]:
    # a dx = db - da x: the cotangent of b solves a^T y = g, and that of a is -y x^T.
    y = solve(transposed(a), _columns(g, b_shape))
    g_a = -(y @ transposed(_columns(out, b_shape))) if needs[0] else None
    return g_a, _like(y, b_shape)


def _solve_push_a(t: Array, a: Array, b_shape: Shape, out: Array) -> Array:
    return -_like(solve(a, t @ _columns(out, b_shape)), b_shape)


def _solve_push_b(t: Array, a: Array) -> Array:
    return solve(a, t)


def _solve_series(n: int, a: list[Any], b: list[Any], out: list[Any]) -> Any:
    b_shape = b[0].shape
    right, solution = ([None if x is None else _columns(x, b_shape) for x in given] for given in (b, out))
    found = quotient(n, right, a, solution, lambda x, matrix: matrix @ x, lambda rest, matrix: solve(matrix, rest))
    return None if found is None else _like(found, b_shape)


def _solve_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    a, b = operands
    is_vector = len(b.shape) - batched[1] == 1
    out = batching.elementwise(op, (a, b[..., None] if is_vector else b), batched, params)
    return out[..., 0] if is_vector else out


@differentiable(
    vjp=_solve_pull,
    jvps=dict(a=_solve_push_a, b=_solve_push_b),
    cost=cubic_cost,
    structure=Structure.MATRICES,
    batch=_solve_batch,
    series=_solve_series,
    precision="widen",
    to_float=True,
    numpy=np.linalg.solve,
    samples=lambda: [
        sample(matrices_with(3, 3), values(3, seed=1)),
        sample(matrices_with(3, 3), values(3, 2, seed=1)),
        sample(matrices_with(2, 3, 3), values(2, 3, 2, seed=1)),
        sample(matrices_with(2, 3, 3), values(3, seed=1)),
        sample(matrices_with(2, 3, 3), values(3, 2, seed=1)),
        sample(matrices_with(3, 3), values(2, 3, 2, seed=1)),
        sample(matrices_with(4, 1, 2, 2), values(3, 2, 1, seed=1)),
        sample(matrices_with(1, 1), values(1, seed=1)),
        sample(values(0, 0), values(0)),
        sample(matrices_with(2, 2), values(2, 0)),
        rejected(
            ShapeError,
            "solve: a has shape (2, 3); matrices must be square, the last two axes of one length.",
            np.ones((2, 3)),
            np.ones(2),
        ),
        rejected(
            ShapeError,
            "solve: a has shape (2, 2) and b has shape (3,); the only axis of b (3) must have the length of a's (2).",
            np.eye(2),
            np.ones(3),
        ),
        rejected(
            ShapeError,
            "solve: a has shape (2, 3, 3) and b has shape (2, 3); the second-to-last axis of b (2) must have the "
            "length of a's (3). A stack of vectors b is given as b[..., None].",
            np.stack([np.eye(3), np.eye(3)]),
            np.ones((2, 3)),
        ),
        rejected(ShapeError, "solve: b is a number; it must be a vector or matrices.", np.eye(2), 1.0),
        rejected(LinearAlgebraError, f"solve: a has shape (2, 2), and a {_SINGULAR}.", np.ones((2, 2)), np.ones(2)),
    ],
)
def solve(a: Array, b: Array, /) -> Array:
    """Return the solution x of ``a @ x = b``.

    Args:
        a: square matrices, of shape (..., n, n).
        b: a vector of shape (n,), or matrices of shape (..., n, k). Leading axes broadcast.

    Raises:
        LinearAlgebraError: if a matrix is singular.

    Example:
        >>> nt.solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([1.0, 2.0]))
        array([0.5, 0.5])
    """
    check_square("solve", a, "a")
    _check_right_side(np.shape(a), np.shape(b))
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        # Find out which matrix is to blame.
        run("solve", np.linalg.inv, a, _SINGULAR, "a")
        raise


def _check_right_side(a: Shape, b: Shape) -> None:
    if not b:
        raise ShapeError("solve: b is a number; it must be a vector or matrices.")
    axis = "only axis" if len(b) == 1 else "second-to-last axis"
    length = b[0] if len(b) == 1 else b[-2]
    if length != a[-1]:
        hint = " A stack of vectors b is given as b[..., None]." if b[-1] == a[-1] else ""
        raise ShapeError(
            f"solve: a has shape {a} and b has shape {b}; the {axis} of b ({length}) must have the length of a's "
            f"({a[-1]}).{hint}"
        )
