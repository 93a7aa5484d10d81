"""How NumPy's functions reach ours: ``np.exp(t)`` and ``np.concatenate([t, u])`` record."""

from typing import Any

import numpy as np

from .core.declare import numpy_faces, public
from .core.inplace import write_op
from .core.value import Value
from .errors import UnsupportedError


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run a NumPy ufunc on tensors."""
    face = numpy_faces.get(ufunc) or public.get(ufunc.__name__)
    if face is None or method != "__call__":
        return NotImplemented
    return face(*inputs, **kwargs)


def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a NumPy function on tensors."""
    face = numpy_faces.get(function)
    if face is None:
        return NotImplemented
    return face(*args, **kwargs)
