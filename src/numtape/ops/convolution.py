"""Convolutions of sequences and images, with PyTorch's arguments and layouts.

As everywhere in deep learning, the kernel is not reversed: strictly speaking these are correlations.
"""

from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core.declare import composed
from ..errors import ArgumentError, ShapeError
from ..kernels.convolution import Ints, Pairs
from .convolution_core import conv, conv_reference
from .samples import rejected, sample, values
from .transposed_convolution import conv_transpose1d as conv_transpose1d
from .transposed_convolution import conv_transpose2d as conv_transpose2d
from .windows import PerAxis, kernel_size, per_axis, with_batch


def _pads(name: str, padding: Any, kernel: Ints, stride: Ints, dilation: Ints) -> Pairs:
    """Return the zeros (before, after) each axis; "same" puts the odd one after, as PyTorch does."""
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if set(stride) != {1}:
            raise ArgumentError(
                f"{name}: padding is 'same' and stride is {stride}; 'same' needs stride 1. Give padding as integers."
            )
        reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((n // 2, n - n // 2) for n in reach)
    if isinstance(padding, str):
        raise ArgumentError(f"{name}: padding is {padding!r}; it must be 'same', 'valid' or integers.")
    return tuple((n, n) for n in per_axis(name, "padding", padding, len(kernel), 0))


def _convolve(
    rank: int, x: Array, weight: Array, bias: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    name = f"conv{rank}d"
    kernel = kernel_size(name, weight, rank, "out channels, channels / groups")
    x, is_single = with_batch(name, x, rank)
    steps = per_axis(name, "stride", stride, rank, 1)
    dilations = per_axis(name, "dilation", dilation, rank, 1)
    pads = _pads(name, padding, kernel, steps, dilations)
    out = conv(x, weight, bias, stride=steps, padding=pads, dilation=dilations, groups=groups)
    return out.reshape(out.shape[1:]) if is_single else out


def _conv_by_definition(
    x: NDArray, weight: NDArray, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> NDArray:
    rank = weight.ndim - 2
    steps, dilations = per_axis("", "", stride, rank, 1), per_axis("", "", dilation, rank, 1)
    pads = _pads("", padding, weight.shape[2:], steps, dilations)
    samples = x.reshape(-1, *x.shape[-1 - rank :])
    out = conv_reference(samples, weight, bias, stride=steps, padding=pads, dilation=dilations, groups=groups)
    return out.reshape(*x.shape[: x.ndim - rank - 1], *out.shape[1:])


@composed(
    reference=_conv_by_definition,
    precision="lower",
    samples=lambda: [
        sample(values(2, 2, 5), values(3, 2, 3, seed=1)),
        sample(values(2, 2, 5), values(3, 2, 3, seed=1), values(3, seed=2), padding=1),
        sample(values(2, 5), values(3, 2, 2, seed=1), values(3, seed=2)),
        sample(values(1, 2, 6), values(2, 2, 3, seed=1), stride=2, padding=(2,)),
        sample(values(1, 2, 6), values(2, 2, 2, seed=1), dilation=3),
        sample(values(1, 4, 4), values(4, 2, 2, seed=1), groups=2),
        sample(values(1, 2, 4), values(2, 2, 4, seed=1), padding="same"),
        sample(values(1, 2, 4), values(2, 2, 4, seed=1), padding="valid"),
        sample(values(2, 3, 1), values(2, 3, 1, seed=1)),
        rejected(
            ShapeError,
            "conv1d: x has shape (5,); it must be (batch, channels, length) or, for one sample, (channels, length). "
            "Add missing axes with reshape.",
            np.ones(5),
            np.ones((1, 1, 3)),
        ),
        rejected(
            ShapeError,
            "conv1d: weight has shape (1, 3); it must be (out channels, channels / groups, length).",
            np.ones((1, 1, 5)),
            np.ones((1, 3)),
        ),
    ],
)
def conv1d(
    x: Array,
    weight: Array,
    bias: Array = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """Return the convolution of sequences: for each window, the sum of its elements times the weight, plus the bias.

    Args:
        x: of shape (batch, channels, length), or (channels, length) for one sample.
        weight: of shape (out channels, channels / groups, kernel length).
        bias: of shape (out channels,), or None.
        stride: the step from window to window.
        padding: how many zeros are added at both ends; "valid" for none, "same" for an output as long as x.
        dilation: the step from place to place of the kernel.
        groups: the number of groups of channels that do not mix.

    Example:
        >>> nt.conv1d(np.array([[1.0, 2.0, 4.0]]), np.array([[[-1.0, 1.0]]]))
        array([[1., 2.]])
    """
    return _convolve(1, x, weight, bias, stride, padding, dilation, groups)


@composed(
    reference=_conv_by_definition,
    precision="lower",
    samples=lambda: [
        sample(values(2, 2, 4, 3), values(3, 2, 3, 2, seed=1)),
        sample(values(2, 2, 3, 3), values(3, 2, 3, 3, seed=1), values(3, seed=2), padding=1),
        sample(values(2, 3, 3), values(2, 2, 2, 2, seed=1), values(2, seed=2)),
        sample(values(1, 2, 5, 6), values(2, 2, 3, 2, seed=1), stride=(2, 3), padding=(1, 0)),
        sample(values(1, 1, 5, 4), values(2, 1, 3, 2, seed=1), dilation=(2, 1), stride=2, padding=2),
        sample(values(1, 4, 3, 3), values(4, 1, 2, 2, seed=1), values(4, seed=2), groups=4),
        sample(values(1, 1, 3, 4), values(2, 1, 2, 4, seed=1), padding="same"),
        sample(values(1, 1, 3, 4), values(2, 1, 2, 4, seed=1), padding="valid"),
        sample(values(2, 3, 2, 2), values(4, 3, 1, 1, seed=1), values(4, seed=2)),
        sample(values(1, 3, 3, 3), values(2, 3, 1, 1, seed=1), stride=2),
        sample(values(0, 1, 3, 3), values(2, 1, 2, 2, seed=1)),
        rejected(
            ShapeError,
            "conv2d: x has shape (5, 5); it must be (batch, channels, height, width) or, for one sample, (channels, "
            "height, width). Add missing axes with reshape.",
            np.ones((5, 5)),
            np.ones((1, 1, 3, 3)),
        ),
        rejected(
            ShapeError,
            "conv2d: weight has shape (1, 3, 3); it must be (out channels, channels / groups, height, width).",
            np.ones((1, 1, 5, 5)),
            np.ones((1, 3, 3)),
        ),
        rejected(
            ShapeError,
            "conv2d: x has shape (1, 3, 5, 5) and weight has shape (2, 4, 3, 3) with groups=1, which takes 4 channels; "
            "x has 3. Change the weight's shape, or groups.",
            np.ones((1, 3, 5, 5)),
            np.ones((2, 4, 3, 3)),
        ),
        rejected(
            ArgumentError,
            "conv2d: groups is 2 and weight has shape (3, 1, 2, 2); groups must divide the first axis of weight (3).",
            np.ones((1, 2, 5, 5)),
            np.ones((3, 1, 2, 2)),
            groups=2,
        ),
        rejected(
            ShapeError,
            "conv2d: x has shape (1, 1, 3, 3), which padding makes (3, 3), and the kernel reaches over (5, 3); it must "
            "not be larger. Pad more, or use a smaller kernel or dilation.",
            np.ones((1, 1, 3, 3)),
            np.ones((1, 1, 3, 2)),
            dilation=2,
        ),
        rejected(
            ShapeError,
            "conv2d: bias has shape (3,); it must have one element for each output channel: (2,).",
            np.ones((1, 1, 3, 3)),
            np.ones((2, 1, 2, 2)),
            np.ones(3),
        ),
        rejected(
            ArgumentError,
            "conv2d: stride is 0; it must be an integer of at least 1, or 2 of them.",
            np.ones((1, 1, 3, 3)),
            np.ones((1, 1, 2, 2)),
            stride=0,
        ),
        rejected(
            ArgumentError,
            "conv2d: padding is (1, 2, 3); it must be an integer of at least 0, or 2 of them.",
            np.ones((1, 1, 3, 3)),
            np.ones((1, 1, 2, 2)),
            padding=(1, 2, 3),
        ),
        rejected(
            ArgumentError,
            "conv2d: padding is 'same' and stride is (2, 2); 'same' needs stride 1. Give padding as integers.",
            np.ones((1, 1, 3, 3)),
            np.ones((1, 1, 2, 2)),
            padding="same",
            stride=2,
        ),
        rejected(
            ArgumentError,
            "conv2d: padding is 'full'; it must be 'same', 'valid' or integers.",
            np.ones((1, 1, 3, 3)),
            np.ones((1, 1, 2, 2)),
            padding="full",
        ),
    ],
)
def conv2d(
    x: Array,
    weight: Array,
    bias: Array = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """Return the convolution of images: for each window, the sum of its elements times the weight, plus the bias.

    The output has size ``(size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1`` along each axis.

    Args:
        x: of shape (batch, channels, height, width), or (channels, height, width) for one sample.
        weight: of shape (out channels, channels / groups, kernel height, kernel width).
        bias: of shape (out channels,), or None.
        stride: the step from window to window; an integer, or two for (height, width), like the next ones.
        padding: how many zeros are added on each side; "valid" for none, "same" for an output of the size of x.
        dilation: the step from place to place of the kernel.
        groups: the number of groups of channels that do not mix.

    Raises:
        ShapeError: if the channels do not go together or the kernel is larger than the padded input.
        ArgumentError: if a parameter is out of range.

    Example:
        >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
        >>> nt.conv2d(image, np.ones((1, 1, 2, 2)))
        array([[[[ 8., 12.],
                 [20., 24.]]]])
    """
    return _convolve(2, x, weight, bias, stride, padding, dilation, groups)
