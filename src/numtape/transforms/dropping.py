"""What a tape keeps while it records: a scope that drops arrays of the records it sees, as strategies and budgets say.

Records are taken in stretches. A dropped stretch is a block: its arrays are made again together, from values that were
made before it. Those are pinned where they cross into a later stretch, so a stretch never needs more than itself.

A memory budget works on any of them: under pressure the oldest stretches that are still held are dropped, then
neighbours are merged, which lets go of the values between them. Where that is not enough, the forward goes on without
keeping anything, so that the least budget that would do can be named at its end.
"""

import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..core.apply import PICK
from ..core.buffers import Buffers, buffer_of
from ..core.context import Scope
from ..core.op import Op, Structure
from ..core.recompute import drop, missing, note_arrays
from ..core.record import Block, Record, warn_user
from ..errors import MemoryBudgetError
from .checkpoint import pin
from .layouts import Strides, strides_of

#: What an op may exceed a budget by until something is dropped.
_TOLERANCE = 1.05


def as_megabytes(nbytes: float, is_least: bool = False) -> str:
    """Return bytes as text, to three decimals and at least four digits; a least number is rounded up to be enough."""
    megabytes = nbytes / 2**20
    decimals = max(3, 3 - math.floor(math.log10(megabytes))) if megabytes else 3
    if is_least:
        megabytes = math.ceil(megabytes * 10**decimals) / 10**decimals
    text = f"{megabytes:.{decimals}f} MB"
    return text if megabytes >= 0.1 else f"{text} ({math.ceil(nbytes):,} bytes)"


class Stretch:
    """Consecutive records; `block` stands for their dropped arrays, None while they are held."""

    __slots__ = ("block", "end", "nbytes", "pins", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: The number of the last record.
        self.end = 0
        self.nbytes = 0
        self.block: Block | None = None
        #: The pinned values that its records read.
        self.pins: set[Record] = set()


class Account:
    """What is held, and how much more may be. It knows no records, since their blocks know it."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        #: The outputs of ops that are alive, whoever holds them.
        self.buffers = Buffers()
        #: The bytes of the largest output of an op.
        self.largest = 0
        #: The indices of records whose outputs are views.
        self.views: set[int] = set()
        #: The strides, in elements, of outputs that do not lie in order, by the indices of records.
        self.strides: dict[int, Strides] = {}
        #: What a plan has decided, by the index of the record that reads, in the order in which it does.
        self.plan: dict[int, list[float]] = {}
        #: Where and how the forward did not stay within the budget; None while it does.
        self.shortage: str | None = None
        #: The least that is known to be enough for the forward.
        self.least = 0.0
        self._is_planned = False
        self._has_exceeded = False

    def room(self) -> float:
        """Return how many bytes more may be held."""
        assert self.budget is not None
        return self.budget - self.buffers.live

    def decide(self, reader: Record, room: float) -> float:
        """Do as planned, if it was planned for: to use more, because it happens to be free, would be missed later."""
        if self.shortage is not None:
            raise MemoryBudgetError(
                f"memory_budget_mb: {self.shortage}, and {as_megabytes(self.budget or 0)} were given; nothing was kept "
                "since, and there is no backward. Call backward() of the tape to see the least that would do."
            )
        planned = self.plan.get(reader.index)
        self._is_planned = bool(planned)
        try:
            return planned.pop(0) if planned else room
        except IndexError:  # Another thread, which sweeps the same graph, has taken it.
            return room

    def size(self, record: Record) -> int:
        """Return the bytes that a record's output takes: none if it is a view."""
        return 0 if record.op is PICK or record.index in self.views else record.made_bytes

    def hold(self, array: Any) -> None:
        """Count an array, or each of several, as long as it lives."""
        if type(array) is np.ndarray:
            self.buffers.hold(array)
            return
        for part in array if isinstance(array, tuple | list) else (array,):
            if isinstance(part, np.ndarray):
                self.buffers.hold(part)

    def exceed(self, record: Record, missing: float) -> None:
        """Warn, once: a backward that nobody planned for needs more than the budget."""
        if not self._is_planned and not self._has_exceeded:
            self._has_exceeded = True
            warn_user(
                f"memory_budget_mb: this backward takes {as_megabytes(missing)} more than the budget, at "
                f"{record.site}; call backward() of the tape, which plans for it.",
            )


class Dropping(Scope):
    """Sees records and drops arrays. This one drops what does not fit its budget: the strategy AUTO."""

    skips_loops = True

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        #: Held while a backward is planned, since that drops values and merges stretches.
        self.planning = threading.RLock()
        self.restart()

    def restart(self) -> None:
        """Forget the records."""
        self.stretches: list[Stretch] = []
        self.open = Stretch()
        self.account = Account(self.budget)
        #: The time that each record's op took.
        self.seconds: dict[Record, float] = {}
        self._elapsed = 0.0
        self._foreseen = 0
        #: For each record, the number of the last one that reads it; its own before that.
        self._last_use: dict[Record, int] = {}
        #: The records of the open stretch, and those of them whose bytes were counted.
        self._inside: set[Record] = set()
        self._counted: set[Record] = set()
        self._is_view = False
        #: What the last op has computed, while somebody holds it, and how it lies if that is not in order.
        self._made: weakref.ref[Any] | None = None
        self._strides: Strides | None = None
        #: Stands for values that no rule reads. They are not made a second time while the program holds them.
        self._unread = Block(is_unread=True)
        #: The values that are kept only to make others again, with what their records held before.
        self.pinned: dict[Record, Block | None] = {}
        #: The records whose values rules read.
        self._read: set[Record] = set()
        #: What was found to be lost: it cannot be made again.
        self._lost: set[Record] = set()

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Take the time of an op, for the plan's prediction; make room for what it is known to give."""
        if self.budget is not None:
            self._foreseen = _foresee(op, arrays, params)
            # Only now: what may be needed later is no reason to drop, and may turn out to be less.
            needed = self._foreseen or self.account.largest
            while self.account.room() < needed and self.thin():
                pass
        start = time.perf_counter()
        out = compute(op, arrays, params)
        self._elapsed = time.perf_counter() - start
        self._is_view = _is_view(out, arrays)
        is_array = isinstance(out, np.ndarray)
        self._made = weakref.ref(out) if is_array else None
        self._strides = strides_of(out) if is_array and not out.flags.c_contiguous else None
        if not self._is_view:
            self.account.hold(out)
        return out

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Keep what the record needs from earlier stretches, count its bytes, and drop what is to be dropped."""
        live = self.account.buffers.live
        self.take_down(record)
        self._remember(record)
        self.keep_what_rules_read(record)
        size = self.account.size(record)
        if size > max(self.account.largest, self._foreseen):
            # It came as a surprise. That does no harm if it is small, or if nothing has to be dropped.
            surprise = (size - self.account.largest) / (_TOLERANCE - 1)
            dropped = sum(self.account.size(each) for each in self._read if not each.is_kept)
            self.account.least = max(self.account.least, min(surprise, live + dropped))
        self.account.largest = max(self.account.largest, size)
        if self.account.shortage is not None:
            self._keep_nothing(record, live)
            return
        if self.open_begins_anew(record):
            self.close()
        note_arrays(record)
        self.keep_operands(record, operands)
        self.open.records.append(record)
        self.open.end = len(self.seconds)
        self._inside.add(record)
        for link in (*record.inputs, record):
            if type(link) is Record:
                self._last_use[link] = self.open.end
        self.open.nbytes += self._newly_kept(record)
        self.settle_down(record)
        if self.budget is not None and live > self.budget:
            self.make_room(record, live)

    def take_down(self, record: Record) -> None:
        """Take down how the output of a record lies in memory, and the time that its op took."""
        if self._is_view:
            self.account.views.add(record.index)
            self._is_view = False
        if self._strides is not None:
            self.account.strides[record.index] = self._strides
            self._strides = None
        self.seconds[record] = self._elapsed
        self._elapsed = 0.0

    def _remember(self, record: Record) -> None:
        """Know the output of a record that does not keep it as long as somebody else does."""
        made = None if self._made is None else self._made()
        self._made = None
        if made is None or record.array is not None or record.notes is not None:
            return
        if made.shape == record.shape and made.dtype == record.dtype:
            record.array = made
            self._unread.drop(record)

    def _newly_kept(self, record: Record) -> int:
        """Return the bytes that the stretch keeps more since a record was made: its own, and those that it reads."""
        total = 0
        inside, counted = self._inside, self._counted
        for link in (*record.inputs, record):
            if type(link) is Record and link in inside and link not in counted and link.is_kept:
                counted.add(link)
                total += self.account.size(link)
        return total

    def keep_operands(self, record: Record, operands: Sequence[Any]) -> None:
        """Pin what a record reads from stretches before its own."""
        self.pin(record, operands, self._inside)

    def pin(self, record: Record, operands: Sequence[Any], inside: "set[Record] | dict[Record, Any]") -> None:
        """Pin what a record reads from outside of some records, and take down what no rule has read so far."""
        absent = {link: link.array for link in record.inputs if type(link) is Record and not link.is_kept}
        if absent:
            pin(record, operands, inside)
            for link, before in absent.items():
                if link.is_kept:
                    self.pinned[link] = before

    def unpin(self, pins: Iterable[Record]) -> None:
        """Let go of values that were pinned."""
        for link in pins:
            link.array = self.pinned.pop(link)

    def idle_pins(self) -> list[Record]:
        """Return the pinned values of which nothing is made again as long as no more is dropped."""
        records = [record for stretch in (*self.stretches, self.open) for record in stretch.records]
        dropped = [record for record in records if type(block := record.array) is Block and not block.is_unread]
        used = missing(dropped)[1]
        return [link for link in self.pinned if link not in used]

    def keep_what_rules_read(self, record: Record) -> None:
        """Take what the rules of a record read for kept, whether it was pinned before or not."""
        positions, reads_out = record.op.kept(record.needs)
        inputs = record.inputs
        for link in inputs if positions is None else [inputs[position] for position in positions]:
            if type(link) is Record:
                self._read.add(link)
                self.pinned.pop(link, None)
        if reads_out:
            self._read.add(record)
            self.pinned.pop(record, None)

    def open_begins_anew(self, record: Record) -> bool:
        """Say whether a stretch ends before a record. Under a budget, stretches are a small part of it."""
        return self.budget is not None and self.is_large_enough(record, self.budget / 16)

    def is_large_enough(self, record: Record, size: float) -> bool:
        """Say whether the open stretch has a size, and a record begins the next one well: with nothing to be pinned."""
        if self.open.nbytes < size:
            return False
        is_pinned = any(type(link) is Record and not link.is_kept for link in record.inputs)
        return not is_pinned or self.open.nbytes >= 2 * size

    def settle_down(self, record: Record) -> None:
        """Drop what the strategy does not keep."""

    def close(self) -> None:
        """End the open stretch."""
        if self.open.records:
            self.stretches.append(self.open)
            self.open = Stretch()
            self._inside = set()
            self._counted = set()

    def new_block(self) -> Block:
        """Return a block for values that are dropped together."""
        return Block(None if self.budget is None else self.account)

    def drop_stretch(self, stretch: Stretch) -> None:
        """Drop what a closed stretch holds; what later ones read is kept by `pin` when they do, or kept here."""
        stretch.block = self.new_block()
        self._drop(stretch, stretch.block)

    def _drop(self, stretch: Stretch, block: Block) -> None:
        inside = [record for record in stretch.records if self._last_use[record] <= stretch.end]
        drop(inside, block)
        for record in inside:
            if record.array is block and record not in self._read:  # It was pinned, and is not to be put back.
                record.array = self.pinned.pop(record, None)

    def _droppable(self, stretch: Stretch) -> list[Record]:
        """Return the records whose values a stretch holds and no later one has read."""
        return [record for record in stretch.records if record.is_kept and self._last_use[record] <= stretch.end]

    def merge(self, position: int) -> None:
        """Make one of a dropped stretch and the next, and drop what only crossed between them."""
        first, second = self.stretches[position : position + 2]
        first.records += second.records
        first.nbytes += second.nbytes
        first.end = second.end
        del self.stretches[position + 1]
        self._drop_whole(first)

    def _drop_whole(self, stretch: Stretch) -> None:
        """Drop what a closed stretch holds, as one block with what a strategy has dropped of it before."""
        stretch.block = self.new_block()
        for record in stretch.records:
            if type(block := record.array) is Block and not block.is_unread:
                stretch.block.take_over(record)
        self._drop(stretch, stretch.block)

    def thin(self) -> bool:
        """Drop the oldest stretch that is held, or else merge two, or else end the open one; say whether it could."""
        held = next((stretch for stretch in self.stretches if stretch.block is None), None)
        if held is not None:
            self._drop_whole(held)
        elif len(self.stretches) > 1:
            sizes = [a.nbytes + b.nbytes for a, b in itertools.pairwise(self.stretches)]
            self.merge(int(np.argmin(sizes)))
        elif self.open.records:
            self.close()
        else:
            return False
        return True

    def make_room(self, record: Record, before: int) -> None:
        """Drop until the budget is met; keep nothing more if it cannot be, or if the op itself has exceeded it."""
        assert self.budget is not None
        while self.account.room() < 0 and self.thin():
            pass
        live = self.account.buffers.live
        if live > self.budget:
            found = f"{as_megabytes(live)} of values cannot be dropped"
        elif before > self.budget * _TOLERANCE:
            found = f"{as_megabytes(before)} of values are alive at once"
        else:
            return
        self.account.shortage = f"at {record.op.name} in {record.site}, {found}"
        while self.thin():
            pass
        self.account.least = max(self.account.least, self.account.buffers.live)

    def _keep_nothing(self, record: Record, before: int) -> None:
        """Drop what a record holds and reads, and take down how much lived when its op had run."""
        (stretch,) = self.stretches  # The only one since everything was dropped.
        assert stretch.block is not None
        drop([link for link in (*record.inputs, record) if type(link) is Record], stretch.block, self._lost)
        self.account.least = max(self.account.least, before)


def _foresee(op: Op, arrays: tuple[Any, ...], params: dict[str, Any]) -> int:
    """Return the bytes that an op will give, where that is known before: if it is elementwise, joins, or says so.

    Reductions say it by their parameters.
    """
    given = [array for array in arrays if isinstance(array, np.ndarray)]
    if op.is_variadic and op.facts.structure is Structure.MOVES:
        return sum(array.nbytes for array in given)
    itemsize = max((array.itemsize for array in given), default=0)
    if isinstance(params.get("dtype"), np.dtype):
        itemsize = params["dtype"].itemsize
    try:
        if op.is_elementwise and given:
            return np.broadcast(*given).size * itemsize
        if op.facts.size is not None:
            return op.facts.size(*map(np.shape, arrays), **params) * itemsize
        if "keepdims" in params and "axis" in params and len(given) == 1:
            axes = range(given[0].ndim) if params["axis"] is None else np.atleast_1d(params["axis"]).tolist()
            return int(given[0].nbytes // max(1, math.prod(given[0].shape[axis] for axis in axes)))
    except (ValueError, IndexError):  # The operands do not fit, and the op will say so.
        pass
    return 0


def _is_view(out: Any, arrays: tuple[Any, ...]) -> bool:
    """Say whether an output, or each of several, lies in the memory of an operand."""
    if isinstance(out, np.ndarray) and out.base is None:
        return id(out) in map(id, arrays)
    given = {id(buffer_of(array)) for array in arrays if isinstance(array, np.ndarray)}
    parts = out if isinstance(out, tuple) else (out,)
    return given.issuperset([id(buffer_of(part)) for part in parts])
