"""Ask the CPU whether its matrix instructions (AMX) can be set up.

Some virtual machines announce AMX but hide how large its tiles are. Libraries then set up none, and the first matrix
instruction ends the process: "illegal instruction". So whoever loads such a library asks here first.
"""

import ctypes
import mmap
import platform

#: The leaf of cpuid with the sizes of tiles.
_TILES = 0x1D


def are_usable() -> bool:
    """Say whether the CPU has them, or rather tells how large their tiles are."""
    # Beyond the highest leaf, which leaf 0 tells, cpuid answers something else.
    return platform.machine() in ("x86_64", "AMD64") and _cpuid(0) >= _TILES and _cpuid(_TILES) > 0


def _cpuid(leaf: int) -> int:
    """Return the first register that the instruction fills for a leaf; 0 where the system does not let it run."""
    # push rbx, which belongs to the caller; mov eax, leaf; xor ecx, ecx; cpuid; pop rbx; ret
    code = b"\x53\xb8" + leaf.to_bytes(4, "little") + b"\x31\xc9\x0f\xa2\x5b\xc3"
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    page.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    function = ctypes.CFUNCTYPE(ctypes.c_uint32)(start)
    return int(function())
