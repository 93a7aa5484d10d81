"""Choose the steps of an integration, without a tape: their ends are all that is remembered."""

import itertools
import math
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._typing import NDArray
from ..core.value import array_of
from ..errors import ConvergenceError
from .runge_kutta import Field, Leaves, Method, moved, step, weighted

#: How far a step may grow and shrink, and how much of what the error allows is taken.
_GROW, _SHRINK, _SAFETY = 10.0, 0.2, 0.9


class Stretch(NamedTuple):
    """The way from one time to another."""

    #: The leaves at its end, and their slope if the method knows it.
    y: Leaves
    slope: Leaves | None
    #: The ends of the steps as parts of the way, from 0 to 1.
    ends: NDArray


class Stepper:
    """Integrates a field from one time to another, and says where its steps ended.

    Args:
        name: of the function that integrates, for messages.
        method: of Runge-Kutta.
        rtol: the error allowed in a step, in parts of y; for adaptive methods.
        atol: the error allowed besides.
        step_size: the length of steps of other methods; None for one step.
        max_steps: between two times.
    """

    def __init__(
        self, name: str, method: Method, rtol: float, atol: float, step_size: float | None, max_steps: int
    ) -> None:
        self.name = name
        self.method = method
        self.rtol = rtol
        self.atol = atol
        self.step_size = step_size
        self.max_steps = max_steps
        #: The length that the next step is tried with; None at the start.
        self.length: float | None = None

    def advance(self, field: Field, start: float, stop: float, y: Leaves, slope: Leaves | None = None) -> Stretch:
        """Go from one time to another.

        Args:
            field: the right-hand side.
            start: the time at which y is given.
            stop: the time at which it is wanted.
            y: the leaves at the start.
            slope: their slope, if it is known.
        """
        with np.errstate(all="ignore"):  # What is not finite is looked for, and named.
            if not self.method.is_adaptive:
                return self._advance_evenly(field, start, stop, y)
            return self._advance_adaptively(field, start, stop, y, slope)

    def _advance_evenly(self, field: Field, start: float, stop: float, y: Leaves) -> Stretch:
        span = stop - start
        count = 1 if self.step_size is None else max(1, math.ceil(abs(span) / self.step_size * (1.0 - 1e-12)))
        if count > self.max_steps:
            self._raise_too_many(start, stop)
        ends = np.linspace(0.0, 1.0, count + 1)
        for begin, end in itertools.pairwise(ends):
            t, h = start + float(begin) * span, float(end - begin) * span
            y, _ = step(self.method, field, t, h, y, None)
            if not _is_finite(y):
                self._raise_not_finite(t)
        return Stretch(y, None, ends)

    def _advance_adaptively(self, field: Field, start: float, stop: float, y: Leaves, slope: Leaves | None) -> Stretch:
        span = stop - start
        slope = field(start, y) if slope is None else slope
        if not _is_finite(slope):
            self._raise_not_finite(start)
        length = self.length or self._first_length(field, start, span, y, slope)
        ends = [0.0]
        has_failed = False
        while ends[-1] < 1.0:
            left = (1.0 - ends[-1]) * abs(span)
            # Neither a tiny last step, nor one that goes past the end.
            size = left if length >= left else left / 2.0 if length > left / 2.0 else length
            end = 1.0 if size == left else ends[-1] + size / abs(span)
            t, h = start + ends[-1] * span, (end - ends[-1]) * span
            if abs(h) <= 16.0 * np.finfo(np.float64).eps * max(abs(start), abs(stop)):
                self._raise_underflow(t, abs(h), has_failed)
            if len(ends) > self.max_steps:
                self._raise_too_many(t, stop)
            after, stages = step(self.method, field, t, h, y, slope)
            error = self._error(y, after, h, stages)
            has_failed = not math.isfinite(error)
            factor = _SHRINK if has_failed else _SAFETY * max(error, 1e-10) ** (-1.0 / self.method.order)
            if error <= 1.0:
                ends.append(end)
                y, slope = after, stages[-1]
                grown = abs(h) * min(_GROW, factor)
                # A step that was cut short by the end says little about the next.
                length = max(length, grown) if abs(h) < length else grown
            else:
                length = abs(h) * max(_SHRINK, min(1.0, factor))
        self.length = length
        return Stretch(y, slope, np.array(ends))

    def _error(self, y: Leaves, after: Leaves, h: float, stages: list[Leaves]) -> float:
        """Return the estimated error of a step, where 1 is what is allowed."""
        errors = weighted([h * weight for weight in self.method.errors], stages)
        return _rms(
            [
                array_of(e) / (self.atol + self.rtol * np.maximum(np.abs(array_of(a)), np.abs(array_of(b))))
                for e, a, b in zip(errors, y, after, strict=True)
            ]
        )

    def _first_length(self, field: Field, t: float, span: float, y: Leaves, slope: Leaves) -> float:
        """Return a first step by the rule of Hairer, Norsett and Wanner (II.4)."""
        scales = [self.atol + self.rtol * np.abs(array_of(part)) for part in y]
        size = _rms([array_of(part) / s for part, s in zip(y, scales, strict=True)])
        speed = _rms([array_of(part) / s for part, s in zip(slope, scales, strict=True)])
        guess = min(1e-6 if size < 1e-5 or speed < 1e-5 else 0.01 * size / speed, abs(span))
        ahead = field(t + math.copysign(guess, span), moved(y, math.copysign(guess, span), (1.0,), [slope]))
        bend = _rms([(array_of(b) - array_of(a)) / s for a, b, s in zip(slope, ahead, scales, strict=True)]) / guess
        steepest = max(speed, bend)
        if not math.isfinite(steepest):
            return guess
        second = max(1e-6, guess * 1e-3) if steepest <= 1e-15 else (0.01 / steepest) ** (1.0 / self.method.order)
        return min(100.0 * guess, second, abs(span))

    def _raise_not_finite(self, t: float) -> NoReturn:
        raise ConvergenceError(
            f"{self.name}: f is not finite at t={t:.6g}; see where y leaves the domain of f, take shorter steps, or "
            "start elsewhere."
        )

    def _raise_underflow(self, t: float, h: float, is_not_finite: bool) -> NoReturn:
        if is_not_finite:
            self._raise_not_finite(t)
        raise ConvergenceError(
            f"{self.name}: the step has become too small at t={t:.6g} ({h:.1e}) to keep rtol={self.rtol:g} and "
            f"atol={self.atol:g}. The solution has a singularity there, or the equation is stiff: end before it, allow "
            "more error, or write the steps of an implicit method with nt.implicit.root."
        )

    def _raise_too_many(self, t: float, stop: float) -> NoReturn:
        raise ConvergenceError(
            f"{self.name}: took max_steps={self.max_steps} steps to t={t:.6g} on the way to {stop:.6g}. The equation "
            "may be stiff; allow more error by rtol and atol, or more steps by max_steps."
        )


def _is_finite(leaves: Leaves) -> bool:
    return all(bool(np.isfinite(array_of(part)).all()) for part in leaves)


def _rms(parts: list[Any]) -> float:
    """Return the root mean square of the elements of arrays."""
    count = sum(part.size for part in parts)
    return math.sqrt(sum(float(np.sum(np.square(part, dtype=np.float64))) for part in parts) / max(1, count))
