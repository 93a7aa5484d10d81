"""Drop values, and make them again from the ops, parameters and links of their records. The only place that does so.

Invariants:
- An op computes what it computed before, bit for bit: its parameters hold its random draws, and what it reads is at
  hand or made again, and lies in memory as it did, since sums depend on that. What an op gives that does not promise
  this is kept. A value that was overwritten since is an error, never read. Plain arrays, and tensors in their memory,
  count no writes, so a fingerprint of each is kept with a record that may be dropped.
- Iterative, as every walk here.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from .._typing import NDArray
from ..dtypes import float32
from ..errors import FreedError, OverwrittenError
from ..kernels.views import laid_out
from .apply import PICK
from .buffers import buffer_of, shared_with_numpy
from .computing import compute, compute_wide
from .record import Block, Gone, Record, note
from .value import Value
from .write import check_stamp, stamp_at

Made = dict[Record, Any]

#: Up to how many bytes all of an array is looked at.
_WHOLE = 1 << 17
#: Parameters of these types hold no arrays.
_PLAIN = frozenset((int, float, bool, str, type(None), slice, type(...), np.dtype))
#: The bytes of a row: of a larger array one row in eight is.
_ROW = 8 * 1021


def value(record: Record) -> Any:
    """Return the output of a record, making it and what it needs again where it is not kept. Nothing else changes."""
    absent, made = missing([record])
    return remake(absent, {record}, made)[record]


def array_if_alive(record: Record) -> Any:
    """Return what a record has computed if it is kept, or was dropped and lives on; None otherwise."""
    array = record.array  # Read once: a sweep in another thread may put it back, or drop it, at any time.
    return array.find(record) if type(array) is Block else array


def is_at_hand(record: Record) -> bool:
    """Say whether a record's array is kept and still holds what the record computed."""
    return record.is_kept and is_unwritten(record)


def is_unwritten(record: Record) -> bool:
    """Say whether nobody has written to a record's output since it was made."""
    return record.version is None or record.version[0].count == record.version[1]


def missing(targets: Iterable[Record], own: Mapping[Record, Any] = MappingProxyType({})) -> tuple[list[Record], Made]:
    """Return the records to run again so that the targets are made, oldest first, and what they are made of.

    That is what a sweep has as its `own`, what is kept, and what was dropped and lives on. It is held from here on:
    what other sweeps have put back, they may drop before it is read.
    """
    absent: set[Record] = set()
    found: Made = {}
    stack = list(targets)
    while stack:
        record = stack.pop()
        if record in absent or record in found:
            continue
        array = own.get(record)
        if array is None:
            array = array_if_alive(record)
        if array is not None and is_unwritten(record):
            found[record] = array
        else:
            absent.add(record)
            stack.extend(link for link in record.inputs if type(link) is Record)
    return sorted(absent, key=lambda record: record.index), found


def remake(
    records: Sequence[Record],
    wanted: set[Record],
    made: Made,
    run: Callable[[Record, Made], Any] | None = None,
    show: Callable[[Record, Any], None] | None = None,
) -> Made:
    """Run records again, oldest first, and return the outputs of the wanted ones; others go after their last use.

    `made` has what is there already beside what records keep. `run` computes an output from these; None for
    `run_again`. `show` is called with each.
    """
    run = run_again if run is None else run
    uses: dict[Record, int] = {}
    for record in records:
        for link in record.inputs:
            if type(link) is Record:
                uses[link] = uses.get(link, 0) + 1
    for record in records:
        made[record] = run(record, made)
        if show is not None:
            show(record, made[record])
        for link in record.inputs:
            if type(link) is Record:
                uses[link] -= 1
        for done in (record, *record.inputs):
            if type(done) is Record and not uses.get(done) and done not in wanted:
                made.pop(done, None)
    return {record: array for record, array in made.items() if record in wanted}


def run_again(record: Record, made: Made) -> Any:
    """Compute the output of a record from its operands: those in `made`, and those at hand."""
    if not record.op.facts.deterministic:
        raise FreedError(
            f"{record.op.name} at {record.site}: its result is gone, and the op, which is declared with "
            "deterministic=False, may give another one."
        )
    arrays = [_operand(record, position, made) for position in range(len(record.inputs))]
    params = record.params or {}
    _check_params(record, _MADE_AGAIN)
    if record.op is PICK:
        return arrays[0][params["position"]]
    out = (compute_wide if _widens(record) else compute)(record.op, arrays, params)
    strides = None if record.notes is None else record.notes.strides
    return out if strides is None else laid_out(out, strides, record.dtype)


def _widens(record: Record) -> bool:
    """Say whether the op computed on half operands in float32: where they gave float32, it did."""
    dtype = record.dtype[0] if isinstance(record.dtype, list) else record.dtype
    return bool(dtype == float32)


def _operand(record: Record, position: int, made: Made) -> Any:
    link = record.inputs[position]
    if type(link) is Gone:
        link = link.operand
        if link is None:
            raise_freed(record)
    if type(link) is Record:
        array = made.get(link)
        if array is None and link.version is not None:
            check_stamp(record, position, link.version, link.version[1])
        link = link.array if array is None else array
    elif isinstance(link, Value):
        if link.version is not None:
            check_stamp(record, position, link.version, stamp_at(record, position))
        link = link.array
    prints = record.notes.prints if record.notes is not None else None
    if prints is not None and is_refilled(link, prints[position]):
        _raise_refilled(record, record.op.argument(position), _MADE_AGAIN)
    return link


def note_arrays(record: Record, operands: Sequence[Any]) -> None:
    """Remember what the plain arrays that a record has read hold, in case that it is run again."""
    arrays = list(map(uncounted, operands))
    if any(array is not None for array in arrays):
        note(record).prints = tuple(None if array is None else fingerprint(array) for array in arrays)
    prints = {name: _prints_in(value) for name, value in (record.params or {}).items() if type(value) not in _PLAIN}
    if any(prints.values()):
        note(record).param_prints = prints


def _prints_in(value: Any) -> list[Any]:
    """Return the fingerprints of the arrays in a parameter, which may be in lists, tuples and dicts."""
    if isinstance(value, np.ndarray):
        return list(map(_prints_in, value.flat)) if value.dtype.hasobject else [fingerprint(value)]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [each for part in value if type(part) not in _PLAIN for each in _prints_in(part)]


def uncounted(x: Any) -> NDArray | None:
    """Return the array that an op has read if others may write to it without a trace: NumPy's, or one in its memory.

    It is given as an operand, or as the link of a record; then there is none if that is not kept.
    """
    if isinstance(x, np.ndarray):
        return x
    array = getattr(x, "array", None)
    return array if type(array) is np.ndarray and array.base is not None and array in shared_with_numpy else None


#: What a plain array is read for.
_MADE_AGAIN = "its result at {site} was dropped and is computed again"
_DIFFERENTIATED = "its derivative at {site} is computed from what it has read"


def check_reads(record: Record) -> None:
    """Raise if a plain array that the rules of a record read was overwritten since the record read it."""
    prints = record.notes.prints if record.notes is not None else None
    if prints is not None:
        positions, _ = record.op.kept(record.needs)
        for position in range(len(prints)) if positions is None else positions:
            array = uncounted(record.inputs[position])
            if array is not None and is_refilled(array, prints[position]):
                _raise_refilled(record, record.op.argument(position), _DIFFERENTIATED)
    _check_params(record, _DIFFERENTIATED)


def _check_params(record: Record, use: str) -> None:
    """Raise if an array that is a parameter of a record was overwritten since; `use` says what it is read for now."""
    prints = record.notes.param_prints if record.notes is not None else None
    for name, before in (prints or {}).items():
        if _prints_in((record.params or {})[name]) != before:
            _raise_refilled(record, name, use)


def _raise_refilled(record: Record, name: str, use: str) -> NoReturn:
    """Raise since a plain array was overwritten after a record has read it."""
    raise OverwrittenError(
        f"{record.op.name}: {use.format(site=record.site)}, but the NumPy array given for {name!r} was overwritten "
        "since; give a copy of it (array.copy(), or nt.tensor instead of nt.from_numpy), or make a new array "
        "instead of writing to it."
    )


def is_refilled(array: Any, before: int | None) -> bool:
    """Say whether an array holds something else than when its fingerprint was taken, if one was."""
    return before is not None and fingerprint(array) != before


def fingerprint(array: Any) -> int:
    """Return a number that tells the contents of an array from others, at a small part of the cost of an op on it.

    Of a large array one row of bytes in eight is looked at: a refill shows, a write to a few elements may not.
    """
    array = np.asarray(array)
    if not array.flags.c_contiguous:
        # What is repeated is looked at once, also by windows that overlap.
        array = array[tuple(slice(None if step else 1) for step in array.strides)]
        buffer = buffer_of(array)
        if array.nbytes > buffer.nbytes and buffer.flags.forc:
            array = buffer.ravel(order="K")
        array = np.ascontiguousarray(array)
    flat = array.reshape(-1).view(np.uint8)
    if flat.size <= _WHOLE:
        return zlib.crc32(flat.data)
    rows = flat.size // _ROW
    seen = np.ascontiguousarray(flat[: rows * _ROW].reshape(rows, _ROW)[::8])
    return zlib.crc32(flat[rows * _ROW :].data, zlib.crc32(seen.data))


def drop(records: Iterable[Record], block: Block, lost: set[Record] | None = None) -> None:
    """Drop the arrays of records, oldest first, as far as they can be made again from what is left.

    `lost` has the records that cannot be made again, and gets more of them; None if there are no others.
    """
    lost = set() if lost is None else lost
    for record in records:
        is_readable = all(_is_readable(record, position, lost) for position in range(len(record.inputs)))
        if not is_readable or not record.op.facts.deterministic:
            if not is_at_hand(record):
                lost.add(record)
        elif record.is_kept:
            block.drop(record)


def _is_readable(record: Record, position: int, lost: set[Record]) -> bool:
    """Say whether an operand of a record is, or can be made, what it was when the record was made."""
    link = record.inputs[position]
    if isinstance(link, Value):
        return link.version is None or link.version[0].count == stamp_at(record, position)
    return link not in lost if type(link) is Record else type(link) is not Gone


def raise_freed(record: Record) -> NoReturn:
    """Raise for a record whose graph an earlier backward has freed."""
    raise FreedError(
        f"{record.op.name} at {record.site}: an earlier backward has freed the arrays of this graph. Call the first "
        "backward with retain_graph=True, or add the losses and call backward once."
    )
