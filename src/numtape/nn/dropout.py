"""Dropout: random zeros while a model is trained."""

from typing import Any

from .._typing import Array
from ..core.stream import Stream
from ..streams import Generator
from . import functional
from .checks import check_probability
from .module import Module


class Dropout(Module):
    """In training, set elements to 0 with probability `p` and divide the others by ``1 - p``.

    Args:
        p: the probability.
        inplace: accepted for PyTorch's sake; ops here never change their operands.
        rng: a Generator, a seed, or None for the thread's stream. What is given is a part of `state_dict`, so that a
            run which is resumed drops the same elements.

    Example:
        >>> nt.nn.Dropout(0.5).eval()(nt.ones(3))
        tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, rng: Any = None) -> None:
        self.p = check_probability("Dropout", p)
        # A seed starts one stream, which goes on from call to call.
        self.rng = rng if rng is None or isinstance(rng, Stream) else Generator(rng)

    def forward(self, x: Array) -> Array:
        """Return the input with elements dropped."""
        return functional.dropout(x, self.p, True, rng=self.rng) if self.training and self.p else x

    def extra_repr(self) -> str:
        """Return the probability."""
        return f"p={self.p}"


class Dropout1d(Dropout):
    """In training, drop whole channels of an input of shape (batch, channels, length); the arguments are `Dropout`'s.

    Example:
        >>> nt.nn.Dropout1d(0.5, rng=0)(nt.ones(1, 4, 2)).tolist()
        [[[0.0, 0.0], [2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]]
    """

    def forward(self, x: Array) -> Array:
        """Return the input with channels dropped."""
        return functional.dropout1d(x, self.p, self.training, rng=self.rng)


class Dropout2d(Dropout):
    """In training, drop whole channels of an input of shape (batch, channels, height, width).

    The arguments are those of `Dropout`.

    Example:
        >>> nt.nn.Dropout2d(0.5, rng=0)(nt.ones(1, 4, 1, 1)).reshape(-1).tolist()
        [0.0, 2.0, 2.0, 0.0]
    """

    def forward(self, x: Array) -> Array:
        """Return the input with channels dropped."""
        return functional.dropout2d(x, self.p, self.training, rng=self.rng)
