"""What a rule reads besides its arguments: found in its code, looked at in each step, so that nothing is frozen."""

import dis
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, str, bytes, type(None), np.generic, np.dtype)
_PACKAGE = __name__.partition(".")[0]


class Reads:
    """The attributes, globals and variables of enclosing functions that a rule and what it calls may read.

    A rule that writes to any of them, or reads anything that can change inside, such as a list, has to run in each
    step: `values` is None. Names are enough to tell: a name too many costs a comparison.
    """

    def __init__(self, optimizer: Any, function: FunctionType) -> None:
        self._watched: list[Callable[[], Any]] = []
        self._attributes: list[str] = []
        self._is_fixed = True
        self._seen: set[Any] = set()
        self._visit(optimizer, function)

    def values(self, optimizer: Any) -> tuple[Any, ...] | None:
        """Return what the rule would read now; None if that does not tell what it will do."""
        if not self._is_fixed:
            return None
        # The optimizer is given each time: it owns this, and must not be kept alive by it.
        found = tuple([watched() for watched in self._watched])
        found += tuple([getattr(optimizer, name, None) for name in self._attributes])
        return found if all(map(_is_plain, found)) else None

    def _visit(self, optimizer: Any, function: FunctionType) -> None:
        if function in self._seen:
            return
        self._seen.add(function)
        names: set[str] = set()
        for code in _codes(function.__code__):
            names.update(code.co_names)
            self._is_fixed = self._is_fixed and not _writes(code)
        for cell in function.__closure__ or ():
            self._meet(optimizer, names, _contents(cell), partial(_contents, cell))
        space = function.__globals__
        for name in sorted(names):
            if name in space:
                self._meet(optimizer, names, space[name], partial(space.get, name))
            self._attribute(optimizer, name)

    def _attribute(self, optimizer: Any, name: str) -> None:
        """Look at an attribute of the optimizer: at all its definitions, since a method may call that of a parent."""
        found = [vars(cls)[name] for cls in type(optimizer).__mro__ if name in vars(cls)]
        for each in found:
            method = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
            if isinstance(method, FunctionType):
                self._visit(optimizer, method)
        is_method = bool(found) and isinstance(getattr(found[0], "__func__", found[0]), FunctionType | property)
        if name in vars(optimizer) or (found and not is_method):
            self._attributes.append(name)

    def _meet(self, optimizer: Any, names: set[str], value: Any, watched: Callable[[], Any]) -> None:
        """Look at a global or a variable of an enclosing function."""
        if isinstance(value, FunctionType):
            # The library's own functions depend on their arguments alone.
            if (value.__module__ or "").partition(".")[0] != _PACKAGE:
                self._visit(optimizer, value)
        elif isinstance(value, ModuleType | type):
            for name in sorted(names & set(vars(value))):
                if _is_plain(vars(value)[name]):
                    self._watched.append(partial(getattr, value, name, None))
        elif not inspect.isbuiltin(value) and not isinstance(value, np.ufunc):
            self._watched.append(watched)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _writes(code: CodeType) -> bool:
    """Say whether code assigns to attributes, globals or variables of enclosing functions."""
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_GLOBAL"):
            return True
        if each.opname == "STORE_DEREF" and each.argval in code.co_freevars:
            return True
    return False


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Not assigned yet.
        return None


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else isinstance(value, _PLAIN)
