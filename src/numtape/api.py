"""Derivatives of functions: arrays in, arrays out; tensors in, tensors out; trees anywhere."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from . import tree
from .arguments import (
    Argnums,
    Arguments,
    call,
    check_argnums,
    check_callable,
    delivered,
    has_others,
    is_tracked_outside,
    must_record,
    released,
    run,
    stays_recorded,
)
from .core.context import Exits, State, current, peek
from .core.delivery import own_array
from .core.effects import effects
from .core.forward import fit
from .core.gradients import as_tensor, link_of, push_forward, sweep
from .core.graph import is_moving
from .core.marks import marks
from .core.streaming import StreamingTape
from .core.value import Value, array_of, wrap
from .directions import all_moved
from .errors import ArgumentError, ShapeError
from .lone_gradients import gradient_alone, is_array_alone
from .outputs import as_output, check_connected, split_aux, title


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
    return gradients_of("value_and_grad", function, argnums, has_aux)


def gradients_of(
    name: str, function: Callable[..., Any], argnums: Argnums, has_aux: bool, gives_value: bool = True
) -> Callable[..., Any]:
    """Do what `value_and_grad` does, for any transform; or, without the value, what `grad` does."""
    check_callable(name, function)
    check_argnums(name, argnums)
    number = argnums if type(argnums) is int and not has_aux else None

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        state = peek() or current()
        if number is not None and is_array_alone(args, number, state):
            inputs = Arguments.of_array(args, number)
            out, exits = run(function, inputs, kwargs)
            gradient = None if exits else gradient_alone(inputs, out, state)
            if gradient is not None:
                return (out.array.item(), gradient) if gives_value else gradient
            return finish(inputs, out, exits, state, False)
        inputs = Arguments(name, args, argnums)
        is_tracked = is_tracked_outside(inputs, state)
        out, exits = run(function, inputs, kwargs)
        return finish(inputs, out, exits, state, is_tracked)

    def finish(inputs: Arguments, out: Any, exits: Exits, state: State, is_tracked: bool) -> Any:
        """Compute the gradients of what the function returned, and return what is wanted."""
        aux = None
        if has_aux:
            out, aux = split_aux(name, function, out)
        if exits:
            check_connected(name, function, [out], exits)
        out = as_output(name, function, out)
        if out.array.size != 1:
            raise ShapeError(
                f"{name}: {title(function)} returned shape {out.shape}; a gradient is of a scalar. Use sum(), or "
                "nt.vjp for other cotangents."
            )
        graph = inputs.graph_of([out])
        scales = marks.search([link_of(out)])[1] if marks.is_in_use else None
        is_recorded = is_tracked or (state.grad and has_others(inputs, graph))
        found: dict[Any, Any] = {}
        if out.node is not None:
            found = sweep([out], [None], inputs.tensors, create_graph=is_recorded, graph=graph)
        if is_recorded:
            is_recorded = stays_recorded(inputs, True, (out, *found.values()))
        found_gradients = delivered(inputs, found, is_recorded)
        if scales:
            _mark_scaled(inputs, found_gradients, scales)
        gradients = inputs.results(found_gradients)
        if has_aux:
            aux = released(inputs, aux, is_recorded)
        inputs.release()
        if not gives_value:
            return (gradients, aux) if has_aux else gradients
        value = out
        if not is_recorded:
            value = wrap(out.plain, out.array.copy()) if inputs.has_tensors else out.array.item()
        return (value, aux) if has_aux else value, gradients

    return differentiated


def _mark_scaled(inputs: Arguments, gradients: Sequence[Any], scales: Mapping[int, float | None]) -> None:
    """Note the scales of gradients of a loss that a scaler has scaled, for optimizers."""
    for source, gradient in zip(inputs.tensors, gradients, strict=True):
        if isinstance(gradient, Value):
            marks.put(gradient, scales.get(id(link_of(source))))


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
    return gradients_of("grad", function, argnums, has_aux, gives_value=False)


def vjp(function: Callable[..., Any], *args: Any, argnums: Argnums | None = None, has_aux: bool = False) -> Any:
    """Return the value of a function and a function that takes cotangents of it to cotangents of the arguments.

    Args:
        function: takes tensors and returns a tensor or a tree of tensors; with `has_aux`, a pair of that and anything.
        args: where to evaluate it: tensors, arrays (which are copied), numbers and trees of them.
        argnums: which arguments to differentiate by; all if not given.
        has_aux: whether `function` returns a pair; its second part is then the third result.

    Returns:
        The value, and a function that returns a tuple with a cotangent for each argument (that one's cotangent if
        `argnums` is a number); it may be called often.

    Example:
        >>> y, pull = nt.vjp(lambda x: x * 2.0, np.array([1.0, 2.0]))
        >>> pull(np.array([1.0, 10.0]))
        (array([ 2., 20.]),)
    """
    numbers = tuple(range(len(args))) if argnums is None else argnums
    value, pull, aux = pulled("vjp", function, args, {}, numbers, has_aux, copies=True)
    value = tree.unflatten(value, _as_numbers(tree.leaves(value)))
    return (value, pull, aux) if has_aux else (value, pull)


def pulled(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Argnums,
    has_aux: bool,
    copies: bool = False,
) -> tuple[Any, Callable[[Any], Any], Any]:
    """Do what `vjp` does, for any transform; with `copies`, writes to what was given or returned change no graph."""
    check_callable(name, function)
    check_argnums(name, argnums)
    inputs = Arguments(name, args, argnums, copies)
    is_tracked = is_tracked_outside(inputs)
    out_tree, outs, aux = call(name, function, inputs, kwargs, has_aux)
    is_recorded = must_record(inputs, is_tracked, outs)
    are_connected = [y.node is not None for y in outs]

    def pull(cotangents: Any) -> Any:
        seeds = all_moved(name, "cotangent", cotangents, out_tree, outs, title(function))
        pairs = [(y, s) for y, s, is_connected in zip(outs, seeds, are_connected, strict=True) if is_connected]
        records_now = current().grad and (is_recorded or any(map(is_moving, seeds)))
        found: dict[Any, Any] = {}
        if pairs:
            found = sweep([y for y, _ in pairs], [s for _, s in pairs], inputs.tensors, create_graph=records_now)
        records_now = stays_recorded(inputs, records_now, (*outs, *found.values()))
        return inputs.results(delivered(inputs, found, records_now))

    has_graph = stays_recorded(inputs, is_recorded, outs)
    values = _plain_values(inputs, outs, has_graph, copies)
    aux = released(inputs, aux, has_graph, copies)
    inputs.release()
    return tree.unflatten(out_tree, values), pull, aux


def jvp(
    function: Callable[..., Any], primals: Any, tangents: Any, argnums: Argnums | None = None, has_aux: bool = False
) -> Any:
    """Return the value of a function and its derivative in the direction of `tangents`, by forward mode.

    With arrays and numbers it keeps no graph: tangents are pushed while the function runs, and memory does not grow
    with the number of ops. With tensors the result is recorded as that of any op, for whoever differentiates it.

    Args:
        function: takes tensors and returns a tensor or a tree of tensors; with `has_aux`, a pair of that and anything.
        primals: where to evaluate it: a tuple of arguments, or the only argument.
        tangents: one of the same structure and shapes, of the arguments in `argnums` if that is given; in a tuple, None
            stands for an argument that is a constant.
        argnums: which argument, or arguments, move; all if not given. The others are passed on as they are.
        has_aux: whether `function` returns a pair; its second part is then the third result.

    Example:
        >>> nt.jvp(lambda x: x ** 2, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
        (array([1., 4.]), array([ 2., 40.]))
        >>> nt.jvp(lambda x, n: x ** n, (2.0, 3), 1.0, argnums=0)
        (8.0, 12.0)
    """
    value, derivative, aux = pushed("jvp", function, primals, tangents, argnums, has_aux)
    return (value, derivative, aux) if has_aux else (value, derivative)


def pushed(
    name: str,
    function: Callable[..., Any],
    primals: Any,
    tangents: Any,
    argnums: Argnums | None = None,
    has_aux: bool = False,
) -> tuple[Any, Any, Any]:
    """Do what `jvp` does, for any transform."""
    check_callable(name, function)
    args = as_primals(name, function, primals)
    if argnums is None:
        argnums, tangents = moving(args, tangents) if is_arguments(primals) else (0, tangents)
    check_argnums(name, argnums)
    inputs = Arguments(name, args, argnums)
    given = (tangents,) if inputs.is_single else tangents
    moved = all_moved(name, "tangent", given, tuple(inputs.trees), inputs.tensors, title(function))
    is_tracked = is_tracked_outside(inputs) or (current().grad and any(map(is_moving, moved)))
    if is_tracked or inputs.has_tensors:
        return _stored(name, function, inputs, moved, has_aux, is_tracked)
    with effects() as seen:
        found = _streamed(name, function, inputs, moved, has_aux)
        if found is None:  # It runs again with all kept, as if it had not run yet.
            seen.undo()
    return found or _stored(name, function, inputs, moved, has_aux, is_tracked)


def as_primals(name: str, function: Callable[..., Any], primals: Any) -> tuple[Any, ...]:
    """Return the arguments of a call: those in a tuple, or the only one."""
    if is_arguments(primals):
        return primals
    if isinstance(primals, list) and not takes(function, 1) and takes(function, len(primals)):
        raise ArgumentError(
            f"{name}: primals is a list, which is one argument, but {title(function)} takes {len(primals)}; give a "
            "tuple of arguments."
        )
    return (primals,)


def is_arguments(primals: Any) -> TypeGuard[tuple[Any, ...]]:
    """Say whether something is a tuple of arguments; a named tuple is one argument."""
    return isinstance(primals, tuple) and not hasattr(primals, "_fields")


def takes(function: Callable[..., Any], count: int) -> bool:
    """Say whether a function can be called with so many arguments; what cannot be asked can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def moving(args: tuple[Any, ...], tangents: Any) -> tuple[tuple[int, ...], Any]:
    """Return the numbers of the arguments that have a tangent, and these."""
    everything = tuple(range(len(args)))
    if not isinstance(tangents, tuple | list) or len(tangents) != len(args):
        return everything, tangents
    numbers = tuple(i for i in everything if tangents[i] is not None or args[i] is None)
    return numbers, tuple(tangents[i] for i in numbers)


def _streamed(
    name: str, function: Callable[..., Any], inputs: Arguments, moved: list[Any], has_aux: bool
) -> tuple[Any, Any, Any] | None:
    """Push tangents while the function runs; what it records is forgotten on the way.

    None if the function differentiates backward past what was forgotten, or captures what others may differentiate by.
    """
    tape = StreamingTape(_seeds(inputs, moved), must_be_alone=current().grad)
    try:
        out_tree, outs, aux = call(name, function, inputs, {}, has_aux, tape)
        found = [tape.tangent_of(link_of(out)) for out in outs]
    except Exception:
        if not tape.past.is_missed:
            raise
    finally:
        tape.end()
    if tape.past.is_missed:  # Whatever the function, in this thread or another, has made of the error.
        return None
    aux = released(inputs, aux, False, is_alone=True)
    inputs.release()
    return (*_with_derivatives(inputs, out_tree, outs, found, False), aux)


def _stored(
    name: str, function: Callable[..., Any], inputs: Arguments, moved: list[Any], has_aux: bool, is_tracked: bool
) -> tuple[Any, Any, Any]:
    """Record the function, then sweep; the sweep is recorded as well if something may differentiate through it."""
    out_tree, outs, aux = call(name, function, inputs, {}, has_aux)
    is_recorded = must_record(inputs, is_tracked, outs)
    found = push_forward(outs, inputs.tensors, moved, create_graph=is_recorded)
    is_recorded = stays_recorded(inputs, is_recorded, (*outs, *found))
    aux = released(inputs, aux, is_recorded)
    inputs.release()
    return (*_with_derivatives(inputs, out_tree, outs, found, is_recorded), aux)


def _with_derivatives(
    inputs: Arguments, out_tree: Any, outs: list[Any], found: list[Any], is_recorded: bool
) -> tuple[Any, Any]:
    """Return the value of a function and its derivative as the caller wants them."""
    values = _as_numbers(_plain_values(inputs, outs, is_recorded))
    derivatives = _as_numbers([_as_derivative(inputs, found.pop(0), out, is_recorded) for out in outs])
    return tree.unflatten(out_tree, values), tree.unflatten(out_tree, derivatives)


def _seeds(inputs: Arguments, moved: list[Any]) -> dict[Any, Any]:
    """Return the tangents of the arguments by their links."""
    return {
        link_of(x): fit(t.array if isinstance(t, Value) else t, x) for x, t in zip(inputs.tensors, moved, strict=True)
    }


def _as_derivative(inputs: Arguments, tangent: Any, out: Any, is_recorded: bool) -> Any:
    """Return the tangent of an output: zeros if nothing reaches it; a tensor among tensors."""
    if tangent is None:
        tangent = np.zeros(out.shape, out.dtype)
    if is_recorded or inputs.has_tensors:
        return as_tensor(tangent, out, out.plain)
    return own_array(array_of(tangent), out.array)


def _as_numbers(results: list[Any]) -> list[Any]:
    """Make Python numbers of scalars among arrays."""
    return [x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in results]


def _plain_values(inputs: Arguments, outs: Sequence[Any], is_recorded: bool, copies: bool = False) -> list[Any]:
    """Return outputs as the caller wants them: tracked tensors, plain tensors, or arrays that are not an argument's.

    With `copies`, they are not those of the graph either, which outlives the call.
    """
    if is_recorded:
        return list(outs)
    held = [source.array for source in inputs.tensors]
    arrays = [
        out.array.copy() if copies or any(np.may_share_memory(out.array, x) for x in held) else out.array
        for out in outs
    ]
    return [wrap(out.plain, array) for out, array in zip(outs, arrays, strict=True)] if inputs.has_tensors else arrays
