"""Ask the CPU itself what its instructions for bfloat16 are worth, since its announcements can mislead.

Some virtual machines announce matrix instructions (AMX) but hide how large their tiles are. Libraries then set up none,
and the first such instruction ends the process: "illegal instruction". And Intel's dot products of bfloat16 without
matrix instructions run at half the speed that would make them faster than float32; AMD's run at the full one.
"""

import ctypes
import functools
import mmap
import platform

#: The leaf of cpuid with the sizes of tiles.
_TILES = 0x1D
#: How the vendor's name begins, as a number: "Auth", of AuthenticAMD.
_AMD = 0x68747541


def has_tiles() -> bool:
    """Say whether matrix instructions can be used: whether the CPU tells how large their tiles are."""
    # Beyond the highest leaf, which leaf 0 tells, cpuid answers something else.
    return _cpuid(0)[0] >= _TILES and _cpuid(_TILES)[0] > 0


def has_full_dot_products() -> bool:
    """Say whether dot products of bfloat16, if there are any, run at full speed."""
    return _cpuid(0)[1] == _AMD


@functools.cache
def _cpuid(leaf: int) -> tuple[int, int]:
    """Return the first two registers that the instruction fills for a leaf; zeros where it cannot run."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0, 0
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except (OSError, AttributeError):  # Forbidden, or not offered.
        return 0, 0
    # push rbx, which belongs to the caller; mov eax, leaf; xor ecx, ecx; cpuid; shl rbx, 32; or rax, rbx; pop rbx; ret
    page.write(b"\x53\xb8" + leaf.to_bytes(4, "little") + b"\x31\xc9\x0f\xa2\x48\xc1\xe3\x20\x48\x09\xd8\x5b\xc3")
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    both = int(ctypes.CFUNCTYPE(ctypes.c_uint64)(start)())
    return both & 0xFFFFFFFF, both >> 32
