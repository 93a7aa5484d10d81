"""Ops that write into an existing tensor: ``out=``, augmented assignments and item assignment."""

from typing import Any

import numpy as np

from .._typing import Shape
from ..dtypes import can_store
from ..errors import DtypeError, OperandError, ShapeError
from .apply import COPY, apply, as_operand, is_tracked, record, tracked_operands
from .computing import compute_in_scopes
from .context import current
from .op import Op
from .record import Record, note
from .value import Value, single_array, wrap
from .write import check_writable, mark_unrecorded, mark_written, read_stamp


def write_op(target: Any, op: Op, operands: tuple[Any, ...], params: dict[str, Any] | None = None) -> Any:
    """Write ``op(*operands, **params)`` into `target`, recorded; return `target`."""
    params = params or {}
    if isinstance(target, tuple):
        if len(target) != 1:
            raise OperandError(f"{op.name}: out is a tuple of {len(target)}; give one tensor or array to write to.")
        (target,) = target
    state = current()
    required = len(op.arguments) - len(op.operand_defaults)
    operands = tuple(
        x if isinstance(x, Value) or (x is None and i >= required) else as_operand(op, x, i, operands)
        for i, x in enumerate(operands)
    )
    arrays = tuple(single_array(x) if isinstance(x, Value) else x for x in operands)
    if not isinstance(target, Value):
        if not isinstance(target, np.ndarray):
            raise OperandError(f"{op.name}: out must be a tensor or an array, not {type(target).__name__}.")
        if any(isinstance(x, Value) and is_tracked(x) for x in operands) and state.grad:
            raise OperandError(
                f"{op.name}: out is an array, which cannot be tracked, but an operand is; "
                "give a tensor as out, or leave the tape with numpy()."
            )
        result = compute_in_scopes(state, op, arrays, params)
        _check_fits_array(op.name, target, result)
        np.copyto(target, result, casting="unsafe")
        return target
    check_writable(op.name, target, state.grad)
    result = compute_in_scopes(state, op, arrays, params)
    if result.shape != target.shape and op.is_elementwise and _is_repeatable(result.shape, target.shape):
        return _write_repeated(target, apply(op, operands, params))
    check_fits(op.name, target, result)
    is_alike = result.strides == target.array.strides and result.dtype == target.dtype
    write_part(target, op, operands, params, lambda: np.copyto(target.array, result, casting="unsafe"), is_alike)
    return target


def check_fits(name: str, target: Value, result: Any) -> None:
    """Raise if `result` cannot be stored in `target` as it is."""
    if result.shape != target.shape:
        raise ShapeError(f"{name}: the result has shape {result.shape} and the tensor to write {target.shape}.")
    if not can_store(result.dtype, target.dtype):
        raise DtypeError(f"{name}: a result of {result.dtype} cannot be stored in a tensor of {target.dtype}.")


def _check_fits_array(name: str, target: Any, result: Any) -> None:
    """Raise if `result` cannot be stored in an array; as in NumPy, it may be broadcast to it."""
    if not can_store(result.dtype, target.dtype):
        raise DtypeError(
            f"{name}: a result of {result.dtype} cannot be stored in an array of {target.dtype}; give an out of "
            f"{result.dtype}, or cast the result with astype."
        )
    if not _is_repeatable(result.shape, target.shape):
        raise ShapeError(
            f"{name}: the result has shape {result.shape}, which does not broadcast to out of shape {target.shape}."
        )


def _is_repeatable(shape: Shape, larger: Shape) -> bool:
    """Say whether what has a shape broadcasts to a larger one."""
    lead = len(larger) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, larger[lead:], strict=True))


def _write_repeated(target: Value, value: Any) -> Any:
    """Write a value into a larger target, as NumPy does."""
    from .declare import public

    repeat: Any = public["broadcast_to"]
    return write_op(target, repeat.op, (value,), {"shape": target.shape})


def write_part(
    target: Value, op: Op, operands: tuple[Any, ...], params: dict[str, Any], store: Any, is_alike: bool
) -> None:
    """Change `target` by `store`, recorded as `op` of `operands` (of the old target, for a part of it).

    `is_alike` says that what the op gives has the dtype of the target, and lies in memory as it does.
    """
    state = current()
    check_writable(op.name, target, state.grad)
    needs = tracked_operands(op, operands, state, target)
    for operand in operands if state.grad else ():
        if isinstance(operand, Value) and operand.version is not None:
            read_stamp(op, operand)
    before = _before(target, op, operands, needs)
    if state.thread.written is not None:
        state.thread.written.note(target, is_recorded=needs != 0)
    # A store that fails leaves no trace: the record comes after it, with the links of before.
    store()
    if not state.grad:
        mark_unrecorded(target)
    elif not needs:
        mark_written(target, None)
    else:
        links = tuple(before if operand is target else operand for operand in operands)
        made = record(op, links, params, needs, target.array, state)
        if not is_alike:
            note(made).strides = target.array.strides
        mark_written(target, made)


def _before(target: Value, op: Op, operands: tuple[Any, ...], needs: int) -> Value:
    """Return what the target holds before it is written, as another value: as a link, itself would make a cycle.

    It is a copy if the rules of the op read it, or if no record could make it again.
    """
    positions, _ = op.kept(needs)
    is_read = any(operand is target and (positions is None or i in positions) for i, operand in enumerate(operands))
    if needs and is_read and isinstance(target.node, Record):
        copied: Value = apply(COPY, (target,), {})
        return copied
    is_copied = needs and (is_read or target.node is None)
    array = target.array.copy() if is_copied else target.array
    before: Value = wrap(target.plain, array, target.node, None if is_copied else target.version)
    return before


def is_own_write(target: Value, part: Any, view: Any) -> bool:
    """Say whether `part` is the view of `target` that was just written: the last step of ``x[i] += v``.

    Python takes the view, adds to it in place and assigns it back; the memory already holds the result.
    """
    if not isinstance(part, Value) or part.version is None or target.version is None:
        return False
    version, stamp = target.version
    return (
        part.version[0] is version
        and part.version[1] == version.count == stamp + 1
        and version.writer() is part
        and part.array.shape == view.shape
        and part.array.strides == view.strides
        and part.array.__array_interface__["data"] == view.__array_interface__["data"]
    )
