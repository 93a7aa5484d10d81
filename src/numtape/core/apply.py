"""Run an op: find the arrays, bring them to one dtype, compute, wrap, and leave a record.

`apply` does all of it for any op; `faces.py` does the same for the common case with as few steps as possible.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import (
    FLOAT_DTYPES,
    array_beside,
    default_dtype,
    plain_array,
    promote,
)
from ..errors import (
    NotDifferentiableError,
    NumtapeError,
    OperandError,
)
from ..kernels.memory import keep_freed_memory
from .computing import compute_in_scopes, explain
from .context import State, current
from .facts import Facts, Structure
from .op import NON_DIFFERENTIABLE, Op, same
from .record import Record, call_site, is_users, latest, next_index, note, shortened
from .scopes import casting
from .value import Lifted, Value, Version, has_lost_history, wrap
from .write import link_version, read_stamp

keep_freed_memory()

_ndarray = np.ndarray
_asarray = np.asarray
_NUMBERS = frozenset((float, int, bool))
_getframe = sys._getframe


def apply(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run `op` on tensors, arrays and numbers; return an array, or a tensor if there is one among them."""
    state = current()
    widens = False
    if state.scopes and (caster := casting(state.scopes)) is not None:
        operands, widens = caster.operands(op, operands)
    for operand in operands:
        if isinstance(operand, Lifted):
            return operand.run_op(op, operands, params)
    needs = tracked_operands(op, operands, state)
    cls: type[Value] | None = None
    has_numbers = False
    arrays: list[Any] = []
    for position, operand in enumerate(operands):
        if isinstance(operand, Value):
            cls = operand.plain
            if operand.version is not None and state.grad:
                read_stamp(op, operand)
            arrays.append(operand.array)
        elif type(operand) is _ndarray and operand.dtype.isnative:
            arrays.append(operand)
        elif operand is None and not op.is_variadic and position >= len(op.arguments) - len(op.operand_defaults):
            arrays.append(None)
        else:
            has_numbers = True
            arrays.append(as_operand(op, operand, position, operands))
            if arrays[position] is not operand:  # A list may change, and has no shape: the record is of the array.
                operands = (*operands[:position], arrays[position], *operands[position + 1 :])
    if has_numbers:
        operands, arrays = _settle_numbers(op, operands, arrays, cls is not None)
    out = compute_in_scopes(state, op, tuple(arrays), params, widens)
    if cls is None:
        return out
    if type(out) is tuple:
        return wrap_parts(op, operands, params, needs, out, state)
    node = record(op, operands, params, needs, out, state) if needs and out.dtype in FLOAT_DTYPES else None
    value = wrap(cls, out, node)
    if op.facts.aliases and isinstance(operands[0], Value):
        link_version(operands[0], value)
    if node is None:
        for scope in state.scopes:
            scope.on_constant(operands, (value,))
    return value


def _settle_numbers(
    op: Op, operands: Sequence[Any], arrays: list[Any], makes_tensor: bool
) -> tuple[Sequence[Any], list[Any]]:
    """Return operands and arrays with arrays for numbers to which NumPy would give a dtype of their own, or no shape.

    Elementwise functions take numbers as they are. In others they are of the dtype that they meet; Python floats that
    decide alone on the dtype of a tensor, as in ``where(t, 1.0, 0.0)``, make the default one.
    """
    positions = range(len(arrays)) if op.is_variadic else op.promoted
    deciding = [i for i in positions if i < len(arrays) and arrays[i] is not None]
    is_decided = any(type(arrays[i]) not in _NUMBERS for i in deciding)
    if op.is_elementwise and (is_decided or not makes_tensor):
        return operands, arrays
    dtype = promote([arrays[i] for i in deciding], op.facts.to_float)
    made = {}
    for i in deciding:
        if dtype is not None and not isinstance(arrays[i], _ndarray):
            try:
                # bfloat16 takes no integers beyond 64 bits.
                is_large = type(arrays[i]) is int and dtype in FLOAT_DTYPES
                made[i] = _asarray(float(arrays[i]) if is_large else arrays[i], dtype)
            except OverflowError as error:
                raise explain(op, arrays, error) from error
        elif makes_tensor and not is_decided and type(arrays[i]) is float:
            made[i] = _asarray(arrays[i], default_dtype())
    return (
        [made.get(i, operand) for i, operand in enumerate(operands)],
        [made.get(i, array) for i, array in enumerate(arrays)],
    )


def tracked_operands(op: Op, operands: Sequence[Any], state: State, target: Value | None = None) -> int:
    """Return which operands are tracked, as bits, if the op is to be recorded, else 0.

    Tapes that watch everything begin to watch an operand here, unless it is the `target` of a write.
    """
    if not state.grad or op.facts.is_discrete:
        return 0
    needs = 0
    for position, operand in enumerate(operands):
        if isinstance(operand, Value):
            if operand.node is None and state.watch_all and operand is not target:
                if op.pull(position) is NON_DIFFERENTIABLE:
                    continue
                watch_on_use(state, operand)
            if operand.node is not None:
                needs |= 1 << position
    return needs


def as_operand(op: Op, operand: Any, position: int = 0, beside: Sequence[Any] = ()) -> Any:
    """Return a number, a NumPy scalar or an array for what is not a tensor, among the operands that are `beside` it."""
    if isinstance(operand, _ndarray):
        return plain_array(f"{op.name}: an operand", operand)
    if type(operand) in _NUMBERS or isinstance(operand, np.generic):
        return operand
    name = f"{op.arguments[0]}[{position}]" if op.is_variadic else op.arguments[position]
    if operand is None:
        raise OperandError(f"{op.name}: operand {name!r} is None; it must be a tensor, an array or a number.")
    try:
        array = array_beside(operand, beside)
    except NumtapeError:
        raise
    except (ValueError, TypeError) as error:
        raise OperandError(f"{op.name}: {shortened(repr(operand))} is no tensor, array or number ({error}).") from error
    if array.dtype.kind not in "biufcV":
        hint = " Use numtape.interop.scipy.linear_operator(A) @ x." if hasattr(operand, "tocsr") else ""
        raise OperandError(
            f"{op.name}: operand {name!r} is of type {type(operand).__name__}; it must be a tensor, an array or a "
            f"number.{hint}"
        )
    return array


def watch_on_use(state: State, value: Value) -> None:
    """Let the tapes that watch everything watch a float tensor that an op uses."""
    if state.grad and value.array.dtype in FLOAT_DTYPES:
        for tape in state.tapes:
            if tape.watch_all and not tape.is_ended:
                tape.watch_on_use(value)


def leave_out(value: Value) -> None:
    """Let no tape that watches everything watch a constant that ops use."""
    state = current()
    for tape in state.tapes if state.watch_all else ():
        tape.leave_out(value)


def is_tracked(value: Value) -> bool:
    """Say whether a tensor is tracked where no op would begin to watch it: one that a tape would watch on use is.

    So is one that holds what was written to its memory by a record, although its own name does not lead there.
    """
    if value.node is not None or has_lost_history(value):
        return True
    state = current()
    if not (state.watch_all and state.grad and value.dtype in FLOAT_DTYPES):
        return False
    return any(tape.would_watch(value) for tape in state.tapes)


def record(
    op: Op, operands: Sequence[Any], params: dict[str, Any] | None, needs: int, out: Any, state: State
) -> Record:
    """Leave a record of an op whose operands in `needs` are tracked, and return it."""
    links = []
    stamps: list[int | None] | None = None
    for position, operand in enumerate(operands):
        if isinstance(operand, Value):
            node = operand.node
            links.append(node if type(node) is Record else operand)
            if operand.version is not None:
                stamp = read_stamp(op, operand)
                if stamp and type(node) is not Record:
                    stamps = stamps or [None] * len(operands)
                    stamps[position] = stamp
            if node is not None and op.pull(position) is NON_DIFFERENTIABLE:
                name = op.argument(position)
                raise NotDifferentiableError(
                    f"{op.name}: argument {name!r} has no derivative, but a tracked tensor was given; "
                    f"pass {name}.detach() if its gradient is not wanted."
                )
        else:
            links.append(operand)
    positions, keeps_out = op.kept(needs)
    for position in range(len(links)) if positions is None else positions:
        link = links[position] if position < len(links) else None
        if type(link) is Record and not link.is_kept:
            link.array = operands[position].array
    shape, dtype = (out.shape, out.dtype) if type(out) is _ndarray else ([x.shape for x in out], [x.dtype for x in out])
    made = new_record(op, tuple(links), params or None, needs, out if keeps_out else None, shape, dtype, state)
    if stamps is not None:
        note(made).stamps = tuple(stamps)
    _show(made, operands, state)
    return made


def _show(made: Record, operands: Sequence[Any], state: State) -> None:
    for scope in state.scopes:
        scope.on_record(made, operands)


def new_record(
    op: Op,
    links: tuple[Any, ...],
    params: dict[str, Any] | None,
    needs: int,
    kept: Any,
    shape: Any,
    dtype: Any,
    state: State,
    depth: int = 2,
) -> Record:
    """Fill in a record and list it on the tapes that are active; the user's frame is `depth` or more up.

    An op with several outputs has lists of shapes and dtypes, which tells them from the shape of one.
    """
    made = Record()
    made.op = op
    made.inputs = links
    made.params = params
    made.needs = needs
    made.array = kept
    made.version = made.notes = None
    made.index = next_index()
    made.shape = shape
    made.dtype = dtype
    made.cell = state.context.cell
    frame = _getframe(depth)
    made.code = code = frame.f_code
    if code is latest.code or is_users(code):
        made.lasti = frame.f_lasti
    else:
        made.code, made.lasti = call_site(frame)
    for tape in state.tapes:
        if not tape.is_ended:
            made.cell = tape.cell
            tape.records.append(made)
    return made


def _pick(parts: Any, /, *, position: int) -> Any:
    """Take one output of an op that has several."""
    return parts[position]


def _copied(x: Any, /) -> Any:
    """Copy a value."""
    return x


#: Follows an op with several outputs, once for each: so every other record has one output. The sweeps know it, since
#: its operand is no array.
PICK = Op(
    _pick,
    _pick,
    pulls={"parts": lambda g: g},
    pushes={"parts": lambda t: t},
    facts=Facts(cost=lambda out, parts, position: 0, native_half=True),
)
PICK.plans.clear()

#: Records that a value was copied before it is overwritten, where rules read what it was.
COPY = Op(
    np.copy,
    _copied,
    pulls={"x": same},
    pushes={"x": same},
    facts=Facts(
        cost=lambda out, x: 0,
        structure=Structure.ELEMENTWISE,
        linear=frozenset(("x",)),
        native_half=True,
    ),
)


def wrap_parts(
    op: Op, operands: Sequence[Any], params: dict[str, Any], needs: int, parts: tuple[Any, ...], state: State
) -> tuple[Any, ...]:
    """Wrap and record the outputs of an op that has several; arrays in, arrays out."""
    cls = next((x.plain for x in operands if isinstance(x, Value)), None)
    if cls is None:
        return parts
    whole = None
    if needs and any(part.dtype in FLOAT_DTYPES for part in parts):
        whole = record(op, operands, params, needs, parts, state)
        if whole.array is not None:
            # The rules read the outputs: a write to any of them must be noticed.
            whole.version = (Version(), 0)
    values = []
    for position, part in enumerate(parts):
        node = None
        if whole is not None and part.dtype in FLOAT_DTYPES:
            node = new_record(PICK, (whole,), {"position": position}, 1, None, part.shape, part.dtype, state)
            node.version = whole.version
            _show(node, (parts,), state)
        value = wrap(cls, part, node, None if whole is None else whole.version)
        if op.facts.aliases and isinstance(operands[0], Value):
            link_version(operands[0], value)
        values.append(value)
    if whole is None:
        for scope in state.scopes:
            scope.on_constant(operands, values)
    return tuple(values)
