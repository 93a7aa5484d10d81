"""`per_sample_gradients`: the gradient of each sample's loss by shared parameters, all in one batched sweep."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

from .. import tree
from ..api import gradients_of
from ..core.effects import effects
from ..core.op import Op
from ..core.scopes import Scope
from ..core.value import Value, wrap
from ..errors import OperandError, ShapeError
from ..interop.vectors import is_numbers
from ..lifted import BatchedTensor
from ..ops import broadcast_to, stack
from ..outputs import title
from ..sparse.exits import on_tape
from ..tensors import Tensor

_NAME = "per_sample_gradients"


def per_sample_gradients(function: Callable[..., Any], parameters: Any, *samples: Any) -> Any:
    """Return the gradient of each sample's loss by the parameters, along a new first axis.

    The function is written for one sample. It runs once, on all samples at once, and one reverse sweep brings all
    gradients. A function that must look at the numbers themselves, as in ``if loss > 1``, or that draws random numbers
    with nt, runs sample by sample.

    Arrays of integers stay integers where they index, as labels do. Where they become floats, as by a root or a
    division, these are float64, as in NumPy.

    Args:
        function: takes the parameters and one sample, and returns its loss, a scalar.
        parameters: a tensor, an array, a number or a tree of them. A list or tuple of numbers is an array.
        samples: arrays, tensors or trees of them, of which each sample has one part along the first axis.

    Returns:
        A tree like `parameters`, with a first axis for the samples in each leaf.

    Example:
        >>> loss = lambda w, x, y: (w @ x - y) ** 2
        >>> x, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 1.0])
        >>> nt.uncertainty.per_sample_gradients(loss, np.array([2.0, 3.0]), x, y)
        array([[ 2.,  0.],
               [ 0., 20.]])
    """
    if not callable(function):
        raise OperandError(f"{_NAME}: wants a function, not {type(function).__name__}.")
    count = _count(samples)
    if is_numbers(parameters):
        parameters = np.asarray(parameters, np.float64)
    with _AsFloat64() if any(map(_is_integers, tree.leaves(samples))) else nullcontext():
        return _gradients(function, parameters, samples, count)


def _gradients(function: Callable[..., Any], parameters: Any, samples: Any, count: int) -> Any:
    """Return the gradients of all samples: at once if that works, otherwise one by one."""
    shared = tree.map(lambda leaf: _as_shared(leaf, count), parameters)

    def total(repeated: Any) -> Any:
        lifted = tree.map(BatchedTensor.of, repeated)
        return _members(function, function(lifted, *tree.map(_lifted, samples)), count).sum()

    total.__name__ = title(function)
    found = None
    # It may want to see numbers, which are there for one sample at a time; other errors show there too.
    with effects() as seen, suppress(Exception):
        found = gradients_of(_NAME, total, 0, False)(shared)[1]
    if found is not None and not seen.drawn:
        return found
    seen.undo()  # Random numbers that were drawn once would be the same for all samples.
    return _one_by_one(function, parameters, samples, count)


class _AsFloat64(Scope):
    """Lets ops make float64 of integers that meet no float array, as NumPy does, and not the default dtype."""

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute an op."""
        positions = range(len(arrays)) if op.is_variadic and op.promoted else op.promoted
        promoted = [arrays[i] for i in positions if i < len(arrays)]
        makes_floats = op.facts.to_float or any(type(x) is float for x in promoted)
        if makes_floats and all(_is_integers(x) for x in promoted if hasattr(x, "dtype")):
            arrays = tuple(
                np.asarray(x, np.float64) if i in positions and _is_integers(x) else x for i, x in enumerate(arrays)
            )
        return compute(op, arrays, params)


def _is_integers(x: Any) -> bool:
    """Say whether something is an array or a scalar of NumPy's of integers or bools."""
    return isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biu"


def _one_by_one(function: Callable[..., Any], parameters: Any, samples: Any, count: int) -> Any:
    def watched(*args: Any) -> Any:
        with on_tape(_NAME, function):
            return function(*args)

    watched.__name__ = title(function)
    gradient = gradients_of(_NAME, watched, 0, False)
    rows = [gradient(parameters, *tree.map(lambda x, i=i: x[i], samples))[1] for i in range(count)]
    if not rows:
        return tree.map(lambda leaf: np.zeros((0, *np.shape(leaf))), parameters)
    return tree.map(lambda *parts: stack(parts) if isinstance(parts[0], Value) else np.stack(parts), rows[0], *rows[1:])


def _count(samples: Any) -> int:
    """Return how many samples there are."""
    lengths = {np.shape(leaf)[:1] for leaf in tree.leaves(samples)}
    if not lengths:
        raise OperandError(f"{_NAME}: there are no samples; give arrays, of which each sample has one part.")
    if len(lengths) > 1 or () in lengths:
        shapes = ", ".join(str(np.shape(leaf)) for leaf in tree.leaves(samples))
        is_list = any(isinstance(x, list | tuple) and tree.leaves(x) and not any(map(np.ndim, x)) for x in samples)
        hint = " A list is a tree of samples here: make it an array by np.array." if is_list else ""
        raise ShapeError(f"{_NAME}: the samples have shapes {shapes}; their first axes must be of one length.{hint}")
    return int(next(iter(lengths))[0])


def _as_shared(leaf: Any, count: int) -> Any:
    """Return a parameter once for each sample, without a copy; numbers are float64, as in every derivative."""
    value = np.asarray(leaf, np.float64) if isinstance(leaf, float | int) else leaf
    return broadcast_to(value, (count, *np.shape(value)))


def _lifted(leaf: Any) -> Any:
    return BatchedTensor.of(leaf if isinstance(leaf, Value) else wrap(Tensor, np.asarray(leaf)))


def _members(function: Callable[..., Any], out: Any, count: int) -> Any:
    """Return the losses of all samples as one tensor."""
    if not isinstance(out, Value):
        raise OperandError(f"{_NAME}: {title(function)} returned {type(out).__name__}; it must return a scalar tensor.")
    if out.shape not in ((), (1,)):
        raise ShapeError(
            f"{_NAME}: {title(function)} returned shape {out.shape} for one sample; it must return its loss, a scalar."
        )
    # A loss that depends on no sample is the same for all.
    return out.members if isinstance(out, BatchedTensor) else broadcast_to(out, (count,))
