"""Records that steps of a loop leave, and the tapes that they are made on."""

import zlib
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from ..core.apply import PICK
from ..core.gradients import link_of
from ..core.jacobian import Path, size_of
from ..core.record import Record
from ..core.tape import RecordingTape
from ..core.value import Value
from .loop_op import LOOP
from .loop_outside import Tensors
from .loop_states import checksum, tensors_of


def inputs_of(record: Record) -> list[Any]:
    """Return the tracked operands of a record."""
    if record.needs == record.op.all_needs and len(record.inputs) == record.needs.bit_length():
        return list(record.inputs)
    return [link for position, link in enumerate(record.inputs) if record.needs >> position & 1]


def constants_of(record: Record) -> list[Value]:
    """Return the operands of a record that are constants; those of all steps for a loop."""
    found = [x for i, x in enumerate(record.inputs) if isinstance(x, Value) and not record.needs >> i & 1]
    return found if record.op is not LOOP else [*found, *(value for value, _ in loop_of(record).outside.constants())]


def reached_by(record: Record) -> list[Any]:
    """Return the tracked operands that the result of a record depends on: of a loop, each result on some."""
    whole: Any = record
    position = 0
    if record.op is PICK and record.params is not None:
        whole, position = record.inputs[0], record.params["position"]
    if whole.op is not LOOP or (whole is record and type(record.shape) is list):
        return inputs_of(record)
    reach = loop_of(whole).reaches[position]
    return [link for i, link in enumerate(whole.inputs) if whole.needs >> i & reach >> i & 1]


def loop_of(record: Record) -> Any:
    """Return the loop that a record is of."""
    assert record.params is not None
    return record.params["loop"]


def bytes_of(state: Any) -> int:
    """Return the bytes of a state."""
    return sum(value.array.nbytes for value in tensors_of(state))


def bytes_to_pull(before: Any, after: Any) -> int:
    """Return the most bytes that the cotangents of a backward through a step take at once."""
    links = [link_of(x) for x in tensors_of(after) if x.node is not None]
    path = Path(links, list(map(link_of, tensors_of(before))))
    itemsize = max((record.dtype.itemsize for record in path.records if type(record.shape) is not list), default=8)
    # That of a record is there until those of its operands are.
    alive = [width + size_of(record) for width, record in zip(path.widths, path.records, strict=False)]
    return max(alive, default=0) * itemsize


def has_hooks(link: Any) -> bool:
    """Say whether a function is called with the gradient of something."""
    holder = link.notes if type(link) is Record else link.extras
    return holder is not None and holder.hooks is not None


def crc_of(record: Record, total: int, known: Container[Any] = ()) -> int:
    """Return a number that tells the op, shapes and parameters of a record, beside a `total` so far.

    Told as well are shapes and dtypes of its operands, but for those that are `known`.
    """
    if record.op is LOOP:  # Its steps tell what it takes.
        total = zlib.crc32(f"{record.op.name}{_form_of(record)}".encode(), total)
        return zlib.crc32(loop_of(record).traces.tobytes(), total)
    others = [link for link in record.inputs if type(link) is np.ndarray or link not in known]
    total = zlib.crc32(f"{record.op.name}{_form_of(record)}{''.join(map(_form_of, others))}".encode(), total)
    return checksum(record.params, total) if record.params else total


def _form_of(link: Any) -> str:
    """Return what tells shape and dtype of a record, tensor or array; of a number, its type."""
    if isinstance(link, Value):
        link = link.array
    dtype = getattr(link, "dtype", None)
    if dtype is None:
        return type(link).__name__
    # A number is faster than a name.
    return f"{link.shape}{[each.num for each in dtype] if type(dtype) is list else dtype.num}"


def ordered(links: Iterable[Any], is_inside: Callable[[Any], bool]) -> list[Record]:
    """Return the records behind links, as far as they are inside, each after those that it depends on.

    The order is that of the graph: it does not matter which of them ran first.
    """
    found: dict[Record, None] = {}
    stack = list(links)[::-1]
    while stack:
        record = stack.pop()
        if record in found:
            continue
        missing = [link for link in inputs_of(record) if link not in found and is_inside(link)]
        if missing:
            stack += [record, *reversed(missing)]
        else:
            found[record] = None
    return list(found)


class StepTape(RecordingTape):
    """A tape for steps: what they detach it does not watch, nor in later steps, although it starts anew with each."""

    __slots__ = ("_left_out",)

    def __init__(self, watch_all: bool, left_out: Tensors) -> None:
        super().__init__(watch_all)
        self._left_out = left_out

    def leave_out(self, value: Value) -> None:
        """Let a constant that is used not be watched, by other tapes for steps of the loop as well."""
        self._left_out[id(value)] = value

    def watch_on_use(self, value: Value) -> None:
        """Make a tensor a source until the step has ended."""
        if self._left_out.get(id(value)) is not value:
            super().watch_on_use(value)

    def would_watch(self, value: Value) -> bool:
        """Say whether an op that uses an untracked float tensor now would make it a source."""
        return self._left_out.get(id(value)) is not value and super().would_watch(value)


class Forgetful(StepTape):
    """A tape that records are made on, and that lists none of them."""

    __slots__ = ()

    def __init__(self, watch_all: bool, left_out: Tensors) -> None:
        super().__init__(watch_all, left_out)
        self.records = _Nothing()


class _Nothing(list[Any]):
    """A list that stays empty."""

    def append(self, item: Any) -> None:
        """Leave it."""
