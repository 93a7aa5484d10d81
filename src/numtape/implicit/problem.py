"""An equation with what it depends on: how it is solved, and the linear system at its answer, checked."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.context import current
from ..core.value import Value, wrap
from ..errors import GradientError, LinearAlgebraError
from ..tensors import Tensor
from ..transforms.loop_states import detached, tensors_of, with_tensors
from .equations import Equation
from .linearization import Linearization
from .solvers import norm
from .systems import System
from .traces import Trace

#: From a start and arguments to the answer, as vectors.
Solve = Callable[[NDArray, tuple[Any, ...]], NDArray]


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
                _check_regular(system, args)
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


def _check_regular(system: System, args: tuple[Any, ...]) -> None:
    """Raise where F_x changes within the accuracy of the answer, as at a double root: there it is zero up to rounding.

    Where rounding hides F, the accuracy is the square root of that of numbers, as far as a double root is known.
    """
    equation = system.point.equation
    if equation.is_linear or not equation.space.size:
        return
    found = system.weakest()
    if found is None:
        return
    space, (weakest, weights, product) = equation.space, found
    x = space.join([part.array for part in system.point.unknowns])
    typical = np.where(x != 0.0, np.abs(x), norm(x))
    with np.errstate(all="ignore"):
        share = float(np.nanmax(np.abs(weakest) / typical))
        size = max(norm(weights * system.point.residual), np.sqrt(space.eps) / share)
        rise = system.point.times(size * weakest) if product is None else size * product
        there = Linearization(equation, space.split(x + size * weakest), args, captured=None)
        change = there.times(size * weakest) - rise
    if norm(weights * change) > 0.25 * norm(weights * rise):
        raise LinearAlgebraError(
            f"{equation.name}: {equation.matrix} is singular: it is no larger than its change within the accuracy of "
            "the answer, as at a double root, so the answer has no derivative by the parameters. Move away from the "
            "point, or add a term that decides (such as 1e-6 * x)."
        )


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
