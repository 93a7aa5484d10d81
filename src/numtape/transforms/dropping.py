"""What a tape keeps while it records: a scope that drops arrays of the records it sees, as strategies and budgets say.

Records are taken in stretches. A dropped stretch is a block: its arrays are made again together, from values that were
made before it. Those are pinned where they cross into a later stretch, so a stretch never needs more than itself.

A memory budget works on any of them: under pressure the oldest stretches that are still held are dropped, then
neighbours are merged, which lets go of the values between them. Where that is not enough, the forward goes on without
keeping anything, so that the least budget that would do can be named at its end.
"""

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import NDArray
from ..core.buffers import Buffers, Strays, is_view_of
from ..core.cells import FREED
from ..core.graph import Way
from ..core.op import Op
from ..core.recompute import drop, missing, note_arrays
from ..core.record import Block, Link, Record, given_arrays
from ..core.scopes import Scope
from ..core.value import Value
from ..errors import MemoryBudgetError
from .account import Account, as_megabytes
from .checkpoint import pin
from .foreseeing import foresee
from .layouts import Strides, strides_of

if TYPE_CHECKING:
    from .planning import Prepared

#: What an op may exceed a budget by until something is dropped.
_TOLERANCE = 1.05
#: A forward that exceeds its budget goes on, to see what all of it takes; but not with so many times the budget, and so
#: many bytes, that it holds.
_FAR, _MUCH = 2, 128 * 2**20
#: Fewer stretches are not looked through for what backwards have freed.
_FEW = 16


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


class Dropping(Scope):
    """Sees records and drops arrays. This one drops what does not fit its budget: the strategy AUTO."""

    skips_sweeps = True

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        self.plans = budget is not None
        #: Held while a backward is planned, since that drops values and merges stretches.
        self.planning = threading.RLock()
        self.restart()

    def restart(self) -> None:
        """Forget the records."""
        self.stretches: list[Stretch] = []
        self.open = Stretch()
        #: How many stretches there were when it was last looked for those that backwards have freed.
        self._closed = _FEW
        #: The number of the last record.
        self._number = 0
        self.account = Account(self.budget)
        #: The last plan for a backward, until something is recorded, dropped or let go.
        self.prepared: Prepared | None = None
        #: The time that each record's op took.
        self.seconds: dict[Record, float] = {}
        self._elapsed = 0.0
        self._foreseen = 0
        #: The most bytes that were alive while the steps of a loop ran that is to leave a record.
        self.most_inside = 0
        #: For each record, the number of the last one that reads it; its own before that.
        self._last_use: dict[Record, int] = {}
        #: The records of the open stretch, and those of them whose bytes were counted.
        self._inside: set[Record] = set()
        self._counted: set[Record] = set()
        self.is_view = False
        #: What was made of nothing since.
        self._created = Buffers()
        self._strays = Strays()
        #: The bytes of the largest of these.
        self._largest_stray = 0
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
            self._foreseen = foresee(op, arrays, params)
            # Only now: what may be needed later is no reason to drop, and may turn out to be less.
            needed = (self._foreseen or self.account.largest) + self._foreseen_constants(arrays)
            while self.account.room() < needed and self.thin():
                pass
        start = time.perf_counter()
        out = compute(op, arrays, params)
        self._elapsed = time.perf_counter() - start
        self.is_view = is_view_of(out, arrays)
        is_array = isinstance(out, np.ndarray)
        self._made = weakref.ref(out) if is_array else None
        self._strides = strides_of(out) if is_array and not out.flags.c_contiguous else None
        if not self.is_view:
            self.account.buffers.hold_all(out)
        return out

    def _foreseen_constants(self, arrays: tuple[Any, ...]) -> int:
        """Return the bytes of constants that the record of an op is likely to hold, and that are not counted yet."""
        self._count_strays()
        counted = self.account.buffers
        made = {
            id(x): x.nbytes for x in arrays if isinstance(x, np.ndarray) and x in self._created and x not in counted
        }
        return max(sum(made.values()), self._largest_stray)

    def _count_strays(self) -> None:
        """Count the arrays of the program that nobody but records holds by now."""
        for array in self._strays.own():
            self.account.buffers.hold(array)
            self._largest_stray = max(self._largest_stray, array.nbytes)

    def on_created(self, array: NDArray) -> None:
        """Know a constant that a record may hold, and make room for it: it cannot be made again."""
        self._created.hold(array)
        while self.budget is not None and self.account.room() < array.nbytes and self.thin():
            pass

    def hold_constants(self, record: Record, operands: Sequence[Any]) -> None:
        """Count the constants that were made here, or that nobody else holds, and that a record holds from now on."""
        self._count_strays()
        for position, operand in enumerate(operands):
            if not record.needs >> position & 1 and isinstance(operand, Value) and operand.array in self._created:
                self.account.buffers.hold(operand.array)
        for array in given_arrays(record):
            self._strays.add(array)

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Keep what the record needs from earlier stretches, count its bytes, and drop what is to be dropped."""
        self.prepared = None
        self.hold_constants(record, operands)
        live = max(self.account.buffers.live, self.most_inside)
        self.most_inside = 0
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
        note_arrays(record, operands)
        self.keep_operands(record, operands)
        self.open.records.append(record)
        self._number += 1
        self.open.end = self._number
        self._inside.add(record)
        for link in (*record.inputs, record):
            if type(link) is Record:
                self._last_use[link] = self.open.end
        self.open.nbytes += self._newly_kept(record)
        self.settle_down(record)
        if self.budget is not None and live > self.budget:
            self.make_room(record, live)

    def inside_loop(self) -> Scope:
        """Return what counts the values of steps, and makes room for them."""
        return InsideLoop(self)

    def take_down(self, record: Record) -> None:
        """Take down how the output of a record lies in memory, and the time that its op took."""
        if self.is_view:
            self.account.views.add(record.index)
            self.is_view = False
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
        self.prepared = None
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

    def forget(self, records: Sequence[Record]) -> None:
        """Forget records that the tape, or a backward, has let go."""
        self.prepared = None
        gone = set(records)
        for stretch in (*self.stretches, self.open):
            if not gone.isdisjoint(stretch.records):
                stretch.records = [record for record in stretch.records if record not in gone]
                stretch.nbytes = sum(self.account.size(each) for each in stretch.records if each in self._read)
                stretch.pins -= gone
        self.stretches = [stretch for stretch in self.stretches if stretch.records]
        for known in (self._read, self._lost, self._inside, self._counted):
            known -= gone
        for record in gone:
            self.seconds.pop(record, None)
            self._last_use.pop(record, None)
            self.pinned.pop(record, None)
            self.account.forget(record)

    def plan(self, records: Sequence[Record], frees: bool, keeps: Set[Link], is_recorded: bool, way: Way) -> None:
        """Drop so much that a backward stays within the budget; raise if there is no way."""
        from .planning import prepare  # With all that it needs, where there is a budget.
        from .walking import Backward

        prepare(self, Backward(records, frees, keeps, is_recorded, way))

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
            if len(self.stretches) > 2 * self._closed:  # As after many backwards inside of one block.
                self.forget([each for stretch in self.stretches for each in stretch.records if each.cell is FREED])
                self._closed = max(_FEW, len(self.stretches))

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
            if record.array is block:
                before = self.pinned.pop(record, None)
                if record not in self._read:  # It was pinned, and is not to be put back.
                    record.array = before

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
        self.prepared = None
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
        live = self.account.buffers.live
        assert self.budget is not None
        if live > max(_FAR * self.budget, _MUCH):
            raise MemoryBudgetError(
                f"memory_budget_mb: at {record.op.name} in {record.site}, {as_megabytes(live)} of values cannot be "
                f"dropped, more than {_FAR} times the {as_megabytes(self.budget)} that were given; what ran so far "
                f"takes {as_megabytes(self.account.least, is_least=True)} at least. Tensors that the program still "
                "holds count."
            )


class InsideLoop(Scope):
    """Counts what steps of a loop compute, and makes room for it: their records are the loop's own."""

    def __init__(self, scope: Dropping) -> None:
        self._scope = scope
        #: What the step that runs has made.
        self._made = Buffers()

    def start_step(self) -> None:
        """Begin to count what a step makes."""
        self._made = Buffers()

    def step_bytes(self, cotangents: int) -> int:
        """Return the most bytes that a step makes which runs again: on its way, or in the end, beside cotangents."""
        return max(self._made.peak, self._made.live + cotangents)

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Do as for an op outside."""
        scope = self._scope
        out = scope.around(op, compute, arrays, params)
        if not scope.is_view:
            self._made.hold_all(out)
        live = scope.account.buffers.live
        scope.most_inside = max(scope.most_inside, live)
        if scope.budget is not None and live > scope.budget:  # There was nothing left to drop.
            scope.account.least = max(scope.account.least, live)
        return out
