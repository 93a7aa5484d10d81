"""Products of elements: of each with each (outer, kron), and the cross product of vectors."""

import math

import numpy as np

from .._typing import Array, Shape
from ..core import batching
from ..core.declare import composed, face_of, linear
from ..core.facts import Structure
from ..core.terms import Terms, contraction
from ..errors import ShapeError
from .arithmetic import mul
from .samples import rejected, sample, values
from .shapes import as_array, as_arrays, permute, shape_of


def flat(x: Array) -> Array:
    """Return all elements in one axis."""
    return as_array(x).reshape((math.prod(shape_of(x)),))


@composed(
    numpy=(np.outer, np.linalg.outer),
    also=("ger",),
    samples=lambda: [
        sample(values(3), values(4, seed=1)),
        sample(values(2, 3), values(4, seed=1)),
        sample(values(2, 2), values(2, 1, 2, seed=1)),
        sample(values(), values(3, seed=1)),
        sample(values(3), 2.0),
        sample(values(1), values(1, seed=1)),
        sample(values(0), values(3)),
        sample(values(), values(seed=1)),
    ],
)
def outer(a: Array, b: Array) -> Array:
    """Return the products of each element of `a` with each of `b`, as a matrix.

    Example:
        >>> nt.outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
        array([[3., 4.],
               [6., 8.]])
    """
    a_shape, b_shape = shape_of(a), shape_of(b)
    # A number stays one, so that it does not decide the dtype.
    if a_shape and b_shape:
        a, b = as_arrays(a, b)
        product = mul(flat(a)[:, None], flat(b))
    else:
        product = mul(a, b)
    return product.reshape((math.prod(a_shape), math.prod(b_shape)))


@composed(
    numpy=np.kron,
    samples=lambda: [
        sample(values(2, 2), values(2, 3, seed=1)),
        sample(values(3), values(2, seed=1)),
        sample(values(2, 3), values(2, seed=1)),
        sample(values(2), values(2, 3, seed=1)),
        sample(values(2, 1, 2), values(1, 3, 2, seed=1)),
        sample(values(), values(2, 2, seed=1)),
        sample(values(2, 2), values(seed=1)),
        sample(values(1, 1), values(2, 3, seed=1)),
        sample(values(2, 2), 2.0),
        sample(values(0, 2), values(2, 2)),
    ],
)
def kron(a: Array, b: Array) -> Array:
    """Return the Kronecker product: `a` with each element replaced by its product with all of `b`.

    Example:
        >>> nt.kron(np.array([1.0, 10.0]), np.array([1.0, 2.0]))
        array([ 1.,  2., 10., 20.])
    """
    if not shape_of(a) or not shape_of(b):
        return mul(a, b)
    a, b = as_arrays(a, b)
    ndim = max(len(a.shape), len(b.shape))
    a_lengths = (1,) * (ndim - len(a.shape)) + a.shape
    b_lengths = (1,) * (ndim - len(b.shape)) + b.shape
    spread = a.reshape(tuple(n for length in a_lengths for n in (length, 1)))
    repeated = b.reshape(tuple(n for length in b_lengths for n in (1, length)))
    return (spread * repeated).reshape(tuple(m * n for m, n in zip(a_lengths, b_lengths, strict=True)))


def _cross_a(g: Array, b: Array) -> Array:
    # g . (da x b) = da . (b x g).
    return _cross(b, g)


def _cross_b(g: Array, a: Array) -> Array:
    return _cross(g, a)


def _cross_terms(out: Shape, a: Shape, b: Shape) -> list[Terms]:
    # Each component of the one with each of the other: no component is missed.
    a_names, b_names = (*range(1 - len(a), 0), "a"), (*range(1 - len(b), 0), "b")
    names = (*range(1 - len(out), 0), "out")
    terms = contraction((a_names, b_names, names), names, (a, b, out))
    return [Terms(terms.out, {0: terms.factors[0], 1: terms.factors[1]})]


@linear(
    transposes=dict(a=_cross_a, b=_cross_b),
    structure=Structure.TERMS,
    terms=_cross_terms,
    cost=lambda out, a, b: 3 * math.prod(out),
    batch=batching.elementwise,
    numpy=(np.cross, np.linalg.cross),
    samples=lambda: [
        sample(values(3), values(3, seed=1)),
        sample(values(2, 3), values(2, 3, seed=1)),
        sample(values(2, 3), values(3, seed=1)),
        sample(values(3), values(4, 3, seed=1)),
        sample(values(4, 1, 3), values(2, 3, seed=1)),
        sample(values(1, 3), values(1, 3, seed=1)),
        sample(values(0, 3), values(0, 3)),
        sample(values(0, 3), values(3)),
        rejected(
            ShapeError,
            "cross: a has shape (2, 2) and b has shape (2, 2); the axis of the vectors must have length 3.",
            np.ones((2, 2)),
            np.ones((2, 2)),
        ),
        rejected(
            ShapeError,
            "cross: a has shape (2, 3) and b has shape (4, 3); the leading axes (2,) and (4,) do not broadcast.",
            np.ones((2, 3)),
            np.ones((4, 3)),
        ),
    ],
)
def _cross(a: Array, b: Array, /) -> Array:
    """Return the cross products of vectors along the last axis."""
    a_shape, b_shape = np.shape(a), np.shape(b)
    if a_shape[-1:] != (3,) or b_shape[-1:] != (3,):
        raise ShapeError(
            f"cross: a has shape {a_shape} and b has shape {b_shape}; the axis of the vectors must have length 3."
        )
    try:
        shape = np.broadcast_shapes(a_shape, b_shape)
    except ValueError as error:
        raise ShapeError(
            f"cross: a has shape {a_shape} and b has shape {b_shape}; the leading axes {a_shape[:-1]} and "
            f"{b_shape[:-1]} do not broadcast."
        ) from error
    out = np.empty(shape, a.dtype)
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        np.multiply(a[..., j], b[..., k], out=out[..., i])
        out[..., i] -= a[..., k] * b[..., j]
    return out


def moved_axis(x: Array, source: int, target: int) -> Array:
    """Return `x` with one axis moved to another place."""
    ndim = len(x.shape)
    if source % ndim == target % ndim:
        return x
    axes = [axis for axis in range(ndim) if axis != source % ndim]
    axes.insert(target % ndim, source % ndim)
    return permute(x, tuple(axes))


@face_of(_cross)
def cross(a: Array, b: Array, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """Return the cross products of vectors of three elements.

    Args:
        a: vectors along `axisa`.
        b: vectors along `axisb`. The other axes broadcast.
        axisa: the axis of the vectors in a.
        axisb: the axis of the vectors in b.
        axisc: the axis of the vectors in the result.
        axis: the axis of the vectors in all three.

    Example:
        >>> nt.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
        array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = as_arrays(a, b)
    if not a.shape or not b.shape:
        raise ShapeError(
            f"cross: a has shape {a.shape} and b has shape {b.shape}; both must have an axis of three elements."
        )
    out = _cross(moved_axis(a, axisa, -1), moved_axis(b, axisb, -1))
    return moved_axis(out, -1, axisc)
