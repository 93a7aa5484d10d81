"""Compare a function's gradients with central differences."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..api import vjp
from ..core.value import Value, wrap
from ..dtypes import is_float
from ..errors import ArgumentError, OperandError
from ..grad_mode import no_grad
from ..tensors import Tensor


@dataclass(frozen=True)
class Row:
    """The worst element of one argument."""

    argument: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    analytic: float
    numeric: float
    error: float


@dataclass(frozen=True)
class GradientCheck:
    """The result of `check_gradients`; true if all gradients agree."""

    is_valid: bool
    max_error: float
    tolerance: float
    rows: list[Row] = field(repr=False)

    def __bool__(self) -> bool:
        return self.is_valid

    def __str__(self) -> str:
        table = [("argument", "shape", "worst at", "gradient", "difference quotient", "error")]
        table += [
            (
                row.argument,
                str(row.shape),
                str(list(row.index)),
                f"{row.analytic:.9g}",
                f"{row.numeric:.9g}",
                f"{row.error:.1e}",
            )
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        verdict = "right" if self.is_valid else "WRONG"
        lines.append(f"gradients are {verdict}: largest error {self.max_error:.1e}, tolerance {self.tolerance:.0e}")
        return "\n".join(lines)


def check_gradients(
    function: Callable[..., Any], *args: Any, tolerance: float = 1e-6, step: float = 1e-5, seed: int = 0
) -> GradientCheck:
    """Compare the gradient of a function by each float argument with central differences, in float64.

    Outputs that are not scalar are weighted with random numbers, so that each of them counts. The error of an element
    is relative to the largest gradient of its argument, or absolute below 1.

    Args:
        function: takes tensors; returns a tensor or a tree of tensors.
        args: where to check: tensors, arrays, numbers and trees of them; integers are passed through.
        tolerance: the largest error that counts as right.
        step: the step of the differences, relative to the element.
        seed: of the random weights.

    Example:
        >>> check = nt.check_gradients(lambda x: (x.exp() * x).sum(), np.array([0.5, 1.0]))
        >>> check.is_valid
        True
    """
    flat = [_as_float64(leaf) for leaf in tree.leaves(args)]
    floats = [i for i, x in enumerate(flat) if isinstance(x, np.ndarray)]
    if not floats:
        raise OperandError("check_gradients: no argument is a float tensor, array or number.")

    def call(*arrays: Any) -> Any:
        filled = list(flat)
        for i, array in zip(floats, arrays, strict=True):
            filled[i] = array
        return function(*tree.unflatten(args, filled))

    arrays = [flat[i] for i in floats]
    value, pull = vjp(call, *(wrap(Tensor, x) for x in arrays))
    outs = [np.asarray(y.array) for y in tree.leaves(value)]
    if not outs:
        raise ArgumentError("check_gradients: the function returned nothing to differentiate.")
    rng = np.random.default_rng(seed)
    weights = [np.ones(y.shape) if y.size == 1 else rng.uniform(0.5, 1.5, y.shape) for y in outs]
    gradients = [g.array for g in pull(tree.unflatten(value, weights))]

    def scalar(*points: NDArray) -> float:
        with no_grad():
            result = call(*(wrap(Tensor, x) for x in points))
        return sum(float(np.sum(np.asarray(_array(y)) * w)) for y, w in zip(tree.leaves(result), weights, strict=True))

    names = _names(args, flat, floats)
    rows = [_worst(names[k], k, arrays, gradients[k], scalar, step) for k in range(len(arrays)) if arrays[k].size]
    worst = max((row.error for row in rows), default=0.0)
    # NaN compares false, so a NaN error is not valid.
    return GradientCheck(bool(worst <= tolerance), worst, tolerance, rows)


def _array(value: Any) -> Any:
    return value.array if isinstance(value, Value) else value


def _as_float64(leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return leaf.array.astype(np.float64) if is_float(leaf.dtype) else leaf
    if isinstance(leaf, float) or (isinstance(leaf, np.ndarray | np.generic) and is_float(leaf.dtype)):
        return np.array(leaf, np.float64)
    return leaf


def _names(args: tuple[Any, ...], flat: list[Any], floats: list[int]) -> list[str]:
    owners = [k for k, arg in enumerate(args) for _ in tree.leaves(arg)]
    names = []
    for i in floats:
        leaf = tree.leaves(args)[i]
        given = leaf.extras.name if isinstance(leaf, Value) and leaf.extras is not None else None
        siblings = owners.count(owners[i])
        place = f".{i - owners.index(owners[i])}" if siblings > 1 else ""
        names.append(given or f"args[{owners[i]}]{place}")
    return names


def _worst(
    name: str, k: int, arrays: list[NDArray], gradient: NDArray, scalar: Callable[..., float], step: float
) -> Row:
    x = arrays[k]
    numeric = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        h = step * max(1.0, abs(float(x[index])))
        ends = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[index] += sign * h
            ends.append(scalar(*arrays[:k], moved, *arrays[k + 1 :]))
        numeric[index] = (ends[0] - ends[1]) / (2.0 * h)
    scale = max(1.0, float(np.max(np.abs(gradient), initial=0.0)))
    errors = np.abs(gradient - numeric) / scale
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(errors), np.inf, errors))), x.shape)
    index = tuple(int(i) for i in at)
    return Row(name, x.shape, index, float(gradient[index]), float(numeric[index]), float(errors[index]))
