"""The function that a gradient check is about: its values, its gradients, and how precisely it computes them."""

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..api import vjp
from ..core.facts import Structure
from ..core.op import Op
from ..core.record import Record
from ..core.scopes import Scope
from ..core.value import LEAF, Value, wrap
from ..dtypes import is_float, unit_of
from ..errors import ArgumentError, DtypeError, GradientError, NumtapeError, OperandError, ShapeError
from ..grad_mode import enable_grad
from ..outputs import title
from ..tensors import Tensor
from ..verdicts.differences import EPSILON, LARGEST, SAME, Line
from ..verdicts.judging import Spot, Verdict

#: How often a function is called at the same point to see that it gives the same value, at first and in the end.
REPEATS, LAST = 8, 2
#: The step, relative to elements beyond 1, at which the size of its slopes is estimated.
STRIDE = 1e-4
#: An output whose slope is smaller than the largest by the first factor would hardly be seen, and counts for more; by
#: the second, it is lost in rounding errors.
HIDDEN, LOST = 1e3, 1e18
#: How often it is called with more rounding errors than it has.
SHAKES = 3


class Widths(Scope):
    """Watches how precisely a function computes: the coarsest float dtype and the largest value of its ops."""

    def __init__(self) -> None:
        self.unit = EPSILON
        self.peak = 0.0

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        out = compute(op, arrays, params)
        for part in out if isinstance(out, tuple | list) else [out]:
            array = np.asarray(part)
            if array.dtype == np.float64 and array.size:
                self.peak = max(self.peak, float(np.max(np.abs(array))))
        return out

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        for dtype in record.dtype if isinstance(record.dtype, list | tuple) else [record.dtype]:
            if is_float(dtype):
                self.unit = max(self.unit, unit_of(dtype))


class Shaken(Scope):
    """Changes the float64 results of ops by as much as rounding may have changed them, at random.

    Args:
        rng: where the changes come from.
        is_any: whether results of other float dtypes are changed as well.
    """

    def __init__(self, rng: "np.random.Generator", is_any: bool = False) -> None:
        self.rng = rng
        self.is_any = is_any

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        # A view must stay one. What picks values does not round them, and its rule may tell by them what it picked.
        if op.facts.aliases or op.facts.kinks or op.facts.structure is Structure.MOVES:
            return compute(op, arrays, params)
        out = compute(op, arrays, params)
        return tuple(map(self._shaken, out)) if isinstance(out, tuple) else self._shaken(out)

    def _shaken(self, array: NDArray) -> NDArray:
        if array.dtype != np.float64 and not (self.is_any and is_float(array.dtype)):
            return array
        # By half a unit at least: less would be rounded away, and an element would pass for one that does not move.
        change = self.rng.uniform(0.5, 1.0, array.shape) * self.rng.choice([-1.0, 1.0], array.shape)
        factor = 1.0 + unit_of(array.dtype) * change
        return np.asarray(array * factor).astype(array.dtype, copy=False)


class Subject:
    """A function as one of its float arguments alone, with its gradient and its weighted changes along lines."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], rng: "np.random.Generator") -> None:
        self.title = title(function)
        self.function = _widened(function)
        #: The function of its float arguments; errors of transforms call it by the user's name.
        self.of_floats = functools.wraps(function)(lambda *floats: self.call(*floats))
        self.args = args = tuple(map(_widened, args))
        self.rng = rng
        #: Whether values are computed on tracked tensors, as functions that register hooks or run transforms need.
        self.is_tracked = False
        self.flat = [_as_float64(leaf) for leaf in tree.leaves(args)]
        self.places = [i for i, x in enumerate(self.flat) if isinstance(x, np.ndarray) and is_float(x.dtype)]
        self._check_arguments()
        self.names = _names(args, self.places)
        self.arrays: list[NDArray] = [self.flat[i] for i in self.places]
        self.outs = self._first_values()
        self.weights = self._weights()
        self.gradients = self.gradients_at(self.arrays)
        #: For each output, the size of the terms that rounding acts on: 1e16 for (1e16 + x) - 1e16.
        self.terms: list[NDArray] = [np.abs(y) for y in self.outs]
        #: For each gradient, by how much rounding changes it.
        self.residues: list[NDArray] = [np.zeros(g.shape) for g in self.gradients]

    def _weights(self) -> list[NDArray]:
        """Return a weight for each output element, such that each counts: what moves a lot does not hide the others."""
        if sum(y.size for y in self.outs) == 1:
            return [np.ones(y.shape) for y in self.outs]
        slopes = self._slopes()
        largest = max(float(np.max(slope, initial=0.0)) for slope in slopes)
        weights = []
        for y, slope in zip(self.outs, slopes, strict=True):
            factor = np.ones(y.shape)
            is_hidden = (slope * HIDDEN < largest) & (slope * LOST > largest)
            np.divide(largest, slope, out=factor, where=is_hidden)
            weights.append(factor * self.rng.uniform(0.5, 1.5, y.shape))
        return weights

    def _slopes(self) -> list[NDArray]:
        """Return about how fast each output element changes along some direction; 0 where rounding hides it."""
        rng = np.random.default_rng(1)
        slopes = [np.zeros(y.shape) for y in self.outs]
        for _ in range(2):  # Along one direction, changes may cancel.
            moves = [STRIDE * np.maximum(1.0, np.abs(x)) * rng.uniform(-1.0, 1.0, x.shape) for x in self.arrays]
            try:
                ahead = self.values([x + move for x, move in zip(self.arrays, moves, strict=True)])
                back = self.values([x - move for x, move in zip(self.arrays, moves, strict=True)])
                with np.errstate(all="ignore"):
                    changes = [np.abs(np.subtract(a, b, dtype=np.float64)) for a, b in zip(ahead, back, strict=True)]
                    for slope, change, y in zip(slopes, changes, self.outs, strict=True):
                        is_clear = np.isfinite(change) & (change > STRIDE**2 * np.abs(y))
                        np.maximum(slope, change / (2.0 * STRIDE), out=slope, where=is_clear)
            except (NumtapeError, ArithmeticError, ValueError):  # Outside of the domain, or of another shape there.
                continue
        return slopes

    def shake(self) -> None:
        """Find out what rounding does to values and gradients, by running the function with a little more of it."""
        rng = np.random.default_rng(0)
        for _ in range(SHAKES):
            try:
                with Shaken(rng):
                    outs, gradients = self.values(self.arrays), self.gradients_at(self.arrays)
            except (NumtapeError, ArithmeticError, ValueError):
                continue  # Rounding led out of the domain.
            if all(y.shape == y0.shape for y, y0 in zip(outs, self.outs, strict=True)):
                # NaN, as outside of the domain, says nothing.
                self.terms = [
                    np.fmax(terms, np.abs(np.subtract(y, y0, dtype=np.float64)) / EPSILON)
                    for terms, y, y0 in zip(self.terms, outs, self.outs, strict=True)
                ]
                self.residues = [
                    np.fmax(residue, np.abs(g - g0))
                    for residue, g, g0 in zip(self.residues, gradients, self.gradients, strict=True)
                ]

    def grain(self) -> float:
        """Return by how much rounding moves the weighted outputs of a function that computes in less than float64."""
        rng = np.random.default_rng(0)
        moves = [0.0]
        for _ in range(2 * SHAKES):
            try:
                with Shaken(rng, is_any=True):
                    outs = self.values(self.arrays)
                changes = [np.subtract(y, y0, dtype=np.float64) for y, y0 in zip(outs, self.outs, strict=True)]
                moves.append(sum(float(np.sum(np.abs(w * c))) for w, c in zip(self.weights, changes, strict=True)))
            except (NumtapeError, ArithmeticError, ValueError):
                continue  # Rounding led out of the domain, or to another shape.
        return max(move for move in moves if math.isfinite(move))

    def _check_arguments(self) -> None:
        if self.places:
            return
        if not self.flat:
            raise OperandError("check_gradients: no argument is a float tensor, array or number.")
        kinds = sorted({str(getattr(leaf, "dtype", type(leaf).__name__)) for leaf in self.flat})
        raise OperandError(
            f"check_gradients: the arguments of {self.title} are of {', '.join(kinds)}, which have no derivative; give "
            "it floats, as 2.0 or x.astype(float)."
        )

    def call(self, *floats: Any) -> Any:
        """Call the function with its float arguments replaced."""
        filled = list(self.flat)
        for i, x in zip(self.places, floats, strict=True):
            filled[i] = x
        return self.function(*tree.unflatten(self.args, filled))

    def _first_values(self) -> list[NDArray]:
        """Return the outputs at the point; find out whether the function wants tracked tensors."""
        try:
            return self.values(self.arrays)
        except (GradientError, AttributeError, TypeError):  # The latter from a gradient that is None.
            self.is_tracked = True
            return self.values(self.arrays)

    def values(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Return the outputs, as arrays."""
        # Tapes and transforms of the function must work, although nobody differentiates by its arguments here.
        with enable_grad(), np.errstate(all="ignore"):
            try:
                found = self.call(*(wrap(Tensor, x.copy(), LEAF if self.is_tracked else None) for x in arrays))
            except DtypeError as error:
                raise DtypeError(
                    f"check_gradients: it runs in float64, and {self.title} failed at that: {error} Pass what the "
                    "function captures as arguments, or make it float64 for the check."
                ) from error
        outs = tree.leaves(found)
        if not outs:
            raise ArgumentError(f"check_gradients: {self.title} returned nothing to differentiate.")
        for y in outs:
            if not isinstance(y, Value | np.ndarray | np.generic | float | int) or isinstance(y, bool):
                raise OperandError(
                    f"check_gradients: {self.title} returned {type(y).__name__}; it must return a tensor or a tree of "
                    "tensors."
                )
            if isinstance(y, Value) and not is_float(y.dtype):
                raise DtypeError(
                    f"check_gradients: {self.title} returned a tensor of {y.dtype}, which has no derivative; leave it "
                    "out of what is checked, or return floats."
                )
        if not any(isinstance(y, Value) for y in outs):
            if not self.is_tracked:  # A transform in the function gives arrays for arrays that nobody tracks.
                self.is_tracked = True
                return self.values(arrays)
            raise OperandError(
                f"check_gradients: {self.title} returned {type(outs[0]).__name__}, which is no tensor, so its gradient "
                "is lost; compute with tensors to the end, with nt's or NumPy's functions, and without numpy(), item() "
                "and float()."
            )
        return [np.asarray(y.array if isinstance(y, Value) else y) for y in outs]

    def gradients_at(self, arrays: Sequence[NDArray], weights: Sequence[Any] | None = None) -> list[NDArray]:
        """Return the gradient of the weighted outputs by each argument."""
        weights = self.weights if weights is None else weights
        with np.errstate(all="ignore"):
            value, pull = vjp(self.of_floats, *(wrap(Tensor, x.copy()) for x in arrays))
            return [np.asarray(g.array, np.float64) for g in pull(tree.unflatten(value, weights))]

    def trouble(self) -> Verdict | None:
        """Return why there is nothing to compare at this point, if so."""
        if not all(np.all(np.isfinite(y)) for y in (*self.arrays, *self.outs)):
            return Verdict.NOT_FINITE
        return None if self.is_steady(REPEATS) else Verdict.NON_DETERMINISTIC

    def is_steady(self, repeats: int) -> bool:
        """Say whether the function gives the same values again at the point."""
        again = (self.values(self.arrays) for _ in range(repeats))
        return all(_is_same(a, b) for outs in again for a, b in zip(outs, self.outs, strict=True))

    def widths(self) -> Widths:
        """Run the function once and return how precisely it computes."""
        with Widths() as widths, enable_grad(), np.errstate(all="ignore"):
            self.call(*(wrap(Tensor, x.copy(), LEAF) for x in self.arrays))
        return widths

    def largest(self) -> float:
        """Return the largest gradient."""
        return max(
            (float(np.max(np.abs(g[np.isfinite(g)]), initial=0.0)) for g in self.gradients),
            default=0.0,
        )

    def line(
        self, k: int, direction: Any, start: Sequence[NDArray], origin: Sequence[NDArray], raised: dict[float, str]
    ) -> tuple[Line, float]:
        """Return how the weighted outputs change as argument `k` moves along `direction`, and their slope over far.

        What the function raises on the way is added to `raised`.
        """
        # Outputs that never move add no rounding errors; those that stay only within their rounding do.
        moved = [np.zeros(y.shape, bool) for y in origin]

        def change(t: float) -> tuple[float, float]:
            arrays = list(start)
            arrays[k] = start[k] + t * direction
            try:
                outs = self.values(arrays)
            except (ArithmeticError, ValueError) as error:
                # Outside of the domain, as a matrix that is not positive definite.
                text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": .")
                raised[t] = f"where {self.names[k]} differs by {t:.1e}, {self.title} raised {text}"
                return math.nan, 0.0
            total = size = 0.0
            for y, y0, w, m, terms in zip(outs, origin, self.weights, moved, self.terms, strict=True):
                if y.shape != y0.shape:
                    raise ShapeError(
                        f"check_gradients: {self.title} returns shape {y0.shape} at the point and {y.shape} where "
                        f"{self.names[k]} differs by {t:.1e}; a function whose shape depends on values has no "
                        "derivative. Use nt.where instead of selecting elements by a condition."
                    )
                total += float(np.sum(w * np.subtract(y, y0, dtype=np.float64)))
                m |= y != y0
                size += float(np.sum(np.abs(w) * np.maximum(np.abs(y), terms), where=m))
            # An overflow of the sizes alone must not pass for a function without any.
            return total, min(size, LARGEST) if math.isfinite(total) else size

        # A look at a distance shows what moves at all; one alone may end where it began.
        far = max(1.0, float(np.max(np.abs(start[k][direction != 0.0]))))
        reach = 0.0
        for distance in (far, -0.6 * far, 0.3 * far):
            if not any(m.any() for m in moved):
                slope = abs(change(distance)[0] / distance)
                reach = slope if math.isfinite(slope) else 0.0  # Next to an infinite slope all would be negligible.
        return change, reach

    def spot(self, k: int, direction: Any, x: float, distance: float = 0.0) -> Spot:
        """Return the derivative to judge by argument `k` along a direction, at some distance from the point."""
        start, origin, gradients = list(self.arrays), self.outs, self.gradients
        if distance:
            start[k] = start[k] + distance * direction
            origin, gradients = self.values(start), self.gradients_at(start)
        # Only where the direction goes: 0 times an infinite gradient elsewhere would be NaN.
        along = direction != 0.0
        analytic = float(np.sum(gradients[k][along] * direction[along]))

        def gradient(t: float) -> float:
            arrays = list(start)
            arrays[k] = start[k] + t * direction
            try:
                return float(np.sum(self.gradients_at(arrays)[k][along] * direction[along]))
            except (ArithmeticError, ValueError):
                return math.nan  # Outside of the domain.

        raised: dict[float, str] = {}
        line, reach = self.line(k, direction, start, origin, raised)
        residue = float(np.sum(self.residues[k][along] * np.abs(direction[along])))
        value = sum(float(np.sum(np.abs(w * y))) for w, y in zip(self.weights, origin, strict=True))
        return Spot(line, analytic, x + distance, reach, residue, value, gradient, raised)


def _is_same(a: NDArray, b: NDArray) -> bool:
    """Say whether two results of the same call are equal, up to the order in which threads add."""
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= SAME * np.abs(b)))


def _as_float64(leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return leaf.array.astype(np.float64) if is_float(leaf.dtype) else leaf
    if isinstance(leaf, float) or (isinstance(leaf, np.ndarray | np.generic) and is_float(leaf.dtype)):
        return np.array(leaf, np.float64)
    return leaf


def _widened(given: Any) -> Any:
    """Return a copy of a module in float64, with its buffers; anything else as it is."""
    from ..nn.module import Module  # Loaded when it is needed, as the whole package.

    return copy.deepcopy(given).to(np.float64) if isinstance(given, Module) else given


def _names(args: tuple[Any, ...], places: list[int]) -> list[str]:
    owners = [k for k, arg in enumerate(args) for _ in tree.leaves(arg)]
    names = []
    for i in places:
        leaf = tree.leaves(args)[i]
        given = leaf.name if isinstance(leaf, Value) else None
        siblings = owners.count(owners[i])
        place = f".{i - owners.index(owners[i])}" if siblings > 1 else ""
        names.append(given or f"args[{owners[i]}]{place}")
    return names
