"""`propagate`: first-order propagation of errors through any function."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..interop.functions import Residuals
from ..interop.vectors import Layout
from .covariances import as_covariance, check_constant, variances


@dataclass(frozen=True, eq=False)
class Propagated:
    """What became of errors: the value of a function, and how it varies."""

    #: What the function returned, as arrays and numbers.
    value: Any
    #: Its standard deviations, in the same structure.
    errors: Any
    #: The Jacobian, with a row for each element of the value and a column for each of the argument.
    jacobian: NDArray = field(repr=False)
    #: The covariance of the argument.
    given: NDArray = field(repr=False)
    #: What the elements of the value are called.
    names: list[str] = field(repr=False)

    @functools.cached_property
    def covariance(self) -> NDArray:
        """The covariance of the elements of the value, ``J C J^T``."""
        found = self.jacobian @ self.given @ self.jacobian.T
        return np.asarray(0.5 * (found + found.T))

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
        elements, and the `jacobian`.

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
    jacobian = values.jacobian(layout.vector)
    vector = np.concatenate([out.array.ravel() for out in outs])
    deviations = np.sqrt(variances(name, jacobian, given))
    value = _plain(values.as_returned(out_tree, outs, vector))
    names = Layout(name, "value", value).names
    return Propagated(value, _plain(values.as_returned(out_tree, outs, deviations)), jacobian, given, names)


def _plain(value: Any) -> Any:
    """Return a tree of arrays with numbers for those of no axes."""
    return tree.map(lambda array: array.item() if array.ndim == 0 else array, value)
