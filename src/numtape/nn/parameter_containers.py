"""Modules that hold parameters: as a list, and as a dict."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from ..errors import IndexingError
from .module import Module
from .parameter import Parameter


class ParameterList(Module):
    """Hold parameters as a list does, registered; other tensors and arrays become parameters.

    Example:
        >>> weights = nt.nn.ParameterList([nt.ones(2), nt.zeros(3)])
        >>> [name for name, _ in weights.named_parameters()], len(weights)
        (['0', '1'], 2)
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self.extend(values)

    def _name(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexingError(f"ParameterList: index {index} is out of range for {len(self)} parameters.")
        return str(index % len(self))

    def __len__(self) -> int:
        return len(self._kinds)

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__dict__[name] for name in self._kinds])

    def __getitem__(self, index: Any) -> Any:
        return ParameterList(list(self)[index]) if isinstance(index, slice) else self.__dict__[self._name(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        self.register_parameter(self._name(index), _parameter(value))

    def append(self, value: Any) -> Self:
        """Add a parameter at the end, and return self."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add parameters at the end, and return self."""
        for value in values:
            self.append(value)
        return self


class ParameterDict(Module):
    """Hold parameters as a dict does, registered; other tensors and arrays become parameters.

    Example:
        >>> weights = nt.nn.ParameterDict({"scale": nt.ones(2)})
        >>> [name for name, _ in weights.named_parameters()], weights["scale"].requires_grad
        (['scale'], True)
    """

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self.update(values)

    def __len__(self) -> int:
        return len(self._kinds)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._kinds))

    def __contains__(self, key: object) -> bool:
        return key in self._kinds

    def __getitem__(self, key: str) -> Any:
        if key not in self._kinds:
            raise IndexingError(f"ParameterDict: there is no {key!r}; there are {', '.join(self._kinds) or 'none'}.")
        return self.__dict__[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def pop(self, key: str) -> Any:
        """Take a parameter out, and return it."""
        found = self[key]
        delattr(self, key)
        return found

    def keys(self) -> list[str]:
        """Return the names."""
        return list(self._kinds)

    def values(self) -> list[Any]:
        """Return the parameters."""
        return [self.__dict__[name] for name in self._kinds]

    def items(self) -> list[tuple[str, Any]]:
        """Return names and parameters."""
        return [(name, self.__dict__[name]) for name in self._kinds]

    def update(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add the parameters of a dict, or of pairs of name and parameter."""
        for key, value in dict(values).items():
            self[key] = value


def _parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)
