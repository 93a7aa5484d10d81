"""NumPy's convolutions of several groups of samples at once, by the threads that BLAS is held from using.

Strict mode gives BLAS one thread, since its sums depend on their number. How samples are grouped depends on sizes
alone, and what groups add to the gradient of the weight is added in their order: here bits do not depend on threads.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import pairwise
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from . import convolution as plain
from . import pool
from .convolution import Convolution

#: Multiplications of a group, so that another thread is worth its waking and what all of them wait for Python's lock.
_LEAST_WORK = 1 << 23
#: As many as machines have cores to share, most often.
_MOST_GROUPS = 8


def conv(what: Convolution, x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray:
    """Return the convolution of `x` with `weight`, plus `bias`."""

    def work(part: slice) -> NDArray:
        return plain.conv(x[part], weight, bias, what.stride, what.padding, what.dilation, what.groups)

    return _joined(work, what, what.out)


def conv_input(what: Convolution, y: NDArray, weight: NDArray) -> NDArray:
    """Return the transpose of `conv` by its input."""

    def work(part: slice) -> NDArray:
        return plain.conv_input(y[part], weight, what.x[2:], what.stride, what.padding, what.dilation, what.groups)

    return _joined(work, what, what.x)


def conv_weight(what: Convolution, x: NDArray, y: NDArray) -> NDArray:
    """Return the transpose of `conv` by its weight."""
    sums: dict[int, NDArray] = {}

    def work(part: slice) -> None:
        kernel = what.weight[2:]
        sums[part.start] = plain.conv_weight(
            x[part], y[part], kernel, what.stride, what.padding, what.dilation, what.groups
        )

    _share(work, _groups(what))
    total = sums.pop(0)
    for start in sorted(sums):
        total += sums[start]
    return total


def _joined(work: Callable[[slice], NDArray], what: Convolution, shape: Shape) -> NDArray:
    """Return an array of a shape, of which each group of samples makes its part."""
    parts = _groups(what)
    if len(parts) == 1:
        return work(parts[0])
    whole = np.empty(shape, what.dtype)
    _share(lambda part: np.copyto(whole[part], work(part)), parts)
    return whole


def _groups(what: Convolution) -> list[slice]:
    """Return groups of samples, by size alone."""
    count = what.x[0]
    groups = max(1, min(_MOST_GROUPS, what.work() // _LEAST_WORK, count))
    groups = 1 << groups.bit_length() - 1  # Which most numbers of threads can share evenly.
    return [slice(*pair) for pair in pairwise(count * i // groups for i in range(groups + 1))]


def _share(work: Callable[[slice], None], parts: list[slice]) -> None:
    """Let threads do the work of all groups of samples; each has the caller's context, `np.errstate` in it."""
    shares = min(pool.threads(), len(parts))
    pool.run(_do, [(copy_context(), work, parts[i::shares]) for i in range(shares)])


def _do(context: Context, work: Callable[[slice], Any], parts: list[slice]) -> None:
    for part in parts:
        context.run(work, part)
