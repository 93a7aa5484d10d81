"""What is accepted as a number of things."""

from typing import Any

import numpy as np


def is_count(x: Any, least: int = 1) -> bool:
    """Say whether something is an integer, of Python or NumPy and no bool, of at least `least`."""
    return isinstance(x, int | np.integer) and not isinstance(x, bool) and bool(x >= least)
