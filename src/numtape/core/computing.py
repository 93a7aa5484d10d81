"""Run the forward of an op on arrays: bring them to one dtype, compute within the active scopes, explain errors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import Dtype
from ..dtypes import FLOAT_DTYPES, HALF_DTYPES, check_supported, float32, promote, widened
from ..errors import (
    ArgumentError,
    AxisError,
    DtypeError,
    LinearAlgebraError,
    NumtapeError,
    OperandError,
    ShapeError,
)
from ..kernels.broadcasting import in_long_rows
from ..kernels.halves import converted, to_float32
from .context import State
from .op import Op

_ndarray = np.ndarray
_asarray = np.asarray
_NUMBERS = frozenset((float, int, bool))


def compute(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run the forward on arrays: promote, widen halves, call, round back. Shared with `recompute`."""
    promoted = range(len(arrays)) if op.is_variadic and op.promoted else op.promoted
    dtype = _common_dtype(arrays, promoted)
    target: Dtype | None = None
    if dtype is None or dtype not in FLOAT_DTYPES or dtype in HALF_DTYPES:
        try:
            if dtype is not None:
                check_supported(dtype)
            if dtype is None or op.facts.to_float or dtype in HALF_DTYPES:
                arrays, target = _cast(op, arrays, promoted)
        except DtypeError as error:
            raise _explain_dtype(op, arrays, error) from None
    try:
        if op.is_variadic:
            out = op.forward(tuple(arrays), **params)
        elif op.is_elementwise:
            out = in_long_rows(op.forward, arrays, params)
        else:
            out = op.forward(*arrays, **params)
    except (NumtapeError, FloatingPointError):  # The latter is what np.errstate asked for.
        raise
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise explain(op, arrays, error) from error
    if type(out) is tuple:
        return tuple(_finish(part, target) for part in out)
    if type(out) is not _ndarray or target is not None:
        out = _finish(out, target)
    if dtype is None and out.dtype.kind == "O":
        bits = max(x.item().bit_length() for x in arrays if type(x) is _ndarray and x.dtype.kind == "O")
        raise OperandError(f"{op.name}: an integer of {bits} bits is beyond those of int64; write it as a float.")
    return out


def _common_dtype(arrays: Sequence[Any], positions: Sequence[int]) -> Dtype | None:
    """Return the dtype if all arrays have the same, Python numbers aside."""
    dtype: Dtype | None = None
    for position in positions:
        if position >= len(arrays):
            break
        array = arrays[position]
        if type(array) is _ndarray:
            if dtype is None:
                dtype = array.dtype
            elif array.dtype is not dtype:
                return None
        elif array is not None and type(array) not in _NUMBERS:
            return None
    # A float number may change an integer array's dtype.
    if dtype is None or dtype not in FLOAT_DTYPES:
        for position in positions:
            if position < len(arrays) and type(arrays[position]) is float:
                return None
    return dtype


def _cast(op: Op, arrays: Sequence[Any], promoted: Sequence[int]) -> tuple[list[Any], Dtype | None]:
    """Bring operands to one dtype; also return the half dtype that the result must be rounded to, if any."""
    arrays = list(arrays)
    positions = [i for i in promoted if i < len(arrays) and arrays[i] is not None]
    target = promote([arrays[i] for i in positions], op.facts.to_float)
    if target is None:
        has_floats = op.facts.to_float or any(isinstance(arrays[i], float) for i in positions)
        for i in positions:  # They are all numbers.
            arrays[i] = _asarray(arrays[i], np.float64 if has_floats else None)
        return arrays, None
    # Integers, and numbers of other floats, have digits that a half does not.
    is_native = op.facts.native_half and all(getattr(arrays[i], "dtype", target) == target for i in positions)
    working = target if is_native else widened(target)
    for i in positions:
        array = arrays[i]
        if type(array) in _NUMBERS:
            # NumPy knows whether an integer fits beside others, and compares also one that does not.
            arrays[i] = float(array) if op.facts.to_float and target in FLOAT_DTYPES else array
        elif getattr(array, "dtype", None) is not working:
            arrays[i] = converted(_asarray(array), working)
    return arrays, target if target is not working else None


def _explain_dtype(op: Op, arrays: Sequence[Any], error: DtypeError) -> DtypeError:
    """Name the op, and its operand, in an error about a dtype."""
    for name, array in zip(_names(op, arrays), arrays, strict=False):
        dtype = np.asarray(array).dtype if isinstance(array, complex) else getattr(array, "dtype", None)
        if dtype is not None and dtype not in FLOAT_DTYPES and dtype.kind not in "biu":
            told = str(error).removeprefix("dtype: ").replace(" is not supported", ", which is not supported", 1)
            return DtypeError(f"{op.name}: operand {name!r} has dtype {told}")
    return error


def _names(op: Op, arrays: Sequence[Any]) -> Sequence[str]:
    """Return what messages call the operands of an op."""
    return [f"{op.arguments[0]}[{i}]" for i in range(len(arrays))] if op.is_variadic else op.arguments


def _finish(out: Any, target: Dtype | None) -> Any:
    """Make an array of NumPy's scalars, and round float32 results of half operands."""
    out = _asarray(out)
    return converted(out, target) if target is not None and out.dtype == float32 else out


def explain(op: Op, arrays: Sequence[Any], error: Exception) -> Exception:
    """Turn an error of the forward into one that names the op, the shapes and what to do."""
    shapes = " and ".join(
        f"{name} has shape {np.shape(array)}"
        for name, array in zip(_names(op, arrays), arrays, strict=False)
        if array is not None
    )
    if isinstance(error, np.exceptions.AxisError):
        return AxisError(f"{op.name}: {error}; {shapes}.")
    if op.is_elementwise and "broadcast" in str(error):
        return ShapeError(
            f"{op.name}: {shapes}; the shapes do not broadcast: from the last axis on, lengths must be equal or 1."
        )
    kind: type[NumtapeError] = OperandError if isinstance(error, TypeError) else ArgumentError
    if isinstance(error, np.linalg.LinAlgError):
        kind = LinearAlgebraError
    return kind(f"{op.name}: {error} ({shapes}).")


def compute_in_scopes(
    state: State, op: Op, arrays: tuple[Any, ...], params: dict[str, Any], widens: bool = False
) -> Any:
    """Compute an op, on half arrays in float32 if it `widens`, with the scopes that are active around it."""
    run: Callable[..., Any] = compute_wide if widens else compute
    for scope in state.scopes:
        run = _around(scope.around, run)
    return run(op, arrays, params)


def compute_wide(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """Compute an op on half arrays in float32."""
    wide = [to_float32(x) if isinstance(x, _ndarray) and x.dtype in HALF_DTYPES else x for x in arrays]
    return compute(op, wide, params)


def _around(around: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, arrays, params: around(op, inner, arrays, params)
