"""Pooling: the largest element, or the mean, of each window."""

from typing import Any

from .._typing import Array
from ..ops import adaptive_avg_pool1d, adaptive_avg_pool2d, avg_pool1d
from .checks import check_absent
from .module import Module
from .torch_forms import avg_pool2d, max_pool1d, max_pool2d

Sizes = int | tuple[int, ...]


class _MaxPool(Module):
    """The arguments of max pooling."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        check_absent(type(self).__name__, "return_indices", return_indices, False)
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        """Return the sizes."""
        sizes = (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}"
        )
        return f"{sizes}, ceil_mode=True" if self.ceil_mode else sizes


class MaxPool1d(_MaxPool):
    """Return the largest element of each window of sequences; the arguments are those of `MaxPool2d`.

    Example:
        >>> nt.nn.MaxPool1d(2)(nt.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
        tensor([[[3., 2.]]])
    """

    def forward(self, x: Array) -> Array:
        """Return the maxima."""
        return max_pool1d(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class MaxPool2d(_MaxPool):
    """Return the largest element of each window of images, of shape (batch, channels, height, width).

    Args:
        kernel_size: the size of a window; an integer, or two for (height, width), like the next ones.
        stride: the step from window to window; None for the size of a window.
        padding: how much is added on each side; it is never the largest.
        dilation: the step from place to place of a window.
        return_indices: for PyTorch's sake; places are not returned.
        ceil_mode: whether last windows may go beyond the end.

    Example:
        >>> nt.nn.MaxPool2d(2)(nt.ones(1, 3, 8, 8)).shape
        (1, 3, 4, 4)
    """

    def forward(self, x: Array) -> Array:
        """Return the maxima."""
        return max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class _AvgPool(Module):
    """The arguments of average pooling."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        check_absent(type(self).__name__, "ceil_mode", ceil_mode, False)
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.count_include_pad = count_include_pad

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """Return the mean of each window of sequences; the arguments are those of `AvgPool2d`.

    Example:
        >>> nt.nn.AvgPool1d(2)(nt.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
        tensor([[[2., 1.]]])
    """

    def forward(self, x: Array) -> Array:
        """Return the means."""
        return avg_pool1d(x, self.kernel_size, self.stride, self.padding, count_include_pad=self.count_include_pad)


class AvgPool2d(_AvgPool):
    """Return the mean of each window of images, of shape (batch, channels, height, width).

    Args:
        kernel_size: the size of a window; an integer, or two for (height, width), like the next ones.
        stride: the step from window to window; None for the size of a window.
        padding: how many zeros are added on each side.
        ceil_mode: for PyTorch's sake; windows that go beyond the end are not supported.
        count_include_pad: whether these zeros count in the mean.
        divisor_override: what to divide the sum of a window by, instead of the number of its elements.

    Example:
        >>> nt.nn.AvgPool2d(2)(nt.ones(1, 3, 8, 8)).shape
        (1, 3, 4, 4)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, x: Array) -> Array:
        """Return the means."""
        sizes = (self.kernel_size, self.stride, self.padding)
        return avg_pool2d(x, *sizes, False, self.count_include_pad, self.divisor_override)


class _Adaptive(Module):
    """The arguments of adaptive pooling."""

    def __init__(self, output_size: Any) -> None:
        self.output_size = output_size

    def extra_repr(self) -> str:
        """Return the size of the output."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """Return the means of as many windows as make an output of a given length.

    Example:
        >>> nt.nn.AdaptiveAvgPool1d(2)(nt.ones(1, 3, 7)).shape
        (1, 3, 2)
    """

    def forward(self, x: Array) -> Array:
        """Return the means."""
        return adaptive_avg_pool1d(x, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Return the means of as many windows as make an output of a given size.

    Args:
        output_size: an integer, or two for (height, width); None keeps an axis.

    Example:
        >>> nt.nn.AdaptiveAvgPool2d((2, 3))(nt.ones(1, 3, 7, 7)).shape
        (1, 3, 2, 3)
    """

    def forward(self, x: Array) -> Array:
        """Return the means."""
        return adaptive_avg_pool2d(x, self.output_size)
