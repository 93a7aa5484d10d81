"""Switch recording off and on: for a block, for a function, or until further notice."""

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from .core.context import State, change, current, entered
from .errors import OperandError

F = TypeVar("F", bound=Callable[..., Any])
#: Makes the scope that a call, or a step of a generator, runs in.
ScopeMaker = Callable[[], AbstractContextManager[Any]]


class _GradMode:
    """Run a block or a function with gradients on or off."""

    _grad: bool

    def __init__(self, *given: Any) -> None:
        if given:
            name = type(self).__name__
            raise OperandError(
                f"{name}: takes no arguments, but {type(given[0]).__name__} was given; write `with nt.{name}():` or "
                f"`@nt.{name}()`, with parentheses."
            )
        self._entered = entered(grad=self._grad)

    def __enter__(self) -> None:
        self._entered.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._entered.__exit__(*exc)

    def __call__(self, function: F) -> F:
        return decorated(type(self).__name__, function, lambda: entered(grad=self._grad))


def decorated(name: str, function: F, scope: ScopeMaker) -> F:
    """Return a function, a generator function or a coroutine function that runs in a scope of its own at each call."""
    if not callable(function):
        raise OperandError(
            f"{name}: decorates functions, not {type(function).__name__}; for a block, write `with nt.{name}(...):`."
        )
    wrapped: Any
    if inspect.isasyncgenfunction(function):
        raise OperandError(f"{name}: asynchronous generators cannot be decorated; use `with nt.{name}():` inside.")
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            return _stepwise(function(*args, **kwargs), scope)

        wrapped = generate
    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            return await _Stepwise(function(*args, **kwargs), scope)

        wrapped = wait
    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with scope():
                return function(*args, **kwargs)

        wrapped = call
    result: F = wrapped
    return result


def _stepwise(generator: Generator[Any, Any, Any], scope: ScopeMaker) -> Generator[Any, Any, Any]:
    """Run each step of a generator in a scope of its own, so that none leaks to the caller between steps."""
    step = functools.partial(generator.send, None)
    while True:
        with scope():
            try:
                item = step()
            except StopIteration as stop:
                return stop.value
        try:
            step = functools.partial(generator.send, (yield item))
        except GeneratorExit:
            with scope():
                generator.close()
            raise
        except BaseException as error:
            step = functools.partial(generator.throw, error)


class _Stepwise:
    """What a decorated coroutine awaits."""

    def __init__(self, coroutine: Any, scope: ScopeMaker) -> None:
        self._steps = _stepwise(coroutine.__await__(), scope)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps


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
        if not isinstance(mode, bool | np.bool_):
            raise OperandError(f"set_grad_enabled: mode is {mode!r}; it must be True or False.")
        self._grad = bool(mode)
        self._entered = entered(grad=self._grad)
        #: The mode before this object was made; None once that is back, since a block or a function has the new one.
        self._before: bool | None = current().grad
        change(grad=self._grad)

    def _take_back(self) -> None:
        if self._before is not None:
            change(grad=self._before)
            self._before = None

    def __enter__(self) -> None:
        self._take_back()
        self._entered.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._entered.__exit__(*exc)

    def __call__(self, function: F) -> F:
        self._take_back()
        return decorated("set_grad_enabled", function, lambda: entered(grad=self._grad))


def is_grad_enabled() -> bool:
    """Say whether ops on tracked tensors are recorded.

    Example:
        >>> nt.is_grad_enabled()
        True
    """
    state: State = current()
    return state.grad
