"""A graph and its gradient as one list of steps: each op that ran, forward and backward, on values that remember it.

The forward is run again from the leaves. The reverse sweep runs the ops' own rules on `Traced` values, which compute as
arrays do and note every op, those without a derivative too: a mask that a rule computes is a step, not a constant.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..core.apply import PICK, as_operand
from ..core.cells import Past
from ..core.computing import compute
from ..core.graph import collect, raise_streamed
from ..core.op import Op, shape_of
from ..core.reader import is_promoted_integer, reads_halves, rule_dtype, width_of_halves
from ..core.recompute import raise_freed
from ..core.record import Gone, Link, Record
from ..core.reverse import accumulate, fit, pull
from ..core.scopes import aside
from ..core.value import LEAF, Value
from ..core.write import stamp_at
from ..dtypes import HALF_DTYPES, float32
from ..errors import UnsupportedError
from ..lifted import LiftedTensor
from ..ops.origins import Origin, OutputOf, origin_of, records_behind
from .loop_search import loop_of


class Step:
    """One op that ran: what it was called with, what its forward saw, and what came out."""

    __slots__ = ("is_backward", "op", "operands", "out", "params", "raw", "record", "seen")

    def __init__(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> None:
        self.op = op
        self.operands = operands
        self.params = params
        #: The operands as the forward saw them: brought to one dtype, halves widened.
        self.seen: tuple[Any, ...] = ()
        #: What the forward returned, before it was rounded to a half dtype.
        self.raw: Any = None
        #: The output, or a tuple of them, as values that remember this step.
        self.out: Any = None
        #: The record of the forward that the step computes, or passes backward.
        self.record: Record | None = None
        self.is_backward = False

    @property
    def outs(self) -> tuple["Traced", ...]:
        """The outputs."""
        return self.out if isinstance(self.out, tuple) else (self.out,)


class Traced(LiftedTensor):
    """A value that remembers the step that made it; without a step it is given."""

    __slots__ = ("content", "home", "step")
    meaning = "a value in code that is being written"

    content: NDArray
    step: Step | None
    #: The trace that it belongs to.
    home: "Trace"

    @property
    def shape(self) -> Shape:
        """The length of each axis."""
        shape: Shape = self.content.shape
        return shape

    @property
    def dtype(self) -> Dtype:
        """The NumPy dtype of the elements."""
        return self.content.dtype

    @property
    def inside(self) -> Any:
        """The array, for rules that check what they are given."""
        return self.content

    def detached(self) -> "Traced":
        """Return the value itself: nothing here is differentiated."""
        return self

    def run_op(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run an op and note it."""
        return self.home.run(op, operands, params)


Traced.plain = Traced


class Trace:
    """The steps from leaves to a target and from its cotangent back to the sources."""

    def __init__(self, target: Link) -> None:
        self.steps: list[Step] = []
        self.target = target
        #: What each leaf, constant and record stands for.
        self.values: dict[Any, Any] = {}
        #: The leaves, in the order of their first use.
        self.leaves: dict[Value, None] = {}
        #: Constants whose memory was written after a record had read them: what they held then is not known.
        self.overwritten: dict[Traced, Record] = {}
        #: The cotangent of each record's output, newest record first.
        self.cotangents: list[tuple[Record, Traced]] = []
        #: The constant arrays that records hold, by identity.
        self._arrays: dict[int, Traced] = {}
        #: What ops gave that functions ran for constants.
        self._origins: dict[Origin, Any] = {}
        self._wide: dict[tuple[Traced, Dtype], Traced] = {}
        self._record: Record | None = None
        self._is_backward = False
        self._probes: dict[Op, _Probe] = {}
        self.records = _collect(target)
        self._run_forward()

    def given(self, array: NDArray) -> Traced:
        """Return a value that no step makes."""
        made = Traced.__new__(Traced)
        made.content, made.step, made.home = array, None, self
        made.node = made.version = made.extras = None
        return made

    def run(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Compute an op on values, arrays and numbers, and note it."""
        step = Step(op, operands, params)
        step.record, step.is_backward = self._record, self._is_backward
        arrays = [_array_of(op, operands, position) for position in range(len(operands))]
        probe = self._probes.setdefault(op, _Probe(op))
        out = compute(probe.op, arrays, params)
        step.seen, step.raw = probe.seen, probe.raw
        step.out = tuple(map(self.given, out)) if isinstance(out, tuple) else self.given(out)
        for value in step.outs:
            value.step = step
        self.steps.append(step)
        return step.out

    def _run_forward(self) -> None:
        if not isinstance(self.target, Record):
            self.leaves[self.target] = None
            self._value(self.target)
        for record in self.records:
            if type(record.cell) is Past:
                raise_streamed(record)
            if loop_of(record) is not None:
                raise UnsupportedError(
                    f"to_numpy_source: {record.op.name} at {record.site} runs a Python function again and again, and "
                    "the tape holds none of its ops; write the loop without nt.checkpoint_loop, so that each step is "
                    "recorded."
                )
            self._record = record
            params = record.params or {}
            if record.op is PICK:
                self.values[record] = self.values[record.inputs[0]][params["position"]]
            else:
                operands = [self.operand(record, position) for position in range(len(record.inputs))]
                dtype = record.dtype[0] if isinstance(record.dtype, list) else record.dtype
                if dtype == float32:  # Where halves gave float32, they had been widened.
                    operands = [self.widened(operand, float32) for operand in operands]
                self.values[record] = self.run(record.op, operands, params)

    def operand(self, record: Record, position: int) -> Any:
        """Return what stands for an input of a record."""
        link = record.inputs[position]
        if isinstance(link, Gone):
            raise_freed(record)
        value = self._linked(link)
        if isinstance(link, Value):
            if record.needs >> position & 1:
                self.leaves[link] = None
            elif link.version is not None and link.version[0].count != stamp_at(record, position):
                self.overwritten[value] = record
        return value

    def _linked(self, link: Any) -> Any:
        if type(link) is np.ndarray and link.ndim:
            # A value as well, so that what rules compute of it are steps too.
            return self._arrays.setdefault(id(link), self.given(link))
        if isinstance(link, OutputOf):
            return self._derived(link)
        return self._value(link) if isinstance(link, Record | Value) else link

    def _value(self, link: Link) -> Any:
        if link not in self.values:
            output = origin_of(link)
            self.values[link] = self.given(link.array) if output is None else self._derived(output)
        return self.values[link]

    def _derived(self, output: OutputOf) -> Any:
        """Return what a function computed of its operands without a record: from these, as it did."""
        origin, position = output
        if origin not in self._origins:
            operands = [self._linked(link) for link in origin.links]
            self.leaves.update(dict.fromkeys(x for x in origin.links if isinstance(x, Value) and x.node is LEAF))
            self._origins[origin] = self.run(origin.op, operands, origin.params)
        outs = self._origins[origin]
        return outs if position is None else outs[position]

    def run_backward(self, seed: Traced, sources: Iterable[Link]) -> dict[Link, Traced]:
        """Return the derivatives of the target, times `seed`, by each source that it depends on."""
        wanted = set(sources)
        found: dict[Link, Any] = {}
        cotangents: dict[Link, Any] = {self.target: seed}
        self._is_backward = True
        with aside(grad=False), np.errstate(all="ignore"):
            for record in reversed(self.records):
                g = cotangents.pop(record, None)
                if g is None:
                    continue
                self._record = record
                g = self._as_values(g)
                if record.notes is not None and record.notes.hooks is not None:
                    g = _hooked(record.notes.hooks[0], g)
                if isinstance(g, Traced):
                    self.cotangents.append((record, g))
                if record in wanted:
                    found[record] = g
                for link, cotangent in zip(record.inputs, self._pull(record, g), strict=True):
                    if cotangent is not None:
                        accumulate(cotangents, link, cotangent)
            self._record = None
            for leaf in wanted.intersection(cotangents):
                g = self._as_values(cotangents[leaf])
                hooks = leaf.extras.hooks if isinstance(leaf, Value) and leaf.extras is not None else None
                found[leaf] = g if hooks is None else _hooked(hooks, g)
            return {link: g if g.dtype == link.dtype else g.astype(link.dtype) for link, g in found.items()}

    def _pull(self, record: Record, g: Any) -> list[Any]:
        """Run the rules of a record; those that look into constants, such as classes, get them as arrays."""
        reader: Any = _Reader(self, is_exact=False)
        count = len(self.steps)
        try:
            return pull(record, g, reader)
        except Exception:
            undone = set(self.steps[count:])
            del self.steps[count:]
            # What was widened on the way is widened anew by the next that reads it.
            self._wide = {key: wide for key, wide in self._wide.items() if wide.step not in undone}
            reader = _Reader(self, is_exact=True)
            return pull(record, g, reader)

    def _as_values(self, g: Any) -> Any:
        """Return a cotangent as a value even where a rule returned an array, so that the next rules are noted."""
        if isinstance(g, list):
            return [None if part is None else self._as_values(part) for part in g]
        return g if isinstance(g, Traced) else self.given(np.asarray(g))

    def widened(self, value: Any, dtype: Dtype) -> Any:
        """Return what rules read for a value: a wider one for halves."""
        if not isinstance(value, Traced) or value.dtype not in HALF_DTYPES:
            return value
        if (value, dtype) not in self._wide:
            self._wide[value, dtype] = value.astype(dtype)
        return self._wide[value, dtype]


def _collect(target: Link) -> list[Record]:
    """Return the records that a target depends on, also by constants that were derived of them; oldest first."""
    targets: list[Link] = [target]
    while True:
        records = collect(targets)
        found = set(records)
        outputs = [origin_of(link) for record in records for link in record.inputs]
        behind = {link for output in outputs if output is not None for link in records_behind(output)}
        if behind <= found:
            return records[::-1]
        targets += behind - found


class _Reader:
    """Finds what rules read, as values of a trace."""

    def __init__(self, trace: Trace, is_exact: bool) -> None:
        self.trace = trace
        #: Whether constants are read as the arrays they are.
        self.is_exact = is_exact

    def operand(self, record: Record, position: int) -> Any:
        value = self.trace.operand(record, position)
        if isinstance(value, Traced) and is_promoted_integer(record, value, position):
            value = value.astype(rule_dtype(record))
        elif not reads_halves(record):
            value = self.trace.widened(value, width_of_halves(record))
        is_constant = isinstance(value, Traced) and value.step is None and not record.needs >> position & 1
        return value.content if self.is_exact and is_constant else value

    def operands(self, record: Record) -> tuple[Any, ...]:
        return tuple(self.operand(record, position) for position in range(len(record.inputs)))

    def wanted_shape(self, record: Record, position: int) -> Any:
        return shape_of(record.inputs[position])

    def output(self, record: Record) -> Any:
        value = self.trace.values[record]
        if reads_halves(record):
            return value
        dtype = width_of_halves(record)
        if isinstance(value, tuple):
            return tuple(self.trace.widened(part, dtype) for part in value)
        return self.trace.widened(value, dtype)


class _Probe:
    """An op like another one that also notes what its forward is called with and what it returns."""

    def __init__(self, op: Op) -> None:
        self.seen: tuple[Any, ...] = ()
        self.raw: Any = None
        self._forward = op.forward
        self.op = copy.copy(op)
        self.op.forward = self._run

    def _run(self, *arrays: Any, **params: Any) -> Any:
        self.seen = tuple(arrays[0]) if self.op.is_variadic else arrays
        self.raw = self._forward(*arrays, **params)
        return self.raw


def _array_of(op: Op, operands: Sequence[Any], position: int) -> Any:
    operand = operands[position]
    if isinstance(operand, Traced):
        return operand.content
    if isinstance(operand, Value):
        return operand.array
    return None if operand is None else as_operand(op, operand, position, operands)


def _hooked(hooks: dict[int, Any], g: Any) -> Any:
    for hook in list(hooks.values()):
        result = hook(g)
        g = g if result is None else fit(result, g)
    return g
