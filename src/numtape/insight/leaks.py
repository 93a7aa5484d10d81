"""Find graphs that are still alive: which line recorded them, how much they hold, who holds them, and why they grow."""

import gc
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType

from .._typing import NDArray
from ..core.buffers import Buffers, buffer_of, held_by_others, held_elsewhere
from ..core.cells import FREED
from ..core.record import Record, describe_site, given_arrays, is_whole
from ..core.value import Value
from .holders import Names, chain_to
from .loop_search import loop_of

Instruction = tuple[CodeType, int]
#: How many tensors of one line may keep what a backward has freed before it looks like a collection of losses.
FEW = 2
#: How often a running total must have added to itself to be called one.
OFTEN = 3
#: For how many leaks the holders are looked for, which takes a pass over all objects each.
MOST_CHAINS = 20


@dataclass(frozen=True)
class Leak:
    """Graphs that one line recorded and that are still alive.

    Attributes:
        line: the line that recorded the last op of each.
        graphs: how many there are.
        records: how many records they have, and `nbytes` the bytes of the arrays that these keep.
        is_freed: whether a backward has freed them, so that only the records' descriptions are left.
        holder: the chain of references from a name in the program to one of them: of several, not to the newest, which
            the program may still have at hand.
        total: the line of a running total that links each step's graph to the next, if there is one.
        times: how often that line was recorded.
        is_carried: whether `line` made a state that each step takes from the one before, with its graph; then `holder`
            holds the latest.
    """

    line: str
    graphs: int
    records: int
    nbytes: int
    is_freed: bool
    holder: str
    total: str | None
    times: int
    is_carried: bool = False

    def __str__(self) -> str:
        count = f"{self.graphs} graphs" if self.graphs > 1 else "a graph"
        what = "freed by a backward" if self.is_freed else f"{self.nbytes:,} bytes of arrays"
        text = f"{count} of {self.records} records ({what}), recorded at {self.line}\n  held by {self.holder}\n  "
        if self.total is not None:
            return text + (
                f"grows at {self.total}, recorded {self.times} times, each linked to the one before: add loss.item() "
                "or loss.detach() instead of the tracked loss"
            )
        if self.is_carried:
            return text + (
                f"each of {self.times} steps goes on from what the one before made there, and from its graph: begin a "
                "step with the detach()ed state"
            )
        if self.graphs > 1:
            return text + "collect loss.item() or loss.detach() instead of the tracked tensors"
        return text + "drop it, call backward(), keep a detach()ed copy, or compute it in nt.no_grad()"


@dataclass(frozen=True)
class LeakReport:
    """What `detect_leaks` found, largest first."""

    leaks: tuple[Leak, ...]

    @property
    def num_suspicious(self) -> int:
        """The number of lines whose graphs are still alive."""
        return len(self.leaks)

    @property
    def nbytes(self) -> int:
        """The bytes that these graphs hold."""
        return sum(leak.nbytes for leak in self.leaks)

    def __iter__(self) -> Iterator[Leak]:
        return iter(self.leaks)

    def __len__(self) -> int:
        return len(self.leaks)

    def __str__(self) -> str:
        if not self.leaks:
            return "no leaks: no graph that was recorded since the start holds arrays"
        return "\n".join(f"{number}. {leak}" for number, leak in enumerate(self.leaks, 1))


def live_records() -> list[Record]:
    """Return the records that are alive in the process, oldest first."""
    return sorted(filter(is_whole, gc.get_objects()), key=lambda record: record.index)


def find_leaks(since: int, until: int | None = None, starts: Sequence[int] = ()) -> LeakReport:
    """Return the graphs recorded from one index on, up to another, that are alive after a collection of garbage.

    Args:
        since: the index of the first record that counts.
        until: that of the first which does not; None for all.
        starts: where steps began, if that is known: what they carry on from one to the next is then named.
    """
    gc.collect()
    records = [record for record in live_records() if since <= record.index and (until is None or record.index < until)]
    linked = {link for record in records for link in record.inputs if type(link) is Record}
    by_line: dict[tuple[Instruction, bool], list[Record]] = {}
    for record in records:
        if record not in linked:
            by_line.setdefault(((record.code, record.lasti), record.cell is FREED), []).append(record)
    suspects = [roots for (_, is_freed), roots in by_line.items() if not is_freed or len(roots) > FEW]
    graphs = _share_out(suspects, since)
    graphs.sort(key=lambda graph: (nbytes_of(graph[1]), len(graph[1])), reverse=True)
    names = Names()
    ignored = {id(x) for x in (records, linked, by_line, suspects, graphs, *suspects, *by_line.values())}
    ignored |= {id(x) for graph in graphs for x in (graph, *graph)}
    leaks = []
    for number, (roots, graph) in enumerate(graphs):
        leak = _describe(roots, graph)
        state, times = carried_state(graph, starts) if leak.total is None else (None, 0)
        if state is not None:
            leak = replace(leak, line=state.site, times=times, is_carried=True)
        if number < MOST_CHAINS:
            leak = replace(leak, holder=chain_to(state or _typical(roots), names, ignored))
        leaks.append(leak)
    return LeakReport(tuple(leaks))


def _typical(roots: list[Record]) -> Record:
    """Return one of several graphs, of which the first and the last may be held for reasons of their own."""
    return roots[(len(roots) - 1) // 2]


def _share_out(suspects: list[list[Record]], since: int) -> list[tuple[list[Record], list[Record]]]:
    """Return each group of roots with the records behind them; a record belongs to one group."""
    taken: set[Record] = set()
    shared = []
    for roots in suspects:
        stack: list[Record] = [root for root in roots if root not in taken]
        taken.update(stack)
        graph = list(stack)
        while stack:
            for link in stack.pop().inputs:
                if type(link) is Record and link.index >= since and link not in taken:
                    taken.add(link)
                    graph.append(link)
                    stack.append(link)
        shared.append((roots, sorted(graph, key=lambda record: record.index)))
    return shared


def nbytes_of(records: Iterable[Record]) -> int:
    """Return the bytes that records hold: in outputs, in states of loops, and in constants that nobody else holds."""
    records = list(records)
    buffers = Buffers()
    for array in _own_constants(records):
        buffers.hold(array)
    for record in records:
        if record.is_kept:
            buffers.hold(record.array)
        loop = loop_of(record)
        if loop is not None:
            given = {id(buffer_of(link.array)) for link in record.inputs if isinstance(link, Value)}
            for array in loop.held():
                if id(buffer_of(array)) not in given:  # It belongs to a leaf that the loop began with.
                    buffers.hold(array)
    return buffers.live


def _own_constants(records: Sequence[Record]) -> list[NDArray]:
    """Return the arrays of untracked operands that nobody but the records holds."""
    tensors = [x for record in records for x in record.inputs if isinstance(x, Value) and x.node is None]
    elsewhere = held_elsewhere(tensors)
    own = {id(x): x for x in tensors if id(x) not in elsewhere}
    arrays = [array for record in records for array in given_arrays(record)]
    arrays += [x.array for x in own.values()]
    held = held_by_others(arrays, [])
    return [array for array in arrays if id(buffer_of(array)) not in held]


def _describe(roots: list[Record], graph: list[Record]) -> Leak:
    total = running_total(graph)
    return Leak(
        line=roots[-1].site,
        graphs=len(roots),
        records=len(graph),
        nbytes=nbytes_of(graph),
        is_freed=roots[-1].cell is FREED,
        holder="(not looked for)",
        total=None if total is None else describe_site(*total[0]),
        times=0 if total is None else total[1],
    )


def carried_state(records: Sequence[Record], starts: Sequence[int]) -> tuple[Record | None, int]:
    """Return the latest of what a line made in one step after the other for the next to read, and for how many steps.

    Args:
        records: of a graph, oldest first.
        starts: the indices with which steps began, rising.
    """
    read: dict[Instruction, set[int]] = {}
    latest: dict[Instruction, Record] = {}
    for record in records:
        latest[record.code, record.lasti] = record
        step = bisect(starts, record.index)
        for link in record.inputs:
            if type(link) is Record and bisect(starts, link.index) == step - 1:
                read.setdefault((link.code, link.lasti), set()).add(step)
    # Of several, such as the two states of an LSTM, any will do.
    line = max(read, key=lambda line: len(read[line]), default=None)
    return (None, 0) if line is None or len(read[line]) < OFTEN else (latest[line], len(read[line]))


def running_total(records: Sequence[Record]) -> tuple[Instruction, int] | None:
    """Return the instruction that adds to its own result again and again, as ``total += loss`` does, and how often.

    It makes one number, from its last number and from something recorded elsewhere. That tells it from the loops of a
    network, which carry arrays.

    Args:
        records: of a graph, oldest first.
    """
    lines: dict[Instruction, tuple[CodeType, int]] = {}
    #: For each number, how long the chain of numbers made by its line is, and the one before it.
    chains: dict[Record, tuple[int, Record | None]] = {}
    for record in records:
        if isinstance(record.shape, list) or record.nbytes != record.dtype.itemsize:
            continue
        before = [
            link
            for link in record.inputs
            if type(link) is Record and link in chains and _line(link, lines) == _line(record, lines)
        ]
        longest = max(before, key=lambda link: chains[link][0], default=None)
        chains[record] = (1 + chains[longest][0] if longest is not None else 1, longest)
    if not chains:
        return None
    end: Record | None = max(chains, key=lambda record: chains[record][0])
    times: Counter[Instruction] = Counter()
    while end is not None:
        times[end.code, end.lasti] += 1
        end = chains[end][1]
    instruction, count = times.most_common(1)[0]
    return (instruction, count) if count >= OFTEN else None


def _line(record: Record, lines: dict[Instruction, tuple[CodeType, int]]) -> tuple[CodeType, int]:
    key = (record.code, record.lasti)
    if key not in lines:
        lines[key] = (record.code, record.line)
    return lines[key]
