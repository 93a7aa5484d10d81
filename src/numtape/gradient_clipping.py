"""Clip gradients: in place where tensors carry them, or as new values."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import ops, tree
from ._typing import NDArray
from .core.apply import is_tracked
from .core.binding import check_untracked
from .core.context import current
from .core.marks import marks
from .core.value import Value, wrap
from .core.write import mark_written
from .dtypes import is_float, widened
from .errors import ArgumentError, GradientError, OperandError
from .gradients import Gradients
from .tensors import Tensor

#: Added to a norm before a division by it, as PyTorch does.
_TINY = 1e-6


def clip_grad_norm(params: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Scale the gradients of parameters in place so that their norm, over all of them together, is at most `max_norm`.

    Args:
        params: tensors, one tensor, or a model; those without a gradient are skipped.
        max_norm: the largest norm allowed.
        norm_type: the order of the norm; ``float("inf")`` for the largest absolute value.
        error_if_nonfinite: raise if the norm is infinite or NaN; otherwise the gradients are scaled by what follows.

    Returns:
        The norm before clipping.

    Example:
        >>> w = nt.tensor([3.0, 4.0], requires_grad=True)
        >>> w.grad = np.array([3.0, 4.0])
        >>> float(nt.gradient_clipping.clip_grad_norm([w], 1.0))
        5.0
        >>> print(np.round(w.grad.numpy(), 3))
        [0.6 0.8]
    """
    limit = _limit("clip_grad_norm", "max_norm", max_norm)
    grads = _gradients("clip_grad_norm", params)
    total = _norm("clip_grad_norm", [grad.array for grad in grads], norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise GradientError(
            f"clip_grad_norm: the norm of the gradients is {total}; look for the gradient with NaN or inf "
            "(grad.has_nan()), or give error_if_nonfinite=False to clip in spite of it."
        )
    scale = limit / (total + _TINY)
    if not scale >= 1.0:  # NaN spreads, as it would in PyTorch.
        with np.errstate(all="ignore"):
            for grad in grads:
                array, wide = grad.array, widened(grad.dtype)
                with marks.kept(grad):
                    if wide == array.dtype:
                        np.multiply(array, wide.type(scale), out=array)
                    else:  # The scale of many half gradients is too small for a half itself.
                        array[...] = (array.astype(wide) * wide.type(scale)).astype(array.dtype)
                    mark_written(grad, None)
    dtype = widened(grads[0].dtype) if grads else np.float32
    norm: Tensor = wrap(Tensor, np.array(total, dtype))
    return norm


def clip_grad_value(params: Any, clip_value: float) -> None:
    """Limit each element of the gradients of parameters to ``[-clip_value, clip_value]``, in place.

    Args:
        params: tensors, one tensor, or a model; those without a gradient are skipped.
        clip_value: the largest absolute value allowed.

    Example:
        >>> w = nt.tensor([3.0, 4.0], requires_grad=True)
        >>> w.grad = np.array([3.0, -0.2])
        >>> nt.gradient_clipping.clip_grad_value([w], 0.5)
        >>> w.grad
        tensor([ 0.5, -0.2])
    """
    limit = _limit("clip_grad_value", "clip_value", clip_value)
    for grad in _gradients("clip_grad_value", params):
        bound = grad.dtype.type(limit)
        with marks.kept(grad):
            np.minimum(np.maximum(grad.array, -bound, out=grad.array), bound, out=grad.array)
            mark_written(grad, None)


clip_grad_norm_ = clip_grad_norm
clip_grad_value_ = clip_grad_value


def clip_by_global_norm(grads: Any, max_norm: float) -> Any:
    """Return gradients scaled so that their norm, over all of them together, is at most `max_norm`.

    Args:
        grads: a tensor or an array, a list or another tree of them, or the map that a backward returned.
        max_norm: the largest norm allowed.

    Returns:
        What was given, clipped; a None stays None.

    Example:
        >>> nt.gradient_clipping.clip_by_global_norm([nt.tensor([3.0]), nt.tensor([4.0])], 1.0)
        [tensor([0.6]), tensor([0.8])]
    """
    limit = _limit("clip_by_global_norm", "max_norm", max_norm)
    total = _norm_on_tape("clip_by_global_norm", _leaves("clip_by_global_norm", grads))
    if total <= limit:
        return grads
    scale = limit / total
    return _map(lambda g: _scaled(g, scale), grads)


def clip_by_norm(grads: Any, max_norm: float) -> Any:
    """Return gradients of which each is scaled so that its own norm is at most `max_norm`.

    Args:
        grads: a tensor or an array, a list or another tree of them, or the map that a backward returned.
        max_norm: the largest norm allowed.

    Returns:
        What was given, clipped; a None stays None.

    Example:
        >>> nt.gradient_clipping.clip_by_norm([nt.tensor([3.0, 4.0]), nt.tensor([0.5])], 1.0)
        [tensor([0.6, 0.8]), tensor([0.5])]
    """
    limit = _limit("clip_by_norm", "max_norm", max_norm)
    _leaves("clip_by_norm", grads)

    def clipped(g: Any) -> Any:
        total = _norm_on_tape("clip_by_norm", [g])
        return g if total <= limit else _scaled(g, limit / total)

    return _map(clipped, grads)


def _scaled(gradient: Any, scale: Any) -> Any:
    """Return a gradient times a number, which may be on the tape and wider, in its own dtype if that is of floats."""
    scaled = ops.mul(gradient, scale)
    dtype = getattr(gradient, "dtype", scaled.dtype)
    return ops.cast(scaled, dtype) if dtype != scaled.dtype and is_float(dtype) else scaled


def clip_by_value(grads: Any, clip_value: float | tuple[float, float]) -> Any:
    """Return gradients with each element limited.

    Args:
        grads: a tensor or an array, a list or another tree of them, or the map that a backward returned.
        clip_value: the largest absolute value, or the least and the largest value.

    Returns:
        What was given, clipped; a None stays None.

    Example:
        >>> nt.gradient_clipping.clip_by_value([nt.tensor([3.0, -4.0])], 1.0)
        [tensor([ 1., -1.])]
        >>> nt.gradient_clipping.clip_by_value(np.array([3.0, -4.0]), (-2.0, 1.0))
        array([ 1., -2.])
    """
    if isinstance(clip_value, tuple | list):
        check_untracked("clip_by_value", "clip_value", clip_value)
        if len(clip_value) != 2 or not clip_value[0] <= clip_value[1]:
            raise ArgumentError(f"clip_by_value: clip_value is {clip_value!r}; a range is the least and the largest.")
        low, high = map(float, clip_value)
    else:
        high = _limit("clip_by_value", "clip_value", clip_value)
        low = -high
    _leaves("clip_by_value", grads)
    return _map(lambda g: ops.minimum(ops.maximum(g, low), high), grads)


def _limit(title: str, name: str, value: Any) -> float:
    try:
        check_untracked(title, name, value)
        limit = float(value.array if isinstance(value, Value) else value)
    except (TypeError, ValueError) as error:
        raise OperandError(f"{title}: {name} is of type {type(value).__name__}; it must be a number.") from error
    if not limit >= 0:
        raise ArgumentError(f"{title}: {name} is {limit:g}; it must be a number from 0 on.")
    return limit


def tensors_in(title: str, params: Any) -> list[Tensor]:
    """Return the tensors of a model, of an iterable or of another tree."""
    if callable(getattr(params, "parameters", None)):
        params = params.parameters()
    if isinstance(params, Iterable) and tree.is_leaf(params) and not isinstance(params, Value):
        params = list(params)
    found = tree.leaves(params)
    for each in found:
        if not isinstance(each, Tensor):
            raise OperandError(f"{title}: a parameter is of type {type(each).__name__}; parameters are tensors.")
    return found


def _gradients(title: str, params: Any) -> list[Tensor]:
    if params is None:
        raise OperandError(f"{title}: params is None; give tensors or a model.")
    return [param.grad for param in tensors_in(title, params) if param.grad is not None]


def _norm(title: str, arrays: list[NDArray], order: float) -> float:
    """Return the norm of all elements together, in double precision where it matters."""
    if order == math.inf:
        # NumPy's maximum of one NaN is NaN; Python's depends on the order.
        return float(np.max([np.max(np.abs(each), initial=0.0) for each in arrays], initial=0.0))
    if not order > 0:
        raise ArgumentError(f"{title}: norm_type is {order!r}; it must be a number above 0, or inf.")
    with np.errstate(all="ignore"):
        total = float(sum(_power_sum(each, order) for each in arrays) ** (1.0 / order))
        if total == 0.0 or total == math.inf:  # Powers of doubles may overflow, or vanish, where the elements do not.
            largest = _norm(title, arrays, math.inf)
            if 0.0 < largest < math.inf:
                return largest * _norm(title, [each.astype(np.float64) / largest for each in arrays], order)
        return total


def _norm_on_tape(title: str, grads: list[Any]) -> Any:
    """Return the norm of all elements together: on the tape if any of them is, so that clipping is differentiable."""
    if current().grad and any(isinstance(g, Value) and is_tracked(g) for g in grads):
        wide = [ops.cast(g, widened(g.dtype)) if isinstance(g, Value) else np.asarray(g, np.float64) for g in grads]
        return ops.vector_norm(ops.stack(list(map(ops.vector_norm, wide))))
    return _norm(title, [g.array if isinstance(g, Value) else np.asarray(g) for g in grads], 2.0)


def _power_sum(array: NDArray, order: float) -> float:
    flat = array.reshape(-1).astype(widened(array.dtype), copy=False)
    if order == 2.0:
        total = float(np.dot(flat, flat))
        if math.isfinite(total) and total > 1e-30:
            return total
    # Squares of float32 may overflow, or vanish, where those of double do not.
    return float(np.sum(np.abs(flat.astype(np.float64)) ** order))


def _leaves(title: str, grads: Any) -> list[Any]:
    found = [grads[t] for t in grads] if isinstance(grads, Gradients) else tree.leaves(grads)
    for each in found:
        if not isinstance(each, Value | np.ndarray | np.generic | float | int):
            raise OperandError(
                f"{title}: a gradient is of type {type(each).__name__}; it must be a tensor or an array."
            )
    return found


def _map(function: Any, grads: Any) -> Any:
    def marked(gradient: Any) -> Any:
        clipped = function(gradient)
        if isinstance(clipped, Value):
            marks.put(clipped, marks.of(gradient))
        return clipped

    if isinstance(grads, Gradients):
        tensors = grads.tensors()
        return Gradients(tensors, [marked(grads[t]) for t in tensors], set(grads.delivered))
    return tree.map(marked, grads)
