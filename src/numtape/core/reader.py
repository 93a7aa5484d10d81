"""Find what derivative rules read: values of operands and outputs, shapes, parameters. Shared by both sweeps."""

from collections.abc import Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..dtypes import FLOAT_DTYPES, HALF_DTYPES, float32, float64, widened
from ..kernels.halves import converted
from .apply import PICK, new_record
from .cells import FREED
from .context import current, entered, peek
from .narrowing import Narrowing
from .op import shape_of
from .recompute import raise_freed, remake
from .record import Block, Gone, Record
from .scopes import Follower, inside_sweep
from .value import Value, wrap
from .write import check_stamp, raise_overwritten, stamp_at

if TYPE_CHECKING:
    from .restoring import Restorer

_ndarray = np.ndarray


class Reader:
    """Finds what rules read: as arrays, or as tensors linked to their records when `cls` is given."""

    __slots__ = (
        "_inside",
        "_moved",
        "_narrowing",
        "_records",
        "_restorer",
        "cls",
        "current",
        "followers",
        "restored",
        "warns",
        "whole",
    )

    def __init__(
        self, cls: type[Value] | None, records: Sequence[Record] = (), moved: Mapping[Any, Any] = MappingProxyType({})
    ) -> None:
        self.cls = cls
        #: The cotangent that is being pulled.
        self.current: Any = None
        #: The records whose dropped arrays were made again for this sweep, with what they held before.
        self.restored: dict[Record, Block | None] = {}
        #: The links whose cotangents are wanted as they are, if others may be summed where their record does no more.
        self.whole: Set[Any] | None = None
        #: Who follows the sweep, to see what is made again.
        self.followers: Sequence[Follower] = ()
        #: Whether to warn where what is made again exceeds a memory budget.
        self.warns = True
        self._narrowing: Narrowing | None = None
        self._records = records
        self._moved = moved
        self._restorer: Restorer | None = None
        self._inside: entered | None = None

    def __enter__(self) -> None:
        """Begin a sweep. Its rules run in the dtypes of their records, and not everybody looks at what they do."""
        state = peek() or current()
        if state.scopes or state.observers:
            for scope in state.scopes:
                scope.before_sweep()
            observers = tuple(observer for observer in state.observers if observer.looks_inside)
            scopes = inside_sweep(state.scopes, self.cls is not None)
            if len(observers) < len(state.observers) or scopes != state.scopes:
                self._inside = entered(scopes=scopes, observers=observers)
                self._inside.__enter__()

    def drop_restored(self) -> None:
        """Drop again what was made again."""
        if self._restorer is not None:
            self._restorer.drop_all()

    def __exit__(self, *exc: object) -> None:
        self.drop_restored()
        if self._inside is not None:
            self._inside.__exit__()

    def pass_by(self, record: Record) -> None:
        """Drop again what was made again for a record that the sweep has passed."""
        if self._restorer is not None:
            self._restorer.drop(record)

    def operand(self, record: Record, position: int) -> Any:
        """Return the value of an input, as rules want it; raise if it is gone or was overwritten."""
        link: Any = record.inputs[position]
        kind = type(link)
        if kind is Record:
            if link.version is not None:
                check_stamp(record, position, link.version, link.version[1])
            array = link.array
            if type(array) is not _ndarray:
                array = self._missing(record, link)
            if self.cls is not None:
                return for_rule(record, wrap(self.cls, array, link, link.version), position)
            dtype = link.dtype
            return array if dtype is float64 or dtype is float32 else for_rule(record, array, position)
        if isinstance(link, Value):
            if link.version is not None:
                check_stamp(record, position, link.version, stamp_at(record, position))
            if self.cls is not None:
                return for_rule(record, link, position)
            array = link.array
        elif kind is Gone:
            raise_freed(record)
        elif kind is _ndarray:
            array = link
        else:
            return link
        dtype = array.dtype
        return array if dtype is float64 or dtype is float32 else for_rule(record, array, position)

    def output(self, record: Record) -> Any:
        """Return the output of a record."""
        if record.version is not None:
            version, stamp = record.version
            if version.count != stamp:
                raise_overwritten(record, "its own result", version)
        array = record.array
        if array is None or type(array) is Block:
            array = self._missing(record, record)
        if self.cls is not None:
            if type(array) is tuple:
                return tuple(self._part(record, i, part) for i, part in enumerate(array))
            return for_rule(record, wrap(self.cls, array, record, record.version))
        if type(array) is tuple:
            return tuple(for_rule(record, part) for part in array)
        return for_rule(record, array)

    def _part(self, record: Record, position: int, array: NDArray) -> Any:
        """Wrap one of several outputs, with a new record that picks it."""
        assert self.cls is not None
        if array.dtype not in FLOAT_DTYPES:
            return wrap(self.cls, array)
        node = new_record(PICK, (record,), {"position": position}, 1, None, array.shape, array.dtype, current())
        return wrap(self.cls, array, node)

    def _missing(self, reader: Record, maker: Record) -> Any:
        """Make a dropped value again; a freed one is an error."""
        if maker.cell is FREED or reader.cell is FREED:
            raise_freed(reader)
        if self._restorer is None:
            from .restoring import Restorer  # With all that it needs, where something was dropped.

            # It must not know the reader, which knows it.
            again = partial(remake, show=partial(_show, self.followers)) if self.followers else remake
            self._restorer = Restorer(self._records, self._moved, again, restored=self.restored, warns=self.warns)
        return self._restorer.restore(maker, reader, self.current)

    def wanted_shape(self, record: Record, position: int) -> Shape:
        """Return the shape in which the cotangent of an input is wanted: that of the input, or 1 where it is summed."""
        link = record.inputs[position]
        if self.whole is None:
            shape: Shape = shape_of(link)
            return shape
        if self._narrowing is None:
            self._narrowing = Narrowing(self._records, self.whole, self._moved)
        return self._narrowing.shape(link)

    def operands(self, record: Record) -> tuple[Any, ...]:
        """Return the values of all inputs."""
        return tuple(self.operand(record, i) for i in range(len(record.inputs)))


def _show(followers: Sequence[Follower], record: Record, made: Any) -> None:
    for follower in followers:
        follower.on_made_again(record, made)


def for_rule(record: Record, x: Any, position: int | None = None) -> Any:
    """Return an operand, or the output (without a position), as the rules of a record read it.

    Halves are as wide as what the rules compute in, unless these can do without; integers are floats where the forward
    saw them as such.
    """
    if x.dtype in HALF_DTYPES:
        if reads_halves(record):
            return x
        wide = width_of_halves(record)
        return converted(x, wide) if type(x) is _ndarray else x.astype(wide)
    return x.astype(rule_dtype(record)) if is_promoted_integer(record, x, position) else x


def reads_halves(record: Record) -> bool:
    """Say whether the rules of a record read halves as they are: beside wider operands, its forward did not either."""
    return record.op.facts.native_half_rules and record.dtype in HALF_DTYPES


def width_of_halves(record: Record) -> Dtype:
    """Return the dtype in which the rules of a record read halves, if not as they are."""
    return float64 if rule_dtype(record) is float64 else float32


def is_promoted_integer(record: Record, x: Any, position: int | None) -> bool:
    """Say whether the forward of a record saw an operand of integers as floats, beside others that are."""
    op = record.op
    return x.dtype.kind in "biu" and position is not None and (op.is_variadic or position in op.promoted)


def rule_dtype(record: Record) -> Dtype:
    """Return the dtype that the rules of a record compute in."""
    return widened(record.dtype[0] if isinstance(record.dtype, list) else record.dtype)
