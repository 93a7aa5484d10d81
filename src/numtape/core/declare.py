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

from .. import tree
from .._typing import Dtype
from .._typing import Rule as RuleFunction
from ..dtypes import HALF_DTYPES, float32, float64, float_beside, promote, widened
from ..errors import ArgumentError, NumtapeError, OperandError
from . import batching
from .apply import apply
from .binding import bind_params, fill_operands, has_spellings, take_out, with_spellings
from .context import casting, current, peek
from .faces import binary, is_pair, single, unary
from .inplace import write_op
from .op import NON_DIFFERENTIABLE, REQUIRED, Composite, Facts, Marker, Op, Structure, kinds_of
from .value import Value, array_of

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
            inner = _floated(inner, promoted)
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


def rounded_once(
    function: Callable[P, R], promoted: tuple[str, ...] | None = None, wide: Dtype = float32, is_kept: bool = False
) -> Callable[P, R]:
    """Let a function that is made of ops compute on half operands in a `wide` dtype and round its results at the end.

    The dtype of the results is that of the `promoted` arguments together, of all if not given: only of halves alone
    they are rounded. Where a scope casts, each op says what it runs in, unless the function `is_kept` as ops are that
    run in the dtype of what they get.
    """
    chosen = _choose(function, promoted)

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        if not any(map(_holds_half, args)) and not (kwargs and any(map(_holds_half, kwargs.values()))):
            return function(*args, **kwargs)
        caster = casting(current().scopes)
        if caster is not None and (caster.everything is not None or not is_kept):
            return function(*args, **kwargs)
        target = promote([array_of(x) for x in tree.leaves(chosen(args, kwargs)) if hasattr(x, "dtype")])
        working = float64 if target == float64 else wide
        wide_args, wide_kwargs = tree.map(lambda x: x.astype(working) if _is_half(x) else x, (args, kwargs))
        out = function(*wide_args, **wide_kwargs)
        if target not in HALF_DTYPES:
            return out
        return cast(R, tree.map(lambda x: x.astype(target) if getattr(x, "dtype", None) == working else x, out))

    return face


def _choose(
    function: Callable[..., Any], promoted: tuple[str, ...] | None
) -> Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]:
    """Return a function that picks the promoted ones of arguments; those without a name, as ``*xs``, are.

    Flags, numbers and axes are none of them.
    """
    plain = inspect.unwrap(function)
    code = cast(Any, plain).__code__
    names = code.co_varnames[: code.co_argcount]
    others = {*kinds_of(plain), "axis"}

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        is_chosen = others.isdisjoint if promoted is None else set(promoted).issuperset
        return [*(x for name, x in named.items() if is_chosen((name,))), *args[len(names) :]]

    return chosen


def _is_half(x: Any) -> bool:
    return getattr(x, "dtype", None) in HALF_DTYPES


def _holds_half(x: Any) -> bool:
    kind = type(x)
    if kind in _WITHOUT_DTYPE:
        return False
    return any(map(_is_half, tree.leaves(x))) if kind in (list, tuple, dict) else _is_half(x)


#: What most arguments are that are no operands, told in less time than it takes to look for a dtype.
_WITHOUT_DTYPE = frozenset((type(None), bool, int, float, str))


def _floated(function: Callable[P, R], promoted: tuple[str, ...] | None) -> Callable[P, R]:
    """Let a composed function get integers, of the `promoted` arguments, as floats: as wide as others are computed in.

    Where there are no others it is the default dtype.
    """
    chosen = _choose(function, promoted)

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        if not any(map(_is_whole, args)) and not (kwargs and any(map(_is_whole, kwargs.values()))):
            return function(*args, **kwargs)
        given = [x for x in chosen(args, kwargs) if isinstance(x, np.ndarray | Value)]
        dtype = widened(float_beside(given))
        # By identity: an argument stands in its own place.
        whole = {id(x) for x in given if _is_whole(x)}
        args, kwargs = (tree.map(lambda x: x.astype(dtype) if id(x) in whole else x, part) for part in (args, kwargs))
        return function(*args, **kwargs)

    return face


def _is_whole(x: Any) -> bool:
    return isinstance(x, np.ndarray | Value) and x.dtype.kind in "biu"
