"""Gradients by one array with nothing around them: what `api` does for all arguments, in as few steps as possible.

Optimizers ask for gradients of small functions thousands of times. Trees, tensors, tapes and transforms around would
cost as much as ten ops; whatever is not so simple goes the general way. A test runs functions both ways and compares.
"""

from typing import Any

import numpy as np

from ._typing import NDArray
from .arguments import Arguments, running
from .core.context import State, Target
from .core.delivery import PASSED_ON, own_array
from .core.graph import begins_alone, graph_of
from .core.record import Record
from .core.reverse import reverse
from .dtypes import float32, float64

_ndarray = np.ndarray


def is_array_alone(args: tuple[Any, ...], number: int, state: State) -> bool:
    """Say whether an argument is an array of floats, and nobody looks at gradients or differentiates around."""
    if state.transforms or state.tapes or state.observers or not state.grad:
        return False
    if not 0 <= number < len(args):
        return False
    array = args[number]
    return type(array) is _ndarray and (array.dtype is float64 or array.dtype is float32)


def gradient_alone(inputs: Arguments, out: Any, state: State) -> NDArray | None:
    """Return the gradient of a number by the only argument, and release that; None if it takes the general way.

    It does unless the function returned a number that was computed from the argument and from arrays alone.
    """
    record = getattr(out, "node", None)
    if type(record) is not Record or record.shape or out.version is not None:  # A version: it may have been written.
        return None
    if running:  # Another thread may differentiate by what is inside.
        return None
    (source,) = inputs.tensors
    graph = graph_of((record,), since=inputs.since)
    if not begins_alone(graph, source, state.context.cell):
        return None
    target = state.thread.last_target = Target(out)
    target.seed = None
    seed = np.array(1.0, record.dtype)
    found = reverse([(record, seed)], (source,), graph=graph, way=(None, {source}))
    array = source.array
    gradient = own_array(found.pop(source), array, PASSED_ON) if source in found else np.zeros(array.shape, array.dtype)
    inputs.release()
    return gradient
