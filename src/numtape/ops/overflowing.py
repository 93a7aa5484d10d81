"""Numbers at a smaller scale, for slopes that are the same at every scale where the value itself overflows."""

from typing import Any

import numpy as np

from .._typing import Array
from ..core.value import array_of


def overflows(out: Array) -> bool:
    """Say whether a result of squares or powers has left the range of its dtype anywhere."""
    return bool(np.isinf(array_of(out)).any())


def scaled_down(*operands: Array) -> list[Any]:
    """Return operands over the largest finite number among them, so that their squares and powers are in range."""
    sizes = [np.abs(array_of(x)) for x in operands]
    largest = max(float(np.max(size, initial=0.0, where=np.isfinite(size))) for size in sizes)
    return [x / largest if largest else x for x in operands]
