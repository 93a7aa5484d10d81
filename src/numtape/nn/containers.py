"""Modules that hold modules: one after another, as a list, and as a dict."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from .._typing import Array
from ..errors import IndexingError, OperandError
from .module import Module
from .traversal import Kind


class _Container(Module):
    """A module that holds others; it may have parameters and buffers beside them."""

    def _names(self) -> list[str]:
        return [name for name, kind in self._kinds.items() if kind is Kind.MODULE]


class _Numbered(_Container):
    """Modules under the names "0", "1" and so on, or under names of their own."""

    def _all(self) -> list[Module]:
        return [self.__dict__[name] for name in self._names()]

    def _place(self, index: Any) -> str:
        """Return the name at an index, which may count from the end."""
        names = self._names()
        try:
            return names[operator.index(index)]
        except (IndexError, TypeError) as error:
            raise IndexingError(
                f"{type(self).__name__}: index {index!r} is out of range for {len(names)} modules."
            ) from error

    def _renumber(self, modules: Iterable[Module]) -> None:
        for name in self._names():
            delattr(self, name)
        for number, module in enumerate(modules):
            self.register_module(str(number), module)

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[Module]:
        return iter(self._all())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            taken = type(self).__new__(type(self))
            names = self._names()
            if names == [str(number) for number in range(len(names))]:
                return taken.extend(self._all()[index])
            for name in names[index]:
                taken.register_module(name, self.__dict__[name])
            return taken
        return self.__dict__[self._place(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.register_module(self._place(index), module)

    def __delitem__(self, index: Any) -> None:
        modules = self._all()
        if not isinstance(index, slice):
            self._place(index)
        del modules[index]
        self._renumber(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end, and return self."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end, and return self."""
        for module in modules:
            self.append(module)
        return self

    def __add__(self, other: Iterable[Module]) -> Self:
        copied: Self = self[:]
        return copied.extend(other)

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)

    def pop(self, index: int = -1) -> Module:
        """Take the module at an index out, and return it."""
        taken: Module = self[index]
        del self[index]
        return taken

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one at an index, and return self."""
        modules = self._all()
        modules.insert(index, module)
        self._renumber(modules)
        return self


class Sequential(_Numbered):
    """Run modules one after another, each on the output of the one before.

    Args:
        modules: the modules, or one dict of them by name.

    Example:
        >>> model = nt.nn.Sequential(nt.nn.Linear(2, 8), nt.nn.Tanh(), nt.nn.Linear(8, 1))
        >>> model(nt.ones(4, 2)).shape
        (4, 1)
        >>> model[0]
        Linear(in_features=2, out_features=8, bias=True)
    """

    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.register_module(name, module)
        else:
            self.extend(modules)

    def forward(self, x: Array) -> Array:
        """Return the output of the last module."""
        members = self.__dict__
        for name, kind in self._kinds.items():
            if kind is Kind.MODULE:
                x = members[name](x)
        return x


class ModuleList(_Numbered):
    """Hold modules as a list does, registered; it has no forward of its own.

    Example:
        >>> layers = nt.nn.ModuleList(nt.nn.Linear(2, 2) for _ in range(3))
        >>> len(layers), layers[-1]
        (3, Linear(in_features=2, out_features=2, bias=True))
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)


class ModuleDict(_Container):
    """Hold modules as a dict does, registered; it has no forward of its own.

    Example:
        >>> heads = nt.nn.ModuleDict({"left": nt.nn.ReLU(), "right": nt.nn.Tanh()})
        >>> list(heads), heads["right"]
        (['left', 'right'], Tanh())
    """

    def __init__(self, modules: Any = ()) -> None:
        self.update(modules)

    def __getitem__(self, key: str) -> Module:
        if key not in self:
            raise IndexingError(f"ModuleDict: there is no {key!r}; there are {', '.join(self) or 'none'}.")
        found: Module = self.__dict__[key]
        return found

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __contains__(self, key: object) -> bool:
        return key in self._names()

    def keys(self) -> list[str]:
        """Return the names."""
        return self._names()

    def values(self) -> list[Module]:
        """Return the modules."""
        return [self.__dict__[name] for name in self]

    def items(self) -> list[tuple[str, Module]]:
        """Return names and modules."""
        return [(name, self.__dict__[name]) for name in self]

    def pop(self, key: str) -> Module:
        """Take a module out, and return it."""
        module = self[key]
        delattr(self, key)
        return module

    def clear(self) -> None:
        """Take all modules out."""
        for key in self:
            delattr(self, key)

    def update(self, modules: Any) -> None:
        """Add the modules of a dict, of another ModuleDict, or of pairs of name and module."""
        try:
            found = dict(modules.items() if hasattr(modules, "items") else modules)
        except (TypeError, ValueError) as error:
            raise OperandError(
                f"ModuleDict: wants a dict of modules, or pairs of name and module, not {type(modules).__name__}."
            ) from error
        for key, module in found.items():
            self.register_module(key, module)
