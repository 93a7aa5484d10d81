"""Plan a backward over a checkpointed graph: see what it will hold, and drop more until that stays within a budget."""

import itertools
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from ..core.record import Record, warn_user
from ..errors import MemoryBudgetError
from .account import as_megabytes
from .dropping import Dropping
from .walking import Backward, Known, Outcome, Walk


@dataclass(frozen=True)
class Plan:
    """What a tape keeps, and what its backward will do. `str` shows it as a small table."""

    #: The records whose values are kept at the end of the forward, and their bytes.
    kept: int
    kept_bytes: int
    #: The records that will run again, counted as often as they do.
    recomputed: int
    #: The most that values kept, made again and carried back took so far and will take.
    peak_bytes: int
    #: The time that running again will take, by what the ops took the first time.
    extra_seconds: float
    #: The time that the forward's ops took.
    forward_seconds: float

    def __str__(self) -> str:
        share = self.extra_seconds / self.forward_seconds if self.forward_seconds else 0.0
        return "\n".join(
            [
                f"kept             {self.kept:,} values, {as_megabytes(self.kept_bytes)}",
                f"recomputed       {self.recomputed:,} ops",
                f"predicted peak   {as_megabytes(self.peak_bytes)}",
                f"predicted extra  {self.extra_seconds * 1e3:.3f} ms ({share:.2f} times the forward's ops)",
            ]
        )


class Prepared(NamedTuple):
    """A plan for a backward, to be used again as long as nothing changes: a second search may end elsewhere."""

    key: Hashable
    #: The bytes that were alive.
    live: int
    outcome: Outcome


#: What the prediction may exceed a budget by.
_TOLERANCE = 1.02
#: The least is looked for in steps of this factor, ...
_STEP = 0.96
#: ... so many, fewer if there are many records: how many of these all walks together may pass.
_FEWEST_WALKS, _MOST_WALKS, _PASSED = 10, 40, 40_000
#: What exceeds a budget by less than this is looked at once more.
_NEAR = 1.05
#: What exceeds it by less than this is looked at to its end, so that a message may name it.
_SEEN = 1.5
#: What is named on that ground is more by this factor: with a little more, other values are kept.
_MARGIN = 1.1
#: The shares of a budget that are tried where the whole of it is exceeded.
_SHARES = (1.0, 0.95, 0.85, 0.75, 0.65, 0.5)


def plan(scope: Dropping, backward: Backward) -> Plan:
    """Return what a backward will do, within the budget if there is one."""
    found = Walk(scope, backward, None).run() if scope.budget is None else prepare(scope, backward)
    records = backward.records
    return Plan(
        sum(record.is_kept for record in records),
        found.kept_bytes,
        found.recomputed,
        max(found.peak, scope.account.buffers.peak),
        found.seconds,
        sum(scope.seconds.get(record, 0.0) for record in records),
    )


def prepare(scope: Dropping, backward: Backward) -> Outcome:
    """Return how a backward stays within the budget; more is dropped if it would not as things are.

    Raise if there is none, and name the least budget that would do.
    """
    with scope.planning:
        return _prepare(scope, backward)


def _prepare(scope: Dropping, backward: Backward) -> Outcome:
    budget = scope.budget
    assert budget is not None
    if scope.account.shortage is not None:
        raise_shortage(scope, backward)
    if backward.is_recorded:
        warn_user(
            "memory_budget_mb: this backward is recorded, to be differentiated again; what its own graph holds is not "
            "bounded by the budget.",
        )
    key, live = _key_of(backward), scope.account.buffers.live
    prepared = scope.prepared
    if prepared is None or prepared.key != key or prepared.live < live:
        prepared = scope.prepared = Prepared(key, live, _within_budget(scope, backward, budget))
    # A sweep takes the decisions out one by one, and there may be another.
    scope.account.plan = {index: list(decided) for index, decided in prepared.outcome.decisions.items()}
    return prepared.outcome


def _key_of(backward: Backward) -> Hashable:
    """Return what tells a backward from others, without holding anything of it."""

    def names(links: Iterable[Any] | None) -> Hashable:
        found = None if links is None else (link.index if type(link) is Record else -id(link) for link in links)
        return None if found is None else frozenset(found)

    indices = tuple([record.index for record in backward.records])
    return indices, backward.frees, backward.is_recorded, names(backward.keeps), *map(names, backward.way)


def _within_budget(scope: Dropping, backward: Backward, budget: float) -> Outcome:
    """Drop what it takes to stay within the budget, and return how a backward does; raise if no way is found."""
    most = budget * _TOLERANCE
    found = Walk(scope, backward, budget, most).run()
    # What it takes with more kept than where all that can be was dropped, if that turns out to be less.
    least = math.inf
    if found.peak > most and (idle := scope.idle_pins()):
        excess = Walk(scope, backward, budget).run().peak - most
        if sum(map(scope.account.size, idle)) >= excess:  # So that nothing need be made again.
            scope.unpin(idle)
            found = Walk(scope, backward, budget, most).run()
    while found.peak > most and scope.thin():
        found = Walk(scope, backward, budget, _SEEN * most).run()
        if found.is_whole:
            least = min(least, found.peak)
    found = _closer(scope, backward, budget, most, found)
    # More was dropped since, so that other values may be of no use now.
    if found.peak > most and (idle := scope.idle_pins()):
        scope.unpin(idle)
        found = _closer(scope, backward, budget, most, found)
    if found.peak > most:
        least = max(scope.account.least, min(_MARGIN * least, found.peak))
        raise MemoryBudgetError(
            f"memory_budget_mb: a backward over {len(backward.records):,} records takes "
            f"{as_megabytes(least, is_least=True)} at least, and {as_megabytes(budget)} were given; give at least "
            "that, or a smaller batch."
        )
    return found


def _closer(scope: Dropping, backward: Backward, budget: float, most: float, found: Outcome) -> Outcome:
    """Return how a backward stays within `most`, or takes the least, where there is nothing more to drop."""
    for share, is_tight in itertools.product(_SHARES, (True, False)):
        if found.peak > most:  # Not all that a backward holds can be told before: aim lower.
            found = Walk(scope, backward, budget * share, most, is_tight).run()
    if found.peak > most:
        found = _least(scope, backward)
    if most < found.peak < most * _NEAR:  # As may be for a budget that was named where other values were kept.
        found = _least(scope, backward, finer=4)
    return found


def _least(scope: Dropping, backward: Backward, finer: int = 1) -> Outcome:
    """Return how a backward takes the least if everything was dropped.

    It does not depend on the budget: what one has room for, a larger one has, too. It is looked for in steps that are
    `finer` by a factor.
    """
    known = Known()
    least = Walk(scope, backward, 0.0, known=known).run()
    budget = float(least.peak)
    for _ in range(finer * max(_FEWEST_WALKS, min(_MOST_WALKS, _PASSED // len(backward.records)))):
        budget *= _STEP ** (1 / finer)
        for is_tight in (False, True):
            found = Walk(scope, backward, budget, least.peak * 0.99, is_tight, known).run()
            if found.is_whole:  # Otherwise it would have taken more.
                least = found
    return least


def raise_shortage(scope: Dropping, backward: Backward) -> NoReturn:
    """Raise because the forward did not stay within the budget; name the least that would do for it and a backward."""
    budget, account = scope.budget, scope.account
    assert budget is not None
    least = max(account.least, _least(scope, backward).peak)
    raise MemoryBudgetError(
        f"memory_budget_mb: {account.shortage}, and {as_megabytes(budget)} were given; forward and backward take "
        f"{as_megabytes(least, is_least=True)} at least. Tensors that the program still holds count, and states that "
        "loops keep."
    )
