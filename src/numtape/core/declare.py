"""Declare an op: one decorator per kind of derivative, each returning the public function with a real signature.

- `elementwise`: one partial per argument serves both modes, since the Jacobian is diagonal: ``lambda g, b: g * b``.
- `linear`: one transpose per argument; the JVP is the op itself.
- `differentiable`: VJPs and JVPs given separately, or one joint VJP where arguments share work.
- `discrete`: no derivative: comparisons, indices, searches.
- `composed`: a function made of other ops.

The decorated function is the forward; it never sees a Tensor. Arrays are positional-only; static parameters are
keyword-only, except those that mean the same by position in NumPy and PyTorch. The face takes what the signature says.
"""

from __future__ import annotations  # To make them for each of the ops takes 2 ms on import.

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from .._typing import Rule as RuleFunction
from ..errors import ArgumentError, NumtapeError, OperandError
from . import batching
from .apply import apply
from .binding import bind_params, fill_operands, has_spellings, take_out, with_spellings
from .composing import floated, rounded_once
from .context import peek
from .faces import binary, is_pair, single, unary
from .facts import Facts, Structure
from .inplace import write_op
from .op import NON_DIFFERENTIABLE, REQUIRED, Composite, Marker, Op, kinds_of
from .scopes import casting

P = ParamSpec("P")
R = TypeVar("R")
Rules = Mapping[str, RuleFunction | Marker]

#: Every op and every composed function, by name.
registry: dict[str, Op | Composite] = {}
#: The public function of each of them, by name.
public: dict[str, Callable[..., Any]] = {}
#: The public function that stands for a NumPy function.
numpy_faces: dict[Any, Callable[..., Any]] = {}


def elementwise(
    ufunc: Callable[..., Any] | None = None,
    *,
    partials: Rules,
    flops: int = 1,
    linear: Iterable[str] = (),
    promoted: tuple[str, ...] | None = None,
    **facts: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare an elementwise op, with broadcasting. `ufunc`, if given, is the forward in place of the body.

    Args:
        ufunc: the forward, if it is a ufunc.
        partials: for each argument, ``lambda g, ...: g * (d out / d argument)``.
        flops: floating-point operations per element of the output.
        linear: the arguments in which the op is linear.
        promoted: the arguments that are brought to one dtype; those with a derivative if not given.
        **facts: as in `Facts`.
    """

    def decorate(declaration: Callable[P, R]) -> Callable[P, R]:
        op = Op(
            ufunc or declaration,
            declaration,
            pulls=dict(partials),
            pushes=dict(partials),
            promoted=promoted,
            facts=Facts(
                cost=lambda out, *shapes, **params: flops * math.prod(out),
                flops=flops,
                structure=Structure.ELEMENTWISE,
                linear=frozenset(linear),
                batch=facts.pop("batch", batching.elementwise),
                **_as_tuples(facts),
            ),
        )
        return _publish(op, declaration)

    return decorate


def linear(
    *,
    transposes: Rules | None = None,
    transpose: RuleFunction | None = None,
    jointly: bool = False,
    is_variadic: bool = False,
    promoted: tuple[str, ...] | None = None,
    **facts: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare an op that is linear in each of its differentiable arguments, the others fixed.

    With `jointly` it is linear in all of them together, as concat is and matmul is not. `transpose` is one rule that
    returns a cotangent per argument, in place of `transposes`.
    """

    def decorate(declaration: Callable[P, R]) -> Callable[P, R]:
        rules = dict(transposes) if transposes is not None else dict.fromkeys(operand_names(declaration), transpose)
        arguments = [name for name, rule in rules.items() if not isinstance(rule, Marker)]
        itself = Marker.ITSELF_ALONE if jointly else Marker.ITSELF
        op = Op(
            declaration,
            declaration,
            pulls=cast(Any, rules),
            pushes={name: itself if name in arguments else cast(Marker, rule) for name, rule in rules.items()},
            joint=transpose,
            is_variadic=is_variadic,
            promoted=promoted,
            facts=Facts(**{"cost": _free, "linear": frozenset(arguments), **_as_tuples(facts)}),
        )
        return _publish(op, declaration)

    return decorate


def differentiable(
    *,
    jvps: Rules,
    vjps: Rules | None = None,
    vjp: RuleFunction | None = None,
    is_variadic: bool = False,
    promoted: tuple[str, ...] | None = None,
    **facts: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare an op with VJPs and JVPs of its own; `vjp` is one joint rule that returns a cotangent per argument."""

    def decorate(declaration: Callable[P, R]) -> Callable[P, R]:
        op = Op(
            declaration,
            declaration,
            pulls=dict(vjps or {}),
            pushes=dict(jvps),
            joint=vjp,
            is_variadic=is_variadic,
            promoted=promoted,
            facts=Facts(**_as_tuples(facts)),
        )
        return _publish(op, declaration)

    return decorate


def discrete(ufunc: Callable[..., Any] | None = None, **facts: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare an op without a derivative, whose results are bools or integers."""

    def decorate(declaration: Callable[P, R]) -> Callable[P, R]:
        rules: dict[str, RuleFunction | Marker] = dict.fromkeys(operand_names(declaration), NON_DIFFERENTIABLE)
        if ufunc is not None:
            facts.setdefault("structure", Structure.ELEMENTWISE)
            facts.setdefault("batch", batching.elementwise)
        op = Op(
            ufunc or declaration,
            declaration,
            pulls=rules,
            pushes=rules,
            facts=Facts(**{"cost": _per_output, "is_discrete": True, **_as_tuples(facts)}),
        )
        return _publish(op, declaration)

    return decorate


def composed(
    *, rounds_once: bool = False, promoted: tuple[str, ...] | None = None, **facts: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function that is made of ops, with the facts that tests and documents use.

    Args:
        rounds_once: whether half operands are widened first and only the result is rounded, not that of each op. A
            function that computes with one op at most needs it not.
        promoted: the arguments whose dtypes decide that of the result, and that `to_float` is about; all if not given.
        **facts: as in `Facts`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = cast(Any, function).__name__
        known = Facts(**{"cost": _free, **_as_tuples(facts)})
        inner: Any = with_spellings(function)
        if known.to_float:
            inner = floated(inner, promoted)
        face = rounded_once(inner, promoted, is_kept=known.precision == "keep") if rounds_once else inner
        entry = Composite(name.strip("_"), face, known, inner, promoted)
        if known.precision != "keep":
            face = _cast_by_scopes(entry)
            entry = entry._replace(face=face)
        return cast("Callable[P, R]", _register(entry, face, name.startswith("_")))

    return decorate


def _cast_by_scopes(entry: Composite) -> Callable[..., Any]:
    """Return the face of a composed function about which a scope that casts has something to say."""
    plain = entry.face

    @functools.wraps(plain)
    def face(*args: Any, **kwargs: Any) -> Any:
        state = peek()
        caster = casting(state.scopes) if state is not None and state.scopes else None
        return plain(*args, **kwargs) if caster is None else caster.run_composed(entry, args, kwargs)

    return face


def face_of(op_face: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function the public one of an op whose own signature does not suit callers."""
    op = cast(Op, cast(Any, op_face).op)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # Among these are the shortest ways to ops, such as getitem: a wrapper would be a tenth of their time.
        face = with_spellings(function) if has_spellings(function) or kinds_of(function) else function
        cast(Any, face).op = op
        _expose(op, face)
        return face

    return decorate


def runner(op_face: Callable[..., Any]) -> Callable[[Any, dict[str, Any] | None], Any]:
    """Return the function behind the face of an op of one operand: it takes the operand and complete parameters."""
    run: Callable[[Any, dict[str, Any] | None], Any] = cast(Any, op_face).run
    return run


def operand_names(declaration: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional-only parameters: the operands."""
    code = cast(Any, declaration).__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_posonlyargcount]
    return names


def _free(out: Any, *shapes: Any, **params: Any) -> int:
    return 0


def _per_output(out: Any, *shapes: Any, **params: Any) -> int:
    return math.prod(out)


def _as_tuples(facts: dict[str, Any]) -> dict[str, Any]:
    """Let `also` and `numpy` be given as a single thing."""
    for name in ("also", "numpy"):
        if name in facts and not isinstance(facts[name], tuple):
            facts[name] = (facts[name],)
    return facts


def _register(entry: Op | Composite, face: Callable[..., Any], is_internal: bool = False) -> Callable[..., Any]:
    known = registry.get(entry.name)
    # A file that an interrupt has left half loaded is run again.
    if known is not None and _declared_at(known.face) != _declared_at(face):
        raise TypeError(f"op {entry.name} is declared twice")
    registry[entry.name] = entry
    # What is declared with a leading underscore is internal, or `face_of` makes another function its public one.
    if not is_internal:
        _expose(entry, face)
    return face


def _declared_at(face: Callable[..., Any]) -> tuple[str, int]:
    code = cast(Any, inspect.unwrap(face)).__code__
    return code.co_filename, code.co_firstlineno


def _expose(entry: Op | Composite, face: Callable[..., Any]) -> None:
    for spelling in (entry.name, *entry.facts.also):
        public[spelling] = face
    for function in entry.facts.numpy:
        numpy_faces[function] = face


def _publish(op: Op, declaration: Callable[P, R]) -> Callable[P, R]:
    """Return the public function of an op: the declaration's name, signature and docstring around `apply`."""
    face: Any
    if op.is_elementwise and not op.defaults and not op.operand_defaults:
        face = _elementwise_face(op)
    elif op.is_variadic:
        face = _variadic_face(op)
    else:
        face = _general_face(op)
    functools.update_wrapper(face, declaration)
    face.__name__ = op.name
    face.op = op
    op.face = face
    return cast("Callable[P, R]", _register(op, face, cast(Any, declaration).__name__.startswith("_")))


def _elementwise_face(op: Op) -> Callable[..., Any]:
    if len(op.arguments) == 1:
        # To look for arguments that do not exist takes as long as a tenth of a small ufunc: its face does not.
        return unary(op) if isinstance(op.forward, np.ufunc) else _single_face(op)
    if is_pair(op):
        return binary(op)

    def face(*operands: Any, out: Any = None) -> Any:
        if len(operands) != len(op.arguments):
            raise OperandError(f"{op.name}: takes {', '.join(op.arguments)}; {len(operands)} operands were given.")
        return apply(op, operands, {}) if out is None else write_op(out, op, operands)

    return face


def _variadic_face(op: Op) -> Callable[..., Any]:
    def face(arrays: Any, /, *args: Any, **params: Any) -> Any:
        if (isinstance(arrays, np.ndarray) and arrays.ndim == 0) or not hasattr(arrays, "__iter__"):
            raise OperandError(f"{op.name}: wants a sequence of tensors or arrays, not {type(arrays).__name__}.")
        operands = tuple(arrays)
        if not operands:
            raise ArgumentError(f"{op.name}: the sequence is empty; give at least one tensor or array.")
        return apply(op, operands, bind_params(op, args, params))

    return face


def _general_face(op: Op) -> Callable[..., Any]:
    count = len(op.arguments)
    if count == 1 and not op.operand_defaults:
        return _single_face(op)
    pair = binary(op) if is_pair(op) else None

    def face(*args: Any, **params: Any) -> Any:
        if pair is not None and len(args) == 2 and not params:
            return pair(*args)
        operands = args[:count]
        if len(operands) < count:
            operands = fill_operands(op, operands, params)
        out = take_out(op, params)
        bound = bind_params(op, args[count:], params)
        try:
            return apply(op, operands, bound) if out is None else write_op(out, op, operands, bound)
        except OverflowError as error:
            raise _too_large(op, bound, error) from error

    return face


def _single_face(op: Op) -> Callable[..., Any]:
    run = single(op)
    # Shared by all calls that leave every parameter to its default; parameters are never changed once bound.
    is_complete = REQUIRED not in op.defaults.values()
    defaults = bind_params(op, (), {}) if is_complete else None

    def face(x: Any = REQUIRED, /, *args: Any, **params: Any) -> Any:
        if defaults is not None and not args and not params:
            return run(x, defaults or None) if x is not REQUIRED else fill_operands(op, (), params)
        if x is REQUIRED:
            (x,) = fill_operands(op, (), params)
        out = take_out(op, params)
        bound = bind_params(op, args, params)
        try:
            return run(x, bound or None) if out is None else write_op(out, op, (x,), bound)
        except OverflowError as error:
            raise _too_large(op, bound, error) from error

    cast(Any, face).run = run
    return face


def _too_large(op: Op, params: dict[str, Any], error: OverflowError) -> Exception:
    """Return the error of an integer, such as an axis, that NumPy has no room for."""
    if isinstance(error, NumtapeError):
        return error
    return ArgumentError(f"{op.name}: {error}; it was given {', '.join(f'{k}={v!r}' for k, v in params.items())}.")
