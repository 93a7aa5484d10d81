"""Tangents and cotangents as they are given: checked, and in the form of what they belong to."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree
from .core.value import Value
from .dtypes import check_unmasked, is_float
from .errors import ArgumentError, DtypeError, OperandError, ShapeError


def as_moved(moved: Any, like: Any, kind: str, title: Callable[[], str]) -> Any:
    """Return a tangent or cotangent, checked: a tensor as it is, all else as an array of the right dtype.

    Args:
        moved: what was given.
        like: the argument or output that it belongs to.
        kind: "tangent" or "cotangent".
        title: what messages begin with, asked for if need be.
    """
    whose = "output" if kind == "cotangent" else "argument"
    if isinstance(moved, np.ndarray):
        if type(moved) is not np.ndarray:
            check_unmasked(title(), moved)
        if not moved.dtype.isnative:
            moved = moved.astype(moved.dtype.newbyteorder("="))
    if isinstance(moved, Value) and moved.dtype.kind in "iu":
        moved = moved.array  # As an array of integers, which no derivative can depend on.
    if not isinstance(moved, Value):
        array = np.asarray(moved)
        if not is_float(array.dtype) and array.dtype.kind not in "iu":
            raise OperandError(f"{title()} is a {type(moved).__name__} ({array.dtype}); it must be real numbers.")
    elif not is_float(moved.dtype):
        raise DtypeError(f"{title()} has dtype {moved.dtype}; use astype({like.dtype}).")
    is_float_array = isinstance(moved, Value | np.ndarray) and is_float(moved.dtype)
    if kind == "tangent" and is_float_array and moved.dtype != like.dtype:
        raise DtypeError(f"{title()} has dtype {moved.dtype} and its {whose} {like.dtype}; use astype({like.dtype}).")
    if np.shape(moved) != like.shape:
        raise ShapeError(f"{title()} has shape {np.shape(moved)} and its {whose} {like.shape}; they must be equal.")
    return moved if isinstance(moved, Value) else np.asarray(moved).astype(like.dtype)


def all_moved(name: str, kind: str, given: Any, structure: Any, like: Sequence[Any], owner: str) -> list[Any]:
    """Return the leaves of a tree of tangents or cotangents, checked.

    Args:
        name: of the transform, for messages.
        kind: "tangent" or "cotangent".
        given: the tree.
        structure: a tree of the same structure, whose leaves are the tensors `like`.
        like: the tensors.
        owner: the function that has these tensors, for messages.
    """
    given = _with_arrays(name, kind, structure, given)
    leaves = tree.leaves(given)
    whose = "outputs" if kind == "cotangent" else "arguments"
    each = whose.removesuffix("s")
    is_flat = all(map(tree.is_leaf, structure if isinstance(structure, tuple) else (structure,)))
    if is_flat and len(leaves) != len(like):
        raise ArgumentError(
            f"{name}: {owner} has {len(like)} {whose}, but {len(leaves)} {kind}s were given; give one for each {each}."
        )
    try:
        leaves = tree.leaves_like(structure, given)
    except ArgumentError as error:
        raise ArgumentError(
            f"{name}: the {kind}s have another structure than the {whose} of {owner}; {error}"
        ) from error

    def title(number: int) -> str:
        place = tree.paths(structure)[number] or "[0]"
        if place[1].isdigit():  # Arguments and outputs are counted.
            place = place.replace("[", "", 1).replace("]", "", 1)
        return f"{name}: {kind} {place} of {owner}"

    return [
        as_moved(moved, x, kind, functools.partial(title, i))
        for i, (moved, x) in enumerate(zip(leaves, like, strict=True))
    ]


def _with_arrays(name: str, kind: str, structure: Any, given: Any) -> Any:
    """Return a tree with arrays for lists of numbers that stand where a leaf belongs."""
    if tree.is_leaf(structure):
        if not isinstance(given, list | tuple) or not all(isinstance(x, float | int) for x in tree.leaves(given)):
            return given
        try:
            array = np.asarray(given)
            # Python's numbers have no dtype of their own.
            dtype = getattr(structure, "dtype", array.dtype)
            return array.astype(dtype) if is_float(dtype) else array
        except ValueError as error:
            raise ShapeError(
                f"{name}: the {kind} {given!r} makes no array; nested lists must have equal lengths at each depth."
            ) from error
    if isinstance(structure, list | tuple) and isinstance(given, list | tuple) and len(structure) == len(given):
        return [_with_arrays(name, kind, a, b) for a, b in zip(structure, given, strict=True)]
    if isinstance(structure, dict) and isinstance(given, dict):
        return {key: _with_arrays(name, kind, structure[key], x) if key in structure else x for key, x in given.items()}
    return given
