"""Products of bfloat16 matrices by the CPU's matrix instructions (AMX), compiled by LLVM (the extra ``compile``).

oneDNN uses these instructions, too, but some virtual machines hide from it how large the tiles are (see `cpu`), though
they run them. Here they are tried, in a process of their own.

A sum is added up by one thread, in one order, so that the number of threads does not show in a result. Numbers below
2**-126 count as zero, as the instructions take them.
"""

import ctypes
import faulthandler
import functools
import os
import platform
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from .._typing import Dtype, NDArray
from ..dtypes import bfloat16, float32
from . import blas, llvm
from .addresses import address_of
from .halves import split

#: So many bytes of the right operand are packed at a time: half of a level 2 cache.
_PACKED = 1 << 20
#: Multiplications in a product that pay for waking another thread.
_LEAST_SHARE = 1 << 22
#: Linux' arch_prctl, what asks it for the permission to use a feature, and the number of the tiles' data.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18

#: The parts of A, those of B, the bias and where the product goes.
_Task = tuple[list[NDArray], list[NDArray], NDArray, NDArray]
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
    out = np.empty((*a.shape[:-1], b.shape[-1]), dtype)
    bias = np.zeros(b.shape[-1], float32) if bias is None else np.ascontiguousarray(bias, float32)
    a_parts, b_parts = _parts(a), _parts(b)
    shares = max(1, min(blas.threads() or 1, out.size * a.shape[-1] // _LEAST_SHARE))
    tasks: list[_Task] = []
    for place in np.ndindex(a.shape[:-2]):
        task = [x[place] for x in a_parts], [x[place] for x in b_parts], bias, out[place]
        tasks.extend(_divided(*task, shares) if a.ndim == 2 else [task])
    others: list[Future[None]] = [_pool().submit(_run, tasks[i::shares]) for i in range(1, shares)]
    _run(tasks[::shares])
    for other in others:
        other.result()
    return out


def _divided(a: list[NDArray], b: list[NDArray], bias: NDArray, out: NDArray, shares: int) -> Iterator[_Task]:
    """Divide a product along the longer side of its result."""
    rows, columns = out.shape
    size = max(rows, columns)
    width = -(-size // (32 * shares)) * 32
    for start in range(0, size, width):
        cut = slice(start, start + width)
        if rows > columns:
            yield [x[cut] for x in a], b, bias, out[cut]
        else:
            yield a, [x[:, cut] for x in b], bias[cut], out[:, cut]


def _run(tasks: list[_Task]) -> None:
    for task in tasks:
        _product(*task)


def _parts(x: NDArray) -> list[NDArray]:
    """Return bfloat16 arrays that add up to `x`: itself, or two of them for float32."""
    if x.dtype == bfloat16:
        return [x]
    turned = x.swapaxes(-1, -2)
    return [part.swapaxes(-1, -2) for part in split(turned)] if turned.flags.c_contiguous else list(split(x))


def _product(a: list[NDArray], b: list[NDArray], bias: NDArray, out: NDArray) -> None:
    """Fill `out` with ``a @ b + bias``, of matrices given by their parts, by this thread."""
    (rows, terms), columns = a[0].shape, b[0].shape[1]
    steps, panels, stride = -(-terms // 32), -(-rows // 32), a[0].strides[0]
    is_aligned = a[0].strides[1] == 2 and not (rows % 32 or terms % 32 or stride % 64 or address_of(a[0]) % 64)
    if is_aligned and len(a) == 1:
        left, part, layout = address_of(a[0]), 0, (stride, 64, 16 * stride, 32 * stride)
    else:
        left, part = _pack(a, "a")
        layout = (64, 2048, 1024, steps * 2048)
    multiply = _multiply(out.dtype == bfloat16, (len(a), len(b)))
    width = max(_PACKED // (steps * 2048 * len(b)), 1) * 32
    for start in range(0, columns, width):
        cut = slice(start, start + width)
        target, shift = out[:, cut], bias[cut]
        right, b_part = _pack([x.T[cut] for x in b], "b")
        sizes = (out.strides[0], rows, target.shape[1], panels, -(-target.shape[1] // 32), steps)
        addresses = (left, right, address_of(shift), address_of(target))
        multiply(*addresses, *layout, part or b_part, *sizes)


def _pack(parts: list[NDArray], name: str) -> tuple[int, int]:
    """Pack the parts of the operand "a" or "b", as ``[lane, term]``, into this thread's buffer.

    Return the address of the first, and the distance to the second, which is 0 if there is none.
    """
    lanes, terms = parts[0].shape
    panels, steps = -(-lanes // 32), -(-terms // 32)
    size = panels * steps * 2048
    address = target = _buffer(name, size * len(parts))
    for part in parts:
        x = part if 2 in part.strides else np.ascontiguousarray(part)
        terms_first = x.strides[1] != 2
        _packer(name == "b", terms_first)(address_of(x), target, x.strides[terms_first], lanes, terms, panels, steps)
        target += size
    return address, size if len(parts) > 1 else 0


def _buffer(name: str, size: int) -> int:
    """Return the address of this thread's buffer, from which a cache line begins; it is kept for the next product."""
    held = getattr(_buffers, name, None)
    if held is None or held.size < size + 64:
        held = np.empty(size + 64, np.uint8)
        setattr(_buffers, name, held)
    address = address_of(held)
    return address + -address % 64


@functools.cache
def _multiply(is_half: bool, parts: tuple[int, int]) -> Callable[..., None]:
    from . import amx_code

    return llvm.compiled(amx_code.product(is_half, parts), "product", sum(amx_code.PRODUCT_ARGUMENTS))


@functools.cache
def _packer(is_b: bool, terms_first: bool) -> Callable[..., None]:
    from . import amx_code

    return llvm.compiled(amx_code.pack(is_b, terms_first), "pack", sum(amx_code.PACK_ARGUMENTS))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads that take a share of a product; a forked process, which has none of them, makes its own."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.cache_clear)
    return ThreadPoolExecutor(os.cpu_count(), "numtape-amx")


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
    product = _multiply(False, (1, 1))
    ones, shift, out = np.ones((32, 32), bfloat16), np.zeros(32, float32), np.zeros((32, 32), float32)
    addresses = [address_of(x) for x in (ones, ones, shift, out)]
    with warnings.catch_warnings():
        # Python warns of forks beside threads. The child takes no locks: it calls the kernel, and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        faulthandler.disable()  # Its end is an answer, not news.
        product(*addresses, 64, 0, 1024, 0, 0, 128, 32, 32, 1, 1, 1)
        os._exit(0 if (out == 32.0).all() else 1)
    return os.waitpid(child, 0)[1] == 0
