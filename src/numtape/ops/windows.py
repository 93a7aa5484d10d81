"""What convolutions and pooling share: integers for each axis, samples without a batch axis, checks of windows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.binding import integers_of
from ..core.op import Op
from ..errors import ArgumentError, ShapeError
from ..kernels.convolution import Ints, Pairs

#: One integer, or one for each axis.
PerAxis = int | tuple[int, ...]
#: What the axes after batch and channels are called.
AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}


def per_axis(name: str, parameter: str, value: Any, rank: int, low: int) -> Ints:
    """Return a parameter given as one integer, or as one for each axis, as a tuple; none may be below `low`."""
    given = integers_of(value) or ()
    if len(given) == 1:
        given = given * rank
    if len(given) != rank or min(given) < low:
        raise ArgumentError(
            f"{name}: {parameter} is {value!r}; it must be an integer of at least {low}, or {rank} of them."
        )
    return given


def check_rank(name: str, x: Array, rank: int) -> Shape:
    """Check that `x` is one sample with `rank` axes after its channels, or a batch of them; return its shape."""
    shape: Shape = x.shape if hasattr(x, "shape") else np.shape(x)
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: x has shape {shape}; it must be (batch, channels, {AXES[rank]}) or, for one sample, "
            f"(channels, {AXES[rank]}). Add missing axes with reshape."
        )
    return shape


def with_batch(name: str, x: Array, rank: int) -> tuple[Array, bool]:
    """Return `x` with a batch axis, and whether it had to be added."""
    shape = check_rank(name, x, rank)
    if len(shape) == rank + 2:
        return x, False
    return (x if hasattr(x, "shape") else np.asarray(x)).reshape((1, *shape)), True


def kernel_size(name: str, weight: Array, rank: int, axes: str) -> Ints:
    """Return the size of a weight's kernel; `axes` names its first two axes."""
    shape = weight.shape if hasattr(weight, "shape") else np.shape(weight)
    if len(shape) != rank + 2:
        raise ShapeError(f"{name}: weight has shape {shape}; it must be ({axes}, {AXES[rank]}).")
    return tuple(shape[2:])


def check_pooling(name: str, x: Shape, kernel: Ints, padding: Pairs, dilation: Ints) -> None:
    """Check that there are windows to pool over, and that each holds an element."""
    if len(x) < len(kernel):
        raise ShapeError(f"{name}: x has shape {x} and the kernel is {kernel}; x has too few axes.")
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    pads = tuple(before for before, _ in padding)
    if any(2 * p > r for p, r in zip(pads, reach, strict=True)):
        raise ArgumentError(f"{name}: padding is {pads} and the windows reach over {reach}; pad at most half of that.")
    size = x[len(x) - len(kernel) :]
    padded = tuple(n + 2 * p for n, p in zip(size, pads, strict=True))
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        raise ShapeError(
            f"{name}: x has shape {x}, which padding makes {padded}, and the windows reach over {reach}; they must not "
            "be larger. Pad more, or use a smaller kernel."
        )
    if any(p and d > n for p, d, n in zip(pads, dilation, size, strict=True)):
        raise ArgumentError(
            f"{name}: x has shape {x} and dilation is {dilation}; with padding, windows would hold padding only. Use a "
            "smaller dilation."
        )


def batch_in_front(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Run an op on its last axes as it is: the batch axis is one more in front."""
    return op.face(*operands, **params)


def windows_of(x: NDArray, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, fill: float) -> NDArray:
    """Return the elements of each window along a new last axis, `fill` for padding: the definition, for tests."""
    lead = x.ndim - len(kernel)
    padded = np.pad(x, [(0, 0)] * lead + list(padding), constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    view: Any = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(lead, x.ndim)))
    view = view[(slice(None),) * lead + tuple(slice(None, None, s) for s in stride)]
    view = view[(Ellipsis, *(slice(None, None, d) for d in dilation))]
    windows: NDArray = view.reshape(*view.shape[: x.ndim], math.prod(kernel))
    return windows
