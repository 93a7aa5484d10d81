"""Look into a loop that is one record: run its steps again, for the one in which a value stops being finite.

A loop is known by what it offers: its `length`; the states that it `kept`, each with the number of its step, and the
arrays `held()` by them; and, inside of `replaying()`, `steps_from(kept, end)`, which runs steps again as they ran
first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.gradients import link_of
from ..core.graph import collect
from ..core.record import Record, next_index
from ..core.reverse import accumulate
from ..core.scopes import aside
from ..errors import GradientError
from .birth import Birth, is_finite
from .search import Origin, Trail, first_of, follow, search_values


@dataclass(frozen=True)
class InStep:
    """What was found in a step of a loop, and the records of that step."""

    number: int
    length: int
    origin: Origin
    records: Sequence[Record]


def look_inside(birth: Birth) -> InStep | None:
    """Return in which step of a loop a value began; None if its record is no loop, or no step shows it."""
    if birth.how != "computed":
        return None
    loop = loop_of(birth.record)
    if loop is None:
        return None
    search = _search_values if birth.direction == "forward" else _search_cotangents
    try:
        with loop.replaying(), aside(grad=True, observers=()):
            return search(loop, birth)
    except GradientError:  # What steps captured was overwritten since.
        return None


def loop_of(record: Record) -> Any:
    """Return the loop that a record ran; None if it ran none."""
    return next((each for each in (record.params or {}).values() if _is_loop(each)), None)


def _is_loop(parameter: Any) -> bool:
    return all(hasattr(parameter, name) for name in ("held", "kept", "length", "replaying", "steps_from"))


@dataclass(frozen=True)
class _Step:
    """A step that ran again: the tensors that it began with, those that it made, and its first index."""

    number: int
    start: list[Any]
    made: list[Any]
    oldest: int

    def records(self, links: list[Any]) -> list[Record]:
        """Return its records behind some links, newest first, without those of what it captured."""
        return [record for record in collect(links) if record.index > self.oldest]


def _steps(loop: Any, kept: Any, end: int) -> Iterator[_Step]:
    """Run steps again, from a state that was kept on."""
    oldest = next_index()
    for number, start, made in loop.steps_from(kept, end):
        yield _Step(number, start, made, oldest)
        oldest = next_index()


def _search_values(loop: Any, birth: Birth) -> InStep | None:
    for step in _steps(loop, loop.kept[0], loop.length):
        for made in step.made:
            if not is_finite(made.array) and type(made.node) is Record:
                records = step.records([made.node])
                origin = search_values(records[::-1], {made.node: made.array}) if records else None
                return None if origin is None else InStep(step.number, loop.length, origin, records)
    return None


def _search_cotangents(loop: Any, birth: Birth) -> InStep | None:
    cotangents = list(birth.g) if isinstance(birth.g, list | tuple) else [birth.g]
    end = loop.length
    for kept in reversed(loop.kept):
        for step in reversed(list(_steps(loop, kept, end))):
            waiting: dict[Any, Any] = {}
            for made, g in zip(step.made, cotangents, strict=True):
                if g is not None and made.node is not None:
                    accumulate(waiting, link_of(made), g)
            records = step.records(list(waiting))
            found = follow(records, waiting, {})
            origin = first_of(found.ends(waiting)) if isinstance(found, Trail) else found
            if origin is not None:
                return InStep(step.number, loop.length, origin, records)
            cotangents = [waiting.get(tensor) for tensor in step.start]
        end = kept.number
    return None
