"""What the pattern of a recorded graph depends on, in short: two graphs of one signature have one pattern."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..core.facts import Structure
from ..core.jacobian import Path
from ..core.op import NON_DIFFERENTIABLE, Op, shape_of
from ..core.record import Link, Record
from ..core.value import Value
from .dependence import constant

#: Structures that shapes tell all about.
_PLAIN = (Structure.ELEMENTWISE, Structure.MATRICES, Structure.DENSE)


class Step(NamedTuple):
    """What the pattern knows of one record."""

    op: Op
    #: The numbers of the records that move it, -1 and less for sources, None for constants.
    links: tuple[int | None, ...]
    shapes: tuple[Any, ...]
    #: Parameters, indices among the operands, and where constant factors are zero, as numbers that tell them apart.
    details: tuple[Any, ...]


class Signature(NamedTuple):
    """The steps of a graph, and the numbers of its targets."""

    steps: tuple[Step, ...]
    targets: tuple[int | None, ...]


def signature(path: Path) -> Signature:
    """Return the signature of a path."""
    numbers: dict[Link, int] = {link: -1 - i for i, link in enumerate(path.sources)}
    steps = []
    for number, record in enumerate(path.records):
        links = tuple(_number(record, i, numbers) for i in range(len(record.inputs)))
        shapes = (_plain(record.shape), *(tuple(shape_of(link)) for link in record.inputs if link is not None))
        steps.append(Step(record.op, links, shapes, tuple(_details(record))))
        numbers[record] = number
    return Signature(tuple(steps), tuple(numbers.get(target) for target in path.targets))


def describe_change(before: Signature, after: Signature, path: Path) -> str:
    """Say what the first difference between two signatures is, and where in the program it happened."""
    for old, new, record in zip(before.steps, after.steps, path.records, strict=False):
        if old != new:
            return f"{_change(old, new)} at {record.site}"
    if not before.steps:
        return f"{len(after.steps)} ops were recorded, others than when the pattern was found"
    return f"{len(after.steps)} ops were recorded, and {len(before.steps)} when the pattern was found"


def _change(old: Step, new: Step) -> str:
    if old.op is not new.op:
        return f"{new.op.name} ran in place of {old.op.name}"
    if old.shapes != new.shapes:
        return f"{new.op.name} has operands or a result of other shapes"
    if old.links != new.links:
        return f"{new.op.name} has other operands"
    return f"{new.op.name} has other parameters, other indices, or a constant with other zeros"


def _number(record: Record, position: int, numbers: dict[Link, int]) -> int | None:
    link = record.inputs[position]
    is_moved = record.needs >> position & 1 and isinstance(link, Record | Value)
    return numbers.get(link) if is_moved else None


def _plain(shape: Any) -> tuple[Any, ...]:
    return tuple(tuple(part) for part in shape) if isinstance(shape, list) else tuple(shape)


def _details(record: Record) -> Iterator[Any]:
    if record.op.facts.structure in _PLAIN:
        return
    for name, value in (record.params or {}).items():
        yield name, _digest(value)
    op = record.op
    for position in range(len(record.inputs)):
        if record.needs >> position & 1:
            continue
        if op.facts.structure is Structure.TERMS:
            operand = constant(record, position)
            yield position, None if operand is None else _digest(np.packbits(np.asarray(operand) == 0))
        elif op.pull(position) is NON_DIFFERENTIABLE:
            yield position, _digest(constant(record, position))


def _digest(value: Any) -> Any:
    """Return something hashable that is equal for equal parameters; arrays may be written later, so not the array."""
    if isinstance(value, Value):
        value = value.array
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, hash(value.tobytes())
    if isinstance(value, tuple | list):
        return type(value).__name__, *map(_digest, value)
    if isinstance(value, dict):
        return "dict", *((key, _digest(item)) for key, item in value.items())
    if isinstance(value, slice):
        return "slice", value.start, value.stop, value.step
    try:
        hash(value)
    except TypeError:
        return object()  # Equal to nothing: the pattern is found anew.
    return type(value).__name__, value
