"""The public tapes: thin facades over the engine.

`Tape` watches every float tensor that is used inside it; `GradientTape` watches what it is told to. Both share one kind
of record with contexts, and a gradient follows the target's own graph, whoever recorded it.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from . import tree
from .core.apply import watch_on_use
from .core.context import change, current, entered
from .core.gradients import (
    as_tensor,
    check_target,
    link_of,
    seed_of,
    sweep,
    why_untracked,
    zeros_like,
)
from .core.record import Record
from .core.reverse import collect, deliver
from .core.tape import RecordingTape
from .core.value import Value, wrap
from .dtypes import is_float
from .errors import (
    ArgumentError,
    ClosedError,
    DtypeError,
    NotConnectedError,
    OperandError,
    TapeConsumedError,
)
from .gradients import Gradients
from .insight import summary as summaries
from .tensors import Tensor


class Mark:
    """A point on a tape to rewind to."""

    __slots__ = ("cell", "cells", "records", "tape")

    def __init__(self, tape: RecordingTape) -> None:
        self.tape = tape
        self.records = len(tape.records)
        self.cells = len(tape.cells)
        #: The generation that was current; gone from its place once it was rewound or the tape started anew.
        self.cell = tape.cell

    def is_of(self, tape: RecordingTape) -> bool:
        """Say whether a tape still holds this point."""
        cells = tape.cells
        return self.tape is tape and self.cells <= len(cells) and cells[self.cells - 1] is self.cell


class Tape:
    """Record ops and differentiate them.

    Inside ``with tape:`` every float tensor is watched on first use and every record is listed. Gradients follow the
    target's own graph, so they may also be taken of what was recorded elsewhere.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_all: whether float tensors are watched on first use.

    Example:
        >>> x = nt.tensor([1.0, 2.0])
        >>> with nt.Tape() as tape:
        ...     loss = (x * x).sum()
        >>> tape.backward(loss)[x]
        tensor([2., 4.])
    """

    def __init__(self, persistent: bool = False, watch_all: bool = True) -> None:
        self.persistent = persistent
        self._tape = RecordingTape(watch_all)
        self._entered: list[entered] = []
        self._is_consumed = False
        self._is_closed = False
        #: Whether a backward has run since the segment began, so that entering again starts a new one.
        self._has_run_backward = False

    @property
    def watch_all(self) -> bool:
        """Whether float tensors are watched on first use."""
        return self._tape.watch_all

    @property
    def is_recording(self) -> bool:
        """Whether records made now are listed here."""
        return self._tape in current().tapes and not self._tape.is_ended

    def _begin(self) -> dict[str, Any]:
        """Get ready to record, and return the changes of the ambient state that recording here makes."""
        self._check_open("Tape")
        if self._is_consumed:
            raise TapeConsumedError(
                "Tape: gradient() has consumed this tape; make a new one for each step, call reset(), or use "
                "persistent=True."
            )
        if self._has_run_backward:
            self._tape.start_segment()
            self._has_run_backward = False
        state = current()
        self._tape.is_ended = False
        if self._tape in state.tapes:
            return {}
        self._tape.start_cell([*(tape.cell for tape in state.tapes), state.context.cell])
        return {"tapes": (*state.tapes, self._tape), "watch_all": state.watch_all or self._tape.watch_all}

    def __enter__(self) -> Self:
        scope = entered(**self._begin())
        scope.__enter__()
        self._entered.append(scope)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, trace)

    def start_recording(self) -> None:
        """Record from now on, until `stop_recording` or the end of the enclosing ``with`` block."""
        change(**self._begin())

    def stop_recording(self) -> None:
        """End what `start_recording` began, also in scopes around this one."""
        self._tape.is_ended = True
        tapes = tuple(tape for tape in current().tapes if tape is not self._tape)
        change(tapes=tapes, watch_all=any(tape.watch_all for tape in tapes))

    def watch(self, *tensors: Any, **named: Any) -> Any:
        """Make tensors sources of gradients, in or out of ``with``, and return them.

        Args:
            tensors: tensors, or trees of them.
            named: the same, with a name that summaries and errors show.

        Example:
            >>> tape = nt.GradientTape()
            >>> x = tape.watch(nt.tensor(3.0))
            >>> tape.gradient(x * x, x)
            tensor(6.)
        """
        self._check_open("watch")
        for name, tensor in named.items():
            if isinstance(tensor, Tensor):
                tensor.name = name
        given = (*tensors, *named.values())
        for leaf in tree.leaves(given):
            if not isinstance(leaf, Value):
                raise OperandError(f"watch: wants tensors, not {type(leaf).__name__}; make one with nt.tensor(...).")
            if not is_float(leaf.dtype):
                raise DtypeError(f"watch: a tensor of {leaf.dtype} has no derivative; use astype(nt.float32).")
            self._tape.watch(leaf)
        return given[0] if len(given) == 1 else given

    def gradient(self, targets: Any, sources: Any, output_gradients: Any = None, unconnected: str = "none") -> Any:
        """Return the derivatives of the targets by each source; targets that are not scalar count as their sum.

        Args:
            targets: a tensor, or an iterable of tensors whose derivatives are added.
            sources: a tensor (then one gradient is returned) or an iterable (then a list is).
            output_gradients: the cotangents of the targets, instead of ones.
            unconnected: what a source without influence gets: "none", "zero" or "error".

        Raises:
            TapeConsumedError: at the second call, unless the tape is persistent.
        """
        self._check_open("gradient")
        if unconnected not in ("none", "zero", "error"):
            raise ArgumentError(f'gradient: unconnected is {unconnected!r}; it must be "none", "zero" or "error".')
        if self._is_consumed:
            raise TapeConsumedError(
                "gradient: this tape was consumed by an earlier gradient(); use persistent=True to call it again, or "
                "give several targets in one call."
            )
        target_list = _as_list("targets", targets)
        if not target_list:
            raise ArgumentError("gradient: there are no targets; give at least one tensor.")
        source_list = _as_list("sources", sources)
        given = (
            [None] * len(target_list) if output_gradients is None else _as_list("output_gradients", output_gradients)
        )
        if len(given) != len(target_list):
            raise ArgumentError(
                f"gradient: {len(target_list)} targets and {len(given)} output_gradients were given; give one for each "
                "target, or None for ones."
            )
        seeds = [seed_of("gradient", target, g) for target, g in zip(target_list, given, strict=True)]
        outer = self._outer_tapes()
        create_graph = self._is_differentiated(outer, seeds)
        with entered(tapes=outer, watch_all=False):
            found = sweep(target_list, seeds, source_list, create_graph=create_graph)
        results = [self._result(found, source, target_list, unconnected) for source in source_list]
        if not self.persistent:
            self._consume()
        return results[0] if isinstance(sources, Value) else results

    def _result(self, found: dict[Any, Any], source: Tensor, targets: Sequence[Value], unconnected: str) -> Any:
        link = link_of(source)
        if link in found:
            return as_tensor(found[link], source, source.plain)
        if unconnected == "zero":
            return wrap(source.plain, zeros_like(source))
        if unconnected == "error":
            name = source.name or f"tensor{list(source.shape)}"
            untracked = next((target for target in targets if target.node is None), None)
            raise NotConnectedError(
                f"gradient: the targets do not depend on {name}"
                + (f": {why_untracked(untracked)}" if untracked is not None else "; was it watched before use?")
            )
        return None

    def backward(
        self,
        loss: Any,
        gradient: Any = None,
        retain_graph: bool = False,
        create_graph: bool = False,
        keep: str = "leaves",
    ) -> Gradients:
        """Return the gradients of a loss by all leaves, and add them to ``.grad`` of those that require it.

        Args:
            loss: a tensor; if it is not scalar, its sum counts.
            gradient: the cotangent of the loss, instead of ones.
            retain_graph: keep the graph's arrays for another backward.
            create_graph: record the backward itself, so that the gradients can be differentiated.
            keep: "all" to get the gradients of intermediates as well.
        """
        self._check_open("backward")
        if keep not in ("leaves", "all"):
            raise ArgumentError(f'backward: keep is {keep!r}; it must be "leaves" or "all".')
        check_target("backward", loss)
        outer = self._outer_tapes()
        seed = seed_of("backward", loss, gradient)
        create_graph = create_graph or self._is_differentiated(outer, [seed])
        with entered(tapes=outer, watch_all=False):
            found = sweep(
                [loss],
                [seed],
                None,
                create_graph=create_graph,
                free=not (retain_graph or create_graph or outer),
                keep_all=keep == "all" or bool(self._tape.watched_intermediates()),
            )
        self._has_run_backward = True
        return self._gradients(found, loss.plain, keep)

    def _gradients(self, found: dict[Any, Any], cls: type[Value], keep: str) -> Gradients:
        watched = {value.node: value for value in self._tape.watched_intermediates()}
        tensors: list[Any] = []
        gradients: list[Any] = []
        delivered = set()
        intermediates = {}
        for link, cotangent in found.items():
            if isinstance(link, Record):
                if link in watched:
                    tensors.append(watched[link])
                    gradients.append(as_tensor(cotangent, link, cls))
                elif keep == "all":
                    intermediates[link] = as_tensor(cotangent, link, cls)
                continue
            gradient = as_tensor(cotangent, link, cls)
            if link.requires_grad:
                deliver(link, gradient)
                delivered.add(link.id)
            tensors.append(link)
            gradients.append(gradient)
        made = Gradients(tensors, gradients, delivered)
        made._intermediates = intermediates
        return made

    def backward_steps(self, loss: Any) -> Iterator[tuple[Record, Any, list[Any]]]:
        """Return the records of a loss's graph one by one, newest first, with the cotangents that came in and went out.

        For teaching and debugging: nothing is delivered and nothing is freed.

        Example:
            >>> x = nt.tensor(3.0)
            >>> with nt.Tape() as tape:
            ...     y = x * x + 1.0
            >>> [(record.op.name, float(g)) for record, g, _ in tape.backward_steps(y)]
            [('add', 1.0), ('mul', 1.0)]
        """
        self._check_open("backward_steps")
        check_target("backward_steps", loss)
        steps: list[tuple[Record, Any, list[Any]]] = []
        sweep(
            [loss],
            [seed_of("backward_steps", loss, None)],
            None,
            on_step=lambda record, g, produced: steps.append((record, g, produced)),
        )
        return iter(steps)

    def mark(self) -> Mark:
        """Return a point to `rewind` to."""
        self._check_open("mark")
        mark = Mark(self._tape)
        self._tape.start_cell()
        return mark

    def rewind(self, mark: Mark) -> None:
        """Forget and invalidate what was recorded since a mark; earlier records stay as they are."""
        self._check_open("rewind")
        if not isinstance(mark, Mark):
            raise OperandError(f"rewind: wants what mark() returned, not {type(mark).__name__}.")
        if not mark.is_of(self._tape):
            raise ArgumentError(
                "rewind: this mark is of another tape, or of a part that was rewound, reset or finished by a gradient "
                "since; call mark() anew."
            )
        self._tape.rewind(mark.records, mark.cells)

    def reset(self) -> None:
        """Empty the tape and make it usable anew; what it recorded can no longer be differentiated."""
        self._check_open("reset")
        self._tape.end()
        self._is_consumed = self._has_run_backward = self._tape.is_ended = False

    def close(self) -> None:
        """End the tape; what it recorded can no longer be differentiated. Closing twice is fine."""
        self._tape.end()
        self._is_closed = self._tape.is_ended = True

    def _consume(self) -> None:
        self._is_consumed = self._tape.is_ended = True
        self._tape.unwatch()
        self._tape.start_segment()

    def _check_open(self, what: str) -> None:
        if self._is_closed:
            raise ClosedError(f"{what}: this tape is closed; make a new one, or reset() instead of close().")

    def _outer_tapes(self) -> tuple[RecordingTape, ...]:
        """Return the tapes that record around this one: those entered before it, or all if it is not entered."""
        tapes = tuple(tape for tape in current().tapes if not tape.is_ended or tape is self._tape)
        return tapes[: tapes.index(self._tape)] if self._tape in tapes else tapes

    def _is_differentiated(self, outer: tuple[RecordingTape, ...], seeds: Sequence[Any]) -> bool:
        """Say whether something around differentiates what this tape computes; tapes then watch the seeds as well."""
        state = current()
        if not state.grad:
            return False
        for seed in seeds:
            if isinstance(seed, Value) and seed.node is None and state.watch_all:
                watch_on_use(state, seed)
        return bool(outer) or state.transforms > 0

    @property
    def records(self) -> list[Record]:
        """The records listed, oldest first."""
        return list(self._tape.records)

    def __len__(self) -> int:
        return len(self._tape.records)

    def __bool__(self) -> bool:
        # An empty tape is still a tape.
        return True

    def summary(self) -> str:
        """Return the records as a table."""
        return summaries.text(self._tape.records)

    def __str__(self) -> str:
        return f"{self!r}\n{self.summary()}"

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "consumed" if self._is_consumed else "open"
        return f"<{type(self).__name__}: {len(self)} records, {state}>"

    def _repr_html_(self) -> str:
        return summaries.page(self._tape.records)


class GradientTape(Tape):
    """A tape that watches only what it is told to.

    It works without being entered: watched tensors are recorded wherever they are used.

    Example:
        >>> tape = nt.GradientTape()
        >>> x = tape.watch(nt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> loss = (x * x).sum()
        >>> tape.gradient([loss], [x])
        [tensor([[2., 4.],
                [6., 8.]])]
    """

    def __init__(self, persistent: bool = False, watch_all: bool = False) -> None:
        super().__init__(persistent, watch_all)


def _as_list(what: str, given: Any) -> list[Any]:
    """Return a tensor or an iterable of tensors as a list."""
    is_single = isinstance(given, Value | np.ndarray | str) or not isinstance(given, Iterable)
    items = [given] if is_single else list(given)
    for item in items:
        if not isinstance(item, Value) and not (what == "output_gradients"):
            raise OperandError(
                f"gradient: {what} must be a tensor or an iterable of tensors, but {type(item).__name__} was given."
            )
    return items


def records(loss: Tensor) -> list[Record]:
    """Return the records behind a tensor, oldest first; empty if it is untracked.

    Example:
        >>> x = nt.tensor(2.0, requires_grad=True)
        >>> [record.op.name for record in nt.records((x * x).exp())]
        ['mul', 'exp']
    """
    return _records("records", loss)


def _records(name: str, loss: Any) -> list[Record]:
    if not isinstance(loss, Value):
        raise OperandError(f"{name}: wants a tensor, not {type(loss).__name__}.")
    return collect([link_of(loss)])[::-1]


def summary(loss: Tensor) -> str:
    """Return the graph behind a tensor as a table, without a tape.

    Example:
        >>> x = nt.tensor(2.0, requires_grad=True)
        >>> print(nt.summary(x * x).splitlines()[-1])
        1 records, 4 bytes computed, 0 bytes kept for derivatives
    """
    return summaries.text(_records("summary", loss))
