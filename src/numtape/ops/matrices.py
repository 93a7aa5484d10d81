"""Products of matrices and vectors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array
from ..core import batching
from ..core.declare import linear
from ..core.op import Op
from ..errors import ShapeError
from .samples import rejected, sample, values


def _matmul_a(g: Array, a_shape: tuple[int, ...], b: Array) -> Array:
    # d(ab) = da b: the cotangent of a is g times the transpose of b, vectors taken as rows (a) and columns (b).
    if len(b.shape) == 1:
        return g[..., None] * b if len(a_shape) > 1 else g * b
    if len(a_shape) == 1:
        return (b @ g[..., None])[..., 0]
    return g @ b.swapaxes(-1, -2)


def _matmul_b(g: Array, b_shape: tuple[int, ...], a: Array) -> Array:
    if len(a.shape) == 1:
        return a[:, None] * g[..., None, :] if len(b_shape) > 1 else g * a
    if len(b_shape) == 1:
        return (a.swapaxes(-1, -2) @ g[..., None])[..., 0]
    return a.swapaxes(-1, -2) @ g


def _matmul_cost(out: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return 2 * math.prod(out) * a[-1]


def _matmul_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    # Vectors become matrices first, so that the batch axis stays in front of the two that are multiplied.
    a, b = operands
    a_is_vector = a.ndim - batched[0] == 1
    b_is_vector = b.ndim - batched[1] == 1
    a = a[..., None, :] if a_is_vector else a
    b = b[..., :, None] if b_is_vector else b
    out = batching.elementwise(op, (a, b), batched, params)
    out = out[..., 0, :] if a_is_vector else out
    return (out[..., 0] if b_is_vector else out) if not (a_is_vector and b_is_vector) else out[..., 0]


@linear(
    transposes=dict(a=_matmul_a, b=_matmul_b),
    cost=_matmul_cost,
    precision="lower",
    batch=_matmul_batch,
    numpy=np.matmul,
    also=("mm", "bmm"),
    samples=lambda: [
        sample(values(2, 3), values(3, 4, seed=1)),
        sample(values(3), values(3, 4, seed=1)),
        sample(values(2, 3), values(3, seed=1)),
        sample(values(3), values(3, seed=1)),
        sample(values(5, 2, 3), values(5, 3, 4, seed=1)),
        sample(values(5, 2, 3), values(3, 4, seed=1)),
        sample(values(2, 3), values(5, 3, 4, seed=1)),
        sample(values(4, 1, 2, 3), values(5, 3, 2, seed=1)),
        sample(values(5, 2, 3), values(3, seed=1)),
        sample(values(3), values(5, 3, 2, seed=1)),
        sample(values(2, 0), values(0, 3)),
        rejected(
            ShapeError,
            "matmul: a has shape (2, 3) and b has shape (4, 3); the last axis of a (3) must equal the second-to-last "
            "axis of b (4). Did you mean matmul(a, b.T)?",
            np.ones((2, 3)),
            np.ones((4, 3)),
        ),
    ],
)
def matmul(a: Array, b: Array, /) -> Array:
    """Return the matrix product ``a @ b``.

    Args:
        a: of shape (..., m, k) or (k,).
        b: of shape (..., k, n) or (k,). Leading axes broadcast.

    Raises:
        ShapeError: if the axes to be contracted differ in length.

    Example:
        >>> nt.matmul(np.array([[1.0, 2.0]]), np.array([3.0, 4.0]))
        array([11.])
    """
    _check_matmul(np.shape(a), np.shape(b))
    return np.matmul(a, b)


def _check_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if not a or not b:
        raise ShapeError(f"matmul: a has shape {a} and b has shape {b}; numbers are multiplied with *.")
    inner = b[0] if len(b) == 1 else b[-2]
    if a[-1] != inner:
        axis = "only axis" if len(b) == 1 else "second-to-last axis"
        hint = ""
        if len(a) > 1 and len(b) > 1:
            if a[-1] == b[-1]:
                hint = " Did you mean matmul(a, b.T)?"
            elif a[-2] == inner:
                hint = " Did you mean matmul(a.T, b)?"
        raise ShapeError(
            f"matmul: a has shape {a} and b has shape {b}; the last axis of a ({a[-1]}) must equal the {axis} of b "
            f"({inner}).{hint}"
        )
    if len(a) > 2 and len(b) > 2:
        try:
            np.broadcast_shapes(a[:-2], b[:-2])
        except ValueError as error:
            raise ShapeError(
                f"matmul: a has shape {a} and b has shape {b}; the leading axes {a[:-2]} and {b[:-2]} do not broadcast."
            ) from error
