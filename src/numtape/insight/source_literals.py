"""Values as Python expressions: numbers, dtypes, indices and small arrays."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray

#: Arrays with more elements are not written out.
MOST_ELEMENTS = 12


class NoLiteral(Exception):
    """A value has no expression."""


def literal(value: Any, large: Callable[[NDArray], str] | None = None) -> str:
    """Return an expression for a value; `large` names arrays that are too large to be written out."""
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float):
        return _number(value)
    if value is Ellipsis:
        return "..."
    if isinstance(value, np.generic):
        return f"{dtype_name(value.dtype)}({_number(value.item())})"
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, np.ndarray):
        return _array(value, large)
    if isinstance(value, slice):
        return f"slice({literal(value.start)}, {literal(value.stop)}, {literal(value.step)})"
    if isinstance(value, type) and issubclass(value, np.generic):
        return dtype_name(np.dtype(value))
    return _collection(value, large)


def _collection(value: Any, large: Callable[[NDArray], str] | None) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)}: {literal(v, large)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list | frozenset | set | range):
        is_hashed = isinstance(value, frozenset | set)
        items = ", ".join(_key(item) if is_hashed else literal(item, large) for item in value)
        if isinstance(value, tuple):
            return f"({items},)" if len(value) == 1 else f"({items})"
        return f"[{items}]" if isinstance(value, list | range) else f"frozenset(({items},))" if items else "frozenset()"
    raise NoLiteral(f"a {type(value).__name__}")


def _key(value: Any) -> str:
    """Return an expression for what is found by its hash, which a dtype does not share with its scalar type."""
    return f"np.dtype({dtype_name(value)})" if isinstance(value, np.dtype) else literal(value)


def index(key: tuple[Any, ...], large: Callable[[NDArray], str] | None = None) -> str:
    """Return what stands in the brackets of ``x[key]``."""
    if not key:
        return "()"
    parts = [_slice(part) if isinstance(part, slice) else literal(part, large) for part in key]
    return parts[0] if len(parts) == 1 else ", ".join(parts)


def _slice(part: slice) -> str:
    bounds = ["" if bound is None else str(bound) for bound in (part.start, part.stop)]
    return ":".join(bounds) + ("" if part.step is None else f":{part.step}")


def dtype_name(dtype: Dtype) -> str:
    """Return the name of a dtype in code that imports numpy as np."""
    if dtype.kind == "b":
        return "np.bool_"
    return f"np.{dtype.name}" if dtype.type.__module__ == "numpy" else f"ml_dtypes.{dtype.name}"


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    return repr(value)


def _array(array: NDArray, large: Callable[[NDArray], str] | None) -> str:
    dtype = dtype_name(array.dtype)
    first = array.flat[0] if array.size else array.dtype.type(0)
    if array.ndim and (not array.size or (array.size > 1 and (array == first).all())):
        if not first and not np.signbit(first):
            return f"np.zeros({literal(array.shape)}, {dtype})"
        name = (
            f"np.ones({literal(array.shape)}, " if first == 1 else f"np.full({literal(array.shape)}, {_item(first)}, "
        )
        return f"{name}{dtype})"
    if not array.ndim:
        return f"{dtype}({_item(array[()])})"
    if array.size <= MOST_ELEMENTS:
        return f"np.array({_nested(array)}, {dtype})"
    if large is None:
        raise NoLiteral(f"an array of shape {array.shape}")
    return large(array)


def _item(element: Any) -> str:
    return _number(element.item() if hasattr(element, "item") else float(element))


def _nested(array: NDArray) -> str:
    if not array.ndim:
        return _item(array[()])
    return "[" + ", ".join(_nested(row) for row in array) + "]"
