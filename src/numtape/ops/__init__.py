"""The ops, one file per family; everything about an op stands in its file. This is the list of what is public."""

from typing import TYPE_CHECKING, Any

from ..kernels.forks import loading
from .arithmetic import abs, add, cbrt, div, hypot, mul, neg, positive, pow, reciprocal, rsqrt, sign, sqrt, square, sub
from .bounds import clip, maximum, minimum
from .calculus import cumulative_trapezoid, diff, gradient, trapezoid
from .casting import alias, cast, clone, stop_gradient
from .comparisons import (
    allclose,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    isclose,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from .contractions import tensordot
from .decompositions import cholesky, qr
from .determinants import cofactors, det, slogdet
from .diagonals import diag, diagonal, trace, tril, triu
from .exponential import (
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    logit,
    sigmoid,
    softplus,
    xlogy,
)
from .gathering import gather, scatter, scatter_add, take_along_axis
from .indexing import getitem
from .joining import column_stack, concat, dstack, hstack, stack, vstack
from .linalg import lstsq, matrix_norm, matrix_power, pinv
from .matrices import addmm, dot, inner, matmul, vdot, vecdot
from .norms import norm, vector_norm
from .padding import pad, pad_zeros
from .products import cross, kron, outer
from .quantiles import median, percentile, quantile
from .random import dropout
from .rearranging import flip, fliplr, flipud, repeat, roll, tile
from .rectifiers import (
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    prelu,
    relu,
    relu6,
    softshrink,
    threshold,
)
from .reductions import logsumexp, max, mean, min, prod, sum
from .reshaping import atleast_1d, atleast_2d, expand, flatten, meshgrid, ravel, squeeze, unsqueeze, view
from .rounding import ceil, floor, floor_divide, fmod, remainder, rint, round, trunc
from .scans import cumprod, cumsum, cumulative_prod, cumulative_sum, recurrence
from .searches import all, any, argmax, argmin, count_nonzero, searchsorted
from .selection import masked_fill, nan_to_num, nonzero, where
from .shapes import broadcast_to, matrix_transpose, moveaxis, permute, reshape, swapaxes, transpose
from .softmax import log_softmax, softmax, softmin
from .sorting import argsort, ranked, sort, topk
from .special import digamma, erf, erfc, erfinv, lgamma, polygamma
from .spectra import eigh, eigvalsh, svd, svdvals
from .splitting import array_split, chunk, split, unbind
from .statistics import average, nanmean, nansum, std, var
from .systems import inv, solve
from .taking import embedding, index_select, one_hot, segment_sum, take
from .trigonometric import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    deg2rad,
    rad2deg,
    sin,
    sinc,
    sinh,
    tan,
    tanh,
)
from .uniques import unique

if TYPE_CHECKING:
    from .activations import celu, elu, gelu, glu, logsigmoid, mish, selu, silu, softsign, tanhshrink
    from .affine import linear
    from .attention import scaled_dot_product_attention
    from .binary_losses import bce_loss, bce_with_logits_loss, hinge_loss
    from .class_losses import cross_entropy_loss, nll_loss
    from .convolution import conv1d, conv2d
    from .convolution_core import conv, conv_input, conv_weight
    from .distribution_losses import gaussian_nll_loss, kl_div_loss, poisson_nll_loss
    from .einsums import einsum
    from .embedding_losses import cosine_embedding_loss, triplet_loss
    from .group_normalisation import group_norm, instance_norm
    from .losses import huber_loss, l1_loss, mse_loss, smooth_l1_loss
    from .max_pooling import max_pool, max_pool1d, max_pool2d
    from .normalisation import batch_norm
    from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, avg_pool, avg_pool1d, avg_pool2d, avg_unpool
    from .row_normalisation import layer_norm, rms_norm
    from .signals import convolve, interp
    from .transposed_convolution import conv_transpose1d, conv_transpose2d

#: Families of layers and losses, with what is public of them: loaded when something of theirs is first asked for, since
#: they would take a fifth of the import.
_LATE = {
    "activations": ("celu", "elu", "gelu", "glu", "logsigmoid", "mish", "selu", "silu", "softsign", "tanhshrink"),
    "affine": ("linear",),
    "attention": ("scaled_dot_product_attention",),
    "binary_losses": ("bce_loss", "bce_with_logits_loss", "hinge_loss"),
    "class_losses": ("cross_entropy_loss", "nll_loss"),
    "convolution": ("conv1d", "conv2d"),
    "convolution_core": ("conv", "conv_input", "conv_weight"),
    "distribution_losses": ("gaussian_nll_loss", "kl_div_loss", "poisson_nll_loss"),
    "einsums": ("einsum",),
    "embedding_losses": ("cosine_embedding_loss", "triplet_loss"),
    "group_normalisation": ("group_norm", "instance_norm"),
    "losses": ("huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"),
    "max_pooling": ("max_pool", "max_pool1d", "max_pool2d"),
    "normalisation": ("batch_norm",),
    "pooling": ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool", "avg_pool1d", "avg_pool2d", "avg_unpool"),
    "row_normalisation": ("layer_norm", "rms_norm"),
    "signals": ("convolve", "interp"),
    "transposed_convolution": ("conv_transpose1d", "conv_transpose2d"),
}
#: The file of each of these names.
FAMILIES = {name: family for family, names in _LATE.items() for name in names}

__all__ = [
    "abs",
    "acos",
    "acosh",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "add",
    "addmm",
    "alias",
    "all",
    "allclose",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "array_split",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "average",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_unpool",
    "batch_norm",
    "bce_loss",
    "bce_with_logits_loss",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "cbrt",
    "ceil",
    "celu",
    "cholesky",
    "chunk",
    "clip",
    "clone",
    "cofactors",
    "column_stack",
    "concat",
    "conv",
    "conv1d",
    "conv2d",
    "conv_input",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_weight",
    "convolve",
    "cos",
    "cosh",
    "cosine_embedding_loss",
    "count_nonzero",
    "cross",
    "cross_entropy_loss",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "cumulative_trapezoid",
    "deg2rad",
    "det",
    "diag",
    "diagonal",
    "diff",
    "digamma",
    "div",
    "dot",
    "dropout",
    "dstack",
    "eigh",
    "eigvalsh",
    "einsum",
    "elu",
    "embedding",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand",
    "expm1",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "floor",
    "floor_divide",
    "fmod",
    "gather",
    "gaussian_nll_loss",
    "gelu",
    "getitem",
    "glu",
    "gradient",
    "greater",
    "greater_equal",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_loss",
    "hstack",
    "huber_loss",
    "hypot",
    "index_select",
    "inner",
    "instance_norm",
    "interp",
    "inv",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "kl_div_loss",
    "kron",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "less",
    "less_equal",
    "lgamma",
    "linear",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsigmoid",
    "logsumexp",
    "lstsq",
    "masked_fill",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "max",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "moveaxis",
    "mse_loss",
    "mul",
    "nan_to_num",
    "nanmean",
    "nansum",
    "neg",
    "nll_loss",
    "nonzero",
    "norm",
    "not_equal",
    "one_hot",
    "outer",
    "pad",
    "pad_zeros",
    "percentile",
    "permute",
    "pinv",
    "poisson_nll_loss",
    "polygamma",
    "positive",
    "pow",
    "prelu",
    "prod",
    "qr",
    "quantile",
    "rad2deg",
    "ranked",
    "ravel",
    "reciprocal",
    "recurrence",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "reshape",
    "rint",
    "rms_norm",
    "roll",
    "round",
    "rsqrt",
    "scaled_dot_product_attention",
    "scatter",
    "scatter_add",
    "searchsorted",
    "segment_sum",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "slogdet",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "solve",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "sub",
    "sum",
    "svd",
    "svdvals",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tanhshrink",
    "tensordot",
    "threshold",
    "tile",
    "topk",
    "trace",
    "transpose",
    "trapezoid",
    "tril",
    "triplet_loss",
    "triu",
    "trunc",
    "unbind",
    "unique",
    "unsqueeze",
    "var",
    "vdot",
    "vecdot",
    "vector_norm",
    "view",
    "vstack",
    "where",
    "xlogy",
]

if not TYPE_CHECKING:
    # What ``import *`` takes must not load it.
    __all__ = [name for name in __all__ if name not in FAMILIES]


def __getattr__(name: str) -> Any:
    """Load the family of an op that is asked for by its name."""
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_load(FAMILIES[name]), name)
    return found


#: The families, until all were loaded.
_to_load = set(_LATE)


def load_all() -> None:
    """Load every family: for whoever looks through all ops, or for one by a further spelling."""
    if _to_load:  # They are asked for again and again.
        for family in _LATE:
            _load(family)
        _to_load.clear()


def _load(family: str) -> Any:
    from importlib import import_module

    with loading:
        return import_module(f".{family}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *FAMILIES})
