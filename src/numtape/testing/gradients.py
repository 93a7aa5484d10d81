"""Certify a function's gradients: forward mode against reverse mode, then both against difference quotients."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..api import jvp, vjp
from ..core.context import Scope
from ..core.op import Op
from ..core.record import Record
from ..core.value import LEAF, Value, wrap
from ..dtypes import is_float
from ..errors import ArgumentError, DtypeError, NumtapeError, OperandError, ShapeError
from ..grad_mode import enable_grad, no_grad
from ..tensors import Tensor
from .certificate import SEVERITY, Finding, Gauge, Spot, Verdict, judge
from .differences import EPSILON, Line, stencil_of

#: Arguments with more elements are sampled.
LARGE = 2000
#: How many elements of a large argument are checked, and along how many random directions all of them together.
SAMPLED, DIRECTIONS = 64, 4
#: After so many wrong elements the rest of an argument is not checked any more.
ENOUGH = 64
#: How often a function is called at the same point to see that it gives the same value.
REPEATS = 8

#: What follows from a verdict other than "right", for those who read it for the first time.
ADVICE = {
    Verdict.KINK: "the function is not differentiable there; check next to it",
    Verdict.PRECISION: "the function computes in less than float64 inside; compute in float64, or raise the tolerance",
    Verdict.NOISE: "the function's rounding errors hide the derivative; rewrite it, or raise the tolerance",
    Verdict.NON_DETERMINISTIC: "two calls with the same arguments differ; fix the random stream, as in rng=0",
    Verdict.NOT_FINITE: "the value or a gradient is NaN or infinite there; check at a point inside of the domain",
    Verdict.WRONG: "the gradient is not the derivative of the value",
}


@dataclass(frozen=True)
class Row:
    """What was found about one argument, and its worst element."""

    argument: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    analytic: float
    numeric: float
    error: float
    verdict: Verdict
    #: How many of the elements checked got which verdict.
    counts: dict[Verdict, int]
    #: What one count is of: elements, or random directions through all of them.
    unit: str = "element"

    @property
    def checked(self) -> int:
        """How many elements, or directions, were checked."""
        return sum(self.counts.values())

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        counts = ", ".join(f"{n} {verdict}" for verdict, n in self.counts.items())
        total = math.prod(self.shape)
        sampled = f" (of {total})" if self.unit == "element" and self.checked < total else ""
        place = str(list(self.index)) if self.unit == "element" else f"direction {self.index[0]}"
        numbers = (f"{self.analytic:.9g}", f"{self.numeric:.9g}", f"{self.error:.1e}")
        return (self.argument, str(self.shape), counts + sampled, place, *numbers, self.verdict)


@dataclass(frozen=True)
class Adjoint:
    """The adjoint test: <w, J t> by forward mode and <J^T w, t> by reverse mode are the same number."""

    forward: float
    reverse: float
    is_equal: bool
    #: Why it was not run; empty if it was.
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"adjoint test: not run, {self.reason}"
        relation = "=" if self.is_equal else "differs from"
        return f"adjoint test: <w, J t> = {self.forward:.12g} {relation} <J^T w, t> = {self.reverse:.12g}"


@dataclass(frozen=True)
class GradientCheck:
    """The result of `check_gradients`; true if every gradient that was checked is right."""

    is_valid: bool
    max_error: float
    tolerance: float
    rows: list[Row] = field(repr=False)
    adjoint: Adjoint = field(repr=False, default=Adjoint(math.nan, math.nan, True, "nothing to test"))

    @property
    def counts(self) -> dict[Verdict, int]:
        """How often each verdict was found."""
        total: Counter[Verdict] = Counter()
        for row in self.rows:
            total.update(row.counts)
        return dict(sorted(total.items(), key=lambda pair: SEVERITY[pair[0]]))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return max(self.counts, key=SEVERITY.__getitem__, default=Verdict.RIGHT)

    def __bool__(self) -> bool:
        return self.is_valid

    def __str__(self) -> str:
        heads = ("argument", "shape", "verdicts", "worst at", "gradient", "difference quotient", "error", "verdict")
        table = [heads, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([*lines, str(self.adjoint), self._conclusion()])

    def _conclusion(self) -> str:
        numbers = f"largest error {self.max_error:.1e}, tolerance {self.tolerance:.0e}"
        if self.verdict is Verdict.WRONG:
            return f"gradients are WRONG: {ADVICE[Verdict.WRONG]}; {numbers}"
        if self.verdict is not Verdict.RIGHT:
            found = "; ".join(f"{v}: {ADVICE[v]}" for v in self.counts if v is not Verdict.RIGHT)
            return f"gradients are NOT CERTIFIED: {found}; {numbers}"
        if not self.adjoint.is_equal:
            return f"gradients are right, but forward mode is WRONG: a JVP is not the transpose of its VJP; {numbers}"
        sampled = any(row.unit != "element" for row in self.rows)
        return f"gradients are right{' as far as sampled' if sampled else ''}: {numbers}"


def check_gradients(
    function: Callable[..., Any],
    *args: Any,
    tolerance: float = 1e-6,
    step: float | None = None,
    seed: int = 0,
    method: str = "six_point",
) -> GradientCheck:
    """Certify the gradients of a function by each float argument, in float64.

    First forward mode is held against reverse mode along random directions (the adjoint test), then the gradient by
    each element against difference quotients whose step is found per element. Each element gets a verdict: `right`,
    `wrong rule`, or why neither can be said: `kink`, `cancellation noise`, `precision`, `non-deterministic`,
    `not finite`. Only what would show an error beyond the tolerance is called right.

    Outputs that are not scalar are weighted with random numbers, so that each of them counts. The error of an element
    is relative to its own derivative. Of arguments with more than 2000 elements a random sample is checked, and all
    elements together along random directions; an argument with 64 wrong elements is not checked further.

    Args:
        function: takes tensors; returns a tensor or a tree of tensors.
        args: where to check: tensors, arrays, numbers and trees of them; integers are passed through.
        tolerance: the largest error that counts as right.
        step: the step to try first, relative to elements beyond 1; others follow where it does not settle the matter.
        seed: of the random weights, directions and samples.
        method: "central", "four_point", "six_point" or "richardson".

    Returns:
        A result that is true if all is right, has `is_valid`, `max_error`, `rows` and `adjoint`, and prints as a table.

    Example:
        >>> check = nt.check_gradients(lambda x: (x.exp() * x).sum(), np.array([0.5, 1.0]))
        >>> check.is_valid
        True
        >>> nt.check_gradients(lambda x: x.abs().sum(), np.array([0.0, 1.0])).rows[0].verdict
        <Verdict.KINK: 'kink'>
    """
    _check_options(function, tolerance, step)
    subject = _Subject(function, args, np.random.default_rng(seed))
    gauge = Gauge(stencil_of("check_gradients", method), tolerance, step)
    trouble = subject.trouble()
    if trouble is not None:
        rows = [row for k in range(len(subject.arrays)) for row in _rows_of_trouble(subject, k, trouble)]
        return GradientCheck(False, math.inf, tolerance, rows, Adjoint(math.nan, math.nan, True, f"it is {trouble}"))
    widths = subject.widths()
    gauge = replace(gauge, largest=subject.largest(), unit=widths.unit, peak=widths.peak)
    with np.errstate(all="ignore"):
        adjoint = subject.adjoint(gauge)
        rows = [row for k in range(len(subject.arrays)) for row in _rows(subject, k, gauge)]
    worst = max((row.error for row in rows), default=0.0)
    is_valid = adjoint.is_equal and all(row.verdict is Verdict.RIGHT for row in rows)
    return GradientCheck(is_valid, worst, tolerance, rows, adjoint)


def _check_options(function: Any, tolerance: Any, step: Any) -> None:
    if not callable(function):
        raise OperandError(
            f"check_gradients: wants a function, not {type(function).__name__}; its arguments follow it: "
            "nt.check_gradients(f, x)."
        )
    if not 0.0 < tolerance < 1.0:
        raise ArgumentError(f"check_gradients: tolerance is {tolerance!r}; it must lie between 0 and 1.")
    if step is not None and not 0.0 < step < math.inf:
        raise ArgumentError(f"check_gradients: step is {step!r}; it must be positive, or None to have it found.")


class _Widths(Scope):
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

    def on_record(self, record: Record) -> None:
        for dtype in record.dtype if isinstance(record.dtype, list | tuple) else [record.dtype]:
            if is_float(dtype):
                # The distance from 1 to the next number, which ml_dtypes' dtypes have no finfo of NumPy for.
                one = np.ones((), dtype)
                self.unit = max(self.unit, float(np.nextafter(one, dtype.type(2))) - 1.0)


class _Subject:
    """A function as one of its float arguments alone, with its gradient and its weighted changes along lines."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], rng: "np.random.Generator") -> None:
        self.title = getattr(function, "__name__", repr(function))
        self.function = function
        #: The function of its float arguments; errors of transforms call it by the user's name.
        self.of_floats = functools.wraps(function)(lambda *floats: self.call(*floats))
        self.args = args
        self.rng = rng
        self.flat = [_as_float64(leaf) for leaf in tree.leaves(args)]
        self.places = [i for i, x in enumerate(self.flat) if isinstance(x, np.ndarray) and is_float(x.dtype)]
        self._check_arguments()
        self.names = _names(args, self.places)
        self.arrays: list[NDArray] = [self.flat[i] for i in self.places]
        self.outs = self.values(self.arrays)
        total = sum(y.size for y in self.outs)
        self.weights = [np.ones(y.shape) if total == 1 else rng.uniform(0.5, 1.5, y.shape) for y in self.outs]
        self.gradients = self.gradients_at(self.arrays)

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

    def values(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Return the outputs, as arrays."""
        with no_grad(), np.errstate(all="ignore"):
            found = self.call(*(wrap(Tensor, x.copy()) for x in arrays))
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
            raise OperandError(
                f"check_gradients: {self.title} returned {type(outs[0]).__name__}, which is no tensor, so its gradient "
                "is lost; compute with tensors to the end, with nt's or NumPy's functions, and without numpy(), item() "
                "and float()."
            )
        return [np.asarray(y.array if isinstance(y, Value) else y) for y in outs]

    def gradients_at(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Return the gradient of the weighted outputs by each argument."""
        with np.errstate(all="ignore"):
            value, pull = vjp(self.of_floats, *(wrap(Tensor, x.copy()) for x in arrays))
            return [np.asarray(g.array, np.float64) for g in pull(tree.unflatten(value, self.weights))]

    def trouble(self) -> Verdict | None:
        """Return why there is nothing to compare at this point, if so."""
        if not all(np.all(np.isfinite(y)) for y in self.outs):
            return Verdict.NOT_FINITE
        for _ in range(REPEATS):
            again = self.values(self.arrays)
            if not all(_is_same(a, b) for a, b in zip(again, self.outs, strict=True)):
                return Verdict.NON_DETERMINISTIC
        return None

    def widths(self) -> _Widths:
        """Run the function once and return how precisely it computes."""
        with _Widths() as widths, enable_grad(), np.errstate(all="ignore"):
            self.call(*(wrap(Tensor, x.copy(), LEAF) for x in self.arrays))
        return widths

    def largest(self) -> float:
        """Return the largest gradient."""
        return max(
            (float(np.max(np.abs(g[np.isfinite(g)]), initial=0.0)) for g in self.gradients),
            default=0.0,
        )

    def adjoint(self, gauge: Gauge) -> Adjoint:
        """Test that forward and reverse mode are each other's transpose, along a random direction."""
        tangents = [self.rng.standard_normal(x.shape) for x in self.arrays]
        try:
            _, pushed = jvp(self.of_floats, tuple(x.copy() for x in self.arrays), tuple(tangents))
        except NumtapeError as error:
            return Adjoint(math.nan, math.nan, True, f"forward mode says: {error}")
        forward = [w * _array(t) for w, t in zip(self.weights, tree.leaves(pushed), strict=True)]
        reverse = [g * t for g, t in zip(self.gradients, tangents, strict=True)]
        ahead, back = (float(sum(np.sum(part) for part in parts)) for parts in (forward, reverse))
        size = sum(float(np.sum(np.abs(part))) for part in (*forward, *reverse))
        if not math.isfinite(size):
            return Adjoint(ahead, back, True, "a derivative is NaN or infinite")
        # A derivative that is zero but for rounding is measured against the value.
        value = sum(float(np.sum(np.abs(w * y))) for w, y in zip(self.weights, self.outs, strict=True))
        allowed = max(gauge.tolerance, 64.0 * gauge.unit) * size + 64.0 * EPSILON * value
        return Adjoint(ahead, back, abs(ahead - back) <= allowed)

    def line(self, k: int, direction: Any, start: Sequence[NDArray], origin: Sequence[NDArray]) -> tuple[Line, float]:
        """Return how the weighted outputs change as argument `k` moves along `direction`, and their slope over far."""
        # Outputs that never move add no rounding errors; those that stay only within their rounding do.
        moved = [np.zeros(y.shape, bool) for y in origin]

        def change(t: float) -> tuple[float, float]:
            arrays = list(start)
            arrays[k] = start[k] + t * direction
            try:
                outs = self.values(arrays)
            except (ArithmeticError, ValueError):
                # Outside of the domain, as a matrix that is not positive definite.
                return math.nan, 0.0
            total = size = 0.0
            for y, y0, w, m in zip(outs, origin, self.weights, moved, strict=True):
                if y.shape != y0.shape:
                    raise ShapeError(
                        f"check_gradients: {self.title} returns shape {y0.shape} at the point and {y.shape} where "
                        f"{self.names[k]} differs by {t:.1e}; a function whose shape depends on values has no "
                        "derivative. Use nt.where instead of selecting elements by a condition."
                    )
                total += float(np.sum(w * np.subtract(y, y0, dtype=np.float64)))
                m |= y != y0
                size += float(np.sum(np.abs(w * y), where=m))
            return total, size

        # A look at a distance shows what moves at all; one alone may end where it began.
        far = max(1.0, float(np.max(np.abs(start[k][direction != 0.0]))))
        reach = 0.0
        for distance in (far, -0.6 * far, 0.3 * far):
            if not any(m.any() for m in moved):
                reach = abs(change(distance)[0] / distance)
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
        line, reach = self.line(k, direction, start, origin)
        return Spot(line, analytic, x + distance, reach)


def _rows(subject: _Subject, k: int, gauge: Gauge) -> Iterator[Row]:
    """Yield the rows of one argument: its elements, and directions if they are too many."""
    x = subject.arrays[k]
    if not x.size:
        return
    is_large = x.size > LARGE
    chosen = np.sort(subject.rng.choice(x.size, SAMPLED, replace=False)) if is_large else np.arange(x.size)
    elements: dict[tuple[int, ...], Finding] = {}
    wrong = 0
    for i in chosen:
        index = tuple(int(j) for j in np.unravel_index(int(i), x.shape))
        direction = np.zeros(x.shape)
        direction[index] = 1.0
        elements[index] = _judged(subject, k, direction, float(x[index]), gauge)
        wrong += elements[index].verdict is Verdict.WRONG
        if wrong == ENOUGH:
            break
    yield _row(subject.names[k], x.shape, elements)
    if is_large:
        size = float(np.sqrt(np.mean(x * x)))
        directions: dict[tuple[int, ...], Finding] = {}
        for i in range(DIRECTIONS):
            direction = np.asarray(subject.rng.standard_normal(x.shape))
            directions[(i,)] = _judged(subject, k, direction, size, gauge)
        yield replace(_row(subject.names[k], x.shape, directions), unit="direction")


def _judged(subject: _Subject, k: int, direction: NDArray, x: float, gauge: Gauge) -> Finding:
    return judge(subject.spot(k, direction, x), gauge, lambda distance: subject.spot(k, direction, x, distance))


def _row(name: str, shape: tuple[int, ...], findings: dict[tuple[int, ...], Finding]) -> Row:
    index = max(findings, key=lambda i: (SEVERITY[findings[i].verdict], findings[i].error))
    worst = findings[index]
    counts = Counter(finding.verdict for finding in findings.values())
    ordered = dict(sorted(counts.items(), key=lambda pair: SEVERITY[pair[0]]))
    return Row(name, shape, index, worst.analytic, worst.numeric, worst.error, worst.verdict, ordered)


def _rows_of_trouble(subject: _Subject, k: int, verdict: Verdict) -> Iterator[Row]:
    x, gradient = subject.arrays[k], subject.gradients[k]
    if x.size:
        index = (0,) * x.ndim
        yield Row(
            subject.names[k],
            x.shape,
            index,
            float(gradient[index]),
            math.nan,
            math.inf,
            verdict,
            {verdict: x.size},
        )


def _is_same(a: NDArray, b: NDArray) -> bool:
    """Say whether two results of the same call are equal, up to the order in which threads add."""
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= 64.0 * EPSILON * np.abs(b)))


def _array(value: Any) -> NDArray:
    return np.asarray(value.array if isinstance(value, Value) else value)


def _as_float64(leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return leaf.array.astype(np.float64) if is_float(leaf.dtype) else leaf
    if isinstance(leaf, float) or (isinstance(leaf, np.ndarray | np.generic) and is_float(leaf.dtype)):
        return np.array(leaf, np.float64)
    return leaf


def _names(args: tuple[Any, ...], places: list[int]) -> list[str]:
    owners = [k for k, arg in enumerate(args) for _ in tree.leaves(arg)]
    names = []
    for i in places:
        leaf = tree.leaves(args)[i]
        given = leaf.extras.name if isinstance(leaf, Value) and leaf.extras is not None else None
        siblings = owners.count(owners[i])
        place = f".{i - owners.index(owners[i])}" if siblings > 1 else ""
        names.append(given or f"args[{owners[i]}]{place}")
    return names
