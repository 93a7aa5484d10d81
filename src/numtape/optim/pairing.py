"""Which gradient belongs to which parameter, in every form in which gradients are given to a step."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import tree
from ..core.value import Value
from ..errors import ArgumentError, OperandError, ShapeError
from ..gradients import Gradients
from ..tensors import Tensor


def gradients_for(title: str, params: list[Any], names: Mapping[Any, str], grads: Any) -> list[Any]:
    """Return the gradients of parameters in their order, with None for those that have none.

    Args:
        title: what errors begin with.
        params: the parameters.
        names: the names of those that were given with one.
        grads: None for their ``.grad``; a `Gradients` map or a dict by parameters, told by identity; a dict by names;
            or a tree, such as a list or a model, whose leaves are in the order of the parameters.
    """
    if grads is None:
        return [param.grad for param in params]
    if isinstance(grads, Gradients):
        return [grads.get(param) for param in params]
    if isinstance(grads, Mapping) and grads:
        if all(isinstance(key, Tensor) for key in grads):
            return _by_key(title, grads, {param: names.get(param, "without a name") for param in params}, params)
        labels = _labels(params, names, grads)
        if labels is not None:
            return _by_key(title, grads, {label: label for label in labels}, labels)
    found = list(_parts(title, grads))
    if len(found) != len(params):
        raise ShapeError(
            f"{title}: there are {len(params)} parameters and {len(found)} gradients; give one for each, None for "
            "those to leave alone."
        )
    return found


def _labels(params: list[Any], names: Mapping[Any, str], grads: Mapping[Any, Any]) -> list[str] | None:
    """Return the names by which a dict of gradients goes; None if it can only go by order."""
    if params and all(param in names for param in params):
        return [names[param] for param in params]
    # Names of the tensors themselves bind nobody, unless the dict speaks of them.
    own = [param.name for param in params]
    return own if len(set(own)) == len(own) and set(own) == set(grads) else None


def _by_key(title: str, grads: Mapping[Any, Any], known: Mapping[Any, str], keys: list[Any]) -> list[Any]:
    unknown = [key for key in grads if key not in known]
    missing = [known[key] for key in keys if key not in grads]
    if unknown:
        labels = [repr(key) if isinstance(key, str) else f"a {type(key).__name__}" for key in unknown]
        raise ArgumentError(
            f"{title}: there is a gradient for {', '.join(labels)}, but no such parameter; the parameters are "
            f"{', '.join(known.values())}."
        )
    if missing:
        raise ArgumentError(
            f"{title}: there is no gradient for {', '.join(missing)}; give one for each, None for those to leave alone."
        )
    return [grads[key] for key in keys]


def _parts(title: str, grads: Any) -> Iterator[Any]:
    """Go through the leaves of a tree of gradients; unlike in other trees, None is one of them."""
    if isinstance(grads, Mapping):
        grads = grads.values()
    if isinstance(grads, Value | np.ndarray):
        yield grads
    elif isinstance(grads, str) or not (isinstance(grads, Iterable) or is_model(grads) or not tree.is_leaf(grads)):
        raise OperandError(
            f"{title}: gradients are a map, a sequence or a tree of tensors, not {type(grads).__name__}."
        )
    else:
        is_plain = isinstance(grads, Iterable) and not is_model(grads)
        for each in grads if is_plain else tree.leaves(grads):
            if each is None or tree.is_leaf(each) or _is_array_like(each):
                yield each
            else:
                yield from _parts(title, each)


def _is_array_like(x: Any) -> bool:
    """Say whether nested lists hold numbers alone: they are one gradient."""
    leaves = tree.leaves(x)
    return isinstance(x, list) and bool(leaves) and all(isinstance(leaf, int | float | np.generic) for leaf in leaves)


def is_model(x: Any) -> bool:
    """Say whether something has parameters, as models do."""
    return callable(getattr(x, "parameters", None))


def listed(x: Any) -> Any:
    """Return iterators and sequences as lists, to go through them more than once; anything else as it is."""
    is_whole = isinstance(x, Gradients | Value | Mapping | np.ndarray | str) or is_model(x)
    return x if is_whole or not isinstance(x, Iterable) else list(x)


def is_pairs(x: Any) -> bool:
    """Say whether all in a list are pairs."""
    return isinstance(x, list) and bool(x) and all(isinstance(each, tuple) and len(each) == 2 for each in x)


def split_pairs(title: str, pairs: list[tuple[Any, Any]], own: set[Any]) -> tuple[list[Any], list[Any]]:
    """Return the gradients and the parameters of pairs in either order; `own` are the parameters that are known."""
    turned = [_turned(title, place, pair, own) for place, pair in enumerate(pairs)]
    return [gradient for gradient, _ in turned], [param for _, param in turned]


def _turned(title: str, place: int, pair: tuple[Any, Any], own: set[Any]) -> tuple[Any, Any]:
    first, second = pair
    is_param = [isinstance(each, Tensor) and each in own for each in pair]
    if not own:
        is_param = [isinstance(each, Tensor) and each.requires_grad for each in pair]
        if is_param[0] == is_param[1]:  # Nothing to tell them by but the order that is documented.
            return first, second
    if first is not second and is_param[0] == is_param[1]:
        which = "both are" if is_param[0] else "neither is"
        raise ArgumentError(
            f"{title}: pair {place} is to hold a gradient and a parameter, but {which} of the optimizer's parameters."
        )
    return (second, first) if is_param[0] else (first, second)


def is_overflow(grads: Any) -> bool:
    """Say whether gradients are those of a backward that overflowed under loss scaling."""
    return bool(getattr(grads, "overflow", False))
