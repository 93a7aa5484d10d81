"""Switch recording off and on: for a block, for a function, or until further notice."""

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from .core.context import State, change, current, entered

F = TypeVar("F", bound=Callable[..., Any])


class _GradMode:
    """Run a block or a function with gradients on or off."""

    _grad: bool

    def __init__(self) -> None:
        self._entered: list[entered] = []

    def __enter__(self) -> None:
        scope = entered(grad=self._grad)
        scope.__enter__()
        self._entered.append(scope)

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)

    def __call__(self, function: F) -> F:
        return _decorated(function, self._grad)


def _decorated(function: F, grad: bool) -> F:
    wrapped: Any
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            return _stepwise(function(*args, **kwargs), grad)

        wrapped = generate
    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with entered(grad=grad):
                return function(*args, **kwargs)

        wrapped = call
    result: F = wrapped
    return result


def _stepwise(generator: Generator[Any, Any, Any], grad: bool) -> Generator[Any, Any, Any]:
    """Run each step of a generator in a mode of its own, so that the mode does not leak to the caller between steps."""
    send: Any = None
    while True:
        with entered(grad=grad):
            try:
                item = generator.send(send)
            except StopIteration as stop:
                return stop.value
        try:
            send = yield item
        except GeneratorExit:
            generator.close()
            raise


class no_grad(_GradMode):
    """Record nothing in a ``with`` block or a decorated function. It wins over any tape.

    Example:
        >>> x = nt.tensor([2.0], requires_grad=True)
        >>> with nt.no_grad():
        ...     y = x * x
        >>> y.requires_grad
        False
    """

    _grad = False


class enable_grad(_GradMode):
    """Record again, inside of `no_grad`.

    Example:
        >>> x = nt.tensor([2.0], requires_grad=True)
        >>> with nt.no_grad(), nt.enable_grad():
        ...     y = x * x
        >>> y.requires_grad
        True
    """

    _grad = True


class set_grad_enabled:
    """Switch recording on or off: at once when called, and back at the end if used in a ``with`` statement.

    Example:
        >>> with nt.set_grad_enabled(False):
        ...     nt.is_grad_enabled()
        False
        >>> nt.is_grad_enabled()
        True
    """

    def __init__(self, mode: bool) -> None:
        self._grad = bool(mode)
        self._before = current().grad
        change(grad=self._grad)

    def __enter__(self) -> None:
        """Do nothing: the mode was set when the object was made."""

    def __exit__(self, *exc: object) -> None:
        change(grad=self._before)

    def __call__(self, function: F) -> F:
        change(grad=self._before)
        return _decorated(function, self._grad)


def is_grad_enabled() -> bool:
    """Say whether ops on tracked tensors are recorded.

    Example:
        >>> nt.is_grad_enabled()
        True
    """
    state: State = current()
    return state.grad
