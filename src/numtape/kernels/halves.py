"""Convert arrays between float32 and the half types, float16 and bfloat16, by the fastest kernel that is there."""

from .._typing import Dtype, NDArray
from ..dtypes import HALF_DTYPES, float32


def to_half(array: NDArray, dtype: Dtype) -> NDArray:
    """Return `array` rounded to float16 or bfloat16, to nearest and ties to even; itself if it is so already.

    Args:
        array: of any float dtype and shape.
        dtype: float16 or bfloat16.
    """
    return array if array.dtype is dtype else array.astype(dtype)


def to_float32(array: NDArray) -> NDArray:
    """Return `array` in float32, which is exact for halves; itself if it is so already."""
    return array if array.dtype is float32 else array.astype(float32)


def is_half(array: NDArray) -> bool:
    """Say whether `array` is of a half type."""
    return array.dtype in HALF_DTYPES
