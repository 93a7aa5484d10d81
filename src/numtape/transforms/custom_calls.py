"""Calls of a function with custom derivatives: their arguments, and which of these are operands of its op."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import tree
from ..core.stream import Drawn, Stream
from ..errors import OperandError


class _Operand:
    """Stands in the arguments of a call where an operand of the op belongs."""

    def __repr__(self) -> str:
        return "operand"


OPERAND = _Operand()


@dataclass(eq=False, repr=False)
class Call:
    """The arguments of one call, without the operands: all that a record must know to run the function again."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    #: How many of the values, from the end, are passed by name.
    keywords: int
    #: Where the thread's random stream stood.
    stream: Stream
    #: The random streams that the first run drew from, and where each stood before; None until it is over.
    drawn: Drawn | None = None

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in zip(self.names, self.values, strict=True))})"

    def fill(self, operands: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments with operands put in."""
        rest = iter(operands)
        filled = [tree.map(lambda leaf: next(rest) if leaf is OPERAND else leaf, value) for value in self.values]
        split = len(filled) - self.keywords
        return filled[:split], dict(zip(self.names[split:], filled[split:], strict=True))

    def counts(self) -> list[int]:
        """Return how many operands each argument holds."""
        return [sum(leaf is OPERAND for leaf in tree.leaves(value)) for value in self.values]


def bind(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """Bind arguments to a signature; the error names the function."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise OperandError(f"{name}: {error}; its signature is {name}{signature}.") from None


def arguments_of(bound: inspect.BoundArguments) -> tuple[list[str], list[Any]]:
    """Return the names and values of arguments in the order of the signature, those of ``*args`` one by one."""
    names: list[str] = []
    values: list[Any] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}[{i}]" for i in range(len(value))]
            values += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            names += value
            values += value.values()
        else:
            names.append(name)
            values.append(value)
    return names, values


def with_gaps(form: Any, part: Any) -> Any:
    """Return the cotangents of an argument with None at keys that were left out, since no operand is there."""
    if not isinstance(form, dict) or not isinstance(part, dict):
        return part
    found = {key: None for key, value in form.items() if not tree.leaves(value)}
    return found | {key: with_gaps(form.get(key), value) for key, value in part.items()}
