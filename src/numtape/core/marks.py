"""By which scale gradients are multiplied: marks that tell those of scaled losses from others, however they came.

Invariants:
- A mark is about the gradient as it is: it ends when something writes to the gradient, or drops it. Deliveries mark it
  anew, and so does what multiplies, adds or bounds gradients here: their scale is what it was.
- Without loss scaling nobody pays: no graph is searched before the first scaler was made.
"""

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .graph import Graph, graph_of
from .record import Link, Record
from .value import Value, writes_to

#: The scale of what was unscaled.
UNSCALED = 1.0
#: That of a loss that no scaler has scaled: most likely it is not, but who knows what it was computed from.
PLAIN = 0.0
#: That of a sum of gradients of different scales.
MIXED = math.nan


class Marks:
    """The scales of gradients of which these are known. Scalers do not keep them, since these may be gone.

    Threads share them without a lock: none walks the dict.
    """

    def __init__(self) -> None:
        #: Whether there ever was a scaler: before that no graph is searched for what one has scaled.
        self.is_in_use = False
        #: How often gradients overflowed on tapes that scale.
        self.overflows = 0
        #: By the ids of gradients: weak references to these, how often each had been written to, and the scale.
        self._by_id: dict[int, tuple[weakref.ref[Value], int, float]] = {}

    def put(self, gradient: Value, scale: float | None) -> None:
        """Mark a gradient, as it is now; with None, take its mark off."""
        key = id(gradient)
        if scale is None:
            self._by_id.pop(key, None)
            return
        # Nobody else gets the id before the callback has run.
        reference = weakref.ref(gradient, lambda _: self._by_id.pop(key, None))
        self._by_id[key] = (reference, writes_to(gradient), scale)

    @contextmanager
    def kept(self, gradient: Value) -> Iterator[None]:
        """Let a gradient be written to inside, by a factor or a bound, and have the mark that it had."""
        scale = self.of(gradient)
        yield
        self.put(gradient, scale)

    def of(self, gradient: Any) -> float | None:
        """Return the scale of a gradient; None if it is not known, or the gradient was written to since."""
        found = self._by_id.get(id(gradient))
        if found is None:
            return None
        reference, writes, scale = found
        marked = reference()
        return scale if marked is not None and marked is gradient and writes_to(marked) == writes else None

    def is_scaled(self, gradient: Any) -> bool:
        """Say whether a gradient, or a part of it, is that of a scaled loss, and was never unscaled."""
        return self.of(gradient) not in (None, UNSCALED, PLAIN)

    def search(
        self, targets: Sequence[Link], cotangents: Sequence[Any] = ()
    ) -> tuple[Graph | None, Mapping[int, float | None]]:
        """Return the graph of targets and, by id, the scales of what reaches its records and leaves from scaled losses.

        The graph is None if there never was a scaler. To be called before a sweep, which may free it.

        Args:
            targets: those that the sweep starts from.
            cotangents: what it starts with, if somebody gave that: it may be scaled instead of a loss. Where its scale
                is not known, neither is that of anything.
        """
        if not self.is_in_use:
            return None, {}
        graph = graph_of(targets)
        losses: dict[float, list[Record]] = {}
        for record in graph[0]:
            if record.notes is not None and record.notes.scale is not None:
                losses.setdefault(record.notes.scale, []).append(record)
        scales: dict[int, float | None] = {}
        for scale in {self.of(cotangent) for cotangent in cotangents if cotangent is not None}:
            _merge(scales, graph, scale)
        for scale, records in losses.items():
            _merge(scales, graph_of(records), scale)
        if losses:
            # What is reached past the scaled losses as well gets a part that is not scaled.
            _merge(scales, graph_of(targets, set().union(*losses.values())), PLAIN)
        return graph, scales

    def coming(self, leaves: Sequence[Value], scales: Mapping[int, float | None]) -> list[tuple[Value, float | None]]:
        """Return the scales that the gradients of leaves will have once more is added: what to give to `arrive` then.

        What hooks make of a gradient is theirs, and its scale is not known.

        Args:
            leaves: those that a gradient is on its way to.
            scales: what `search` has found.
        """
        found: list[tuple[Value, float | None]] = []
        for leaf in leaves if self.is_in_use else ():
            if leaf.extras is not None and leaf.extras.hooks:
                found.append((leaf, None))
                continue
            gradient = leaf.extras.grad if leaf.extras is not None else None
            before, added = self.of(gradient), scales.get(id(leaf), PLAIN)
            if gradient is None or (before in (None, UNSCALED, PLAIN) and not gradient.array.any()):
                found.append((leaf, added))  # Zeros have any scale.
            else:
                found.append((leaf, sum_of_scales(before, added)))
        return found

    def arrive(self, coming: Sequence[tuple[Value, float | None]]) -> None:
        """Mark the gradients of leaves to which something was added."""
        for leaf, scale in coming:
            assert leaf.extras is not None
            self.put(leaf.extras.grad, scale)


def sum_of_scales(a: float | None, b: float | None) -> float | None:
    """Return the scale of the sum of two gradients.

    What is not known, as of gradients that users wrote to, is taken for that of a scaled loss beside it.
    """
    if a is None or b is None:
        known = b if a is None else a
        return None if known in (PLAIN, UNSCALED) else known
    if {a, b} == {PLAIN, UNSCALED}:
        return UNSCALED
    return a if a == b else MIXED


def _merge(scales: dict[int, float | None], graph: Graph, scale: float | None) -> None:
    """Note that all of a graph is reached by cotangents of a scale."""
    for key in {id(link) for links in graph for link in links}:
        scales[key] = sum_of_scales(scales[key], scale) if key in scales else scale


marks = Marks()
