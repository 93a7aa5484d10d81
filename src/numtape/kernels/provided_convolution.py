"""Convolutions, by whoever is chosen to run them."""

from .._typing import NDArray
from ..dtypes import HALF_DTYPES, widened
from . import blas, shared_convolution
from . import convolution as plain
from .convolution import Convolution, Ints, Pairs
from .halves import converted, to_float32, to_half
from .providers import LEAST_CONVOLUTION, by_onednn


def conv(
    x: NDArray, weight: NDArray, bias: NDArray | None, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the sum over channels and kernel places of weight times input, for each window, plus `bias`."""
    windows = plain.out_size(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    out_shape = (len(x), len(weight), *windows)
    what = Convolution(x.shape, weight.shape, out_shape, x.dtype, stride, padding, dilation, groups)
    done = by_onednn("conv", what.work(), LEAST_CONVOLUTION, what, x, weight, bias)
    if done is not None:
        return done
    if x.dtype not in HALF_DTYPES:
        if blas.single_thread.is_held():
            return shared_convolution.conv(what, x, weight, bias)
        return plain.conv(x, weight, bias, stride, padding, dilation, groups)
    wide_bias = None if bias is None else to_float32(bias)
    return to_half(conv(to_float32(x), to_float32(weight), wide_bias, stride, padding, dilation, groups), x.dtype)


def conv_input(
    y: NDArray,
    weight: NDArray,
    size: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    bias: NDArray | None = None,
) -> NDArray:
    """Return the transpose of `conv` by its input, which has the given size, plus `bias`."""
    if bias is not None:
        # In float32 throughout: a product of halves would be rounded before the bias is added.
        working = widened(y.dtype)
        y_wide, weight_wide, bias_wide = (converted(operand, working) for operand in (y, weight, bias))
        total = conv_input(y_wide, weight_wide, size, stride, padding, dilation, groups)
        total += bias_wide.reshape(-1, *(1,) * len(size))
        return converted(total, y.dtype)
    x_shape = (len(y), weight.shape[1] * groups, *size)
    what = Convolution(x_shape, weight.shape, y.shape, y.dtype, stride, padding, dilation, groups)
    done = by_onednn("conv_input", what.work(), LEAST_CONVOLUTION, what, y, weight)
    if done is not None:
        return done
    if y.dtype not in HALF_DTYPES:
        if blas.single_thread.is_held():
            return shared_convolution.conv_input(what, y, weight)
        return plain.conv_input(y, weight, size, stride, padding, dilation, groups)
    return to_half(conv_input(to_float32(y), to_float32(weight), size, stride, padding, dilation, groups), y.dtype)


def conv_weight(
    x: NDArray, y: NDArray, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the transpose of `conv` by its weight, which has a kernel of the given size."""
    weight_shape = (y.shape[1], x.shape[1] // groups, *kernel)
    what = Convolution(x.shape, weight_shape, y.shape, x.dtype, stride, padding, dilation, groups)
    done = by_onednn("conv_weight", what.work(), LEAST_CONVOLUTION, what, x, y)
    if done is not None:
        return done
    if x.dtype not in HALF_DTYPES:
        if blas.single_thread.is_held():
            return shared_convolution.conv_weight(what, x, y)
        return plain.conv_weight(x, y, kernel, stride, padding, dilation, groups)
    return to_half(conv_weight(to_float32(x), to_float32(y), kernel, stride, padding, dilation, groups), x.dtype)
