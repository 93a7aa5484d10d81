"""Products of matrices and vectors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core import batching
from ..core.declare import composed, linear
from ..core.facts import Structure
from ..core.op import Op
from ..core.terms import Terms, contraction
from ..errors import AxisError, ShapeError
from ..kernels import providers
from .arithmetic import mul
from .contractions import tensordot
from .products import flat, moved_axis
from .samples import rejected, sample, values
from .shapes import as_arrays, shape_of

#: From so many products on a kernel is faster than a product that broadcasts.
_LEAST_OUTER = 2**14


def _product(a: Any, b: Any) -> Any:
    """Multiply as matmul does, on arrays or tensors."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _multiply(a, b)
    return matmul(a, b)


def _multiply(a: Any, b: Any) -> Any:
    # A stack of matrices times one matrix is one large product of the stack's rows.
    if a.ndim > 2 and b.ndim <= 2 and a.flags.c_contiguous:
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return providers.matmul(rows, b).reshape(a.shape[:-1] + b.shape[1:])
    return providers.matmul(a, b)


def _outer(column: Array, row: Array) -> Array:
    """Return each element of a vector, or of a stack of them, times a row."""
    is_plain = type(column) is type(row) is np.ndarray and column.ndim == row.ndim == 1
    is_float = is_plain and column.dtype == row.dtype and row.dtype.char in "fd"
    if not is_float or column.size * row.size < _LEAST_OUTER:
        return column[..., None] * row
    return providers.matmul(column[:, None], row[None])


def _scaled(g: Array, vector: Array) -> Array:
    """Return a vector times a number; in the dtype of both, where a number alone would leave a half vector half."""
    return g * vector if g.dtype == vector.dtype else g[None] * vector


def _matmul_a(g: Array, a_shape: Shape, b: Array) -> Array:
    # d(ab) = da b: the cotangent of a is g times the transpose of b, vectors taken as rows (a) and columns (b).
    if len(b.shape) == 1:
        return _outer(g, b) if len(a_shape) > 1 else _scaled(g, b)
    if len(a_shape) == 1:
        return _product(b, g) if len(b.shape) == 2 else _product(b, g[..., None])[..., 0]
    rows, inner, columns = a_shape[-2], a_shape[-1], b.shape[-1]
    if len(a_shape) == 2 and len(b.shape) > 2 and rows * inner >= columns * (rows + inner):
        # Summing over the stack within one product is cheaper than summing products of this size.
        axes = (*range(len(b.shape) - 2), len(b.shape) - 1)
        return tensordot(g, b, axes=(axes, axes))
    return _product(g, b.swapaxes(-1, -2))


def _matmul_b(g: Array, b_shape: Shape, a: Array) -> Array:
    if len(a.shape) == 1:
        if len(b_shape) == 2:
            return _outer(a, g)
        return a[:, None] * g[..., None, :] if len(b_shape) > 1 else _scaled(g, a)
    if len(b_shape) == 1 and len(a.shape) == 2:
        # No record of a transpose: the cotangent of the matrix then comes in its order of elements.
        return _product(g, a)
    if len(b_shape) <= 2 and len(a.shape) > 2:
        count = math.prod(a.shape[:-1])
        a, g = a.reshape((count, a.shape[-1])), g.reshape((count, *b_shape[1:]))
    return _product(a.swapaxes(-1, -2), g)


def _matmul_terms(out: Shape, a: Shape, b: Shape) -> list[Terms]:
    # Negative numbers name batch axes, counted from the end.
    rows, columns = ("row",) * (len(a) > 1), ("column",) * (len(b) > 1)
    a_names = (*range(2 - len(a), 0), *rows, "inner")
    b_names = (*range(2 - len(b), 0), "inner", *columns)
    lead = len(out) - len(rows) - len(columns)
    return [contraction((a_names, b_names), (*range(-lead, 0), *rows, *columns), (a, b))]


def _matmul_cost(out: Shape, a: Shape, b: Shape) -> int:
    return 2 * math.prod(out) * a[-1]


def _matmul_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    a, b = operands
    a_is_vector = a.ndim - batched[0] == 1
    b_is_vector = b.ndim - batched[1] == 1
    # A batch of vectors is a matrix of their rows.
    if batched[0] and a_is_vector and not batched[1] and b.ndim <= 2:
        return matmul(a, b)
    if batched[1] and b_is_vector and not batched[0] and a.ndim <= 2:
        return matmul(b, a.swapaxes(0, 1) if a.ndim == 2 else a)
    # Vectors become matrices, so that the batch axis stays in front of the two that are multiplied.
    a = a[..., None, :] if a_is_vector else a
    b = b[..., :, None] if b_is_vector else b
    out = batching.elementwise(op, (a, b), batched, params)
    out = out[..., 0, :] if a_is_vector else out
    return (out[..., 0] if b_is_vector else out) if not (a_is_vector and b_is_vector) else out[..., 0]


def _matmul_of_units(operands: Sequence[Any], position: int, places: slice) -> Any:
    other = operands[1 - position]
    if other.ndim > 2:
        return None
    return other[places] if position == 0 or other.ndim == 1 else other[:, places].T


@linear(
    transposes=dict(a=_matmul_a, b=_matmul_b),
    cost=_matmul_cost,
    of_units=_matmul_of_units,
    size=lambda a, b: math.prod((*np.broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *b[1:][-1:])),
    structure=Structure.TERMS,
    terms=_matmul_terms,
    precision="lower",
    native_half=True,
    native_half_rules=True,
    batch=_matmul_batch,
    numpy=(np.matmul, np.linalg.matmul),
    also=("mm", "bmm"),
    samples=lambda: [
        sample(values(2, 3), values(3, 4, seed=1)),
        sample(values(3), values(3, 4, seed=1)),
        sample(values(2, 3), values(3, seed=1)),
        sample(values(3), values(3, seed=1)),
        sample(values(5, 2, 3), values(5, 3, 4, seed=1)),
        sample(values(5, 2, 3), values(3, 4, seed=1)),
        sample(values(2, 3), values(5, 3, 4, seed=1)),
        sample(values(4, 3), values(2, 3, 2, 3, 1, seed=1)),
        sample(values(4, 1, 2, 3), values(5, 3, 2, seed=1)),
        sample(values(5, 2, 3), values(3, seed=1)),
        sample(values(3), values(5, 3, 2, seed=1)),
        sample(values(2, 0), values(0, 3)),
        sample(values(2, 0, 3), values(3, 2)),
        sample(values(2, 2, 0), values(0)),
        rejected(
            ShapeError,
            "matmul: a has shape (2, 3) and b has shape (4, 3); the last axis of a (3) must equal the second-to-last "
            "axis of b (4). Did you mean matmul(a, b.T)?",
            np.ones((2, 3)),
            np.ones((4, 3)),
        ),
        rejected(
            ShapeError,
            "matmul: a has shape (5, 2, 3) and b has shape (2,); the last axis of a (3) must equal the only axis of b "
            "(2).",
            np.ones((5, 2, 3)),
            np.ones(2),
        ),
        rejected(
            ShapeError,
            "matmul: a has shape (2, 3) and b has shape (); numbers are multiplied with *.",
            np.ones((2, 3)),
            2.0,
        ),
        rejected(
            ShapeError,
            "matmul: a has shape (2, 2, 3) and b has shape (3, 3, 2); the leading axes (2,) and (3,) do not broadcast.",
            np.ones((2, 2, 3)),
            np.ones((3, 3, 2)),
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
    try:
        return _multiply(a, b)
    except (ValueError, AttributeError):
        _check_matmul(np.shape(a), np.shape(b))
        raise


def _check_matmul(a: Shape, b: Shape) -> None:
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


def _dot_samples() -> list[Any]:
    return [
        sample(values(3), values(3, seed=1)),
        sample(values(2, 3), values(3, seed=1)),
        sample(values(3), values(3, 2, seed=1)),
        sample(values(2, 3), values(3, 2, seed=1)),
        sample(values(4, 2, 3), values(3, 2, seed=1)),
        sample(values(4, 2, 3), values(2, 3, 2, seed=1)),
        sample(values(3), values(2, 3, 2, seed=1)),
        sample(values(), values(2, 3, seed=1)),
        sample(values(2, 3), 2.0),
        sample(values(2, 0), values(0, 3)),
    ]


@composed(
    precision="lower",
    numpy=np.dot,
    samples=lambda: [
        *_dot_samples(),
        rejected(
            ShapeError,
            "dot: a has shape (2, 3) and b has shape (4, 3); the last axis of a (3) must have the length of axis 0 of "
            "b (4).",
            np.ones((2, 3)),
            np.ones((4, 3)),
        ),
    ],
)
def dot(a: Array, b: Array) -> Array:
    """Return the sum of products over the last axis of `a` and the second-to-last (or only) axis of `b`.

    For vectors and matrices it is ``a @ b``; with a number it is ``a * b``; stacks are multiplied each with each, as
    NumPy does, where `matmul` pairs them off.

    Example:
        >>> nt.dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
        array(11.)
    """
    a_shape, b_shape = shape_of(a), shape_of(b)
    if not a_shape or not b_shape:
        return mul(a, b)
    _check_lengths("dot", a_shape, b_shape, max(len(b_shape) - 2, 0))
    if len(b_shape) <= 2 or len(a_shape) == 1:
        return matmul(a, b)
    return tensordot(a, b, axes=(len(a_shape) - 1, len(b_shape) - 2))


def _check_lengths(name: str, a: Shape, b: Shape, b_axis: int) -> None:
    if a[-1] != b[b_axis]:
        raise ShapeError(
            f"{name}: a has shape {a} and b has shape {b}; the last axis of a ({a[-1]}) must have the length of axis "
            f"{b_axis} of b ({b[b_axis]})."
        )


@composed(
    precision="lower",
    numpy=np.inner,
    samples=lambda: [
        sample(values(3), values(3, seed=1)),
        sample(values(2, 3), values(3, seed=1)),
        sample(values(3), values(2, 3, seed=1)),
        sample(values(2, 3), values(4, 3, seed=1)),
        sample(values(4, 2, 3), values(2, 5, 3, seed=1)),
        sample(values(4, 2, 3), values(5, 3, seed=1)),
        sample(values(), values(2, 3, seed=1)),
        sample(values(2, 3), 2.0),
        sample(values(2, 0), values(3, 0)),
        rejected(
            ShapeError,
            "inner: a has shape (2, 3) and b has shape (3, 2); the last axis of a (3) must have the length of axis 1 "
            "of b (2).",
            np.ones((2, 3)),
            np.ones((3, 2)),
        ),
    ],
)
def inner(a: Array, b: Array) -> Array:
    """Return the sum of products over the last axes of `a` and `b`; with a number it is ``a * b``.

    Example:
        >>> nt.inner(np.ones((2, 3)), np.ones((4, 3))).shape
        (2, 4)
    """
    a_shape, b_shape = shape_of(a), shape_of(b)
    if not a_shape or not b_shape:
        return mul(a, b)
    _check_lengths("inner", a_shape, b_shape, len(b_shape) - 1)
    if len(b_shape) == 1:
        return matmul(a, b)
    if len(b_shape) == 2:
        a, b = as_arrays(a, b)
        return matmul(a, b.swapaxes(0, 1))
    return tensordot(a, b, axes=(len(a_shape) - 1, len(b_shape) - 1))


@composed(
    precision="lower",
    numpy=np.vdot,
    samples=lambda: [
        sample(values(3), values(3, seed=1)),
        sample(values(2, 3), values(2, 3, seed=1)),
        sample(values(2, 3), values(6, seed=1)),
        sample(values(), values(seed=1)),
        sample(values(1), values(1, seed=1)),
        sample(values(2, 1, 3), values(3, 2, seed=1)),
        sample(values(0), values(0)),
        sample(values(1, 1), values(seed=1)),
        rejected(
            ShapeError,
            "vdot: a has shape (2, 3) with 6 elements and b has shape (4,) with 4; both must have as many.",
            np.ones((2, 3)),
            np.ones(4),
        ),
    ],
)
def vdot(a: Array, b: Array) -> Array:
    """Return the sum of products of all elements of `a` and `b`, in order.

    Example:
        >>> nt.vdot(np.ones((2, 3)), np.ones((2, 3)))
        array(6.)
    """
    a_shape, b_shape = shape_of(a), shape_of(b)
    if math.prod(a_shape) != math.prod(b_shape):
        raise ShapeError(
            f"vdot: a has shape {a_shape} with {math.prod(a_shape)} elements and b has shape {b_shape} with "
            f"{math.prod(b_shape)}; both must have as many."
        )
    a, b = as_arrays(a, b)
    return matmul(flat(a), flat(b))


def _vecdot_reference(a: Any, b: Any, axis: int = -1) -> Any:
    return np.sum(np.multiply(a, b), axis=axis)


@composed(
    precision="lower",
    numpy=(np.vecdot, np.linalg.vecdot),
    reference=_vecdot_reference,
    samples=lambda: [
        sample(values(3), values(3, seed=1)),
        sample(values(2, 3), values(2, 3, seed=1)),
        sample(values(2, 3), values(2, 3, seed=1), axis=0),
        sample(values(2, 3), values(3, seed=1)),
        sample(values(4, 1, 3), values(2, 3, seed=1)),
        sample(values(2, 0), values(2, 0)),
        sample(values(1), values(1, seed=1)),
        sample(values(2, 3, 4), values(2, 3, 4, seed=1), axis=-2),
        rejected(
            ShapeError,
            "vecdot: a has shape (2, 3) and b has shape (4,); axis -1 must have one length in both.",
            np.ones((2, 3)),
            np.ones(4),
        ),
    ],
)
def vecdot(a: Array, b: Array, axis: int = -1) -> Array:
    """Return the sums of products of vectors along `axis`; the other axes broadcast.

    Example:
        >>> nt.vecdot(np.ones((2, 3)), np.ones((2, 3)))
        array([3., 3.])
    """
    a, b = as_arrays(a, b)
    if not all(-len(shape) <= axis < len(shape) for shape in (a.shape, b.shape)):
        raise AxisError(f"vecdot: axis {axis} is out of bounds; a has shape {a.shape} and b has shape {b.shape}.")
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"vecdot: a has shape {a.shape} and b has shape {b.shape}; axis {axis} must have one length in both."
        )
    left, right = moved_axis(a, axis, -1), moved_axis(b, axis, -1)
    return (left[..., None, :] @ right[..., :, None])[..., 0, 0]


@composed(
    rounds_once=True,
    precision="lower",
    samples=lambda: [
        sample(values(2, 4), values(2, 3, seed=1), values(3, 4, seed=2)),
        sample(values(4), values(2, 3, seed=1), values(3, 4, seed=2)),
        sample(values(2, 1), values(2, 3, seed=1), values(3, 4, seed=2)),
        sample(values(), values(2, 3, seed=1), values(3, 4, seed=2)),
        sample(values(4), values(2, 3, seed=1), values(3, 4, seed=2), beta=0.5),
        sample(values(4), values(2, 3, seed=1), values(3, 4, seed=2), alpha=-2.0),
        sample(values(4), values(2, 3, seed=1), values(3, 4, seed=2), beta=0.0),
        sample(values(2, 4), values(2, 3, seed=1), values(3, 4, seed=2), beta=2.0, alpha=0.5),
        sample(values(2, 3), values(2, 0), values(0, 3)),
    ],
    reference=lambda addend, a, b, beta=1.0, alpha=1.0: beta * addend + alpha * np.matmul(a, b),
)
def addmm(addend: Array, a: Array, b: Array, beta: float = 1.0, alpha: float = 1.0) -> Array:
    """Return ``beta * addend + alpha * (a @ b)``; with ``beta=0`` what `addend` holds, even NaN, does not count.

    Example:
        >>> nt.addmm(np.ones(2), np.eye(2), np.eye(2), alpha=3.0)
        array([[4., 1.],
               [1., 4.]])
    """
    product = matmul(a, b)
    scaled = product if alpha == 1.0 else product * alpha
    if beta == 0.0:
        addend = np.zeros(shape_of(addend), scaled.dtype)
    return scaled + (addend if beta in (0.0, 1.0) else addend * beta)
