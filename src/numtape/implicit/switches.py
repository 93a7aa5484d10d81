"""Notice a right side that jumps where a comparison in it turns: derivatives do not see when that happens."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._typing import NDArray
from ..core.effects import undoing
from ..core.record import warn_user
from ..core.scopes import Scope
from ..core.value import array_of, wrap
from ..tensors import Tensor
from .capturing import alone
from .equations import Space
from .runge_kutta import Leaves
from .solvers import norm

#: How many times of the solution are compared, and how many turns are looked at.
_MOST_TIMES = 64
_MOST_TURNS = 4
#: How often the way to a turn is halved.
_HALVINGS = 40
#: From which part of the slope on a jump counts.
_JUMP = 1e-4


class _Outcomes(Scope):
    """Notes the results of ops that have no derivative, such as comparisons."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def around(self, op: Any, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute the op, and note its result."""
        out = compute(op, arrays, params)
        if op.facts.is_discrete:
            self.seen.append(np.asarray(out).tobytes())
        return out


class _Place(NamedTuple):
    """A point of the solution: what comparisons say there, and the slope."""

    t: float
    y: NDArray
    outcomes: list[bytes]
    slope: NDArray


def warn_of_jumps(
    title: str, field: Callable[[Any, Leaves], Leaves], space: Space, times: Sequence[float], found: Sequence[NDArray]
) -> None:
    """Warn if comparisons in f turn between two times of a solution, and the slope jumps there.

    Where it is continuous nothing is missed, as by ``where(y > 0, y, 0)``.

    Args:
        title: of f.
        field: f as a function of the time and of the leaves of y.
        space: of y.
        times: of the solution.
        found: for each leaf its values at all times.
    """

    def at(t: float, y: NDArray) -> _Place:
        with _Outcomes() as outcomes:
            slope = field(t, [wrap(Tensor, part) for part in space.split(y)])
        return _Place(t, y, outcomes.seen, space.join([array_of(part) for part in slope]))

    def between(a: _Place, b: _Place) -> tuple[_Place, bool]:
        """Return a place right after the first turn on the way, and whether the slope jumps there."""
        for _ in range(_HALVINGS):
            if not _is_jump(a.slope, b.slope):
                return b, False
            middle = at(0.5 * (a.t + b.t), 0.5 * (a.y + b.y))
            a, b = (middle, b) if middle.outcomes == a.outcomes else (a, middle)
        return b, _is_jump(a.slope, b.slope)

    def jump() -> tuple[float, float] | None:
        """Return two times between which the slope jumps, if there are such."""
        here = at(times[0], space.join([part[0] for part in found]))
        if not here.outcomes:
            return None
        turns = 0
        for index in np.unique(np.linspace(1, len(times) - 1, _MOST_TIMES).astype(int)):
            start, there = here.t, at(times[index], space.join([part[index] for part in found]))
            while here.outcomes != there.outcomes and turns < _MOST_TURNS:
                turns += 1
                here, is_jump = between(here, there)
                if is_jump:
                    return start, there.t
            here = there
        return None

    with undoing(), alone(grad=False), np.errstate(all="ignore"):
        try:
            where = jump()
        except Exception:  # What was solved is not refused because f knows no other points.
            return
    if where is not None:
        warn_user(
            f"{title} jumps between t={where[0]:g} and t={where[1]:g}, where a comparison in it turns. Derivatives "
            "take the time of a jump as fixed: if it depends on what is differentiated by, they miss its part. "
            "Integrate up to the jump, find its time by nt.implicit.root, and go on from there.",
        )


def _is_jump(before: NDArray, after: NDArray) -> bool:
    size = max(norm(before), norm(after))
    return norm(after - before) > _JUMP * size
