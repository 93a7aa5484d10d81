"""Transposed convolutions of sequences and images, with PyTorch's arguments and layouts."""

from itertools import product
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core.declare import composed
from ..errors import ArgumentError, ShapeError
from .convolution_core import conv_input
from .samples import rejected, sample, values
from .windows import PerAxis, kernel_size, per_axis, with_batch


def _convolve_transposed(
    rank: int,
    x: Array,
    weight: Array,
    bias: Array,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Array:
    name = f"conv_transpose{rank}d"
    kernel = kernel_size(name, weight, rank, "channels, out channels / groups")
    x, is_single = with_batch(name, x, rank)
    steps = per_axis(name, "stride", stride, rank, 1)
    dilations = per_axis(name, "dilation", dilation, rank, 1)
    pads = per_axis(name, "padding", padding, rank, 0)
    extra = per_axis(name, "output_padding", output_padding, rank, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, steps, dilations, strict=True)):
        raise ArgumentError(
            f"{name}: output_padding is {extra}; it must be smaller than stride {steps} or dilation {dilations}."
        )
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(x.shape[2:], steps, pads, dilations, kernel, extra, strict=True)
    )
    if any(n < 1 for n in size):
        raise ShapeError(
            f"{name}: x has shape {tuple(x.shape)} and the kernel is {kernel}; with padding {pads} the output would "
            f"have size {size}. Pad less."
        )
    # Extra elements at the end are padding that is not cut off there.
    around = tuple((p, p - e) for p, e in zip(pads, extra, strict=True))
    out = conv_input(x, weight, bias, size=size, stride=steps, padding=around, dilation=dilations, groups=groups)
    return out.reshape(out.shape[1:]) if is_single else out


def _transpose_by_definition(
    x: NDArray,
    weight: NDArray,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> NDArray:
    """Stamp the kernel, times each element of x, into the output; then cut off the padding."""
    rank = weight.ndim - 2
    steps, pads, extra, dilations = (per_axis("", "", n, rank, 0) for n in (stride, padding, output_padding, dilation))
    samples = x.reshape(-1, *x.shape[-1 - rank :])
    reach = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    full = [(n - 1) * s + r + e for n, s, r, e in zip(samples.shape[2:], steps, reach, extra, strict=True)]
    inputs, outputs = len(weight) // groups, weight.shape[1]
    out: Any = np.zeros((len(samples), outputs * groups, *full))
    for channel, *place in product(*(range(n) for n in samples.shape[1:])):
        group = channel // inputs
        where = tuple(slice(i * s, i * s + r, d) for i, s, r, d in zip(place, steps, reach, dilations, strict=True))
        element = np.moveaxis(samples, 0, -1)[(channel, *place)].reshape(-1, *(1,) * (rank + 1))
        out[(slice(None), slice(group * outputs, (group + 1) * outputs), *where)] += element * weight[channel]
    out = out[(..., *(slice(p, n - p) for p, n in zip(pads, full, strict=True)))]
    out = out if bias is None else out + bias.reshape(-1, *(1,) * rank)
    whole: NDArray = out.reshape(*x.shape[: x.ndim - rank - 1], *out.shape[1:])
    return whole


@composed(
    reference=_transpose_by_definition,
    precision="lower",
    samples=lambda: [
        sample(values(2, 2, 3), values(2, 3, 3, seed=1)),
        sample(values(2, 2, 3), values(2, 3, 3, seed=1), values(3, seed=2), padding=1),
        sample(values(2, 3), values(2, 3, 2, seed=1), values(3, seed=2)),
        sample(values(1, 2, 3), values(2, 1, 3, seed=1), stride=2, padding=1, output_padding=1),
        sample(values(1, 2, 3), values(2, 1, 2, seed=1), dilation=3, output_padding=2),
        sample(values(1, 4, 2), values(4, 2, 2, seed=1), groups=2, stride=3),
        sample(values(1, 1, 3), values(1, 5, 2, seed=1), padding=(1,)),
        sample(values(2, 3, 1), values(3, 2, 1, seed=1), stride=2),
        rejected(
            ShapeError,
            "conv_transpose1d: weight has shape (1, 3); it must be (channels, out channels / groups, length).",
            np.ones((1, 1, 5)),
            np.ones((1, 3)),
        ),
    ],
)
def conv_transpose1d(
    x: Array,
    weight: Array,
    bias: Array = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Array:
    """Return the transposed convolution of sequences: each element stamps the kernel into a longer output.

    It is the gradient of `conv1d` by its input. The arguments are those of `conv_transpose2d`, for one axis.

    Example:
        >>> nt.conv_transpose1d(np.array([[1.0, 2.0]]), np.array([[[1.0, 10.0]]]), stride=2)
        array([[ 1., 10.,  2., 20.]])
    """
    return _convolve_transposed(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


@composed(
    reference=_transpose_by_definition,
    precision="lower",
    samples=lambda: [
        sample(values(2, 2, 3, 2), values(2, 3, 2, 3, seed=1)),
        sample(values(1, 2, 3, 3), values(2, 3, 3, 3, seed=1), values(3, seed=2), padding=1),
        sample(values(2, 2, 2), values(2, 3, 2, 2, seed=1), values(3, seed=2)),
        sample(values(1, 2, 2, 3), values(2, 1, 3, 2, seed=1), stride=(2, 3), padding=(1, 0), output_padding=(1, 2)),
        sample(values(1, 1, 2, 2), values(1, 2, 3, 2, seed=1), dilation=(2, 1), stride=2, padding=2, output_padding=1),
        sample(values(1, 4, 2, 2), values(4, 1, 2, 2, seed=1), values(2, seed=2), groups=2, stride=2),
        sample(values(2, 3, 2, 2), values(3, 2, 1, 1, seed=1)),
        sample(values(1, 5, 2, 2), values(5, 1, 2, 2, seed=1)),
        sample(values(0, 1, 2, 2), values(1, 2, 2, 2, seed=1)),
        rejected(
            ShapeError,
            "conv_transpose2d: x has shape (1, 3, 5, 5) and weight has shape (2, 4, 3, 3) with groups=1, which takes 2 "
            "channels; x has 3. Change the weight's shape, or groups.",
            np.ones((1, 3, 5, 5)),
            np.ones((2, 4, 3, 3)),
        ),
        rejected(
            ArgumentError,
            "conv_transpose2d: output_padding is (2, 2); it must be smaller than stride (2, 2) or dilation (1, 1).",
            np.ones((1, 2, 5, 5)),
            np.ones((2, 4, 3, 3)),
            stride=2,
            output_padding=2,
        ),
        rejected(
            ShapeError,
            "conv_transpose2d: x has shape (1, 1, 1, 1) and the kernel is (2, 2); with padding (1, 1) the output would "
            "have size (0, 0). Pad less.",
            np.ones((1, 1, 1, 1)),
            np.ones((1, 1, 2, 2)),
            padding=1,
        ),
        rejected(
            ShapeError,
            "conv_transpose2d: bias has shape (3,); it must have one element for each output channel: (2,).",
            np.ones((1, 1, 2, 2)),
            np.ones((1, 2, 2, 2)),
            np.ones(3),
        ),
    ],
)
def conv_transpose2d(
    x: Array,
    weight: Array,
    bias: Array = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Array:
    """Return the transposed convolution of images: each element stamps the kernel into a larger output.

    It is the gradient of `conv2d` by its input. The output has size
    ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1`` along each axis.

    Args:
        x: of shape (batch, channels, height, width), or (channels, height, width) for one sample.
        weight: of shape (channels, out channels / groups, kernel height, kernel width).
        bias: of shape (out channels,), or None.
        stride: the step from stamp to stamp; an integer, or two for (height, width), like the next ones.
        padding: how many elements are cut off on each side of the output.
        output_padding: how many elements the output is longer at its end, below stride or dilation.
        groups: the number of groups of channels that do not mix.
        dilation: the step from place to place of the kernel.

    Example:
        >>> nt.conv_transpose2d(np.array([[[1.0, 2.0]]]), np.ones((1, 1, 1, 2)))
        array([[[1., 3., 2.]]])
    """
    return _convolve_transposed(2, x, weight, bias, stride, padding, output_padding, groups, dilation)
