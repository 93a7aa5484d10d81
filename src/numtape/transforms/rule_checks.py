"""Compare the rules of a custom op with finite differences of its forward, along one random direction per argument."""

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..core.computing import compute
from ..core.forward import forward
from ..core.gradients import link_of
from ..core.op import NON_DIFFERENTIABLE, Op
from ..core.record import shortened
from ..core.reverse import reverse
from ..core.scopes import aside
from ..core.value import LEAF, Lifted, Value, array_of, wrap
from ..dtypes import FLOAT_DTYPES, is_float, unit_of
from ..errors import ArgumentError, GradientError, NotDifferentiableError, OperandError
from ..ops.samples import Sample
from ..taylor import Series
from ..tensors import Tensor

#: What the checks of an argument may take until differences could tell; at operands that hide mistakes, as zeros,
#: a check takes less of it.
_PATIENCE = 48
_COST, _COST_AT_ZERO = 16, 1
#: How far from the operands of a call its rules are checked as well, relative to each.
_BESIDE = 0.01
#: Relative to each element. Two steps tell noise and kinks from a wrong rule.
_STEPS = (1e-4, 1e-5)
#: Of central differences, relative to the size of the derivative.
_TOLERANCE = 1e-6
#: So many times an error are beyond doubt.
_FAR = 3.0
#: Of the dot-product test, where both sides are exact but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Slope:
    """A directional derivative by differences: its value, the error it may have, and the size of its terms.

    One that is not clear says nothing of rules that agree with it, but much of those that are far away.
    """

    value: float
    error: float
    size: float
    is_clear: bool


#: For each argument, the kinds of its rules that were given, not made from the other: "vjp", "jvp".
Given = Mapping[str, Sequence[str]]


class RuleChecks:
    """The checks of one op: on samples, and for arguments that these did not settle, at its first calls.

    Args:
        op: the op.
        given: which rules to check.
    """

    def __init__(self, op: Op, given: Given) -> None:
        self.op = op
        self.given = given
        #: For each argument whose rules are not settled, how many calls its check may take yet.
        self.waiting = {argument: _PATIENCE for argument, kinds in given.items() if kinds}
        #: Those of them that were right on operands that may hide a mistake.
        self.doubted: set[str] = set()

    def at_call(self, operands: Sequence[Any], params: dict[str, Any]) -> None:
        """Check the rules of arguments that wait and are given float tensors or arrays."""
        # A series has a value to check at; a batch has too many.
        operands = [wrap(Tensor, array_of(x)) if isinstance(x, Series) else x for x in operands]
        if any(isinstance(x, Lifted) for x in operands):
            return
        # Such operands hide the same mistakes each time.
        hidden = self.doubted if self.doubted and _may_hide(operands) else ()
        ready = {
            argument: x
            for argument, x in zip(self.op.arguments, operands, strict=True)
            if argument in self.waiting and argument not in hidden
            if isinstance(x, Value | np.ndarray) and is_float(x.dtype)
        }
        given = {argument: self.given[argument] for argument in ready}
        where = "at its first call"
        if params:
            where += " with " + ", ".join(f"{name}={shortened(repr(value))}" for name, value in params.items())
        told = check_rules(self.op, operands, params, given, where) if ready else {}
        for argument, x in ready.items():
            if told.get(argument) and self._settle(argument, operands, params):
                continue
            if argument not in self.doubted or not _may_hide(operands):
                is_telling = argument not in self.doubted and np.any(_plain(x))
                self.waiting[argument] -= _COST if is_telling else _COST_AT_ZERO
            if self.waiting[argument] <= 0:
                del self.waiting[argument]

    def _settle(self, argument: str, operands: Sequence[Any], params: dict[str, Any]) -> bool:
        """Wait no longer for an argument whose rules were right, if they are so beside the operands as well.

        With a * b for both, the rules of a product are right where both are equal; with 2, that of a square at 1. A
        rule that is wrong beside its operands is not accused: some are right where they are ever called, as those for
        unit vectors. Beside a symmetric matrix are others, so that a transpose that is missing never shows.
        """
        beside = self._is_right_beside(argument, operands, params)
        if (beside and not _has_symmetric(operands)) or (beside is None and not _may_hide(operands)):
            self.waiting.pop(argument, None)
            return True
        self.doubted.add(argument)
        return False

    def _is_right_beside(self, argument: str, operands: Sequence[Any], params: dict[str, Any]) -> bool | None:
        """Say whether the rules of an argument are right on operands of slightly other sizes; None if nobody can."""
        arrays = [_plain(x) for x in operands]
        for distance in (_BESIDE, -_BESIDE):  # One of them may be outside of the domain.
            moved = list(arrays)
            for position in _differentiable(self.op, arrays):
                moved[position] = _resized(arrays[position], distance * (position + 1.0))
            try:
                told = check_rules(self.op, moved, params, {argument: self.given[argument]}, "beside its operands")
            except GradientError:
                return False
            except Exception:  # A function may raise anything there.
                continue
            if told.get(argument):
                return True
        return None

    def on_sample(self, number: int, given: Any, signature: inspect.Signature) -> dict[str, Any]:
        """Check all rules on a sample, in both modes, and return its static parameters; raise if it can check none."""
        sample = given if isinstance(given, Sample) else Sample(given if isinstance(given, tuple) else (given,), {})
        if sample.skip_derivatives:
            return {}
        title, where = f"{self.op.name}: sample {number}", f"on sample {number}"
        operands, params = _read_sample(self.op, title, sample, signature)
        told = check_rules(self.op, operands, params, self.given, where)
        both = {argument: ("vjp", "jvp") if kinds else () for argument, kinds in self.given.items()}
        with contextlib.suppress(NotDifferentiableError):  # A mode that the op lacks says so when it is used.
            check_rules(self.op, operands, params, both, where)
        if not told and any(self.given.values()):
            raise ArgumentError(
                f"{title} checks nothing: its operands are empty or zero, or differences cannot tell there. Give one "
                "inside of the domain, away from kinks and from zero."
            )
        for argument, is_sure in told.items():
            if is_sure and argument in self.waiting:
                self._settle(argument, operands, params)
        return params


def _may_hide(operands: Sequence[Any]) -> bool:
    """Say whether two operands are equal arrays, or one is a symmetric matrix."""
    pairs = itertools.combinations(_arrays(operands), 2)
    has_equals = any(x.shape == y.shape and (x is y or np.array_equal(x, y)) for x, y in pairs)
    return has_equals or _has_symmetric(operands)


def _has_symmetric(operands: Sequence[Any]) -> bool:
    """Say whether an operand is a symmetric matrix of more than one element, or a stack of them."""
    matrices = [x for x in _arrays(operands) if x.ndim > 1 and x.shape[-1] == x.shape[-2] > 1]
    return any(np.array_equal(x, x.swapaxes(-1, -2)) for x in matrices)


def _arrays(operands: Sequence[Any]) -> list[NDArray]:
    arrays = (x.array if isinstance(x, Value) else x for x in operands)
    return [x for x in arrays if isinstance(x, np.ndarray)]


def _resized(x: NDArray, part: float) -> NDArray:
    """Return an operand that is larger by a part, and symmetric, sparse, sorted or positive if it was.

    Elements that are all equal become different.
    """
    is_constant = x.size > 1 and np.all(x == x.flat[0])
    return np.asarray(x * (1.0 + part * (np.linspace(0.5, 1.0, x.size).reshape(x.shape) if is_constant else 1.0)))


def _read_sample(op: Op, title: str, sample: Sample, signature: inspect.Signature) -> tuple[list[Any], dict[str, Any]]:
    """Return the operands and parameters of a sample, with defaults for those that it does not have."""
    try:
        bound = signature.bind(*sample.args, **sample.params)
    except TypeError as error:
        raise ArgumentError(
            f"{title} does not fit: {error}. A sample is a tuple of operands of {op.name}{signature}."
        ) from None
    bound.apply_defaults()
    params = bound.arguments
    operands = [params.pop(argument) for argument in op.arguments]
    for position, (argument, x) in enumerate(zip(op.arguments, operands, strict=True)):
        if x is not None and op.pull(position) is not NON_DIFFERENTIABLE:
            operands[position] = _as_floats(f"{title} gives argument {argument!r}", x)
    return operands, params


def _as_floats(what: str, x: Any) -> NDArray:
    """Return an operand of a sample as an array of float64."""
    if isinstance(x, float | int | np.number | list | tuple):
        try:
            return np.asarray(x, np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"{what} as {x!r}, which is no array of floats.") from None
    if not isinstance(x, Value | np.ndarray):
        raise ArgumentError(f"{what} as {type(x).__name__}; a sample is a tuple of operands, as in samples=[(x, y)].")
    if not is_float(x.dtype):
        raise ArgumentError(
            f"{what} as an array of {x.dtype}, which has no derivative; give floats, as x.astype(float), or None in "
            "place of its rule."
        )
    return np.asarray(x.array if isinstance(x, Value) else x).astype(np.float64)


def check_rules(op: Op, operands: Sequence[Any], params: dict[str, Any], given: Given, where: str) -> dict[str, bool]:
    """Raise if a rule disagrees with differences.

    Return the arguments that they could tell about, each with whether it is settled: a derivative that is zero hides
    mistakes. They cannot tell at a kink, in noise, or at the edge of a domain.

    Args:
        op: the op.
        operands: tensors, arrays or numbers; the check runs in float64.
        params: all static parameters.
        given: which rules to check.
        where: says in messages where the operands come from.
    """
    arrays = [_plain(x) for x in operands]
    _check_untouched(op, arrays, params)
    told: dict[str, bool] = {}
    with np.errstate(all="ignore"), aside(grad=True):
        for position in _differentiable(op, arrays):
            argument = op.arguments[position]
            if argument not in given:
                continue
            t, cotangents = _directions(op, arrays, position, params)
            found = {kind: _BY_RULE[kind](op, arrays, position, params, t, cotangents) for kind in given[argument]}
            if len(found) == 2:
                _compare_modes(op, argument, found["vjp"], found["jvp"], where)
            slope = _slope(op, arrays, position, params, t, cotangents)
            if slope is None:
                continue
            for kind, value in found.items():
                _compare(op, argument, kind, value, slope, where)
            if slope.is_clear and (slope.size > 0.0 or np.any(arrays[position])):
                told[argument] = slope.size > 0.0
    return told


def _check_untouched(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> None:
    """Raise if the function writes to an operand."""
    before = [x.copy() if isinstance(x, np.ndarray) else x for x in arrays]
    with np.errstate(all="ignore"):
        given = [x.copy() if isinstance(x, np.ndarray) else x for x in before]
        compute(op, given, params)
    for argument, x, y in zip(op.arguments, before, given, strict=True):
        if isinstance(x, np.ndarray) and not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
            raise OperandError(
                f"{op.name}: the function of a custom_op writes to its operand {argument!r}, which others hold; write "
                "to a copy."
            )


def _compare(op: Op, argument: str, kind: str, value: float, slope: _Slope, where: str) -> None:
    if not abs(value - slope.value) <= _TOLERANCE * max(slope.size, abs(value)) + slope.error:
        raise GradientError(
            f"{op.name}: the {kind} rule of argument {argument!r} gives a directional derivative of {value:.6g}, "
            f"differences of the function give {slope.value:.6g} ({where}). Correct the rule, or declare the op with "
            "check=False if its derivative differs on purpose."
        )


def _compare_modes(op: Op, argument: str, pulled: float, pushed: float, where: str) -> None:
    if abs(pulled - pushed) > _ROUNDING * max(1.0, abs(pulled), abs(pushed)):
        raise GradientError(
            f"{op.name}: the vjp rule of argument {argument!r} is not the transpose of its jvp rule: <vjp(g), t> is "
            f"{pulled:.6g} and <g, jvp(t)> is {pushed:.6g} ({where}). Correct one of them, or leave one out: it is "
            "then made from the other."
        )


def _plain(x: Any) -> Any:
    """Return an operand as an array of float64 if it is one of floats, else as it is."""
    array = x.array if isinstance(x, Value) else x
    if isinstance(array, np.ndarray) and array.dtype in FLOAT_DTYPES:
        return array.astype(np.float64)
    return array


def _differentiable(op: Op, arrays: Sequence[Any]) -> Iterator[int]:
    for position, array in enumerate(arrays):
        is_floats = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.size > 0
        if is_floats and op.pull(position) is not NON_DIFFERENTIABLE:
            yield position


def _outputs(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> list[NDArray]:
    out = compute(op, arrays, params)
    return [part for part in (out if isinstance(out, tuple) else (out,)) if part.dtype in FLOAT_DTYPES]


def _directions(op: Op, arrays: Sequence[Any], position: int, params: dict[str, Any]) -> tuple[NDArray, list[NDArray]]:
    """Return a random tangent of an argument, in proportion to its elements, and random cotangents of the outputs."""
    rng = np.random.default_rng(0)

    def draw(shape: Any) -> NDArray:
        return np.asarray(rng.uniform(0.5, 1.0, shape) * rng.choice([-1.0, 1.0], shape))

    x = arrays[position]
    largest = float(np.max(np.abs(x)))
    tangent = draw(x.shape) * np.maximum(np.abs(x), 1e-3 * largest or 1.0)
    cotangents = [draw(y.shape) for y in _outputs(op, arrays, params)]
    for g in cotangents:
        g.setflags(write=False)  # A rule that writes to its cotangent spoils those of others.
    return tangent, cotangents


def _recorded(op: Op, arrays: Sequence[Any], position: int, params: dict[str, Any]) -> tuple[Any, list[Any]]:
    source = wrap(Tensor, arrays[position], LEAF)
    out = apply(op, [source if i == position else x for i, x in enumerate(arrays)], params)
    outs = out if isinstance(out, tuple) else (out,)
    return source, [y for y in outs if y.dtype in FLOAT_DTYPES]


def _pulled(
    op: Op, arrays: Sequence[Any], position: int, params: dict[str, Any], t: NDArray, cotangents: list[NDArray]
) -> float:
    source, outs = _recorded(op, arrays, position, params)
    found = reverse([(link_of(y), g) for y, g in zip(outs, cotangents, strict=True)], [source])
    return float(np.sum(found[source] * t))


def _pushed(
    op: Op, arrays: Sequence[Any], position: int, params: dict[str, Any], t: NDArray, cotangents: list[NDArray]
) -> float:
    source, outs = _recorded(op, arrays, position, params)
    tangents = forward([(source, t)], [link_of(y) for y in outs])
    return sum(float(np.sum(g * p)) for g, p in zip(cotangents, tangents, strict=True) if p is not None)


_BY_RULE: dict[str, Callable[..., float]] = {"vjp": _pulled, "jvp": _pushed}


def _slope(
    op: Op, arrays: Sequence[Any], position: int, params: dict[str, Any], t: NDArray, cotangents: list[NDArray]
) -> _Slope | None:
    """Return the derivative along `t` by differences, or None if they cannot tell."""

    def weighted(outs: Sequence[NDArray], scale: Callable[[NDArray], float] = lambda y: 1.0) -> NDArray:
        return np.concatenate([(scale(y) * y * g).ravel() for y, g in zip(outs, cotangents, strict=True)])

    def at(h: float) -> NDArray:
        return weighted(_outputs(op, [x + h * t if i == position else x for i, x in enumerate(arrays)], params))

    try:
        outs = _outputs(op, arrays, params)
        middle = weighted(outs)
        sides = [((at(h) - middle) / h, (middle - at(-h)) / h) for h in _STEPS]
    except (ValueError, TypeError, ArithmeticError):
        return None
    centres = [(ahead + behind) / 2.0 for ahead, behind in sides]
    bends = [float(np.sum(np.abs(ahead - behind))) for ahead, behind in sides]
    size = float(np.sum(np.abs(centres[1])))
    # One-sided differences of a smooth function approach each other with the step; at a kink they do not.
    kink = max(0.0, bends[1] - 1.1 * bends[0] * _STEPS[1] / _STEPS[0])
    # What rounding may have changed in the outputs, each by its own. One that does not move at all is clear, but may
    # have to by less than that.
    rounding = _FAR * weighted(outs, lambda y: unit_of(y.dtype)) / _STEPS[1]
    has_moved = (sides[1][0] != 0.0) | (sides[1][1] != 0.0)
    error = float(np.sum(np.abs(centres[0] - centres[1]))) + kink + float(np.linalg.norm(rounding[has_moved]))
    if not np.isfinite(size + error):
        return None
    is_clear = error <= 0.1 * max(size, 1e-12)
    error += float(np.linalg.norm(rounding[~has_moved]))
    return _Slope(float(np.sum(centres[1])), error if is_clear else _FAR * error, size, is_clear)
