"""Collating: many samples, each a tree, become one tree of batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import DtypeLike
from ..core.value import Value
from ..dtypes import check_unmasked
from ..errors import ArgumentError, ShapeError
from ..ops.joining import stack
from ..tree import _node as node_of
from .columns import Floats, to_tensor


def collate(samples: Sequence[Any], dtype: DtypeLike = None) -> Any:
    """Return samples of one structure as a batch of that structure.

    Numbers, arrays and tensors are stacked along a new first axis; tuples, lists, dicts, namedtuples and dataclasses
    are collated part by part; what else there is, strings for example, becomes a list.

    Args:
        samples: at least one sample.
        dtype: the dtype of all floats. Without it, tensors keep theirs and other floats take the default dtype.

    Raises:
        ShapeError: if shapes differ.
        ArgumentError: if structures differ.

    Example:
        >>> nt.data.collate([{"x": 0.5, "name": "a"}, {"x": 1.5, "name": "b"}])
        {'x': tensor([0.5, 1.5]), 'name': ['a', 'b']}
    """
    if not len(samples):
        raise ArgumentError("collate: there are no samples; a batch has at least one.")
    return joined(samples, Floats.of("collate", dtype))


def joined(samples: Sequence[Any], floats: Floats) -> Any:
    """Collate samples, with the dtype of floats already read."""
    first = samples[0]
    node = node_of(first)
    if node is None:
        return _stacked(samples, floats)
    children, rebuild = node
    rows = [list(children(_alike(first, sample, i))) for i, sample in enumerate(samples)]
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ArgumentError(
                f"collate: samples 0 and {i} of the batch have {len(rows[0])} and {len(row)} parts; all samples must "
                "have the same structure."
            )
    return rebuild(first, [joined(column, floats) for column in zip(*rows, strict=True)])


def _alike(first: Any, sample: Any, i: int) -> Any:
    """Return a sample with the keys of a dict in the order of the first sample's, or raise if it is of another kind."""
    if type(sample) is not type(first):
        raise ArgumentError(
            f"collate: samples 0 and {i} of the batch are of types {type(first).__name__} and {type(sample).__name__}; "
            "all samples must have the same structure."
        )
    if not isinstance(first, dict):
        return sample
    if sample.keys() != first.keys():
        raise ArgumentError(
            f"collate: samples 0 and {i} of the batch have the keys {list(first)} and {list(sample)}; all samples must "
            "have the same structure."
        )
    return {key: sample[key] for key in first}


def _stacked(leaves: Sequence[Any], floats: Floats) -> Any:
    """Return the leaves at one place of all samples as a tensor, or as a list if they are no numbers."""
    if not _is_numeric(leaves[0]):
        return list(leaves)
    if any(isinstance(leaf, Value) and leaf.node is not None for leaf in leaves):
        return stack(list(leaves))  # Somebody wants gradients of them: the stacking is recorded.
    for i, leaf in enumerate(leaves):
        check_unmasked(f"collate: sample {i} of the batch", leaf)
    arrays = [leaf.array if isinstance(leaf, Value) else np.asarray(leaf) for leaf in leaves]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                f"collate: samples 0 and {i} of the batch have shapes {arrays[0].shape} and {array.shape}; pad them, "
                "or give the loader a function collate= that does. Columns are given as a tuple, (x, y), not as a list."
            )
    whole = np.stack(arrays)
    if whole.dtype.kind in "OUSmM":
        return list(leaves)
    return to_tensor(whole, floats.out(whole.dtype, isinstance(leaves[0], Value)))


def _is_numeric(leaf: Any) -> bool:
    """Say whether a leaf is a number or makes an array; images of other libraries do."""
    if isinstance(leaf, Value | np.ndarray | np.generic | float | int):
        return True
    return hasattr(leaf, "__array__") or hasattr(leaf, "__array_interface__")
