"""Convolutions of sequences and images, and their transposes."""

import math
from typing import Any

from .._typing import Array, DtypeLike
from ..core.stream import stream_of
from ..devices import check_device
from ..errors import ArgumentError, ShapeError
from ..ops import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from ..ops.windows import check_rank
from . import init
from .checks import check_absent, check_count, check_dtype, per_axis
from .functional import pad
from .module import Module
from .parameter import Parameter, blank

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What all convolutions share: sizes, parameters and their first values."""

    axes: int
    is_transposed = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        dtype: DtypeLike,
        rng: Any,
    ) -> None:
        name = type(self).__name__
        self.in_channels = in_channels = check_count(name, "in_channels", in_channels)
        self.out_channels = out_channels = check_count(name, "out_channels", out_channels)
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, self.axes)
        self.stride = per_axis(name, "stride", stride, self.axes)
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f"{name}: padding is {padding!r}; it must be 'same', 'valid' or integers.")
        if padding == "same" and any(step != 1 for step in self.stride):
            raise ArgumentError(f"{name}: padding is 'same' and stride {self.stride}; it is for a stride of 1.")
        self.padding = padding if isinstance(padding, str) else per_axis(name, "padding", padding, self.axes, 0)
        self.dilation = per_axis(name, "dilation", dilation, self.axes)
        self.groups = groups = check_count(name, "groups", groups)
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups is {groups}; it must divide in_channels ({in_channels}) and out_channels "
                f"({out_channels})."
            )
        first, second = (in_channels, out_channels) if self.is_transposed else (out_channels, in_channels)
        self.weight = blank((first, second // groups, *self.kernel_size), dtype)
        self.register_parameter("bias", blank((out_channels,), dtype) if bias else None)
        self.reset_parameters(rng)
        init.forget_writes(self.weight, self.bias)

    def reset_parameters(self, rng: Any = None) -> None:
        """Draw weight and bias, uniform between plus and minus one over the root of a window's elements."""
        stream = stream_of(rng)
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0), rng=stream)
        if self.bias is not None:
            bound = 1.0 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound, stream)

    def extra_repr(self) -> str:
        """Return the sizes, and what differs from its default."""
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        for name, default in (
            ("padding", (0,) * self.axes),
            ("dilation", (1,) * self.axes),
            ("output_padding", (0,) * self.axes),
            ("groups", 1),
            ("padding_mode", "zeros"),
        ):
            value = getattr(self, name, default)
            if value != default:
                parts.append(f"{name}={value!r}")
        return ", ".join(parts if self.bias is not None else [*parts, "bias=False"])


class _Forward(_Convolution):
    """A convolution with PyTorch's arguments."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_device(type(self).__name__, device)
        if padding_mode not in _PADDING_MODES:
            raise ArgumentError(
                f"{type(self).__name__}: padding_mode is {padding_mode!r}; it must be one of "
                f"{', '.join(map(repr, _PADDING_MODES))}."
            )
        self.padding_mode = padding_mode
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype, rng)

    def _padded(self, x: Array) -> tuple[Array, Any]:
        """Return the input with what is not zeros around it, and the padding that is left to the convolution."""
        if self.padding_mode == "zeros" or self.padding == "valid":
            return x, self.padding
        shape = check_rank(type(self).__name__, x, self.axes)
        if shape[-1 - self.axes] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {shape} and the weight {self.weight.shape}; the input "
                f"must have {self.in_channels} channels."
            )
        pairs: list[int] = []
        for axis in reversed(range(self.axes)):  # PyTorch's order: the last axis first.
            if self.padding == "same":
                total = self.dilation[axis] * (self.kernel_size[axis] - 1)
                pairs += [total // 2, total - total // 2]
            else:
                pairs += [int(self.padding[axis])] * 2
        return pad(x, pairs, self.padding_mode), (0,) * self.axes


class Conv1d(_Forward):
    """Convolve sequences of shape (batch, channels, length), or (channels, length) for one.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the output.
        kernel_size: the length of a window.
        stride: the step from window to window.
        padding: how many zeros are added on each side; "valid" for none, "same" for an output of the input's length.
        dilation: the step from place to place of the kernel.
        groups: the number of groups of channels that do not mix.
        bias: whether a number is added to each channel of the output.
        padding_mode: "zeros", or "reflect", "replicate" or "circular" for padding made of the input itself.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> nt.nn.Conv1d(3, 5, kernel_size=2)(nt.ones(1, 3, 10)).shape
        (1, 5, 9)
    """

    axes = 1

    def forward(self, x: Array) -> Array:
        """Return the convolution."""
        check_dtype(self, x, self.weight)
        x, padding = self._padded(x)
        return conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Forward):
    """Convolve images of shape (batch, channels, height, width), or (channels, height, width) for one.

    The arguments are those of `Conv1d`; sizes are an integer, or two for (height, width).

    Example:
        >>> nt.nn.Conv2d(3, 5, kernel_size=3, padding=1)(nt.ones(1, 3, 8, 8)).shape
        (1, 5, 8, 8)
    """

    axes = 2

    def forward(self, x: Array) -> Array:
        """Return the convolution."""
        check_dtype(self, x, self.weight)
        x, padding = self._padded(x)
        return conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _Transposed(_Convolution):
    """A transposed convolution with PyTorch's arguments."""

    is_transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_device(type(self).__name__, device)
        check_absent(type(self).__name__, "padding_mode", padding_mode, "zeros")
        if isinstance(padding, str):
            raise ArgumentError(f"{type(self).__name__}: padding is {padding!r}; it must be given as integers.")
        self.output_padding = per_axis(type(self).__name__, "output_padding", output_padding, self.axes, 0)
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype, rng)

    def _options(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.output_padding, self.groups, self.dilation


class ConvTranspose1d(_Transposed):
    """Spread sequences by the transpose of a convolution; the arguments are those of `ConvTranspose2d`.

    Example:
        >>> nt.nn.ConvTranspose1d(3, 5, kernel_size=2, stride=2)(nt.ones(1, 3, 4)).shape
        (1, 5, 8)
    """

    axes = 1

    def forward(self, x: Array) -> Array:
        """Return the transposed convolution."""
        check_dtype(self, x, self.weight)
        return conv_transpose1d(x, self.weight, self.bias, *self._options())


class ConvTranspose2d(_Transposed):
    """Spread images by the transpose of a convolution: what is wide becomes narrow there, and narrow wide here.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the output.
        kernel_size: the size of a window; an integer, or two for (height, width), like the next ones.
        stride: the step from window to window, in the output.
        padding: how much is cut off on each side of the output.
        output_padding: how much is added on one side of it, since several sizes would lead to one input.
        groups: the number of groups of channels that do not mix.
        bias: whether a number is added to each channel of the output.
        dilation: the step from place to place of the kernel.
        padding_mode: "zeros", for PyTorch's sake.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> nt.nn.ConvTranspose2d(3, 5, kernel_size=2, stride=2)(nt.ones(1, 3, 4, 4)).shape
        (1, 5, 8, 8)
    """

    axes = 2

    def forward(self, x: Array) -> Array:
        """Return the transposed convolution."""
        check_dtype(self, x, self.weight)
        return conv_transpose2d(x, self.weight, self.bias, *self._options())
