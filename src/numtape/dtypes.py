"""The dtypes that numtape computes with, and promotion between them in one function."""

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ._typing import Dtype, DtypeLike, NDArray
from .errors import ArgumentError, DtypeError, OperandError

float16: Dtype = np.dtype(np.float16)
bfloat16: Dtype = np.dtype(ml_dtypes.bfloat16)
float32: Dtype = np.dtype(np.float32)
float64: Dtype = np.dtype(np.float64)
int64: Dtype = np.dtype(np.int64)
int32: Dtype = np.dtype(np.int32)
bool_: Dtype = np.dtype(np.bool_)

#: Further names of dtypes, as PyTorch has them, and dtypes that are rarely asked for.
SPELLINGS: dict[str, Dtype] = {
    "half": float16,
    "float": float32,
    "double": float64,
    "bool": bool_,
    "int": int32,
    "long": int64,
    "short": np.dtype(np.int16),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "uint8": np.dtype(np.uint8),
}

#: Half floats are storage only: arithmetic on them runs in float32.
HALF_DTYPES = frozenset((float16, bfloat16))
FLOAT_DTYPES = frozenset((float16, bfloat16, float32, float64))

# Rank 0 holds arrays, rank 1 arrays of zero dimensions, rank 2 NumPy scalars, rank 3 Python numbers. A float of a
# lower rank decides the result's dtype; among equals the wider one does.
_PYTHON_NUMBER_RANK = 3

_default = float32


def default_dtype() -> Dtype:
    """Return the dtype of tensors made from Python floats.

    Example:
        >>> nt.default_dtype()
        dtype('float32')
    """
    return _default


def set_default_dtype(dtype: DtypeLike) -> None:
    """Set the dtype of tensors made from Python floats.

    Example:
        >>> import numtape as nt
        >>> nt.set_default_dtype("float64")
        >>> nt.tensor([1.0]).dtype
        dtype('float64')
        >>> nt.set_default_dtype("float32")
    """
    global _default
    dtype = as_dtype(dtype)
    if dtype not in FLOAT_DTYPES:
        raise DtypeError(f"set_default_dtype: {dtype} is not a float dtype; use float16, bfloat16, float32 or float64.")
    _default = dtype


def as_dtype(dtype: DtypeLike) -> Dtype:
    """Return the dtype that a dtype, type or name stands for."""
    if dtype is float:
        return float64
    if isinstance(dtype, str) and dtype == "bfloat16":
        return bfloat16
    try:
        found: Dtype = np.dtype(dtype)
    except TypeError as error:
        raise DtypeError(
            f"dtype: {dtype!r} is not a dtype; examples are 'float32', np.float64 and nt.bfloat16."
        ) from error
    return check_supported(found)


def check_supported(dtype: Dtype) -> Dtype:
    """Return `dtype`, or raise if arrays of it cannot be computed with."""
    if dtype in FLOAT_DTYPES or dtype.kind in "biu":
        return dtype
    if dtype.kind == "c":
        raise DtypeError(
            f"dtype: {dtype} is not supported, since numtape computes with real numbers; keep real and imaginary parts "
            "in two tensors."
        )
    raise DtypeError(
        f"dtype: {dtype} is not supported; dtypes are bool, integers, float16, bfloat16, float32 and float64."
    )


def check_unmasked(what: str, x: Any) -> None:
    """Raise if something is a masked array. Messages begin with `what` it is."""
    if isinstance(x, np.ma.MaskedArray):
        raise OperandError(
            f"{what} is a masked array, whose mask would be ignored; pass x.filled(...), and choose elements with "
            "nt.where."
        )


def plain_array(what: str, array: NDArray) -> NDArray:
    """Return an array as one of NumPy's own class and byte order; raise if its class gives its elements a meaning.

    Messages begin with `what` it is. Rules compute with the operands of ops: an array of another class would do so in
    its own way.
    """
    if type(array) is not np.ndarray:
        check_unmasked(what, array)
        if isinstance(array, np.matrix):
            raise OperandError(
                f"{what} is an np.matrix, for which * is a matrix product; pass np.asarray(m), and multiply with @ or "
                "*."
            )
        array = array.view(np.ndarray)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def unit_of(dtype: Dtype) -> float:
    """Return the distance from 1 to the next number; ml_dtypes' dtypes have no finfo of NumPy."""
    return float(np.nextafter(np.ones((), dtype), dtype.type(2))) - 1.0


def is_float(dtype: Dtype) -> bool:
    """Say whether values of `dtype` can have derivatives."""
    return dtype in FLOAT_DTYPES


def as_integers(name: str, data: Any, dtype: Dtype) -> NDArray:
    """Return Python numbers, or lists of them, as an array of integers; raise for `name` if one is out of range.

    What has a dtype already, also inside of lists, wraps around as in NumPy.
    """
    try:
        return np.array(data, dtype)
    except (OverflowError, ValueError) as error:
        raise ArgumentError(f"{name}: {error}; use a wider dtype, or a float one.") from error


def can_store(source: Dtype, target: Dtype) -> bool:
    """Say whether values of one dtype may be written to memory of another: any floats to floats, otherwise as NumPy."""
    return (source in FLOAT_DTYPES and target in FLOAT_DTYPES) or np.can_cast(source, target, "same_kind")


def widened(dtype: Dtype) -> Dtype:
    """Return the dtype that arithmetic on `dtype` runs in: float32 for the half types, itself otherwise."""
    return float32 if dtype in HALF_DTYPES else dtype


def _wider(a: Dtype, b: Dtype) -> Dtype:
    if a == b:
        return a
    if a in HALF_DTYPES and b in HALF_DTYPES:
        return float32
    return a if a.itemsize >= b.itemsize else b


def float_beside(operands: Iterable[Any]) -> Dtype:
    """Return the widest float dtype that an operand has, whatever their shapes; the default one if none has any."""
    found: Dtype | None = None
    for operand in operands:
        dtype = getattr(operand, "dtype", None)
        if dtype in FLOAT_DTYPES:
            found = dtype if found is None else _wider(found, dtype)
    return found or _default


def array_beside(data: Any, operands: Iterable[Any]) -> NDArray:
    """Return numbers or lists as an array beside some operands.

    Python floats have no dtype of their own. A single one is a float64 if no operand has a dtype, as in NumPy.
    """
    array = np.asarray(data)
    if array.dtype != float64:
        return array
    operands = tuple(operands)
    is_weak = any(hasattr(x, "dtype") for x in operands) if type(data) is float else _is_plain_list(data)
    return array.astype(float_beside(operands)) if is_weak else array


def _is_plain_list(data: Any, is_inside: bool = False) -> bool:
    if isinstance(data, list | tuple):
        return all(_is_plain_list(item, True) for item in data)
    return is_inside and type(data) in (float, int, bool)


def _rank(operand: Any) -> int:
    if isinstance(operand, np.ndarray):
        return 0 if operand.ndim else 1
    if isinstance(operand, np.generic):
        return 2
    return (0 if operand.shape else 1) if hasattr(operand, "dtype") else _PYTHON_NUMBER_RANK


def promote(operands: Sequence[Any], to_float: bool = False) -> Dtype | None:
    """Return the dtype in which an op on `operands` (arrays, tensors, numbers) runs; None if nothing is to be decided.

    Scalars and 0-d arrays never change the float dtype of an array; between arrays the wider float wins; float16
    with bfloat16 gives float32; integers and bools take the float they meet. With `to_float`, an op on integers
    alone runs in the default dtype. Python numbers alone are left to NumPy.
    """
    floats: Dtype | None = None
    floats_rank = _PYTHON_NUMBER_RANK + 1
    integers: list[Any] = []
    has_array = False
    for operand in operands:
        rank = _rank(operand)
        if rank == _PYTHON_NUMBER_RANK:
            if isinstance(operand, complex):
                check_supported(np.dtype(np.complex128))
            if isinstance(operand, float) and floats_rank > rank:
                floats_rank = rank
            elif not isinstance(operand, float):
                integers.append(operand)
            continue
        has_array = True
        dtype = operand.dtype
        if dtype not in FLOAT_DTYPES:
            check_supported(dtype)
            integers.append(operand)
        elif rank < floats_rank:
            floats, floats_rank = dtype, rank
        elif rank == floats_rank and floats is not None:
            floats = _wider(floats, dtype)
    if not has_array:
        return None
    if floats_rank < _PYTHON_NUMBER_RANK:
        return floats
    if floats_rank == _PYTHON_NUMBER_RANK or to_float:
        return _default
    result: Dtype = np.result_type(*integers)
    return result
