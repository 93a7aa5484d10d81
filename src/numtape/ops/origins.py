"""Constants that a function computes of its operands, and how: code that is written of a tape computes them again.

What has no derivative leaves no record: a mask that a function makes of `x` would be, to whoever reads the tape, a
constant like those of the user. `derived` runs an op and notes on the result what it was made of.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from .._typing import Array
from ..core.apply import leave_out
from ..core.context import current
from ..core.op import Op
from ..core.record import Record
from ..core.value import Extras, Lifted, Value, wrap
from .casting import alias, stop_gradient


class Origin:
    """An op that was run for a constant, and on what: records, tensors, arrays, numbers, and outputs of others."""

    __slots__ = ("links", "op", "params")

    def __init__(self, op: Op, links: tuple[Any, ...], params: dict[str, Any]) -> None:
        self.op = op
        self.links = links
        self.params = params


class OutputOf(NamedTuple):
    """One of the outputs of an origin; `position` is None if there is only one."""

    origin: Origin
    position: int | None


class _DerivedExtras(Extras):
    """The extras of a constant that was derived."""

    output: OutputOf


def origin_of(value: Any) -> OutputOf | None:
    """Return what a constant was derived from; None if it was not."""
    extras = value.extras if isinstance(value, Value) else None
    return extras.output if isinstance(extras, _DerivedExtras) else None


def derived(face: Callable[..., Any], *operands: Any, beside: Sequence[Any] = (), **params: Any) -> Any:
    """Run an op; if its result is a constant but an operand is tracked, or was derived itself, note where it is from.

    Args:
        face: the function of the op.
        *operands: its operands.
        beside: what else, if it is tracked, makes the operands part of what is recorded.
        **params: its static parameters.
    """
    return _noted(face(*operands, **params), cast(Any, face).op, operands, params, beside)


def held(x: Array) -> Array:
    """Return `x` as a constant, as `stop_gradient` does, that is noted to be `x`."""
    return _noted(stop_gradient(x), cast(Any, alias).op, (x,), {}, ())


def _noted(out: Any, op: Op, operands: Sequence[Any], params: dict[str, Any], beside: Sequence[Any]) -> Any:
    if isinstance(out, Value) and out.node is not None:
        return out  # It has a record, which says the same.
    values = [x for x in (*operands, *beside) if isinstance(x, Value)]
    if not any(map(_is_followed, values)) or any(isinstance(x, Lifted) for x in values):
        return out
    origin = Origin(op, tuple(map(_link, operands)), params)
    if isinstance(out, tuple):
        return tuple(_note(part, OutputOf(origin, i), values[0]) for i, part in enumerate(out))
    return _note(out, OutputOf(origin, None), values[0])


def _note(constant: Any, output: OutputOf, like: Value) -> Any:
    if not isinstance(constant, Value):
        constant = wrap(like.plain, np.asarray(constant))
    if constant.node is not None:
        return constant
    leave_out(constant)
    extras = _DerivedExtras()
    vars(extras).update(vars(constant.extras) if constant.extras is not None else {}, output=output)
    constant.extras = extras
    return constant


def _is_followed(value: Value) -> bool:
    return value.node is not None or origin_of(value) is not None or current().watch_all


def _link(operand: Any) -> Any:
    """Return what stands for an operand: of a tracked or derived one not its array."""
    if not isinstance(operand, Value):
        return operand
    return operand.node if type(operand.node) is Record else origin_of(operand) or operand


def records_behind(output: OutputOf) -> Iterator[Record]:
    """Yield the records that a derived constant was computed from."""
    for link in output.origin.links:
        if isinstance(link, OutputOf):
            yield from records_behind(link)
        elif type(link) is Record:
            yield link
