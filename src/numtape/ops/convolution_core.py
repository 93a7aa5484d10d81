"""The three ops behind convolutions, in any number of dimensions: each is the transpose of the others.

`conv` takes input and weight to the output, `conv_input` output and weight to the input, `conv_weight` input and output
to the weight. The rules of each are the other two, so derivatives of any order are again these three.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.declare import differentiable, linear
from ..core.facts import Structure
from ..core.op import Op
from ..core.terms import Terms, windows
from ..errors import ArgumentError, ShapeError
from ..kernels import convolution as kernels
from ..kernels import provided_convolution
from ..kernels.convolution import Ints, Pairs
from .reductions import sum
from .samples import rejected, sample, values
from .shapes import broadcast_to


def _check(name: str, x: Shape, weight: Shape, channels: int, groups: int) -> None:
    """Check the ranks, and that x has the channels that the weight takes."""
    rank = len(weight) - 2
    if rank < 1 or len(x) != rank + 2:
        raise ShapeError(
            f"{name}: x has shape {x} and weight has shape {weight}; both must have two axes more than the kernel."
        )
    if not isinstance(groups, int) or groups < 1 or weight[0] % groups:
        raise ArgumentError(
            f"{name}: groups is {groups} and weight has shape {weight}; groups must divide the first axis of weight "
            f"({weight[0]})."
        )
    if x[1] != channels:
        raise ShapeError(
            f"{name}: x has shape {x} and weight has shape {weight} with groups={groups}, which takes {channels} "
            f"channels; x has {x[1]}. Change the weight's shape, or groups."
        )


def check_bias(name: str, bias: Any, channels: int) -> None:
    """Check that there is one bias for each output channel."""
    shape = bias.shape if hasattr(bias, "shape") else np.shape(bias)
    if shape != (channels,):
        raise ShapeError(
            f"{name}: bias has shape {shape}; it must have one element for each output channel: ({channels},)."
        )


def _check_windows(name: str, x: Shape, kernel: Ints, padding: Pairs, dilation: Ints) -> None:
    padded = tuple(n + before + after for n, (before, after) in zip(x[2:], padding, strict=True))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        raise ShapeError(
            f"{name}: x has shape {x}, which padding makes {padded}, and the kernel reaches over {reach}; it must not "
            "be larger. Pad more, or use a smaller kernel or dilation."
        )


def conv_reference(
    x: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    *,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
) -> NDArray:
    """Compute `conv` by its definition, window by window."""
    padded = np.pad(x, [(0, 0), (0, 0), *padding])
    out: Any = np.zeros(
        (len(x), len(weight), *kernels.out_size(x.shape[2:], weight.shape[2:], stride, padding, dilation))
    )
    inputs, outputs = weight.shape[1], len(weight) // groups
    for channel, *window in product(*(range(n) for n in out.shape[1:])):
        group = channel // outputs
        places = tuple(
            slice(i * s, i * s + d * (k - 1) + 1, d)
            for i, s, d, k in zip(window, stride, dilation, weight.shape[2:], strict=True)
        )
        seen = padded[(slice(None), slice(group * inputs, (group + 1) * inputs), *places)]
        out[(slice(None), channel, *window)] = np.tensordot(seen, weight[channel], weight.ndim - 1)
    total: NDArray = out if bias is None else out + bias.reshape(-1, *(1,) * (weight.ndim - 2))
    return total


def _fold_channels(x: Array, groups: int) -> Array:
    """Move a leading batch axis in front of the channels within each group: (B, N, C, ...) to (N, B * C, ...)."""
    size, count, channels, *rest = x.shape
    each = x.reshape((size, count, groups, channels // groups, *rest))
    return each.swapaxes(0, 1).swapaxes(1, 2).reshape((count, size * channels, *rest))


def _unfold_channels(x: Array, size: int, groups: int) -> Array:
    """Undo `_fold_channels`."""
    count, channels, *rest = x.shape
    each = x.reshape((count, groups, size, channels // size // groups, *rest))
    return each.swapaxes(1, 2).swapaxes(0, 1).reshape((size, count, channels // size, *rest))


def _fold(x: Array) -> Array:
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def _unfold(x: Array, size: int) -> Array:
    return x.reshape((size, x.shape[0] // size, *x.shape[1:]))


def _triples(x: Shape, weight: Shape, groups: int, **params: Any) -> tuple[NDArray, NDArray, NDArray]:
    """Return which elements of input, weight and output meet in each product: flat positions that broadcast."""
    window, tap, place = windows(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"])
    count = math.prod(kernels.out_size(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"]))
    # Axes: samples, groups, outputs and inputs of a group, elements of windows.
    sample, group, output, channel = np.ogrid[: x[0], :groups, : weight[0] // groups, : weight[1]]
    outputs = group * (weight[0] // groups) + output
    inputs = (sample * x[1] + group * weight[1] + channel)[..., None] * math.prod(x[2:]) + place
    weights = (outputs * weight[1] + channel)[..., None] * math.prod(weight[2:]) + tap
    return inputs, weights, (sample * weight[0] + outputs)[..., None] * count + window


def _bias_terms(out: Shape) -> Terms:
    sample, channel, place = np.ogrid[: out[0], : out[1], : math.prod(out[2:])]
    return Terms((sample * out[1] + channel) * math.prod(out[2:]) + place, {2: channel})


def _conv_size(x: Shape, weight: Shape, *bias: Shape, groups: int, **params: Any) -> int:
    return x[0] * weight[0] * math.prod(kernels.out_size(x[2:], weight[2:], **params))


def _conv_terms(out: Shape, x: Shape, weight: Shape, bias: Shape = (), **params: Any) -> list[Terms]:
    inputs, weights, outputs = _triples(x, weight, **params)
    return [Terms(outputs, {0: inputs, 1: weights}), _bias_terms(out)]


def _conv_input_terms(
    out: Shape, x: Shape, weight: Shape, bias: Shape = (), *, size: Ints, **params: Any
) -> list[Terms]:
    inputs, weights, outputs = _triples(out, weight, **params)
    return [Terms(inputs, {0: outputs, 1: weights}), _bias_terms(out)]


def _conv_weight_terms(out: Shape, x: Shape, y: Shape, kernel: Ints, **params: Any) -> list[Terms]:
    inputs, weights, outputs = _triples(x, out, **params)
    return [Terms(weights, {0: inputs, 1: outputs})]


def _conv_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, weight, bias = operands
    groups = params["groups"]
    if batched[0] and not batched[1]:
        out = _unfold(conv(_fold(x), weight, **params), x.shape[0])
    elif batched[1] and not batched[0]:
        # More output channels, within each group.
        size, channels, *rest = weight.shape
        each = weight.reshape((size, groups, channels // groups, *rest)).swapaxes(0, 1)
        out = _unfold_channels(conv(x, each.reshape((size * channels, *rest)), **params), size, groups)
    elif batched[0]:
        # Members do not mix: they are groups.
        size = x.shape[0]
        out = conv(_fold_channels(x, 1), _fold(weight), **{**params, "groups": size * groups})
        out = _unfold_channels(out, size, 1)
    else:
        out = conv(x, weight, **params)
    return _with_bias(out, bias, len(weight.shape) - batched[1] - 2, batched[2])


def _with_bias(out: Array, bias: Array, rank: int, is_batched: bool) -> Array:
    """Add a bias, or a batch of them, to a batch of convolutions."""
    if bias is None:
        return out
    ones = (1,) * rank
    return out + bias.reshape((bias.shape[0], 1, bias.shape[1], *ones) if is_batched else (bias.shape[0], *ones))


def _conv_input_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, weight, bias = operands
    groups, size = params["groups"], weight.shape[0]
    if batched[0] and not batched[1]:
        out = _unfold(conv_input(_fold(x), weight, **params), x.shape[0])
    elif batched[0]:
        out = conv_input(_fold_channels(x, 1), _fold(weight), **{**params, "groups": size * groups})
        out = _unfold_channels(out, size, 1)
    elif batched[1]:
        each = weight.swapaxes(0, 1)
        each = each.reshape((each.shape[0], size * each.shape[2], *each.shape[3:]))
        out = _unfold_channels(conv_input(x, each, **params), size, groups)
    else:
        out = conv_input(x, weight, **params)
    return _with_bias(out, bias, len(weight.shape) - batched[1] - 2, batched[2])


def _conv_weight_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    x, y = operands
    groups = params["groups"]
    if batched[0] and batched[1]:
        size = x.shape[0]
        folded = {**params, "groups": size * groups}
        return _unfold(conv_weight(_fold_channels(x, 1), _fold_channels(y, 1), **folded), size)
    if batched[0]:
        size = x.shape[0]
        out = conv_weight(_fold_channels(x, groups), y, **params)
        channels, inputs, *rest = out.shape
        return out.reshape((channels, size, inputs // size, *rest)).swapaxes(0, 1)
    size = y.shape[0]
    out = conv_weight(x, _fold_channels(y, groups), **params)
    channels, *rest = out.shape
    each = out.reshape((groups, size, channels // size // groups, *rest)).swapaxes(0, 1)
    return each.reshape((size, channels // size, *rest))


def _primitive_samples() -> list[tuple[Shape, Shape, dict[str, Any]]]:
    """Return shapes of input and weight with parameters in full."""

    def case(x: Shape, weight: Shape, stride: Ints, pads: Ints, dilation: Ints, groups: int) -> Any:
        pairs = tuple((n, n) for n in pads)
        return x, weight, {"stride": stride, "padding": pairs, "dilation": dilation, "groups": groups}

    return [
        case((2, 2, 4, 5), (3, 2, 3, 2), (1, 1), (0, 0), (1, 1), 1),
        case((2, 2, 4, 3), (1, 2, 3, 3), (1, 1), (1, 2), (1, 1), 1),
        case((1, 2, 6, 5), (5, 2, 2, 3), (2, 3), (0, 1), (1, 1), 1),
        case((1, 1, 5, 6), (3, 1, 2, 3), (1, 2), (1, 1), (2, 2), 1),
        case((2, 4, 3, 3), (6, 2, 2, 2), (1, 1), (0, 0), (1, 1), 2),
        case((2, 3, 4, 3), (3, 1, 2, 2), (2, 1), (1, 0), (1, 2), 3),
        case((2, 3, 2, 3), (4, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),
        case((1, 2, 3, 3), (1, 2, 3, 3), (1, 1), (0, 0), (1, 1), 1),
        case((0, 2, 3, 3), (2, 2, 2, 2), (1, 1), (1, 1), (1, 1), 1),
        case((3, 2, 5), (8, 2, 2), (2,), (1,), (1,), 1),
        case((1, 1, 2, 3, 2), (2, 1, 2, 2, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1),
        (
            (1, 1, 3, 4),
            (1, 1, 2, 2),
            {"stride": (1, 1), "padding": ((0, 1), (1, 0)), "dilation": (1, 1), "groups": 1},
        ),
    ]


def _out_shape(x: Shape, weight: Shape, params: dict[str, Any]) -> Shape:
    size = kernels.out_size(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"])
    return (x[0], weight[0], *size)


_PLAIN: dict[str, Any] = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}


def _by_x(g: Array, weight: Array, x_shape: Shape, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Array:
    size = x_shape[2:]
    return conv_input(g, weight, size=size, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _by_weight(
    g: Array, x: Array, weight_shape: Shape, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    kernel = weight_shape[2:]
    return conv_weight(x, g, kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _by_bias(g: Array) -> Array:
    return sum(g, axis=(0, *range(2, len(g.shape))))


# But for the bias, conv is linear in x and in weight.
def _push_x(t: Array, weight: Array, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Array:
    return conv(t, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _push_weight(t: Array, x: Array, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Array:
    return conv(x, t, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _push_bias(t: Array, out_shape: Shape) -> Array:
    return broadcast_to(t.reshape((out_shape[1], *(1,) * (len(out_shape) - 2))), shape=out_shape)


@differentiable(
    vjps={"x": _by_x, "weight": _by_weight, "bias": _by_bias},
    jvps={"x": _push_x, "weight": _push_weight, "bias": _push_bias},
    linear=frozenset(("x", "weight")),
    cost=lambda out, x, weight, *bias, **params: 2 * math.prod(out) * math.prod(weight[1:]),
    size=_conv_size,
    structure=Structure.TERMS,
    terms=_conv_terms,
    precision="lower",
    native_half=True,
    batch=_conv_batch,
    reference=conv_reference,
    samples=lambda: [
        *(sample(values(*x), values(*w, seed=1), **params) for x, w, params in _primitive_samples()),
        sample(values(2, 2, 3, 4), values(3, 2, 2, 2, seed=1), values(3, seed=2), **_PLAIN),
        sample(values(2, 2, 2, 2), values(2, 2, 1, 1, seed=1), values(2, seed=2), **_PLAIN),
        sample(values(2, 2, 3, 3), values(4, 1, 2, 2, seed=1), values(4, seed=2), **{**_PLAIN, "groups": 2}),
        sample(values(2, 4, 3, 3), values(1, 4, 3, 3, seed=1), values(1, seed=2), **_PLAIN),
        rejected(
            ShapeError,
            "conv: x has shape (2, 2, 3) and weight has shape (3, 2, 2, 2); both must have two axes more than the "
            "kernel.",
            np.ones((2, 2, 3)),
            np.ones((3, 2, 2, 2)),
            **_PLAIN,
        ),
    ],
)
def conv(
    x: Array, weight: Array, bias: Array = None, /, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    """Return the convolution of samples in any number of dimensions; `conv1d` and `conv2d` take friendlier arguments.

    Args:
        x: of shape (batch, channels, *size).
        weight: of shape (out channels, channels / groups, *kernel).
        bias: of shape (out channels,), or None.
        stride: the step from window to window, for each axis of size.
        padding: the number of zeros (before, after), for each axis.
        dilation: the step from place to place of the kernel, for each axis.
        groups: the number of groups of channels that do not mix.

    Example:
        >>> x = np.arange(4.0).reshape(1, 1, 4)
        >>> nt.conv(x, np.ones((1, 1, 2)), stride=(1,), padding=((0, 0),), dilation=(1,), groups=1)
        array([[[1., 3., 5.]]])
    """
    name = f"conv{weight.ndim - 2}d" if x.ndim == weight.ndim else "conv"
    _check(name, x.shape, weight.shape, weight.shape[1] * groups if weight.ndim > 1 else 0, groups)
    _check_windows(name, x.shape, weight.shape[2:], padding, dilation)
    if bias is not None:
        check_bias(name, bias, weight.shape[0])
    return provided_convolution.conv(x, weight, bias, stride, padding, dilation, groups)


def _input_by_weight(
    g: Array, x: Array, weight_shape: Shape, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    kernel = weight_shape[2:]
    return conv_weight(g, x, kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _input_push_x(
    t: Array, weight: Array, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    return conv_input(t, weight, size=size, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _input_push_weight(
    t: Array, x: Array, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    return conv_input(x, t, size=size, stride=stride, padding=padding, dilation=dilation, groups=groups)


@differentiable(
    # By x, the transpose of conv's transpose.
    vjps={"x": _push_x, "weight": _input_by_weight, "bias": _by_bias},
    jvps={"x": _input_push_x, "weight": _input_push_weight, "bias": _push_bias},
    linear=frozenset(("x", "weight")),
    cost=lambda out, x, weight, *bias, **params: 2 * math.prod(x) * math.prod(weight[1:]),
    structure=Structure.TERMS,
    terms=_conv_input_terms,
    precision="lower",
    native_half=True,
    batch=_conv_input_batch,
    samples=lambda: [
        *(
            sample(values(*_out_shape(x, w, params)), values(*w, seed=1), size=x[2:], **params)
            for x, w, params in _primitive_samples()
        ),
        sample(values(2, 3, 2, 3), values(3, 2, 2, 2, seed=1), values(2, seed=2), size=(3, 4), **_PLAIN),
        sample(
            values(2, 4, 2, 2), values(4, 1, 2, 2, seed=1), values(2, seed=2), size=(3, 3), **{**_PLAIN, "groups": 2}
        ),
        rejected(
            ShapeError,
            "conv_transpose2d: x has shape (1, 2, 3, 3) and weight has shape (2, 1, 2, 2); an output of size (9, 4) "
            "takes an input of size (8, 3).",
            np.ones((1, 2, 3, 3)),
            np.ones((2, 1, 2, 2)),
            size=(9, 4),
            **_PLAIN,
        ),
    ],
)
def conv_input(
    x: Array,
    weight: Array,
    bias: Array = None,
    /,
    *,
    size: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
) -> Array:
    """Return the transpose of `conv` by its input: the gradient of the input from that of the output.

    Args:
        x: of the shape of conv's output.
        weight: of shape (channels of x, out channels / groups, *kernel), as conv had it.
        bias: of shape (out channels,), or None.
        size: the size of conv's input, and of the result.
        stride: as for `conv`, like the rest.
        padding: (before, after) for each axis; the result is without it.
        dilation: the step from place to place of the kernel, for each axis.
        groups: the number of groups of channels that do not mix.

    Example:
        >>> x = np.array([[[1.0, 2.0]]])
        >>> nt.conv_input(x, np.ones((1, 1, 2)), size=(3,), stride=(1,), padding=((0, 0),), dilation=(1,), groups=1)
        array([[[1., 3., 2.]]])
    """
    name = f"conv_transpose{weight.ndim - 2}d" if x.ndim == weight.ndim else "conv_transpose"
    _check(name, x.shape, weight.shape, weight.shape[0], groups)
    expected = kernels.out_size(size, weight.shape[2:], stride, padding, dilation)
    if expected != x.shape[2:]:
        raise ShapeError(
            f"{name}: x has shape {x.shape} and weight has shape {weight.shape}; an output of size {size} takes an "
            f"input of size {expected}."
        )
    if bias is not None:
        check_bias(name, bias, weight.shape[1] * groups)
    return provided_convolution.conv_input(x, weight, size, stride, padding, dilation, groups, bias)


def _weight_by_x(
    g: Array, y: Array, x_shape: Shape, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    size = x_shape[2:]
    return conv_input(y, g, size=size, stride=stride, padding=padding, dilation=dilation, groups=groups)


@linear(
    transposes={"x": _weight_by_x, "y": _push_weight},
    cost=lambda out, x, y, **params: 2 * math.prod(y) * math.prod(out[1:]),
    structure=Structure.TERMS,
    terms=_conv_weight_terms,
    precision="lower",
    native_half=True,
    batch=_conv_weight_batch,
    samples=lambda: [
        *(
            sample(values(*x), values(*_out_shape(x, w, params), seed=1), kernel=w[2:], **params)
            for x, w, params in _primitive_samples()
        ),
        rejected(
            ShapeError,
            "conv_weight: x has shape (1, 2, 4, 4) and y has shape (1, 3, 4, 4); with a kernel of (2, 2), y must have "
            "the batch of x and the size (3, 3).",
            np.ones((1, 2, 4, 4)),
            np.ones((1, 3, 4, 4)),
            kernel=(2, 2),
            **_PLAIN,
        ),
    ],
)
def conv_weight(
    x: Array, y: Array, /, *, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Array:
    """Return the transpose of `conv` by its weight: the gradient of the weight from that of the output.

    Args:
        x: conv's input.
        y: of the shape of conv's output.
        kernel: the size of the kernel.
        stride: as for `conv`, like the rest.
        padding: (before, after) for each axis.
        dilation: the step from place to place of the kernel, for each axis.
        groups: the number of groups of channels that do not mix.

    Example:
        >>> x = np.array([[[1.0, 2.0, 3.0]]])
        >>> y = np.ones((1, 1, 2))
        >>> nt.conv_weight(x, y, kernel=(2,), stride=(1,), padding=((0, 0),), dilation=(1,), groups=1)
        array([[[3., 5.]]])
    """
    expected = kernels.out_size(x.shape[2:], kernel, stride, padding, dilation)
    if y.shape[2:] != expected or x.shape[0] != y.shape[0]:
        raise ShapeError(
            f"conv_weight: x has shape {x.shape} and y has shape {y.shape}; with a kernel of {kernel}, y must have the "
            f"batch of x and the size {expected}."
        )
    if groups < 1 or x.shape[1] % groups or y.shape[1] % groups:
        raise ArgumentError(
            f"conv_weight: groups is {groups}; it must divide the channels of x ({x.shape[1]}) and y ({y.shape[1]})."
        )
    return provided_convolution.conv_weight(x, y, kernel, stride, padding, dilation, groups)
