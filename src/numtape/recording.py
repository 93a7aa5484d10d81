"""What a tape does besides differentiating: record, watch, mark and rewind, end, and show itself."""

import itertools
import os
import weakref
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from . import tree
from .core.binding import as_kind
from .core.cells import FREED
from .core.context import change, current, entered
from .core.gradients import describe_exits, is_leaf
from .core.record import Record, warn_user
from .core.scopes import Scope, casting
from .core.tape import RecordingTape
from .core.value import Value, make_writable
from .dtypes import is_float
from .errors import ArgumentError, ClosedError, DtypeError, GradientError, OperandError, TapeConsumedError
from .insight import summary as summaries
from .tensors import Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from .insight.digest import Digest
    from .insight.graph import Graph, Profile
    from .transforms.determinism import deterministic as Deterministic


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


class Recording:
    """The recording half of `Tape`."""

    #: The scope of its `DeterministicConfig`, which also acts on the derivatives that the tape computes.
    _deterministic: "Deterministic | None" = None

    def __init__(self, persistent: bool = False, watch_all: bool = True, scopes: tuple[Scope, ...] = ()) -> None:
        #: What the tape's configurations do while it records.
        self._scopes = scopes
        self._was_entered = False
        #: Whether `start_recording` was called, and `stop_recording` not yet.
        self._is_started = False
        self.persistent = as_kind("Tape", "persistent", persistent, bool)
        self._tape = RecordingTape(as_kind("Tape", "watch_all", watch_all, bool))
        self._entered = entered()
        self._is_consumed = False
        self._is_closed = False
        #: Whether a backward has run since the segment began, so that entering again starts a new one.
        self._has_run_backward = False
        #: The last exit from any tape when the segment began.
        self._exit_before = current().thread.last_exit

    def __reduce__(self) -> NoReturn:
        raise GradientError(
            "a tape is of one process and cannot be copied or pickled; save its gradients, or its graph by to_json()."
        )

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
        # Also one that knows no tape, and has freed the graph of a loss.
        if self._has_run_backward or any(record.cell is FREED for record in self._tape.records):
            self._start_segment()
            self._has_run_backward = False
        self._was_entered = True
        state = current()
        self._tape.is_ended = False
        if self._tape in state.tapes:
            return {}
        changes = {"tapes": (*state.tapes, self._tape), "watch_all": state.watch_all or self._tape.watch_all}
        own = tuple(scope for scope in self._scopes if not scope.ends_casts or casting(state.scopes) is not None)
        if own:
            changes["scopes"] = (*state.scopes, *own)
        around = [tape.cell for tape in state.tapes if not tape.forgets]
        self._tape.planners = tuple(weakref.ref(scope) for scope in (*state.scopes, *own) if scope.plans)
        self._tape.start_cell([*around, state.context.cell])
        return changes

    def _check_entered(self, name: str) -> None:
        """Warn once if the tape was given a configuration that never acted."""
        if self._scopes and not self._was_entered:
            self._was_entered = True
            warn_user(
                f"{name}: this tape was given a configuration but never entered, so that it recorded nothing; use "
                "`with tape:` around the forward.",
            )

    def _start_segment(self) -> None:
        self._tape.start_segment()
        self._exit_before = current().thread.last_exit
        for scope in self._scopes:
            scope.restart()

    def _left(self) -> str:
        """Return the sentence that names where a tensor last left the tape since this one began, if one did."""
        since = itertools.takewhile(lambda exit: exit is not self._exit_before, reversed(current().thread.exits))
        return describe_exits(list(since)[::-1])

    def _hold(self) -> None:
        for scope in self._scopes:
            scope.hold()

    def _release(self) -> None:
        for scope in reversed(self._scopes):
            scope.release()

    def __enter__(self) -> Self:
        changes = self._begin()
        self._hold()
        self._entered.enter(changes, note=bool(changes))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._entered.innermost()
        try:
            self._entered.__exit__(kind, error, trace)
        finally:
            self._release()
            # Left before a scope inside of it, whose state lists this tape as well.
            if entry is not None and entry.note and self._tape in current().tapes:
                self._stop()
            if not self._entered.is_open and not self._is_started:
                self._tape.is_ended = True  # Also for tasks that were started inside, and go on.
        if kind is None:
            self._check_recorded()

    def _check_recorded(self) -> None:
        """Raise if what was recorded is not as the tape's configurations want it."""

    def start_recording(self) -> None:
        """Record from now on, until `stop_recording` or the end of the enclosing ``with`` block."""
        changes = self._begin()
        if not self._is_started:
            self._hold()
            self._is_started = True
        change(**changes)

    def stop_recording(self) -> None:
        """End what `start_recording` began, also in scopes around this one."""
        self._stop()
        self._check_recorded()

    def _stop(self) -> None:
        if self._is_started:
            self._is_started = False
            self._release()
        self._tape.is_ended = True
        state = current()
        tapes = tuple(tape for tape in state.tapes if tape is not self._tape)
        scopes = tuple(scope for scope in state.scopes if scope not in self._scopes)
        change(tapes=tapes, watch_all=any(tape.watch_all for tape in tapes), scopes=scopes)

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
        for tape in current().tapes:
            tape.heed(self._tape)
        for leaf in tree.leaves(given):
            if not isinstance(leaf, Value):
                raise OperandError(f"watch: wants tensors, not {type(leaf).__name__}; make one with nt.tensor(...).")
            if not is_float(leaf.dtype):
                raise DtypeError(f"watch: a tensor of {leaf.dtype} has no derivative; use astype(nt.float32).")
            if is_leaf(leaf):
                make_writable(leaf)
            self._tape.watch(leaf)
        return given[0] if len(given) == 1 else given

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
        gone = self._tape.records[mark.records :]
        self._tape.rewind(mark.records, mark.cells)
        for scope in self._scopes:
            scope.forget(gone)

    def reset(self) -> None:
        """Empty the tape and make it usable anew; what it recorded can no longer be differentiated."""
        self._check_open("reset")
        self._end()
        self._is_consumed = self._has_run_backward = self._tape.is_ended = False

    def close(self) -> None:
        """End the tape; what it recorded can no longer be differentiated. Closing twice is fine."""
        self._end()
        self._is_closed = self._tape.is_ended = True

    def _consume(self) -> None:
        self._is_consumed = self._tape.is_ended = True
        self._tape.unwatch()
        self._start_segment()

    def _end(self) -> None:
        self._tape.end()
        for scope in self._scopes:
            scope.restart()

    def _check_open(self, what: str) -> None:
        if self._is_closed:
            raise ClosedError(f"{what}: this tape is closed; make a new one, or reset() instead of close().")

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

    def digest(self, loss: Any = None) -> "Digest":
        """Return a hash for each record, to find where another run parts from this one; see `nt.diff_digests`.

        Values that were not kept are computed again, so take it before the optimizer's step.

        Args:
            loss: a tensor; with it, the cotangents of its backward are hashed as well. Nothing is delivered or freed,
                but hooks are called.

        Raises:
            TapeConsumedError: if `gradient` has consumed the tape, and let go of its records.

        Example:
            >>> x = nt.tensor([1.0, 2.0])
            >>> with nt.Tape() as tape:
            ...     loss = (x * x).sum()
            >>> [entry.op for entry in tape.digest()]
            ['mul', 'sum']
        """
        from .insight.digest import digest_of

        self._check_open("digest")
        if self._is_consumed:
            raise TapeConsumedError(
                "digest: gradient() has consumed this tape and let go of its records; take the digest before it, or "
                "use persistent=True."
            )
        with self._reproducibly():
            return digest_of(self.records, loss)

    def _reproducibly(self) -> AbstractContextManager[Any]:
        """Return what derivatives are computed in: as the ops inside ``with``, if these give the same bits always."""
        return nullcontext() if self._deterministic is None else self._deterministic

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        profile: "Profile | None" = None,
        values: bool = True,
        title: str = "",
    ) -> "Path":
        """Write the records as one HTML page; see `nt.to_html`. The gradients are those of the newest record."""
        from .insight.page import to_html

        return to_html(self._graph("to_html", profile, values), path, title=title)

    def to_dot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        profile: "Profile | None" = None,
        values: bool = False,
    ) -> str:
        """Return the records as DOT text for Graphviz; see `nt.to_dot`."""
        from .insight.dot import to_dot

        return to_dot(self._graph("to_dot", profile, values), path)

    def to_json(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        profile: "Profile | None" = None,
        values: bool = True,
    ) -> str:
        """Return the records as a JSON document, which `nt.from_json` reads; see `nt.to_json`."""
        from .insight.graph_json import to_json

        return to_json(self._graph("to_json", profile, values), path)

    def _graph(self, name: str, profile: "Profile | None", values: bool) -> "Graph":
        from .insight.describing import graph_of

        return graph_of(name, self.records, profile, values, named=self._tape.watched_intermediates())

    def __str__(self) -> str:
        return f"{self!r}\n{self.summary()}"

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "consumed" if self._is_consumed else "open"
        return f"<{type(self).__name__}: {len(self)} records, {state}>"

    def _repr_html_(self) -> str:
        return summaries.page(self._tape.records)
