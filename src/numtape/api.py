"""Derivatives of functions: arrays in, arrays out; tensors in, tensors out; trees anywhere."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree
from .core.context import current, entered
from .core.gradients import as_tensor, link_of, sweep
from .core.reverse import collect, own_array
from .core.value import LEAF, Value, wrap
from .dtypes import is_float
from .errors import ArgumentError, DtypeError, OperandError, ShapeError
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
        self.trees = []
        self.given: list[Any] = []
        self.tensors: list[Any] = []
        replaced = list(args)
        for number in numbers:
            if not isinstance(number, int) or not -len(args) <= number < len(args):
                raise ArgumentError(f"{name}: argnums has {number!r}, but the function got {len(args)} arguments.")
            argument = args[number]
            self.trees.append(argument)
            leaves = tree.leaves(argument)
            tensors = [_as_source(name, leaf) for leaf in leaves]
            self.given += leaves
            self.tensors += tensors
            replaced[number] = tree.unflatten(argument, tensors)
        self.args = tuple(replaced)
        self.has_tensors = any(isinstance(leaf, Value) for leaf in self.given)

    def results(self, cotangents: Sequence[Any]) -> Any:
        """Return cotangents in the form in which the arguments were given."""
        if self.is_single:
            return tree.unflatten(self.trees[0], cotangents)
        rest = iter(cotangents)
        return tuple(tree.unflatten(t, [next(rest) for _ in tree.leaves(t)]) for t in self.trees)


def _as_source(name: str, leaf: Any) -> Any:
    if isinstance(leaf, Value):
        _check_float(name, leaf.dtype)
        return alias(leaf) if leaf.node is not None else wrap(leaf.plain, leaf.array, LEAF, leaf.version)
    if isinstance(leaf, bool) or not isinstance(leaf, float | int | np.ndarray | np.generic):
        raise OperandError(
            f"{name}: cannot differentiate by an argument of type {type(leaf).__name__}; arguments are tensors, "
            "arrays, numbers and trees of them."
        )
    array = np.asarray(leaf, np.float64) if isinstance(leaf, float | int) else np.asarray(leaf)
    _check_float(name, array.dtype)
    return wrap(Tensor, array, LEAF)


def _check_float(name: str, dtype: Any) -> None:
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
        cotangent = found.get(link_of(source))
        if cotangent is None:
            cotangent = np.zeros(source.shape, source.dtype)
        if is_recorded or isinstance(leaf, Value):
            results.append(as_tensor(cotangent, source, source.plain))
        else:
            array = own_array(cotangent, source.array)
            results.append(array if type(leaf) is np.ndarray or isinstance(leaf, np.generic) else array.item())
    return results


def _run(function: Callable[..., Any], inputs: _Inputs, kwargs: dict[str, Any]) -> Any:
    with entered(grad=True, transforms=current().transforms + 1):
        return function(*inputs.args, **kwargs)


def _as_output(name: str, function: Callable[..., Any], out: Any) -> Any:
    if isinstance(out, Value):
        if not is_float(out.dtype):
            raise DtypeError(f"{name}: {_title(function)} returned a tensor of {out.dtype}, which has no derivative.")
        return out
    if isinstance(out, float | int | np.ndarray | np.generic) and not isinstance(out, bool):
        # A constant: its derivatives are zero.
        return wrap(Tensor, np.asarray(out, np.float64))
    raise OperandError(f"{name}: {_title(function)} returned {type(out).__name__}; it must return a tensor.")


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

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        name = "value_and_grad"
        inputs = _Inputs(name, args, argnums)
        is_tracked = _is_tracked(inputs)
        out = _run(function, inputs, kwargs)
        aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise OperandError(f"{name}: has_aux is set, but {_title(function)} did not return a pair.")
            out, aux = out
        out = _as_output(name, function, out)
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
    both = value_and_grad(function, argnums, has_aux)

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
    inputs = _Inputs(name, args, tuple(range(len(args))))
    is_tracked = _is_tracked(inputs)
    out_tree = _run(function, inputs, {})
    outs = [_as_output(name, function, out) for out in tree.leaves(out_tree)]
    is_recorded = _must_record(inputs, is_tracked, outs)
    as_tensors = is_recorded or inputs.has_tensors

    def pull(cotangents: Any) -> Any:
        given = tree.leaves(cotangents)
        if len(given) != len(outs):
            raise ArgumentError(f"vjp: {len(outs)} outputs and {len(given)} cotangents.")
        seeds = []
        for out, cotangent in zip(outs, given, strict=True):
            seed = cotangent if isinstance(cotangent, Value) else np.asarray(cotangent, out.dtype)
            if seed.shape != out.shape:
                raise ShapeError(f"vjp: a cotangent has shape {seed.shape} and its output {out.shape}.")
            seeds.append(seed)
        pairs = [(y, s) for y, s in zip(outs, seeds, strict=True) if y.node is not None]
        records_now = is_recorded or any(isinstance(s, Value) and s.node is not None for s in seeds)
        found: dict[Any, Any] = {}
        if pairs:
            found = sweep([y for y, _ in pairs], [s for _, s in pairs], inputs.tensors, create_graph=records_now)
        return inputs.results(_deliver(inputs, found, records_now))

    values = [out if is_recorded else wrap(out.plain, out.array) if as_tensors else out.array for out in outs]
    return tree.unflatten(out_tree, values), pull
