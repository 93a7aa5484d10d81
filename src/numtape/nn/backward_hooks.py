"""Functions that see the gradients of a module's outputs and inputs, and may replace those of its input."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import tree
from ..core.value import Value
from ..errors import ArgumentError
from ..ops import clone

if TYPE_CHECKING:
    from .module import Module


class BackwardPass:
    """One call of a module, waiting for gradients: it calls the hooks once those of all tracked inputs are there.

    Without a tracked input it calls them once the gradients of all outputs are there.
    """

    def __init__(self, module: "Module", hooks: dict[int, Callable[..., Any]]) -> None:
        self.module = module
        self.hooks = hooks
        self.grad_input: list[Any] = []
        self.grad_output: list[Any] = []
        self.waited: set[int] = set()

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with copies of tracked tensors, whose gradients are those by this call alone."""
        self.grad_input = [None] * len(args)
        return tuple(self._watched(place, each) for place, each in enumerate(args))

    def _watched(self, place: int, argument: Any) -> Any:
        if not isinstance(argument, Value) or argument.node is None:
            return argument
        copied: Any = clone(argument)
        if copied.node is None:  # Nothing is recorded now.
            return argument
        self.waited.add(place)
        copied.register_hook(lambda grad: self._arrived(place, grad))
        return copied

    def leave(self, out: Any) -> Any:
        """Note the outputs of the call, and return them."""
        parts: list[Any] = tree.leaves(out)
        self.grad_output = [None] * len(parts)
        tracked = [place for place, part in enumerate(parts) if isinstance(part, Value) and part.node is not None]
        for place in tracked:
            parts[place].register_hook(lambda grad, place=place: self._left(place, grad, tracked))
        return out

    def _left(self, place: int, grad: Any, tracked: list[int]) -> None:
        self.grad_output[place] = grad
        if not self.waited and all(self.grad_output[each] is not None for each in tracked):
            self._call()

    def _arrived(self, place: int, grad: Any) -> Any:
        self.grad_input[place] = grad
        if any(self.grad_input[each] is None for each in self.waited):
            return None
        return self._call()

    def _call(self) -> Any:
        """Call the hooks, and return what takes the place of the gradient of the only tracked input."""
        given = tuple(self.grad_input)
        grad_output = tuple(self.grad_output)
        # Ready for another backward through the same graph.
        self.grad_input = [None] * len(given)
        self.grad_output = [None] * len(grad_output)
        for hook in tuple(self.hooks.values()):
            changed = hook(self.module, given, grad_output)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(self.waited) != 1 or len(changed) != len(given):
                raise ArgumentError(
                    f"{type(self.module).__name__}: a backward hook returned {len(changed)} gradients for "
                    f"{len(given)} arguments, {len(self.waited)} of them tracked; it can replace the gradient of one "
                    "tracked argument, as a tuple with a place for each argument."
                )
            given = changed
        return given[next(iter(self.waited))] if self.waited else None
