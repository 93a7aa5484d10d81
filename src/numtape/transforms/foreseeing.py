"""What an op will give, before it runs."""

import math
from typing import Any

import numpy as np

from ..core.facts import Structure
from ..core.op import Op


def foresee(op: Op, arrays: tuple[Any, ...], params: dict[str, Any]) -> int:
    """Return the bytes that an op will give, where that is known before: if it is elementwise, joins, or says so.

    Reductions say it by their parameters.
    """
    given = [array for array in arrays if isinstance(array, np.ndarray)]
    if op.is_variadic and op.facts.structure is Structure.MOVES:
        return sum(array.nbytes for array in given)
    itemsize = max((array.itemsize for array in given), default=0)
    if isinstance(params.get("dtype"), np.dtype):
        itemsize = params["dtype"].itemsize
    try:
        if op.is_elementwise and given:
            return np.broadcast(*given).size * itemsize
        if op.facts.size is not None:
            return op.facts.size(*map(np.shape, arrays), **params) * itemsize
        if "keepdims" in params and "axis" in params and len(given) == 1:
            axes = range(given[0].ndim) if params["axis"] is None else np.atleast_1d(params["axis"]).tolist()
            return int(given[0].nbytes // max(1, math.prod(given[0].shape[axis] for axis in axes)))
    except (ValueError, IndexError):  # The operands do not fit, and the op will say so.
        pass
    return 0
