"""Whole derivatives of functions: Jacobians, Hessians and products with them, over trees, in the cheapest mode."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree
from .api import as_primals, gradients_of, is_arguments, moving, pulled, pushed
from .arguments import (
    Argnums,
    Arguments,
    argument_numbers,
    call,
    check_argnums,
    check_callable,
    has_others,
    is_tracked_outside,
    must_record,
    released,
    stays_recorded,
)
from .core.context import current, entered
from .core.gradients import as_tensor, link_of, ones_like, sweep, tracked_again
from .core.graph import Graph
from .core.jacobian import Blocks, LostAtCut, Path, Sweeper, are_finite, by_cut, by_forward, by_reverse
from .core.value import Value, array_of, wrap
from .counts import is_count
from .errors import ArgumentError, NotDifferentiableError, OperandError, ShapeError
from .lifted import BatchedTensor
from .ops import concat, where
from .outputs import title
from .schedule import HybridScheduler
from .scheduler_config import SchedulerConfig, SchedulingStrategy, as_member


def jacobian(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    mode: str = "auto",
    chunk_size: int | None = None,
    scheduler: HybridScheduler | None = None,
    sparse: bool = False,
) -> Callable[..., Any]:
    """Return a function that returns the Jacobian of a function: shape ``out.shape + argument.shape``.

    Trees give trees: the structure of the output, and in each leaf's place that of the argument.

    Args:
        function: takes tensors and returns a tensor or a tree of tensors; with `has_aux`, a pair of that and anything.
        argnums: which argument, or arguments, to differentiate by; each may be a tree.
        has_aux: whether `function` returns a pair; the result is then a pair as well.
        mode: "auto" (what is cheapest for the recorded graph), "forward", "reverse" or "mixed".
        chunk_size: how many tangents or cotangents to carry at once. By default, so many that all memory taken is
            about three times that of the result, at most five times where rules need much of their own, or that of a
            single sweep if this is more.
        scheduler: a `HybridScheduler` to choose with and to ask for the reason, instead of `mode`.
        sparse: whether to return SciPy matrices, a row for each element of the output. The pattern comes from the
            recorded graph, and sweeps are shared by columns, or rows, that have nothing in common; `nt.sparsity` shows
            it.

    Example:
        >>> nt.jacobian(lambda x: x ** 2)(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """
    name = "jacobian"
    check_callable(name, function)
    check_argnums(name, argnums)
    chosen = scheduler_for(name, mode, scheduler)
    check_chunk_size(name, chunk_size)
    if _is_sparse(name, sparse):
        from .sparse.derivatives import Computer, sparse_derivative

        return sparse_derivative(function, argnums, has_aux, Computer(name, chosen, chunk_size, False))

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        inputs = Arguments(name, args, argnums)
        is_tracked = is_tracked_outside(inputs)
        out_tree, outs, aux = call(name, function, inputs, kwargs, has_aux)
        graph = inputs.graph_of(outs)
        is_recorded = is_tracked or (current().grad and has_others(inputs, graph))
        blocks = matrix_blocks(outs, inputs.tensors, chosen, chunk_size, is_recorded, graph)
        is_recorded = stays_recorded(inputs, is_recorded, (*outs, *itertools.chain(*blocks)))
        rows = [inputs.results(_shaped(inputs, row, out, is_recorded)) for row, out in zip(blocks, outs, strict=True)]
        result = tree.unflatten(out_tree, rows)
        if has_aux:
            result = (result, released(inputs, aux, is_recorded))
        inputs.release()
        return result

    return differentiated


def hessian(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    mode: str = "auto",
    chunk_size: int | None = None,
    scheduler: HybridScheduler | None = None,
    sparse: bool = False,
) -> Callable[..., Any]:
    """Return a function that returns the Hessian of a scalar function: shape ``argument.shape + argument.shape``.

    The gradient is recorded once, and its Jacobian taken by batched sweeps. Arguments are as those of `jacobian`; trees
    give trees of trees.

    Example:
        >>> nt.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 3.0]))
        array([[6., 2.],
               [2., 0.]])
    """
    name = "hessian"
    check_callable(name, function)
    check_argnums(name, argnums)
    chosen = scheduler_for(name, mode, scheduler)
    check_chunk_size(name, chunk_size)
    if _is_sparse(name, sparse):
        from .sparse.derivatives import Computer, sparse_derivative

        computer = Computer(name, chosen, chunk_size, True)
        return sparse_derivative(function, argnums, has_aux, computer, scalar_gradients)

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        inputs = Arguments(name, args, argnums)
        is_tracked = is_tracked_outside(inputs)
        out_tree, outs, aux = call(name, function, inputs, kwargs, has_aux)
        is_recorded = must_record(inputs, is_tracked, outs)
        gradients = scalar_gradients(name, function, out_tree, outs, inputs)
        blocks = matrix_blocks(gradients, inputs.tensors, chosen, chunk_size, is_recorded)
        is_recorded = stays_recorded(inputs, is_recorded, (*outs, *itertools.chain(*blocks)))
        rows = [
            inputs.results(_shaped(inputs, row, gradient, is_recorded))
            for row, gradient in zip(blocks, gradients, strict=True)
        ]
        result = inputs.results(rows)
        if has_aux:
            result = (result, released(inputs, aux, is_recorded))
        inputs.release()
        return result

    return differentiated


def scalar_gradients(
    name: str, function: Callable[..., Any], out_tree: Any, outs: Sequence[Value], inputs: Arguments
) -> list[Any]:
    """Return the gradients of what a function returned, which must be a scalar, as tensors with graphs of their own."""
    if not tree.is_leaf(out_tree):
        raise OperandError(f"{name}: {title(function)} returned {type(out_tree).__name__}; it must return a scalar.")
    (out,) = outs
    if math.prod(out.shape) != 1:
        raise ShapeError(
            f"{name}: {title(function)} returned shape {out.shape}; a Hessian is of a scalar. Use sum(), or "
            "nt.jacobian(nt.jacobian(f)) for all second derivatives."
        )
    found: dict[Any, Any] = {}
    if out.node is not None:
        # The gradient's graph is this transform's own, as the function's is.
        with entered(transforms=current().transforms + 1):
            found = sweep([out], [ones_like(out)], inputs.tensors, create_graph=True)
    return [_as_value(found.get(link_of(x)), x) for x in inputs.tensors]


def hvp(
    function: Callable[..., Any], primals: Any, tangents: Any, argnums: Argnums | None = None, has_aux: bool = False
) -> Any:
    """Return the product of the Hessian of a scalar function with `tangents`, without the Hessian.

    Forward mode over reverse mode: it costs a few times the gradient.

    Args:
        function: takes tensors and returns a scalar; with `has_aux`, a pair of that and anything else.
        primals: where to evaluate it: a tuple of arguments, or the only argument.
        tangents: one of the same structure and shapes; of the arguments in `argnums` if that is given. In a tuple, None
            stands for an argument that is a constant.
        argnums: which argument, or arguments, to differentiate by; all if not given.
        has_aux: whether `function` returns a pair; the result is then a pair as well.

    Returns:
        The product, in the form of what is differentiated by.

    Example:
        >>> nt.hvp(lambda x: x[0] ** 2 * x[1], np.array([1.0, 3.0]), np.array([1.0, 0.0]))
        array([6., 2.])
    """
    name = "hvp"
    check_callable(name, function)
    args = as_primals(name, function, primals)
    if argnums is None:
        argnums, tangents = moving(args, tangents) if is_arguments(primals) else (0, tangents)
    check_argnums(name, argnums)
    numbers = argument_numbers(name, argnums, len(args))
    moved_by = (tangents,) if isinstance(argnums, int | np.integer) else tangents

    @functools.wraps(function, assigned=("__name__",), updated=())
    def gradient(*moved: Any) -> Any:
        filled = list(args)
        for number, argument in zip(numbers, moved, strict=True):
            filled[number] = argument
        value, gradients = gradients_of(name, function, argnums, has_aux)(*filled)
        return (gradients, value[1] if has_aux else None)

    chosen = tuple(args[number] for number in numbers)
    _, product, aux = pushed(name, gradient, chosen, moved_by, tuple(range(len(chosen))), has_aux=True)
    # Gradients that are numbers to `pushed`, as outputs of a function, have the form of what they are taken by.
    pairs = zip(tree.leaves(product), tree.leaves(chosen), strict=True)
    product = tree.unflatten(product, [_as_array_for(leaf, x) for x, leaf in pairs])
    return (product, aux) if has_aux else product


def elementwise_grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that returns the derivative of an elementwise function at each element.

    It is the gradient of the sum of the outputs: where an output depends on several elements, contributions add up.

    Args:
        function: takes tensors and returns a tensor of their shape; with `has_aux`, a pair of that and anything else.
        argnums: which argument, or arguments, to differentiate by; each may be a tree.
        has_aux: whether `function` returns a pair; the result is then a pair as well.

    Example:
        >>> nt.elementwise_grad(lambda x: x ** 3)(np.array([1.0, 2.0]))
        array([ 3., 12.])
    """
    name = "elementwise_grad"
    check_callable(name, function)
    check_argnums(name, argnums)

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, pull, aux = pulled(name, function, args, kwargs, argnums, has_aux)
        if not isinstance(value, Value | np.ndarray):
            raise OperandError(f"{name}: {title(function)} returned {type(value).__name__}; it must return a tensor.")
        gradients = pull(np.ones(value.shape, value.dtype))
        for gradient in tree.leaves(gradients):
            if np.shape(gradient) != value.shape:
                raise ShapeError(
                    f"{name}: {title(function)} takes shape {np.shape(gradient)} to {value.shape}; an elementwise "
                    "function keeps the shape. Use nt.jacobian."
                )
        return (gradients, aux) if has_aux else gradients

    return differentiated


def matrix_blocks(
    outs: Sequence[Value],
    sources: Sequence[Value],
    scheduler: HybridScheduler,
    chunk_size: int | None,
    is_recorded: bool,
    graph: Graph | None = None,
) -> Blocks:
    """Return the Jacobian of tensors by tensors as matrices: a list of rows of blocks, None where they are zero.

    The graph is that of the former, if the caller has it.
    """
    links = [link_of(out) for out in outs if out.node is not None]
    if not links:
        scheduler.last_decision = None  # There is nothing to decide, and what was is not of this Jacobian.
        return [[None] * len(sources) for _ in outs]
    path = Path(links, [link_of(source) for source in sources], graph)
    chunk = chunk_size or _chunk_size(path)
    cls = outs[0].plain if is_recorded else None
    sweeper = Sweeper(BatchedTensor, cls, lambda parts, axis: concat(parts, axis=axis), chunk)
    if is_recorded:
        with tracked_again(path.records), entered(grad=True):
            found = iter(_blocks(path, scheduler, sweeper))
    else:
        found = iter(_blocks(path, scheduler, sweeper))
    return [next(found) if out.node is not None else [None] * len(sources) for out in outs]


def _blocks(path: Path, scheduler: HybridScheduler, sweeper: Sweeper) -> Blocks:
    """Compute a Jacobian as the scheduler decides, and anew where an op turns out to lack a mode."""
    refused: dict[SchedulingStrategy, str] = {}
    while True:
        mode = scheduler.decide(path, refused).mode
        try:
            if mode is SchedulingStrategy.MIXED:
                return by_cut(path, path.narrowest, sweeper)
            blocks = _BY_MODE[mode](path, sweeper)
            return blocks if are_finite(itertools.chain(*blocks)) else _filled(blocks, _OTHER[mode], path, sweeper)
        except LostAtCut as lost:
            refused[mode] = str(lost)  # Also if nothing else was asked for: the numbers count.
        except NotDifferentiableError as error:
            refused[mode] = str(error)
            if not scheduler.can_decide_anew(refused):
                raise


def _filled(blocks: Blocks, other: SchedulingStrategy, path: Path, sweeper: Sweeper) -> Blocks:
    """Return blocks with what the other mode finds where they are NaN.

    Next to an infinite derivative a sweep of unit vectors makes NaN of zeros: tangents for inputs that have nothing to
    do with it, cotangents for outputs. Few elements are both.
    """
    if not any(np.isnan(array_of(block)).any() for block in itertools.chain(*blocks) if block is not None):
        return blocks
    try:
        others = _BY_MODE[other](path, sweeper)
    except NotDifferentiableError:
        return blocks
    return [
        [a if a is None or b is None else where(np.isnan(array_of(a)), b, a) for a, b in zip(row, found, strict=True)]
        for row, found in zip(blocks, others, strict=True)
    ]


_BY_MODE = {SchedulingStrategy.FORWARD: by_forward, SchedulingStrategy.REVERSE: by_reverse}
_OTHER = {
    SchedulingStrategy.FORWARD: SchedulingStrategy.REVERSE,
    SchedulingStrategy.REVERSE: SchedulingStrategy.FORWARD,
}


def _chunk_size(path: Path) -> int:
    """Return how many (co)tangents may be carried at once so that they take about half as much memory as the result.

    What rules compute on the way takes about as much again. For a small result, 64 KB may always be taken:
    one sweep instead of several.
    """
    elements = max(_FEW_ELEMENTS, path.inputs * path.outputs // 2)
    return max(1, elements // max(1, *path.widths))


#: How many elements of (co)tangents may be carried at once, however small the result.
_FEW_ELEMENTS = 1 << 13


def _is_sparse(name: str, sparse: Any) -> bool:
    if not isinstance(sparse, bool):
        raise ArgumentError(f"{name}: sparse is {sparse!r}; it must be a bool.")
    return sparse


def scheduler_for(name: str, mode: Any, scheduler: Any) -> HybridScheduler:
    """Return the scheduler that was given, or one for a mode, checked."""
    if scheduler is None:
        return HybridScheduler(SchedulerConfig(as_member(name, "mode", SchedulingStrategy, mode)))
    if not isinstance(scheduler, HybridScheduler):
        raise OperandError(f"{name}: scheduler is a {type(scheduler).__name__}; it must be a HybridScheduler.")
    if mode != "auto":
        raise ArgumentError(f"{name}: give either mode or scheduler; a scheduler's mode is set by its SchedulerConfig.")
    return scheduler


def check_chunk_size(name: str, chunk_size: Any) -> None:
    """Raise unless a chunk size is a positive number or None."""
    if chunk_size is not None and not is_count(chunk_size):
        raise ArgumentError(f"{name}: chunk_size is {chunk_size!r}; it must be a positive integer, or None.")


def _as_value(gradient: Any, like: Value) -> Value:
    if isinstance(gradient, Value):
        return gradient
    value: Value = wrap(like.plain, np.zeros(like.shape, like.dtype) if gradient is None else gradient)
    return value


def _as_array_for(leaf: Any, number: Any) -> Any:
    """Return a number as an array if it is of an argument that was given as one; others as they are."""
    is_array = isinstance(leaf, np.ndarray | np.generic) and not isinstance(number, Value | np.ndarray)
    return np.asarray(number, leaf.dtype) if is_array else number


def _shaped(inputs: Arguments, row: Sequence[Any], out: Value, is_recorded: bool) -> list[Any]:
    """Return the blocks of one output in the shapes of output and arguments, as what the arguments were given as."""
    results = []
    for block, leaf, source in zip(row, inputs.given, inputs.tensors, strict=True):
        shape = (*out.shape, *source.shape)
        if block is None:
            block = np.zeros(shape, source.dtype)
        elif isinstance(block, Value) and not (is_recorded or isinstance(leaf, Value)):
            block = block.array
        elif isinstance(block, Value):
            results.append(as_tensor(block.reshape(shape), source, source.plain))  # type: ignore[attr-defined]
            continue
        # A block that is not a part of a larger matrix is nobody else's.
        array = block.reshape(shape)
        if block.base is not None or block.dtype != source.dtype:
            with np.errstate(all="ignore"):  # As in the sweeps.
                array = np.array(array, source.dtype)
        if is_recorded or isinstance(leaf, Value):
            results.append(wrap(source.plain, array))
        else:
            is_array = isinstance(leaf, np.ndarray | np.generic) or array.ndim
            results.append(array if is_array else array.item())
    return results
