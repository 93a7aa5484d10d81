"""Find the first op whose result is not finite, from the records behind a loss, and warn of it."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.apply import PICK
from ..core.recompute import Made, is_at_hand, run_again
from ..core.record import Record, call_site
from ..core.reverse import collect
from ..core.value import Value
from ..dtypes import FLOAT_DTYPES
from ..errors import NumtapeError
from ..ops.casting import CAST


def is_finite(array: Any) -> bool:
    """Say whether all elements of a float array are finite; other arrays are."""
    return array.dtype not in FLOAT_DTYPES or bool(np.isfinite(array).all())


def first_overflow(target: Record | Value | None, parameters: Sequence[Value]) -> str:
    """Return a sentence that names the op where numbers first left their range, or whose gradient did; "" if none can.

    Args:
        target: the record that made the loss, or a loss that none has made; None if there is no loss.
        parameters: those whose gradients are not finite.
    """
    if target is None:
        return ""
    records = collect([target])[::-1]
    with np.errstate(all="ignore"):
        born, is_sure = _first_not_finite(records)
    if born is not None:
        which = "The first op" if is_sure else "An op"
        return f" {which} that overflowed is {born.op.name}, in {born.dtype}, at {born.site}."
    if not is_sure:
        return ""
    for parameter in parameters:
        reader = _reader(parameter, records)
        if reader is not None:
            name = (parameter.extras.name if parameter.extras is not None else None) or f"tensor{list(parameter.shape)}"
            return f" What overflowed first is the gradient of {name}, in {parameter.dtype}, by {reader}."
    return ""


def warn_of_skipped(skipped: int, scale: float, sentence: str) -> None:
    """Warn of a run of skipped steps, at the user's line."""
    code, lasti = call_site(sys._getframe())
    line = next((n for start, stop, n in code.co_lines() if start <= lasti < stop and n), code.co_firstlineno)
    text = (
        f"LossScaler: {skipped} steps in a row were skipped, since gradients were not finite; the scale is {scale:g} "
        f"now.{sentence} A smaller learning rate, or keep_fp32_ops for that op, may help."
    )
    warnings.warn_explicit(text, RuntimeWarning, code.co_filename, line)


def _first_not_finite(records: Sequence[Record]) -> tuple[Record | None, bool]:
    """Return the oldest record that made something that is not finite, if any, and whether all older values are known.

    Those that were freed cannot be made again if an operand was overwritten since, as by an optimizer's step.
    """
    made: Made = {}
    is_sure = True
    for record in records:
        is_traced = all(link in made for link in record.inputs if type(link) is Record)
        try:
            if not is_traced and not is_at_hand(record):
                continue
            out = made[record] = record.array if is_at_hand(record) else run_again(record, made)
        except NumtapeError:  # Freed, or overwritten since.
            is_sure = False
            continue
        if record.op is not PICK and not all(map(is_finite, out if type(out) is tuple else (out,))):
            if is_traced:
                return record, is_sure
            # Where that came from is not known, and what follows from it says no more.
            return None, False
    return None, is_sure


def _reader(parameter: Value, records: Sequence[Record]) -> str | None:
    """Return the first op that read a parameter, and its line; a cast is not what anybody wrote."""
    read: set[Any] = {parameter}
    for record in records:
        if any(link in read for link in record.inputs if isinstance(link, Record | Value)):
            if record.op is not CAST:
                return f"{record.op.name} at {record.site}"
            read.add(record)
    return None
