"""Load oneDNN from the package ``onednn-cpu-gomp`` and call its C functions through ctypes.

Nothing is loaded before `library` is called the first time; it then answers the same ever after, but in a process that
was forked from one that had loaded it: the library would wait there, for ever, for threads that only the parent has.
"""

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import MissingExtraError
from . import cpu
from .forks import loading

PACKAGE = "onednn-cpu-gomp"
#: The file, after the version of its interface that the calls below are written for.
_FILE = "libdnnl.so.3"
#: Constants of its interface: the kind of engine, the kind of stream, a query, who owns scratch memory.
_CPU, _IN_ORDER, _IMPLEMENTATION, _USER = 1, 1, 8, 1
#: Bits of the instruction sets that the library found.
_AVX2, _AVX512_BF16, _AVX512_FP16, _AMX = 0x7, 0xE7, 0x1EF, 0xFEF
#: How often its idle threads look for work before they sleep, about half a millisecond; the default, 15 ms, takes the
#: time from NumPy's threads and from other processes.
_SPINS = "10000"
#: Variables by which users say that themselves.
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
#: Variables by which users limit the instruction sets themselves.
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

#: Why a process cannot use it that was forked after it was loaded.
_FORKED = (
    "this process was forked from one that had loaded it, and its threads stayed behind; use 'auto' or 'numpy' here, "
    "or start processes by 'spawn'"
)

_Handle = ctypes.c_void_p
_Int = ctypes.c_int
_NAMES: dict[str, list[Any]] = {
    "engine_create": [ctypes.POINTER(_Handle), _Int, ctypes.c_size_t],
    "stream_create": [ctypes.POINTER(_Handle), _Handle, ctypes.c_uint],
    "stream_destroy": [_Handle],
    "memory_desc_create_with_strides": [ctypes.POINTER(_Handle), _Int, _Handle, _Int, _Handle],
    "memory_desc_create_with_tag": [ctypes.POINTER(_Handle), _Int, _Handle, _Int, _Int],
    "memory_desc_clone": [ctypes.POINTER(_Handle), _Handle],
    "memory_desc_destroy": [_Handle],
    "memory_create": [ctypes.POINTER(_Handle), _Handle, _Handle, _Handle],
    "memory_destroy": [_Handle],
    "memory_set_data_handle": [_Handle, _Handle],
    "primitive_attr_create": [ctypes.POINTER(_Handle)],
    "primitive_attr_set_scratchpad_mode": [_Handle, _Int],
    "primitive_desc_destroy": [_Handle],
    "primitive_desc_query": [_Handle, _Int, _Int, _Handle],
    "primitive_create": [ctypes.POINTER(_Handle), _Handle],
    "primitive_destroy": [_Handle],
    "primitive_execute": [_Handle, _Handle, _Int, _Handle],
    "matmul_primitive_desc_create": [ctypes.POINTER(_Handle)] + [_Handle] * 6,
    "reorder_primitive_desc_create": [ctypes.POINTER(_Handle)] + [_Handle] * 5,
    "convolution_forward_primitive_desc_create": [ctypes.POINTER(_Handle), _Handle, _Int, _Int] + [_Handle] * 9,
    "convolution_backward_data_primitive_desc_create": [ctypes.POINTER(_Handle), _Handle, _Int] + [_Handle] * 9,
    "convolution_backward_weights_primitive_desc_create": [ctypes.POINTER(_Handle), _Handle, _Int] + [_Handle] * 10,
}


class Refused(Exception):
    """oneDNN cannot do what it was asked for; the provider catches this, and NumPy computes it."""


class Library:
    """oneDNN's functions, by their names without the prefix, its engine and what the CPU lets it do."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._functions = {}
        for name, arguments in _NAMES.items():
            function = getattr(loaded, f"dnnl_{name}")
            function.argtypes, function.restype = arguments, _Int
            self._functions[name] = function
        self._loaded = loaded
        if not cpu.has_tiles() and not any(map(os.environ.get, _LIMITS)):
            loaded.dnnl_set_max_cpu_isa(_AVX512_FP16)
        for name, returned in {
            "memory_desc_equal": _Int,
            "memory_desc_get_size": ctypes.c_size_t,
            "primitive_desc_query_md": _Handle,
            "get_effective_cpu_isa": _Int,
        }.items():
            getattr(loaded, f"dnnl_{name}").restype = returned
        self.execute = self._functions["primitive_execute"]
        self.point = self._functions["memory_set_data_handle"]
        self.engine = self.made("engine_create", _CPU, 0)
        # Each call ends before it returns, so that one stream serves all threads.
        self.stream = self.made("stream_create", self.engine, _IN_ORDER)
        self.attributes = self.made("primitive_attr_create")
        self.call("primitive_attr_set_scratchpad_mode", self.attributes, _USER)
        isa = loaded.dnnl_get_effective_cpu_isa()
        #: Without these instructions NumPy is not slower.
        self.has_vectors = isa & _AVX2 == _AVX2
        self.has_float16 = isa & _AVX512_FP16 == _AVX512_FP16
        #: Whether products of bfloat16 are faster than those of float32.
        self.has_fast_bfloat16 = isa & _AMX == _AMX or (
            isa & _AVX512_BF16 == _AVX512_BF16 and cpu.has_full_dot_products()
        )
        self.version = _version(loaded)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status, and raise if it refuses."""
        status = self._functions[name](*arguments)
        if status:
            raise Refused(f"oneDNN: {name} returned status {status}.")

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that makes something; return its address."""
        handle = _Handle()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def descriptor(self, primitive: int, query: int) -> int:
        """Return the memory descriptor that a primitive's descriptor holds; it lives as long as that."""
        found: int | None = self._loaded.dnnl_primitive_desc_query_md(_Handle(primitive), query, 0)
        return found or 0

    def implementation(self, primitive: int) -> str:
        """Return the name of the code that a primitive's descriptor chose."""
        name = ctypes.c_char_p()
        self.call("primitive_desc_query", primitive, _IMPLEMENTATION, 0, ctypes.byref(name))
        return (name.value or b"").decode()

    def is_equal(self, a: int, b: int) -> bool:
        """Say whether two memory descriptors describe the same layout."""
        return bool(self._loaded.dnnl_memory_desc_equal(_Handle(a), _Handle(b)))

    def byte_size(self, descriptor: int) -> int:
        """Return how many bytes a memory descriptor takes."""
        return int(self._loaded.dnnl_memory_desc_get_size(_Handle(descriptor)))


class _Version(ctypes.Structure):
    _fields_ = [("major", _Int), ("minor", _Int), ("patch", _Int)]


def _version(loaded: ctypes.CDLL) -> str:
    loaded.dnnl_version.restype = ctypes.POINTER(_Version)
    found = loaded.dnnl_version().contents
    return f"{found.major}.{found.minor}.{found.patch}"


@contextmanager
def _short_waits() -> Iterator[None]:
    """Let libgomp, which reads its variables once, when it is loaded, wait less; leave the environment as it was."""
    if any(map(os.environ.get, _WAITING)):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def _paths() -> list[str] | None:
    """Return where the package put its library, or None if there is no such package."""
    from importlib import metadata  # Slow to import, and seldom needed.

    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return None
    return [str(file.locate()) for file in files if file.name == _FILE]


@functools.cache
def _load() -> Library | str:
    """Return the library, or in one line why it is missing."""
    paths = _paths()
    if paths is None:
        return f'{PACKAGE} is missing: pip install "numtape[onednn]"'
    if not paths:
        return f"{PACKAGE} is installed, but has no {_FILE}"
    try:
        with _short_waits():
            loaded = ctypes.CDLL(paths[0])
        found = Library(loaded)
    except (OSError, AttributeError, Refused) as error:
        return f"{PACKAGE} is installed, but does not load: {error}"
    os.register_at_fork(after_in_child=_leave_behind)
    return found


_is_left_behind = False


def _leave_behind() -> None:
    global _is_left_behind
    _is_left_behind = True


def _found() -> Library | str:
    """Return the library if this process can use it, or in one line why not."""
    with loading:
        return _FORKED if _is_left_behind else _load()


def library() -> Library:
    """Return the library; load it the first time.

    Raises:
        MissingExtraError: if it is not installed, a library that it needs is missing, or the process was forked from
            one that had loaded it.
    """
    found = _found()
    if isinstance(found, str):
        raise MissingExtraError(f"oneDNN: {found}.")
    return found


def why_missing() -> str | None:
    """Return in one line why the library cannot be used, or None if it can."""
    found = _found()
    return found if isinstance(found, str) else None
