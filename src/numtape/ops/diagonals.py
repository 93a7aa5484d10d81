"""Diagonals and triangles of matrices."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core.declare import composed, face_of, linear
from ..core.facts import Back, Structure
from ..core.op import Op
from ..errors import ArgumentError, AxisError, ShapeError
from .reductions import sum
from .samples import rejected, sample, values
from .shapes import axis_of, shape_of


def _diagonal_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return _diagonal(operands[0], offset=params["offset"], axis1=params["axis1"] + 1, axis2=params["axis2"] + 1)


def _diagonal_back(g: Array, x_shape: Shape, offset: int, axis1: int, axis2: int) -> Array:
    return _from_diagonal(g, shape=x_shape, offset=offset, axis1=axis1, axis2=axis2)


@linear(
    transposes={"x": _diagonal_back},
    structure=Structure.MOVES,
    native_half=True,
    aliases=True,
    batch=_diagonal_batch,
    numpy=np.diagonal,
    samples=lambda: [
        sample(values(3, 3)),
        sample(values(2, 4)),
        sample(values(2, 4), offset=1),
        sample(values(4, 2), offset=-2),
        sample(values(3, 3), offset=5),
        sample(values(2, 3, 4), axis1=1, axis2=2),
        sample(values(2, 3, 4), offset=1, axis1=2, axis2=0),
        sample(values(2, 0)),
        sample(values(1, 1)),
        sample(values(2, 3, 4, 2), offset=-1, axis1=1, axis2=2),
        rejected(
            ShapeError, "diagonal: x has shape (3,); a matrix has at least two axes.", np.ones(3), axis1=0, axis2=0
        ),
        rejected(
            ArgumentError,
            "diagonal: axis1 and axis2 are both 1; a matrix has two axes.",
            np.ones((2, 3)),
            axis1=1,
            axis2=1,
        ),
        rejected(
            AxisError,
            "diagonal: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            axis2=2,
        ),
    ],
)
def _diagonal(x: Array, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return a view of the diagonals of the matrices that two axes, counted from 0, form; the last axis runs along."""
    return np.diagonal(x, offset, *_matrix_axes("diagonal", np.shape(x), axis1, axis2))


def _from_diagonal_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    return _from_diagonal(
        x,
        shape=(x.shape[0], *params["shape"]),
        offset=params["offset"],
        axis1=params["axis1"] + 1,
        axis2=params["axis2"] + 1,
    )


def _diagonal_of(g: Array, offset: int, axis1: int, axis2: int) -> Array:
    return _diagonal(g, offset=offset, axis1=axis1, axis2=axis2)


@linear(
    transposes={"x": _diagonal_of},
    back=Back.SHARED,
    structure=Structure.MOVES,
    native_half=True,
    batch=_from_diagonal_batch,
    size=lambda x, shape, **_: math.prod(shape),
    samples=lambda: [
        sample(values(3), shape=(3, 3)),
        sample(values(2), shape=(2, 4), offset=1),
        sample(values(2), shape=(4, 2), offset=-2),
        sample(values(0), shape=(2, 2), offset=2),
        sample(values(2, 3), shape=(2, 3, 4), axis1=1, axis2=2),
        sample(values(3, 1), shape=(2, 3, 4), offset=1, axis1=2, axis2=0),
        sample(values(1), shape=(1, 1)),
        sample(values(2, 2, 2), shape=(2, 3, 4, 2), offset=-1, axis1=1, axis2=2),
    ],
)
def _from_diagonal(x: Array, /, *, shape: Shape, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return zeros of `shape` with `x` on the diagonals, the transpose of diagonal."""
    out = np.zeros(shape, x.dtype)
    matrices = np.moveaxis(out, (axis1, axis2), (-2, -1))
    along = np.arange(np.shape(x)[-1])
    matrices[..., along + max(-offset, 0), along + max(offset, 0)] = x
    return out


def _matrix_axes(name: str, shape: Shape, axis1: int, axis2: int) -> tuple[int, int]:
    if len(shape) < 2:
        raise ShapeError(f"{name}: x has shape {shape}; a matrix has at least two axes.")
    axes = axis_of(name, axis1, shape), axis_of(name, axis2, shape)
    if axes[0] == axes[1]:
        raise ArgumentError(f"{name}: axis1 and axis2 are both {axes[0]}; a matrix has two axes.")
    return axes


@face_of(_diagonal)
def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return a view of the diagonals of the matrices that two axes form; the last axis runs along them.

    Args:
        x: at least two axes.
        offset: above the main diagonal if positive, below if negative.
        axis1: the axis of the matrices' rows.
        axis2: the axis of the matrices' columns.

    Example:
        >>> nt.diagonal(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([1., 4.])
    """
    rows, columns = _matrix_axes("diagonal", shape_of(x), axis1, axis2)
    return _diagonal(x, offset=offset, axis1=rows, axis2=columns)


@composed(
    numpy=np.diag,
    samples=lambda: [
        sample(values(3)),
        sample(values(3), 1),
        sample(values(2), k=-2),
        sample(values(0)),
        sample(values(1)),
        sample(values(3, 3)),
        sample(values(2, 4), 1),
        sample(values(4, 2), k=-3),
        sample(values(2, 2), 2),
        rejected(
            ShapeError,
            "diag: x has shape (2, 2, 2); it is a vector to put on a diagonal, or a matrix whose diagonal is wanted "
            "(diagonal takes more axes).",
            np.ones((2, 2, 2)),
        ),
    ],
)
def diag(x: Array, k: int = 0) -> Array:
    """Return a matrix with the vector `x` on a diagonal, or a diagonal of the matrix `x`.

    Args:
        x: one axis or two.
        k: which diagonal; above the main one if positive.

    Example:
        >>> nt.diag(np.array([1.0, 2.0]))
        array([[1., 0.],
               [0., 2.]])
    """
    shape = shape_of(x)
    if len(shape) == 1:
        length = shape[0] + abs(k)
        return _from_diagonal(x, shape=(length, length), offset=k)
    if len(shape) != 2:
        raise ShapeError(
            f"diag: x has shape {shape}; it is a vector to put on a diagonal, or a matrix whose diagonal is wanted "
            "(diagonal takes more axes)."
        )
    return _diagonal(x, offset=k)


@composed(
    precision="widen",
    numpy=np.trace,
    samples=lambda: [
        sample(values(3, 3)),
        sample(values(2, 4), 1),
        sample(values(4, 2), offset=-2),
        sample(values(2, 2), offset=3),
        sample(values(2, 3, 4), axis1=1, axis2=2),
        sample(values(2, 3, 4), 1, -1, 0),
        sample(values(0, 0)),
        sample(values(1, 1)),
        rejected(ShapeError, "trace: x has shape (3,); a matrix has at least two axes.", np.ones(3)),
        rejected(
            AxisError,
            "trace: axis 2 is out of bounds for array of dimension 2; x has shape (2, 2).",
            np.ones((2, 2)),
            axis2=2,
        ),
        rejected(ArgumentError, "trace: axis1 and axis2 are both 1; a matrix has two axes.", np.ones((2, 2)), axis1=-1),
    ],
)
def trace(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the sum of the diagonal of the matrices that two axes form.

    Args:
        x: at least two axes.
        offset: above the main diagonal if positive, below if negative.
        axis1: the axis of the matrices' rows.
        axis2: the axis of the matrices' columns.

    Example:
        >>> nt.trace(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array(5.)
    """
    rows, columns = _matrix_axes("trace", shape_of(x), axis1, axis2)
    return sum(_diagonal(x, offset=offset, axis1=rows, axis2=columns), axis=-1)


def _triangle_samples(name: str) -> list[Any]:
    return [
        sample(values(3, 3)),
        sample(values(3, 3), k=1),
        sample(values(3, 3), k=-1),
        sample(values(2, 4), k=5),
        sample(values(4, 2), k=-5),
        sample(values(2, 3, 3)),
        sample(values(2, 0)),
        sample(values(1, 1), k=0),
        sample(values(2, 2, 3, 2), k=-2),
        rejected(ShapeError, f"{name}: x has shape (3,); a matrix has at least two axes.", np.ones(3)),
    ]


def _triangle(name: str, x: Any, k: int, is_lower: bool) -> Any:
    shape = np.shape(x)
    if len(shape) < 2:
        raise ShapeError(f"{name}: x has shape {shape}; a matrix has at least two axes.")
    keeps = np.tri(shape[-2], shape[-1], k if is_lower else k - 1, dtype=np.bool_)
    return np.where(keeps if is_lower else ~keeps, x, np.zeros((), x.dtype))


def _tril_back(g: Array, k: int) -> Array:
    return tril(g, k=k)


def _triu_back(g: Array, k: int) -> Array:
    return triu(g, k=k)


def _leading(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return op.face(operands[0], **params)


@linear(
    transposes={"x": _tril_back},
    structure=Structure.ELEMENTWISE,
    native_half=True,
    batch=_leading,
    numpy=np.tril,
    samples=lambda: _triangle_samples("tril"),
)
def tril(x: Array, /, k: int = 0) -> Array:
    """Return the lower triangle of matrices: zero above diagonal `k`.

    Example:
        >>> nt.tril(np.ones((2, 2)))
        array([[1., 0.],
               [1., 1.]])
    """
    return _triangle("tril", x, k, is_lower=True)


@linear(
    transposes={"x": _triu_back},
    structure=Structure.ELEMENTWISE,
    native_half=True,
    batch=_leading,
    numpy=np.triu,
    samples=lambda: _triangle_samples("triu"),
)
def triu(x: Array, /, k: int = 0) -> Array:
    """Return the upper triangle of matrices: zero below diagonal `k`.

    Example:
        >>> nt.triu(np.ones((2, 2)))
        array([[1., 1.],
               [0., 1.]])
    """
    return _triangle("triu", x, k, is_lower=False)
