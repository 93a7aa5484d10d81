"""Convert arrays between float32 and the half types, float16 and bfloat16, by the fastest kernel that is there.

All kernels round to nearest and ties to even, so that the choice never shows in a result. Nanoseconds an element, on an
Intel Xeon with AVX-512: float32 to float16 2.2 by NumPy and 0.10 to 0.20 by LLVM; back 1.2 and 0.13 to 0.22; float32 to
bfloat16 0.55 by NumPy and 0.19 by LLVM; back 0.09 to 0.26 by NumPy and 0.16 by LLVM. oneDNN's reorder is as fast as
LLVM, but slower by up to 40 times while other programs use the second core, so it is not used.
"""

from collections.abc import Callable

import numpy as np

from .._typing import Dtype, NDArray
from ..dtypes import HALF_DTYPES, bfloat16, float16, float32
from ..errors import DtypeError
from . import llvm_conversion
from .addresses import address_of
from .forks import loading

#: A compiled kernel is called for arrays from this size on.
_SMALLEST = 4096
#: So many elements pay for waking another thread.
_LEAST_SHARE = 1 << 19
#: NumPy converts so many elements before a kernel is compiled, which takes as long.
_PATIENCE = 1 << 24


_converted = 0


def to_half(array: NDArray, dtype: Dtype) -> NDArray:
    """Return `array` rounded to float16 or bfloat16; itself if it is so already. Beyond the range it is inf.

    Args:
        array: of any float dtype and shape.
        dtype: float16 or bfloat16.

    Raises:
        DtypeError: if `dtype` is not a half type.

    Example:
        >>> from numtape.kernels.halves import to_half
        >>> to_half(np.array([1.0, 1e6], np.float32), np.dtype(np.float16))
        array([ 1., inf], dtype=float16)
    """
    if array.dtype is dtype:
        return array
    if dtype not in HALF_DTYPES:
        raise DtypeError(f"to_half: {dtype} is not a half type; use float16 or bfloat16.")
    return _convert(array, dtype)


def to_float32(array: NDArray) -> NDArray:
    """Return `array` in float32, which is exact for halves; itself if it is so already.

    Example:
        >>> from numtape.kernels.halves import to_float32
        >>> to_float32(np.array([0.1], np.float16))
        array([0.09997559], dtype=float32)
    """
    return array if array.dtype is float32 else _convert(array, float32)


def converted(array: NDArray, dtype: Dtype) -> NDArray:
    """Return `array` in another dtype, or itself.

    Example:
        >>> from numtape.kernels.halves import converted
        >>> converted(np.array([1, 2]), np.dtype(np.float16))
        array([1., 2.], dtype=float16)
    """
    return array if array.dtype is dtype else _convert(array, dtype)


def split(array: NDArray) -> tuple[NDArray, NDArray]:
    """Return two bfloat16 arrays whose sum is a float32 array to 17 bits; the second is 0 where it is not finite.

    Below 2**-109 there are fewer: kernels take what is less than 2**-126 for zero.

    Example:
        >>> from numtape.kernels.halves import split
        >>> upper, lower = split(np.array([1.01], np.float32))
        >>> upper, lower
        (array([1.00781], dtype=bfloat16), array([0.00218201], dtype=bfloat16))
    """
    array = np.ascontiguousarray(array)
    upper, lower = np.empty(array.shape, bfloat16), np.empty(array.shape, bfloat16)
    kernel = llvm_conversion.splitter()
    if kernel is not None and array.size:
        _share(kernel, array, upper, lower)
        return upper, lower
    with np.errstate(over="ignore", invalid="ignore"):
        upper[...] = array
        is_large = np.isinf(to_float32(upper)) & np.isfinite(array)
        upper[is_large] = _cut(array[is_large])
        rest = np.where(np.isfinite(array), array - to_float32(upper), float32.type(0.0))
        # A part of the largest numbers that was rounded up would be too much.
        lower[...] = np.where(is_large, _cut(rest), rest)
    return upper, lower


def _cut(array: NDArray) -> NDArray:
    """Return float32 numbers without the bits that bfloat16 does not have."""
    found: NDArray = (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(float32)
    return found


def compile_now() -> bool:
    """Compile the kernels without waiting until that pays; say whether llvmlite is there to do it."""
    global _converted
    _converted = _PATIENCE
    return llvm_conversion.kernel(float32, float16) is not None


def _convert(array: NDArray, dtype: Dtype) -> NDArray:
    flags = array.flags
    if flags.f_contiguous and not flags.c_contiguous:  # As transposed weights are: the result is laid out the same.
        return _convert(array.T, dtype).T
    source = array.dtype
    is_compiled = dtype in HALF_DTYPES if source is float32 else dtype is float32 and source in HALF_DTYPES
    if is_compiled and array.size >= _SMALLEST and flags.c_contiguous and _is_worth_it(array.size):
        kernel = llvm_conversion.kernel(source, dtype)
        if kernel is not None:
            out = np.empty(array.shape, dtype)
            _share(kernel, array, out)
            return out
    with np.errstate(over="ignore", invalid="ignore"):  # Kernels round to inf and keep NaN without a word.
        return array.astype(dtype)


def _share(kernel: Callable[..., None], *arrays: NDArray) -> None:
    """Call a kernel with the addresses of contiguous arrays of one size, and the size; threads share large ones."""
    with loading:
        from . import pool  # With all that it needs, which programs without large halves do not.

    size = arrays[0].size
    width = -(-size // max(1, min(pool.threads(), size // _LEAST_SHARE)))
    places = [(address_of(array), array.itemsize) for array in arrays]
    pool.run(
        kernel,
        [
            (*(address + itemsize * start for address, itemsize in places), min(width, size - start))
            for start in range(0, size, width)
        ],
        *arrays,
    )


def _is_worth_it(size: int) -> bool:
    """Count what was converted, and say whether compiling has paid by now."""
    global _converted
    if _converted < _PATIENCE:
        _converted += size
    return _converted >= _PATIENCE
