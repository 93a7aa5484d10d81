"""Calls of a function with custom derivatives: their arguments, and which of these are operands of its op."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.recompute import fingerprint
from ..core.stream import Drawn, Stream
from ..core.value import Lifted, array_of
from ..dtypes import unit_of
from ..errors import OperandError


class _Operand:
    """Stands in the arguments of a call where an operand of the op belongs."""

    def __repr__(self) -> str:
        return "operand"


OPERAND = _Operand()


#: Of so many runs on other operands, as those of the members of a batch, a call remembers what they gave.
_MOST_GIVEN = 16
#: How many elements of each part of a value it remembers.
_FEW = 16
#: By how much of the largest they may differ in half types.
_COARSE = 1e-2


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
    #: By fingerprints of operands, a few elements of each part of the value that the function gave for them.
    given: dict[tuple[int, ...], list[NDArray]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in zip(self.names, self.values, strict=True))})"

    def fill(self, operands: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments with operands put in."""
        rest = iter(operands)
        filled = [tree.map(lambda leaf: next(rest) if leaf is OPERAND else leaf, value) for value in self.values]
        split = len(filled) - self.keywords
        return filled[:split], dict(zip(self.names[split:], filled[split:], strict=True))

    def is_same(self, operands: Sequence[Any], parts: Sequence[Any]) -> bool:
        """Say whether a run gave what another one gave for the same operands, if there was one; rounding aside."""
        if any(isinstance(x, Lifted) for x in (*operands, *parts)):
            return True
        key = tuple(fingerprint(array_of(x)) for x in operands)
        now = list(map(_few_of, parts))
        before = self.given.get(key)
        if before is None:
            if len(self.given) < _MOST_GIVEN:
                self.given[key] = now
            return True
        return len(now) == len(before) and all(map(_is_close, now, before))

    def counts(self) -> list[int]:
        """Return how many operands each argument holds."""
        return [sum(leaf is OPERAND for leaf in tree.leaves(value)) for value in self.values]


def _few_of(part: Any) -> NDArray:
    array = np.asarray(array_of(part))
    return np.array(array.flat[:: max(1, array.size // _FEW)])


def _is_close(a: NDArray, b: NDArray) -> bool:
    """Say whether values agree in half of their digits: kernels may round in other ways the next time."""
    if a.shape != b.shape:
        return False
    scale = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    unit = max(unit_of(a.dtype), unit_of(b.dtype)) if a.dtype.kind not in "iub" else 0.0
    return bool(np.allclose(a, b, rtol=0.0, atol=min(_COARSE, math.sqrt(unit)) * scale, equal_nan=True))


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
