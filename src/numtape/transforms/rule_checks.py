"""Check the rules of a custom op: on samples, and at its first calls, as long as operands may hide mistakes."""

import contextlib
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.computing import compute
from ..core.op import NON_DIFFERENTIABLE, Op
from ..core.record import shortened
from ..core.scopes import aside
from ..core.value import Lifted, Value, array_of, wrap
from ..dtypes import FLOAT_DTYPES, is_float
from ..errors import ArgumentError, GradientError, NotDifferentiableError, OperandError
from ..ops.samples import Sample
from ..taylor import Series
from ..tensors import Tensor
from ..verdicts.judging import Verdict
from .rule_probes import Probe, Slope

#: What the checks of an argument may take until differences could tell; at operands that hide mistakes, as zeros,
#: a check takes less of it.
_PATIENCE = 48
_COST, _COST_AT_ZERO = 16, 1
#: How far from the operands of a call its rules are checked as well, relative to each.
_BESIDE = 0.01
#: By how much a function that is linear may miss the multiple of its output.
_LINEAR = 1e-6
#: Of the dot-product test, where both sides are exact but for rounding.
_ROUNDING = 1e-9


#: How operands may hide mistakes of rules: which of them are equal, by their numbers.
Hiding = frozenset[tuple[int, int]]

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
        #: Those of them that were right on operands that may hide a mistake, each with how these did.
        self.doubted: dict[str, list[Hiding]] = {}

    def at_call(self, operands: Sequence[Any], params: dict[str, Any]) -> None:
        """Check the rules of arguments that wait and are given float tensors or arrays."""
        # A series has a value to check at; a batch has too many.
        operands = [wrap(Tensor, array_of(x)) if isinstance(x, Series) else x for x in operands]
        if not all(map(_is_operand, operands)):
            return
        hiding = _hiding(operands)
        ready = {
            argument: x
            for argument, x in zip(self.op.arguments, operands, strict=True)
            if argument in self.waiting and not self._is_hidden(argument, hiding)
            if isinstance(x, Value | np.ndarray) and is_float(x.dtype)
        }
        given = {argument: self.given[argument] for argument in ready}
        where = "at its first call"
        if params:
            where += " with " + ", ".join(f"{name}={shortened(repr(value))}" for name, value in params.items())
        told = check_rules(self.op, operands, params, given, where) if ready else {}
        for argument, x in ready.items():
            is_telling = argument not in self.doubted and np.any(_plain(x))
            if told.get(argument) and self._settle(argument, operands, params):
                continue
            self.waiting[argument] -= _COST if is_telling else _COST_AT_ZERO
            if self.waiting[argument] <= 0:
                del self.waiting[argument]

    def _is_hidden(self, argument: str, hiding: Hiding) -> bool:
        """Say whether operands hide the same mistakes of a rule as others that it was right on."""
        return any(known and known <= hiding for known in self.doubted.get(argument, ()))

    def _settle(self, argument: str, operands: Sequence[Any], params: dict[str, Any]) -> bool:
        """Wait no longer for an argument whose rules were right, if they are so beside the operands as well.

        With a * b for both, the rules of a product are right where both are equal; with 2, that of a square at 1; where
        a matrix is symmetric, those that forget to transpose it. A rule that is wrong beside its operands is not
        accused: some are right where they are ever called, as those for unit vectors or covariances.
        """
        hiding = _hiding(operands)
        beside = self._is_right_beside(argument, operands, params)
        if beside or (beside is None and not hiding):
            self.waiting.pop(argument, None)
            return True
        self.doubted.setdefault(argument, []).append(hiding)
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


def _is_operand(x: Any) -> bool:
    """Say whether rules can be checked beside an operand; the op itself refuses what is none."""
    if isinstance(x, Value | np.ndarray | np.generic):
        return not isinstance(x, Lifted) and (x.dtype in FLOAT_DTYPES or x.dtype.kind in "biu")
    return x is None or isinstance(x, float | int)


def _hiding(operands: Sequence[Any]) -> Hiding:
    """Return how operands may hide mistakes: pairs of equal arrays, and symmetric matrices as pairs with themselves."""
    arrays = {i: x for i, x in enumerate(map(_array, operands)) if isinstance(x, np.ndarray)}
    equal = [
        (i, j)
        for (i, x), (j, y) in itertools.combinations(arrays.items(), 2)
        if x.shape == y.shape and (x is y or np.array_equal(x, y))
    ]
    return frozenset([*equal, *((i, i) for i, x in arrays.items() if _is_symmetric(x))])


def _is_symmetric(x: NDArray) -> bool:
    """Say whether an array is a symmetric matrix of more than one element, or a stack of them."""
    return x.ndim > 1 and x.shape[-1] == x.shape[-2] > 1 and np.array_equal(x, x.swapaxes(-1, -2))


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Value) else x


def _resized(x: NDArray, part: float) -> NDArray:
    """Return an operand that is larger by a part, and sparse, sorted or positive if it was.

    Elements that are all equal become different, and a symmetric matrix becomes one that is not.
    """
    is_uniform = x.size > 1 and (np.all(x == x.flat[0]) or _is_symmetric(x))
    if not is_uniform:
        return np.asarray(x * (1.0 + part))
    moved = x * (1.0 + part * np.linspace(0.5, 1.0, x.size).reshape(x.shape))
    # A diagonal matrix stays symmetric however its elements change.
    return moved + np.triu(np.full(x.shape, part * np.max(np.abs(x))), 1) if _is_symmetric(moved) else moved


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
    _check_linear(op, arrays, params, where)
    told: dict[str, bool] = {}
    with np.errstate(all="ignore"), aside(grad=True):
        for position in _differentiable(op, arrays):
            argument = op.arguments[position]
            if argument not in given:
                continue
            probe = Probe(op, arrays, position, params)
            found = {kind: probe.by_rule(kind) for kind in given[argument]}
            if len(found) == 2:
                _compare_modes(op, argument, found["vjp"], found["jvp"], where)
            slope = probe.slope()
            if slope is None:
                continue
            is_clear = slope.is_clear
            for kind, value in found.items():
                if not (slope.is_clear and slope.agrees(value)):
                    is_clear = _stands(probe, kind, value, slope, where)
            if is_clear and (slope.size > 0.0 or np.any(arrays[position])):
                told[argument] = slope.size > 0.0
    return told


def _stands(probe: Probe, kind: str, value: float, slope: Slope, where: str) -> bool:
    """Say whether a closer look finds that the derivative which a rule gives is right; raise if it is wrong."""
    finding = probe.judge(kind, value, slope)
    if finding.verdict is Verdict.WRONG:
        raise GradientError(
            f"{probe.op.name}: the {kind} rule of argument {probe.argument!r} gives a directional derivative of "
            f"{value:.6g}, differences of the function give {finding.numeric:.6g} ({where}). Correct the rule, or "
            "declare the op with check=False if its derivative differs on purpose."
        )
    return finding.verdict is Verdict.RIGHT


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


def _check_linear(op: Op, arrays: Sequence[Any], params: dict[str, Any], where: str) -> None:
    """Raise if the function is not linear in an operand in which it is said to be."""
    for argument in op.facts.linear:
        position = op.arguments.index(argument)
        if not isinstance(arrays[position], np.ndarray):
            continue
        with np.errstate(all="ignore"):
            out = compute(op, arrays, params)
            scaled = compute(op, [-2.0 * x if i == position else x for i, x in enumerate(arrays)], params)
        pairs = zip(*(y if isinstance(y, tuple) else (y,) for y in (out, scaled)), strict=True)
        if not all(_is_multiple(y, z) for y, z in pairs):
            raise GradientError(
                f"{op.name}: linear names {argument!r}, but -2 times that operand does not give -2 times the output "
                f"({where}). Leave it out of linear."
            )


def _is_multiple(y: NDArray, z: NDArray) -> bool:
    rounding = _LINEAR * float(np.max(np.abs(y), initial=0.0, where=np.isfinite(y)))
    return y.shape == z.shape and np.allclose(-2.0 * y, z, rtol=0.0, atol=rounding, equal_nan=True)


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
