"""Go through the modules, parameters and buffers of a module, and copy it with others in their place."""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError
from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module


class Kind(Enum):
    """What a module has registered under a name."""

    PARAMETER = "a parameter"
    BUFFER = "a buffer"
    #: A buffer that is no part of the state.
    TRANSIENT = "a buffer that is not saved"
    MODULE = "a module"


def _children(module: "Module") -> Iterator[tuple[str, "Module"]]:
    """Go through the modules directly in one, with their names; a module under two names comes twice."""
    for name, kind in module._kinds.items():
        child = module.__dict__[name]
        if kind is Kind.MODULE and child is not None:
            yield name, child


def modules(
    module: "Module", prefix: str = "", is_unique: bool = True, seen: set[int] | None = None
) -> Iterator[tuple[str, "Module"]]:
    """Go through a module and all modules in it, with their paths; without `is_unique`, under each of their paths."""
    seen = set() if seen is None else seen
    if is_unique and id(module) in seen:
        return
    seen.add(id(module))
    yield prefix, module
    for name, child in _children(module):
        yield from modules(child, f"{prefix}.{name}" if prefix else name, is_unique, seen)


def members(
    module: "Module",
    kinds: Collection[Kind],
    prefix: str = "",
    recurse: bool = True,
    is_unique: bool = True,
) -> Iterator[tuple[str, Any]]:
    """Go through what is registered as one of `kinds` in a module, and in the modules in it, with paths."""
    seen: set[int] = set()
    for path, part in modules(module, prefix, is_unique) if recurse else [(prefix, module)]:
        for name, kind in part._kinds.items():
            value = part.__dict__[name]
            identity = id(part._stands_for.get(name, value))
            if kind not in kinds or value is None or (is_unique and identity in seen):
                continue
            seen.add(identity)
            yield f"{path}.{name}" if path else name, value


def find(module: "Module", path: str, found: Mapping[str, Any], what: str) -> Any:
    """Return what stands under a path, or raise and name what may be meant."""
    if path in found:
        return found[path]
    near = get_close_matches(str(path), found, n=1)
    raise UnknownNameError(
        f"{type(module).__name__}: there is no {what} {path!r}." + (f" Did you mean {near[0]!r}?" if near else "")
    )


def give_names(name: str, value: Any) -> None:
    """Let parameters that were registered under `name` be called by their path, unless they were named by hand."""
    if isinstance(value, Parameter):
        if value.name is None:
            value.name = name
    elif hasattr(value, "named_parameters"):
        for path, parameter in value.named_parameters():
            # Its path in the part is the name that it got there.
            if isinstance(parameter, Parameter) and parameter.name in (None, path):
                parameter.name = f"{name}.{path}"


def copy_with(module: "Module", values: Mapping[str, Any]) -> Any:
    """Return a module of the same structure with other values in place of parameters and buffers, given by path.

    A shared one is replaced wherever it is. All else, such as buffers that are not replaced, is the original's.
    """
    kinds = (Kind.PARAMETER, Kind.BUFFER, Kind.TRANSIENT)
    own = dict(members(module, kinds, is_unique=False))
    return _copied(module, {id(own[path]): (value, object()) for path, value in values.items()}, {})


def _copied(module: "Module", replaced: Mapping[int, tuple[Any, object]], copies: dict[int, Any]) -> Any:
    if id(module) in copies:
        return copies[id(module)]
    copied = copies[id(module)] = type(module).__new__(type(module))
    # Equal values in two places, such as numbers or one gradient, do not make them shared: the originals tell.
    identities = dict(module._stands_for)
    copied.__dict__.update(module.__dict__, _kinds=dict(module._kinds), _stands_for=identities)
    for name, kind in module._kinds.items():
        value = module.__dict__[name]
        if kind is Kind.MODULE and value is not None:
            copied.__dict__[name] = _copied(value, replaced, copies)
        elif id(value) in replaced:
            copied.__dict__[name], identities[name] = replaced[id(value)]
    return copied
