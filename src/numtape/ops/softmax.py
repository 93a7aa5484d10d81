"""Softmax and its relatives: weights along an axis that sum to one."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Axis, NDArray, Shape
from ..core import batching
from ..core.declare import composed, differentiable
from ..core.facts import Structure
from ..core.op import Op
from ..errors import AxisError
from ..kernels.sums import add_reduce
from .arithmetic import neg
from .exponential import exp
from .samples import rejected, sample, values

#: Up to this length of the last axis, reducing columns of a transposed copy beats NumPy's loop over short rows.
_SHORT_LANE = 64


def lane_max(x: NDArray, axis: Axis) -> NDArray:
    """Return the largest elements along `axis`, which stays with length 1; -inf where there are none."""
    if x.ndim > 1 and axis in (-1, x.ndim - 1) and 0 < x.shape[-1] <= _SHORT_LANE:
        columns = x.T.copy() if x.ndim == 2 else np.moveaxis(x, -1, 0).copy()
        return np.asarray(np.maximum.reduce(columns, axis=0)[..., None])
    return np.asarray(np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf))


def lane_sum(x: NDArray, axis: Axis) -> NDArray:
    """Return the sums along `axis`, which stays with length 1."""
    if x.ndim > 1 and axis in (-1, x.ndim - 1) and x.shape[-1] and x.flags.c_contiguous:
        rows = x.reshape(-1, x.shape[-1])
        return np.asarray((rows @ np.ones(x.shape[-1], x.dtype)).reshape(*x.shape[:-1], 1))
    return np.asarray(add_reduce(x, axis, True))


def _lanes_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    # An operand of no axes has lanes of one element, which the batch axis must not join.
    run = batching.loop if operands[0].ndim == 1 else batching.along_axis
    return run(op, operands, batched, params)


def _softmax_cost(out: Shape, x: Shape, axis: Axis) -> int:
    return 12 * math.prod(out)


def lane_samples() -> list[Any]:
    """Return samples of an op of one operand along a parameter `axis`, which is -1 by default."""
    return [
        sample(values(3)),
        sample(values(2, 3)),
        sample(values(2, 3), axis=0),
        sample(values(2, 3, 4), axis=1),
        sample(values(2, 3, 4), axis=-3),
        sample(values(2, 3, 4), axis=(0, 2)),
        sample(values(2, 3), axis=None),
        sample(values(), skip_derivatives="an operand of no axes has no lanes"),
        sample(values(1)),
        sample(values(2, 1)),
        sample(values(0)),
        sample(values(2, 0)),
        sample(values(2, 70)),
        sample(np.array([[1e3, 1e3 + 1.0, 0.0], [-1e3, -1e3 - 1.0, -2e3]])),
    ]


def _lane_axis_rejected(name: str) -> Any:
    return rejected(
        AxisError,
        f"{name}: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
        np.ones((2, 3)),
        axis=2,
    )


def _softmax_rule(g: Array, out: Array, axis: Axis) -> Array:
    # The Jacobian diag(out) - out out^T is symmetric: one rule is VJP and JVP.
    return out * (g - add_reduce(g * out, axis, True))


def _softmax_reference(x: Array, axis: Axis = -1) -> Array:
    shifted = x - np.max(x, axis=axis, keepdims=True) if np.size(x) else x
    with np.errstate(all="ignore"):
        return np.exp(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


@differentiable(
    vjps={"x": _softmax_rule},
    jvps={"x": _softmax_rule},
    cost=_softmax_cost,
    structure=Structure.LANES,
    batch=_lanes_batch,
    to_float=True,
    precision="widen",
    reference=_softmax_reference,
    samples=lambda: [*lane_samples(), _lane_axis_rejected("softmax")],
)
def softmax(x: Array, /, axis: Axis = -1) -> Array:
    """Return ``exp(x) / sum(exp(x))`` along `axis`: positive weights that sum to 1. Large values do not overflow.

    Example:
        >>> nt.softmax(np.array([[0.0, 0.0], [1000.0, 0.0]]))
        array([[0.5, 0.5],
               [1. , 0. ]])
    """
    weights: NDArray = np.asarray(x - lane_max(x, axis))
    np.exp(weights, out=weights)
    weights /= lane_sum(weights, axis)
    return weights


@differentiable(
    vjps={"x": lambda g, out, axis: g - exp(out) * add_reduce(g, axis, True)},
    jvps={"x": lambda t, out, axis: t - add_reduce(exp(out) * t, axis, True)},
    cost=_softmax_cost,
    structure=Structure.LANES,
    batch=_lanes_batch,
    to_float=True,
    precision="widen",
    reference=lambda x, axis=-1: x - np.logaddexp.reduce(x, axis=axis, keepdims=True) if np.size(x) else x,
    samples=lambda: [
        *(s for s in lane_samples() if s.params.get("axis") != (0, 2) and np.ndim(s.args[0])),
        _lane_axis_rejected("log_softmax"),
    ],
)
def log_softmax(x: Array, /, axis: Axis = -1) -> Array:
    """Return ``log(softmax(x))`` along `axis`, exact also where softmax is too small for its dtype.

    Example:
        >>> nt.log_softmax(np.array([1000.0, 0.0]))
        array([    0., -1000.])
    """
    shifted: NDArray = np.asarray(x - lane_max(x, axis))
    shifted -= np.log(lane_sum(np.exp(shifted), axis))
    return shifted


@composed(
    precision="widen",
    reference=lambda x, axis=-1: _softmax_reference(-x, axis),
    samples=lambda: [
        *lane_samples(),
        rejected(
            AxisError,
            "softmax: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).",
            np.ones((2, 3)),
            axis=2,
        ),
    ],
)
def softmin(x: Array, axis: Axis = -1) -> Array:
    """Return ``softmax(-x)`` along `axis`: weights that are largest where x is smallest.

    Example:
        >>> nt.softmin(np.array([0.0, 1000.0]))
        array([1., 0.])
    """
    return softmax(neg(x), axis=axis)
