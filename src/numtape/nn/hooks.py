"""Functions that are called before and after a module's forward, and after its backward."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..tensor_members import Hook
from .backward_hooks import BackwardPass

if TYPE_CHECKING:
    from .module import Module

Function = Callable[..., Any]


class _WithKeywords:
    """Marks a hook that is given the keyword arguments of the call, too."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


class Hooks:
    """The hooks of one module, each kind in the order in which they are called."""

    __slots__ = ("after", "backward", "backward_before", "before")

    def __init__(self, *kinds: list[Function]) -> None:
        self.before: dict[int, Function] = {}
        self.after: dict[int, Function] = {}
        self.backward: dict[int, Function] = {}
        self.backward_before: dict[int, Function] = {}
        for hooks, functions in zip(self._kinds(), kinds, strict=False):
            for function in functions:
                Hook(hooks, function)

    def __reduce__(self) -> Any:
        # Numbers of handles hold in one process only, so that a copy takes new ones.
        return Hooks, tuple(list(kind.values()) for kind in self._kinds())

    def _kinds(self) -> tuple[dict[int, Function], ...]:
        return self.before, self.after, self.backward, self.backward_before

    def call(self, module: "Module", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a module's forward between its hooks; what a hook returns, unless None, takes the place of its input."""
        for before in tuple(self.before.values()):
            if isinstance(before, _WithKeywords):
                args, kwargs = before(module, args, kwargs) or (args, kwargs)
                continue
            changed = before(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watching = None
        if self.backward or self.backward_before:
            watching = BackwardPass(module, self.backward_before, self.backward)
        out = module.forward(*(args if watching is None else watching.enter(args)), **kwargs)
        for after in tuple(self.after.values()):
            given = (args, kwargs, out) if isinstance(after, _WithKeywords) else (args, out)
            changed = after(module, *given)
            if changed is not None:
                out = changed
        return out if watching is None else watching.leave(out)


def register(hooks: dict[int, Function], function: Function, prepend: bool = False, with_kwargs: bool = False) -> Hook:
    """Add a hook as the last one, or as the first one with `prepend`, and return its handle."""
    handle = Hook(hooks, _WithKeywords(function) if with_kwargs else function)
    if prepend:
        others = {number: each for number, each in hooks.items() if number != handle._number}
        for number in others:
            hooks[number] = hooks.pop(number)
    return handle
