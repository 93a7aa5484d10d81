"""SciPy, which is optional: it is imported when a function first needs it."""

import importlib
from typing import Any

from ..errors import MissingExtraError
from ..kernels.blas import single_thread


def scipy_part(name: str, part: str) -> Any:
    """Return a part of SciPy, such as "optimize", for the function `name`."""
    try:
        found = importlib.import_module(f"scipy.{part}")
    except ImportError as error:
        raise MissingExtraError(f"{name}: needs SciPy; pip install numtape[scipy]") from error
    single_thread.catch_up()  # It may just have loaded a BLAS library of its own.
    return found
