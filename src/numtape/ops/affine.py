"""A product with a matrix of weights, plus a bias, as one op: what linear layers compute."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core import batching
from ..core.declare import differentiable
from ..core.facts import Structure
from ..core.op import Op
from ..core.terms import Terms, contraction
from ..errors import ShapeError
from ..kernels import providers
from ..kernels.sums import add_reduce
from .samples import rejected, sample, values
from .shapes import broadcast_to


def _rows(x: Array, shape: Shape) -> Array:
    """Return `x`, of a shape with any leading axes, as a matrix."""
    return x.reshape((math.prod(shape[:-1]), shape[-1]))


def _matmul(a: Array, b: Array) -> Array:
    """Return the product of two matrices, or of a vector and one; arrays or tensors."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return providers.matmul(a, b)
    return a @ b


def _product(x: Array, matrix: Array) -> Array:
    """Return the product of `x`, with any leading axes, and a matrix, as one large product."""
    if len(x.shape) <= 2:
        return _matmul(x, matrix)
    return _matmul(_rows(x, x.shape), matrix).reshape((*x.shape[:-1], matrix.shape[1]))


def _pull_weight(g: Array, x: Array, weight_shape: Shape) -> Array:
    return _matmul(_rows(g, (*x.shape[:-1], weight_shape[0])).swapaxes(0, 1), _rows(x, x.shape))


def _pull_bias(g: Array, out_shape: Shape) -> Array:
    return add_reduce(_rows(g, out_shape), 0, False)


def _batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    if batched[1] or batched[2]:
        return batching.loop(op, operands, batched, params)
    return linear(*operands)


def _terms(out: Shape, x: Shape, weight: Shape, bias: Shape = ()) -> list[Terms]:
    lead = tuple(range(len(x) - 1))
    products = contraction(((*lead, "input"), ("output", "input")), (*lead, "output"), (x, weight))
    shift = contraction(((*lead, "output"), ("output",)), (*lead, "output"), (out, weight[:1]))
    return [products, Terms(shift.out, {2: shift.factors[1]})]


def _reference(x: Any, weight: Any, bias: Any = None) -> Any:
    return np.einsum("...i,oi->...o", x, weight) + (0.0 if bias is None else bias)


@differentiable(
    vjps=dict(x=lambda g, weight: _product(g, weight), weight=_pull_weight, bias=_pull_bias),
    jvps=dict(
        x=lambda t, weight: _product(t, weight.swapaxes(0, 1)),
        weight=lambda t, x: _product(x, t.swapaxes(0, 1)),
        bias=lambda t, out_shape: broadcast_to(t, out_shape),
    ),
    cost=lambda out, x, weight, bias=None: 2 * math.prod(out) * (x[-1] + 1),
    size=lambda x, weight, *bias: math.prod(x[:-1]) * weight[0],
    structure=Structure.TERMS,
    terms=_terms,
    precision="lower",
    native_half=True,
    native_half_rules=True,
    batch=_batch,
    reference=_reference,
    samples=lambda: [
        sample(values(2, 3), values(4, 3, seed=1)),
        sample(values(2, 3), values(4, 3, seed=1), values(4, seed=2)),
        sample(values(3), values(4, 3, seed=1), values(4, seed=2)),
        sample(values(3), values(4, 3, seed=1)),
        sample(values(5, 2, 3), values(4, 3, seed=1), values(4, seed=2)),
        sample(values(2, 1, 2, 3), values(1, 3, seed=1), values(1, seed=2)),
        sample(values(1, 1), values(1, 1, seed=1), values(1, seed=2)),
        sample(values(0, 3), values(4, 3, seed=1), values(4, seed=2)),
        sample(values(2, 0), values(3, 0, seed=1), values(3, seed=2)),
        rejected(
            ShapeError,
            "linear: x has shape (2, 3) and weight has shape (3, 4); the last axis of x (3) must equal the last axis "
            "of weight (4).",
            np.ones((2, 3)),
            np.ones((3, 4)),
        ),
        rejected(
            ShapeError,
            "linear: weight has shape (3,); it must be a matrix of shape (outputs, inputs).",
            np.ones((2, 3)),
            np.ones(3),
        ),
        rejected(
            ShapeError,
            "linear: x has shape () and weight has shape (4, 3); x must have an axis of inputs.",
            np.array(1.0),
            np.ones((4, 3)),
        ),
        rejected(
            ShapeError,
            "linear: bias has shape (3,) and weight has shape (4, 3); bias must have one element for each output: "
            "(4,).",
            np.ones((2, 3)),
            np.ones((4, 3)),
            np.ones(3),
        ),
    ],
)
def linear(x: Array, weight: Array, bias: Array = None, /) -> Array:
    """Return ``x @ weight.T + bias``.

    Args:
        x: of shape (..., inputs).
        weight: of shape (outputs, inputs).
        bias: of shape (outputs,), or None.

    Raises:
        ShapeError: if the shapes do not go together.

    Example:
        >>> nt.linear(np.array([1.0, 2.0]), np.array([[3.0, 4.0]]), np.array([10.0]))
        array([21.])
    """
    _check(np.shape(x), np.shape(weight), None if bias is None else np.shape(bias))
    rows = x if x.ndim <= 2 else _rows(x, x.shape)
    out = providers.matmul(rows, weight.T, bias)
    return out if x.ndim <= 2 else out.reshape((*x.shape[:-1], weight.shape[0]))


def _check(x: Shape, weight: Shape, bias: Shape | None) -> None:
    if len(weight) != 2:
        raise ShapeError(f"linear: weight has shape {weight}; it must be a matrix of shape (outputs, inputs).")
    if not x:
        raise ShapeError(f"linear: x has shape {x} and weight has shape {weight}; x must have an axis of inputs.")
    if x[-1] != weight[1]:
        raise ShapeError(
            f"linear: x has shape {x} and weight has shape {weight}; the last axis of x ({x[-1]}) must equal the last "
            f"axis of weight ({weight[1]})."
        )
    if bias is not None and bias != weight[:1]:
        raise ShapeError(
            f"linear: bias has shape {bias} and weight has shape {weight}; bias must have one element for each output: "
            f"{weight[:1]}."
        )
