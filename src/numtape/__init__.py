"""numtape: tape-based automatic differentiation on NumPy arrays."""

__version__ = "0.1.0"

from .core.declare import public as _public
from . import ops as ops
from .tensors import Tensor as Tensor


def __getattr__(name: str):
    if name in _public: return _public[name]
    raise AttributeError(name)
