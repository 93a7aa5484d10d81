"""What a rule reads besides its arguments: it may be frozen only if all of that is known, and compared in each step."""

import builtins
import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core.declare import public
from .code_reading import Use, uses_of

_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
_PACKAGE = __name__.partition(".")[0]
_MISSING = object()
#: Built-in functions and types that depend on their arguments alone.
_PURE: frozenset[Any] = frozenset(
    (
        *(abs, all, any, bool, dict, divmod, enumerate, float, int, isinstance, len, list, map, max, min, pow, range),
        *(reversed, round, set, sorted, str, sum, super, tuple, zip),
    )
)

#: Reads something now; it is given the optimizer each time, which must not be kept alive by what it owns.
_Reader = Callable[[Any], Any]


class Reads:
    """All that a rule, and what it calls, reads besides its arguments.

    A rule is followed if every name in its code is an argument, a variable of its own, a function that depends on its
    arguments alone (an op, one of NumPy's or `math`, some built-in ones), a function of the user's that can be followed
    itself, or a value that cannot change inside, such as a number: as an attribute of the optimizer, a global or an
    attribute of a module or a class. These values are compared before each step. Any other rule (one that reads a dict
    or an object, looks names up, writes to attributes) runs as a whole in each step, and so is right whatever it does.
    """

    def __init__(self, optimizer: Any, function: FunctionType) -> None:
        self._plain: list[_Reader] = []
        self._functions: list[tuple[_Reader, Any]] = []
        self._seen: set[tuple[FunctionType, type | None]] = set()
        self._is_fixed = not hasattr(type(optimizer), "__getattr__")
        owner = next((cls for cls in type(optimizer).__mro__ if vars(cls).get("update") is function), None)
        self._is_fixed = self._is_fixed and owner is not None
        self._visit(optimizer, function, owner)

    def is_current(self, optimizer: Any) -> bool:
        """Say whether the rule still calls the functions that were looked at."""
        return all(read(optimizer) is function for read, function in self._functions)

    def values(self, optimizer: Any) -> str | None:
        """Return what the rule would read now, as text; None if that does not tell what it will do."""
        if not self._is_fixed:
            return None
        found = [read(optimizer) for read in self._plain]
        # Equal is not the same: 0.0 is -0.0, and 1 is True.
        return repr(found) if all(map(is_plain, found)) else None

    def _visit(self, optimizer: Any, function: FunctionType, owner: type | None) -> None:
        """Look at a function; at a method with the class that has it, else with None."""
        if (function, owner) in self._seen:
            return
        self._seen.add((function, owner))
        code = function.__code__
        uses = uses_of(code)
        if uses is None:
            self._is_fixed = False
            return
        is_library = (function.__module__ or "").partition(".")[0] == _PACKAGE
        if not is_library:
            self._functions.append((lambda _: function.__code__, code))
            self._plain.append(lambda _: _settings(function))
        own = code.co_varnames[0] if owner is not None and code.co_argcount else None
        calls_super = any(use.kind == "global" and use.names[0] == "super" for use in uses)
        for use in uses:
            first = use.names[0]
            if use.kind == "super":
                self._attribute(optimizer, use.names, owner)
            elif use.kind == "value":
                # Which of the attributes is taken from super() the instructions do not always tell.
                if calls_super and _definition(optimizer, first, owner)[1] is not _MISSING:
                    self._attribute(optimizer, use.names, owner)
            elif use.kind == "global":
                # The library's own functions depend on their arguments and on the optimizer.
                if not is_library:
                    self._meet(optimizer, use, partial(_global, function, first))
            elif first in code.co_freevars and use.kind == "enclosing":
                self._meet(optimizer, use, partial(_contents, function.__closure__, code.co_freevars.index(first)))
            elif first == own:
                self._attribute(optimizer, use.names[1:], None)

    def _attribute(self, optimizer: Any, names: list[str], after: type | None) -> None:
        """Look at an attribute of the optimizer, or one that super() finds in the classes `after` one."""
        if not names:  # The optimizer itself is given away.
            self._is_fixed = False
            return
        name = names[0]
        owner, found = _definition(optimizer, name, after)
        read = partial(_attribute_now, name, after)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            self._functions.append((read, found))
            self._visit(optimizer, found.fget, owner)
        elif is_plain(read(optimizer)):
            self._plain.append(read)
        elif isinstance(found, FunctionType | staticmethod) and len(names) == 1:
            function: Any = getattr(found, "__func__", found)
            self._functions.append((read, found))
            if isinstance(function, FunctionType):
                self._visit(optimizer, function, owner if function is found else None)
            else:
                self._is_fixed = False
        else:
            self._is_fixed = False

    def _meet(self, optimizer: Any, use: Use, start: _Reader) -> None:
        """Look at a global or a variable of an enclosing function, or at what is in it if that is a module or class."""
        value, rest = start(None), use.names[1:]
        while rest and type(value) in (ModuleType, type):
            value = getattr(value, rest[0], _MISSING)
            rest = rest[1:]
        read = partial(_followed, start, use.names[1 : len(use.names) - len(rest)])
        if is_plain(value):
            self._plain.append(read)
        elif not rest and _is_pure(value):
            self._functions.append((read, value))
        elif not rest and isinstance(value, FunctionType) and value.__module__.partition(".")[0] != _PACKAGE:
            self._functions.append((read, value))
            self._visit(optimizer, value, None)
        else:
            self._is_fixed = False


def is_plain(value: Any) -> bool:
    """Say whether a value is a number, a text or the like, or a tuple of them: equal ones do the same, for good."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return type(value) in _PLAIN or (isinstance(value, np.generic | np.dtype) and not isinstance(value, np.void))


def _is_pure(value: Any) -> bool:
    """Say whether something depends on its arguments alone when it is called."""
    if isinstance(value, type):
        is_known = value.__module__ in ("numpy", "builtins")
        return value in _PURE or (is_known and issubclass(value, np.generic | Exception))
    if inspect.isbuiltin(value):
        return value in _PURE or value.__module__ == "math"
    if isinstance(value, FunctionType):
        return any(value is face for face in list(public.values()))
    return isinstance(value, np.ufunc | type(np.where))


def _definition(optimizer: Any, name: str, after: type | None) -> tuple[type | None, Any]:
    """Return the class that defines an attribute and the definition; of those `after` a class if one is given."""
    order = type(optimizer).__mro__
    for cls in order if after is None else order[order.index(after) + 1 :]:
        if name in vars(cls):
            return cls, vars(cls)[name]
    return None, _MISSING


def _attribute_now(name: str, after: type | None, optimizer: Any) -> Any:
    """Return an attribute as the optimizer or a class holds it; those of the object hide all but properties."""
    found = _definition(optimizer, name, after)[1]
    return found if after is not None or isinstance(found, property) else vars(optimizer).get(name, found)


def _followed(start: _Reader, names: list[str], optimizer: Any) -> Any:
    value = start(optimizer)
    for name in names:
        value = getattr(value, name, _MISSING)
    return value


def _global(function: FunctionType, name: str, optimizer: Any) -> Any:
    return function.__globals__.get(name, getattr(builtins, name, _MISSING))


def _contents(closure: Any, place: int, optimizer: Any) -> Any:
    try:
        return closure[place].cell_contents
    except ValueError:  # Not assigned yet.
        return _MISSING


def _settings(function: FunctionType) -> Any:
    """Return what a function carries with it: its defaults; and its attributes, which are plain if there are none."""
    defaults = (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items()))
    return (*defaults, vars(function)) if vars(function) else defaults
