"""Functions composed of ops, as one: half operands are widened first and rounded once, integers become floats."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from .. import tree
from .._typing import Dtype
from ..dtypes import HALF_DTYPES, float32, float64, float_beside, promote, widened
from .context import current
from .op import kinds_of
from .scopes import casting
from .value import Value, array_of

P = ParamSpec("P")
R = TypeVar("R")


def rounded_once(
    function: Callable[P, R], promoted: tuple[str, ...] | None = None, wide: Dtype = float32, is_kept: bool = False
) -> Callable[P, R]:
    """Let a function that is made of ops compute on half operands in a `wide` dtype and round its results at the end.

    The dtype of the results is that of the `promoted` arguments together, of all if not given: only of halves alone
    they are rounded. Where a scope casts, each op says what it runs in, unless the function `is_kept` as ops are that
    run in the dtype of what they get.
    """
    chosen = _choose(function, promoted)

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        if not any(map(_holds_half, args)) and not (kwargs and any(map(_holds_half, kwargs.values()))):
            return function(*args, **kwargs)
        caster = casting(current().scopes)
        if caster is not None and (caster.everything is not None or not is_kept):
            return function(*args, **kwargs)
        target = promote([array_of(x) for x in tree.leaves(chosen(args, kwargs)) if hasattr(x, "dtype")])
        working = float64 if target == float64 else wide
        wide_args, wide_kwargs = tree.map(lambda x: x.astype(working) if _is_half(x) else x, (args, kwargs))
        out = function(*wide_args, **wide_kwargs)
        if target not in HALF_DTYPES:
            return out
        return cast(R, tree.map(lambda x: x.astype(target) if getattr(x, "dtype", None) == working else x, out))

    return face


def _choose(
    function: Callable[..., Any], promoted: tuple[str, ...] | None
) -> Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]:
    """Return a function that picks the promoted ones of arguments; those without a name, as ``*xs``, are.

    Flags, numbers and axes are none of them.
    """
    plain = inspect.unwrap(function)
    code = cast(Any, plain).__code__
    names = code.co_varnames[: code.co_argcount]
    others = {*kinds_of(plain), "axis"}

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        is_chosen = others.isdisjoint if promoted is None else set(promoted).issuperset
        return [*(x for name, x in named.items() if is_chosen((name,))), *args[len(names) :]]

    return chosen


def _is_half(x: Any) -> bool:
    return getattr(x, "dtype", None) in HALF_DTYPES


def _holds_half(x: Any) -> bool:
    kind = type(x)
    if kind in _WITHOUT_DTYPE:
        return False
    return any(map(_is_half, tree.leaves(x))) if kind in (list, tuple, dict) else _is_half(x)


#: What most arguments are that are no operands, told in less time than it takes to look for a dtype.
_WITHOUT_DTYPE = frozenset((type(None), bool, int, float, str))


def floated(function: Callable[P, R], promoted: tuple[str, ...] | None) -> Callable[P, R]:
    """Let a composed function get integers, of the `promoted` arguments, as floats: as wide as others are computed in.

    Where there are no others it is the default dtype.
    """
    chosen = _choose(function, promoted)

    @functools.wraps(function)
    def face(*args: P.args, **kwargs: P.kwargs) -> R:
        if not any(map(_is_whole, args)) and not (kwargs and any(map(_is_whole, kwargs.values()))):
            return function(*args, **kwargs)
        given = [x for x in chosen(args, kwargs) if isinstance(x, np.ndarray | Value)]
        dtype = widened(float_beside(given))
        # By identity: an argument stands in its own place.
        whole = {id(x) for x in given if _is_whole(x)}
        args, kwargs = (tree.map(lambda x: x.astype(dtype) if id(x) in whole else x, part) for part in (args, kwargs))
        return function(*args, **kwargs)

    return face


def _is_whole(x: Any) -> bool:
    return isinstance(x, np.ndarray | Value) and x.dtype.kind in "biu"
