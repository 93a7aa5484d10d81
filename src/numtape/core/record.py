"""The record that an op leaves behind, and the call site that it remembers.

Invariants:
- A record is data: its op, links to its inputs, static parameters, facts about its output. Never a closure.
- A link is the `Record` that computed an input, the `Value` itself if that is a leaf or untracked, or a plain array
  or number. `needs` has bit i set if input i was tracked when the record was made.
- Links point to records with smaller `index`, so sorting by index is a topological order, and there are no cycles.
- The array of an intermediate lives in the record that made it, if some rule reads it, and nowhere else on the tape:
  dropping it is one assignment, of a `Block`, and `recompute` can put it back.
"""

import functools
import itertools
import math
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, Union

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..kernels.views import extent
from .buffers import whereabouts
from .cells import Cell
from .op import shape_of
from .value import Stamp, Value

if TYPE_CHECKING:
    from .effects import Update
    from .op import Op

Link = Union["Record", Value, Any]

#: How many characters of a line, or of data, are quoted in messages.
_MOST_QUOTED = 100
#: Untracked operands of at most so many bytes stay with a record that is freed.
_SMALL_BYTES = 4096

_indices = itertools.count()
next_index = _indices.__next__

_PACKAGE = __file__.rsplit("core", 1)[0]
#: What the command line runs is a user's program that happens to be installed with us.
_COMMANDS = _PACKAGE + "cli"
#: What stands between a user's line and ours: our files, and those of Python that our decorators put in between.
_OWN_FILES = (_PACKAGE, functools.__file__)
#: For each file seen on the stack, whether it lies outside of the package.
user_files: dict[str, bool] = {}


class _Latest:
    """The user's code that ran an op last: most often it runs the next one too, and a comparison beats a look-up."""

    __slots__ = ("code",)

    def __init__(self) -> None:
        self.code: CodeType | None = None


latest = _Latest()


def is_users(code: CodeType) -> bool:
    """Say whether code is known to lie outside of the package; if so, it is the latest."""
    if user_files.get(code.co_filename):
        latest.code = code
        return True
    return False


def call_site(frame: FrameType) -> tuple[CodeType, int]:
    """Return code object and instruction offset of the first frame outside of the package, from `frame` on outward.

    It keeps no frame and resolves no line; `describe_site` does, when asked.
    """
    known = user_files.get
    while True:
        code = frame.f_code
        is_theirs = known(code.co_filename)
        if is_theirs is None:
            filename = code.co_filename
            is_theirs = not filename.startswith(_PACKAGE) or filename.startswith(_COMMANDS)
            user_files[filename] = is_theirs
        if is_theirs:
            latest.code = code
            return code, frame.f_lasti
        outer = frame.f_back
        if outer is None:
            return code, frame.f_lasti
        frame = outer


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line: that of the first frame outside of the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def describe_site(code: CodeType | None, lasti: int) -> str:
    """Return ``file:line (source)`` for a call site."""
    import linecache  # Only for messages; it is slow to import.

    if code is None:
        return "an unknown line"
    line = line_of(code, lasti)
    source = linecache.getline(code.co_filename, line).strip()
    where = f"{code.co_filename}:{line}"
    return f"{where} ({shortened(source)})" if source else where


def line_of(code: CodeType, lasti: int) -> int:
    """Return the number of the line of an instruction."""
    return next((line for start, stop, line in code.co_lines() if start <= lasti < stop and line), code.co_firstlineno)


def shortened(text: str) -> str:
    """Return text as it is quoted in messages: the beginning of what is long."""
    return text if len(text) <= _MOST_QUOTED else f"{text[: _MOST_QUOTED - 3]}..."


class Notes:
    """What few records carry: stamps of operands that had been written before, tensors that want a gradient, hooks."""

    __slots__ = ("hooks", "is_argument", "param_prints", "prints", "retained", "scale", "stamps", "strides", "updates")

    def __init__(self) -> None:
        #: For each input, the write count at which it was read; None where that was 0 or cannot change.
        self.stamps: tuple[int | None, ...] | None = None
        #: For each input that is a plain array, what `recompute.fingerprint` gave for it; None for others.
        self.prints: tuple[int | None, ...] | None = None
        #: The same for the arrays in parameters, by name.
        self.param_prints: dict[str, list[Any]] | None = None
        #: How the memory lies that a write in place went to, where the op alone would give something else.
        self.strides: tuple[int, ...] | None = None
        #: A weak reference to the tensor whose `retain_grad` was called.
        self.retained: Any = None
        #: Functions of the cotangent of the output, and the class of the tensors to call them with; None without any.
        self.hooks: tuple[dict[int, Any], type[Value]] | None = None
        #: The running statistics that have moved on the way to the output.
        self.updates: tuple[Update, ...] = ()
        #: Whether a transform that is running differentiates by the output.
        self.is_argument = False
        #: The scale by which the op multiplied a loss for a loss scaler; None for other ops.
        self.scale: float | None = None


class Gone:
    """Stands in a freed record for an untracked operand: what it was, without holding it unless it is small."""

    __slots__ = ("_operand", "dtype", "name", "shape")

    def __init__(self, shape: Shape, dtype: Dtype, operand: Any = None) -> None:
        self.shape = shape
        self.dtype = dtype
        #: The name that the operand was given, if it was a tensor with one.
        self.name = operand.extras.name if isinstance(operand, Value) and operand.extras is not None else None
        # What was computed may have to be explained later, and a small operand weighs little more than the record.
        array = operand.array if isinstance(operand, Value) else operand
        is_small = operand is None or array.nbytes <= _SMALL_BYTES
        if is_small and type(operand) is np.ndarray and operand.base is not None:
            operand = operand.copy()  # A view would hold what it is of.
        self._operand = operand if is_small else weakref.ref(operand)

    @property
    def operand(self) -> Any:
        """The tensor or array itself if it is small or somebody else holds it, else None."""
        return self._operand() if type(self._operand) is weakref.ref else self._operand


class Limit(Protocol):
    """Bounds what is made again at once."""

    def room(self) -> float:
        """Return how many bytes more may be held."""

    def decide(self, reader: "Record", room: float) -> float:
        """Return how many of the bytes that there is room for may be used for what a record reads."""

    def size(self, record: "Record") -> int:
        """Return the bytes that a record's output takes: none if it is a view."""

    def hold(self, array: Any) -> None:
        """Count what was made again."""

    def exceed(self, record: "Record", missing: float) -> None:
        """Note that the values of a record cannot be made again without so many bytes more than there is room for."""


class Block:
    """Stands in records for arrays that were dropped together and are made again together.

    Making one again may run through others. Of those that are `shared` some are put back then as well, instead of being
    made once more when the sweep gets to them: for chains of cheap values, not for a region inside another. One that is
    `unread` stands for arrays that no rule reads and no record ever kept; they are not put back.

    An array that somebody else holds, or a view of it, lives on, and is not made a second time: it is found by the
    index of its record, since blocks hold no records.
    """

    __slots__ = ("_dropped", "is_shared", "is_unread", "limit")

    def __init__(self, limit: Limit | None = None, is_shared: bool = False, is_unread: bool = False) -> None:
        self.limit = limit
        self.is_shared = is_shared
        self.is_unread = is_unread
        self._dropped: dict[int, tuple[Callable[[], Any], ...]] = {}

    def drop(self, record: "Record") -> None:
        """Take the place of a record's array, or of its several ones."""
        parts = record.array if type(record.array) is tuple else (record.array,)
        self._dropped[record.index] = tuple(map(whereabouts, parts))
        record.array = self

    def take_over(self, record: "Record") -> None:
        """Take the place of the block that stands for a record's array."""
        before = record.array._dropped.pop(record.index, None)
        if before is not None:
            self._dropped[record.index] = before
        record.array = self

    def find(self, record: "Record") -> Any:
        """Return the array, or arrays, that a record had, if somebody still holds them; None otherwise."""
        parts = [reference() for reference in self._dropped.get(record.index, (_nobody,))]
        if any(part is None for part in parts):
            return None
        return tuple(parts) if isinstance(record.shape, list) else parts[0]


def _nobody() -> None:
    """Stand for a weak reference to what is gone."""


class Record:
    """One op that ran."""

    __slots__ = (
        "array",
        "cell",
        "code",
        "dtype",
        "index",
        "inputs",
        "lasti",
        "needs",
        "notes",
        "op",
        "params",
        "shape",
        "version",
    )

    op: "Op"
    inputs: tuple[Link, ...]
    params: dict[str, Any] | None
    needs: int
    #: The output, if a rule reads it; a tuple for an op with several outputs; a `Block` if it was dropped.
    array: Any
    shape: Any
    dtype: Any
    index: int
    code: CodeType
    lasti: int
    cell: Cell
    version: Stamp | None
    notes: Notes | None

    @property
    def site(self) -> str:
        """The user's line that ran the op."""
        return describe_site(self.code, self.lasti)

    @property
    def line(self) -> int:
        """The number of that line."""
        return line_of(self.code, self.lasti)

    @property
    def flops(self) -> int:
        """The floating-point operations of a run of the op."""
        return int(self.op.facts.cost(self.shape, *map(shape_of, self.inputs), **(self.params or {})))

    @property
    def is_kept(self) -> bool:
        """Whether the output is held here."""
        return self.array is not None and type(self.array) is not Block

    @property
    def nbytes(self) -> int:
        """The size of the output in bytes, whether it is kept or not."""
        if isinstance(self.shape, list):
            return sum(math.prod(s) * d.itemsize for s, d in zip(self.shape, self.dtype, strict=True))
        return int(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def made_bytes(self) -> int:
        """The memory that the output takes when it is made again, with the gaps of a view that was written to."""
        if self.notes is None or self.notes.strides is None:
            return self.nbytes
        lowest, end = extent(self.shape, self.notes.strides, self.dtype.itemsize)
        return end - lowest

    def __repr__(self) -> str:
        sources = ", ".join(link_name(link) for link in self.inputs)
        return f"%{self.index} = {self.op.name}({sources}) {self.shape} {self.dtype}  # {self.site}"


def is_whole(item: Any) -> TypeGuard[Record]:
    """Say whether an object is a record that no thread is still filling in."""
    return type(item) is Record and hasattr(item, "lasti")  # Which is set last.


def link_name(link: Link, numbers: dict[Any, int] | None = None) -> str:
    """Return a short name for what a record links to; `numbers` gives records other numbers than their indices."""
    if isinstance(link, Record):
        return f"%{link.index}" if numbers is None else f"%{numbers[link]}" if link in numbers else "(earlier)"
    if isinstance(link, Value):
        return link.name or f"tensor{list(link.shape)}"
    if isinstance(link, Gone) and link.name:
        return link.name
    if isinstance(link, np.ndarray | Gone) and link.shape:
        return f"array{list(link.shape)}"
    return f"{link:g}" if isinstance(link, np.ndarray | float) else repr(link)


class _Doomed(threading.local):
    """The links of records that are being freed in this thread, and whether somebody is at it."""

    def __init__(self) -> None:
        self.links: list[tuple[Link, ...]] = []
        self.is_draining = False


_doomed = _Doomed()


def _free_links(record: Record) -> None:
    """Let go of a record's links one by one, so that freeing a long chain does not nest."""
    _doomed.links.append(record.inputs)
    record.inputs = ()
    if _doomed.is_draining:
        return
    _doomed.is_draining = True
    while _doomed.links:
        _doomed.links.pop()
    _doomed.is_draining = False


if sys.version_info >= (3, 13):
    # Until 3.12 the interpreter itself bounds how deep freeing nests; from 3.13 on it takes the stack to be large.
    Record.__del__ = _free_links  # type: ignore[attr-defined]


def note(record: Record) -> Notes:
    """Return the notes of a record, made on first use."""
    if record.notes is None:
        record.notes = Notes()
    return record.notes


def given_arrays(record: Record) -> list[NDArray]:
    """Return the NumPy arrays that a record holds as operands, or in parameters as those that index."""
    found = [link for link in record.inputs if type(link) is np.ndarray and link.ndim]
    for value in (record.params or {}).values():
        parts = value if type(value) is tuple else (value,)
        found += [part for part in parts if type(part) is np.ndarray and part.ndim]
    return found
