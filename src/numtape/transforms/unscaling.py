"""What loss scaling does to single gradients, and what it asks about optimizers and parameters."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import tree
from ..core.effects import Update
from ..core.marks import PLAIN, UNSCALED, marks
from ..core.record import Record, next_index, note
from ..core.value import Value, wrap
from ..core.write import mark_written
from ..dtypes import HALF_DTYPES
from ..errors import GradientError, OperandError
from ..kernels.halves import to_float32
from .overflow import is_finite


class Step:
    """What happened to one optimizer since the last update."""

    __slots__ = ("has_stepped", "optimizer", "overflow")

    def __init__(self, optimizer: Any, overflow: bool) -> None:
        self.optimizer = optimizer
        self.overflow = overflow
        self.has_stepped = False


def unscale_gradient(parameter: Value, factor: float) -> bool:
    """Multiply the gradient of a parameter by a factor, that of a half one in float32; say whether it is finite."""
    assert parameter.extras is not None
    gradient = parameter.extras.grad
    array = gradient.array
    with np.errstate(all="ignore"):
        if array.dtype in HALF_DTYPES or not array.flags.writeable:
            wide = to_float32(array) if array.dtype in HALF_DTYPES else array
            parameter.extras.grad = wrap(parameter.plain, wide * factor)
        elif factor != 1.0:
            np.multiply(array, factor, out=array)
            mark_written(gradient, None)
    # Only now: to divide by a scale below 1 may overflow, too.
    return is_finite(parameter.extras.grad.array)


def parameters_of(title: str, optimizer: Any) -> list[Any]:
    """Return the parameters of an optimizer."""
    groups = getattr(optimizer, "param_groups", None)
    if groups is None or not callable(getattr(optimizer, "step", None)):
        raise OperandError(f"{title}: wants an optimizer, not {type(optimizer).__name__}.")
    found = [parameter for group in groups for parameter in group["params"]]
    if not found:
        raise OperandError(
            f"{title}: this {type(optimizer).__name__} has no parameters of its own, whose gradients could be "
            "unscaled; make it with model.parameters()."
        )
    return found


class Statistics:
    """The running statistics that changed on the way to losses, to put them back where a step is skipped."""

    def __init__(self) -> None:
        #: By its holder's id, its name and the parameters behind a loss: the first update, and the record that made it.
        #: Losses of the same parameters share an entry, so that micro-batches add nothing.
        self._found: dict[tuple[int, str | None, frozenset[int]], tuple[Update, int]] = {}
        #: By holder and name, the indices between which updates were undone.
        self._undone: dict[tuple[int, str | None], list[range]] = {}

    def add(self, records: Sequence[Record], parameters: Iterable[int]) -> None:
        """Note what records behind a loss have changed; the ids of the parameters behind it say whose step it is."""
        behind = frozenset(parameters)
        for record in records:
            for update in record.notes.updates if record.notes is not None else ():
                holder = update.holder()
                if holder is None:
                    continue
                key = (id(holder), update.name, behind)
                first, index = self._found.get(key, (update, record.index))
                if first.holder() is not holder or record.index < index:
                    first, index = update, record.index
                self._found[key] = (first, index)

    def put_back(self, parameters: Iterable[int] | None = None) -> None:
        """Give the statistics behind losses of some of these parameters, or all, what they held before these losses.

        That is done once: what moves them afterwards stays.
        """
        chosen = None if parameters is None else set(parameters)
        keys = [key for key in self._found if chosen is None or not chosen.isdisjoint(key[-1])]
        # What a statistic held first is what it holds in the end.
        for key in sorted(keys, key=lambda key: self._found[key][1]):
            update, index = self._found.pop(key)
            undone = self._undone.setdefault(key[:2], [])
            if not any(index in each for each in undone):
                update.put_back()
                undone.append(range(index, next_index()))


def mark_scaled(loss: Value, scale: float) -> Value:
    """Note at the record of a loss by what it was scaled, and return the loss: nobody may scale it once more.

    What was not recorded may be a cotangent to start from, and is marked itself.
    """
    if type(loss.node) is Record:
        note(loss.node).scale = scale
    else:
        marks.put(loss, scale)
    return loss


def check_not_scaled(title: str, records: Iterable[Record], advice: str) -> None:
    """Raise if one of the records behind a loss is of a loss that a scaler has returned."""
    if any(record.notes is not None and record.notes.scale is not None for record in records):
        raise GradientError(f"{title}: the loss was scaled before, by scaler.scale(loss); {advice}.")


def mark_unscaled(parameters: Iterable[Value]) -> None:
    """Note that the gradients of parameters are unscaled."""
    for gradient in map(gradient_of, parameters):
        if gradient is not None:
            marks.put(gradient, UNSCALED)


def scale_of(title: str, parameter: Value, scale: float) -> float:
    """Return by what the gradient of a parameter is scaled: as is known, or else by a scale that is given.

    That of a loss that was not scaled counts as scaled, as in PyTorch: it may be made of scaled gradients. Raise if it
    is the sum of gradients of different scales.
    """
    known = marks.of(gradient_of(parameter))
    if known is None or known == PLAIN:
        return scale
    if known == known:  # It is not MIXED, which is NaN.
        return known
    raise GradientError(
        f"{title}: the gradient of {name_of(parameter)} is the sum of gradients of different scales: of an earlier "
        "step, of an unscaled loss, or of one from before the scale changed. Call optimizer.zero_grad() before "
        "backward(), scale all losses or none, and call update() only when all optimizers have stepped."
    )


def check_not_late(title: str, parameters: Iterable[Value]) -> None:
    """Raise if one of the parameters of an optimizer whose gradients were unscaled has a scaled one."""
    for parameter in parameters:
        if marks.is_scaled(gradient_of(parameter)):
            raise GradientError(
                f"{title}: the gradient of {name_of(parameter)} is scaled, though those of this optimizer were "
                "unscaled: a backward() or add_param_group() came after that. Call unscale(optimizer) last."
            )


def check_given(title: str, given: Iterable[Any]) -> None:
    """Raise if a map or a tree of gradients that a scaler's step is given has one that is scaled."""
    for each in given:
        held = [each.get(tensor) for tensor in each.tensors()] if hasattr(each, "delivered") else tree.leaves(each)
        if any(map(marks.is_scaled, held)):
            raise GradientError(
                f"{title}: the gradients given are those of a scaled loss, and a scaler unscales the .grad of the "
                "optimizer's parameters; call scaler.step(optimizer) alone, after backward() or "
                "nt.accumulate_gradients(grads, params) has put them there."
            )


def check_step(title: str, pairs: Iterable[tuple[Value, Any]]) -> None:
    """Raise if one of the gradients that parameters are to be updated by is that of a scaled loss."""
    for parameter, gradient in pairs if marks.is_in_use else ():
        if marks.is_scaled(gradient):
            raise GradientError(
                f"{title}: the gradient of {name_of(parameter)} is that of a scaled loss, and was never unscaled; call "
                "scaler.step(optimizer) instead of optimizer.step()."
            )


def gradient_of(parameter: Value) -> Value | None:
    """Return the gradient of a parameter; None if it has none."""
    return parameter.extras.grad if parameter.extras is not None else None


def name_of(parameter: Value) -> str:
    """Return what errors call a parameter."""
    return f"parameter {parameter.name!r}" if parameter.name else f"a parameter of shape {parameter.shape}"
