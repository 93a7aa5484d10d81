"""What stands in written code for kernels that call libraries: the same by NumPy alone.

Matrix products and convolutions go to whichever library is fastest; code that runs without numtape takes the NumPy
kernels, and converts halves as NumPy does.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from ..kernels import convolution as kernels
from ..kernels import halves, provided_convolution, providers, random
from ..kernels.convolution import Ints, Pairs


def to_float32(array: NDArray) -> NDArray:
    """Return an array in float32."""
    return array.astype(np.float32)


def to_half(array: NDArray, dtype: Dtype) -> NDArray:
    """Return an array rounded to a half type."""
    return array.astype(dtype)


def wide(array: Any) -> Any:
    """Return halves, which have two bytes, in float32, and everything else as it is."""
    return array.astype(np.float32) if array is not None and array.dtype.itemsize == 2 else array


def matrix_product(a: NDArray, b: NDArray, bias: NDArray | None = None, dtype: Dtype | None = None) -> NDArray:
    """Return a @ b + bias."""
    out: NDArray = np.matmul(wide(a), wide(b))
    if bias is not None:
        out = out + wide(bias)
    return out.astype(dtype or a.dtype) if a.dtype == b.dtype else out


def convolve(
    x: NDArray, weight: NDArray, bias: NDArray | None, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return a convolution."""
    return kernels.conv(wide(x), wide(weight), wide(bias), stride, padding, dilation, groups).astype(x.dtype)


def convolve_input(
    y: NDArray,
    weight: NDArray,
    size: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    bias: NDArray | None = None,
) -> NDArray:
    """Return the transpose of a convolution by its input, plus bias."""
    out = kernels.conv_input(wide(y), wide(weight), size, stride, padding, dilation, groups)
    if bias is not None:
        out = out + wide(bias).reshape(-1, *(1,) * len(size))
    return out.astype(y.dtype)


def convolve_weight(
    x: NDArray, y: NDArray, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> NDArray:
    """Return the transpose of a convolution by its weight."""
    return kernels.conv_weight(wide(x), wide(y), kernel, stride, padding, dilation, groups).astype(x.dtype)


#: For each kernel that may call a library, what is pasted in its place.
STAND_INS: dict[Any, Callable[..., Any]] = {
    halves.to_float32: to_float32,
    halves.to_half: to_half,
    providers.matmul: matrix_product,
    provided_convolution.conv: convolve,
    provided_convolution.conv_input: convolve_input,
    provided_convolution.conv_weight: convolve_weight,
    random.chances: random.fresh_chances,
}
