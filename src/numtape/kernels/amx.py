"""Products of bfloat16 matrices by the CPU's matrix instructions (AMX), compiled by LLVM (the extra ``compile``).

oneDNN uses these instructions, too, but some virtual machines hide from it how large the tiles are (see `cpu`), though
they run them. Here they are tried, in a process of their own.

A sum is added up by one thread, in one order, so that the number of threads does not show in a result. Numbers below
2**-126 count as zero, as the instructions take them.
"""

import contextlib
import ctypes
import faulthandler
import functools
import os
import platform
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from ..dtypes import bfloat16, float32
from . import llvm, pool
from .addresses import address_of
from .forks import loading
from .halves import converted, split

#: Below this, a product or a part of an operand may have been subnormal, which the instructions take for 0.
_TINY = 2.0**-90
#: How many elements of a result are looked at first.
_SAMPLE = 1024
#: So many bytes of the right operand are packed at a time: half of a level 2 cache.
_PACKED = 1 << 20
#: The left one in blocks of rows of at most 8 MB, which is so many panels of 32 rows and steps of 32 terms.
_MOST_ROWS = 1 << 12
#: Longer sums are added up in slices, so that a panel of the right operand is 1 MB, too.
_MOST_TERMS = 1 << 14
#: Multiplications in a product that pay for waking another thread.
_LEAST_SHARE = 1 << 25
#: Linux' arch_prctl, what asks it for the permission to use a feature, and the number of the tiles' data.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18

#: The parts of A, those of B, the bias, where the product goes, and a number that says if there is a NaN in it.
_Task = tuple[list[NDArray], list[NDArray], NDArray, NDArray, NDArray]
#: What the operands may be.
_PAIRS = ({bfloat16}, {bfloat16, float32})

_buffers = threading.local()


def matmul(a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray | None:
    """Return ``a @ b + bias`` in `dtype`, bfloat16 or float32, or None.

    Args:
        a: a matrix, or a stack of them, of bfloat16, or of float32 beside bfloat16.
        b: the same.
        bias: a vector of float32, or None.
        dtype: of the result.
    """
    if not 2 <= a.ndim == b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    if not a.size or not b.size or {a.dtype, b.dtype} not in _PAIRS or not is_available():
        return None
    if bias is not None and bias.shape != b.shape[-1:]:
        return None
    if a.shape[-1] > _MOST_TERMS:
        return _in_slices(a, b, bias, dtype)
    out = np.empty((*a.shape[:-1], b.shape[-1]), dtype)
    bias = np.zeros(b.shape[-1], float32) if bias is None else np.ascontiguousarray(bias, float32)
    a_parts, b_parts, flag = _parts(a), _parts(b), np.zeros(1, np.int16)
    shares = max(1, min(pool.threads(), out.size * a.shape[-1] // _LEAST_SHARE))
    tasks: list[_Task] = []
    for place in np.ndindex(a.shape[:-2]):
        task = [x[place] for x in a_parts], [x[place] for x in b_parts], bias, out[place], flag
        tasks.extend(_divided(*task, shares) if a.ndim == 2 else [task])
    pool.run(_product, [(tasks[i::shares],) for i in range(shares)])
    # Beside an infinity a part of 0, which a number of few digits has, makes a NaN that is none: let others compute it.
    has_lost_infinities = flag[0] and len(a_parts) + len(b_parts) > 2
    return None if has_lost_infinities or _is_tiny(out) else out


def _is_tiny(out: NDArray) -> bool:
    """Say whether all of a result is so small that what it was made of may have been: the instructions flush that."""
    some = out.reshape(-1)[:: max(1, out.size // _SAMPLE)]
    return _is_below(some) and _is_below(out)


def _is_below(out: NDArray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.max(np.abs(out.astype(float32, copy=False))) < _TINY)


def _in_slices(a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray | None:
    """Return a product whose sums are too long for the buffers, as a sum of products."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), float32)
    for start in range(0, a.shape[-1], _MOST_TERMS):
        cut = slice(start, start + _MOST_TERMS)
        part = matmul(a[..., cut], b[..., cut, :], bias if start == 0 else None, float32)
        if part is None:
            return None
        total += part
    return converted(total, dtype)


def _divided(
    a: list[NDArray], b: list[NDArray], bias: NDArray, out: NDArray, flag: NDArray, shares: int
) -> Iterator[_Task]:
    """Divide a product along the longer side of its result."""
    rows, columns = out.shape
    size = max(rows, columns)
    width = -(-size // (32 * shares)) * 32
    for start in range(0, size, width):
        cut = slice(start, start + width)
        if rows > columns:
            yield [x[cut] for x in a], b, bias, out[cut], flag
        else:
            yield a, [x[:, cut] for x in b], bias[cut], out[:, cut], flag


def _parts(x: NDArray) -> list[NDArray]:
    """Return bfloat16 arrays that add up to `x`: itself, or two of them for float32."""
    if x.dtype == bfloat16:
        return [x]
    turned = x.swapaxes(-1, -2)
    return [part.swapaxes(-1, -2) for part in split(turned)] if turned.flags.c_contiguous else list(split(x))


def _product(tasks: list[_Task]) -> None:
    """Fill each `out` with ``a @ b + bias``, by this thread."""
    for a, b, bias, out, flag in tasks:
        a, b = [_dense(x) for x in a], [_dense(x.T) for x in b]
        height = max(_MOST_ROWS // (-(-a[0].shape[1] // 32) * len(a)), 1) * 32
        for start in range(0, len(out), height):
            cut = slice(start, start + height)
            _drive([x[cut] for x in a], b, bias, out[cut], flag)


def _drive(a: list[NDArray], b: list[NDArray], bias: NDArray, out: NDArray, flag: NDArray) -> None:
    """Fill `out`; `b` is given as columns."""
    (rows, terms), columns = a[0].shape, len(b[0])
    steps, row_panels, stride = -(-terms // 32), -(-rows // 32), a[0].strides[0]
    a_size = row_panels * steps * 2048
    panels = min(max(_PACKED // (steps * 2048 * len(b)), 1), -(-columns // 32))
    b_size = panels * steps * 2048
    # What runs in between, such as the handler of a signal, may multiply as well: its buffers may replace these.
    held, left = _buffer("a", a_size * len(a))
    also_held, right = _buffer("b", b_size * len(b))
    layout = (64, 2048, 1024, steps * 2048)
    is_aligned = a[0].strides[1] == 2 and not (rows % 32 or terms % 32 or stride % 64 or address_of(a[0]) % 64)
    if is_aligned and len(a) == 1:
        left, layout = address_of(a[0]), (stride, 64, 16 * stride, 32 * stride)
    a_is_turned, b_is_turned = a[0].strides[1] != 2, b[0].strides[1] != 2
    _driver()(
        _packer(False, a_is_turned),
        _packer(True, b_is_turned),
        _multiplier(out.dtype == bfloat16, (len(a), len(b))),
        *_addresses(a),
        *_addresses(b),
        address_of(bias),
        address_of(out),
        address_of(flag),
        left,
        right,
        a[0].strides[a_is_turned],
        b[0].strides[b_is_turned],
        b[0].strides[0],
        *layout,
        a_size,
        b_size,
        a_size if len(a) > 1 else b_size,
        out.strides[0],
        out.itemsize,
        rows,
        columns,
        terms,
        row_panels,
        steps,
        32 * panels,
    )
    del held, also_held


def _dense(x: NDArray) -> NDArray:
    """Return a matrix whose rows or columns are contiguous."""
    return x if 2 in x.strides else np.ascontiguousarray(x)


def _addresses(parts: list[NDArray]) -> tuple[int, int]:
    """Return where one or two parts lie; 0 for the missing one."""
    return address_of(parts[0]), address_of(parts[1]) if len(parts) > 1 else 0


def _buffer(name: str, size: int) -> tuple[NDArray, int]:
    """Return this thread's buffer, and the address from which a cache line begins; it is kept for the next product."""
    held = getattr(_buffers, name, None)
    if held is None or held.size < size + 64:
        held = np.empty(size + 64, np.uint8)
        setattr(_buffers, name, held)
    address = address_of(held)
    return held, address + -address % 64


@functools.cache
def _multiplier(is_half: bool, parts: tuple[int, int]) -> int:
    """Return the address of a kernel."""
    return llvm.address_of(_code().product(is_half, parts), "product")


@functools.cache
def _packer(is_b: bool, terms_first: bool) -> int:
    """Return the address of a kernel."""
    return llvm.address_of(_code().pack(is_b, terms_first), "pack")


@functools.cache
def _driver() -> Callable[..., None]:
    return llvm.compiled(_code().DRIVER, "drive", _code().DRIVER_ARGUMENTS)


def _code() -> Any:
    """Return what writes the kernels, which needs llvmlite."""
    with loading:
        from . import amx_code
    return amx_code


def is_available() -> bool:
    """Say whether llvmlite is there, and the CPU and the system run matrix instructions."""
    return why_missing() is None


@functools.cache
def why_missing() -> str | None:
    """Return in one line why the instructions cannot be used, or None if they can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "AMX: only on Linux on x86-64"
    if not llvm.is_there():
        return 'AMX: llvmlite is missing: pip install "numtape[compile]"'
    if not {"amx-tile", "amx-bf16", "avx512vl", "avx512bw"} <= llvm.features():
        return "AMX: not an instruction of this CPU"
    if ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA):
        return "AMX: the system does not permit it"
    return None if _works() else "AMX: announced by the CPU, but does not run"


def _works() -> bool:
    """Say whether a small product comes out right in a forked process, which may be ended by it."""
    product = llvm.function_at(_multiplier(False, (1, 1)), sum(_code().PRODUCT_ARGUMENTS))
    ones, shift, out = np.ones((32, 32), bfloat16), np.zeros(32, float32), np.zeros((32, 32), float32)
    flag = np.zeros(1, np.int16)
    addresses = [address_of(x) for x in (ones, ones, shift, out, flag)]
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of forks beside threads. The child waits for none: it calls the kernel, and ends.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:  # There are too many processes.
        os.close(reading)
        os.close(writing)
        return False
    if child == 0:
        faulthandler.disable()  # Its end is an answer, not news.
        product(*addresses, 64, 0, 1024, 0, 0, 128, 32, 32, 1, 1, 1)
        os.write(writing, b"1" if (out == 32.0).all() else b"0")
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 1)
    os.close(reading)
    with contextlib.suppress(ChildProcessError):  # Where children that end are not waited for, it is gone already.
        os.waitpid(child, 0)
    return answer == b"1"
