"""Search a graph for the first value that is not finite: forward among its values, backward among its cotangents.

A value may be infinite on purpose, as the -inf of a mask, and one that is not finite may be dropped on the way. So both
searches note for each value that is not finite where that began, and answer for the values that were asked about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.context import entered
from ..core.graph import collect
from ..core.reader import Reader
from ..core.recompute import Made, run_again
from ..core.record import Link, Record, link_name
from ..core.reverse import Cotangents, accumulate, fit, pull
from ..core.value import Value, array_of, wrap
from ..dtypes import HALF_DTYPES
from ..errors import GradientError
from . import birth
from .birth import Birth, is_finite
from .doubts import TOLERANCE, Doubts, Suspect, find_doubts, named, overwritten
from .replay import Obstacle, ObstacleMet, Replay, ReplayReader, argument_name, is_close

Origin = Birth | Obstacle


def search_values(records: Sequence[Record], known: Made) -> Origin | None:
    """Return where the last of some records, oldest first, got a value that is not finite; None if it is finite."""
    doubts = find_doubts(records, known)
    replay = Replay(records, known)
    origins: dict[Record, Origin] = {}
    for record, out in replay.walk():
        if out is None:
            # Nobody can say what it was; what was not finite before may have come this way.
            origins.update((record, each) for each in _births_before(record, origins)[:1])
        elif not is_finite(out):
            if doubts is not None and record in doubts.differing:
                origins[record] = _differing_origin(record, out, origins, doubts)
            else:
                origins[record] = _origin(record, out, replay, origins, record in known)
    origin = origins.get(records[-1])
    return _judged(origin, doubts, doubts.around(origin.record)) if doubts is not None and origin else origin


def _differing_origin(record: Record, out: Any, origins: dict[Record, Origin], doubts: Doubts) -> Origin:
    """Return where an output that is not finite, and that is other than what is computed again, began."""
    sure = [each for each in _births_before(record, origins) if not doubts.around(each.record)]
    return sure[0] if sure else doubts.obstacle(record, out)


def _judged(origin: Origin, doubts: Doubts, suspects: set[Suspect]) -> Origin:
    """Return an origin that was computed from operands which may have been written since, as sure as it is."""
    if isinstance(origin, Obstacle) or not suspects:
        return origin
    for record, behind in doubts.differing.items():
        if behind & suspects:
            return doubts.obstacle(record)
    return replace(origin, unsure=named(suspects))


def _origin(record: Record, out: Any, replay: Replay, origins: dict[Record, Origin], is_known: bool) -> Origin:
    """Return where an output that is not finite began: with an operand, or here."""
    born = _births_before(record, origins)
    if born:
        return born[0]
    met = [origins[link] for link in record.inputs if type(link) is Record and link in origins]
    inputs = [
        birth.given(record, position, array, out)
        for position, array in enumerate(replay.own_operands(record))
        if not is_finite(array)
    ]
    for each in inputs:
        if not _is_meant(each):
            return each
    obstacle = replay.obstacle_of(record) or next((each for each in met if isinstance(each, Obstacle)), None)
    if obstacle is not None:
        return obstacle
    infinity = next((each for each in (*met, *inputs) if isinstance(each, Birth)), None)
    if infinity is not None and not _has_nan(out):
        return infinity
    if is_known and record.op.facts.deterministic and is_finite(run_again(record, replay.made)):
        return Obstacle(
            record,
            f"computed again, the result of {record.op.name} at {record.site} is finite: memory that was read, and is "
            "shared with NumPy, was written since",
            "ask before it is written, or copy it: nt.tensor(array) instead of nt.from_numpy(array).",
        )
    return birth.computed(record, replay.operands(record), out, infinity)


def _births_before(record: Record, origins: dict[Record, Origin]) -> list[Birth]:
    """Return where the operands of a record stopped being finite, earliest first, but not what was meant to be so."""
    met = [origins.get(link) for link in record.inputs if type(link) is Record]
    found = [each for each in met if isinstance(each, Birth) and not _is_meant(each)]
    return sorted(found, key=lambda each: each.record.index)


def _is_meant(origin: Birth) -> bool:
    """Say whether an operand is infinite on purpose, as far as one can tell: it is no parameter, and holds no NaN."""
    if origin.how != "given" or np.isnan(origin.value):
        return False
    assert origin.position is not None
    return not origin.record.needs >> origin.position & 1


def behind(origin: Birth, known: Made) -> Birth:
    """Return where an operand that a derivative has read stopped being finite, if one had; else the origin itself."""
    if origin.direction == "forward" or origin.how != "computed":
        return origin
    seen = {each.name: each for each in origin.operands}
    for position, link in enumerate(origin.record.inputs):
        operand = seen.get(argument_name(origin.record, position))
        if type(link) is Record and operand is not None and not operand.is_finite:
            found = search_values(collect([link])[::-1], known)
            if isinstance(found, Birth) and not _is_meant(found):
                return replace(found, read_by=origin)
    return origin


def _has_nan(out: Any) -> bool:
    return any(map(_has_nan, out)) if isinstance(out, tuple) else bool(np.isnan(out).any())


class Trail:
    """What a reverse sweep shows of cotangents that are not finite: where each of them began."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        #: For each link whose cotangent is not finite, where that began.
        self.origins: dict[Link, Birth] = {}
        self._passed: set[Record] = set()
        #: For each leaf the last rule that added to its gradient, which is rounded, added up and hooked at the end.
        self.last: dict[Value, tuple[Record, int]] = {}

    def step(self, record: Record, g: Any, cotangents: Cotangents) -> None:
        """Look at a record that the sweep has passed, its cotangent, and those that have arrived at its operands."""
        before = None
        if not is_finite(g):
            if record not in self.origins:
                self.origins[record] = birth.arrived(record, g)
            before = self.origins[record]
            self._passed.add(record)
        for position, link in enumerate(record.inputs):
            if not record.needs >> position & 1:
                continue
            if link not in self.origins and not is_finite(cotangents.get(link)):
                self.origins[link] = before or birth.pulled(record, position, g, cotangents[link], self._reader)
            if isinstance(link, Value):
                self.last[link] = (record, position)

    def ends(self, cotangents: Cotangents) -> dict[Link, Birth]:
        """Return where the gradients that are not finite began, for each source that has one."""
        found = {link: origin for link, origin in self.origins.items() if link not in self._passed}
        for leaf, (record, position) in self.last.items():
            gradient = array_of(cotangents.get(leaf)) if leaf.dtype in HALF_DTYPES else None
            if leaf not in found and gradient is not None and not is_finite(gradient.astype(leaf.dtype)):
                found[leaf] = birth.rounded(record, position, gradient, leaf.dtype)
        return found

    def sums(self, cotangents: Cotangents) -> dict[Link, Birth]:
        """Return where gradients are finite, but not their sums with what earlier backwards left in ``.grad``."""
        found: dict[Link, Birth] = {}
        for leaf, (record, position) in self.last.items():
            earlier = leaf.extras.grad if leaf.extras is not None and leaf.requires_grad else None
            gradient = array_of(cotangents.get(leaf))
            if earlier is None or gradient is None or not is_finite(earlier) or gradient.shape != leaf.shape:
                continue
            with np.errstate(all="ignore"):
                if not is_finite((earlier.array + gradient).astype(leaf.dtype)):
                    total = earlier.array.astype(np.float64) + gradient
                    found[leaf] = birth.added(record, position, total, leaf.dtype)
        return found


def first_of(found: dict[Link, Birth]) -> Birth | None:
    """Return the origin that the sweep met first."""
    return max(found.values(), key=lambda each: each.record.index, default=None)


def has_hooks(records: Sequence[Record]) -> bool:
    """Say whether records, or leaves that they read, have hooks."""
    links = (link for record in records for link in record.inputs if isinstance(link, Value))
    return any(record.notes is not None and record.notes.hooks for record in records) or any(map(leaf_hooks, links))


def leaf_hooks(leaf: Any) -> dict[int, Any] | None:
    """Return the hooks of a leaf; None for what has none."""
    return leaf.extras.hooks if isinstance(leaf, Value) and leaf.extras is not None else None


def search_cotangents(
    records: Sequence[Record],
    seed: Any,
    known: Made,
    wanted: Link | None = None,
    calls_hooks: bool = False,
    delivered: Mapping[Value, NDArray] | None = None,
) -> Origin | None:
    """Return where a gradient of the first of some records, newest first, stops being finite; None if none does.

    The sweep runs on arrays that are made again where need be. It delivers nothing and frees nothing.

    Args:
        records: the records behind the target, which is the first of them.
        seed: its cotangent.
        known: outputs that the caller has.
        wanted: the leaf, or the record, whose gradient is asked about; None for all leaves.
        calls_hooks: whether hooks are called, as the backward did.
        delivered: the gradients that a backward of the target has given to leaves; None if there was no backward.
    """
    cotangents: Cotangents = {records[0]: fit(seed, records[0])}
    trail = follow(records, cotangents, known, calls_hooks)
    if isinstance(trail, Obstacle | Birth):
        return trail
    ends = trail.ends(cotangents)
    for leaf, place in trail.last.items() if calls_hooks else ():
        hooks = leaf_hooks(leaf)
        if hooks and leaf in cotangents and leaf not in ends:
            g = _after(hooks, leaf.plain, cotangents[leaf])
            if not is_finite(g):
                ends[leaf] = birth.hooked(*place, g)
    origin = first_of(ends) if wanted is None else ends.get(wanted) or trail.origins.get(wanted)
    if origin is None or delivered is None:
        return origin  # What a backward would read is what is there now.
    doubts = find_doubts(records[::-1], known)
    return origin if doubts is None else _compared(origin, doubts, records[::-1], cotangents, delivered)


def _compared(
    origin: Birth, doubts: Doubts, records: Sequence[Record], cotangents: Cotangents, delivered: Mapping[Value, NDArray]
) -> Origin:
    """Return an origin among records, oldest first, as sure as the gradients that were delivered make it."""
    for leaf, gradient in delivered.items():
        again = array_of(cotangents.get(leaf))
        if again is None or again.shape != gradient.shape:
            continue
        suspects = doubts.around(origin.record, records)
        if suspects and np.any(np.isfinite(gradient) & ~np.isfinite(again)):
            what = f"computed again, the gradient of {link_name(leaf)} is not what it was"
            return overwritten(what, suspects, gradient)
        if is_close(again.astype(leaf.dtype), gradient, TOLERANCE):
            doubts.clear(suspects, gradient)
    judged = _judged(origin, doubts, doubts.around(origin.record, records))
    bad = next((gradient for gradient in delivered.values() if not is_finite(gradient)), None)
    if isinstance(judged, Obstacle) and bad is not None:
        index, value = birth.first_bad(bad)
        return replace(judged, index=index, value=value)
    return judged


def follow(records: Sequence[Record], cotangents: Cotangents, known: Made, calls_hooks: bool = False) -> Trail | Origin:
    """Sweep over records, newest first, from some cotangents, and return what it shows, or where it had to end.

    What arrives at anything but these records stays in `cotangents`.
    """
    reader = ReplayReader(records, known)
    trail = Trail(reader)
    with reader:
        for record in records:
            g = cotangents.pop(record, None)
            if g is None:
                continue
            if calls_hooks and record.notes is not None and record.notes.hooks is not None:
                g = _after(*record.notes.hooks, g)
            try:
                produced = pull(record, g, reader)
            except (ObstacleMet, GradientError) as error:
                # What the sweep has seen so far is true, whatever comes after.
                obstacle = (
                    error.obstacle if isinstance(error, ObstacleMet) else Obstacle(record, str(error).rstrip("."))
                )
                return first_of(trail.ends({})) or replace(obstacle, lead=_lead(records, reader))
            for link, cotangent in zip(record.inputs, produced, strict=True):
                if cotangent is not None:
                    accumulate(cotangents, link, cotangent)
            trail.step(record, g, cotangents)
            reader.pass_by(record)
    return trail


def _after(hooks: dict[int, Any], cls: type[Value], g: Any) -> Any:
    """Return what hooks make of a cotangent. They may compute, but nothing is recorded."""
    with entered(grad=False):
        for hook in list(hooks.values()):
            result = hook(wrap(cls, g))
            g = g if result is None else array_of(result)
    return g


def _lead(records: Sequence[Record], reader: Reader) -> Birth | None:
    """Return the first of some records, newest first, with a derivative that is not finite, as far as one can see."""
    for record in records:
        try:
            found = birth.suspected(record, reader)
        except (ObstacleMet, GradientError):
            continue
        if found is not None:
            return found
    return None
