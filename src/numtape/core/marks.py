"""What loss scaling has to do with gradients: marks that tell scaled ones from others, wherever they were delivered.

Invariants:
- A mark is about the gradient as it is: it ends when something but a delivery writes to the gradient, or drops it.
- Without loss scaling nobody pays: no graph is searched before a loss was scaled for the first time.
"""

import weakref
from collections.abc import Sequence, Set
from enum import Enum
from typing import Any

from .record import Link
from .reverse import Graph, graph_of
from .value import Value


class Mark(Enum):
    """What loss scaling has to do with a gradient."""

    #: A scaled loss was added to it.
    SCALED = "scaled"
    #: It was scaled, and is unscaled.
    UNSCALED = "unscaled"
    #: Scaled and unscaled ones were added up.
    MIXED = "mixed"


class Marks:
    """The marks of all gradients. Scalers do not keep them, since these may be gone.

    Threads share them without a lock: none walks the dict.
    """

    def __init__(self) -> None:
        #: Whether a loss was ever scaled: before that no graph is searched for one.
        self.is_in_use = False
        #: By the ids of gradients: weak references to these, how often each had been written to, and the mark.
        self._by_id: dict[int, tuple[weakref.ref[Value], int, Mark]] = {}

    def put(self, gradient: Value, mark: Mark) -> None:
        """Mark a gradient, as it is now."""
        key = id(gradient)
        # Nobody else gets the id before the callback has run.
        reference = weakref.ref(gradient, lambda _: self._by_id.pop(key, None))
        self._by_id[key] = (reference, writes_to(gradient), mark)

    def of(self, gradient: Value | None) -> Mark | None:
        """Return the mark of a gradient; None if it has none, or was written to since."""
        found = self._by_id.get(id(gradient))
        if found is None or gradient is None or found[0]() is not gradient or found[1] != writes_to(gradient):
            return None
        return found[2]

    def is_scaled(self, gradient: Any) -> bool:
        """Say whether a gradient, or a part of it, is that of a scaled loss, and was never unscaled."""
        return self.of(gradient) in (Mark.SCALED, Mark.MIXED)

    def search(self, targets: Sequence[Link]) -> tuple[Graph | None, Set[int]]:
        """Return the graph of targets, and the ids of its records and leaves that scaled losses send cotangents to.

        The graph is None if no loss was ever scaled. To be called before a sweep, which may free it.
        """
        if not self.is_in_use:
            return None, frozenset()
        graph = graph_of(targets)
        losses = [record for record in graph[0] if record.notes is not None and record.notes.scaler is not None]
        return graph, {id(link) for links in graph_of(losses) for link in links} if losses else frozenset()

    def coming(self, leaves: Sequence[Value], scaled: Set[int]) -> list[tuple[Value, Mark]]:
        """Return the marks that the gradients of leaves will have once more is added: what to give to `arrive` then.

        Args:
            leaves: those that a gradient is on its way to.
            scaled: the ids that `search` has found.
        """
        found = []
        for leaf in leaves if self.is_in_use else ():
            gradient = leaf.extras.grad if leaf.extras is not None else None
            mark = self.of(gradient)
            if id(leaf) not in scaled:
                mark = Mark.MIXED if mark is Mark.SCALED else mark
            else:
                # Zeros may have been written behind our back, and do no harm.
                is_left = mark is Mark.UNSCALED and gradient is not None and gradient.array.any()
                mark = Mark.MIXED if is_left or mark is Mark.MIXED else Mark.SCALED
            if mark is not None:
                found.append((leaf, mark))
        return found

    def arrive(self, coming: Sequence[tuple[Value, Mark]]) -> None:
        """Mark the gradients of leaves to which something was added."""
        for leaf, mark in coming:
            assert leaf.extras is not None
            self.put(leaf.extras.grad, mark)


marks = Marks()


def writes_to(value: Value) -> int:
    """Return how often the memory of a tensor was written to."""
    return value.version[0].count if value.version is not None else 0
