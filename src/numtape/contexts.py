"""Gradient contexts: separate places to record, each with a tape that can be cleared and closed."""

import itertools
from types import TracebackType
from typing import Any, Self

from .core.context import Context, current, entered
from .core.gradients import backward
from .core.record import Record
from .errors import ClosedError
from .insight import summary as summaries


class ContextTape:
    """What a context has recorded: the live records of its current generation."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __len__(self) -> int:
        return self._context.cell.count_records()

    def __bool__(self) -> bool:
        return True

    @property
    def records(self) -> list[Record]:
        """The live records, oldest first. Slow: nothing lists them, so they are searched for."""
        return self._context.cell.find_records()

    def summary(self) -> str:
        """Return the live records as a table."""
        return summaries.text(self.records)

    def __repr__(self) -> str:
        return f"<tape of context {self._context.id}: {len(self)} records>"

    def _repr_html_(self) -> str:
        return summaries.page(self.records)


_context_ids = itertools.count(1)


class GradientContext:
    """A place to record of its own, with its own tape that can be cleared and closed.

    ``with nt.GradientContext() as ctx:`` activates it and closes it at the end, of the last block if there are several;
    ``with ctx.activate():`` only activates. Backward follows the loss's own graph, so what was recorded in one context
    may be differentiated in another while both are open. Forgetting to clear leaks nothing: tensors own their graphs.

    Example:
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> with nt.GradientContext() as ctx:
        ...     nt.compute_gradients(x * 3.0)
        >>> x.grad
        tensor([3., 3.])
    """

    def __init__(self) -> None:
        self._context = Context(next(_context_ids))
        self._entered = entered(context=self._context)

    @property
    def id(self) -> int:
        """The context's number; 0 is each thread's default."""
        return self._context.id

    @property
    def tape(self) -> ContextTape:
        """What the context has recorded."""
        return ContextTape(self._context)

    @property
    def is_closed(self) -> bool:
        """Whether the context has ended."""
        return self._context.is_closed

    def activate(self) -> entered:
        """Return a ``with`` block in which ops are recorded here; it does not close the context."""
        self._check_open()
        return entered(context=self._context)

    def _check_open(self) -> None:
        if self._context.is_closed:
            raise ClosedError(f"GradientContext: context {self.id} is closed; make a new one.")

    def __enter__(self) -> Self:
        if self.id == 0:
            raise ClosedError(
                "GradientContext: the end of this block would close context 0, the default, which stays open; use "
                "`with nt.default_context().activate():`."
            )
        self._check_open()
        self._entered.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)
        if not self._entered.is_open:
            self.close()

    def clear(self) -> None:
        """Invalidate what was recorded here so far."""
        self._context.clear()

    def close(self) -> None:
        """End the context: what it recorded can no longer be differentiated. ``.grad`` stays."""
        if self.id == 0:
            raise ClosedError("GradientContext: context 0, the default, cannot be closed; clear_tape() empties it.")
        self._context.close()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradientContext) and self._context is other._context

    def __hash__(self) -> int:
        return hash(self._context)

    def __repr__(self) -> str:
        return f"<GradientContext {self.id}{', closed' if self.is_closed else ''}>"


def _facade(context: Context) -> GradientContext:
    facade = GradientContext.__new__(GradientContext)
    facade._context = context
    facade._entered = entered(context=context)
    return facade


def default_context() -> GradientContext:
    """Return the thread's context 0.

    Example:
        >>> nt.default_context().id
        0
    """
    return _facade(current().thread.default_context)


def current_context() -> GradientContext:
    """Return the context in which ops are recorded now.

    Example:
        >>> nt.current_context() == nt.default_context()
        True
    """
    return _facade(current().context)


def clear_tape() -> None:
    """Invalidate what the current context has recorded. O(1), idempotent, and never necessary.

    Example:
        >>> nt.clear_tape()
        >>> len(nt.current_context().tape)
        0
    """
    current().context.clear()


def clear_default_context_tape() -> None:
    """Invalidate what context 0 has recorded.

    Example:
        >>> nt.clear_default_context_tape()
    """
    current().thread.default_context.clear()


def compute_gradients(loss: Any) -> None:
    """Add the derivatives of a loss (of its sum, if it is not scalar) to the ``.grad`` of its leaves; free its graph.

    Example:
        >>> w = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> nt.compute_gradients(w * w)
        >>> w.grad
        tensor([2., 4.])
    """
    backward("compute_gradients", loss, None, free=True)
