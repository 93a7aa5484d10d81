"""Add up the gradients of several small batches, so that they equal those of one large batch."""

from typing import Any

import numpy as np

from . import tree
from ._typing import Dtype, NDArray
from .core.delivery import deliver
from .core.gradients import is_leaf, note_into_grad
from .core.marks import marks, sum_of_scales
from .core.value import Value, wrap
from .counts import is_count
from .dtypes import float32, widened
from .errors import ArgumentError, OperandError, ShapeError
from .gradient_clipping import tensors_in
from .gradients import Gradients, ScaledGradients
from .tensors import Tensor


def accumulate_gradients(grads: Any, params: Any = None) -> None:
    """Add each gradient to the ``.grad`` of its tensor, exactly once.

    The map that ``tape.backward`` returned knows what backward has already added: calling this with it, even twice,
    counts nothing twice.

    Args:
        grads: the map of a backward; or a sequence as ``tape.gradient`` returns it, which is added in full.
        params: the tensors that a sequence of gradients belongs to, in its order; for a map, those to look at.

    Example:
        >>> w = nt.tensor([1.0, 2.0])
        >>> tape = nt.GradientTape()
        >>> w = tape.watch(w)
        >>> nt.accumulation.accumulate_gradients([tape.gradient((w * w).sum(), w)], [w])
        >>> w.grad
        tensor([2., 4.])
    """
    title = "accumulate_gradients"
    if isinstance(grads, Gradients):
        for tensor in grads.tensors() if params is None else tensors_in(title, params):
            gradient = grads.get(tensor)
            if gradient is not None and is_leaf(tensor) and not tensor.is_frozen and tensor.id not in grads.delivered:
                _add(tensor, gradient, gradient)
                grads.delivered.add(tensor.id)
        return
    if params is None:
        raise OperandError(
            f"{title}: a sequence of gradients does not know its tensors; give them as params, in the same order."
        )
    tensors = tensors_in(title, params)
    parts = _parts(grads)
    if len(parts) != len(tensors):
        raise ShapeError(f"{title}: there are {len(tensors)} tensors and {len(parts)} gradients; give one for each.")
    found = {tensors[place]: (array, parts[place]) for place, array in _by_key(title, grads).items()}
    for tensor, (array, _) in found.items():
        if array.shape != tensor.shape:
            raise ShapeError(
                f"{title}: a tensor has shape {tensor.shape} and its gradient {array.shape}; they must be equal."
            )
    for tensor, (array, part) in found.items():
        _add(tensor, array, part)


def _add(tensor: Value, array: Any, gradient: Any) -> None:
    """Add an array to the ``.grad`` of a tensor; the gradient that it is taken from tells the scale."""
    note_into_grad(gradient)
    scale = marks.of(gradient)
    coming = marks.coming([tensor], {id(tensor): scale})
    # That of a half tensor is float32 if it was unscaled.
    deliver(tensor, array, is_unscaled=isinstance(gradient, Value) and gradient.dtype == float32)
    marks.arrive(coming)


class GradientAccumulator:
    """Adds up gradients over micro-batches, and gives their mean as if they had been one batch.

    Args:
        steps: the number of micro-batches that make a batch.
        average: take the mean; otherwise the sum, for losses that were divided by `steps` or are sums themselves.

    Example:
        >>> w = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = nt.optim.SGD([w], lr=0.1)
        >>> accumulator = nt.accumulation.GradientAccumulator(steps=2)
        >>> for x in (nt.tensor([1.0, 0.0]), nt.tensor([0.0, 3.0])):
        ...     tape = nt.GradientTape()
        ...     if accumulator.add([tape.gradient((w * x).sum(), w)]):
        ...         optimizer.step(accumulator.take())
        >>> w
        tensor([0.95, 1.85], requires_grad=True)
    """

    def __init__(self, steps: int, average: bool = True) -> None:
        if not is_count(steps):
            raise ArgumentError(f"GradientAccumulator: steps is {steps!r}; it must be an integer above 0.")
        self.steps = int(steps)
        self.average = average
        self.reset()

    def reset(self) -> None:
        """Forget what was added."""
        self._form: Any = None
        #: By tensor for a map, by position otherwise.
        self._totals: dict[Any, NDArray] = {}
        #: The dtypes in which gradients came.
        self._dtypes: dict[Any, Dtype] = {}
        self._scales: dict[Any, float | None] = {}
        self._weight = 0.0
        self._overflow = False
        #: How many overflows of tapes there had been when a micro-batch was added last.
        self._overflows_before = marks.overflows
        #: The running statistics that moved on the way to what was added, to put them back if the step is skipped.
        self._statistics: list[Any] = []
        self.count = 0

    @property
    def is_ready(self) -> bool:
        """Whether a whole batch was added."""
        return self.count >= self.steps

    def add(self, grads: Any, weight: float = 1.0) -> bool:
        """Add the gradients of a micro-batch.

        Args:
            grads: the map of a backward, or a sequence or another tree of tensors and arrays; always of one form. A
                gradient that is None, or missing in a map, counts as zero; but if it is so because gradients
                overflowed on a tape that scales, what is taken says `overflow`.
            weight: how much the micro-batch counts in the mean, if they are of different sizes.

        Returns:
            Whether a whole batch was added.
        """
        title = "GradientAccumulator.add"
        if not weight > 0:
            raise ArgumentError(f"{title}: weight is {weight!r}; it must be a number above 0.")
        if self.is_ready:
            raise ArgumentError(f"{title}: {self.steps} micro-batches were added already; take() or reset() first.")
        found = _by_key(title, grads)
        if self.count:
            self._check(title, grads, found)
        gradients = grads if isinstance(grads, Gradients) else _parts(grads)
        if not self.count or len(found) == len(gradients):  # One that has all of them, if there is such.
            self._form = grads
        # A tape's None for a single source does not say why it is one; that there was an overflow since does.
        is_overflown = len(found) < len(gradients) and marks.overflows > self._overflows_before
        self._overflow = self._overflow or is_overflown or getattr(grads, "overflow", False) is True
        self._overflows_before = marks.overflows
        self._statistics.append(getattr(grads, "statistics", None))
        scale = weight if self.average else 1.0
        for key, array in found.items():
            scaled = np.multiply(array, scale, dtype=widened(array.dtype))
            mark = marks.of(gradients[key])
            self._scales[key] = sum_of_scales(self._scales[key], mark) if key in self._totals else mark
            self._totals[key] = self._totals[key] + scaled if key in self._totals else scaled
            self._dtypes[key] = np.result_type(self._dtypes.get(key, array.dtype), array.dtype)
        self._weight += weight
        self.count += 1
        return self.is_ready

    def _check(self, title: str, grads: Any, found: dict[Any, NDArray]) -> None:
        """Raise if gradients are not of the form and shapes of those before; nothing was added yet."""
        if isinstance(grads, Gradients) != isinstance(self._form, Gradients) or (
            not isinstance(grads, Gradients) and len(_parts(grads)) != len(_parts(self._form))
        ):
            raise ArgumentError(f"{title}: the gradients are of another form than those before; reset() to start anew.")
        for key, array in found.items():
            if key in self._totals and array.shape != self._totals[key].shape:
                raise ShapeError(
                    f"{title}: a gradient has shape {array.shape}, and those before {self._totals[key].shape}."
                )

    def take(self) -> Any:
        """Return the mean or sum of what was added, in the form in which it was given, and start anew.

        It may be taken early, after the last micro-batches of an epoch. If a micro-batch overflowed there are no
        gradients, `overflow` says so, and a step with it does nothing; running statistics that moved on the way to the
        maps or lists that were added go back.
        """
        if not self.count:
            raise ArgumentError("GradientAccumulator.take: nothing was added.")
        scale = 1.0 / self._weight if self.average else 1.0
        means = {key: np.multiply(total, scale, dtype=total.dtype) for key, total in self._totals.items()}
        form, overflow, scales, dtypes = self._form, self._overflow, self._scales, self._dtypes
        if overflow:
            means = {}
            for statistics in reversed(self._statistics):  # What they held first is what they hold in the end.
                if statistics is not None:
                    statistics.put_back()
        self.reset()
        if isinstance(form, Gradients):
            tensors = list(means)
            made = [wrap(Tensor, means[t].astype(dtypes[t], copy=False)) for t in tensors]
            for tensor, gradient in zip(tensors, made, strict=True):
                marks.put(gradient, scales[tensor])
            return Gradients(tensors, made, set(), overflow=overflow)
        parts = _parts(form)
        made = [_like(part, means.get(place)) for place, part in enumerate(parts)]
        for place, gradient in enumerate(made):
            if isinstance(gradient, Value):
                marks.put(gradient, scales[place])
        if overflow or isinstance(form, ScaledGradients):
            return ScaledGradients(made, overflow)
        if type(form) in (list, tuple):
            return type(form)(made)
        return tree.unflatten(form, [each for each, part in zip(made, parts, strict=True) if part is not None])


def _parts(grads: Any) -> list[Any]:
    """Return the gradients of a sequence or tree; a None holds its place."""
    return tree.leaves(grads, keeps_none=True)


def _by_key(title: str, grads: Any) -> dict[Any, NDArray]:
    """Return the arrays of gradients, by tensor or by position."""
    if isinstance(grads, Gradients):
        pairs: Any = [(tensor, grads[tensor]) for tensor in grads.tensors()]
    else:
        pairs = enumerate(_parts(grads))
    found = {}
    for key, gradient in pairs:
        if gradient is None:
            continue
        if not isinstance(gradient, Value | np.ndarray | np.generic | float | int):
            raise OperandError(
                f"{title}: a gradient is of type {type(gradient).__name__}; it must be a tensor or an array."
            )
        found[key] = gradient.array if isinstance(gradient, Value) else np.asarray(gradient)
    return found


def _like(part: Any, mean: NDArray | None) -> Any:
    """Return a mean as what the first micro-batch gave in its place: a tensor or an array, of its dtype."""
    if mean is None:
        return None
    if isinstance(part, Value):
        return wrap(part.plain, mean.astype(part.dtype, copy=False))
    return wrap(Tensor, mean) if part is None else mean
