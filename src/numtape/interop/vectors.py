"""Trees as vectors: where each element of each leaf stands, what it is called, and the way back."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.value import Value, wrap
from ..dtypes import HALF_DTYPES, float64, is_float
from ..errors import DtypeError, OperandError
from ..tensors import Tensor


class Layout:
    """How the elements of a tree stand in one vector.

    Args:
        name: of the function that was given the tree, for messages.
        title: what that function calls the tree.
        given: tensors, arrays, numbers or a tree of them; integers count as floats. A list or tuple of numbers is an
            array, as it is to SciPy.

    Example:
        >>> from numtape.interop.vectors import Layout
        >>> layout = Layout("minimize", "x0", {"a": 2.0, "b": np.array([3.0, 4.0])})
        >>> layout.vector
        array([2., 3., 4.])
        >>> layout.names
        ['a', 'b[0]', 'b[1]']
        >>> layout.results(np.array([5.0, 6.0, 7.0]))
        {'a': 5.0, 'b': array([6., 7.])}
    """

    def __init__(self, name: str, title: str, given: Any) -> None:
        self.title = title
        self.tree = np.asarray(given) if is_numbers(given) else given
        self.leaves = tree.leaves(self.tree)
        paths = list(_paths(self.tree, ""))
        arrays = [_as_floats(name, f"{title}{path}", leaf) for path, leaf in zip(paths, self.leaves, strict=True)]
        self.shapes = [array.shape for array in arrays]
        self.dtypes = [array.dtype for array in arrays]
        #: Where the elements of each leaf begin and end.
        self.ends = list(itertools.accumulate(array.size for array in arrays))
        self.size = self.ends[-1] if arrays else 0
        if not self.size:
            raise OperandError(f"{name}: {title} has no elements; give at least one number.")
        #: The dtype to compute in: that of all leaves, or float64 where they differ.
        self.dtype = self.dtypes[0] if len(set(self.dtypes)) == 1 else float64
        self.vector: NDArray = np.concatenate([array.ravel() for array in arrays]).astype(np.float64)
        self._labels = [path.removeprefix(".") or title.removesuffix("0") for path in paths]

    @functools.cached_property
    def names(self) -> list[str]:
        """What each element of the vector is called: the path to its leaf, and its index there."""
        return [
            label + (f"[{', '.join(map(str, index))}]" if shape else "")
            for label, shape in zip(self._labels, self.shapes, strict=True)
            for index in np.ndindex(shape)
        ]

    def parts(self, vector: Any) -> list[Any]:
        """Return the part of a vector, an array or a tensor, that belongs to each leaf, in its shape."""
        if len(self.shapes) == 1:
            return [vector if self.shapes[0] == (self.size,) else vector.reshape(self.shapes[0])]
        bounds = zip([0, *self.ends], self.ends, self.shapes, strict=False)
        return [vector[start:end].reshape(shape) for start, end, shape in bounds]

    def split(self, vector: Any) -> Any:
        """Return a vector as the tree, its leaves as parts of the vector in the leaves' dtypes."""
        parts = zip(self.parts(vector), self.dtypes, strict=True)
        return tree.unflatten(self.tree, (x if x.dtype == dtype else x.astype(dtype) for x, dtype in parts))

    def results(self, vector: NDArray) -> Any:
        """Return a vector as the tree, its leaves as they were given: tensors, arrays or numbers."""
        parts = zip(self.parts(vector), self.leaves, self.dtypes, strict=True)
        return tree.unflatten(self.tree, [_as_given(np.array(x, dtype), leaf) for x, leaf, dtype in parts])


def flat(out: Any) -> Any:
    """Return the leaves of what a function returned, one after the other, as one vector."""
    leaves = [x if hasattr(x, "reshape") else np.asarray(x) for x in tree.leaves(out)]
    parts = [x.reshape((-1,)) for x in leaves]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def as_operand(x: Any) -> Any:
    """Return a tensor as it is, and anything else as an array; integers and bools become float64, as in SciPy."""
    if isinstance(x, Value):
        return x
    array = np.asarray(x)
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def is_numbers(given: Any) -> bool:
    """Say whether something is a list or tuple of plain numbers, nested at will."""
    if type(given) not in (list, tuple) or not given:
        return False
    return all(isinstance(x, float | int | np.generic) for x in tree.leaves(given))


def _paths(node: Any, path: str) -> Iterator[str]:
    """Yield the path to each leaf: ``.key`` of a dict or a field, ``[0]`` of a sequence."""
    if tree.is_leaf(node):
        yield path
        return
    for label, child in _children(node):
        yield from _paths(child, path + label)


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the label of each child of a node, and the child; of a node of another kind, its leaves."""
    if isinstance(node, dict):
        yield from ((f".{key}", child) for key, child in node.items())
    elif hasattr(node, "_fields"):
        yield from ((f".{field}", child) for field, child in zip(node._fields, node, strict=True))
    elif dataclasses.is_dataclass(node):
        yield from ((f".{field.name}", getattr(node, field.name)) for field in dataclasses.fields(node))
    elif isinstance(node, list | tuple):
        yield from ((f"[{index}]", child) for index, child in enumerate(node))
    else:
        leaves = tree.leaves(node)
        named = [name for name, _ in node.named_parameters()] if hasattr(node, "named_parameters") else []
        labels = [f".{name}" for name in named] if len(named) == len(leaves) else [f"[{i}]" for i in range(len(leaves))]
        yield from zip(labels, leaves, strict=True)


def _as_floats(name: str, place: str, leaf: Any) -> NDArray:
    array = leaf.array if isinstance(leaf, Value) else np.asarray(leaf)
    if array.dtype in HALF_DTYPES:
        raise DtypeError(
            f"{name}: {place} has dtype {array.dtype}, in whose rounding a solver's steps are lost; use "
            "astype(np.float64)."
        )
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if not is_float(array.dtype):
        raise DtypeError(f"{name}: {place} is of type {type(leaf).__name__} ({array.dtype}); it must be real numbers.")
    return array


def _as_given(array: NDArray, leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return wrap(Tensor, array)
    return array if isinstance(leaf, np.ndarray) else array.item()
