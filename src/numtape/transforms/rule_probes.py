"""The derivative of an op along a random direction of one argument: by its rules, and by differences of its forward."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..core.computing import compute
from ..core.forward import forward
from ..core.gradients import link_of
from ..core.op import Op
from ..core.reverse import reverse
from ..core.value import LEAF, wrap
from ..dtypes import FLOAT_DTYPES, unit_of
from ..tensors import Tensor
from ..verdicts import judging
from ..verdicts.differences import EPSILON, STENCILS
from ..verdicts.judging import Finding, Gauge, Spot

#: Relative to each element. Two steps tell noise and kinks from a wrong rule.
_STEPS = (1e-4, 1e-5)
#: Of central differences, relative to the size of the derivative.
_TOLERANCE = 1e-6
#: The error, relative to the size of the derivative, up to which a first look is enough.
_CLEAR = 1e-4
#: So many times the rounding of a value may have been its error.
_FAR = 3.0


@dataclass(frozen=True)
class Slope:
    """A directional derivative by differences at two steps: its value, its error, and the size of its terms.

    One that is not clear says nothing.
    """

    value: float
    error: float
    size: float
    is_clear: bool

    def agrees(self, value: float) -> bool:
        """Say whether a derivative that a rule gives is the same."""
        return abs(value - self.value) <= _TOLERANCE * max(self.size, abs(value)) + self.error


class Probe:
    """An op at one point, to be moved along a random direction of one argument, its outputs weighted at random.

    Args:
        op: the op.
        arrays: its operands, in float64.
        position: the argument that moves, each element in proportion to itself.
        params: all static parameters.
    """

    def __init__(self, op: Op, arrays: Sequence[Any], position: int, params: dict[str, Any]) -> None:
        self.op = op
        self.arrays = arrays
        self.position = position
        self.params = params
        self.outs = self._outputs(0.0)
        rng = np.random.default_rng(0)

        def draw(shape: Any) -> NDArray:
            return np.asarray(rng.uniform(0.5, 1.0, shape) * rng.choice([-1.0, 1.0], shape))

        x = arrays[position]
        largest = float(np.max(np.abs(x)))
        self.tangent = draw(x.shape) * np.maximum(np.abs(x), 1e-3 * largest or 1.0)
        self.cotangents = [draw(y.shape) for y in self.outs]
        for g in self.cotangents:
            g.setflags(write=False)  # A rule that writes to its cotangent spoils those of others.

    @property
    def argument(self) -> str:
        """The name of the argument."""
        return self.op.arguments[self.position]

    def _moved(self, h: float) -> list[Any]:
        if h == 0.0:  # 0 times an infinite element would be NaN.
            return list(self.arrays)
        return [x + h * self.tangent if i == self.position else x for i, x in enumerate(self.arrays)]

    def _outputs(self, h: float) -> list[NDArray]:
        out = compute(self.op, self._moved(h), self.params)
        return [part for part in (out if isinstance(out, tuple) else (out,)) if part.dtype in FLOAT_DTYPES]

    def by_rule(self, kind: str, h: float = 0.0) -> float:
        """Return the derivative that a rule gives, at some distance: "vjp" or "jvp"."""
        arrays = self._moved(h)
        source = wrap(Tensor, arrays[self.position], LEAF)
        arrays[self.position] = source
        out = apply(self.op, arrays, self.params)
        links = [link_of(y) for y in (out if isinstance(out, tuple) else (out,)) if y.dtype in FLOAT_DTYPES]
        if kind == "vjp":
            found = reverse(list(zip(links, self.cotangents, strict=True)), [source])
            return float(np.sum(found[source] * self.tangent))
        tangents = forward([(source, self.tangent)], links)
        pairs = zip(self.cotangents, tangents, strict=True)
        return sum(float(np.sum(g * t)) for g, t in pairs if t is not None)

    def _weighted(self, outs: Sequence[NDArray], scale: Callable[[NDArray], float] = lambda y: 1.0) -> NDArray:
        return np.concatenate([(scale(y) * y * g).ravel() for y, g in zip(outs, self.cotangents, strict=True)])

    def slope(self) -> Slope | None:
        """Return the derivative by differences, or None if they cannot be taken."""
        middle = self._weighted(self.outs)
        try:
            sides = [
                (
                    (self._weighted(self._outputs(h)) - middle) / h,
                    (middle - self._weighted(self._outputs(-h))) / h,
                )
                for h in _STEPS
            ]
        except (ValueError, TypeError, ArithmeticError):
            return None
        centres = [(ahead + behind) / 2.0 for ahead, behind in sides]
        bends = [float(np.sum(np.abs(ahead - behind))) for ahead, behind in sides]
        size = float(np.sum(np.abs(centres[1])))
        # One-sided differences of a smooth function approach each other with the step; at a kink they do not.
        kink = max(0.0, bends[1] - 1.1 * bends[0] * _STEPS[1] / _STEPS[0])
        # What rounding may have changed in the outputs, each by its own. One that does not move at all is clear, but
        # may have to by less than that.
        rounding = _FAR * self._weighted(self.outs, lambda y: unit_of(y.dtype)) / _STEPS[1]
        has_moved = (sides[1][0] != 0.0) | (sides[1][1] != 0.0)
        error = float(np.sum(np.abs(centres[0] - centres[1]))) + kink + float(np.linalg.norm(rounding[has_moved]))
        if not np.isfinite(size + error):
            return None
        is_clear = error <= _CLEAR * max(size, 1e-12)
        return Slope(float(np.sum(centres[1])), error + float(np.linalg.norm(rounding[~has_moved])), size, is_clear)

    def judge(self, kind: str, value: float, slope: Slope) -> Finding:
        """Return the verdict on a derivative that a rule gives, by differences at many steps."""
        middle = self._weighted(self.outs)

        def line(h: float) -> tuple[float, float]:
            try:
                there = self._weighted(self._outputs(h))
            except (ValueError, TypeError, ArithmeticError):  # Outside of the domain.
                return math.nan, 0.0
            return float(np.sum(there - middle)), float(np.sum(np.abs(there), where=there != middle))

        # In proportion to the elements, so that a distance of 1 is as far as they are from 0.
        spot = Spot(
            line,
            value,
            1.0,
            residue=EPSILON * slope.size,
            value=float(np.sum(np.abs(middle))),
            gradient=lambda h: self.by_rule(kind, h),
        )
        gauge = Gauge(
            STENCILS["six_point"],
            _TOLERANCE,
            largest=max(slope.size, abs(value)),
            unit=max(unit_of(y.dtype) for y in self.outs),
            # On its way, a function may add something to 1.
            peak=max(1.0, *(float(np.max(np.abs(y), initial=0.0)) for y in self.outs)),
        )
        return judging.judge(spot, gauge)
