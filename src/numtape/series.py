"""Derivatives of high order of functions of one number, by running them on power series."""

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from . import tree
from .api import jvp
from .arguments import check_callable
from .core.apply import watch_on_use
from .core.context import BY_CALLS, current, entered
from .core.effects import effects
from .core.gradients import link_of
from .core.graph import begins_tracked, graph_of
from .core.record import describe_site
from .core.value import Value, wrap
from .counts import is_count
from .dtypes import check_unmasked, float64, is_float
from .errors import (
    ArgumentError,
    DtypeError,
    LeavesTapeError,
    NotConnectedError,
    NumtapeError,
    OperandError,
    ShapeError,
)
from .lifted import LiftedTensor
from .outputs import as_outputs, title
from .protocols import VALUE_FREE
from .taylor import Series, variable
from .tensors import Tensor

_NAME = "derivatives"


class SeriesTensor(Series, LiftedTensor):
    """A tensor as a power series in the number that a function is differentiated by."""

    __slots__ = ()
    meaning = "a power series"
    constant_class = Tensor

    def leave(self, how: str) -> NoReturn:
        """Raise, and let the function run again without series, also if it goes on."""
        self.refuse()
        super().leave(how)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in VALUE_FREE:
            leaves = [x.constant(x.known[0]) if isinstance(x, Series) else x for x in tree.leaves((args, kwargs))]
            args, kwargs = tree.unflatten((args, kwargs), leaves)
            return function(*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)


SeriesTensor.plain = SeriesTensor


def derivatives(function: Callable[[Any], Any], x: Any, order: int) -> list[Any]:
    """Return the value of a function of one number and its derivatives of order 1, 2, ..., `order`.

    The function runs once, on power series, at a cost that grows with the square or cube of the order, while that of
    nested `grad` or `jvp` grows exponentially. Comparisons look at the value, so that branches and `where` work. A
    function that does what a series cannot (take constants by `item()` or `numpy()`, write in place, run a transform or
    an op whose rule wants arrays) is run again, by nested forward mode.

    Args:
        function: takes a tensor without axes and returns a tensor of any shape, or a tree of tensors.
        x: where to evaluate it: a float, or a tensor or an array without axes.
        order: the highest order, an integer from 0 on.

    Returns:
        A list of ``order + 1`` results as `function` returns them: tensors if `x` is one or something outside may
        differentiate through this; otherwise arrays, and numbers for results without axes.

    Raises:
        NotConnectedError: if `x` becomes a plain number by ``float(x)``, as in ``math.sin(x)``.

    Example:
        >>> nt.derivatives(lambda x: x ** 3, 2.0, 4)
        [8.0, 12.0, 12.0, 6.0, 0.0]
        >>> nt.derivatives(lambda t: nt.stack([nt.exp(2.0 * t), t * t]), 0.0, 2)
        [array([1., 0.]), array([2., 0.]), array([4., 2.])]
    """
    check_callable(_NAME, function)
    if not is_count(order, 0):
        raise ArgumentError(f"{_NAME}: order is {order!r}; it must be an integer from 0 on, the highest order wanted.")
    value = _as_number(x)
    with effects() as seen:
        found = _by_series(function, value, order)
        if found is None:
            seen.undo()
    if found is None:
        found = _by_nesting(function, order)(value)
    is_recorded = current().grad
    cls = x.plain if isinstance(x, Value) else None
    return [tree.map(lambda result: _as_result(result, cls, is_recorded), each) for each in found]


def _as_number(x: Any) -> Any:
    """Return the number to differentiate by, checked: an array, or a tensor if something tracks it."""
    if not isinstance(x, Value | float | int | np.ndarray | np.generic) or isinstance(x, bool):
        raise OperandError(f"{_NAME}: x is of type {type(x).__name__}; it must be a number or a tensor without axes.")
    if not isinstance(x, Value):
        if isinstance(x, np.ndarray) and type(x) is not np.ndarray:
            check_unmasked(f"{_NAME}: x", x)
        x = np.asarray(x, float64) if isinstance(x, float | int) else np.asarray(x)
    if x.shape:
        raise ShapeError(
            f"{_NAME}: x has shape {x.shape}; the derivatives are those of a function of one number. Use nt.jacobian "
            "and nt.hessian for functions of several, or nt.elementwise_grad."
        )
    if not is_float(x.dtype):
        raise DtypeError(f"{_NAME}: x has dtype {x.dtype}, which has no derivative; use astype(float).")
    if not isinstance(x, Value) or isinstance(x, LiftedTensor):
        return x
    state = current()
    if x.node is None and state.watch_all:
        watch_on_use(state, x)
    return x if x.node is not None and state.grad else x.array


def _by_series(function: Callable[[Any], Any], x: Any, order: int) -> list[Any] | None:
    """Return the derivatives in trees as the function returns them, by running it on a power series.

    None if the function does what a series cannot, whatever it makes of the error.
    """
    thread = current().thread
    before, thread.exits = thread.exits, {}
    depth = current().transforms + 1
    unit = _unit(order, x.dtype)
    try:
        with variable(depth) as running:
            source = SeriesTensor.of([x, np.array(unit, x.dtype)][: order + 1], order, running.level)
            with entered(grad=True, transforms=depth):
                out_tree = function(source)
            outs = as_outputs(_NAME, function, out_tree, {})
            found = [[_derivative(out, n, unit, running.level) for out in outs] for n in range(order + 1)]
    except Exception as error:
        if isinstance(error, LeavesTapeError) or isinstance(error.__cause__, LeavesTapeError):
            _check_exit(function, thread.last_exit)
        # One of numtape's may be of the function's own, and comes again then. A series has no array.
        has_no_array = isinstance(error, AttributeError) and isinstance(error.obj, Series)
        if not running.is_refused and not has_no_array and not isinstance(error, NumtapeError):
            raise
        return None
    finally:
        thread.exits = before
    return None if running.is_refused else [tree.unflatten(out_tree, each) for each in found]


def _check_exit(function: Callable[[Any], Any], last_exit: Any) -> None:
    """Raise if a series was to become a plain number by float(), which also ``math.sin(x)`` calls."""
    if last_exit is not None and last_exit[2] == BY_CALLS:
        raise NotConnectedError(
            f"{_NAME}: {title(function)} makes a plain number of what depends on x by float() at "
            f"{describe_site(*last_exit[:2])}, so its part in the derivatives would be lost. Use nt functions instead "
            "of math; if a constant is meant, take item()."
        ) from None


def _unit(order: int, dtype: Any) -> int:
    """Return the step, in units of which x moves: 1, unless the coefficients of exp would be too small for the dtype.

    That of order n is ``unit**n / n!``. A power of two leaves the digits of all coefficients as they would be for 1.
    """
    logarithm = math.lgamma(order + 1) / math.log(2.0)
    smallest = {2: 14, 4: 126, 8: 1022}[dtype.itemsize]  # The exponent of the least number of full precision.
    return 1 if logarithm < smallest else 2 ** round(logarithm / order)


def _derivative(out: Any, n: int, unit: int, level: int) -> Any:
    """Return the n-th derivative of an output: its n-th coefficient, times n! over the n-th power of the unit."""
    is_series = isinstance(out, Series) and out.level == level
    coefficient = out.at(n) if is_series else out if n == 0 else None
    if coefficient is None:
        return np.zeros(out.shape, out.dtype)
    if n > 0:
        coefficient = coefficient * (math.factorial(n) / unit**n)
    return coefficient if coefficient.dtype == out.dtype else coefficient.astype(out.dtype)


def _by_nesting(function: Callable[[Any], Any], order: int) -> Callable[[Any], list[Any]]:
    """Return a function that returns all derivatives, by forward mode in itself."""
    if order == 0:

        def value(x: Any) -> list[Any]:
            thread = current().thread
            before, thread.exits = thread.exits, {}
            try:
                out_tree = function(x if isinstance(x, Value) else wrap(Tensor, x))
                outs = as_outputs(_NAME, function, out_tree, thread.exits)
            finally:
                # The transforms around it have derivatives as outputs, whose zeros are no sign of a lost tape.
                thread.exits = before
            return [tree.unflatten(out_tree, outs)]

        return value
    lower = _by_nesting(function, order - 1)

    @functools.wraps(function, assigned=("__name__",), updated=())
    def all_of_them(x: Any) -> list[Any]:
        values, slopes = jvp(lower, x, np.ones((), x.dtype))
        return [*values, slopes[-1]]

    return all_of_them


def _as_result(result: Any, cls: type[Value] | None, is_recorded: bool) -> Any:
    """Return a result as the caller wants it: a tracked tensor, a plain one, an array or a number."""
    if isinstance(result, Value):
        if isinstance(result, LiftedTensor) or (is_recorded and begins_tracked(graph_of([link_of(result)]))):
            return result
        result = result.array
    array = np.asarray(result)
    if cls is not None:
        return wrap(cls, array.copy())
    return array if array.ndim else array.item()
