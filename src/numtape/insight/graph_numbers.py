"""Numbers about the values and gradients of a graph: from a profile, or from the values that it still keeps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.cells import FREED
from ..core.recompute import is_at_hand
from ..core.record import Record
from ..core.reverse import Cotangents, accumulate
from ..core.scopes import aside
from ..core.stepping import backward_steps
from ..core.value import Value
from ..dtypes import HALF_DTYPES, is_float
from ..errors import OperandError
from .graph import Numbers, Profile


class Measured:
    """Numbers of records and of what they begin with."""

    def __init__(self) -> None:
        self._records: dict[Record, Numbers] = {}
        self._norms: dict[int, float] = {}
        self.target: Record | None = None
        self.notes: tuple[str, ...] = ()

    def of_record(self, record: Record) -> Numbers:
        """Return the numbers of a record; there may be none."""
        return self._records.get(record, {})

    def of_source(self, link: Any) -> Numbers:
        """Return the numbers of a source: the norm of its gradient from the sweep, or else from ``.grad``."""
        norm = self._norms.get(id(link))
        if norm is None and isinstance(link, Value) and link.extras is not None and link.extras.grad is not None:
            norm = norm_of(link.extras.grad.array)
        return {} if norm is None else {"grad_norm": norm}

    def add(self, record: Record, numbers: Numbers) -> None:
        """Note numbers of a record."""
        self._records.setdefault(record, {}).update(numbers)

    def add_norms(self, target: Record, cotangents: dict[Any, Any]) -> None:
        """Note the norms of the gradients of a target by leaves."""
        self.target = target
        self._norms = {id(link): norm_of(cotangent) for link, cotangent in cotangents.items()}


def measure(records: Sequence[Record], profile: Profile | None, values: bool, target: Record | None) -> Measured:
    """Return what is known about records, oldest first: a profile's numbers, or those of the values that are kept."""
    measured = Measured()
    if profile is not None:
        for record in records:
            measured.add(record, _checked(record.index, profile.get(record.index, {})))
    elif values:
        for record in records:
            if is_at_hand(record) and type(record.array) is not tuple:
                measured.add(record, statistics(record.array))
        _add_gradients(measured, records, target)
    return measured


def _checked(index: int, given: Any) -> Numbers:
    """Return a record's numbers of a profile, which may be one that somebody made."""
    try:
        return {str(name): float(number) for name, number in given.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise OperandError(
            f"profile: for the record of index {index} it has {given!r}; it must be a dict of numbers by their names."
        ) from error


def statistics(array: NDArray) -> Numbers:
    """Return mean, standard deviation and bounds of the finite elements, and how many elements are not finite."""
    if array.dtype in HALF_DTYPES:
        array = array.astype(np.float32)
    numbers: Numbers = {}
    finite = np.isfinite(array)
    if not finite.all():
        nans = int(np.isnan(array).sum())
        numbers = {"nans": float(nans), "infs": float(array.size - int(finite.sum()) - nans)}
        array = array[finite]
    if array.size:
        mean, std = array.mean(dtype=np.float64), array.std(dtype=np.float64)
        numbers |= {"mean": float(mean), "std": float(std), "min": float(array.min()), "max": float(array.max())}
    return numbers


def norm_of(array: Any) -> float:
    """Return the Euclidean norm, added up in float64."""
    flat = np.asarray(array, np.float64).ravel()
    return float(np.sqrt(flat @ flat))


def _add_gradients(measured: Measured, records: Sequence[Record], target: Record | None) -> None:
    """Add the norms of the target's gradients, by a sweep that changes nothing; say why if there can be none."""
    if target is None:
        target = next((record for record in reversed(records) if _is_target(record)), None)
    if target is None:
        return
    why = _why_no_sweep(records)
    if not why:
        try:
            cotangents = _sweep(measured, records, target)
        except Exception as error:  # A rule may be a user's. The picture is worth having without the norms.
            why = f"{type(error).__name__}: {error}"
        else:
            measured.add_norms(target, cotangents)
    if why:
        measured.notes = (f"No gradient norms: {why}",)


def _is_target(record: Record) -> bool:
    return not isinstance(record.shape, list) and is_float(record.dtype) and record.needs != 0


def _why_no_sweep(records: Sequence[Record]) -> str:
    if any(record.cell is FREED for record in records):
        return (
            "a backward has freed the arrays of this graph. Draw it before backward, call backward with "
            f"retain_graph=True, or {_BY_PROFILE}."
        )
    if any(_has_hooks(record.notes) or any(map(_leaf_has_hooks, record.inputs)) for record in records):
        return f"the graph has hooks, and a picture does not call them; {_BY_PROFILE}."
    return ""


#: How to draw the numbers of a real step.
_BY_PROFILE = "run it under `with nt.profile(values=True) as p` and draw it with profile=p"


def _has_hooks(notes: Any) -> bool:
    return notes is not None and notes.hooks is not None


def _leaf_has_hooks(link: Any) -> bool:
    return isinstance(link, Value) and _has_hooks(link.extras)


def _sweep(measured: Measured, records: Sequence[Record], target: Record) -> Cotangents:
    inside = set(records)
    totals: Cotangents = {}
    with aside(observers=()):
        for record, g, passed in backward_steps(target, np.ones(target.shape, target.dtype)):
            if record in inside and type(g) is not list:
                measured.add(record, {"grad_norm": norm_of(g)})
            for link, cotangent in zip(record.inputs, passed, strict=True):
                if isinstance(link, Value) and cotangent is not None:
                    accumulate(totals, link, cotangent)
    return totals
