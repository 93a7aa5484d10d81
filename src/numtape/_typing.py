"""The few type aliases that signatures share."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

#: An ndarray, a Tensor, or a number: whatever an op accepts as a differentiable operand. An op on arrays returns an
#: array and an op on Tensors returns a Tensor, which static types cannot say, hence ``Any``.
Array: TypeAlias = Any
NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Dtype: TypeAlias = np.dtype[Any]
DtypeLike: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]
Axis: TypeAlias = int | tuple[int, ...] | None
Rule: TypeAlias = Callable[..., Any]
