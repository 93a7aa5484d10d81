"""Let NumPy say nothing of overflow, division by zero and the like: ``np.errstate(all="ignore")``, in less time.

np.errstate works out the state that it enters each time. That state is the value of a context variable; which one, and
what value, is found once, by a look at what np.errstate changes. It is used where nobody has changed NumPy's settings.
"""

from contextvars import ContextVar, Token, copy_context
from typing import Any

import numpy as np


def _find() -> tuple[ContextVar[Any], Any] | None:
    """Return the variable that np.errstate changes, and its value when nothing is said; None if there is not one."""
    before = copy_context()
    with np.errstate(all="ignore"):
        inside = copy_context()
    changed = [(variable, value) for variable, value in inside.items() if before.get(variable) is not value]
    return changed[0] if len(changed) == 1 else None


class _Silent:
    """A block in which NumPy says nothing; to be entered once."""

    __slots__ = ("_token",)

    _token: Token[Any]

    def __enter__(self) -> None:
        self._token = _VARIABLE.set(_VALUE)

    def __exit__(self, *exc: object) -> None:
        _VARIABLE.reset(self._token)


_VARIABLE: ContextVar[Any]
_found = _find()
if _found is not None:
    _VARIABLE, _VALUE = _found


def silent() -> Any:
    """Return a block in which NumPy says nothing."""
    # Where somebody has settings of his own, such as a function to call, np.errstate keeps them.
    if _found is None or _VARIABLE.get(_VALUE) is not _VALUE:
        return np.errstate(all="ignore")
    return _Silent()
