"""Run the steps of a loop again: for its derivatives, from the states that were kept."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.binomial import best_step
from ..core.cells import FREED
from ..core.context import current, entered
from ..core.effects import undoing
from ..core.gradients import link_of
from ..core.record import Record
from ..core.reverse import reverse
from ..core.scopes import Scope, reaching_all
from ..core.tape import watching
from ..core.value import Value
from ..errors import GradientError
from .loop_op import pushed
from .loop_records import Forgetful
from .loop_states import (
    Snapshot,
    checksum,
    detached,
    snapshot,
    tensors_of,
    tracked,
    with_tensors,
)
from .loop_steps import Steps
from .loop_strangers import Strangers, raise_strange
from .loop_watching import Watcher


class Replays(Steps):
    """A loop that ran: how to run it again."""

    @contextmanager
    def replaying(self) -> Iterator[Strangers]:
        """Undo what steps change when they run again, and let captured tensors be tracked, whatever happens inside.

        Yields what looks out for tensors that steps did not capture when they ran first.
        """
        self.outside.check()
        strangers = Strangers(self.outside)
        places = {stream: stream.place() for stream in self.streams}
        try:
            with watching(self.captured), undoing(keeps_new=True), self.outside.running():
                yield strangers
        finally:
            strangers.settle()
            for stream, place in places.items():
                stream.go_to(place)

    def as_first(self) -> entered:
        """Return the surroundings that a step runs in when it runs again on the tape: those of its first run."""
        tapes = (Forgetful(self.watches_all, self.left_out),) if self.is_on_tape else ()
        return entered(
            grad=True,
            tapes=tapes,
            watch_all=self.watches_all,
            transforms=self.transforms,
            scopes=self.replay_scopes(),
        )

    def as_recorded(self) -> entered:
        """Return the surroundings of steps that run again to be differentiated: those of the first run, as well."""
        state = current()
        tapes = (Forgetful(self.watches_all, self.left_out), *state.tapes) if self.is_on_tape else state.tapes
        return entered(
            tapes=tapes,
            watch_all=self.watches_all,
            transforms=self.transforms,
            scopes=(*state.scopes, *self.scopes),
        )

    def replay_scopes(self) -> tuple[Scope, ...]:
        """Return the scopes that steps run in again: those that reach all, and those of their dtypes."""
        return (*reaching_all(current().scopes), *self.scopes)

    def go_back(self, start: Snapshot) -> None:
        """Let random streams stand where they stood before a step, whose state must be what it was."""
        start.check()
        current().thread.stream = start.stream.copy()
        for stream, first in self.streams.items():
            stream.go_to(start.places.get(stream, first))

    def steps_from(self, start: Snapshot, end: int) -> Iterator[tuple[int, list[Any], list[Any]]]:
        """Run steps again on the tape; yield the number of each, the leaves that it began with, and what it made."""
        self.go_back(start)
        state = start.state
        for number in range(start.number, end):
            before = tracked(state)
            state = self.call(before, number)
            self.ask_again(state)
            yield number, tensors_of(before), tensors_of(state)

    def pull(self, cotangents: Sequence[Any], strangers: Strangers) -> list[Any]:
        """Return the cotangents of the first state's tensors and of captured tensors, given those of the last."""
        assert self.length is not None
        moved = list(cotangents)
        totals: list[Any] = [None] * len(self.captured)
        # Taken over, so that there are never more than asked for; another backward starts from the first one.
        kept, self.kept = self.kept, self.kept[:1]
        end = self.length
        while end:
            top = kept[-1]
            if top.number == end:
                kept.pop()
                continue
            free = self.snapshots - len(kept)
            units = end - top.number
            if units > 1:
                ahead = best_step(units, free) if free > 0 else units - 1
                top = self.advance(top, ahead, strangers)
                if free > 0:
                    kept.append(top)
                    continue
            moved = self._pull_step(top, moved, totals, strangers)
            end -= 1
        return [*moved, *totals]

    def run_again(self, start: Any, number: int, strangers: Strangers) -> Any:
        """Run a step again, on the tape, and return what it gave."""
        before = self.draws.places()
        watcher, after = self.watch(start, number, strangers)
        has_drawn = self.draws.go_on(number, before)
        parts = self._compare(number, after, watcher, strangers)
        if not has_drawn:
            raise GradientError(
                f"checkpoint_loop: step {number} of {self.name} drew other random numbers when it ran again for the "
                "backward, since it has kept some that it drew first. Draw these before the loop, or each time that "
                "the step runs."
            )
        if parts:
            after = with_tensors(after, [parts.get(i, part) for i, part in enumerate(tensors_of(after))])
        self.ask_again(after)
        return after

    def _run_again(self, state: Any, number: int, strangers: Strangers) -> tuple[Any, Any]:
        """Run a step again by itself; return the leaves that it began with, and what it gave."""
        start = tracked(state)
        after = self.run_again(start, number, strangers)
        for tape in current().tapes:  # What was watched because the step has used it ends with the step.
            tape.unwatch_used()
        return start, after

    def advance(self, start: Snapshot, steps: int, strangers: Strangers) -> Snapshot:
        """Run steps again, and return the state after them."""
        state = start.state
        self.go_back(start)
        for number in range(start.number, start.number + steps):
            state = detached(self._run_again(state, number, strangers)[1])
        return snapshot(state, start.number + steps, self.streams)

    def _pull_step(self, start: Snapshot, moved: list[Any], totals: list[Any], strangers: Strangers) -> list[Any]:
        """Run a step on the tape, pull cotangents through it, and add to those of captured tensors."""
        self.go_back(start)
        state, after = self._run_again(start.state, start.number, strangers)
        sources = [*map(link_of, tensors_of(state)), *map(link_of, self.captured)]
        seeds = [
            (link_of(out), g) for out, g in zip(tensors_of(after), moved, strict=True) if g is not None and out.node
        ]
        if not seeds:
            return [None] * len(tensors_of(state))
        captured = list(map(link_of, self.captured))
        # What has arrived is added to, one by one, as without the loop; afterwards where a backward has freed what it
        # would begin with, which only a search for NaNs gets to.
        freed = {link for link in captured if type(link) is Record and link.cell is FREED}
        arrived = zip(captured, totals, strict=True)
        seeds += [(link, total) for link, total in arrived if total is not None and link not in freed]
        found = reverse(seeds, sources, ends=set(captured))
        for i, link in enumerate(captured):
            g = found.get(link)
            if link not in freed or totals[i] is None:
                totals[i] = g
            elif g is not None:
                totals[i] = totals[i] + g
        return [found.get(link_of(x)) for x in tensors_of(state)]

    def push(self, t: Any, index: int, strangers: Strangers) -> tuple[list[Any], Any]:
        """Return the tangents of the last state's tensors, given that of one tensor of the first state or captured.

        Also returns that state.
        """
        start = self.kept[0]
        self.go_back(start)
        state = start.state
        count = len(tensors_of(state))
        moved: list[Any] = [t if i == index else None for i in range(count)]
        always = [(link_of(self.captured[index - count]), t)] if index >= count else []
        for number in range(self.length or 0):
            before, after = self._run_again(state, number, strangers)
            sources = [*map(link_of, tensors_of(before)), *map(link_of, self.captured)]
            state = detached(after)
            seeds = [(link, part) for link, part in zip(sources, moved, strict=False) if part is not None]
            moved = pushed([*seeds, *always], after, set(sources))
        return moved, state

    def _finds_shared(self, number: int, watcher: Watcher) -> bool:
        """Say whether a step that ran again took the constants that it shares with others, in their order."""
        shared, again = self.shared[number], iter(watcher.in_order)
        return shared <= watcher.constants and all(each in again for each in self.in_order[number] if each in shared)

    def _compare(self, number: int, state: Any, watcher: Watcher, strangers: Strangers) -> dict[int, Value]:
        """Raise if a step that ran again did something else; return the parts of its state that stand for others."""
        name = self.name
        if watcher.trace != self.traces[number]:
            raise GradientError(
                f"checkpoint_loop: step {number} of {name} ran other ops, or on other shapes, or with other "
                "parameters, or with other tensors of its own, when it ran again for the backward. A step must depend "
                "on its state, its number and what does not change; keep what changes in the state."
            )
        if watcher.strange is not None:
            raise_strange(watcher.strange)
        parts, is_found = strangers.find(watcher.places, self.numbers[number])
        if not is_found or watcher.taken != self.taken[number] or not self._finds_shared(number, watcher):
            strangers.check()
            raise GradientError(
                f"checkpoint_loop: step {number} of {name} took other tensors from outside when it ran again for the "
                "backward. A step that captures a variable sees what this holds then; bind it (lambda s, w=w: ...), or "
                "put it into the state."
            )
        if self.verify and checksum(state, watcher.values) != self.values[number]:
            raise GradientError(
                f"checkpoint_loop: step {number} of {name} gave other values when it ran again for the backward. Draw "
                "random numbers with nt, and keep what changes in the state."
            )
        return parts
