"""Ops that draw random numbers: functions of a stream's key and counter, so that they can be computed again."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, Shape
from ..core.declare import face_of, linear
from ..core.facts import Structure
from ..core.op import Op
from ..core.stream import Stream, stream_of
from ..errors import ArgumentError, OperandError
from ..kernels import random as kernels
from .samples import rejected, sample, values
from .shapes import shape_of


def stream_for(caller: str, rng: Any) -> Stream:
    """Return the stream that the ``rng=`` of a function means; if it means none, the error names the function."""
    try:
        return stream_of(rng)
    except (OperandError, ArgumentError) as error:
        raise type(error)(f"{caller}: {str(error).removeprefix('rng: ')}") from None


def _mask(shape: Shape, p: float, key: int, counter: int, dtype: Any) -> Any:
    """Return 1 / (1 - p) where an element survives and 0 where it is dropped."""
    if p >= 1.0:
        return np.zeros(shape, dtype)
    return kernels.chances(key, counter, shape, 1.0 - p) * dtype.type(1.0 / (1.0 - p))


def _dropout_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    (x,) = operands
    return x * _mask(x.shape[1:], **params, dtype=x.dtype)


def _drop_again(g: Array, p: float, key: int, counter: int) -> Array:
    # A diagonal map is its own transpose.
    return _dropout(g, p=p, key=key, counter=counter)


@linear(
    transposes={"x": _drop_again},
    structure=Structure.ELEMENTWISE,
    batch=_dropout_batch,
    # Ten rounds of Philox, of some ten operations each, give eight numbers; comparing and scaling take the rest.
    cost=lambda out, x, p, key, counter: 16 * math.prod(out),
    to_float=True,
    samples=lambda: [
        sample(values(5, 4), p=0.5, key=1, counter=0),
        sample(values(5, 4), p=0.5, key=1, counter=5),
        sample(values(7), p=0.1, key=2, counter=0),
        sample(values(), p=0.5, key=3, counter=0),
        sample(values(0), p=0.5, key=3, counter=0),
        sample(values(3, 2), p=0.0, key=3, counter=0),
        sample(values(3, 2), p=1.0, key=3, counter=0),
        sample(values(2, 3, 4), p=0.9, key=4, counter=1),
        rejected(ArgumentError, "dropout: p is 1.5; a probability lies between 0 and 1.", values(2), p=1.5),
    ],
)
def _dropout(x: Array, /, *, p: float = 0.5, key: int = 0, counter: int = 0) -> Array:
    """Drop elements at random, with the mask of a stream's key and counter."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p is {p}; a probability lies between 0 and 1.")
    return x * _mask(x.shape, p, key, counter, x.dtype)


@face_of(_dropout)
def dropout(x: Array, p: float = 0.5, training: bool = True, *, rng: Any = None) -> Array:
    """Return `x` with each element zeroed with probability `p` and the others divided by ``1 - p``.

    Args:
        x: any shape.
        p: the probability of dropping an element.
        training: False returns `x` as it is.
        rng: a Generator, an integer seed, or None for the thread's stream.

    Example:
        >>> nt.dropout(np.ones(4), p=0.5, rng=0).tolist()
        [0.0, 2.0, 2.0, 0.0]
    """
    if not training:
        return x
    key, counter = stream_for("dropout", rng).take(-(-math.prod(shape_of(x)) // kernels.CHANCES_PER_WORD))
    return _dropout(x, p=p, key=key, counter=counter)
