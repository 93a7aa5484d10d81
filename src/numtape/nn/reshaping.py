"""Layers that change only the shape of what passes, or nothing."""

from typing import Any

from .._typing import Array
from ..ops import flatten, reshape
from .module import Module


class Flatten(Module):
    """Make one axis of those from `start_dim` to `end_dim`.

    Example:
        >>> nt.nn.Flatten()(nt.ones(2, 3, 4)).shape
        (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Array) -> Array:
        """Return the input with these axes made one."""
        return flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Make several axes of one.

    Example:
        >>> nt.nn.Unflatten(1, (3, 4))(nt.ones(2, 12)).shape
        (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, x: Array) -> Array:
        """Return the input with this axis made several."""
        axis = self.dim % len(x.shape)
        return reshape(x, (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        """Return the axis and its new lengths."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """Return the input; arguments of any kind are accepted and not used.

    Example:
        >>> nt.nn.Identity(54, unused=True)(nt.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the input."""
        return x
