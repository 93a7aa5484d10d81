"""The encoder of a transformer: layers of self-attention and of two linear layers, each around a shortcut."""

import copy
from collections.abc import Callable
from typing import Any

from .._typing import Array, DtypeLike
from ..core.stream import stream_of
from ..devices import check_device
from ..errors import ArgumentError
from ..ops import relu
from ..ops.activations import gelu
from .attention import MultiheadAttention
from .checks import check_count
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalisation import LayerNorm

_ACTIVATIONS: dict[str, Callable[..., Any]] = {"relu": relu, "gelu": gelu}


class TransformerEncoderLayer(Module):
    """Self-attention, then two linear layers with an activation between, each with dropout, shortcut and LayerNorm.

    Args:
        d_model: the number of features.
        nhead: the number of heads.
        dim_feedforward: the number of features between the two linear layers.
        dropout: the probability of dropout, in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: what LayerNorm adds to variances.
        batch_first: whether inputs and outputs have shape (batch, steps, features), not (steps, batch, features).
        norm_first: whether LayerNorm comes before attention and linear layers, not after the shortcuts.
        bias: whether linear layers and LayerNorm have biases.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> nt.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)(nt.ones(2, 5, 8)).shape
        (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[..., Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_device("TransformerEncoderLayer", device)
        stream = stream_of(rng)
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype, rng=stream
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype, rng=stream)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype, rng=stream)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        found = _ACTIVATIONS.get(activation) if isinstance(activation, str) else activation
        if not callable(found):
            raise ArgumentError(
                f"TransformerEncoderLayer: activation is {activation!r}; it must be 'relu', 'gelu' or a function."
            )
        self.activation = found

    def forward(
        self, src: Array, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Array:
        """Return the output; masks are those of `MultiheadAttention`."""
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._attend(self.norm1(src), *masks)
            return x + self._feed(self.norm2(x))
        x = self.norm1(src + self._attend(src, *masks))
        return self.norm2(x + self._feed(x))

    def _attend(self, x: Array, mask: Any, padding: Any, is_causal: bool) -> Array:
        out, _ = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(out)

    def _feed(self, x: Array) -> Array:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """Run copies of one encoder layer after each other; as in PyTorch they start with equal values.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: the number of copies.
        norm: a module that the output passes at the end.

    Example:
        >>> layer = nt.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16)
        >>> nt.nn.TransformerEncoder(layer, 2)(nt.ones(5, 2, 8)).shape
        (5, 2, 8)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.num_layers = num_layers = check_count("TransformerEncoder", "num_layers", num_layers)
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.register_module("norm", norm)

    def forward(self, src: Array, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Array:
        """Return the output of the last layer; masks are those of `MultiheadAttention`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        norm: Any = self.__dict__["norm"]
        return src if norm is None else norm(src)
