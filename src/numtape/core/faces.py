"""Faces of ops of one operand, and of two without parameters: what `apply` does, in as few steps as possible.

They are for the common case: floats of one width (numbers aside), buffers never written in place, no scopes;
everything else goes to `apply`. A test runs programs both ways and compares records, values and gradients.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import Dtype
from ..dtypes import float32, float64, is_float
from ..errors import NumtapeError
from ..kernels.broadcasting import LEAST_OPERANDS, in_long_rows
from .apply import apply, new_record, tracked_operands, wrap_parts
from .computing import explain
from .context import peek
from .inplace import write_op
from .op import NON_DIFFERENTIABLE, Op
from .record import Record, call_site, is_users, latest, next_index
from .value import Value
from .write import link_version

_ndarray = np.ndarray
_asarray = np.asarray
_getframe = sys._getframe
#: As a tuple: a union of so many classes would be made anew for each question.
_OPERANDS = (Value, np.ndarray, np.generic, int, float, complex, list, tuple)


def single(op: Op) -> Callable[[Any, dict[str, Any] | None], Any]:
    """Return a function that applies an op of one operand to it and its parameters (None if it has none)."""
    is_discrete = op.facts.is_discrete
    aliases = op.facts.aliases
    kept, keeps_out = op.kept(1)
    keeps_operand = bool(kept)

    def run(x: Any, params: dict[str, Any] | None) -> Any:
        state: Any = peek()
        try:
            array = x.array
            node = x.node
            dtype = array.dtype
            if (
                state.scopes
                or (node is None and state.watch_all)
                or (dtype is not float64 and dtype is not float32)
                or ((version := x.version) is not None and version[0].count)
            ):
                return apply(op, (x,), params or {})
        except AttributeError:  # No tensor, or no state yet.
            return on_arrays(op, (x,), params or {})
        forward = op.forward  # Not before: a profiler may stand around it.
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
        value = x.plain()
        value.array = result
        value.version = value.extras = None
        kind = result.dtype
        if node is None or is_discrete or not state.grad or (kind is not dtype and not is_float(kind)):
            value.node = None
        else:
            if type(node) is not Record:
                node = x
            elif keeps_operand:
                node.array = array
            if state.tapes:
                value.node = new_record(
                    op, (node,), params, 1, result if keeps_out else None, result.shape, kind, state, 3
                )
            else:
                # As `new_record` does, written out: the call would be a tenth of the time of a small op.
                value.node = made = Record()
                made.op = op
                made.inputs = (node,)
                made.params = params
                made.needs = 1
                made.array = result if keeps_out else None
                made.version = made.notes = None
                made.shape = result.shape
                made.dtype = kind
                made.index = next_index()
                made.cell = state.context.cell
                frame = _getframe(2)
                made.code = code = frame.f_code
                if code is latest.code or is_users(code):
                    made.lasti = frame.f_lasti
                else:
                    made.code, made.lasti = call_site(frame)
        if aliases:
            link_version(x, value)
        return value

    return _with_own_code(run, op)


def _with_own_code(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Give an op's function a code object of its own, which the interpreter adapts to what this op meets."""
    function.__code__ = function.__code__.replace(co_name=op.name)
    return function


def unary(op: Op) -> Callable[..., Any]:
    """Return the face of an elementwise op of one operand."""
    run = single(op)

    def face(x: Any, /, out: Any = None) -> Any:
        return run(x, None) if out is None else write_op(out, op, (x,))

    face.run = run  # type: ignore[attr-defined]
    return face


def is_pair(op: Op) -> bool:
    """Say whether an op takes two operands and nothing else, and has a derivative by both or none."""
    if len(op.arguments) != 2 or op.is_variadic or op.defaults or op.operand_defaults or op.facts.aliases:
        return False
    return op.is_elementwise or NON_DIFFERENTIABLE not in op.pulls


def binary(op: Op) -> Callable[..., Any]:
    """Return the face of an op of two operands without parameters."""
    run = _pair(op, depth=2)
    swapped = _pair(op, is_swapped=True, depth=2)

    def face(a: Any, b: Any, /, out: Any = None) -> Any:
        if out is not None:
            return write_op(out, op, (a, b))
        kind = type(a)
        # The tensor comes first, if there is one.
        return swapped(b, a) if kind is float or kind is int or kind is _ndarray else run(a, b)

    return face


def operator(op: Op, is_swapped: bool = False) -> Callable[[Any, Any], Any]:
    """Return an op of two operands as an operator: what it cannot use is left to the other operand, as Python wants."""
    return _pair(op, is_swapped, is_operator=True)


def _pair(op: Op, is_swapped: bool = False, is_operator: bool = False, depth: int = 1) -> Callable[[Any, Any], Any]:
    """Return a function of a tensor and another operand that applies an op to them, in exchanged order if swapped.

    The user's frame is `depth` or more up.
    """
    is_discrete = op.facts.is_discrete
    takes_numbers = op.is_elementwise
    least_for_rows = LEAST_OPERANDS if op.is_elementwise else sys.maxsize
    # By `needs`: whether the rules read a, b and the result.
    keeps = [(0 in (kept or ()), 1 in (kept or ()), reads_out) for kept, reads_out in map(op.kept, range(4))]

    def run(a: Any, b: Any) -> Any:
        state: Any = peek()
        kind = type(b)
        try:
            x = a.array
            m = a.node
            dtype = x.dtype
            if (
                state.scopes
                or (m is None and state.watch_all)
                or (dtype is not float64 and dtype is not float32)
                or ((version := a.version) is not None and version[0].count)
            ):
                return _in_general(op, a, b, is_swapped, is_operator)
            if kind is float or kind is int:
                if not takes_numbers:
                    return _in_general(op, a, b, is_swapped, is_operator)
                n = None
                y = (_FLOAT64 if dtype is float64 else _FLOAT32).get(b)
                if y is None:
                    y = _constant(op, x, b)
                b = y
            elif kind is _ndarray:
                if b.dtype is not dtype:
                    return _in_general(op, a, b, is_swapped, is_operator)
                y = b
                n = None
            else:
                y = b.array
                n = b.node
                if (
                    y.dtype is not dtype
                    or (n is None and state.watch_all)
                    or ((version := b.version) is not None and version[0].count)
                ):
                    return _in_general(op, a, b, is_swapped, is_operator)
        except AttributeError:  # No tensors, or no state yet.
            return _in_general(op, a, b, is_swapped, is_operator)
        value = a.plain()
        if is_swapped:
            a, b, x, y, m, n = b, a, y, x, n, m
        forward = op.forward
        try:
            if kind is float or x.size + y.size < least_for_rows or x.shape == y.shape:
                result = forward(x, y)
            else:
                result = in_long_rows(forward, (x, y), {})
        except NumtapeError:
            raise
        except (ValueError, TypeError) as error:
            raise explain(op, (x, y), error) from error
        if type(result) is not _ndarray:
            result = _asarray(result)
        value.array = result
        value.version = value.extras = None
        needs = (m is not None) | (n is not None) << 1
        if not needs or is_discrete or not state.grad:
            value.node = None
            return value
        keeps_a, keeps_b, keeps_out = keeps[needs]
        if type(m) is not Record:
            m = a
        elif keeps_a:
            m.array = x
        if type(n) is not Record:
            n = b
        elif keeps_b:
            n.array = y
        if state.tapes:
            value.node = new_record(
                op, (m, n), None, needs, result if keeps_out else None, result.shape, dtype, state, depth + 1
            )
            return value
        # As `new_record` does, written out again.
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
        made.code = code = frame.f_code
        if code is latest.code or is_users(code):
            made.lasti = frame.f_lasti
        else:
            made.code, made.lasti = call_site(frame)
        return value

    return _with_own_code(run, op)


def _in_general(op: Op, a: Any, b: Any, is_swapped: bool, is_operator: bool) -> Any:
    """Apply an op of two operands as `_pair` does, whatever they are."""
    if is_swapped:
        a, b = b, a
    if type(a) is _ndarray and type(b) is _ndarray:
        return on_arrays(op, (a, b), {})
    if is_operator and not (is_operand(a) and is_operand(b)):
        return NotImplemented
    return apply(op, (a, b), {})


def on_arrays(op: Op, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an op to operands that are arrays of floats of one width, most likely."""
    state = peek()
    dtype = getattr(arrays[0], "dtype", None)
    if state is None or state.scopes or (dtype is not float64 and dtype is not float32):
        return apply(op, arrays, params)
    for array in arrays:
        if type(array) is not _ndarray or array.dtype is not dtype:
            return apply(op, arrays, params)
    try:
        result = in_long_rows(op.forward, arrays, params) if op.is_elementwise else op.forward(*arrays, **params)
    except NumtapeError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        raise explain(op, arrays, error) from error
    return tuple(map(_asarray, result)) if type(result) is tuple else _asarray(result)


def is_operand(x: Any) -> bool:
    """Say whether an op may accept an object; whether it does, its dtype and shape decide."""
    return isinstance(x, _OPERANDS) or hasattr(x, "__array__")


#: Numbers met as operands, as arrays of the other operand's dtype: NumPy takes these twice as fast.
_FLOAT32: dict[float, Any] = {}
_FLOAT64: dict[float, Any] = {}
_CONSTANTS: dict[Dtype, dict[float, Any]] = {float32: _FLOAT32, float64: _FLOAT64}
_MOST_CONSTANTS = 4096


def _constant(op: Op, x: Any, number: float) -> Any:
    """Return a number beside an array as an array of its dtype."""
    try:
        array = np.array(number, x.dtype)
    except OverflowError as error:
        raise explain(op, (x, number), error) from error
    array.setflags(write=False)
    known = _CONSTANTS[x.dtype]
    if len(known) >= _MOST_CONSTANTS:
        known.clear()
    if number:  # 0.0 and -0.0 are one key.
        known[number] = array
    return array
