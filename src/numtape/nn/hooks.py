"""Functions that are called before and after a module's forward."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..tensor_members import Hook

if TYPE_CHECKING:
    from .module import Module

Function = Callable[..., Any]


class Hooks:
    """The hooks of one module, each kind in the order in which they were registered."""

    __slots__ = ("after", "before")

    def __init__(self, before: Iterable[Function] = (), after: Iterable[Function] = ()) -> None:
        self.before: dict[int, Function] = {}
        self.after: dict[int, Function] = {}
        for function in before:
            Hook(self.before, function)
        for function in after:
            Hook(self.after, function)

    def __reduce__(self) -> Any:
        # Numbers of handles hold in one process only, so that a copy takes new ones.
        return Hooks, (list(self.before.values()), list(self.after.values()))

    def call(self, module: "Module", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a module's forward between its hooks; what a hook returns, unless None, takes the place of its input."""
        for before in tuple(self.before.values()):
            changed = before(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        out = module.forward(*args, **kwargs)
        for after in tuple(self.after.values()):
            changed = after(module, args, out)
            if changed is not None:
                out = changed
        return out
