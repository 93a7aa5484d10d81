"""The ops under PyTorch's names, and the few functions of layers that are not ops of their own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import ops
from .._typing import Array
from ..core.composing import rounded_once
from ..core.value import array_of
from ..errors import ArgumentError
from ..ops import adaptive_avg_pool1d as adaptive_avg_pool1d
from ..ops import adaptive_avg_pool2d as adaptive_avg_pool2d
from ..ops import batch_norm as batch_norm
from ..ops import binary_losses as _binary_losses
from ..ops import class_losses as _class_losses
from ..ops import conv1d as conv1d
from ..ops import conv2d as conv2d
from ..ops import conv_transpose1d as conv_transpose1d
from ..ops import conv_transpose2d as conv_transpose2d
from ..ops import cosine_embedding_loss as cosine_embedding_loss
from ..ops import distribution_losses as _distribution_losses
from ..ops import embedding_losses as _embedding_losses
from ..ops import gelu as gelu
from ..ops import glu as glu
from ..ops import group_norm as group_norm
from ..ops import hardshrink as hardshrink
from ..ops import hinge_loss as hinge_loss
from ..ops import l1_loss as l1_loss
from ..ops import layer_norm as layer_norm
from ..ops import linear as linear
from ..ops import logsigmoid as logsigmoid
from ..ops import mse_loss as mse_loss
from ..ops import nll_loss as nll_loss
from ..ops import one_hot as one_hot
from ..ops import prelu as prelu
from ..ops import rms_norm as rms_norm
from ..ops import sigmoid as sigmoid
from ..ops import smooth_l1_loss as smooth_l1_loss
from ..ops import softshrink as softshrink
from ..ops import softsign as softsign
from ..ops import tanh as tanh
from ..ops import tanhshrink as tanhshrink
from ..ops.origins import held as _held
from ..spelling import suggesting as _suggesting
from .checks import check_absent, is_integer
from .torch_forms import avg_pool1d as avg_pool1d
from .torch_forms import avg_pool2d as avg_pool2d
from .torch_forms import celu as celu
from .torch_forms import cosine_similarity as cosine_similarity
from .torch_forms import dropout as dropout
from .torch_forms import dropout1d as dropout1d
from .torch_forms import dropout2d as dropout2d
from .torch_forms import elu as elu
from .torch_forms import hardsigmoid as hardsigmoid
from .torch_forms import hardswish as hardswish
from .torch_forms import hardtanh as hardtanh
from .torch_forms import leaky_relu as leaky_relu
from .torch_forms import log_softmax as log_softmax
from .torch_forms import max_pool1d as max_pool1d
from .torch_forms import max_pool2d as max_pool2d
from .torch_forms import mish as mish
from .torch_forms import relu as relu
from .torch_forms import relu6 as relu6
from .torch_forms import selu as selu
from .torch_forms import silu as silu
from .torch_forms import softmax as softmax
from .torch_forms import softmin as softmin
from .torch_forms import softplus as softplus
from .torch_forms import threshold as threshold

binary_cross_entropy = _binary_losses.bce_loss
binary_cross_entropy_with_logits = _binary_losses.bce_with_logits_loss
cross_entropy = _class_losses.cross_entropy_loss
kl_div = _distribution_losses.kl_div_loss
triplet_margin_loss = _embedding_losses.triplet_loss

_embedding = ops.embedding


def embedding(index: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """Return the rows of a table that an index names; no gradient goes to row `padding_idx`, from the end if negative.

    Example:
        >>> nt.nn.functional.embedding(np.array([1, 0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([[3., 4.],
               [1., 2.]])
    """
    rows = _embedding(index, weight)
    if padding_idx is None:
        return rows
    numbers = np.asarray(array_of(index))
    count = len(weight)
    if not is_integer(padding_idx) or not -count <= padding_idx < count:
        raise ArgumentError(
            f"embedding: padding_idx is {padding_idx!r}; it must be an integer from {-count} to {count - 1}, since "
            f"there are {count} rows."
        )
    is_padding = np.equal(numbers, int(padding_idx) % count)[..., None]
    return ops.where(is_padding, _held(rows), rows)


def gaussian_nll_loss(
    input: Array, target: Array, var: Array, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Array:
    """Return `nt.gaussian_nll_loss`, with the arguments in PyTorch's order.

    Example:
        >>> nt.nn.functional.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), np.array([1.0]))
        array(2.)
    """
    return ops.gaussian_nll_loss(input, target, var, eps=eps, full=full, reduction=reduction)


def huber_loss(input: Array, target: Array, reduction: str = "mean", delta: float = 1.0) -> Array:
    """Return `nt.huber_loss`, with the arguments in PyTorch's order.

    Example:
        >>> nt.nn.functional.huber_loss(np.array([1.0, 2.0]), np.array([0.0, 4.0]), "none")
        array([0.5, 1.5])
    """
    return ops.huber_loss(input, target, delta=delta, reduction=reduction)


def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Array:
    """Return `nt.poisson_nll_loss`, with the arguments in PyTorch's order; `full` must be False.

    Example:
        >>> nt.nn.functional.poisson_nll_loss(np.array([0.0]), np.array([1.0]))
        array(1.)
    """
    check_absent("poisson_nll_loss", "full", full, False)
    return ops.poisson_nll_loss(input, target, log_input=log_input, eps=eps, reduction=reduction)


def instance_norm(
    input: Array,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Array = None,
    bias: Array = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Return `nt.instance_norm`, with the arguments in PyTorch's order; there are no running statistics.

    Example:
        >>> nt.nn.functional.instance_norm(np.array([[[1.0, 3.0]]]), eps=0.0)
        array([[[-1.,  1.]]])
    """
    check_absent("instance_norm", "running_mean", running_mean, None)
    check_absent("instance_norm", "running_var", running_var, None)
    check_absent("instance_norm", "use_input_stats", use_input_stats, True)
    return ops.instance_norm(input, weight=weight, bias=bias, eps=eps)


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Array = None,
    enable_gqa: bool = False,
) -> Array:
    """Return `nt.scaled_dot_product_attention`, with the arguments in PyTorch's order; `dropout_p` must be 0.

    With `enable_gqa`, several heads of queries share a head of keys and values. Unlike in PyTorch, `attn_mask` and
    `is_causal` may be given together: what either of them hides is hidden.

    Example:
        >>> x = np.ones((1, 2, 2))
        >>> nt.nn.functional.scaled_dot_product_attention(x, x, x, None, 0.0, True)
        array([[[1., 1.],
                [1., 1.]]])
    """
    check_absent("scaled_dot_product_attention", "dropout_p", dropout_p, 0.0)
    if enable_gqa:
        heads, shared = query.shape[-3], key.shape[-3]
        if heads % shared:
            raise ArgumentError(
                f"scaled_dot_product_attention: there are {heads} heads of queries and {shared} of keys; the second "
                "must divide the first."
            )
        key, value = (ops.repeat(x, heads // shared, axis=-3) for x in (key, value))
    return ops.scaled_dot_product_attention(query, key, value, attn_mask, is_causal, scale)


@rounded_once
def normalize(x: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    """Return `x` divided by its norm along an axis, or by `eps` if that is larger.

    Example:
        >>> nt.nn.functional.normalize(np.array([[3.0, 4.0]]))
        array([[0.6, 0.8]])
    """
    return x / ops.maximum(ops.norm(x, ord=p, axis=dim, keepdims=True), eps)


def pad(x: Array, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Return `x` with elements added before and after, as PyTorch counts them: a pair for the last axis comes first.

    `nt.pad` is NumPy's, with a pair for each axis from the first on.

    Example:
        >>> nt.nn.functional.pad(np.ones((2, 2)), (1, 0)).tolist()
        [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    """
    axes = len(x.shape)
    if len(pad) % 2 or len(pad) > 2 * axes:
        raise ArgumentError(
            f"pad: x has shape {x.shape} and pad is {tuple(pad)}; it must hold a pair for each of the last axes, the "
            "last axis first."
        )
    pairs: list[Any] = [(0, 0)] * axes
    for k in range(len(pad) // 2):
        pairs[axes - 1 - k] = (pad[2 * k], pad[2 * k + 1])
    spelled = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}.get(mode, mode)
    return ops.pad(x, pairs, spelled, value) if spelled == "constant" else ops.pad(x, pairs, spelled)


if not TYPE_CHECKING:  # Else every name would be one of the module.
    __getattr__ = _suggesting(__name__)
