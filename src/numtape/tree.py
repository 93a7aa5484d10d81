"""Trees: tuples, lists, dicts, namedtuples, dataclasses and None, nested, with anything else as leaves."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from .errors import ArgumentError, OperandError

Children = Callable[[Any], Iterable[Any]]
Rebuild = Callable[[Any, list[Any]], Any]

_registered: dict[type, tuple[Children, Rebuild]] = {}
#: How to take apart and rebuild instances of a class; None for leaves. Filled as classes are met.
_known: dict[type, tuple[Children, Rebuild] | None] = {}


def register(cls: type, children: Children, rebuild: Rebuild) -> None:
    """Make instances of `cls` inner nodes of trees.

    Args:
        cls: the class; subclasses follow.
        children: returns the children of an instance.
        rebuild: takes an instance and new children, and returns one like it.

    Example:
        >>> class Pair:
        ...     def __init__(self, a, b): self.a, self.b = a, b
        >>> nt.tree.register(Pair, lambda p: (p.a, p.b), lambda p, new: Pair(*new))
        >>> nt.tree.leaves([Pair(1, 2), 3])
        [1, 2, 3]
    """
    if not isinstance(cls, type):
        raise OperandError(f"tree.register: cls is {cls!r}; it must be a class.")
    _registered[cls] = (children, rebuild)
    _known.clear()


def is_leaf(tree: Any) -> bool:
    """Say whether an object is a leaf of its own, not a container."""
    return _node(tree) is None


def _node(tree: Any) -> tuple[Children, Rebuild] | None:
    """Return how to take a tree apart and put it together, or None for a leaf."""
    cls = type(tree)
    try:
        return _known[cls]
    except KeyError:
        found = _known[cls] = _find(cls)
        return found


def _find(cls: type) -> tuple[Children, Rebuild] | None:
    for base in cls.__mro__:
        if base in _registered:
            return _registered[base]
    if cls in (tuple, list):
        return (lambda t: t), lambda t, new: cls(new)
    if issubclass(cls, dict):
        return (lambda t: t.values()), _rebuild_dict
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return (lambda t: t), lambda t, new: cls(*new)
    if _is_dataclass(cls):
        names = _field_names(cls)
        return (
            lambda t: [getattr(t, name) for name in names],
            lambda t, new: _rebuild_fields(t, names, new),
        )
    if cls is type(None):
        return (lambda t: ()), lambda t, new: None
    return None


def _is_dataclass(cls: type) -> bool:
    return hasattr(cls, "__dataclass_fields__")


def _field_names(cls: type) -> list[str]:
    import dataclasses  # Whoever has one has loaded it; others do without.

    return [field.name for field in dataclasses.fields(cls)]


def _rebuild_dict(tree: dict[Any, Any], new: list[Any]) -> Any:
    # A copy keeps what a subclass adds, such as the factory of a defaultdict.
    built = tree.copy()
    for key, value in zip(tree, new, strict=True):
        built[key] = value
    return built


def _rebuild_fields(tree: Any, names: list[str], new: list[Any]) -> Any:
    # Not by the constructor, which may refuse or compute fields.
    built = copy.copy(tree)
    for name, value in zip(names, new, strict=True):
        object.__setattr__(built, name, value)
    return built


def leaves(tree: Any, keeps_none: bool = False) -> list[Any]:
    """Return the leaves of a tree, in order; None, which is an empty tree, only if it is to be kept.

    Example:
        >>> nt.tree.leaves({"a": 1, "b": [2, None, (3,)]})
        [1, 2, 3]
        >>> nt.tree.leaves({"a": 1, "b": [2, None, (3,)]}, keeps_none=True)
        [1, 2, None, 3]
    """
    if _node(tree) is None:
        return [tree]
    found: list[Any] = []
    stack = [tree]
    while stack:
        top = stack.pop()
        node = _node(top)
        if node is None or (keeps_none and top is None):
            found.append(top)
        else:
            stack.extend(reversed(list(node[0](top))))
    return found


def leaves_like(tree: Any, other: Any) -> list[Any]:
    """Return the leaves of a tree of the same structure as `tree`, in the order of that one's leaves.

    The keys of dicts may be in another order; a list may stand for a tuple.

    Example:
        >>> nt.tree.leaves_like({"a": 1, "b": (2, 3)}, {"b": [20, 30], "a": 10})
        [10, 20, 30]
    """
    node = _node(tree)
    if node is None:
        if _node(other) is not None:
            raise ArgumentError(f"tree: a {type(other).__name__} stands where a leaf belongs.")
        return [other]
    if isinstance(tree, dict):
        if not isinstance(other, dict) or other.keys() != tree.keys():
            got = f"one of {_keys(other)}" if isinstance(other, dict) else type(other).__name__
            raise ArgumentError(f"tree: a dict of {_keys(tree)} is wanted, not {got}.")
        theirs = [other[key] for key in tree]
    else:
        theirs = _children(other)
        if len(theirs) != len(_children(tree)) or _node(other) is None or isinstance(other, dict):
            got = type(other).__name__ if _node(other) is None else _described(other)
            raise ArgumentError(f"tree: {_described(tree)} is wanted, not {got}.")
    return [leaf for a, b in zip(_children(tree), theirs, strict=True) for leaf in leaves_like(a, b)]


def paths(tree: Any) -> list[str]:
    """Return where each leaf of a tree stands, as code that gets there.

    Example:
        >>> nt.tree.paths({"a": 1, "b": [2, None, (3,)]})
        ["['a']", "['b'][0]", "['b'][2][0]"]
    """
    if _node(tree) is None:
        return [""]
    children = _children(tree)
    if isinstance(tree, dict):
        steps = [f"[{key!r}]" for key in tree]
    elif hasattr(tree, "_fields"):
        steps = [f".{name}" for name in tree._fields]
    elif _is_dataclass(type(tree)) and type(tree) not in _registered:
        steps = [f".{name}" for name in _field_names(type(tree))]
    else:
        steps = [f"[{i}]" for i in range(len(children))]
    return [step + rest for step, child in zip(steps, children, strict=True) for rest in paths(child)]


def _children(tree: Any) -> list[Any]:
    node = _node(tree)
    return [] if node is None else list(node[0](tree))


def _keys(tree: dict[Any, Any]) -> str:
    return ", ".join(repr(key) for key in tree) or "no keys"


def _described(tree: Any) -> str:
    return "None" if tree is None else f"a {type(tree).__name__} of {len(_children(tree))}"


def unflatten(tree: Any, new: Iterable[Any]) -> Any:
    """Return a tree of the same structure with other leaves."""
    rest = iter(new)
    built = _build(tree, rest)
    if next(rest, _END) is not _END:
        raise ArgumentError("tree.unflatten: more leaves were given than the tree has.")
    return built


_END = object()


def _build(tree: Any, rest: Any) -> Any:
    # Trees of arguments are shallow; this recursion is over nesting, not over a graph.
    node = _node(tree)
    if node is None:
        leaf = next(rest, _END)
        if leaf is _END:
            raise ArgumentError("tree.unflatten: fewer leaves were given than the tree has.")
        return leaf
    children, rebuild = node
    return rebuild(tree, [_build(child, rest) for child in children(tree)])


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to each leaf of a tree, and to the leaves at the same place of others.

    Example:
        >>> nt.tree.map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"x": 10, "y": [20]})
        {'x': 11, 'y': [22]}
    """
    counts = [len(leaves(each)) for each in (tree, *others)]
    if len(set(counts)) > 1:
        shown = ", ".join(str(count) for count in counts)
        raise ArgumentError(f"tree.map: the trees have {shown} leaves; they must have the same structure.")
    columns = [leaves(tree), *(leaves_like(tree, other) for other in others)]
    return unflatten(tree, (function(*row) for row in zip(*columns, strict=True)))
