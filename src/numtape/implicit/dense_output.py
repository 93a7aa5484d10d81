"""A solution of a differential equation that can be asked at any time, and differentiated."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.value import Value, wrap
from ..errors import ArgumentError, ShapeError
from ..ops import stack
from ..tensors import Tensor
from .equations import Space
from .runge_kutta import Leaves, Method, moved
from .trajectories import NAME, Step


class Solution:
    """What `odeint` returns with ``dense=True``: call it with a time, or with a vector of times.

    Between the ends of a step it is the polynomial that belongs to the method, of order 4 for dopri5 and 3 for rk4. It
    is differentiable by all that the solution depends on, and by the time.

    Attributes:
        t: the times that were asked for.
        y: the solution there, as `odeint` returns it otherwise.
        steps: the number of steps.

    Example:
        >>> solution = nt.implicit.odeint(lambda t, y: -y, 1.0, [0.0, 1.0], dense=True)
        >>> bool(abs(solution(0.5) - np.exp(-0.5)) < 1e-6)
        True
    """

    def __init__(self, space: Space, method: Method, times: Sequence[float], y: Any, steps: Sequence[Step]) -> None:
        self.t = np.array(times)
        self.y = y
        self.steps = len(steps)
        self._space = space
        self._method = method
        self._steps = list(steps)
        self._direction = 1.0 if times[-1] >= times[0] else -1.0
        self._starts = self._direction * np.array([_number(taken.t) for taken in steps])

    def __repr__(self) -> str:
        return f"<solution by {self._method.name} from t={self.t[0]:g} to {self.t[-1]:g} in {self.steps} steps>"

    def __call__(self, t: Any) -> Any:
        """Return y at a time, or at each of a vector of times along a leading axis."""
        shape = np.shape(t)
        if len(shape) > 1:
            raise ShapeError(f"{NAME}: a solution is asked at a time or at a vector of them, not at shape {shape}.")
        found = [self._at(each) for each in (list(t) if shape else [t])]
        if not shape:
            parts = found[0]
        elif found:
            parts = [stack(list(leaves)) for leaves in zip(*found, strict=True)]
        else:
            spaces = zip(self._space.shapes, self._space.dtypes, strict=True)
            parts = [wrap(Tensor, np.zeros((0, *each), dtype)) for each, dtype in spaces]
        if self._space.has_tensors or isinstance(t, Value) or any(part.node is not None for part in parts):
            return self._space.as_tree(parts)
        arrays = [part.array for part in parts]
        return self._space.as_tree(arrays) if shape else self._space.as_given(arrays)

    def _at(self, t: Any) -> Leaves:
        number = _number(t)
        first, last = sorted((self.t[0], self.t[-1]))
        if not first <= number <= last or not self._steps:
            raise ArgumentError(f"{NAME}: the solution is known from t={first:g} to {last:g}, not at {number:g}.")
        index = max(0, int(np.searchsorted(self._starts, self._direction * number, side="right")) - 1)
        taken = self._steps[index]
        x = (t - taken.t) / taken.h
        if not isinstance(x, Value):
            return moved(taken.y, taken.h, _weights(self._method, float(x)), taken.stages)
        return self._at_tensor(taken, x)

    def _at_tensor(self, taken: Step, x: Any) -> Leaves:
        """Return y where the part of the step is itself differentiated by."""
        weights = [_polynomial(row, x) for row in self._method.interpolant]
        found = []
        for position, part in enumerate(taken.y):
            terms = [w * stage[position] for w, stage in zip(weights, taken.stages, strict=True) if w is not None]
            found.append(part + taken.h * sum(terms[1:], terms[0]))
        return found


def _number(t: Any) -> float:
    return float(t.array if isinstance(t, Value) else t)


def _weights(method: Method, x: float) -> list[float]:
    powers: NDArray = x ** np.arange(1, len(method.interpolant[0]) + 1)
    return [float(row @ powers) for row in np.array(method.interpolant)]


def _polynomial(row: Sequence[float], x: Any) -> Any:
    """Return the value of a polynomial without a constant term; None if it is zero."""
    if not any(row):
        return None
    total: Any = row[-1]
    for coefficient in reversed(row[:-1]):
        total = coefficient + total * x
    return total * x
