"""Embedding: a table of vectors that integers name."""

from typing import Any, Self

from .._typing import Array, DtypeLike
from ..core.binding import plain_number
from ..devices import check_device
from ..errors import ArgumentError, ShapeError
from . import init
from .checks import check_absent, check_count
from .functional import embedding
from .module import Module
from .parameter import Parameter, blank


class Embedding(Module):
    """Return the row of a table for each integer of the input.

    Args:
        num_embeddings: the number of rows.
        embedding_dim: the length of a row.
        padding_idx: a row that starts as zeros and gets no gradient.
        max_norm: None, for PyTorch's sake; so are `norm_type`, `scale_grad_by_freq` and `sparse`.
        norm_type: 2.0.
        scale_grad_by_freq: False.
        sparse: False.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the table; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> nt.nn.Embedding(10, 3)(nt.tensor([[1, 2], [4, 9]])).shape
        (2, 2, 3)
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_absent("Embedding", "max_norm", max_norm, None)
        check_absent("Embedding", "norm_type", norm_type, 2.0)
        check_absent("Embedding", "scale_grad_by_freq", scale_grad_by_freq, False)
        check_absent("Embedding", "sparse", sparse, False)
        check_device("Embedding", device)
        self.num_embeddings = num_embeddings = check_count("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = embedding_dim = check_count("Embedding", "embedding_dim", embedding_dim)
        row = plain_number(padding_idx, int)
        if padding_idx is not None and (row is None or not -num_embeddings <= row < num_embeddings):
            raise ArgumentError(f"Embedding: padding_idx is {padding_idx}; there are {num_embeddings} rows.")
        self.padding_idx = None if row is None else row % num_embeddings
        self.weight = blank((num_embeddings, embedding_dim), dtype)
        self.reset_parameters(rng)
        init.forget_writes(self.weight)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None) -> Self:
        """Return a layer around a table of vectors; `freeze` keeps it from being trained."""
        shape = tuple(embeddings.shape)
        if len(shape) != 2:
            raise ShapeError(f"Embedding.from_pretrained: the table has shape {shape}; it must be a matrix.")
        made = cls(*shape, padding_idx=padding_idx, rng=0)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def reset_parameters(self, rng: Any = None) -> None:
        """Draw the table from a standard normal distribution."""
        init.normal_(self.weight, rng=rng)
        if self.padding_idx is not None:
            self.weight.array[self.padding_idx] = 0.0

    def forward(self, index: Array) -> Array:
        """Return the rows that integers of any shape name."""
        return embedding(index, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
