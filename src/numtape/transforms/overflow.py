"""Find the first op whose result, or whose backward, is not finite, among the records behind a loss; warn of it."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.apply import PICK
from ..core.context import entered
from ..core.graph import collect
from ..core.op import Op
from ..core.reader import Reader, for_rule
from ..core.recompute import Made, is_at_hand, run_again
from ..core.record import Gone, Link, Record, link_name, warn_user
from ..core.reverse import Cotangents, accumulate, fit, pull
from ..core.value import Value, array_of
from ..dtypes import FLOAT_DTYPES, HALF_DTYPES
from ..errors import NumtapeError
from ..ops.casting import CAST


def is_finite(array: Any) -> bool:
    """Say whether all elements of a float array are finite; other arrays are."""
    return array.dtype not in FLOAT_DTYPES or bool(np.isfinite(array).all())


def first_overflow(target: Record | Value | None, sources: Sequence[Link], scale: float) -> str:
    """Return sentences that name the op where numbers first left their range, or whose gradient did, and what may help.

    Args:
        target: the record that made the loss, or a loss that none has made; None if there is no loss.
        sources: parameters, and records whose gradients were asked for, whose gradients are not finite.
        scale: what the loss was multiplied by.
    """
    records = collect([target])[::-1] if type(target) is Record else []
    made: Made = {}
    with np.errstate(all="ignore"):
        born, is_sure = _first_not_finite(records, made)
    if born is not None:
        op = _op_of(born, records)
        which = "The first op" if is_sure else "An op"
        did, advice = _what_happened(born, made[born], _advice(born, op))
        return f"{which} that {did} is {op.name}, in {born.dtype}, at {born.site}. {advice}"
    if not records or not is_sure:
        return _FOR_ANY
    try:
        origins = _backward_origins(records, made, scale)
    except NumtapeError:  # What a rule reads was freed, or overwritten since.
        return _FOR_ANY
    found = [origins[source] for source in sources if source in origins]
    if found:
        first = max(found, key=lambda record: record.index)
        op = _op_of(first, records)
        shown = f"{op.name}, at {first.site}. {_advice(first, op)}"
        return f"What overflowed first is the gradient in the backward of {shown}"
    hook = _hook_on_the_way(records, sources)
    if hook is not None:
        return f"No op overflowed, forward or backward, but gradients pass {hook}: see what it returns."
    for source in sources:
        # It was finite until it was rounded to the dtype of its parameter.
        reader = _reader(source, records) if isinstance(source, Value) and source.dtype in HALF_DTYPES else None
        if reader is not None:
            shown = f"{link_name(source)}, in {source.dtype}, by {reader}"
            return f"What overflowed first is the gradient of {shown}. {_FOR_ANY}"
    return _FOR_ANY


#: What may help against overflows: of an op that runs in a half dtype, of any, and where numbers are given as they are.
_FOR_HALF = "A smaller learning rate, or keep_fp32_ops for that op, may help."
_FOR_ANY = "A smaller learning rate may help."
_FOR_DATA = "See what it is given."


def _op_of(record: Record, records: Sequence[Record]) -> Op:
    """Return the op of a record; for a cast that autocast has made, the op that it was made for."""
    if record.op is CAST:
        for reader in records:
            is_one_call = (reader.code, reader.lasti) == (record.code, record.lasti)
            if is_one_call and any(link is record for link in reader.inputs):
                return reader.op
    return record.op


def _advice(record: Record, op: Op) -> str:
    """Return what may help against the overflow of a record, whose op is said to be another if it is a cast."""
    dtypes = record.dtype if isinstance(record.dtype, list) else [record.dtype]
    return _FOR_HALF if op is not CAST and not HALF_DTYPES.isdisjoint(dtypes) else _FOR_ANY


def _what_happened(record: Record, out: Any, advice: str) -> tuple[str, str]:
    """Return what the first op whose result is not finite did, and what may help; some advice is for overflows."""
    given = [array_of(link.operand if type(link) is Gone else link) for link in record.inputs]
    arrays = [np.asarray(x) for x in given if isinstance(x, np.ndarray | float) and not is_finite(np.asarray(x))]
    # A half operand that is infinite may have been rounded to that.
    if any(np.isnan(array).any() or array.dtype not in HALF_DTYPES for array in arrays):
        return "was given numbers that are not finite", _FOR_DATA
    if not arrays and not any(np.isinf(part).any() for part in (out if type(out) is tuple else (out,))):
        return "gave NaN", _FOR_ANY
    return "overflowed", advice


def _hook_on_the_way(records: Sequence[Record], sources: Sequence[Link]) -> str | None:
    """Return the name and the place of a hook that sees gradients on their way to sources; None without any."""
    hooks = [record.notes.hooks[0] for record in reversed(records) if record.notes is not None and record.notes.hooks]
    hooks += [s.extras.hooks for s in sources if isinstance(s, Value) and s.extras is not None and s.extras.hooks]
    for hook in (hook for each in hooks for hook in each.values()):
        code = getattr(inspect.unwrap(hook), "__code__", None)
        place = "" if code is None else f" of {code.co_filename}:{code.co_firstlineno}"
        return f"the hook {getattr(hook, '__name__', type(hook).__name__)}{place}"
    return None


def warn_of_skipped(skipped: int, scale: float, sentences: str) -> None:
    """Warn of a run of skipped steps, at the user's line."""
    warn_user(
        f"LossScaler: {skipped} steps in a row were skipped, since gradients were not finite; the scale is {scale:g} "
        f"now. {sentences}",
        RuntimeWarning,
    )


def _first_not_finite(records: Sequence[Record], made: Made) -> tuple[Record | None, bool]:
    """Return the oldest record that made something that is not finite, if any, and whether all older values are known.

    Those that were freed cannot be made again if an operand was overwritten since, as by an optimizer's step. All that
    are known are put into `made`.
    """
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


class _MadeReader(Reader):
    """Reads for rules also what a backward has freed, from values that were made again."""

    __slots__ = ("_made",)

    def __init__(self, records: Sequence[Record], made: Made) -> None:
        super().__init__(None, records)
        self._made = made

    def operand(self, record: Record, position: int) -> Any:
        """Return the value of an input, as rules want it."""
        link = record.inputs[position]
        if type(link) is Gone and link.operand is not None:
            return for_rule(record, array_of(link.operand), position)
        return super().operand(record, position)

    def _missing(self, reader: Record, maker: Record) -> Any:
        return self._made[maker]


def _backward_origins(records: Sequence[Record], made: Made, scale: float) -> dict[Link, Record]:
    """Return the record whose rule began it, for each link whose cotangent is not finite.

    The sweep is that of a scaled loss over records, oldest first, which delivers and frees nothing.
    """
    origins: dict[Link, Record] = {}
    reader = _MadeReader(records[::-1], made)
    with entered(scopes=(), observers=()), np.errstate(all="ignore"), reader:
        target = records[-1]
        cotangents: Cotangents = {target: fit(np.full(target.shape, scale, np.float32), target)}
        for record in reversed(records):
            g = cotangents.pop(record, None)
            if g is None:
                continue
            for link, cotangent in zip(record.inputs, pull(record, g, reader), strict=True):
                if cotangent is None:
                    continue
                accumulate(cotangents, link, cotangent)
                parts = cotangents[link] if type(cotangents[link]) is list else [cotangents[link]]
                if link not in origins and not all(part is None or is_finite(part) for part in parts):
                    origins[link] = origins.get(record, record)
    return origins


def _reader(parameter: Value, records: Sequence[Record]) -> str | None:
    """Return the first op that read a parameter, and its line; a cast is not what anybody wrote."""
    read: set[Any] = {parameter}
    for record in records:
        if any(link in read for link in record.inputs if isinstance(link, Record | Value)):
            if record.op is not CAST:
                return f"{record.op.name} at {record.site}"
            read.add(record)
    return None
