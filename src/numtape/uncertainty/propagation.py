"""`propagate`: first-order propagation of errors through any function."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..errors import MissingExtraError, NonFiniteError
from ..interop.functions import Residuals
from ..interop.vectors import Layout
from .covariances import as_covariance, check_constant, variances

#: From so many results on, a sparse Jacobian may pay; a few rows are a few reverse sweeps.
_LEAST_ROWS = 200


@dataclass(frozen=True, eq=False)
class Propagated:
    """What became of errors: the value of a function, and how it varies."""

    #: What the function returned, as arrays and numbers.
    value: Any
    #: Its standard deviations, in the same structure.
    errors: Any
    #: The Jacobian, dense or sparse, and the covariance of the argument, or the vector of its variances.
    _jacobian: Any = field(repr=False)
    _given: NDArray = field(repr=False)
    #: What the elements of the value are called.
    names: list[str] = field(repr=False)

    @functools.cached_property
    def jacobian(self) -> NDArray:
        """The Jacobian, with a row for each element of the value and a column for each of the argument."""
        return _dense(self._jacobian)

    @functools.cached_property
    def given(self) -> NDArray:
        """The covariance of the argument."""
        return np.diag(self._given) if self._given.ndim == 1 else self._given

    @functools.cached_property
    def covariance(self) -> NDArray:
        """The covariance of the elements of the value, ``J C J^T``."""
        scaled = self._jacobian * self._given if self._given.ndim == 1 else self._jacobian @ self._given
        found = scaled @ self._jacobian.T
        return _dense(0.5 * (found + found.T))

    def __str__(self) -> str:
        width = max(map(len, self.names))
        flat = Layout("propagate", "value", self.value).vector, Layout("propagate", "errors", self.errors).vector
        rows = zip(self.names, *flat, strict=True)
        return "\n".join(f"{name:{width}}  {value:.10g} +- {error:.3g}" for name, value, error in rows)


def propagate(function: Callable[..., Any], x: Any, covariance: Any = None, *, errors: Any = None) -> Propagated:
    """Return the value of a function of uncertain quantities, and its uncertainty to first order: ``J C J^T``.

    It is exact for linear functions; otherwise the errors must be so small that the function is nearly linear within
    them.

    Args:
        function: takes a tree of tensors and returns a tensor or a tree of tensors.
        x: the quantities: tensors, arrays, numbers or a tree of them.
        covariance: of the elements of `x`, in the order of `nt.tree.leaves`; such as that of a fit.
        errors: instead of it, standard deviations of independent quantities, in the structure of `x`.

    Returns:
        A `Propagated`: `value` and `errors` in the structure of what the function returns, `covariance` of all of its
        elements, and the `jacobian`. With many inputs and results of which each depends on few, the last two are made
        when they are asked for: `errors` alone take little memory.

    Raises:
        NonFiniteError: if a derivative is infinite or NaN, as that of the root of 0: there is no first order then.

    Example:
        >>> area = lambda p: p["width"] * p["height"]
        >>> found = nt.uncertainty.propagate(area, {"width": 3.0, "height": 4.0}, errors={"width": 0.3, "height": 0.1})
        >>> found.value, round(found.errors, 6)
        (12.0, 1.236932)
    """
    name = "propagate"
    check_constant(name, "x", x)
    layout = Layout(name, "x", x)
    given = as_covariance(name, layout, covariance, errors)
    values = Residuals(name, function, layout, ())
    out_tree, outs = values.start()
    vector = np.concatenate([out.array.ravel() for out in outs])
    jacobian = _jacobian_of(values, len(vector), may_be_sparse=given.ndim == 1)
    value = _plain(values.as_returned(out_tree, outs, vector))
    names = Layout(name, "value", value).names
    _check_finite(values, names, jacobian)
    deviations = np.sqrt(variances(name, jacobian, given))
    return Propagated(value, _plain(values.as_returned(out_tree, outs, deviations)), jacobian, given, names)


def _jacobian_of(values: Residuals, count: int, may_be_sparse: bool) -> Any:
    """Return the Jacobian of `count` values: sparse if it may be, if that pays and SciPy is there."""
    vector = values.layout.vector
    try:
        if may_be_sparse and count >= _LEAST_ROWS and values.is_sparse(count):
            return values.sparse_jacobian(vector)
    except MissingExtraError:
        pass
    return values.jacobian(vector)


def _check_finite(values: Residuals, names: list[str], jacobian: Any) -> None:
    """Raise if a derivative is not finite, and name an infinite one: it makes zeros beside it NaN."""
    is_sparse = hasattr(jacobian, "tocoo")
    matrix = jacobian.tocoo() if is_sparse else jacobian
    entries = matrix.data if is_sparse else matrix.ravel()
    is_finite = np.isfinite(entries)
    if np.all(is_finite):
        return
    is_infinite = np.isinf(entries)
    first = int(np.argmax(is_infinite if np.any(is_infinite) else ~is_finite))
    row, column = (matrix.row[first], matrix.col[first]) if is_sparse else divmod(first, matrix.shape[1])
    place = values.layout.names[column]
    raise NonFiniteError(
        f"{values.name}: the derivative of {values.__name__} is {entries[first]} for {names[row]} by {place} at "
        f"{values.layout.title}; choose a point where it is finite, or make {place} a constant."
    )


def _dense(matrix: Any) -> NDArray:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def _plain(value: Any) -> Any:
    """Return a tree of arrays with numbers for those of no axes."""
    return tree.map(lambda array: array.item() if array.ndim == 0 else array, value)
