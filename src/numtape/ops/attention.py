"""Attention: averages of values, weighted by how well keys match queries."""

import math
from typing import Any

import numpy as np

from .._typing import Array, NDArray
from ..core.declare import composed
from ..core.value import array_of
from ..dtypes import widened
from ..errors import DtypeError, OperandError, ShapeError
from .arithmetic import mul
from .matrices import matmul
from .samples import rejected, sample, values
from .selection import where
from .shapes import as_array, as_arrays
from .softmax import softmax


def _attention_reference(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Array:
    scores = np.einsum("...le,...se->...ls", query, key) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == bool else scores + attn_mask
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights /= weights.sum(-1, keepdims=True)
    return np.einsum("...ls,...se->...le", np.nan_to_num(weights), value)


def _sides(*lead: int, queries: int = 3, keys: int = 4) -> tuple[NDArray, NDArray, NDArray]:
    return values(*lead, queries, 2), values(*lead, keys, 2, seed=1), values(*lead, keys, 5, seed=2)


_MASK = np.array([[True, False, True, True], [False, True, False, False], [True, True, True, True]])
_DEAD = np.array([[True, False, True, True], [False, False, False, False], [True, True, True, True]])


@composed(
    to_float=True,
    rounds_once=True,
    promoted=("query", "key", "value"),
    precision="lower",
    reference=_attention_reference,
    samples=lambda: [
        sample(*_sides()),
        sample(*_sides(2)),
        sample(*_sides(2, 2), scale=0.3),
        sample(*_sides(), _MASK),
        sample(*_sides(2), _MASK),
        sample(*_sides(), _DEAD),
        sample(*_sides(2), _DEAD, is_causal=True),
        sample(*_sides(), values(3, 4, seed=3)),
        sample(*_sides(2), values(2, 1, 4, seed=3)),
        sample(*_sides(), attn_mask=np.where(_DEAD, 0.0, -np.inf)),
        sample(*_sides(), is_causal=True),
        sample(*_sides(queries=4, keys=3), is_causal=True),
        sample(*_sides(1, queries=1, keys=1)),
        sample(*_sides(0)),
        rejected(
            ShapeError,
            "scaled_dot_product_attention: query has shape (3, 2), key has shape (4, 3) and value has shape (4, 5); "
            "the last axes of query and key must be equal, and the second-to-last axes of key and value.",
            np.ones((3, 2)),
            np.ones((4, 3)),
            np.ones((4, 5)),
        ),
        rejected(
            ShapeError,
            "scaled_dot_product_attention: attn_mask has shape (2, 4), which does not broadcast to the shape of the "
            "scores, (3, 4): queries by keys.",
            *_sides(),
            attn_mask=np.ones((2, 4), bool),
        ),
        rejected(
            DtypeError,
            "scaled_dot_product_attention: attn_mask has dtype int64; it must be of bools (True takes part) or of "
            "floats (added to the scores).",
            *_sides(),
            attn_mask=np.ones((3, 4), np.int64),
        ),
    ],
)
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array = None,
    is_causal: bool = False,
    scale: Array = None,
) -> Array:
    """Return ``softmax(query @ key.mT * scale + mask) @ value``. A query that no key may answer gets zeros.

    Args:
        query: of shape (..., queries, features).
        key: of shape (..., keys, features).
        value: of shape (..., keys, outputs).
        attn_mask: of a shape that broadcasts to (..., queries, keys): bools, where True takes part, or floats, which
            are added to the scores.
        is_causal: let query i see keys up to i only; goes together with a mask.
        scale: the factor of the scores, one number; None for ``1 / sqrt(features)``. Gradients flow to it.

    Raises:
        ShapeError: if the shapes do not match.
        DtypeError: if attn_mask holds neither bools nor floats.

    Example:
        >>> query, key = np.array([[100.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> nt.scaled_dot_product_attention(query, key, np.array([[1.0], [2.0]]))
        array([[1.]])
    """
    query, key, value = as_arrays(query, key, value)
    _check_sides(query.shape, key.shape, value.shape)
    scores, has_key = _masked_scores(query, key, attn_mask, is_causal, scale)
    out = matmul(softmax(scores), value)
    return out if has_key is None else where(has_key, out, 0.0)


@composed(
    to_float=True,
    rounds_once=True,
    promoted=("query", "key"),
    precision="lower",
    reference=lambda query, key, *args, **params: _attention_reference(
        query, key, np.eye(key.shape[-2]), *args, **params
    ),
    samples=lambda: [
        sample(*_sides()[:2]),
        sample(*_sides(2)[:2]),
        sample(*_sides(2, 2)[:2], scale=0.3),
        sample(*_sides()[:2], _MASK),
        sample(*_sides(2)[:2], _DEAD, is_causal=True),
        sample(*_sides()[:2], values(3, 4, seed=3)),
        sample(*_sides()[:2], attn_mask=np.where(_DEAD, 0.0, -np.inf)),
        sample(*_sides(queries=4, keys=3)[:2], is_causal=True),
    ],
)
def _attention_weights(
    query: Array, key: Array, attn_mask: Array = None, is_causal: bool = False, scale: Array = None
) -> Array:
    """Return the weights by which `scaled_dot_product_attention` averages; 0 for a query that no key may answer."""
    scores, has_key = _masked_scores(query, key, attn_mask, is_causal, scale)
    weights = softmax(scores)
    return weights if has_key is None else where(has_key, weights, 0.0)


def _masked_scores(query: Array, key: Array, mask: Array, is_causal: bool, scale: Array) -> tuple[Array, Any]:
    """Return how well keys match queries, -inf where they may not, and which queries have a key; None if all have."""
    factor: Any = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else _as_factor(scale)
    scores = matmul(mul(query, factor), key.swapaxes(-1, -2))
    takes_part: Any = np.tri(*scores.shape[-2:], dtype=np.bool_) if is_causal else None
    if mask is not None:
        mask = as_array(mask, query)
        _check_mask(mask, scores.shape)
        if mask.dtype == bool:
            takes_part = array_of(mask) if takes_part is None else array_of(mask) & takes_part
        else:
            # A mask of doubles must not widen the scores. In a half type a large negative number would be -inf.
            mask = mask.astype(widened(scores.dtype))
            is_blocked = array_of(mask) == -np.inf
            if is_blocked.any():
                takes_part = ~is_blocked if takes_part is None else takes_part & ~is_blocked
                mask = where(is_blocked, 0.0, mask)
            scores = scores + mask
    if takes_part is None:
        return scores, None
    # A softmax over nothing would be NaN: a query without keys sees all of them, and the result is dropped.
    has_key = takes_part.any(axis=-1, keepdims=True)
    return where(takes_part | ~has_key, scores, -math.inf), None if has_key.all() else has_key


def _as_factor(scale: Any) -> Any:
    """Return the factor of the scores as a number, or as a tensor through which gradients flow."""
    factor: Any = as_array(scale)
    if factor.dtype.kind not in "biuf" or math.prod(factor.shape) != 1:
        raise OperandError(f"scaled_dot_product_attention: scale is {scale!r}; it must be one number.")
    return float(factor.item()) if isinstance(factor, np.ndarray) else factor.reshape(())


def _check_sides(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> None:
    has_axes = min(len(query), len(key), len(value)) >= 2
    if not has_axes or query[-1] != key[-1] or key[-2] != value[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: query has shape {query}, key has shape {key} and value has shape {value}; "
            "the last axes of query and key must be equal, and the second-to-last axes of key and value."
        )


def _check_mask(mask: Array, scores: tuple[int, ...]) -> None:
    if mask.dtype.kind in "iu":
        raise DtypeError(
            f"scaled_dot_product_attention: attn_mask has dtype {mask.dtype}; it must be of bools (True takes part) or "
            "of floats (added to the scores)."
        )
    try:
        np.broadcast_to(np.empty(mask.shape, bool), scores)
    except ValueError as error:
        raise ShapeError(
            f"scaled_dot_product_attention: attn_mask has shape {mask.shape}, which does not broadcast to the shape of "
            f"the scores, {scores}: queries by keys."
        ) from error
