"""`fisher_information`: what data tell about parameters, from single samples or from a model with Gaussian noise."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..errors import ArgumentError, LinearAlgebraError, ShapeError
from ..interop.functions import Residuals, solving
from ..interop.vectors import Layout
from ..outputs import title
from .covariances import as_array, check_constant
from .per_sample import per_sample_gradients

#: How many samples' gradients are held at once.
_CHUNK = 1024


def fisher_information(
    function: Callable[..., Any], parameters: Any, data: Any = None, *, noise: Any = None
) -> NDArray:
    """Return the Fisher information matrix of parameters; its inverse bounds, and often is, their covariance.

    With `data`, the empirical one: the sum over samples of g g^T, where g is the gradient of a sample's log-likelihood.
    With `noise`, that of a model with Gaussian noise, J^T C^-1 J (also called the Gauss-Newton matrix).

    Args:
        function: with `data`, takes the parameters and one sample, and returns its log-likelihood, a scalar; with
            `noise`, takes the parameters and returns what the model predicts, a tensor or a tree of tensors.
        parameters: where to evaluate it: tensors, arrays, numbers or a tree of them.
        data: an array, or a tuple of arrays, of which each sample has one part along the first axis.
        noise: the standard deviation of the predictions, one for each, or their covariance matrix.

    Returns:
        A matrix with a row and a column for each element of the parameters, in the order of `nt.tree.leaves`.

    Example:
        >>> nt.uncertainty.fisher_information(lambda p: p["a"] * np.arange(3.0), {"a": 1.0}, noise=0.5)
        array([[20.]])
    """
    name = "fisher_information"
    check_constant(name, "parameters", parameters)
    check_constant(name, "data", data)
    layout = Layout(name, "parameters", parameters)
    if (data is None) == (noise is None):
        raise ArgumentError(
            f"{name}: give either data, for a log-likelihood of one sample, or noise, for a model with Gaussian noise."
        )
    return _empirical(function, layout, data) if noise is None else _gaussian(name, function, layout, noise)


def _empirical(function: Callable[..., Any], layout: Layout, data: Any) -> NDArray:
    samples = data if isinstance(data, tuple) else (data,)
    count = len(tree.leaves(samples)[0])
    total = np.zeros((layout.size, layout.size))
    point = layout.split(layout.vector)
    for first in range(0, count, _CHUNK):
        chunk = tree.map(lambda x, first=first: x[first : first + _CHUNK], samples)
        with solving():
            rows = tree.leaves(per_sample_gradients(function, point, *chunk))
        gradients = np.concatenate([np.asarray(x, np.float64).reshape(len(x), -1) for x in rows], axis=1)
        total += gradients.T @ gradients
    if count:
        _check_alone(function, layout, samples)
    return total


def _check_alone(function: Callable[..., Any], layout: Layout, samples: tuple[Any, ...]) -> None:
    """Raise if the log-likelihood of the first sample depends on a tracked tensor besides the parameters."""

    def first(parameters: Any) -> Any:
        return function(parameters, *tree.map(lambda x: x[0], samples))

    first.__name__ = title(function)
    Residuals("fisher_information", first, layout, ()).check_alone()


def _gaussian(name: str, function: Callable[..., Any], layout: Layout, noise: Any) -> NDArray:
    model = Residuals(name, function, layout, ())
    model.start()
    jacobian = model.jacobian(layout.vector)
    count = len(jacobian)
    given = as_array(name, "noise", noise)
    if given.ndim == 2 and given.shape == (count, count) and count > 1:
        try:
            scaled = np.linalg.solve(np.linalg.cholesky(given), jacobian)
        except np.linalg.LinAlgError as error:
            raise LinearAlgebraError(f"{name}: noise is a matrix, but not a positive definite one.") from error
    elif given.size in (1, count):
        if not np.all(given > 0):
            raise ArgumentError(f"{name}: noise has an element that is not positive; standard deviations are.")
        scaled = jacobian / given.reshape(-1, 1)
    else:
        raise ShapeError(
            f"{name}: noise has shape {given.shape} for {count} predictions; it must be a number, a standard deviation "
            f"for each, or their covariance of shape {(count, count)}."
        )
    return np.asarray(scaled.T @ scaled)
