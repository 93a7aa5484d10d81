"""An equation with what it depends on: how it is solved, and the linear system at its answer, checked."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from .._typing import NDArray
from ..core.context import current
from ..core.value import Value, wrap
from ..errors import GradientError, LinearAlgebraError
from ..tensors import Tensor
from ..transforms.loop_states import detached, tensors_of, with_tensors
from .equations import Equation
from .linearization import Linearization
from .systems import System
from .traces import Trace

#: From a start and arguments to the answer, as vectors.
Solve = Callable[[NDArray, tuple[Any, ...]], NDArray]

#: How often larger steps are tried: from the last digit of x to all of it.
_TRIES = 30
#: So many units of the last digit of x are changed to see whether F_x depends on it.
_DIGITS = 64.0


class Problem:
    """An equation, how to solve it, and what it depends on.

    Args:
        equation: F(x, args) = 0.
        solve: finds the answer.
        args: the arguments of the function; their float tensors are parameters.
        linear: the method for linear systems.
        captured: tensors that the function takes from outside, parameters too, if they are known.
        origin: of a linear system with F_x, the problem of F; its arguments begin with a right-hand side and with x.
    """

    def __init__(
        self,
        equation: Equation,
        solve: Solve,
        args: tuple[Any, ...],
        linear: str,
        captured: Sequence[Value] = (),
        origin: "Problem | None" = None,
    ) -> None:
        self.equation = equation
        self.solve = solve
        self.args = args
        self.linear = linear
        self.captured = captured
        self.origin = origin
        #: Of the first run: the answer, until it is recorded, and what F did there.
        self.fresh: list[NDArray] | None = None
        self.trace: Trace | None = None
        #: Whether the linear system at the answer was found to be one that can be solved.
        self.is_regular = False

    def __repr__(self) -> str:
        return f"<{self.equation.name} of {self.equation.space.size} unknowns>"

    def solve_first(self) -> None:
        """Solve without a tape around, and find what the function captures, at the answer."""
        args = detached(self.args)
        space = self.equation.space
        self.fresh = space.split(self.solve(space.join(space.start), args))
        is_traced = current().grad
        point = Linearization(self.equation, self.fresh, args, captured=None, is_traced=is_traced)
        self.captured = point.captured
        if is_traced and (self.captured or tensors_of(self.args)):
            self.trace = point.trace()

    def operands(self) -> list[Any]:
        """Return all parameters; from now on they are held by whoever has them."""
        given = tensors_of(self.args)
        self.args = with_tensors(self.args, [wrap(Tensor, np.empty((), x.dtype)) for x in given])
        return [*given, *self.captured]

    def filled(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments with operands put in."""
        args: tuple[Any, ...] = with_tensors(self.args, operands[: len(operands) - len(self.captured)])
        return args

    def system(self, x: Sequence[NDArray], operands: Sequence[NDArray]) -> System:
        """Return the linear system at the answer, on a fresh recording, checked."""
        point, args = self.linearized(x, operands)
        system = System(point, self.linear, self.equation.is_minimum)
        if self.origin is None:
            # The answer is what it is, however many derivatives of it are taken.
            if not self.is_regular:
                system.check_regular()
                _check_isolated(system, args)
                self.is_regular = True
        else:
            # What was solved with its matrix was checked then.
            self.origin.check_again(operands, len(x))
        return system

    def check_again(self, operands: Sequence[NDArray], unknowns: int) -> None:
        """Raise unless F does what it did; `operands` are those of a linear system with F_x."""
        x, own = operands[unknowns : 2 * unknowns], operands[2 * unknowns :]
        if self.origin is None:
            self.linearized(x, own)
        else:
            self.origin.check_again(own, len(x))

    def linearized(self, x: Sequence[NDArray], operands: Sequence[NDArray]) -> tuple[Linearization, tuple[Any, ...]]:
        """Return a fresh recording of F, checked, and the arguments that it got."""
        args = self.filled([wrap(Tensor, np.asarray(operand)) for operand in operands])
        point = Linearization(self.equation, x, args, self.captured, is_traced=self.trace is not None)
        difference = None if self.trace is None else self.trace.difference(point.trace())
        if difference is not None:
            raise GradientError(
                f"{self.equation.title} did something else when it ran again for its derivative, from {difference} on: "
                "another number entered, or another op ran. It must depend on its arguments and on what does not "
                "change; pass what changes as an argument."
            )
        return point, args


def _check_isolated(system: System, args: tuple[Any, ...]) -> None:
    """Raise unless F does what F_x says somewhere around the answer, as it does not at a double root.

    Steps are chosen by the amounts by which they change the equations: first by what is left of each, or by what
    rounding of x does to it. So they are long where F hardly depends on x, in whatever units and order. Where F misses
    what F_x says by more than a quarter of a step, larger amounts are tried. They leave rounding behind, but bends grow
    faster than steps: at a double root no step is long enough for the one and short enough for the other.
    """
    equation = system.point.equation
    if equation.is_linear or not equation.space.size:
        return
    with np.errstate(all="ignore"):
        x, here = _nearer(system, args)
        if not _is_steady(system, args):
            _raise_double(equation)
        amounts = np.maximum(0.5 * system.amounts(here), system.rounding())
        for _ in range(_TRIES):
            probes = system.probes(amounts)
            misses = [equation.at(x + probe.step, args) - here - probe.rise for probe in probes]
            if system.is_followed(probes, misses):
                return
            for probe, miss in zip(probes, misses, strict=True):
                amounts = np.maximum(amounts, 4.0 * system.amounts(miss) / abs(probe.share))
            if not np.isfinite(amounts).all():
                break
    _raise_double(equation)


def _is_steady(system: System, args: tuple[Any, ...]) -> bool:
    """Say whether each row of F_x keeps three quarters of itself where the last digits of x are others.

    At a root that is double to the last digit it does not, and steps that change these digits tell no more than that.
    """
    point, inverse = system.point, system.inverse
    if inverse is None or not point.x.any():
        return True
    # Of two unknowns one of these changes the sum, and one the difference.
    alike, apart = np.ones(point.space.size), np.where(np.arange(point.space.size) % 2, -1.0, 1.0)
    moved = [point.space.split(point.x * (1.0 + _DIGITS * system.eps * signs)) for signs in (alike, apart)]
    return all(inverse.has_rows_of(Linearization(point.equation, x, args, captured=None).matrix()) for x in moved)


def _raise_double(equation: Equation) -> NoReturn:
    raise LinearAlgebraError(
        f"{equation.name}: {equation.matrix} is singular: it is no larger than its change within the accuracy of the "
        "answer, as at a double root, so the answer has no derivative by the parameters. Move away from the point, or "
        "add a term that decides (such as 1e-6 * x)."
    )


def _nearer(system: System, args: tuple[Any, ...]) -> tuple[NDArray, NDArray]:
    """Return the point to which a Newton step leads, and F there; where that is no nearer, the answer itself.

    An answer may be off along all directions. What is left along the regular ones, which one step takes away, would
    hide how little is left of F along that of a double root.
    """
    x, here = system.point.x, system.point.residual
    if system.inverse is None:
        return x, here
    step = system.inverse.solve(here[:, None], is_transposed=False)[:, 0]
    there = system.point.equation.at(x - step, args)
    rest = system.inverse.solve(there[:, None], is_transposed=False)[:, 0]
    is_nearer = np.abs(rest).max() < np.abs(step).max()
    return (x - step, there) if is_nearer else (x, here)


def linear_solver(equation: Equation, method: str) -> Solve:
    """Return what solves an equation that is linear in its unknowns: one step from zero."""

    def solve(start: NDArray, args: tuple[Any, ...]) -> NDArray:
        zero = equation.space.split(np.zeros_like(start))
        point = Linearization(equation, zero, args, captured=None)
        system = System(point, method, equation.is_minimum)
        found = system.solve(-point.residual[:, None], is_transposed=False)[:, 0]
        system.check_regular()
        return found

    return solve
