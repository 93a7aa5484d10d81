"""Faces of elementwise ops: what `apply` does, in as few steps as possible for the common case.

The common case is floats of one width (numbers aside), buffers never written in place, no scopes; everything else goes
to `apply`. A test runs programs both ways and compares records, values and gradients.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import Dtype
from ..dtypes import float32, float64, is_float
from ..errors import NumtapeError
from .apply import apply, explain, new_record, tracked_operands, watch_on_use, wrap_parts
from .context import peek
from .inplace import write_op
from .op import Op
from .record import Record, next_index, user_files, user_frame
from .value import Value
from .write import link_version

_ndarray = np.ndarray
_asarray = np.asarray
_getframe = sys._getframe


def single(op: Op) -> Callable[[Any, dict[str, Any] | None], Any]:
    """Return a function that applies an op of one operand to it and its parameters (None if it has none)."""
    forward = op.forward
    is_discrete = op.facts.is_discrete
    aliases = op.facts.aliases
    kept, keeps_out = op.kept(1)
    keeps_operand = bool(kept)

    def run(x: Any, params: dict[str, Any] | None) -> Any:
        state = peek()
        is_value = isinstance(x, Value)
        array = x.array if is_value else x
        if state is None or state.scopes or type(array) is not _ndarray:
            return apply(op, (x,), params or {})
        dtype = array.dtype
        if (dtype is not float32 and dtype is not float64) or (
            is_value and (v := x.version) is not None and v[0].count
        ):
            return apply(op, (x,), params or {})
        try:
            result = forward(array) if params is None else forward(array, **params)
        except NumtapeError:
            raise
        except (ValueError, TypeError, IndexError) as error:
            raise explain(op, (array,), error) from error
        if type(result) is not _ndarray:
            if type(result) is tuple:
                needs = tracked_operands(op, (x,), state)
                return wrap_parts(op, (x,), params or {}, needs, tuple(map(_asarray, result)), state)
            result = _asarray(result)
        if not is_value:
            return result
        node = x.node
        if node is None and state.watch_all and not is_discrete:
            watch_on_use(state, x)
            node = x.node
        value = x.plain()
        value.array = result
        value.version = None
        value.extras = None
        if node is None or not state.grad or is_discrete or (result.dtype is not dtype and not is_float(result.dtype)):
            value.node = None
        else:
            if type(node) is Record:
                if keeps_operand:
                    node.array = array
            else:
                node = x
            value.node = new_record(op, (node,), params, 1, result if keeps_out else None, result, state, 3)
        if aliases:
            link_version(x, value)
        return value

    return run


def unary(op: Op) -> Callable[..., Any]:
    """Return the face of an elementwise op of one operand."""
    run = single(op)

    def face(x: Any, /, out: Any = None) -> Any:
        return run(x, None) if out is None else write_op(out, op, (x,))

    face.run = run  # type: ignore[attr-defined]
    return face


def binary(op: Op, is_operator: bool = False, depth: int = 1) -> Callable[..., Any]:
    """Return the face of an elementwise op of two operands; as an operator, it leaves what it cannot use to Python.

    The user's frame is `depth` or more up.
    """
    forward = op.forward
    is_discrete = op.facts.is_discrete
    # By `needs`: whether the rules read a, b and the result.
    keeps = [(0 in (kept or ()), 1 in (kept or ()), reads_out) for kept, reads_out in map(op.kept, range(4))]

    def face(a: Any, b: Any, /, out: Any = None) -> Any:
        state = peek()
        if out is not None or state is None or state.scopes:
            return apply(op, (a, b), {}) if out is None else write_op(out, op, (a, b))
        x = y = m = n = None
        kind = type(b)
        # A plain number beside a tensor, or two tensors; anything else has no `array` or no `node`.
        try:
            if kind is float or kind is int:
                x, m = a.array, a.node
                is_plain = (v := a.version) is None or not v[0].count
                dtype = x.dtype
                value = a.plain()
            elif type(a) is float or type(a) is int:
                y, n = b.array, b.node
                is_plain = (v := b.version) is None or not v[0].count
                dtype = y.dtype
                value = b.plain()
            elif kind is _ndarray:
                return _on_arrays(op, a, b)
            else:
                x, m, y, n = a.array, a.node, b.array, b.node
                dtype = x.dtype
                is_plain = (
                    y.dtype is dtype
                    and ((v := a.version) is None or not v[0].count)
                    and ((v := b.version) is None or not v[0].count)
                )
                value = a.plain()
        except AttributeError:
            if is_operator and not (is_operand(a) and is_operand(b)):
                return NotImplemented
            return apply(op, (a, b), {})
        if not is_plain or (dtype is not float32 and dtype is not float64):
            return apply(op, (a, b), {})
        if state.watch_all and not is_discrete:
            if m is None and x is not None:
                watch_on_use(state, a)
                m = a.node
            if n is None and y is not None:
                watch_on_use(state, b)
                n = b.node
        try:
            if y is None:
                b = y = _CONSTANTS[dtype].get(b) or _constant(b, dtype)
            elif x is None:
                a = x = _CONSTANTS[dtype].get(a) or _constant(a, dtype)
            result = forward(x, y)
        except NumtapeError:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise explain(op, (x, y), error) from error
        if type(result) is not _ndarray:
            result = _asarray(result)
        value.array = result
        value.version = None
        value.extras = None
        needs = (m is not None) + (n is not None and 2)
        if not needs or not state.grad or is_discrete:
            value.node = None
            return value
        keeps_a, keeps_b, keeps_out = keeps[needs]
        if type(m) is Record:
            if keeps_a:
                m.array = x
        else:
            m = a
        if type(n) is Record:
            if keeps_b:
                n.array = y
        else:
            n = b
        if state.tapes:
            value.node = new_record(op, (m, n), None, needs, result if keeps_out else None, result, state)
            return value
        # As `new_record` does, written out: the call would be a tenth of the time of a small op.
        value.node = made = Record()
        made.op = op
        made.inputs = (m, n)
        made.params = made.version = made.notes = None
        made.needs = needs
        made.array = result if keeps_out else None
        made.shape = result.shape
        made.dtype = dtype
        made.index = next_index()
        made.cell = state.context.cell
        frame = _getframe(depth)
        code = frame.f_code
        if not user_files.get(code.co_filename):
            frame = user_frame(frame)
            code = frame.f_code
        made.code = code
        made.lasti = frame.f_lasti
        return value

    return face


def is_operand(x: Any) -> bool:
    """Say whether an op may accept an object; whether it does, its dtype and shape decide."""
    return isinstance(x, Value | np.ndarray | np.generic | int | float | complex | list | tuple) or hasattr(
        x, "__array__"
    )


def _on_arrays(op: Op, a: Any, b: Any) -> Any:
    """Apply an op of two operands of which the second is an array."""
    if type(a) is _ndarray and a.dtype is b.dtype and (a.dtype is float32 or a.dtype is float64):
        try:
            return _asarray(op.forward(a, b))
        except NumtapeError:
            raise
        except (ValueError, TypeError) as error:
            raise explain(op, (a, b), error) from error
    return apply(op, (a, b), {})


#: Numbers met as operands, as arrays of the other operand's dtype: NumPy takes these twice as fast.
_CONSTANTS: dict[Dtype, dict[float, Any]] = {float32: {}, float64: {}}
_MOST_CONSTANTS = 4096


def _constant(number: float, dtype: Dtype) -> Any:
    array = np.array(number, dtype)
    array.flags.writeable = False
    known = _CONSTANTS[dtype]
    if len(known) >= _MOST_CONSTANTS:
        known.clear()
    if number:  # 0.0 and -0.0 are one key.
        known[number] = array
    return array
