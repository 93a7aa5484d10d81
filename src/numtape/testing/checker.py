"""A checker of functions that take a tape: `check_gradients` with the method in its name."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..api import takes
from ..errors import OperandError
from ..outputs import title
from ..tapes import Tape
from ..verdicts.differences import check_options, stencil_of
from .gradients import check_gradients
from .report import GradientCheck


@dataclass(frozen=True)
class ValidationResult:
    """What a `NumericalChecker` found; true if the gradient is right."""

    is_valid: bool
    max_error: float
    method: str
    #: The whole certificate, with a verdict for each element.
    certificate: GradientCheck = field(repr=False)

    def __bool__(self) -> bool:
        return self.is_valid

    def __str__(self) -> str:
        return f"{self.method} differences\n{self.certificate}"


class NumericalChecker:
    """Checks gradients of functions of a tape and a tensor, in float64.

    Args:
        method: "central", "four_point", "six_point" or "richardson".
        tolerance: the largest relative error that counts as right.
        step: the step of the differences, relative to elements beyond 1; found for each element if not given.

    Example:
        >>> tape = nt.GradientTape()
        >>> x = tape.watch(nt.ones(5))
        >>> result = nt.NumericalChecker().check_gradient_central(tape, x, lambda tape, x: (x * x).sum())
        >>> result.is_valid, result.max_error < 1e-6
        (True, True)
    """

    def __init__(self, method: str = "six_point", tolerance: float = 1e-6, step: float | None = None) -> None:
        stencil_of("NumericalChecker", method)
        check_options("NumericalChecker", tolerance, step)
        self.method = method
        self.tolerance = tolerance
        self.step = step

    def check_gradient(
        self, tape: Any, x: Any, function: Callable[..., Any], method: str | None = None
    ) -> ValidationResult:
        """Check the gradient of ``function(tape, x)`` by `x`; nothing that the tape holds is consumed.

        Args:
            tape: what the function gets first.
            x: where to check: a tensor, an array, a number or a tree of them.
            function: takes the tape and `x`; returns a tensor or a tree of tensors.
            method: instead of the checker's own.
        """
        if not isinstance(tape, Tape):
            raise OperandError(
                f"NumericalChecker: wants a tape, a point and a function, in this order, not {type(tape).__name__} "
                "first; nt.check_gradients(f, x) needs no tape."
            )
        if not callable(function):
            raise OperandError(f"NumericalChecker: wants a function of (tape, x), not {type(function).__name__}.")
        if not takes(function, 2):
            raise OperandError(
                f"NumericalChecker: calls {title(function)}(tape, x), which does not take two arguments; "
                "nt.check_gradients(f, x) needs no tape."
            )
        name = method or self.method
        bound = functools.wraps(function)(functools.partial(function, tape))
        check = check_gradients(bound, x, tolerance=self.tolerance, step=self.step, method=name)
        return ValidationResult(check.is_valid, check.max_error, name, check)

    def check_gradient_central(self, tape: Any, x: Any, function: Callable[..., Any]) -> ValidationResult:
        """Check by differences of two points."""
        return self.check_gradient(tape, x, function, "central")

    def check_gradient_four_point(self, tape: Any, x: Any, function: Callable[..., Any]) -> ValidationResult:
        """Check by differences of four points."""
        return self.check_gradient(tape, x, function, "four_point")

    def check_gradient_six_point(self, tape: Any, x: Any, function: Callable[..., Any]) -> ValidationResult:
        """Check by differences of six points."""
        return self.check_gradient(tape, x, function, "six_point")

    def check_gradient_richardson(self, tape: Any, x: Any, function: Callable[..., Any]) -> ValidationResult:
        """Check by central differences of three steps, extrapolated to step 0."""
        return self.check_gradient(tape, x, function, "richardson")
