"""Equations F(x, args) = 0: what a root, a fixed point, a minimum and a least-squares fit have in common."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.gradients import link_of, sweep
from ..core.value import Lifted, Value, wrap
from ..dtypes import HALF_DTYPES, is_float
from ..errors import ArgumentError, DtypeError, NotDifferentiableError, OperandError, ShapeError
from ..ops import stack
from ..ops.casting import alias
from ..outputs import title
from ..tensors import Tensor
from .capturing import alone

Leaves = list[Any]


class Space:
    """The space of the unknowns: trees of float arrays, seen as vectors of float64.

    Args:
        name: of the function whose unknowns they are, for messages.
        argument: what they are called there.
        start: a tree of tensors, arrays and numbers. A list of numbers, nested or not, is an array, as it is to SciPy.
    """

    def __init__(self, name: str, argument: str, start: Any) -> None:
        start = _with_array(name, argument, start)
        leaves = tree.leaves(start)
        if not leaves:
            raise OperandError(f"{name}: {argument} is {start!r}; it must be a tensor, an array, a number or a tree.")
        self.form = start
        self.start = [_as_array(name, argument, leaf) for leaf in leaves]
        self.has_tensors = any(isinstance(leaf, Value) for leaf in leaves)
        self.is_number = [not isinstance(leaf, Value | np.ndarray | np.generic) for leaf in leaves]
        self.shapes = [array.shape for array in self.start]
        self.dtypes = [array.dtype for array in self.start]
        self.size = sum(map(math.prod, self.shapes))
        self._ends = list(itertools.accumulate(map(math.prod, self.shapes)))
        #: The relative rounding error of the coarsest of the unknowns.
        self.eps = max(float(np.finfo(dtype).eps) for dtype in self.dtypes)

    def join(self, parts: Sequence[Any]) -> NDArray:
        """Return arrays as one vector."""
        return np.concatenate([np.asarray(part, np.float64).reshape(-1) for part in parts])

    def split(self, vector: NDArray) -> list[NDArray]:
        """Return the arrays of a vector, or of each column of a matrix, which then is their first axis."""
        columns = vector.shape[1:]
        return [
            np.asarray(vector[end - math.prod(shape) : end].T.reshape((*columns, *shape)), dtype)
            for end, shape, dtype in zip(self._ends, self.shapes, self.dtypes, strict=True)
        ]

    def as_tree(self, leaves: Sequence[Any]) -> Any:
        """Return leaves in the form of the start."""
        return tree.unflatten(self.form, leaves)

    def as_given(self, leaves: Sequence[Any]) -> Any:
        """Return arrays in the form of the start, as numbers where that has numbers."""
        numbers = zip(leaves, self.is_number, strict=True)
        return self.as_tree([x.item() if is_number and not isinstance(x, Value) else x for x, is_number in numbers])


def _with_array(name: str, argument: str, start: Any) -> Any:
    """Return a list of numbers as an array, or as a tensor if there are tensors among them; all else as it is."""
    if type(start) is not list or not tree.leaves(start) or not _is_numbers(start):
        return start
    try:
        return _stacked(start)
    except (ShapeError, ValueError) as error:
        raise ShapeError(
            f"{name}: {argument} is a list that makes no array; nested lists must have equal lengths at each depth."
        ) from error


def _is_numbers(given: Any) -> bool:
    """Say whether something is a number, in whatever class, or a list of them."""
    if type(given) is list:
        return all(map(_is_numbers, given))
    if isinstance(given, Value | np.ndarray | np.generic):
        return given.shape == () and (is_float(given.dtype) or given.dtype.kind in "iu")
    return isinstance(given, float | int) and not isinstance(given, bool)


def _stacked(numbers: list[Any]) -> Any:
    if any(isinstance(leaf, Value) for leaf in tree.leaves(numbers)):
        return stack([_stacked(part) if type(part) is list else part for part in numbers])
    array = np.asarray(numbers)
    return array if is_float(array.dtype) else array.astype(np.float64)


def _as_array(name: str, argument: str, leaf: Any) -> NDArray:
    if isinstance(leaf, Lifted):
        raise NotDifferentiableError(f"{name}: {argument} is a power series or a batch; use nt.jvp or nt.grad.")
    if isinstance(leaf, bool | str) or not isinstance(leaf, Value | np.ndarray | np.generic | float | int):
        raise OperandError(
            f"{name}: {argument} holds {type(leaf).__name__}; it must be a tensor, an array, a number or a tree."
        )
    array = leaf.array if isinstance(leaf, Value) else np.asarray(leaf, None if hasattr(leaf, "dtype") else np.float64)
    if array.dtype in HALF_DTYPES:
        raise DtypeError(
            f"{name}: {argument} has dtype {array.dtype}, in which equations cannot be solved accurately; use "
            "astype('float32')."
        )
    if not is_float(array.dtype):
        raise DtypeError(f"{name}: {argument} has dtype {array.dtype}; use astype(float).")
    return array


class Equation:
    """An equation F(x, args) = 0 with as many equations as unknowns.

    Args:
        name: of the public function that it comes from, for messages.
        function: the user's function.
        space: of the unknowns.
        form: makes F of the function: from this equation, the leaves of x, args and whether the result is to be
            differentiated, to the leaves of F.
        is_minimum: whether F is the gradient of what is least at the answer.
        is_linear: whether F is linear in x, apart from a constant.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        space: Space,
        form: "Form",
        is_minimum: bool = False,
        is_linear: bool = False,
    ) -> None:
        self.name = name
        self.function = function
        self.space = space
        self.form = form
        self.is_minimum = is_minimum
        self.is_linear = is_linear
        #: Whether products failed where a matrix did not.
        self.wants_matrix = False
        #: How messages call the function, and its derivative by x.
        self.title = f"{name}: {title(function)}"
        self.matrix = "the derivative of the equation by x at the answer"
        #: Whether the user gave that matrix, or a function that multiplies by it.
        self.is_given = False

    def residual(self, x: Leaves, args: tuple[Any, ...], is_recorded: bool = True) -> Leaves:
        """Return the leaves of F; each by a record of its own, so that whatever is returned has a history."""
        parts = self.form(self, x, args, is_recorded)
        return [alias(part) if part.node is not None else part for part in parts]

    def at(self, vector: NDArray, args: tuple[Any, ...]) -> NDArray:
        """Return F as a vector, and record nothing that outlives the call."""
        with alone(grad=False):
            x = [wrap(Tensor, part) for part in self.space.split(vector)]
            return self.space.join([part.array for part in self.residual(x, args, is_recorded=False)])

    def call(self, x: Leaves, args: tuple[Any, ...]) -> Any:
        """Call the function."""
        return self.function(self.space.as_tree(x), *args)

    def as_outputs(self, out: Any) -> Leaves:
        """Return the leaves of what the function returned as tensors."""
        return as_outputs(self.title, tree.leaves(out), out)

    def like_unknowns(self, out: Any) -> Leaves:
        """Return the leaves of what the function returned, checked: they have the shapes of the unknowns."""
        parts = leaves_in_form(self.title, "x", self.space, out)
        shapes = [part.shape for part in parts]
        if shapes != self.space.shapes:
            raise ShapeError(
                f"{self.title} returned {_shown(shapes)} for x of {_shown(self.space.shapes)}; there must be one "
                "equation for each unknown."
            )
        return parts


def leaves_in_form(what: str, unknowns: str, space: Space, out: Any) -> Leaves:
    """Return the leaves of what a function returned as tensors, in the order of the unknowns; dicts go by their keys.

    A list of numbers for a vector, as SciPy takes it, is stacked.

    Args:
        what: what returned it, for messages.
        unknowns: what they are called there.
        space: of the unknowns.
        out: what was returned.
    """
    leaves = tree.leaves(out)
    is_list = type(out) in (list, tuple) and tree.is_leaf(space.form)
    if leaves and not is_list:
        try:
            leaves = tree.leaves_like(space.form, out)
        except ArgumentError as error:
            raise OperandError(f"{what} returned another form than that of {unknowns}; {error}") from error
    found = as_outputs(what, leaves, out)
    if is_list and space.shapes == [(len(found),)] and all(leaf.shape == () for leaf in found):
        return [stack(found)]
    return found


def as_outputs(what: str, leaves: Leaves, out: Any) -> Leaves:
    """Return the leaves of what a function returned as tensors, checked; there must be some."""
    if not leaves:
        raise OperandError(f"{what} returned {out!r}; it must return a tensor or a tree of them.")
    return [as_output(what, leaf) for leaf in leaves]


Form = Callable[[Equation, Leaves, tuple[Any, ...], bool], Leaves]


def _shown(shapes: Sequence[Any]) -> str:
    return f"shape {shapes[0]}" if len(shapes) == 1 else f"shapes {', '.join(map(str, shapes)) or 'none'}"


def as_output(what: str, leaf: Any) -> Any:
    """Return what a function returned as a tensor, checked."""
    if isinstance(leaf, Lifted):
        raise NotDifferentiableError(
            f"{what} uses a power series or a batch from outside, which is no argument; pass it as one, or use nt.jvp "
            "or nt.grad."
        )
    if isinstance(leaf, Value):
        if not is_float(leaf.dtype):
            raise DtypeError(f"{what} returned a tensor of {leaf.dtype}; it must return floats.")
        return leaf
    if isinstance(leaf, float | int | np.ndarray | np.generic) and not isinstance(leaf, bool):
        return wrap(Tensor, np.asarray(leaf, np.float64))
    raise OperandError(f"{what} returned {type(leaf).__name__}; it must return a tensor or a tree of them.")


def zero(equation: Equation, x: Leaves, args: tuple[Any, ...], is_recorded: bool) -> Leaves:
    """F is what the function returns."""
    return equation.like_unknowns(equation.call(x, args))


def standstill(equation: Equation, x: Leaves, args: tuple[Any, ...], is_recorded: bool) -> Leaves:
    """F is how far the function moves x."""
    return [a - b for a, b in zip(x, equation.like_unknowns(equation.call(x, args)), strict=True)]


def gradient(equation: Equation, x: Leaves, args: tuple[Any, ...], is_recorded: bool) -> Leaves:
    """F is the gradient of what the function returns."""

    def value(x: Leaves) -> Any:
        outs = equation.as_outputs(equation.call(x, args))
        if len(outs) != 1 or math.prod(outs[0].shape) != 1:
            raise ShapeError(
                f"{equation.title} returned {_shown([out.shape for out in outs])}; only a scalar is least. Use sum()."
            )
        return outs[0]

    return _gradient_of(value, x, is_recorded)


def normal(equation: Equation, x: Leaves, args: tuple[Any, ...], is_recorded: bool) -> Leaves:
    """F is the gradient of half the sum of the squares of what the function returns."""

    def value(x: Leaves) -> Any:
        halves = [0.5 * (out * out).sum() for out in equation.as_outputs(equation.call(x, args))]
        return sum(halves[1:], halves[0])

    return _gradient_of(value, x, is_recorded)


def _gradient_of(value: Callable[[Leaves], Any], x: Leaves, is_recorded: bool) -> Leaves:
    """Return the gradient of a scalar function; recorded, it may be differentiated itself."""
    if is_recorded:
        sources = [alias(part) for part in x]
        out = value(sources)
    else:
        sources = [tracked_copy(part.array) for part in x]
        with alone(grad=True):
            out = value(sources)
    found: dict[Any, Any] = {}
    if out.node is not None:
        found = sweep([out], [np.ones(out.shape, out.dtype)], sources, create_graph=is_recorded)
    return [_as_tensor(found.get(link_of(source)), source) for source in sources]


def _as_tensor(found: Any, like: Any) -> Any:
    if found is None:
        found = np.zeros(like.shape, like.dtype)
    return found if isinstance(found, Value) else wrap(Tensor, found)


def tracked_copy(array: NDArray) -> Any:
    """Return a leaf around an array."""
    leaf = wrap(Tensor, array)
    leaf.requires_grad = True
    return leaf
