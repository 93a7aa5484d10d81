"""Certify the gradients of a function from the shell: ``numtape check module:function``."""

import inspect
from collections.abc import Callable
from typing import Any, TextIO

from ..errors import NumtapeError
from ..testing.gradients import check_gradients
from .target import UsageError, argument_lists, find, place_of


def run(target: str, arguments: str | None, tolerance: float, method: str, out: TextIO) -> int:
    """Check a function and write the table; return 0 if its gradients are right and 1 if they are not."""
    module, function = find(target)
    is_right = True
    for args in argument_lists(function, target, arguments, module):
        _check_call(function, target, args)
        try:
            check = check_gradients(function, *args, tolerance=tolerance, method=method)
        except NumtapeError as error:
            raise UsageError(str(error)) from error
        except (Exception, SystemExit) as error:
            raise UsageError(f"{target} failed: {type(error).__name__}: {error} (at {place_of(error)}).") from error
        print(f"{target}({', '.join(_described(arg) for arg in args)})", file=out)
        print(check, file=out)
        is_right = is_right and check.is_valid
    return 0 if is_right else 1


def _check_call(function: Callable[..., Any], target: str, args: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # Built-in functions may have none.
    try:
        signature.bind(*args)
    except TypeError as error:
        raise UsageError(
            f"{target} cannot be called with these arguments: {error}; its signature is "
            f"{target.rpartition(':')[2]}{signature}."
        ) from error


def _described(arg: Any) -> str:
    shape = getattr(arg, "shape", None)
    return repr(arg) if shape is None or len(repr(arg)) <= 40 else f"{type(arg).__name__}{list(shape)}"
