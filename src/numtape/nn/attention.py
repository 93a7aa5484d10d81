"""Multi-head attention: each head compares queries with keys, and averages values by how well they match."""

from typing import Any

import numpy as np

from .._typing import Array, DtypeLike
from ..core.stream import stream_of
from ..core.value import array_of
from ..devices import check_device
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops import (
    chunk,
    dropout,
    matmul,
    mean,
    permute,
    reshape,
    scaled_dot_product_attention,
    split,
    swapaxes,
)
from ..ops.attention import _attention_weights as attention_weights
from . import init
from .checks import check_absent, check_count, check_dtype, check_probability
from .functional import linear
from .linear import Linear
from .module import Module
from .parameter import Parameter, blank


class MultiheadAttention(Module):
    """Attend with several heads at once, each to a part of the features.

    Args:
        embed_dim: the number of features of queries and of the output; the heads share them.
        num_heads: the number of heads.
        dropout: the probability with which an attention weight is dropped, in training.
        bias: whether the projections have biases.
        add_bias_kv: False, for PyTorch's sake; so is `add_zero_attn`.
        add_zero_attn: False.
        kdim: the number of features of keys; None for embed_dim.
        vdim: the number of features of values; None for embed_dim.
        batch_first: whether inputs and outputs have shape (batch, steps, features), not (steps, batch, features).
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> x = nt.ones(2, 5, 8)
        >>> output, weights = nt.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
        >>> output.shape, weights.shape
        ((2, 5, 8), (2, 5, 5))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_device("MultiheadAttention", device)
        check_absent("MultiheadAttention", "add_bias_kv", add_bias_kv, False)
        check_absent("MultiheadAttention", "add_zero_attn", add_zero_attn, False)
        self.embed_dim = embed_dim = check_count("MultiheadAttention", "embed_dim", embed_dim)
        self.num_heads = num_heads = check_count("MultiheadAttention", "num_heads", num_heads)
        if embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: num_heads ({num_heads}) does not divide embed_dim ({embed_dim}).")
        self.dropout = dropout = check_probability("MultiheadAttention", dropout)
        self.kdim = embed_dim if kdim is None else check_count("MultiheadAttention", "kdim", kdim)
        self.vdim = embed_dim if vdim is None else check_count("MultiheadAttention", "vdim", vdim)
        self.batch_first = batch_first
        is_packed = self.kdim == self.vdim == embed_dim
        stream = stream_of(rng)
        self.register_parameter("in_proj_weight", blank((3 * embed_dim, embed_dim), dtype) if is_packed else None)
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            weight = None if is_packed else blank((embed_dim, width), dtype)
            self.register_parameter(f"{name}_proj_weight", weight)
        self.register_parameter("in_proj_bias", blank((3 * embed_dim,), dtype) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, rng=stream)
        self.reset_parameters(stream)
        init.forget_writes(*self.parameters())

    def _projections(self) -> list[Any]:
        """Return the weights that queries, keys and values are projected with: one for all, or one for each."""
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return [self.__dict__[name] for name in names if self.__dict__[name] is not None]

    def reset_parameters(self, rng: Any = None) -> None:
        """Draw the projections of the inputs (xavier_uniform) and set all biases to 0."""
        stream = stream_of(rng)
        for weight in self._projections():
            init.xavier_uniform_(weight, rng=stream)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Array, Array | None]:
        """Return the output for each query and, if wanted, the attention weights.

        Args:
            query: of shape (queries, batch, features); see `batch_first`. Without a batch, that axis is left out.
            key: of shape (keys, batch, features).
            value: of shape (keys, batch, features).
            key_padding_mask: of shape (batch, keys): bools, where True leaves a key out, or floats to add to scores.
            need_weights: whether to return the weights; without, the second result is None.
            attn_mask: of shape (queries, keys) or (batch * heads, queries, keys): bools, where True forbids, or
                floats to add to scores.
            average_attn_weights: whether weights are the mean over the heads.
            is_causal: let query i see keys up to i only.
        """
        is_single = len(query.shape) == 2
        self._check(query, key, value)
        q, k, v = (self._batched(x, is_single) for x in self._projected(query, key, value))
        mask = self._mask(attn_mask, key_padding_mask, q.shape[0], q.shape[1], k.shape[1])
        q, k, v = (self._heads(x) for x in (q, k, v))
        p = self.dropout if self.training else 0.0
        weights: Array = None
        if need_weights or p:
            weights = attention_weights(q, k, mask, is_causal)
            out = matmul(dropout(weights, p) if p else weights, v)
        else:
            out = scaled_dot_product_attention(q, k, v, mask, is_causal)
        out = permute(out, (0, 2, 1, 3))
        out = self.out_proj(reshape(out, (*out.shape[:2], self.embed_dim)))
        if not need_weights:
            weights = None
        elif average_attn_weights:
            weights = mean(weights, axis=1)
        if is_single:
            return out[0], weights if weights is None else weights[0]
        return out if self.batch_first else swapaxes(out, 0, 1), weights

    def _check(self, query: Array, key: Array, value: Array) -> None:
        sides = (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim))
        for name, x, width in sides:
            check_dtype(self, x, self.out_proj.weight)
            if len(x.shape) not in (2, 3) or len(x.shape) != len(query.shape) or x.shape[-1] != width:
                weight = self._projections()[0].shape
                layout = "(batch, steps, features)" if self.batch_first else "(steps, batch, features)"
                raise ShapeError(
                    f"MultiheadAttention: {name} has shape {x.shape} and the projection's weight {weight}; {name} must "
                    f"have shape {layout} or, for one sample, (steps, features), with {width} features."
                )

    def _projected(self, query: Array, key: Array, value: Array) -> tuple[Any, ...]:
        """Return queries, keys and values, projected; those of one input in one product."""
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and query is key and key is value:
            return tuple(chunk(linear(query, self.in_proj_weight, bias), 3, axis=-1))
        weights = self._projections()
        if len(weights) == 1:
            weights = list(split(weights[0], 3))
        biases = [None] * 3 if bias is None else split(bias, 3)
        return tuple(linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))

    def _batched(self, x: Array, is_single: bool) -> Array:
        """Return an input with the batch in front."""
        if is_single:
            return x[None]
        return x if self.batch_first else swapaxes(x, 0, 1)

    def _heads(self, x: Array) -> Array:
        """Return features of shape (batch, steps, features) as (batch, heads, steps, features of a head)."""
        batch, steps, _ = x.shape
        return permute(reshape(x, (batch, steps, self.num_heads, self.embed_dim // self.num_heads)), (0, 2, 1, 3))

    def _mask(self, attn_mask: Any, padding: Any, batch: int, queries: int, keys: int) -> Any:
        """Return both masks as one, for the scores: bools, where True takes part, or floats."""
        if attn_mask is not None:
            shape = tuple(attn_mask.shape)
            if shape not in ((queries, keys), (batch * self.num_heads, queries, keys)):
                raise ShapeError(
                    f"MultiheadAttention: attn_mask has shape {shape}; it must be {(queries, keys)} or "
                    f"{(batch * self.num_heads, queries, keys)}: batch times heads, queries, keys."
                )
            if len(shape) == 3:
                attn_mask = attn_mask.reshape((batch, self.num_heads, queries, keys))
        if padding is not None:
            shape = tuple(padding.shape)
            if shape not in ((batch, keys), (keys,)):
                raise ShapeError(
                    f"MultiheadAttention: key_padding_mask has shape {shape}; it must be {(batch, keys)}: batch, keys."
                )
            padding = padding.reshape((batch, 1, 1, keys))
        masks = [mask for mask in (attn_mask, padding) if mask is not None]
        if not masks:
            return None
        if all(array_of(mask).dtype == bool for mask in masks):
            is_forbidden = array_of(masks[0])
            for mask in masks[1:]:
                is_forbidden = is_forbidden | array_of(mask)
            return ~is_forbidden
        summed = _as_floats(masks[0], self.out_proj.weight.dtype)
        for mask in masks[1:]:
            summed = summed + _as_floats(mask, self.out_proj.weight.dtype)
        return summed

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


def _as_floats(mask: Any, dtype: Any) -> Any:
    """Return a mask as what is added to scores."""
    array = array_of(mask)
    if array.dtype == bool:
        return np.where(array, np.asarray(-np.inf, dtype), np.asarray(0.0, dtype))
    if array.dtype.kind in "iu":
        raise DtypeError(f"MultiheadAttention: a mask has dtype {array.dtype}; it must be of bools or of floats.")
    return mask
