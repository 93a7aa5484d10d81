"""Pooling: means over windows, of a size that is given or that follows from the output's; maxima are in max_pooling."""

import math
from functools import partial
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.binding import plain_number
from ..core.declare import composed, linear
from ..core.facts import Structure
from ..core.terms import Terms, windows
from ..errors import ArgumentError, ShapeError
from ..kernels import pooling
from ..kernels.convolution import Ints, Pairs, out_size
from .arithmetic import div
from .max_pooling import max_pool1d as max_pool1d
from .max_pooling import max_pool2d as max_pool2d
from .reductions import sum
from .samples import rejected, sample, values
from .windows import AXES, PerAxis, batch_in_front, check_pooling, check_rank, per_axis, windows_of


def _divisor(size: Ints, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    """Return the number of places of a window, or for each window the number of those inside."""
    if count_include_pad or not any(before for before, _ in padding):
        return math.prod(kernel)
    return pooling.window_sum(np.ones(size, np.int64), kernel, stride, padding)


def _divide(x: NDArray, divisor: Any) -> NDArray:
    return x / (divisor if isinstance(divisor, int) else divisor.astype(x.dtype))


def _window_samples() -> list[tuple[Shape, dict[str, Any]]]:
    def case(x: Shape, kernel: Ints, stride: Ints, pads: Ints, count_include_pad: bool = True) -> Any:
        pairs = tuple((p, p) for p in pads)
        return x, {"kernel": kernel, "stride": stride, "padding": pairs, "count_include_pad": count_include_pad}

    return [
        case((2, 4, 6), (2, 2), (2, 2), (0, 0)),
        case((2, 1, 5, 5), (2, 3), (3, 2), (0, 0)),
        case((1, 5, 4), (3, 2), (1, 1), (1, 1)),
        case((1, 5, 4), (3, 2), (1, 1), (1, 1), False),
        case((2, 3, 3), (3, 3), (3, 3), (0, 0)),
        case((3, 3), (3, 3), (5, 5), (1, 0)),
        case((1, 2, 2), (1, 1), (1, 1), (0, 0)),
        case((2, 7), (3,), (2,), (1,)),
        case((2, 7), (3,), (2,), (1,), False),
        case((4,), (2,), (3,), (0,)),
        case((0, 4, 4), (2, 2), (2, 2), (0, 0)),
        case((3, 4, 2), (2, 2, 1), (1, 1, 1), (0, 0, 0)),
    ]


def _means_by_definition(x: NDArray, *, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> NDArray:
    windows = windows_of(x, kernel, stride, padding, (1,) * len(kernel), 0.0 if count_include_pad else np.nan)
    return np.asarray(np.nanmean(windows, axis=-1))


def _avg_back(g: Array, x_shape: Shape, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Array:
    size = tuple(x_shape[len(x_shape) - len(kernel) :])
    return avg_unpool(g, size=size, kernel=kernel, stride=stride, padding=padding, count_include_pad=count_include_pad)


def _places(x: Shape, out: Shape, kernel: Ints, stride: Ints, padding: Pairs) -> tuple[NDArray, NDArray]:
    """Return which elements of x and of the means belong together: flat positions."""
    lead = len(x) - len(kernel)
    window, _, place = windows(x[lead:], kernel, stride, padding, (1,) * len(kernel))
    sample = np.arange(math.prod(x[:lead]))[:, None]
    return sample * math.prod(x[lead:]) + place, sample * math.prod(out[lead:]) + window


def _pool_terms(
    out: Shape, x: Shape, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool
) -> list[Terms]:
    inputs, means = _places(x, out, kernel, stride, padding)
    return [Terms(means, {0: inputs})]


def _unpool_terms(
    out: Shape, x: Shape, size: Ints, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool
) -> list[Terms]:
    inputs, means = _places(out, x, kernel, stride, padding)
    return [Terms(inputs, {0: means})]


@linear(
    transposes={"x": _avg_back},
    cost=lambda out, x, kernel, **params: math.prod(out) * math.prod(kernel),
    structure=Structure.TERMS,
    terms=_pool_terms,
    precision="widen",
    to_float=True,
    batch=batch_in_front,
    reference=_means_by_definition,
    samples=lambda: [
        *(sample(values(*x), **params) for x, params in _window_samples()),
        rejected(
            ShapeError,
            "avg_pool2d: x has shape (4,) and the kernel is (2, 2); x has too few axes.",
            np.ones(4),
            kernel=(2, 2),
            stride=(2, 2),
            padding=((0, 0), (0, 0)),
            count_include_pad=True,
        ),
    ],
)
def avg_pool(x: Array, /, *, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Array:
    """Return the mean of each window of the last axes; `avg_pool1d` and `avg_pool2d` take friendlier arguments.

    Args:
        x: with at least as many axes as the kernel.
        kernel: the size of a window, for each of the last axes.
        stride: the step from window to window, for each.
        padding: how many zeros there are (before, after), for each.
        count_include_pad: whether the zeros count as elements.

    Example:
        >>> x = np.array([1.0, 3.0, 5.0])
        >>> nt.avg_pool(x, kernel=(2,), stride=(1,), padding=((0, 0),), count_include_pad=True)
        array([2., 4.])
    """
    check_pooling(f"avg_pool{len(kernel)}d", x.shape, kernel, padding, (1,) * len(kernel))
    size = x.shape[x.ndim - len(kernel) :]
    out = pooling.window_sum(x, kernel, stride, padding)
    return _divide(out, _divisor(size, kernel, stride, padding, count_include_pad))


def _avg_again(g: Array, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Array:
    return avg_pool(g, kernel=kernel, stride=stride, padding=padding, count_include_pad=count_include_pad)


def _unpool_samples() -> list[Any]:
    found = []
    for x, params in _window_samples():
        kernel, lead = params["kernel"], len(x) - len(params["kernel"])
        windows = out_size(x[lead:], kernel, params["stride"], params["padding"], (1,) * len(kernel))
        found.append(sample(values(*x[:lead], *windows), size=x[lead:], **params))
    return found


@linear(
    transposes={"x": _avg_again},
    cost=lambda out, x, kernel, **params: math.prod(x) * math.prod(kernel),
    structure=Structure.TERMS,
    terms=_unpool_terms,
    precision="widen",
    to_float=True,
    batch=batch_in_front,
    samples=_unpool_samples,
)
def avg_unpool(
    x: Array, /, *, size: Ints, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool
) -> Array:
    """Return the transpose of `avg_pool`: each mean shared out evenly over its window, in last axes of `size`.

    Example:
        >>> x = np.array([2.0, 4.0])
        >>> nt.avg_unpool(x, size=(3,), kernel=(2,), stride=(1,), padding=((0, 0),), count_include_pad=True)
        array([1., 3., 2.])
    """
    shares = _divide(x, _divisor(size, kernel, stride, padding, count_include_pad))
    return pooling.spread_sum(shares, size, kernel, stride, padding)


def _pool(rank: int, x: Array, kernel_size: Any, stride: Any, padding: Any, count_include_pad: bool) -> Array:
    name = f"avg_pool{rank}d"
    check_rank(name, x, rank)
    kernel = per_axis(name, "kernel_size", kernel_size, rank, 1)
    return avg_pool(
        x,
        kernel=kernel,
        stride=kernel if stride is None else per_axis(name, "stride", stride, rank, 1),
        padding=tuple((p, p) for p in per_axis(name, "padding", padding, rank, 0)),
        count_include_pad=bool(count_include_pad),
    )


def _pool_by_definition(
    x: NDArray,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    *,
    rank: int,
) -> NDArray:
    kernel, steps, pads = (
        tuple(np.broadcast_to(kernel_size if n is None else n, rank)) for n in (kernel_size, stride, padding)
    )
    pairs = tuple((p, p) for p in pads)
    return _means_by_definition(x, kernel=kernel, stride=steps, padding=pairs, count_include_pad=count_include_pad)


@composed(
    rounds_once=True,
    precision="widen",
    reference=partial(_pool_by_definition, rank=1),
    samples=lambda: [
        sample(values(2, 3, 6), 2),
        sample(values(2, 5), 2),
        sample(values(1, 2, 6), 3, stride=1),
        sample(values(1, 2, 6), 3, stride=2, padding=1),
        sample(values(1, 2, 6), 3, stride=2, padding=1, count_include_pad=False),
        sample(values(1, 1, 6), (2,), stride=(3,)),
        sample(values(1, 1, 1), 1),
        sample(values(0, 1, 4), 4),
        rejected(
            ShapeError,
            "avg_pool1d: x has shape (4,); it must be (batch, channels, length) or, for one sample, (channels, "
            "length). Add missing axes with reshape.",
            np.ones(4),
            2,
        ),
    ],
)
def avg_pool1d(
    x: Array,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    *,
    count_include_pad: bool = True,
) -> Array:
    """Return the mean of each window of sequences. The arguments are those of `avg_pool2d`, for one axis.

    Example:
        >>> nt.avg_pool1d(np.array([[1.0, 3.0, 2.0, 0.0]]), 2)
        array([[2., 1.]])
    """
    return _pool(1, x, kernel_size, stride, padding, count_include_pad)


@composed(
    rounds_once=True,
    precision="widen",
    reference=partial(_pool_by_definition, rank=2),
    samples=lambda: [
        sample(values(2, 2, 4, 4), 2),
        sample(values(2, 4, 6), (2, 3)),
        sample(values(1, 1, 5, 5), 2),
        sample(values(1, 2, 4, 5), 3, stride=1),
        sample(values(1, 1, 5, 5), 3, stride=2, padding=1),
        sample(values(1, 1, 5, 5), 3, stride=2, padding=1, count_include_pad=False),
        sample(values(1, 1, 5, 6), (2, 4), stride=(1, 2), padding=(0, 2)),
        sample(values(1, 1, 3, 3), 3),
        sample(values(0, 1, 2, 2), 2),
        rejected(
            ShapeError,
            "avg_pool2d: x has shape (1, 1, 2, 2), which padding makes (2, 2), and the windows reach over (3, 3); they "
            "must not be larger. Pad more, or use a smaller kernel.",
            np.ones((1, 1, 2, 2)),
            3,
        ),
        rejected(
            ArgumentError,
            "avg_pool2d: padding is (2, 2) and the windows reach over (3, 3); pad at most half of that.",
            np.ones((1, 1, 4, 4)),
            3,
            padding=2,
        ),
        rejected(
            ArgumentError,
            "avg_pool2d: stride is (1, 2, 3); it must be an integer of at least 1, or 2 of them.",
            np.ones((1, 1, 4, 4)),
            3,
            stride=(1, 2, 3),
        ),
    ],
)
def avg_pool2d(
    x: Array,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    *,
    count_include_pad: bool = True,
) -> Array:
    """Return the mean of each window of images.

    Args:
        x: of shape (batch, channels, height, width), or (channels, height, width) for one sample.
        kernel_size: the size of a window; an integer, or two for (height, width), like the next ones.
        stride: the step from window to window; None for `kernel_size`, so that windows do not overlap.
        padding: how many zeros are added on each side, at most half of a window.
        count_include_pad: whether these zeros count as elements.

    Example:
        >>> nt.avg_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
        array([[[ 2.5,  4.5],
                [10.5, 12.5]]])
    """
    return _pool(2, x, kernel_size, stride, padding, count_include_pad)


def _bounds(size: int, out: int) -> list[tuple[int, int]]:
    """Return the windows, as even as they get, that cover `size` elements: they overlap if `out` does not divide it."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _adapt(rank: int, x: Array, output_size: Any) -> Array:
    name = f"adaptive_avg_pool{rank}d"
    shape = check_rank(name, x, rank)
    lead, size = shape[: len(shape) - rank], shape[len(shape) - rank :]
    is_single = not hasattr(output_size, "__iter__") or not np.ndim(output_size)
    given = (output_size,) * rank if is_single else tuple(output_size)
    if len(given) != rank or any(out is not None and plain_number(out, int) is None for out in given):
        raise ArgumentError(
            f"{name}: output_size is {output_size!r}; it must be an integer or None, or {rank} of them."
        )
    wanted = tuple(n if out is None else out for n, out in zip(size, given, strict=True))
    wanted = per_axis(name, "output_size", wanted, rank, 1)
    if not all(size):
        raise ShapeError(f"{name}: x has shape {shape}; the axes ({AXES[rank]}) must not be empty.")
    if all(n % out == 0 for n, out in zip(size, wanted, strict=True)):
        kernel = tuple(n // out for n, out in zip(size, wanted, strict=True))
        return avg_pool(x, kernel=kernel, stride=kernel, padding=((0, 0),) * rank, count_include_pad=True)
    # The quotient makes integers floats.
    x = div(x, 1.0)
    for axis, (n, out) in enumerate(zip(size, wanted, strict=True), len(lead)):
        x = _mean_along(x, axis, _bounds(n, out))
    return x


def _mean_along(x: Array, axis: int, bounds: list[tuple[int, int]]) -> Array:
    """Return the means of windows of one axis that differ in length."""
    starts, stops = np.array(bounds).T[:, :, None]
    places = starts + np.arange(np.max(stops - starts))
    # A shorter window repeats its last element, times 0: nothing from outside comes in, not even NaN.
    taken = x[(slice(None),) * axis + (np.minimum(places, stops - 1),)]
    ones = (1,) * (len(x.shape) - axis - 1)
    is_inside = (places < stops).reshape(*places.shape, *ones).astype(x.dtype)
    counts = (stops - starts).reshape(-1, *ones).astype(x.dtype)
    return sum(taken * is_inside, axis=axis + 1) / counts


def _adapted_by_definition(x: NDArray, output_size: Any, *, rank: int) -> NDArray:
    for axis, out in enumerate(np.broadcast_to(np.array(output_size, object), rank), x.ndim - rank):
        n, count = x.shape[axis], x.shape[axis] if out is None else out
        edges = [(math.floor(i * n / count), math.ceil((i + 1) * n / count)) for i in range(count)]
        x = np.stack([x.take(range(*edge), axis).mean(axis) for edge in edges], axis)
    return x


@composed(
    rounds_once=True,
    precision="widen",
    reference=partial(_adapted_by_definition, rank=1),
    samples=lambda: [
        sample(values(2, 3, 6), 2),
        sample(values(2, 5), 2),
        sample(values(1, 2, 7), 3),
        sample(values(1, 2, 3), 5),
        sample(values(1, 2, 4), 1),
        sample(values(1, 2, 4), None),
        sample(values(1, 2, 4), (4,)),
        sample(values(0, 1, 5), 2),
        rejected(
            ArgumentError,
            "adaptive_avg_pool1d: output_size is (0,); it must be an integer of at least 1, or 1 of them.",
            np.ones((1, 1, 4)),
            0,
        ),
    ],
)
def adaptive_avg_pool1d(x: Array, output_size: PerAxis | None) -> Array:
    """Return the means of as many windows of sequences as asked for. See `adaptive_avg_pool2d`.

    Example:
        >>> nt.adaptive_avg_pool1d(np.array([[1.0, 3.0, 2.0]]), 2)
        array([[2. , 2.5]])
    """
    return _adapt(1, x, output_size)


@composed(
    rounds_once=True,
    precision="widen",
    reference=partial(_adapted_by_definition, rank=2),
    samples=lambda: [
        sample(values(2, 2, 4, 6), 2),
        sample(values(2, 5, 4), (2, 2)),
        sample(values(1, 2, 5, 7), 3),
        sample(values(1, 2, 2, 3), (3, 5)),
        sample(values(1, 2, 3, 4), 1),
        sample(values(1, 2, 3, 4), (None, 3)),
        sample(values(1, 2, 3, 4), (3, 4)),
        sample(values(0, 1, 5, 5), 2),
        rejected(
            ShapeError,
            "adaptive_avg_pool2d: x has shape (4, 4); it must be (batch, channels, height, width) or, for one sample, "
            "(channels, height, width). Add missing axes with reshape.",
            np.ones((4, 4)),
            2,
        ),
        rejected(
            ArgumentError,
            "adaptive_avg_pool2d: output_size is (1, 2, 3); it must be an integer or None, or 2 of them.",
            np.ones((1, 1, 4, 4)),
            (1, 2, 3),
        ),
        rejected(
            ShapeError,
            "adaptive_avg_pool2d: x has shape (1, 1, 0, 4); the axes (height, width) must not be empty.",
            np.ones((1, 1, 0, 4)),
            2,
        ),
    ],
)
def adaptive_avg_pool2d(x: Array, output_size: PerAxis | tuple[int | None, ...] | None) -> Array:
    """Return the means of windows of images, as even as they get, so that the output has the size asked for.

    Window i of `out` covers the elements from ``floor(i * size / out)`` up to ``ceil((i + 1) * size / out)``.

    Args:
        x: of shape (batch, channels, height, width), or (channels, height, width) for one sample.
        output_size: an integer, or two for (height, width); None keeps the size of x.

    Example:
        >>> nt.adaptive_avg_pool2d(np.arange(16.0).reshape(1, 4, 4), 1)
        array([[[7.5]]])
    """
    return _adapt(2, x, output_size)
