"""Trees as JSON: what a tree is made of, with the arrays taken out and referred to by name.

None, bools, integers, strings, finite floats and lists stand for themselves. Everything else is an object whose first
key says what it is: ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}``, ``{"float": "nan"}``,
``{"scalar": ["F32", 0.5]}``, ``{"array": name}`` and ``{"tensor": name, "requires_grad": true, "name": "w"}``.
"""

import dataclasses
import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.value import wrap
from ..errors import ArgumentError, DtypeError, OperandError, SavedFileError
from ..tensors import Tensor
from .format import DTYPE_NAMES, DTYPES, METADATA

Path = tuple[str | int, ...]

#: Far more than any state needs; a tree that contains itself ends here.
_MAX_DEPTH = 64
#: Python refuses to print integers of more than 4300 digits.
_MAX_INTEGER_BITS = 4096


def describe(tree: Any) -> tuple[Any, dict[str, NDArray]]:
    """Return a tree as JSON, and its arrays by the names that it refers to them with."""
    arrays: dict[str, NDArray] = {}
    return _describe(tree, (), arrays), arrays


def _describe(part: Any, path: Path, arrays: dict[str, NDArray]) -> Any:
    if part is None or isinstance(part, bool | str):
        return part
    if isinstance(part, Tensor):
        return _describe_tensor(part, path, arrays)
    if type(part) in (np.ndarray, np.memmap):
        return {"array": _take(part, path, arrays)}
    if isinstance(part, np.generic):
        return {"scalar": [_dtype_name(part, path), _describe(part.item(), path, arrays)]}
    if isinstance(part, int):
        return _checked_integer(part, path)
    if isinstance(part, float):
        return float(part) if math.isfinite(part) else {"float": repr(float(part))}
    if len(path) >= _MAX_DEPTH:
        raise ArgumentError(
            f"save: the tree is nested more than {_MAX_DEPTH} deep at {_place(path[:3])}...; does it contain itself?"
        )
    if isinstance(part, dict):
        return {"dict": [[_key(key, path), _describe(value, (*path, key), arrays)] for key, value in part.items()]}
    if isinstance(part, list | tuple):
        items = [_describe(item, (*path, i), arrays) for i, item in enumerate(part)]
        return items if isinstance(part, list) else {"tuple": items}
    if not isinstance(part, type) and callable(getattr(part, "state_dict", None)):
        return _describe(part.state_dict(), path, arrays)
    raise _cannot(part, path)


def _describe_tensor(tensor: Tensor, path: Path, arrays: dict[str, NDArray]) -> dict[str, Any]:
    found: dict[str, Any] = {"tensor": _take(tensor.array, path, arrays)}
    if tensor.requires_grad:
        found["requires_grad"] = True
    if tensor.name is not None:
        found["name"] = tensor.name
    return found


def _take(array: NDArray, path: Path, arrays: dict[str, NDArray]) -> str:
    """Put a copy among the arrays to be written, in one block and native order; return its name, its path in the tree.

    Checksums come before the elements in a file: they must be of the same bytes, whoever writes to the array meanwhile.
    """
    array = np.array(array, array.dtype.newbyteorder("="), order="C")
    _dtype_name(array, path)
    wanted = name = ".".join(map(str, path)).encode(errors="backslashreplace").decode() or "value"
    count = 1
    while name in arrays or name == METADATA:
        # The keys "a.b" and "a" with "b" inside give the same path.
        count += 1
        name = f"{wanted}#{count}"
    arrays[name] = array
    return name


def _dtype_name(array: NDArray | np.generic, path: Path) -> str:
    name = DTYPE_NAMES.get(array.dtype)
    if name is None:
        raise DtypeError(
            f"save: {_place(path)} has dtype {array.dtype}, which cannot be saved; dtypes are bool, integers, float16, "
            "bfloat16, float32 and float64."
        )
    return name


def _checked_integer(number: int, path: Path) -> int:
    if number.bit_length() > _MAX_INTEGER_BITS:
        raise ArgumentError(
            f"save: {_place(path)} is an integer of {number.bit_length()} bits; {_MAX_INTEGER_BITS} can be saved."
        )
    return int(number)


def _key(key: Any, path: Path) -> str | int:
    if isinstance(key, str) or type(key) is int:
        return key
    raise OperandError(
        f"save: {_place(path)} has the key {key!r} of type {type(key).__name__}; keys are strings or integers."
    )


def _cannot(part: Any, path: Path) -> OperandError:
    """Return an error that says what a tree may hold, and how to turn this into it."""
    repair = "save tensors, arrays, numbers, strings, None, lists, tuples, dicts, or objects that have state_dict()."
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        repair = "save dataclasses.asdict() of it, and make it again after loading."
    elif isinstance(part, Enum):
        repair = "save its value."
    elif isinstance(part, np.ndarray):
        repair = "save what it is made of, as plain arrays."
    elif isinstance(part, bytes | bytearray):
        repair = "save np.frombuffer(data, np.uint8)."
    elif isinstance(part, set | frozenset):
        repair = "save sorted() of it."
    return OperandError(f"save: {_place(path)} is of type {type(part).__name__}, which cannot be saved; {repair}")


def _place(path: Path) -> str:
    return "tree" + "".join(f"[{key!r}]" for key in path)


def rebuild(description: Any, arrays: dict[str, NDArray]) -> Any:
    """Return the tree that a description and the arrays that it names were taken from.

    Raises:
        SavedFileError: the description is not one that `describe` makes. It was sealed, so it was made that way.
    """
    rest = dict(arrays)
    try:
        tree = _rebuild(description, rest)
    except (LookupError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise SavedFileError(f"has a tree that does not describe its contents ({type(error).__name__}).") from error
    if rest:
        raise SavedFileError(f"has a tree that does not describe its contents: it lacks {next(iter(rest))!r}.")
    return tree


def _rebuild(part: Any, arrays: dict[str, NDArray]) -> Any:
    if isinstance(part, list):
        return [_rebuild(item, arrays) for item in part]
    if isinstance(part, dict):
        return _REBUILD[next(iter(part), "")](part, arrays)
    return part


def _rebuild_tuple(part: Any, arrays: dict[str, NDArray]) -> tuple[Any, ...]:
    (items,) = part.values()
    return tuple(_rebuild(item, arrays) for item in items)


def _rebuild_dict(part: Any, arrays: dict[str, NDArray]) -> dict[str | int, Any]:
    (pairs,) = part.values()
    return {_key(key, ()): _rebuild(value, arrays) for key, value in pairs}


def _rebuild_float(part: Any, arrays: dict[str, NDArray]) -> float:
    (text,) = part.values()
    return float(text)


def _rebuild_scalar(part: Any, arrays: dict[str, NDArray]) -> Any:
    ((dtype_name, value),) = part.values()
    return DTYPES[dtype_name].type(_rebuild(value, arrays))


def _rebuild_array(part: Any, arrays: dict[str, NDArray]) -> NDArray:
    (name,) = part.values()
    return arrays.pop(name)  # A second reference to it would share memory; `describe` makes none.


def _rebuild_tensor(part: Any, arrays: dict[str, NDArray]) -> Tensor:
    tensor: Tensor = wrap(Tensor, arrays.pop(part["tensor"]))
    if "name" in part:
        tensor.name = str(part["name"])
    if part.get("requires_grad"):
        tensor.requires_grad_()
    return tensor


_REBUILD: dict[str, Callable[[Any, dict[str, NDArray]], Any]] = {
    "tuple": _rebuild_tuple,
    "dict": _rebuild_dict,
    "float": _rebuild_float,
    "scalar": _rebuild_scalar,
    "array": _rebuild_array,
    "tensor": _rebuild_tensor,
}
