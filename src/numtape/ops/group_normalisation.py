"""Normalisation of groups of channels, each example alone: group and instance norm."""

import math

import numpy as np

from .._typing import Array
from ..core.declare import composed
from ..errors import ArgumentError, ShapeError
from . import row_normalisation as row_normalisation
from .normalisation import check_channels, scale_and_shift
from .rectifiers import as_number
from .row_normalisation import layer_norm_rows
from .samples import rejected, sample, values
from .shapes import as_array


def _group_reference(x: Array, num_groups: int, weight: Array = None, bias: Array = None, eps: float = 1e-5) -> Array:
    grouped = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    over = tuple(range(2, grouped.ndim))
    h = (grouped - grouped.mean(over, keepdims=True)) / np.sqrt(grouped.var(over, keepdims=True) + eps)
    shape = (-1,) + (1,) * (x.ndim - 2)
    h = h.reshape(x.shape) * (1.0 if weight is None else weight.reshape(shape))
    return h + (0.0 if bias is None else bias.reshape(shape))


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    reference=_group_reference,
    samples=lambda: [
        sample(values(2, 4, 3), 2),
        sample(values(2, 4, 3), 2, values(4, seed=1)),
        sample(values(2, 4, 3), 2, values(4, seed=1), values(4, seed=2)),
        sample(values(2, 4, 3), 1, None, values(4, seed=2)),
        sample(values(2, 4, 3), 4, eps=0.1),
        sample(values(2, 6), 2, values(6, seed=1), values(6, seed=2)),
        sample(values(2, 4, 2, 3), 2, values(4, seed=1), values(4, seed=2)),
        sample(values(1, 2, 3), 1),
        sample(values(0, 4, 3), 2),
        rejected(
            ArgumentError,
            "group_norm: x has shape (2, 4) with 4 channels on axis 1, which num_groups (3) does not divide.",
            np.ones((2, 4)),
            3,
        ),
        rejected(
            ShapeError,
            "group_norm: x has shape (2, 4) and weight has shape (3,); it must hold one number for each of 4 channels, "
            "on axis 1 of x.",
            np.ones((2, 4)),
            2,
            weight=np.ones(3),
        ),
        rejected(
            ShapeError,
            "group_norm: x has shape (4,); it must have shape (batch, channels, ...).",
            np.ones(4),
            2,
        ),
    ],
)
def group_norm(x: Array, num_groups: int, weight: Array = None, bias: Array = None, eps: float = 1e-5) -> Array:
    """Return x with each group of channels of each member of the batch normalised, then scaled and shifted.

    Args:
        x: of shape (batch, channels, ...).
        num_groups: into how many groups the channels are cut.
        weight: a factor for each channel; None for 1.
        bias: a summand for each channel; None for 0.
        eps: added to the variance, which is that with ``ddof=0``.

    Raises:
        ShapeError: if the shapes do not match.
        ArgumentError: if num_groups does not divide the number of channels.

    Example:
        >>> nt.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
        array([[-1.,  1., -1.,  1.]])
    """
    x, eps = as_array(x), as_number("group_norm", "eps", eps)
    check_channels("group_norm", x, 2, weight=weight, bias=bias)
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ArgumentError(
            f"group_norm: x has shape {x.shape} with {x.shape[1]} channels on axis 1, which num_groups ({num_groups}) "
            "does not divide."
        )
    grouped = x.reshape((x.shape[0] * num_groups, math.prod(x.shape[1:]) // num_groups))
    return scale_and_shift(layer_norm_rows(grouped, eps=eps).reshape(x.shape), weight, bias)


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    reference=lambda x, weight=None, bias=None, eps=1e-5: _group_reference(x, x.shape[1], weight, bias, eps),
    samples=lambda: [
        sample(values(2, 3, 4)),
        sample(values(2, 3, 4), weight=values(3, seed=1)),
        sample(values(2, 3, 4), weight=values(3, seed=1), bias=values(3, seed=2)),
        sample(values(2, 3, 4), bias=values(3, seed=2)),
        sample(values(2, 3, 2, 2), weight=values(3, seed=1), bias=values(3, seed=2), eps=0.1),
        sample(values(1, 1, 5)),
        sample(values(2, 2, 1), eps=0.5),
        sample(values(0, 3, 4)),
        rejected(
            ShapeError,
            "instance_norm: x has shape (2, 3); it must have shape (batch, channels, length, ...).",
            np.ones((2, 3)),
        ),
    ],
)
def instance_norm(x: Array, *, weight: Array = None, bias: Array = None, eps: float = 1e-5) -> Array:
    """Return x with each channel of each member of the batch normalised, then scaled and shifted.

    Args:
        x: of shape (batch, channels, length, ...).
        weight: a factor for each channel; None for 1.
        bias: a summand for each channel; None for 0.
        eps: added to the variance, which is that with ``ddof=0``.

    Raises:
        ShapeError: if the shapes do not match.

    Example:
        >>> nt.instance_norm(np.array([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)
        array([[[-1.,  1.],
                [-1.,  1.]]])
    """
    x, eps = as_array(x), as_number("instance_norm", "eps", eps)
    check_channels("instance_norm", x, 3, weight=weight, bias=bias)
    rows = x.reshape((x.shape[0] * x.shape[1], math.prod(x.shape[2:])))
    return scale_and_shift(layer_norm_rows(rows, eps=eps).reshape(x.shape), weight, bias)
