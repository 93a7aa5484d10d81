"""Covariances as they are given: a matrix, or standard deviations of independent quantities."""

from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.apply import is_tracked
from ..core.context import current
from ..core.value import Value
from ..errors import ArgumentError, OperandError, ShapeError
from ..interop.vectors import Layout, is_numbers


def as_array(name: str, title: str, given: Any) -> NDArray:
    """Return numbers that are not differentiated as a float64 array."""
    if isinstance(given, Value):
        if is_tracked(given):
            raise OperandError(
                f"{name}: {title} is a tracked tensor, but it is taken as a constant; pass its detach()."
            )
        given = given.array
    if hasattr(given, "toarray"):  # A sparse matrix.
        given = given.toarray()
    return np.asarray(given, np.float64)


def check_constant(name: str, title: str, given: Any) -> None:
    """Raise if a tree has a tracked tensor while gradients are recorded: the answer has no graph.

    A module stands for the values of its parameters, which are always tracked.
    """
    if not current().grad or hasattr(given, "named_parameters"):
        return
    for leaf in tree.leaves(given):
        if isinstance(leaf, Value) and is_tracked(leaf):
            raise OperandError(
                f"{name}: {title} has a tracked tensor, but it is taken as a constant; pass its detach(), or call "
                f"{name} in nt.no_grad()."
            )


def as_covariance(name: str, layout: Layout, covariance: Any, errors: Any) -> NDArray:
    """Return the covariance matrix of the elements of a tree; of independent ones, the vector of their variances.

    Args:
        name: of the function, for messages.
        layout: of the tree.
        covariance: the matrix, or None.
        errors: a tree of standard deviations, or None.
    """
    if (covariance is None) == (errors is None):
        raise ArgumentError(f"{name}: give either covariance, a matrix, or errors, a tree of standard deviations.")
    if covariance is None:
        return _deviations(name, layout, errors) ** 2
    matrix = as_array(name, "covariance", covariance)
    size = layout.size
    if matrix.shape != (size, size):
        raise ShapeError(
            f"{name}: covariance has shape {matrix.shape}, and {layout.title} has {size} elements; it must be of shape "
            f"{(size, size)}. Standard deviations go to errors=."
        )
    if not np.all(np.isfinite(matrix)):
        raise ArgumentError(f"{name}: covariance has an element that is not finite.")
    scale = np.sqrt(np.outer(np.abs(np.diagonal(matrix)), np.abs(np.diagonal(matrix))))
    if np.any(np.diagonal(matrix) < 0) or np.any(np.abs(matrix - matrix.T) > 1e-8 * scale):
        raise ArgumentError(f"{name}: covariance must be symmetric, with variances that are not negative.")
    least = _least_eigenvalue(matrix)
    if least < -1e-8 * size:
        raise ArgumentError(
            f"{name}: covariance must be positive semidefinite, but as correlations it has the eigenvalue {least:.1e}: "
            "some combination of the elements would have a negative variance."
        )
    return matrix


def _least_eigenvalue(covariance: NDArray) -> float:
    """Return the least eigenvalue of the correlations; what does not vary must not covary either."""
    deviations = np.sqrt(np.diagonal(covariance))
    scale = np.where(deviations > 0.0, deviations, deviations.max() or 1.0)
    return float(np.linalg.eigvalsh(covariance / np.outer(scale, scale))[0])


def _deviations(name: str, layout: Layout, errors: Any) -> NDArray:
    if tree.is_leaf(layout.tree) and is_numbers(errors):
        errors = _as_one(name, layout, errors)
    try:
        leaves = tree.leaves_like(layout.tree, errors)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: errors have another structure than {layout.title}; {error}") from error
    parts = []
    for leaf, shape in zip(leaves, layout.shapes, strict=True):
        array = as_array(name, "errors", leaf)
        if array.shape not in ((), shape):
            raise ShapeError(
                f"{name}: errors have shape {array.shape} for a part of {layout.title} of shape {shape}; they must be "
                "equal, or a number."
            )
        parts.append(np.broadcast_to(array, shape).ravel())
    vector = np.concatenate(parts)
    if not np.all(vector >= 0):
        raise ArgumentError(f"{name}: errors has an element that is not a standard deviation, zero or more.")
    return vector


def _as_one(name: str, layout: Layout, errors: Any) -> NDArray:
    """Return a list or tuple of errors as one array, as a list of quantities is taken."""
    try:
        return np.asarray(errors, np.float64)
    except ValueError as error:
        raise ShapeError(
            f"{name}: errors are a list that makes no array, for {layout.title} of shape {layout.shapes[0]}; nested "
            "lists must have equal lengths at each depth."
        ) from error


def variances(name: str, jacobian: Any, covariance: NDArray) -> NDArray:
    """Return the diagonal of ``J C J^T`` without the rest of it.

    Args:
        name: of the function, for messages.
        jacobian: a matrix, dense or sparse; sparse only with a vector of variances.
        covariance: a matrix, or a vector of variances.
    """
    if covariance.ndim == 1:
        return np.asarray(jacobian**2 @ covariance)
    terms = (jacobian @ covariance) * jacobian
    found = terms.sum(axis=1)
    # A sum of terms of both signs may be below zero by rounding; by more, the matrix was no covariance.
    if np.any(found < -1e-10 * np.abs(terms).sum(axis=1)):
        raise ArgumentError(f"{name}: covariance gives a negative variance; it must be positive semidefinite.")
    return np.asarray(np.maximum(found, 0.0))
