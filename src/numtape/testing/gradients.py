"""Certify a function's gradients: forward mode against reverse mode, then both against difference quotients."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.context import entered
from ..core.effects import undoing
from ..counts import is_count
from ..dtypes import default_dtype, float64, set_default_dtype
from ..errors import ArgumentError, OperandError
from ..verdicts.differences import EPSILON, check_options, stencil_of
from ..verdicts.judging import SEVERITY, Finding, Gauge, Verdict, judge
from .adjoint import adjoint_test
from .linearity import first_bent
from .report import Adjoint, Row
from .report import GradientCheck as GradientCheck
from .subject import LAST, Subject

#: Arguments with more elements are sampled.
LARGE = 2000
#: How many elements of a large argument are checked, and along how many random directions all of them together.
SAMPLED, DIRECTIONS = 64, 4
#: After so many wrong elements the rest of an argument is not checked any more.
ENOUGH = 64


def check_gradients(
    function: Callable[..., Any],
    *args: Any,
    tolerance: float = 1e-6,
    step: float | None = None,
    seed: int = 0,
    method: str = "six_point",
) -> GradientCheck:
    """Certify the gradients of a function by each float argument, in float64.

    First forward mode is held against reverse mode along random directions (the adjoint test), and reverse mode against
    itself with other cotangents, in which it must be linear; then the gradient by each element against difference
    quotients whose step is found per element. Each element gets a verdict: `right`, `wrong rule`, or why neither can be
    said: `kink`, `cancellation noise`, `precision`, `non-deterministic`, `not finite`. Only what would show an error
    beyond the tolerance is called right, and only what steps agree upon, beyond all noise, is called wrong.

    Outputs that are not scalar are weighted with random numbers, so that each of them counts. The error of an element
    is relative to its own derivative, or to the largest one if that is zero. Of arguments with more than 2000 elements
    a random sample is checked, and all elements together along random directions; an argument with 64 wrong elements is
    not checked further.

    Args:
        function: takes tensors; returns a tensor or a tree of tensors. It may be a module. Of modules, a copy in
            float64 is checked.
        args: where to check: tensors, arrays, numbers, modules (by their parameters) and trees of them; integers are
            passed through.
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
    _check_function(function)
    check_options("check_gradients", tolerance, step)
    gauge = Gauge(stencil_of("check_gradients", method), tolerance, step)
    if not is_count(seed, 0):
        raise ArgumentError(f"check_gradients: seed is {seed!r}; it must be an integer from 0 on.")
    with _aside():
        return _certificate(function, args, seed, gauge)


@contextmanager
def _aside() -> Iterator[None]:
    """Let a function run many times and leave nothing: no records on tapes, no other random numbers or statistics.

    Tensors that it makes of Python numbers are as precise as its arguments.
    """
    before = default_dtype()
    set_default_dtype(float64)
    try:
        with entered(tapes=(), watch_all=False), undoing():
            yield
    finally:
        set_default_dtype(before)


def _certificate(function: Callable[..., Any], args: tuple[Any, ...], seed: int, gauge: Gauge) -> GradientCheck:
    tolerance = gauge.tolerance
    # Whatever overflows here, verdicts tell.
    with np.errstate(all="ignore"):
        subject = Subject(function, args, np.random.default_rng(seed))
        trouble = subject.trouble()
        if trouble is not None:
            return _troubled(subject, trouble, tolerance)
        subject.shake()
        widths = subject.widths()
        grain = subject.grain() if widths.unit > EPSILON else 0.0
        gauge = replace(gauge, largest=subject.largest(), unit=widths.unit, peak=widths.peak, grain=grain)
        adjoint = adjoint_test(subject, gauge)
        bent = first_bent(subject, gauge)
        rows = [row for k in range(len(subject.arrays)) for row in _rows(subject, k, gauge)]
        if not subject.is_steady(LAST):  # As one that drifts, or has changed at some call.
            return _troubled(subject, Verdict.NON_DETERMINISTIC, tolerance)
    worst = max((row.error for row in rows), default=0.0)
    is_valid = not bent and adjoint.verdict is Verdict.RIGHT and all(row.verdict is Verdict.RIGHT for row in rows)
    return GradientCheck(is_valid, worst, tolerance, rows, adjoint, bent)


def _troubled(subject: Subject, trouble: Verdict, tolerance: float) -> GradientCheck:
    rows = [row for k in range(len(subject.arrays)) for row in _rows_of_trouble(subject, k, trouble)]
    adjoint = Adjoint(math.nan, math.nan, reason=f"it is {trouble}")
    return GradientCheck(False, math.inf, tolerance, rows, adjoint)


def _check_function(function: Any) -> None:
    if not callable(function):
        raise OperandError(
            f"check_gradients: wants a function, not {type(function).__name__}; its arguments follow it: "
            "nt.check_gradients(f, x)."
        )


def _rows(subject: Subject, k: int, gauge: Gauge) -> Iterator[Row]:
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
        largest = float(np.max(np.abs(x))) or 1.0  # Squares of large elements would overflow.
        size = largest * float(np.sqrt(np.mean((x / largest) ** 2)))
        directions: dict[tuple[int, ...], Finding] = {}
        for i in range(DIRECTIONS):
            direction = np.asarray(subject.rng.standard_normal(x.shape))
            directions[(i,)] = _judged(subject, k, direction, size, gauge)
        yield replace(_row(subject.names[k], x.shape, directions), unit="direction")


def _judged(subject: Subject, k: int, direction: NDArray, x: float, gauge: Gauge) -> Finding:
    return judge(subject.spot(k, direction, x), gauge, lambda distance: subject.spot(k, direction, x, distance))


def _row(name: str, shape: tuple[int, ...], findings: dict[tuple[int, ...], Finding]) -> Row:
    index = max(findings, key=lambda i: (SEVERITY[findings[i].verdict], findings[i].error))
    worst = findings[index]
    counts = Counter(finding.verdict for finding in findings.values())
    ordered = dict(sorted(counts.items(), key=lambda pair: SEVERITY[pair[0]]))
    notes = {finding.verdict: finding.note for finding in reversed(findings.values()) if finding.note}
    return Row(name, shape, index, worst.analytic, worst.numeric, worst.error, worst.verdict, ordered, notes=notes)


def _rows_of_trouble(subject: Subject, k: int, verdict: Verdict) -> Iterator[Row]:
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
