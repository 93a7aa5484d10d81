"""How arrays that a walk only imagines lie in memory: their strides, counted in elements.

A reshape copies what does not lie as it should. Whether it does follows from how views and results of elementwise
functions lie. NumPy itself is asked, about arrays of which nobody reads an element.
"""

import mmap
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .._typing import NDArray, Shape
from ..kernels.views import extent

Strides = tuple[int, ...]

#: The only element of arrays that are asked about and must not be read.
_NOTHING = np.zeros(1, np.int8)


def strides_of(array: NDArray) -> Strides:
    """Return the strides of an array."""
    return tuple(stride // max(1, array.itemsize) for stride in array.strides)


@lru_cache(1024)
def in_rows(shape: Shape) -> Strides:
    """Return the strides of an array whose elements lie in order, the last index fastest."""
    return _dense(shape, range(len(shape)))


def _dense(shape: Shape, order: Sequence[int]) -> Strides:
    """Return the strides of an array without gaps whose axes lie in an order, the last one fastest."""
    steps = accumulate((max(1, shape[axis]) for axis in reversed(order)), lambda a, b: a * b, initial=1)
    found = dict(zip(reversed(order), steps, strict=False))
    return tuple(found[axis] for axis in range(len(shape)))


@lru_cache(1024)
def reshaped(shape: Shape, strides: Strides, target: Shape) -> Strides | None:
    """Return the strides of a view in another shape; None if it takes a copy."""
    try:
        return as_strided(_NOTHING, shape, strides).reshape(target, copy=False).strides
    except ValueError:
        return None


@lru_cache(1024)
def computed(shape: Shape, operands: tuple[Strides, ...]) -> Strides:
    """Return the strides of what an elementwise function computes of operands of one shape."""
    if all(strides == in_rows(shape) for strides in operands):
        return in_rows(shape)
    small = tuple(min(length, 2) for length in shape)  # The order of axes does not depend on lengths.
    given = [as_strided(_NOTHING, small, strides) for strides in operands]
    flags: Any = [["readonly"]] * len(given) + [["writeonly", "allocate"]]
    arrays: Any = [*given, None]
    made = np.nditer(arrays, ["zerosize_ok"], flags).operands[-1].strides
    return _dense(shape, sorted(range(len(shape)), key=lambda axis: (-made[axis], axis)))


def imagined(shape: Shape, strides: Strides) -> NDArray:
    """Return an array of one byte an element that lies as given; rules that give views can be asked how these lie.

    Nobody reads or writes an element, so that the system gives no memory for it.
    """
    lowest, end = extent(shape, strides, 1)
    room = _untouched(1 << max(16, (end - lowest - 1).bit_length()))
    return np.ndarray(shape, np.int8, room, -lowest, strides)


@lru_cache(1)
def _untouched(nbytes: int) -> mmap.mmap:
    """Return pages of the system, which the C library would take from memory that was used before."""
    return mmap.mmap(-1, nbytes)
