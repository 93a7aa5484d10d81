"""Maxima over windows, and the ops that move tangents and cotangents to and from their places."""

import math
from functools import partial
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.declare import composed, differentiable, discrete, linear
from ..core.facts import Structure
from ..core.op import NON_DIFFERENTIABLE
from ..errors import ArgumentError, ShapeError
from ..kernels import pooling
from ..kernels.convolution import Ints, Pairs
from .samples import distinct, rejected, sample, values
from .windows import PerAxis, batch_in_front, check_pooling, check_rank, per_axis, windows_of

_PLAIN: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def _window_samples() -> list[tuple[NDArray, dict[str, Any]]]:
    def case(x: Shape, kernel: Ints, stride: Ints, pads: Ints, dilation: Ints) -> Any:
        pairs = tuple((p, p) for p in pads)
        return distinct(*x), {"kernel": kernel, "stride": stride, "padding": pairs, "dilation": dilation}

    return [
        case((2, 4, 6), (2, 2), (2, 2), (0, 0), (1, 1)),
        case((2, 1, 5, 5), (2, 3), (2, 3), (0, 0), (1, 1)),
        case((1, 5, 4), (3, 2), (1, 1), (1, 1), (1, 1)),
        case((1, 5, 6), (2, 2), (1, 2), (1, 0), (2, 3)),
        case((3, 3), (3, 3), (3, 3), (0, 0), (1, 1)),
        case((1, 2, 2), (1, 1), (1, 1), (0, 0), (1, 1)),
        case((2, 7), (3,), (2,), (1,), (1,)),
        case((4,), (2,), (3,), (0,), (1,)),
        case((0, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1)),
        case((3, 4, 2), (2, 2, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    ]


def _max_by_definition(x: NDArray, **params: Any) -> NDArray:
    return np.asarray(windows_of(x, **params, fill=-np.inf).max(axis=-1))


def _places_by_definition(x: NDArray, best: NDArray, *, kernel: Ints, **params: Any) -> NDArray:
    lead = x.shape[: x.ndim - len(kernel)]
    positions = np.arange(math.prod(x.shape[len(lead) :])).reshape(x.shape[len(lead) :])
    positions = np.broadcast_to(positions, x.shape)
    first = windows_of(x, kernel, **params, fill=-np.inf).argmax(axis=-1)
    return np.take_along_axis(windows_of(positions, kernel, **params, fill=0), first[..., None], axis=-1)[..., 0]


@discrete(
    reference=_places_by_definition,
    cost=lambda out, x, best, kernel, **params: math.prod(out) * math.prod(kernel),
    batch=batch_in_front,
    samples=lambda: [
        *(sample(x, _max_by_definition(x, **params), **params) for x, params in _window_samples()),
        sample(np.ones((4, 4)), np.ones((2, 2)), **_PLAIN),
    ],
)
def _max_places(x: Array, best: Array, /, *, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Array:
    """Return where each window has its maximum `best` first, as positions in the last axes, counted in one row."""
    return pooling.max_places(x, best, kernel, stride, padding, dilation)


def _place_samples() -> list[tuple[Shape, NDArray, dict[str, Any]]]:
    return [
        ((3, 4), np.array([[0, 2], [3, 1], [0, 0]]), {"rank": 1, "may_repeat": True}),
        ((2, 2, 3), np.array([[[0, 5]], [[3, 4]]]), {"rank": 2, "may_repeat": False}),
        ((2, 2, 3), np.array([[[0, 5]], [[3, 3]]]), {"rank": 2, "may_repeat": True}),
        ((4,), np.array([1, 3]), {"rank": 1, "may_repeat": False}),
        ((2, 2), np.array([[3]]), {"rank": 2, "may_repeat": False}),
        ((1, 1), np.array([[0]]), {"rank": 1, "may_repeat": True}),
        ((0, 4), np.zeros((0, 2), np.int64), {"rank": 1, "may_repeat": True}),
        ((2, 2, 2), np.array([[[7, 0]]]), {"rank": 3, "may_repeat": False}),
        ((2, 1, 2, 2), np.array([[[[1, 2]]], [[[0, 0]]]]), {"rank": 2, "may_repeat": True}),
    ]


def _put_back(g: Array, index: Array, x_shape: Shape, rank: int, may_repeat: bool) -> Array:
    return _put_places(g, index, size=tuple(x_shape[len(x_shape) - rank :]), may_repeat=may_repeat)


@linear(
    transposes={"x": _put_back, "index": NON_DIFFERENTIABLE},
    structure=Structure.MOVES,
    batch=batch_in_front,
    samples=lambda: [sample(values(*shape), index, **params) for shape, index, params in _place_samples()],
)
def _take_places(x: Array, index: Array, /, *, rank: int, may_repeat: bool) -> Array:
    """Return the elements at positions in the last `rank` axes, counted in one row; none twice unless `may_repeat`."""
    return pooling.take_places(x, index, rank)


def _take_again(g: Array, index: Array, size: Ints, may_repeat: bool) -> Array:
    return _take_places(g, index, rank=len(size), may_repeat=may_repeat)


@linear(
    transposes={"x": _take_again, "index": NON_DIFFERENTIABLE},
    structure=Structure.SCATTERS,
    cost=lambda out, x, index, **params: math.prod(x),
    batch=batch_in_front,
    samples=lambda: [
        sample(
            values(*index.shape),
            index,
            size=shape[len(shape) - params["rank"] :],
            may_repeat=params["may_repeat"],
        )
        for shape, index, params in _place_samples()
    ],
)
def _put_places(x: Array, index: Array, /, *, size: Ints, may_repeat: bool) -> Array:
    """Return zeros with last axes of `size` and each element added at its position there, counted in one row."""
    return pooling.put_places(x, index, size, may_repeat)


def _overlap(kernel: Ints, stride: Ints, dilation: Ints) -> bool:
    """Say whether windows may share elements."""
    return any(d * (k - 1) >= s for k, s, d in zip(kernel, stride, dilation, strict=True))


def _max_vjp(
    g: Array,
    x: Array,
    out: Array,
    x_shape: Shape,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
) -> Array:
    index = _max_places(x, out, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    return _put_back(g, index, x_shape, len(kernel), _overlap(kernel, stride, dilation))


def _max_jvp(t: Array, x: Array, out: Array, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Array:
    index = _max_places(x, out, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    return _take_places(t, index, rank=len(kernel), may_repeat=_overlap(kernel, stride, dilation))


@differentiable(
    vjps={"x": _max_vjp},
    jvps={"x": _max_jvp},
    cost=lambda out, x, kernel, **params: math.prod(out) * math.prod(kernel),
    batch=batch_in_front,
    kinks="where a window has its maximum more than once; the first has the derivative, as in PyTorch",
    reference=_max_by_definition,
    samples=lambda: [
        *(sample(x, **params) for x, params in _window_samples()),
        sample(np.ones((2, 4, 4)), skip_derivatives="ties", **_PLAIN),
        sample(np.array([[1.0, np.nan], [2.0, -np.inf]]), skip_derivatives="NaN", **_PLAIN),
        rejected(
            ShapeError,
            "max_pool2d: x has shape (4,) and the kernel is (2, 2); x has too few axes.",
            np.ones(4),
            **_PLAIN,
        ),
    ],
)
def max_pool(x: Array, /, *, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Array:
    """Return the largest element of each window of the last axes; `max_pool1d` and `max_pool2d` are friendlier.

    Args:
        x: with at least as many axes as the kernel.
        kernel: the number of places of a window, for each of the last axes.
        stride: the step from window to window, for each.
        padding: how far windows reach out (before, after) the elements, for each.
        dilation: the step from place to place of a window, for each.

    Example:
        >>> nt.max_pool(np.array([1.0, 3.0, 2.0]), kernel=(2,), stride=(1,), padding=((0, 0),), dilation=(1,))
        array([3., 3.])
    """
    check_pooling(f"max_pool{len(kernel)}d", x.shape, kernel, padding, dilation)
    return pooling.max_pool(x, kernel, stride, padding, dilation)


def _pool(rank: int, x: Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    name = f"max_pool{rank}d"
    check_rank(name, x, rank)
    kernel = per_axis(name, "kernel_size", kernel_size, rank, 1)
    return max_pool(
        x,
        kernel=kernel,
        stride=kernel if stride is None else per_axis(name, "stride", stride, rank, 1),
        padding=tuple((p, p) for p in per_axis(name, "padding", padding, rank, 0)),
        dilation=per_axis(name, "dilation", dilation, rank, 1),
    )


def _pool_by_definition(
    x: NDArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, *, rank: int
) -> NDArray:
    kernel, steps, pads, dilations = (
        np.broadcast_to(kernel_size if n is None else n, rank) for n in (kernel_size, stride, padding, dilation)
    )
    windows = windows_of(x, tuple(kernel), tuple(steps), tuple((p, p) for p in pads), tuple(dilations), -np.inf)
    return np.asarray(windows.max(axis=-1))


@composed(
    kinks="where a window has its maximum more than once; the first has the derivative, as in PyTorch",
    reference=partial(_pool_by_definition, rank=1),
    samples=lambda: [
        sample(distinct(2, 3, 6), 2),
        sample(distinct(2, 5), 2),
        sample(distinct(1, 2, 6), 3, stride=1),
        sample(distinct(1, 2, 6), 3, stride=2, padding=1),
        sample(distinct(1, 2, 6), 2, dilation=3),
        sample(distinct(1, 1, 6), (2,), stride=(3,)),
        sample(distinct(1, 1, 1), 1),
        sample(distinct(0, 1, 4), 4),
        rejected(
            ShapeError,
            "max_pool1d: x has shape (4,); it must be (batch, channels, length) or, for one sample, (channels, "
            "length). Add missing axes with reshape.",
            np.ones(4),
            2,
        ),
    ],
)
def max_pool1d(
    x: Array, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0, dilation: PerAxis = 1
) -> Array:
    """Return the largest element of each window of sequences. The arguments are those of `max_pool2d`, for one axis.

    Example:
        >>> nt.max_pool1d(np.array([[1.0, 3.0, 2.0, 0.0]]), 2)
        array([[3., 2.]])
    """
    return _pool(1, x, kernel_size, stride, padding, dilation)


@composed(
    kinks="where a window has its maximum more than once; the first has the derivative, as in PyTorch",
    reference=partial(_pool_by_definition, rank=2),
    samples=lambda: [
        sample(distinct(2, 2, 4, 4), 2),
        sample(distinct(2, 4, 6), (2, 3)),
        sample(distinct(1, 1, 5, 5), 2),
        sample(distinct(1, 2, 4, 5), 3, stride=1),
        sample(distinct(1, 1, 5, 5), 3, stride=2, padding=1),
        sample(distinct(1, 1, 5, 6), 2, stride=(1, 2), dilation=(2, 3), padding=(1, 0)),
        sample(distinct(1, 3, 2, 2), 1),
        sample(distinct(1, 1, 3, 3), 3),
        sample(distinct(0, 1, 2, 2), 2),
        sample(np.ones((1, 1, 4, 4)), 2, skip_derivatives="ties"),
        rejected(
            ShapeError,
            "max_pool2d: x has shape (4, 4); it must be (batch, channels, height, width) or, for one sample, "
            "(channels, height, width). Add missing axes with reshape.",
            np.ones((4, 4)),
            2,
        ),
        rejected(
            ShapeError,
            "max_pool2d: x has shape (1, 1, 2, 2), which padding makes (2, 2), and the windows reach over (3, 3); they "
            "must not be larger. Pad more, or use a smaller kernel.",
            np.ones((1, 1, 2, 2)),
            3,
        ),
        rejected(
            ArgumentError,
            "max_pool2d: padding is (2, 2) and the windows reach over (3, 3); pad at most half of that.",
            np.ones((1, 1, 4, 4)),
            3,
            padding=2,
        ),
        rejected(
            ArgumentError,
            "max_pool2d: x has shape (1, 1, 1, 1) and dilation is (3, 3); with padding, windows would hold padding "
            "only. Use a smaller dilation.",
            np.ones((1, 1, 1, 1)),
            2,
            dilation=3,
            padding=2,
        ),
        rejected(
            ArgumentError,
            "max_pool2d: kernel_size is 0; it must be an integer of at least 1, or 2 of them.",
            np.ones((1, 1, 4, 4)),
            0,
        ),
    ],
)
def max_pool2d(
    x: Array, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0, dilation: PerAxis = 1
) -> Array:
    """Return the largest element of each window of images. If there are several, the first has the derivative.

    Args:
        x: of shape (batch, channels, height, width), or (channels, height, width) for one sample.
        kernel_size: the size of a window; an integer, or two for (height, width), like the next ones.
        stride: the step from window to window; None for `kernel_size`, so that windows do not overlap.
        padding: how far windows reach out on each side, at most half of their size.
        dilation: the step from place to place of a window.

    Example:
        >>> nt.max_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
        array([[[ 5.,  7.],
                [13., 15.]]])
    """
    return _pool(2, x, kernel_size, stride, padding, dilation)
