"""What the bits of results depend on beside the program: the class of CPU, the libraries and the kernel provider."""

import functools
import platform
from typing import Any

import numpy as np

from . import blas
from .providers import taken

#: The variable that tells OpenBLAS, before it is loaded, for which CPU to take its kernels.
CORE_VARIABLE = "OPENBLAS_CORETYPE"
#: What OpenBLAS calls those of its kernels that use AVX2 at most.
_AVX2_CORES = ("haswell", "zen")


@functools.cache
def machine_class() -> str:
    """Return the class of CPU, as the libraries tell classes apart: instruction set, SIMD level, kernels of BLAS.

    Two machines of one class, with the same versions of the libraries, give the same bits in strict mode.
    """
    found = _config().get("SIMD Extensions", {})
    levels = [*found.get("baseline", ()), *found.get("found", ())]
    library = blas.library()
    core = library.core if library is not None else ""
    return " ".join(part for part in (platform.machine(), *levels[-1:], core) if part)


def is_taken_for_older() -> bool:
    """Say whether BLAS multiplies without this CPU's AVX-512: since it was told so, or does not know the CPU."""
    found = _config().get("SIMD Extensions", {}).get("found", ())
    library = blas.library()
    has_avx512 = any("AVX512" in level or level == "X86_V4" for level in found)
    return has_avx512 and library is not None and library.core.lower() in _AVX2_CORES


def machine() -> dict[str, str]:
    """Return the class of CPU, the libraries and the kernel provider, as digests and saved states hold them."""
    library = _config().get("Build Dependencies", {}).get("blas", {})
    return {
        "cpu": machine_class(),
        "numpy": np.__version__,
        "blas": f"{library.get('name', 'unknown')} {library.get('version', '')}".strip(),
        "provider": taken(),
    }


@functools.cache
def _config() -> dict[str, Any]:
    config: dict[str, Any] = np.show_config(mode="dicts")  # type: ignore[assignment]
    return config
