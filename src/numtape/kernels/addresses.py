"""Where arrays lie in memory, for kernels that are called through ctypes."""

import ctypes
from collections.abc import Callable

import numpy as np

from .._typing import NDArray

#: In NumPy's C interface the address is the first field behind those that every object has.
_OFFSET = object.__basicsize__
_at = ctypes.c_void_p.from_address


def _read(array: NDArray) -> int:
    address: int = _at(id(array) + _OFFSET).value  # type: ignore[assignment]
    return address


def _ask(array: NDArray) -> int:
    return array.ctypes.data


def _choose() -> Callable[[NDArray], int]:
    """Return the quick way if it is right on this interpreter: 0.2 us instead of 1.0."""
    probe = np.empty(3)
    parts = (probe, probe[1:], probe[::-1])
    return _read if hasattr(probe, "__array_struct__") and all(_read(x) == _ask(x) for x in parts) else _ask


#: Return the address of an array's first element; that of an empty array may be anything.
address_of = _choose()
