"""Linear systems with the derivative of an equation: as a matrix or by products, checked, with errors that say why."""

import math
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._typing import NDArray
from ..errors import ArgumentError, ConvergenceError, LinearAlgebraError
from .equations import Equation
from .krylov import Result, conjugate_gradients, gmres
from .linearization import Linearization

METHODS = ("auto", "dense", "cg", "gmres")

#: Up to so many unknowns a matrix is made by default.
_DENSE_UNKNOWNS = 500

#: Up to so many unknowns a matrix is made where products leave it open whether a system is singular.
_DOUBTFUL_UNKNOWNS = 2000

#: The least amount by which rounding changes an equation: a few of the smallest numbers there are.
_LEAST = 4.0 * float(np.finfo(np.float64).smallest_subnormal)


def check_method(name: str, method: Any) -> None:
    """Raise unless a method is known."""
    if method not in METHODS:
        raise ArgumentError(f"{name}: linear is {method!r}; it must be one of {', '.join(map(repr, METHODS))}.")


class Probe(NamedTuple):
    """A step of x, and how much it changes the equations as far as they are linear."""

    step: NDArray
    rise: NDArray
    #: The change over the one that was asked for, up to signs.
    share: float


class System:
    """Solves systems with F_x, or with its transpose, at one point.

    Args:
        point: where.
        method: "dense", "cg", "gmres", or "auto": dense for few unknowns, else cg for minima and gmres for the rest.
        is_positive: whether F_x is known to be symmetric and positive definite.
    """

    def __init__(self, point: Linearization, method: str, is_positive: bool) -> None:
        self.point = point
        self.name = point.equation.name
        self.is_positive = is_positive
        #: Whether a matrix may take over where products fail.
        self.is_free = method == "auto" and point.space.size <= _DOUBTFUL_UNKNOWNS
        if method == "auto":
            few = point.space.size <= _DENSE_UNKNOWNS or point.equation.wants_matrix
            method = "dense" if few else "cg" if is_positive else "gmres"
        self.method = method
        self.eps = point.space.eps
        self._inverse: Inverse | None = None
        #: By products, once they were checked: the solution for a random right-hand side, and its product.
        self._solved = np.empty(0), np.empty(0)

    @property
    def inverse(self) -> "Inverse | None":
        """The inverse of F_x, made on first use; None for methods that work by products."""
        return self._made_inverse() if self.method == "dense" else self._inverse

    def _made_inverse(self) -> "Inverse":
        if self._inverse is None:
            self._inverse = Inverse(self.point.equation, self.point.matrix(), self.is_positive)
        return self._inverse

    def solve(self, b: NDArray, is_transposed: bool, tolerance: float | None = None) -> NDArray:
        """Return the solution for each column of `b`; with a `tolerance`, a rough one will do."""
        inverse = self.inverse
        if inverse is not None:
            return inverse.solve(b, is_transposed)
        try:
            return np.stack([self._iterate(column, is_transposed, tolerance) for column in b.T], axis=1)
        except LinearAlgebraError:
            if not self.is_free:
                raise
        self.point.equation.wants_matrix = True
        return self._made_inverse().solve(b, is_transposed)

    def _iterate(self, b: NDArray, is_transposed: bool, tolerance: float | None) -> NDArray:
        found = self._iterated(b, is_transposed, tolerance or self.eps**0.7)
        if found.curvature is not None:
            self._raise_negative(found.curvature)
        # What rounding leaves of a system that is not too badly conditioned.
        if not found.residual <= max(tolerance or 0.0, math.sqrt(self.eps)):
            self._raise_unsolved(found)
        return found.x

    def _iterated(self, b: NDArray, is_transposed: bool, tolerance: float) -> Result:
        product = self.point.transposed_times if is_transposed or self.is_positive else self.point.times
        most = 10 * len(b) + 100
        if self.method == "cg":
            return conjugate_gradients(product, b, tolerance, most, is_rough=tolerance > 1e-8)
        return gmres(product, b, tolerance, most)

    def check_regular(self) -> None:
        """Raise if F_x is singular, although products may solve it for a right-hand side that happens to fit.

        A random one does not fit: of a single direction along which F_x is zero it holds about one part in sqrt(n), and
        that much stays as a residual.
        """
        if self.inverse is not None or not self.point.space.size:
            return  # A matrix was checked when it was inverted.
        b = _random(self.point.space.size)
        tolerance = 1e-3 / math.sqrt(len(b))
        found = self._iterated(b, False, tolerance)
        if found.rest is not None and found.residual <= tolerance:
            self._solved = found.x, b - found.rest
            return
        scale = float(np.linalg.norm(self.point.transposed_times(b)) / np.linalg.norm(b))
        if found.curvature is not None and found.curvature < -math.sqrt(self.eps) * scale:
            self._raise_negative(found.curvature)
        if len(b) <= _DOUBTFUL_UNKNOWNS:
            self._made_inverse()
            return
        found = self._iterated(b, True, tolerance)
        rest = b - self.point.transposed_times(found.x)
        if np.linalg.norm(self.point.times(rest)) <= math.sqrt(self.eps) * scale * np.linalg.norm(rest):
            most = int(np.argmax(np.abs(rest)))
            raise_singular(self.point.equation, f"it is zero along a direction, most of it along element {most} of x")
        self._raise_unsolved(found)

    def amounts(self, changes: NDArray) -> NDArray:
        """Return how much each equation changes; by products, how much all of them do, as if each did so much.

        Products probe one random direction, most of which does not matter, so all has to be seen in each equation.
        """
        return np.abs(changes) if self.inverse is not None else np.full_like(changes, _length(changes))

    def rounding(self) -> NDArray:
        """Return the amounts by which rounding of x changes the equations, about; of products that were checked.

        They are zero only where x is: nothing can be told from steps of amounts that are too small for a float.
        """
        x = self.point.x
        if self.inverse is not None:
            amounts = 4.0 * self.eps * (np.abs(self.inverse.matrix) @ np.abs(x))
            is_changed = (self.inverse.matrix != 0.0) @ (x != 0.0)
        else:
            share = _length(x) / _length(self._solved[0])
            amounts = np.full_like(x, 4.0 * self.eps * math.sqrt(len(x)) * share)
            is_changed = np.full(len(x), x.any())
        return np.where(is_changed, np.maximum(amounts, _LEAST), amounts)

    def probes(self, amounts: NDArray) -> list[Probe]:
        """Return steps of x that change each equation by an amount or by four times that, and up to twice either.

        One changes them in proportion to what is left of them, as a Newton step does, some at random, and some so that
        x changes most. Products have solved one system, whose solution they scale.
        """
        if self.inverse is None:
            (step, rise), size = self._solved, 4.0 * amounts[0]
            return [Probe(size * step, size * rise, 4.0)]
        left = np.where(self.point.residual < 0.0, -1.0, 1.0)
        random = _random(len(amounts))
        other = random * np.where(np.arange(len(amounts)) % 2, -1.0, 1.0)  # Far from it in each pair of equations.
        weakest = self.inverse.weakest_signs(amounts, self.point.x)
        shares = (-4.0, 1.0, -4.0, 4.0, -1.0, 4.0)
        rises = amounts[:, None] * np.stack([left, random, random, other, weakest, weakest], axis=1) * shares
        steps = self.inverse.solve(rises, is_transposed=False)
        return [Probe(*probe) for probe in zip(steps.T, rises.T, shares, strict=True)]

    def is_followed(self, probes: list[Probe], misses: list[NDArray]) -> bool:
        """Say whether what F misses of its linear change is little: in x, less than a quarter of the longest steps.

        Products, which cannot tell what it is in x, compare the equations.
        """
        if self.inverse is None:
            pairs = zip(probes, misses, strict=True)
            return all(bool((self.amounts(miss) <= 0.25 * np.abs(probe.rise)).all()) for probe, miss in pairs)
        longest = np.max(np.abs([probe.step for probe in probes]), axis=0)
        errors = self.inverse.solve(np.stack(misses, axis=1), is_transposed=False)
        return bool((np.abs(errors) <= 0.25 * longest[:, None]).all())

    def _raise_unsolved(self, found: Result) -> NoReturn:
        raise LinearAlgebraError(
            f"{self.name}: the linear system of the derivative was not solved: {self.method} left a relative residual "
            f"of {found.residual:.1e} after {found.iterations} iterations for {len(found.x)} unknowns. The system is "
            "singular or badly conditioned: scale the unknowns alike, add a term that decides what is left open, or "
            "use linear='dense'."
        )

    def _raise_negative(self, curvature: float) -> NoReturn:
        if self.is_positive:
            raise_not_positive(self.point.equation, f"the curvature along one direction is {curvature:.1e}")
        raise LinearAlgebraError(
            f"{self.name}: linear='cg' wants a symmetric positive definite derivative, but its curvature along one "
            f"direction is {curvature:.1e}; use linear='gmres' or linear='dense'."
        )


def raise_not_positive(equation: Equation, why: str) -> NoReturn:
    """Raise for a matrix that should be positive definite: as it was said to be, or as that of a minimum."""
    if not equation.is_given:
        raise_not_minimum(equation.name, why)
    raise LinearAlgebraError(
        f"{equation.name}: is_positive=True, but the matrix is not positive definite: {why}. Leave is_positive out, or "
        "change the sign of both sides."
    )


def raise_not_minimum(name: str, why: str) -> NoReturn:
    """Raise for an answer that is no minimum."""
    raise ConvergenceError(
        f"{name}: the answer is no isolated minimum: {why}. It is a saddle, a maximum, or one of many minima in a row. "
        "Start elsewhere, or add a term that decides (such as 1e-6 * (x * x).sum())."
    )


def raise_singular(equation: Equation, why: str) -> NoReturn:
    """Raise for an answer that is one of many."""
    raise LinearAlgebraError(
        f"{equation.name}: {equation.matrix} is singular: {why}. Other answers lie next to this one, so it has no "
        "derivative by the parameters. Take out what is redundant, or add a term that decides (such as 1e-6 * x)."
    )


class Inverse:
    """The inverse of a matrix that was scaled so that the units of unknowns and equations do not matter.

    Raises:
        LinearAlgebraError: if the matrix is singular to working precision.
        ConvergenceError: if it should be positive definite, and is not.
    """

    def __init__(self, equation: Equation, matrix: NDArray, is_positive: bool) -> None:
        self.equation = equation
        self.matrix = matrix
        eps = equation.space.eps
        if not np.isfinite(matrix).all():
            raise LinearAlgebraError(f"{equation.name}: {equation.matrix} is not finite; move away from the point.")
        self.rows, self.columns = self._scales(matrix, is_positive)
        scaled = self.rows[:, None] * matrix * self.columns
        if is_positive:
            self._check_positive(scaled, eps)
        try:
            self._scaled = np.linalg.inv(scaled)
        except np.linalg.LinAlgError:
            raise_singular(equation, "it has no inverse")
        self.condition = float(np.linalg.norm(scaled, 1) * np.linalg.norm(self._scaled, 1)) if scaled.size else 1.0
        if not self.condition < 0.1 / eps:
            raise_singular(equation, f"its condition number is {self.condition:.1e}")

    def _scales(self, matrix: NDArray, is_positive: bool) -> tuple[NDArray, NDArray]:
        """Return powers of two that bring the largest element of each row and column near one."""
        size = np.abs(matrix)
        rows = size.max(axis=1, initial=0.0)
        columns = size.max(axis=0, initial=0.0)
        if not rows.all():
            raise_singular(self.equation, f"equation {int(np.argmin(rows))} does not depend on x")
        if not columns.all():
            raise_singular(self.equation, f"no equation depends on element {int(np.argmin(columns))} of x")
        if is_positive:
            diagonal = np.abs(np.diagonal(matrix))
            scale = _power(np.sqrt(np.where(diagonal > 0.0, diagonal, rows)))
            return scale, scale
        scale = _power(rows)
        return scale, _power((scale[:, None] * size).max(axis=0, initial=0.0))

    def _check_positive(self, scaled: NDArray, eps: float) -> None:
        symmetric = (scaled + scaled.T) / 2.0
        try:
            np.linalg.cholesky(symmetric)
        except np.linalg.LinAlgError:
            least = float(np.linalg.eigvalsh(symmetric)[0])
            if abs(least) <= 10 * eps * len(scaled):
                raise_singular(self.equation, "an eigenvalue is zero")
            what = self.equation.matrix if self.equation.is_given else "the second derivative"
            raise_not_positive(self.equation, f"an eigenvalue of {what}, scaled, is {least:.1e}")

    def _times(self, b: NDArray, is_transposed: bool) -> NDArray:
        left, right, inverse = self.columns, self.rows, self._scaled
        if is_transposed:
            left, right, inverse = right, left, inverse.T
        found: NDArray = left[:, None] * (inverse @ (right[:, None] * b))
        return found

    def solve(self, b: NDArray, is_transposed: bool) -> NDArray:
        """Return the solution for each column of `b`, refined once."""
        matrix = self.matrix.T if is_transposed else self.matrix
        x = self._times(b, is_transposed)
        return x + self._times(b - matrix @ x, is_transposed)

    def has_rows_of(self, other: NDArray) -> bool:
        """Say whether another matrix differs by less than a quarter in each row."""
        change = np.abs(other - self.matrix) @ self.columns
        return bool((change <= 0.25 * (np.abs(self.matrix) @ self.columns)).all())

    def weakest_signs(self, b: NDArray, x: NDArray) -> NDArray:
        """Return signs for the elements of `b` that add up in the element of the solution that is largest beside x."""
        reach = self.columns * (np.abs(self._scaled) @ (self.rows * b))
        sizes = np.where(x != 0.0, np.abs(x), np.abs(x).max())
        return np.where(self._scaled[np.argmax(reach / sizes)] < 0.0, -1.0, 1.0)


def _random(count: int) -> NDArray:
    """Return numbers between 1 and 2, of either sign, the same at each call."""
    rng = np.random.default_rng(0)
    return rng.choice([-1.0, 1.0], count) * rng.uniform(1.0, 2.0, count)


def _length(x: NDArray) -> float:
    """Return the norm of a vector, whose squares may be too small or too large for a float."""
    most = float(np.abs(x).max(initial=0.0))
    return most * float(np.linalg.norm(x / most)) if 0.0 < most < math.inf else most


def _power(sizes: NDArray) -> NDArray:
    """Return the power of two that brings each size to between 1/2 and 1."""
    return np.ldexp(1.0, -np.frexp(sizes)[1])
