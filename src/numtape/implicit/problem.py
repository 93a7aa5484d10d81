"""An equation with what it depends on: how it is solved, and the linear system at its answer, checked."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.value import Value, wrap
from ..errors import GradientError, LinearAlgebraError
from ..tensors import Tensor
from ..transforms.loop_states import detached, tensors_of, with_tensors
from .equations import Equation
from .linearization import Linearization
from .solvers import norm
from .systems import System

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
    """

    def __init__(
        self, equation: Equation, solve: Solve, args: tuple[Any, ...], linear: str, captured: Sequence[Value] = ()
    ) -> None:
        self.equation = equation
        self.solve = solve
        self.args = args
        self.linear = linear
        self.captured = captured
        #: Of the first run: the answer, until it is recorded, and F there.
        self.fresh: list[NDArray] | None = None
        self.residual: NDArray | None = None

    def __repr__(self) -> str:
        return f"<{self.equation.name} of {self.equation.space.size} unknowns>"

    def solve_first(self) -> None:
        """Solve without a tape around, and find what the function captures, at the answer."""
        args = detached(self.args)
        space = self.equation.space
        self.fresh = space.split(self.solve(space.join(space.start), args))
        point = Linearization(self.equation, self.fresh, args, captured=None)
        self.residual = point.residual
        self.captured = point.captured

    def operands(self) -> list[Any]:
        """Return all parameters; from now on they are held by whoever has them."""
        given = tensors_of(self.args)
        self.args = with_tensors(self.args, [wrap(Tensor, np.empty((), x.dtype)) for x in given])
        return [*given, *self.captured]

    def filled(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments with operands put in."""
        args: tuple[Any, ...] = with_tensors(self.args, operands[: len(operands) - len(self.captured)])
        return args

    def system(self, x: Sequence[NDArray], operands: Sequence[NDArray], needs: Sequence[bool]) -> System:
        """Return the linear system at the answer, on a fresh recording that tracks the operands in `needs`."""
        args = self.filled([wrap(Tensor, np.asarray(operand)) for operand in operands])
        # The linear systems of higher orders differentiate by arguments of theirs.
        point = Linearization(self.equation, x, args, self.captured, needs if self.residual is not None else None)
        system = System(point, self.linear, self.equation.is_minimum)
        if self.residual is not None:
            self._check_same(point)
            system.check_regular()
            _check_regular(system, args)
        return system

    def _check_same(self, point: Linearization) -> None:
        """Raise if the function gives something else than when the equation was solved."""
        assert self.residual is not None
        before, now = norm(self.residual), point.residual
        if not norm(now - self.residual) <= 1e3 * before + np.sqrt(self.equation.space.eps):
            raise GradientError(
                f"{self.equation.title} gave another result at the answer when it ran again for its derivative: |F| is "
                f"{norm(now):.1e} and was {before:.1e}. It must depend on its arguments and on what does not change; "
                "pass what changes as an argument."
            )


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
    space, (weakest, weights) = equation.space, found
    x = space.join([part.array for part in system.point.unknowns])
    typical = np.where(x != 0.0, np.abs(x), norm(x))
    with np.errstate(all="ignore"):
        share = float(np.nanmax(np.abs(weakest) / typical))
        size = max(norm(weights * system.point.residual), np.sqrt(space.eps) / share)
        rise = system.point.times(size * weakest)
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
