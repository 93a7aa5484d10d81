"""Gradients that tensors retain, taken out of a sweep that is scaled: they are delivered once they are unscaled."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from ..core.delivery import deliver
from ..core.gradients import link_of
from ..core.graph import collect
from ..core.record import Record
from ..core.value import Value


class Retained:
    """Catches the cotangents of what retains its gradient behind targets: ``with Retained(targets) as retained:``."""

    def __init__(self, targets: Sequence[Value]) -> None:
        records = collect([link_of(target) for target in targets])
        self._waiting = [r for r in records if r.notes is not None and r.notes.retained is not None]
        self._aside: list[tuple[Record, Any, Any]] = []
        self._found: list[tuple[Any, Any]] = []

    def __enter__(self) -> Self:
        for record in self._waiting:
            notes = record.notes
            assert notes is not None
            value = notes.retained()
            if value is None:
                continue
            self._aside.append((record, notes.retained, notes.hooks))
            others, cls = notes.hooks or ({}, value.plain)
            # The last of the hooks sees what would have been delivered; no number of a hook is negative.
            notes.retained, notes.hooks = None, ({**others, -1: self._catching(notes.retained)}, cls)
        return self

    def _catching(self, reference: Any) -> Any:
        def catch(gradient: Value) -> None:
            self._found.append((reference, gradient))

        return catch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for record, retained, hooks in self._aside:
            assert record.notes is not None
            record.notes.retained, record.notes.hooks = retained, hooks

    def deliver(self, factor: float) -> None:
        """Deliver the cotangents times a factor."""
        for reference, gradient in self._found:
            value = reference()
            if value is not None:
                deliver(value, gradient.array * factor, is_unscaled=True)
