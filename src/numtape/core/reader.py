"""Find what derivative rules read: values of operands and outputs, shapes, parameters. Shared by both sweeps."""

from typing import Any, NoReturn

from .._typing import NDArray
from ..dtypes import FLOAT_DTYPES, HALF_DTYPES, float32
from ..errors import FreedError
from . import recompute
from .apply import PICK, new_record
from .context import FREED, current
from .record import Gone, Record
from .value import Stamp, Value, wrap
from .write import raise_overwritten


class Reader:
    """Finds what rules read: as arrays, or as tensors linked to their records when `cls` is given."""

    __slots__ = ("cls",)

    def __init__(self, cls: type[Value] | None) -> None:
        self.cls = cls

    def operand(self, record: Record, position: int) -> Any:
        """Return the value of an input, widened if half; raise if it is gone or was overwritten."""
        link: Any = record.inputs[position]
        kind = type(link)
        if kind is Record:
            if link.version is not None:
                _check_stamp(record, position, link.version, link.version[1])
            array = link.array
            if array is None:
                array = _missing(record, link)
            if self.cls is not None:
                return wrap(self.cls, array, link, link.version)
        elif isinstance(link, Value):
            if link.version is not None:
                notes = record.notes
                stamp = notes.stamps[position] if notes is not None and notes.stamps is not None else None
                _check_stamp(record, position, link.version, stamp or 0)
            if self.cls is not None:
                return link
            array = link.array
        elif kind is Gone:
            raise_freed(record)
        else:
            return link
        return array if array.dtype not in HALF_DTYPES else array.astype(float32)

    def output(self, record: Record) -> Any:
        """Return the output of a record."""
        if record.version is not None:
            version, stamp = record.version
            if version.count != stamp:
                raise_overwritten(record, "its own result", version)
        array = record.array
        if array is None:
            array = _missing(record, record)
        if self.cls is not None:
            if type(array) is tuple:
                return tuple(self._part(record, i, part) for i, part in enumerate(array))
            return wrap(self.cls, array, record, record.version)
        if type(array) is tuple:
            return tuple(_widen(part) for part in array)
        return _widen(array)

    def _part(self, record: Record, position: int, array: NDArray) -> Any:
        """Wrap one of several outputs, with a new record that picks it."""
        assert self.cls is not None
        if array.dtype not in FLOAT_DTYPES:
            return wrap(self.cls, array)
        node = new_record(PICK, (record,), {"position": position}, 1, None, array.shape, array.dtype, current())
        return wrap(self.cls, array, node)

    def operands(self, record: Record) -> tuple[Any, ...]:
        """Return the values of all inputs."""
        return tuple(self.operand(record, i) for i in range(len(record.inputs)))


def _widen(array: NDArray) -> NDArray:
    return array if array.dtype not in HALF_DTYPES else array.astype(float32)


def _check_stamp(record: Record, position: int, version: Stamp, stamp: int) -> None:
    if version[0].count != stamp:
        name = record.op.arguments[0 if record.op.is_variadic else position]
        raise_overwritten(record, f"the value of {name!r}", version[0])


def _missing(reader: Record, maker: Record) -> NDArray:
    """Make a dropped value again; a freed one is an error."""
    if maker.cell is FREED or reader.cell is FREED:
        raise_freed(reader)
    array: NDArray = recompute.value(maker)
    return array


def raise_freed(record: Record) -> NoReturn:
    """Raise for a record whose graph an earlier backward has freed."""
    raise FreedError(
        f"{record.op.name} at {record.site}: an earlier backward has freed the arrays of this graph. Call the first "
        "backward with retain_graph=True, or add the losses and call backward once."
    )
