"""Ops in the forms in which PyTorch's `functional` has them: with its further arguments, and its meaning of them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from .._typing import Array, DtypeLike
from ..core.binding import as_kind
from ..core.composing import rounded_once
from ..errors import ArgumentError
from ..ops import activations
from ..ops.shapes import as_arrays, common_shape
from ..ops.windows import check_pooling, check_rank
from .checks import check_absent, per_axis

Sizes = int | tuple[int, ...]


def with_inplace(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op that takes `inplace`, PyTorch's last argument, without effect: ops here never change operands."""
    count = len(inspect.signature(op).parameters)

    @functools.wraps(op)
    def form(*args: Any, inplace: bool = False, **options: Any) -> Any:
        if len(args) == count + 1 and isinstance(args[-1], bool):
            args = args[:-1]
        if "input" in options:
            args, options = (options["input"], *args), {k: v for k, v in options.items() if k != "input"}
        return op(*args, **options)

    return form


celu = with_inplace(activations.celu)
elu = with_inplace(activations.elu)
hardsigmoid = with_inplace(ops.hardsigmoid)
hardswish = with_inplace(ops.hardswish)
hardtanh = with_inplace(ops.hardtanh)
leaky_relu = with_inplace(ops.leaky_relu)
mish = with_inplace(activations.mish)
relu = with_inplace(ops.relu)
relu6 = with_inplace(ops.relu6)
selu = with_inplace(activations.selu)
silu = with_inplace(activations.silu)
threshold = with_inplace(ops.threshold)


def _axis(name: str, x: Any, dim: Any) -> Any:
    """Return the axis; without one that of a vector or the last one of a matrix, where nobody could mean another."""
    if dim is not None:
        return dim
    if len(x.shape) > 2:
        raise ArgumentError(
            f"{name}: the input has shape {tuple(x.shape)} and dim is not given; PyTorch would take axis "
            f"{0 if len(x.shape) == 3 else 1}, most programs mean dim=-1. Say which."
        )
    return -1


def _soft(op: Any, x: Any, dim: Any, axis: Any, dtype: DtypeLike) -> Any:
    dim = dim if axis is None else axis
    x = x if hasattr(x, "shape") else np.asarray(x)
    return op(x if dtype is None else x.astype(dtype), axis=_axis(op.__name__, x, dim))


def softmax(x: Array, dim: Any = None, dtype: DtypeLike = None, *, axis: Any = None) -> Array:
    """Return `nt.softmax`; an input of three axes or more needs `dim`.

    Example:
        >>> nt.nn.functional.softmax(np.array([[0.0, 0.0]]), dim=1)
        array([[0.5, 0.5]])
    """
    return _soft(ops.softmax, x, dim, axis, dtype)


def log_softmax(x: Array, dim: Any = None, dtype: DtypeLike = None, *, axis: Any = None) -> Array:
    """Return `nt.log_softmax`; an input of three axes or more needs `dim`.

    Example:
        >>> nt.nn.functional.log_softmax(np.array([[0.0, 0.0]]), dim=1)
        array([[-0.69314718, -0.69314718]])
    """
    return _soft(ops.log_softmax, x, dim, axis, dtype)


def softmin(x: Array, dim: Any = None, dtype: DtypeLike = None, *, axis: Any = None) -> Array:
    """Return `nt.softmin`; an input of three axes or more needs `dim`.

    Example:
        >>> nt.nn.functional.softmin(np.array([[0.0, 0.0]]), dim=1)
        array([[0.5, 0.5]])
    """
    return _soft(ops.softmin, x, dim, axis, dtype)


@rounded_once
def softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """Return ``log(1 + exp(beta * x)) / beta``, a smooth relu; x itself where ``beta * x`` is above `threshold`.

    `nt.softplus` has no threshold; it is exact everywhere.

    Example:
        >>> nt.nn.functional.softplus(np.array([0.0, 11.0]), beta=2.0)
        array([ 0.34657359, 11.        ])
    """
    scaled = x if beta == 1.0 else x * beta
    smooth = ops.softplus(scaled)
    return ops.where(scaled > threshold, x, smooth if beta == 1.0 else smooth / beta)


def dropout(x: Array, p: float = 0.5, training: bool = True, inplace: bool = False, rng: Any = None) -> Array:
    """Return `nt.dropout`; `inplace` is accepted for PyTorch's sake.

    Example:
        >>> nt.nn.functional.dropout(np.ones(4), 0.5, True, rng=0).tolist()
        [0.0, 2.0, 2.0, 0.0]
    """
    as_kind("dropout", "inplace", inplace, bool)  # A random stream would go unnoticed.
    return ops.dropout(x, p, training, rng=rng)


@rounded_once
def _drop_channels(name: str, x: Any, rank: int, p: float, training: bool, rng: Any) -> Any:
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ArgumentError(
            f"{name}: the input has shape {tuple(x.shape)}; it must have {rank + 2} axes, or {rank + 1} for one sample."
        )
    if not training or not p:
        return x
    return x * ops.dropout(np.ones((*x.shape[:-rank], *(1,) * rank), x.dtype), p, rng=rng)


def dropout1d(x: Array, p: float = 0.5, training: bool = True, inplace: bool = False, rng: Any = None) -> Array:
    """Return `x`, of shape (batch, channels, length), with whole channels dropped.

    Example:
        >>> nt.nn.functional.dropout1d(np.ones((1, 4, 2)), rng=0).tolist()
        [[[0.0, 0.0], [2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]]
    """
    return _drop_channels("dropout1d", x, 1, p, training, rng)


def dropout2d(x: Array, p: float = 0.5, training: bool = True, inplace: bool = False, rng: Any = None) -> Array:
    """Return `x`, of shape (batch, channels, height, width), with whole channels dropped.

    Example:
        >>> nt.nn.functional.dropout2d(np.ones((1, 4, 1, 1)), rng=0).reshape(-1).tolist()
        [0.0, 2.0, 2.0, 0.0]
    """
    return _drop_channels("dropout2d", x, 2, p, training, rng)


def _max_pool(rank: int, op: Any, x: Any, sizes: tuple[Any, ...], ceil_mode: bool) -> Any:
    kernel_size, stride, padding, dilation = sizes
    if not ceil_mode:
        return op(x, kernel_size, stride, padding, dilation)
    name = op.__name__
    kernel = per_axis(name, "kernel_size", kernel_size, rank)
    steps = kernel if stride is None else per_axis(name, "stride", stride, rank)
    before = per_axis(name, "padding", padding, rank, 0)
    apart = per_axis(name, "dilation", dilation, rank)
    shape = check_rank(name, x, rank)
    check_pooling(name, shape, kernel, tuple((p, p) for p in before), apart)
    pairs = []
    for length, k, s, p, d in zip(shape[-rank:], kernel, steps, before, apart, strict=True):
        reach = d * (k - 1) + 1
        out = -(-(length + 2 * p - reach) // s) + 1
        if (out - 1) * s >= length + p:  # A window has to begin before the padding behind.
            out -= 1
        pairs.append((p, max(p, (out - 1) * s + reach - length - p)))
    return ops.max_pool(x, kernel=kernel, stride=steps, padding=tuple(pairs), dilation=apart)


def max_pool1d(
    x: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array:
    """Return `nt.max_pool1d`; with `ceil_mode`, a last window may go beyond the end. `return_indices` must be False.

    Example:
        >>> nt.nn.functional.max_pool1d(np.array([[1.0, 3.0, 2.0]]), 2, ceil_mode=True)
        array([[3., 2.]])
    """
    check_absent("max_pool1d", "return_indices", return_indices, False)
    return _max_pool(1, ops.max_pool1d, x, (kernel_size, stride, padding, dilation), ceil_mode)


def max_pool2d(
    x: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array:
    """Return `nt.max_pool2d`; with `ceil_mode`, last windows may go beyond the end. `return_indices` must be False.

    Example:
        >>> nt.nn.functional.max_pool2d(np.ones((1, 3, 5, 5)), 2, ceil_mode=True).shape
        (1, 3, 3, 3)
    """
    check_absent("max_pool2d", "return_indices", return_indices, False)
    return _max_pool(2, ops.max_pool2d, x, (kernel_size, stride, padding, dilation), ceil_mode)


def avg_pool1d(
    x: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Return `nt.avg_pool1d`, with the arguments in PyTorch's order; `ceil_mode` must be False.

    Example:
        >>> nt.nn.functional.avg_pool1d(np.array([[1.0, 3.0, 2.0, 0.0]]), 2)
        array([[2., 1.]])
    """
    check_absent("avg_pool1d", "ceil_mode", ceil_mode, False)
    return ops.avg_pool1d(x, kernel_size, stride, padding, count_include_pad=count_include_pad)


@rounded_once
def avg_pool2d(
    x: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Return `nt.avg_pool2d`, or sums of windows over `divisor_override`; `ceil_mode` must be False.

    Example:
        >>> nt.nn.functional.avg_pool2d(np.ones((1, 2, 2)), 2, divisor_override=1)
        array([[[4.]]])
    """
    check_absent("avg_pool2d", "ceil_mode", ceil_mode, False)
    if divisor_override is None:
        return ops.avg_pool2d(x, kernel_size, stride, padding, count_include_pad=count_include_pad)
    height, width = per_axis("avg_pool2d", "kernel_size", kernel_size, 2)
    return ops.avg_pool2d(x, kernel_size, stride, padding, count_include_pad=True) * (height * width / divisor_override)


@rounded_once
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """Return the cosine of the angle between vectors along an axis; norms below `eps` count as `eps`.

    Operands of other shapes are broadcast first, and `dim` is an axis of what they make.

    Example:
        >>> nt.nn.functional.cosine_similarity(np.array([[3.0, 4.0]]), np.array([[6.0, 8.0]]))
        array([1.])
    """
    shape = common_shape("cosine_similarity", x1=x1, x2=x2)
    x1, x2 = (x if x.shape == shape else ops.broadcast_to(x, shape) for x in as_arrays(x1, x2))
    norms = [ops.maximum(ops.norm(x, axis=dim, keepdims=True), eps) for x in (x1, x2)]
    return ((x1 / norms[0]) * (x2 / norms[1])).sum(axis=dim)
