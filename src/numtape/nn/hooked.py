"""The part of a module that hooks are registered with."""

from collections.abc import Callable
from typing import Any

from ..errors import OperandError
from ..tensor_members import Hook
from .hooks import Hooks, register


class Hooked:
    """What a module inherits: functions that see, and may replace, what goes in, comes out and flows back."""

    _hooks: Hooks | None

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Hook:
        """Call ``hook(module, args)`` before each forward; what it returns, unless None, replaces the arguments.

        Args:
            hook: the function.
            prepend: whether it comes before those that are there.
            with_kwargs: call ``hook(module, args, kwargs)``, which may return both as a pair.

        Returns:
            A handle; ``handle.remove()``, or the end of a ``with`` block, takes the hook off again.
        """
        return register(self._made_hooks(hook).before, hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Hook:
        """Call ``hook(module, grad_input, grad_output)`` when a backward has computed the gradients of the input.

        Both are tuples, with None for arguments that are not tracked and for outputs that get no gradient; without any
        tracked argument it is called when the gradients of the outputs are there. What the hook returns, unless None,
        replaces `grad_input`. Arguments given by name are not looked at.

        Returns:
            A handle; ``handle.remove()``, or the end of a ``with`` block, takes the hook off again.

        Example:
            >>> double = nt.nn.Linear(1, 1, bias=False)
            >>> seen = []
            >>> with double.register_full_backward_hook(lambda module, given, got: seen.append(got[0].item())):
            ...     double(nt.ones(1, 1)).sum().backward()
            >>> seen
            [1.0]
        """
        return register(self._made_hooks(hook).backward, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Hook:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are there, before they go further.

        `grad_output` is a tuple, with None for outputs that get no gradient. What the hook returns, unless None,
        replaces it.

        Returns:
            A handle; ``handle.remove()``, or the end of a ``with`` block, takes the hook off again.

        Example:
            >>> double, x = nt.nn.Identity(), nt.ones(1, requires_grad=True)
            >>> with double.register_full_backward_pre_hook(lambda module, got: (2.0 * got[0],)):
            ...     double(x).sum().backward()
            >>> x.grad
            tensor([2.])
        """
        return register(self._made_hooks(hook).backward_before, hook, prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Hook:
        """Call ``hook(module, args, output)`` after each forward; what it returns, unless None, replaces the output.

        Args:
            hook: the function.
            prepend: whether it comes before those that are there.
            with_kwargs: call ``hook(module, args, kwargs, output)``.

        Returns:
            A handle; ``handle.remove()``, or the end of a ``with`` block, takes the hook off again.

        Example:
            >>> relu = nt.nn.ReLU()
            >>> handle = relu.register_forward_hook(lambda module, args, output: output * 10.0)
            >>> relu(nt.tensor([-1.0, 2.0]))
            tensor([ 0., 20.])
        """
        return register(self._made_hooks(hook).after, hook, prepend, with_kwargs)

    def _made_hooks(self, hook: Any) -> Hooks:
        if not callable(hook):
            raise OperandError(f"{type(self).__name__}: a hook is a function, not {type(hook).__name__}.")
        hooks = self._hooks or Hooks()
        self.__dict__["_hooks"] = hooks
        return hooks
