"""Derivatives of functions: arrays in, arrays out; tensors in, tensors out; trees anywhere."""

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from . import tree
from .core.apply import watch_on_use
from .core.context import current, entered
from .core.gradients import as_tensor, link_of, sweep
from .core.record import describe_site
from .core.reverse import collect, own_array
from .core.value import LEAF, Value, extras_of, wrap
from .core.write import version_of
from .dtypes import float64, is_float
from .errors import ArgumentError, DtypeError, NotConnectedError, OperandError, ShapeError
from .ops.casting import alias
from .tensors import Tensor

Argnums = int | Sequence[int]


class _Inputs:
    """The differentiated arguments of one call, as tensors that only this call differentiates by.

    A tensor that is tracked outside is aliased by a recorded identity, so that nested transforms keep apart what each
    differentiates by (no perturbation confusion) and outer ones still see through.
    """

    __slots__ = ("args", "given", "has_tensors", "is_single", "tensors", "trees")

    def __init__(self, name: str, args: tuple[Any, ...], argnums: Argnums) -> None:
        self.is_single = isinstance(argnums, int)
        numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise ArgumentError(
                    f"{name}: argnums has {number}, but the function got {len(args)} positional arguments; argnums "
                    "counts these, from 0 on."
                )
        if len(numbers) > 1 and len({number % len(args) for number in numbers}) != len(numbers):
            raise ArgumentError(f"{name}: argnums is {argnums!r}; each argument may be named once.")
        replaced = list(args)
        self.trees = [args[number] for number in numbers]
        self.given: list[Any] = []
        self.tensors: list[Any] = []
        for number, argument in zip(numbers, self.trees, strict=True):
            if tree.is_leaf(argument):
                source = _as_source(name, argument)
                self.given.append(argument)
                self.tensors.append(source)
                replaced[number] = source
            else:
                leaves = tree.leaves(argument)
                tensors = [_as_source(name, leaf) for leaf in leaves]
                self.given += leaves
                self.tensors += tensors
                replaced[number] = tree.unflatten(argument, tensors)
        self.args = replaced
        self.has_tensors = False
        for leaf in self.given:
            if isinstance(leaf, Value):
                self.has_tensors = True

    def results(self, cotangents: Sequence[Any]) -> Any:
        """Return cotangents in the form in which the arguments were given."""
        if self.is_single:
            first = self.trees[0]
            return cotangents[0] if tree.is_leaf(first) else tree.unflatten(first, cotangents)
        rest = iter(cotangents)
        return tuple(tree.unflatten(t, [next(rest) for _ in tree.leaves(t)]) for t in self.trees)


def _as_source(name: str, leaf: Any) -> Any:
    if isinstance(leaf, Value):
        _check_float(name, leaf.dtype)
        state = current()
        if leaf.node is None and state.watch_all:
            watch_on_use(state, leaf)
        if leaf.node is not None and state.grad:
            return alias(leaf)
        version_of(leaf)
        return _source(leaf.plain, leaf.array, leaf.version)
    if type(leaf) is not np.ndarray and (
        isinstance(leaf, bool) or not isinstance(leaf, float | int | complex | np.ndarray | np.generic)
    ):
        raise OperandError(
            f"{name}: cannot differentiate by an argument of type {type(leaf).__name__}; arguments are tensors, "
            "arrays, numbers and trees of them."
        )
    array = np.asarray(leaf, np.float64) if isinstance(leaf, float | int) else np.asarray(leaf)
    if array.dtype is not float64:
        _check_float(name, array.dtype)
    return _source(Tensor, array, None)


def _source(cls: type[Value], array: Any, version: Any) -> Any:
    """Return a leaf that stays one while the transform runs, whatever tapes watch and unwatch it."""
    source = wrap(cls, array, LEAF, version)
    extras_of(source).watchers = 1
    return source


def _check_float(name: str, dtype: Any) -> None:
    if dtype.kind == "c":
        raise DtypeError(
            f"{name}: an argument has dtype {dtype}, but numtape computes with real numbers; pass real and imaginary "
            "parts as two arguments."
        )
    if not is_float(dtype):
        raise DtypeError(f"{name}: an argument has dtype {dtype}, which has no derivative; use astype(float).")


def _is_tracked(inputs: _Inputs) -> bool:
    """Say whether the result of a transform must be differentiable itself: something around it differentiates."""
    state = current()
    if not state.grad:
        return False
    if state.transforms or state.tapes:
        return True
    return inputs.has_tensors and any(isinstance(x, Value) and x.node is not None for x in inputs.given)


def _must_record(inputs: _Inputs, is_tracked: bool, outs: Sequence[Any]) -> bool:
    """Say whether the sweep must be recorded: something outside may differentiate through it."""
    if is_tracked or not inputs.has_tensors or not current().grad:
        return is_tracked
    # Tensors in, tensors out: a captured parameter must stay connected (a gradient penalty).
    own = set(map(id, inputs.tensors))
    return any(
        isinstance(link, Value) and id(link) not in own
        for record in collect([link_of(y) for y in outs])
        for i, link in enumerate(record.inputs)
        if record.needs >> i & 1
    )


def _deliver(inputs: _Inputs, found: dict[Any, Any], is_recorded: bool) -> list[Any]:
    """Return the cotangent of each argument: a tensor for a tensor, an array for an array, zeros if unconnected."""
    results: list[Any] = []
    for leaf, source in zip(inputs.given, inputs.tensors, strict=True):
        link = link_of(source)
        if link not in found:
            found[link] = np.zeros(source.shape, source.dtype)
        if is_recorded or isinstance(leaf, Value):
            results.append(as_tensor(found.pop(link), source, source.plain))
        else:
            array = own_array(found.pop(link), source.array)
            results.append(array if type(leaf) is np.ndarray or isinstance(leaf, np.generic) else array.item())
    return results


#: Code object, instruction offset and kind of a conversion of a tracked tensor to a plain number.
_Exit = tuple[CodeType, int, str] | None


def _run(function: Callable[..., Any], inputs: _Inputs, kwargs: dict[str, Any]) -> tuple[Any, _Exit]:
    """Call a function; also return where it last turned a tracked tensor into a plain number, if it did."""
    state = current()
    thread = state.thread
    before, thread.last_exit = thread.last_exit, None
    try:
        with entered(grad=True, transforms=state.transforms + 1):
            out = function(*inputs.args, **kwargs)
        return out, thread.last_exit
    finally:
        thread.last_exit = thread.last_exit or before


def _check_connected(name: str, function: Callable[..., Any], outs: Sequence[Any], last_exit: _Exit) -> None:
    """Raise if a function returned only constants after a tracked tensor became a plain float inside of it.

    item() is explicit, but float() is also what ``math.sin(x)`` and ``array[0] = x`` call.
    """
    if last_exit is not None and last_exit[2] == "float()" and all(out.node is None for out in outs):
        raise NotConnectedError(
            f"{name}: {_title(function)} returned a constant, and a tracked tensor was made a plain number by float() "
            f"at {describe_site(*last_exit[:2])}, so its gradient would be lost. Use nt functions instead of math, "
            "nt.stack instead of filling an array, and item() if a plain number is meant."
        )


def _check_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise OperandError(
            f"{name}: wants a function, not {type(function).__name__}; nt.{name} differentiates functions, and "
            "backward() a loss that is computed already."
        )


def _check_argnums(name: str, argnums: Any) -> None:
    numbers = argnums if isinstance(argnums, list | tuple) else (argnums,)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise ArgumentError(
            f"{name}: argnums is {argnums!r}; it must be an integer or a tuple of integers. The function's arguments "
            f"go to the result: nt.{name}(f)(x)."
        )


def _as_output(name: str, function: Callable[..., Any], out: Any) -> Any:
    if isinstance(out, Value):
        if not is_float(out.dtype):
            raise DtypeError(
                f"{name}: {_title(function)} returned a tensor of {out.dtype}, which has no derivative; it must return "
                "floats."
            )
        return out
    if isinstance(out, float | int | np.ndarray | np.generic) and not isinstance(out, bool):
        # A constant: its derivatives are zero.
        return wrap(Tensor, np.asarray(out, np.float64))
    hint = "; with has_aux=True, it may return a pair" if isinstance(out, tuple) and len(out) == 2 else ""
    what = "a tensor" if name == "vjp" else "a scalar tensor"
    raise OperandError(f"{name}: {_title(function)} returned {type(out).__name__}; it must return {what}{hint}.")


def _as_cotangent(cotangent: Any, out: Any) -> Any:
    """Return what is no tensor as an array of its output's dtype."""
    array = np.asarray(cotangent)
    if not is_float(array.dtype) and array.dtype.kind not in "biu":
        raise OperandError(
            f"vjp: a cotangent is a tensor, an array or a real number, not {type(cotangent).__name__} ({array.dtype})."
        )
    return array.astype(out.dtype)


def _title(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


def value_and_grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that returns the value of a scalar function and its gradient.

    Args:
        function: takes tensors and returns a scalar; with `has_aux`, a pair of that and anything else.
        argnums: which argument, or arguments, to differentiate by; each may be a tree.
        has_aux: whether `function` returns a pair.

    Example:
        >>> nt.value_and_grad(lambda x: (x ** 2).sum())(np.array([1.0, 2.0]))
        (5.0, array([2., 4.]))
    """
    return _value_and_grad("value_and_grad", function, argnums, has_aux)


def _value_and_grad(name: str, function: Callable[..., Any], argnums: Argnums, has_aux: bool) -> Callable[..., Any]:
    _check_callable(name, function)
    _check_argnums(name, argnums)

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs(name, args, argnums)
        is_tracked = _is_tracked(inputs)
        out, last_exit = _run(function, inputs, kwargs)
        aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                got = f"a tuple of {len(out)}" if isinstance(out, tuple) else type(out).__name__
                raise OperandError(
                    f"{name}: has_aux is set, but {_title(function)} returned {got}; it must return a pair, the scalar "
                    "and anything else."
                )
            out, aux = out
        out = _as_output(name, function, out)
        _check_connected(name, function, [out], last_exit)
        if out.array.size != 1:
            raise ShapeError(
                f"{name}: {_title(function)} returned shape {out.shape}; a gradient is of a scalar. Use sum(), or "
                "nt.vjp for other cotangents."
            )
        is_recorded = _must_record(inputs, is_tracked, [out])
        seeds = [np.ones(out.shape, out.dtype)]
        found = sweep([out], seeds, inputs.tensors, create_graph=is_recorded) if out.node is not None else {}
        gradients = inputs.results(_deliver(inputs, found, is_tracked))
        value = out
        if not is_recorded:
            value = wrap(out.plain, out.array) if inputs.has_tensors else out.array.item()
        return ((value, aux), gradients) if has_aux else (value, gradients)

    return differentiated


def grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that returns the gradient of a scalar function; nest it for higher orders.

    Args:
        function: takes tensors and returns a scalar; with `has_aux`, a pair of that and anything else.
        argnums: which argument, or arguments, to differentiate by; each may be a tree.
        has_aux: whether `function` returns a pair; the result is then a pair as well.

    Example:
        >>> nt.grad(lambda x: x ** 3)(2.0)
        12.0
        >>> nt.grad(nt.grad(lambda x: x ** 3))(2.0)
        12.0
    """
    both = _value_and_grad("grad", function, argnums, has_aux)

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return differentiated


def vjp(function: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the value of a function and a function that takes cotangents of it to cotangents of the arguments.

    Args:
        function: takes tensors and returns a tensor or a tree of tensors.
        args: where to evaluate it: tensors, arrays, numbers and trees of them.

    Returns:
        The value, and a function that returns a tuple with a cotangent for each argument; it may be called often.

    Example:
        >>> y, pull = nt.vjp(lambda x: x * 2.0, np.array([1.0, 2.0]))
        >>> pull(np.array([1.0, 10.0]))
        (array([ 2., 20.]),)
    """
    name = "vjp"
    _check_callable(name, function)
    inputs = _Inputs(name, args, tuple(range(len(args))))
    is_tracked = _is_tracked(inputs)
    out_tree, last_exit = _run(function, inputs, {})
    outs = [_as_output(name, function, out) for out in tree.leaves(out_tree)]
    _check_connected(name, function, outs, last_exit)
    is_recorded = _must_record(inputs, is_tracked, outs)
    as_tensors = is_recorded or inputs.has_tensors

    def pull(cotangents: Any) -> Any:
        given = tree.leaves(cotangents)
        if len(given) != len(outs):
            raise ArgumentError(
                f"vjp: {_title(function)} has {len(outs)} outputs, but {len(given)} cotangents were given; give one "
                "for each output."
            )
        seeds = []
        for out, cotangent in zip(outs, given, strict=True):
            seed = cotangent if isinstance(cotangent, Value) else _as_cotangent(cotangent, out)
            if seed.shape != out.shape:
                raise ShapeError(
                    f"vjp: a cotangent has shape {seed.shape} and its output {out.shape}; they must be equal."
                )
            seeds.append(seed)
        pairs = [(y, s) for y, s in zip(outs, seeds, strict=True) if y.node is not None]
        records_now = is_recorded or any(isinstance(s, Value) and s.node is not None for s in seeds)
        found: dict[Any, Any] = {}
        if pairs:
            found = sweep([y for y, _ in pairs], [s for _, s in pairs], inputs.tensors, create_graph=records_now)
        return inputs.results(_deliver(inputs, found, records_now))

    # A value may be an argument itself, whose memory is the caller's.
    held = {id(source.array) for source in inputs.tensors}
    arrays = [out.array.copy() if id(out.array) in held else out.array for out in outs]
    values = [
        out if is_recorded else wrap(out.plain, array) if as_tensors else array
        for out, array in zip(outs, arrays, strict=True)
    ]
    return tree.unflatten(out_tree, values), pull
