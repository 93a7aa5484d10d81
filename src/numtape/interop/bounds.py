"""Bounds of parameters as trees, and as SciPy's own kinds of bounds, checked against the start."""

from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.apply import is_tracked
from ..core.context import current
from ..core.value import Value
from ..errors import ArgumentError, LeavesTapeError
from .vectors import Layout

Pair = tuple[NDArray, NDArray]


def as_bounds(name: str, layout: Layout, bounds: Any, takes_pairs: bool = False) -> Pair | None:
    """Return bounds as two vectors, or None if there are none.

    Args:
        name: of the solver, for messages.
        layout: of the parameters.
        bounds: a pair (lower, upper) of trees in the structure of the start, or `scipy.optimize.Bounds`.
        takes_pairs: whether one pair for each element is meant as well, as by SciPy's `minimize`.
    """
    sides = sides_of(name, layout, bounds, takes_pairs)
    if sides is not None:
        _check_start(name, layout, *sides)
    return sides


def sides_of(name: str, layout: Layout, bounds: Any, takes_pairs: bool = False) -> Pair | None:
    """Return bounds as `as_bounds` does, whatever the start is."""
    if bounds is None:
        return None
    if current().grad and any(isinstance(x, Value) and is_tracked(x) for x in tree.leaves(bounds)):
        raise LeavesTapeError(
            f"{name}: bounds has a tracked tensor, and its gradient would be lost; pass its detach(), or call {name} "
            "in nt.no_grad()."
        )
    if hasattr(bounds, "lb"):
        # Numbers stand there as arrays of one element.
        sides = np.asarray(bounds.lb), np.asarray(bounds.ub)
        lower, upper = [side.item() if side.size == 1 else side for side in sides]
    elif takes_pairs and _are_pairs(name, layout, bounds):
        lower, upper = [list(side) for side in zip(*bounds, strict=True)]
    elif isinstance(bounds, list | tuple) and len(bounds) == 2:
        lower, upper = bounds
    else:
        raise ArgumentError(
            f"{name}: bounds is {bounds!r}; it must be (lower, upper), two trees like {layout.title}, or "
            "scipy.optimize.Bounds(lower, upper)."
        )
    return _as_vector(name, layout, lower, -np.inf), _as_vector(name, layout, upper, np.inf)


def _are_pairs(name: str, layout: Layout, bounds: Any) -> bool:
    """Say whether bounds are one pair for each element; raise if they might be two vectors just as well."""
    if not tree.is_leaf(layout.tree) or not isinstance(bounds, list | tuple) or len(bounds) != layout.size:
        return False
    if not all(isinstance(pair, list | tuple | np.ndarray) and len(pair) == 2 for pair in bounds):
        return False
    if layout.size == 2:
        raise ArgumentError(
            f"{name}: bounds is {bounds!r}, which may be two pairs (low, high) or a lower and an upper vector; write "
            "scipy.optimize.Bounds(lower, upper)."
        )
    return True


def _as_vector(name: str, layout: Layout, given: Any, default: float) -> NDArray:
    """Return one side of the bounds: a number is for all elements, None is for none."""
    if isinstance(given, np.ndarray) and given.shape == (layout.size,):
        return np.array(given, np.float64)
    if tree.is_leaf(layout.tree) and isinstance(given, list | tuple):
        given = np.array([default if x is None else x for x in given], np.float64)
    try:
        leaves = tree.leaves_like(layout.tree, _filled(layout.tree, given, default))
    except ArgumentError as error:
        raise ArgumentError(f"{name}: the bounds have another structure than {layout.title}; {error}") from error
    parts = []
    for leaf, shape in zip(leaves, layout.shapes, strict=True):
        array = np.asarray(leaf.array if isinstance(leaf, Value) else leaf, np.float64)
        if array.shape not in ((), shape):
            raise ArgumentError(
                f"{name}: a bound has shape {array.shape} and its part of {layout.title} {shape}; they must be equal, "
                "or the bound a number."
            )
        parts.append(np.broadcast_to(array, shape).ravel())
    return np.concatenate(parts)


def _filled(structure: Any, given: Any, default: float) -> Any:
    """Return bounds with a number for every None, and for every number that stands for a whole tree, many."""
    if given is None or (np.ndim(given) == 0 and tree.is_leaf(given)):
        value = default if given is None else given
        return tree.map(lambda _: value, structure)
    if isinstance(structure, dict) and isinstance(given, dict):
        return {key: _filled(structure[key], x, default) if key in structure else x for key, x in given.items()}
    if isinstance(structure, list | tuple) and isinstance(given, list | tuple) and len(structure) == len(given):
        return [_filled(a, b, default) for a, b in zip(structure, given, strict=True)]
    return given


def _check_start(name: str, layout: Layout, low: NDArray, high: NDArray) -> None:
    for place, a, x, b in zip(layout.names, low, layout.vector, high, strict=True):
        if not a <= b:
            raise ArgumentError(f"{name}: the bounds of {place} are [{a:g}, {b:g}], in which there is no number.")
        if not a <= x <= b:
            raise ArgumentError(
                f"{name}: {layout.title} has {place} = {x:g}, which is not within its bounds [{a:g}, {b:g}]."
            )
