"""Compare the rules of a custom op with finite differences of its forward, along one random direction per argument."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply, compute
from ..core.context import entered
from ..core.forward import forward
from ..core.gradients import link_of
from ..core.op import NON_DIFFERENTIABLE, Op
from ..core.reverse import reverse
from ..core.value import LEAF, Value, wrap
from ..dtypes import FLOAT_DTYPES
from ..errors import GradientError
from ..tensors import Tensor

#: Relative to each element. Two steps tell noise and kinks from a wrong rule.
_STEPS = (1e-4, 1e-5)
#: Of central differences, relative to the size of the derivative.
_TOLERANCE = 1e-6
#: Of the dot-product test, where both sides are exact but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Slope:
    """A directional derivative by differences: its value, the error it may have, and the size of its terms."""

    value: float
    error: float
    size: float


#: For each argument, the kinds of its rules that were given, not made from the other: "vjp", "jvp".
Given = Mapping[str, Sequence[str]]


def check_rules(op: Op, operands: Sequence[Any], params: dict[str, Any], given: Given, where: str) -> bool:
    """Raise if a rule disagrees with differences; return whether they could tell for every argument.

    Differences cannot tell at a kink, in noise, at the edge of a domain, or where all derivatives are zero.

    Args:
        op: the op.
        operands: tensors, arrays or numbers; the check runs in float64.
        params: all static parameters.
        given: which rules to check.
        where: says in messages where the operands come from.
    """
    arrays = [_plain(x) for x in operands]
    positions = list(_differentiable(op, arrays))
    is_sure = bool(positions)
    with np.errstate(all="ignore"), entered(grad=True, tapes=(), watch_all=False, scopes=()):
        for position in positions:
            argument = op.arguments[position]
            t, cotangents = _directions(op, arrays, position, params)
            found = {kind: _BY_RULE[kind](op, arrays, position, params, t, cotangents) for kind in given[argument]}
            if len(found) == 2:
                _compare_modes(op, argument, found["vjp"], found["jvp"], where)
            slope = _slope(op, arrays, position, params, t, cotangents)
            is_sure = is_sure and slope is not None and slope.size > 0.0
            for kind, value in found.items():
                if slope is not None:
                    _compare(op, argument, kind, value, slope, where)
    return is_sure


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
        g.flags.writeable = False  # A rule that writes to its cotangent spoils those of others.
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

    def at(h: float) -> NDArray:
        moved = [x + h * t if i == position else x for i, x in enumerate(arrays)]
        outs = _outputs(op, moved, params)
        return np.concatenate([(y * g).ravel() for y, g in zip(outs, cotangents, strict=True)])

    try:
        middle = at(0.0)
        sides = [((at(h) - middle) / h, (middle - at(-h)) / h) for h in _STEPS]
    except (ValueError, TypeError, ArithmeticError):
        return None
    centres = [(ahead + behind) / 2.0 for ahead, behind in sides]
    bends = [float(np.sum(np.abs(ahead - behind))) for ahead, behind in sides]
    size = float(np.sum(np.abs(centres[1])))
    # One-sided differences of a smooth function approach each other with the step; at a kink they do not.
    kink = max(0.0, bends[1] - 1.1 * bends[0] * _STEPS[1] / _STEPS[0])
    error = float(np.sum(np.abs(centres[0] - centres[1]))) + kink
    if not np.isfinite(size + error) or error > 0.1 * max(size, 1e-12):
        return None
    return _Slope(float(np.sum(centres[1])), error, size)
