"""Tell in an error which layer of a model it comes from."""

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NumtapeError

if TYPE_CHECKING:
    from .module import Module


class Location(NamedTuple):
    """Where an error comes from, as far as it has travelled."""

    #: The outermost module that it has passed, and the path in it to the one that raised.
    module: "Module"
    path: str
    #: What the error said at first.
    message: str


def locate(module: "Module", error: NumtapeError) -> None:
    """Put a layer's path before the message of an error that leaves `module`, from its call.

    A module knows its parts but not what it is a part of; so each that the error passes on its way out writes the
    message anew, with the longer path. Those whose `forward` was called directly do not notice errors; they are looked
    up among the callers, up to the next that does.
    """
    _locate_in(module, error)
    call = sys._getframe(1)
    frame = call.f_back
    while frame is not None and frame.f_code is not call.f_code:
        names = frame.f_code.co_varnames
        owner: Any = frame.f_locals.get(names[0]) if frame.f_code.co_name == "forward" and names else None
        if hasattr(owner, "named_modules"):
            _locate_in(owner, error)
        frame = frame.f_back


def _locate_in(module: "Module", error: NumtapeError) -> None:
    before: Location | None = getattr(error, "location", None)
    if before is None:
        path, message = "", str(error)
    else:
        inner, path, message = before
        name = _name_in(module, inner)
        if name is None:
            # Called by this module, but not a part of it.
            return
        path = ".".join(part for part in (name, path) if part)
    error.location = Location(module, path, message)  # type: ignore[attr-defined]
    where = path or type(module).__name__
    is_said = message.lower().startswith(f"{where.lower()}:")
    error.args = (message if is_said else f"{where}: {message}", *error.args[1:])


def _name_in(module: "Module", part: "Module") -> str | None:
    return next((path for path, found in module.named_modules() if found is part), None)
