"""Spell out, as code that runs, the repair that keeps elements away from an op: to select twice."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..core.computing import compute
from ..core.op import REQUIRED, Op
from ..core.record import Gone, Record
from ..core.reverse import reverse
from ..core.scopes import aside
from ..core.value import array_of, wrap
from ..tensors import Tensor
from .birth import Birth, Seen, is_finite
from .replay import argument_name

#: Operands of which one is harmless to every op that has a domain.
_HARMLESS = (0.5, 2.0)
#: How many ops after an op a mask of its result is looked for.
_MASK_DISTANCE = 4
#: So many single elements are excluded one by one.
_MOST_POINTS = 3
#: Where domains of ops end: a condition has to be right there too, although no element may be there now.
_BOUNDARIES = (-1.0, 0.0, 1.0)


def is_in_domain(op: Op, values: Mapping[str, Any]) -> bool:
    """Evaluate the domain of an op on values of its arguments."""
    return bool(_evaluate(op.facts.domain, values))


def _evaluate(condition: str, values: Mapping[str, Any]) -> Any:
    return eval(condition, {"__builtins__": {}, "abs": abs, "rint": np.rint, "isfinite": np.isfinite}, dict(values))


def select_twice(birth: Birth) -> str:
    """Return the repair for an op whose value is not finite: what gets through has a value and derivatives."""
    record = birth.record
    op, inside = record.op, _inside(record.op.facts.domain)
    names = [each for each in op.arguments if re.search(rf"\b{each}\b", inside)]
    grids = np.meshgrid(*map(_points, birth.operands))
    points = {seen.name: grid for seen, grid in zip(birth.operands, grids, strict=True)}
    for name, condition in [*((each, inside) for each in names), *((each, f"{each} > 0") for each in names)]:
        if _repairs(birth, name, condition, points):
            return _by_condition(record, name, condition, points)
    return _by_condition(record, names[0], _by_derivatives(record), points)


def _points(seen: Seen) -> list[float]:
    """Return numbers that stand for the elements of an operand: the one in question, and some from end to end."""
    assert seen.value is not None
    assert seen.span is not None
    low, high = seen.span
    between = [x for x in (low, *_BOUNDARIES, *_HARMLESS, high) if low <= x <= high and math.isfinite(x)]
    return [seen.value, *between]


def select_where_differentiable(birth: Birth, name: str, mask: "Mask | None" = None, is_used: bool = False) -> str:
    """Return the repair for a derivative that is not finite: no element at which it is so gets through.

    Args:
        birth: where it was met.
        name: the argument that is to be harmless, as `cause_of` tells.
        mask: what drops the result of such elements, if that was found.
        is_used: whether the result of such elements may be used, although its derivative is not: then it stays.
    """
    op, bad, values = birth.record.op, birth.bad, birth.values
    assert bad is not None
    selection = None if mask is None else mask.selection(bad)
    if mask is not None and selection is not None:
        return (
            f"select twice, so that the op never sees that element, by the mask of {mask.record.op.name}:\n"
            f"    safe = nt.where({selection}, {name}, {_harmless(op, name, '', values)})\n"
            f"    y = nt.where({selection}, {_call(birth.record, {name: 'safe'})}, {mask.instead})"
        )
    is_undefined = birth.derivative is not None and math.isnan(birth.derivative)
    instead = _value_there(birth) if is_used else "0.0"
    for condition in _conditions(op, name, values[name], bad, is_undefined):
        if not (_evaluate(condition, values) & bad).any() and _repairs(birth, name, condition, values):
            return _by_condition(birth.record, name, condition, values, instead)
    return _by_condition(birth.record, name, _by_derivatives(birth.record), values, instead)


def _value_there(birth: Birth) -> str:
    """Return the value of an op at the bad elements, as code."""
    record = birth.record
    assert birth.bad is not None
    operands = [birth.values.get(each) for each in record.op.arguments]
    found = np.unique(compute(record.op, operands, record.params or {})[birth.bad])
    if len(found) == 1:
        return _number(found[0]) if np.isfinite(found[0]) else f'float("{found[0]}")'
    tracked = _tracked(record)
    return _call(record, {each: f"{each}.detach()" for each in tracked})


def _repairs(birth: Birth, name: str, condition: str, values: Mapping[str, NDArray]) -> bool:
    """Try a repair: say whether all is finite with it, at the operands and where the argument is at a boundary."""
    op, tracked = birth.record.op, _tracked(birth.record)
    harmless = _harmless(op, name, condition, values)
    for own in (values[name], *(np.full_like(values[name], x) for x in _BOUNDARIES)):
        operands = {**values, name: own}
        own = _as_floats(own)
        operands[name] = np.where(_evaluate(condition, operands), own, np.asarray(harmless, own.dtype))
        out, derivatives = _derive(birth.record, operands, tracked)
        # In the backward, infinite values may be meant.
        if not is_finite(derivatives) or (birth.direction == "forward" and not is_finite(out)):
            return False
    return True


def _as_floats(array: NDArray) -> NDArray:
    """Return an array that can hold what is harmless, as `where` makes it of integers."""
    return array.astype(np.float64) if array.dtype.kind in "iub" else array


def _tracked(record: Record) -> list[str]:
    """Return the arguments that gradients are computed for."""
    return [argument_name(record, i) for i in range(len(record.inputs)) if record.needs >> i & 1]


def _derive(record: Record, values: Mapping[str, NDArray], names: Sequence[str]) -> tuple[Any, list[Any]]:
    """Return what the op of a record makes of other values of its arguments, and the derivatives by some of them."""
    op = record.op
    tensors = {each: wrap(Tensor, np.array(array)) for each, array in values.items()}
    for name in names:
        tensors[name].requires_grad = True
    with aside(grad=True, observers=()), np.errstate(all="ignore"):
        out = apply(op, [tensors.get(each) for each in op.arguments], record.params or {})
        found = reverse([(out.node, np.ones(out.shape, out.dtype))], [tensors[name] for name in names])
    return out, [found[tensors[name]] for name in names]


def _by_derivatives(record: Record) -> str:
    """Return the condition that asks the derivatives themselves."""
    tracked = _tracked(record)
    tests = []
    for by in tracked:
        call = _call(record, {each: f"{each}.detach()" for each in tracked if each != by})
        tests.append(f"nt.isfinite(nt.elementwise_grad(lambda {by}: {call})({by}.detach()))")
    return " & ".join(tests)


def cause_of(birth: Birth) -> str:
    """Return the argument that makes a derivative not finite: b of a / b, also where it is the derivative by a."""
    own = _differentiated(birth)
    arguments = [own, *(each for each in birth.record.op.arguments if each != own and each in birth.values)]
    return next((each for each in arguments if _is_harmless(birth, each)), own)


def _differentiated(birth: Birth) -> str:
    assert birth.position is not None
    return argument_name(birth.record, birth.position)


def _is_harmless(birth: Birth, name: str) -> bool:
    """Say whether the derivative is finite once an argument is harmless at the bad elements."""
    values = {each: np.array(array[birth.bad]) for each, array in birth.values.items()}
    values[name] = _as_floats(values[name])
    values[name][...] = _harmless(birth.record.op, name, "", birth.values)
    return is_finite(_derive(birth.record, values, [_differentiated(birth)])[1])


def _conditions(op: Op, name: str, own: NDArray, bad: NDArray, is_undefined: bool) -> Iterator[str]:
    """Yield conditions on an argument that may exclude the bad elements, the most telling first.

    Args:
        op: whose derivative is not finite there.
        name: that of the argument.
        own: its elements.
        bad: which of them are bad.
        is_undefined: whether the derivative is NaN and not infinite: then the bad ones are not just far out.
    """
    if op.facts.domain:
        yield op.facts.domain
        yield _inside(op.facts.domain)
    points = np.unique(own[bad])
    good = np.append(own[~bad], 0.0)
    if not np.isfinite(points).all():
        yield f"isfinite({name})"
        return
    if op.facts.domain or (is_undefined and points[-1] < 0):
        yield f"{name} > 0"
    # Beyond all others, away from zero, it is a region that overflows.
    if points[0] > good.max():
        yield f"{name} < {_number(points[0])}"
    if points[-1] < good.min():
        yield f"{name} > {_number(points[-1])}"
    if len(points) <= _MOST_POINTS:
        tests = [f"{name} != {_number(point)}" for point in points]
        yield tests[0] if len(tests) == 1 else " & ".join(f"({test})" for test in tests)


def _inside(domain: str) -> str:
    """Return a domain without its boundary, at which a derivative may not be finite."""
    return domain.replace("<=", "<").replace(">=", ">")


def _number(x: Any) -> str:
    short = f"{x:g}"
    return short if x.dtype.type(short) == x else repr(float(x))


def _by_condition(record: Record, name: str, condition: str, values: Mapping[str, Any], instead: str = "0.0") -> str:
    public = re.sub(r"(?<!\.)\b(rint|isfinite)\b", r"nt.\1", condition)
    inner = f"nt.where(ok, {name}, {_harmless(record.op, name, condition, values)})"
    return (
        "select twice, so that the op never sees that element:\n"
        f"    ok = {public}\n"
        f"    y = nt.where(ok, {_call(record, {name: inner})}, {instead})"
    )


def _call(record: Record, operands: Mapping[str, str]) -> str:
    """Return the call of a record's op as code: operands that are not given by name, parameters as they were."""
    op = record.op
    params = record.params or {}
    given = {name: repr(value) for name, value in params.items() if repr(op.defaults.get(name)) != repr(value)}
    # A parameter without a default may stand before the operands.
    by_name = any(op.defaults.get(name) is REQUIRED for name in given)
    parts = [f"{each}={operands.get(each, each)}" if by_name else operands.get(each, each) for each in op.arguments]
    return f"nt.{op.name}({', '.join([*parts, *(f'{name}={value}' for name, value in given.items())])})"


def _harmless(op: Op, name: str, condition: str, values: Mapping[str, Any]) -> float:
    """Return an operand at which the op and its derivative are finite."""
    others = dict.fromkeys(op.arguments, 1.0)
    tests = [_inside(op.facts.domain)] if op.facts.domain else []
    if condition and "nt." not in condition:
        tests.append(condition)
    for x in _HARMLESS:
        if all(_evaluate(test, {**others, name: x}) for test in tests):
            return x
    kept = np.ravel(values[name])[np.ravel(np.broadcast_to(_evaluate(tests[-1], values), np.shape(values[name])))]
    return float(kept[0]) if kept.size else _HARMLESS[0]


class Mask:
    """A record that drops elements of a result: it has an operand of bools.

    Args:
        record: the record.
        is_local: whether only elementwise ops lie between.
        other: what it takes in their place, if it is given the result itself.
    """

    def __init__(self, record: Record, is_local: bool, other: Any = None) -> None:
        self.record = record
        #: What takes the place of elements that are dropped, as code: it may as well take that of all of it.
        self.instead = "0.0" if other is None else _as_code(other)
        #: Whether only elementwise ops lie between, so that an element of the mask is about one of the result.
        self._is_local = is_local

    def selection(self, bad: NDArray) -> str | None:
        """Return ``mask`` or ``~mask``, whichever is false at all bad elements; None if neither is, or nobody knows."""
        link = next(link for link in self.record.inputs if _is_bool(link))
        array = array_of(link.operand if type(link) is Gone else link)
        if not self._is_local or type(array) is not np.ndarray or self.record.shape != bad.shape:
            return None
        chosen = np.broadcast_to(array, bad.shape)
        if not (chosen & bad).any():
            return "mask"
        return "~mask" if not (~chosen & bad).any() else None


def find_mask(record: Record, records: Sequence[Record]) -> Mask | None:
    """Return what masks the result of a record, if it is among the next few ops."""
    #: For each record that the result reaches, over how many ops, and whether these are all elementwise.
    reached: dict[Record, tuple[int, bool]] = {record: (0, True)}
    for other in sorted(records, key=lambda each: each.index):
        before = [reached[link] for link in other.inputs if type(link) is Record and link in reached]
        steps, is_local = min(before, default=(_MASK_DISTANCE, True))
        if steps < _MASK_DISTANCE:
            if any(map(_is_bool, other.inputs)):
                rest = [link for link in other.inputs if not _is_bool(link) and link is not record]
                is_direct = any(link is record for link in other.inputs)
                return Mask(other, is_local, rest[0] if is_direct and len(rest) == 1 else None)
            reached[other] = (steps + 1, is_local and other.op.is_elementwise)
    return None


def _as_code(link: Any) -> str:
    """Return an operand as code, if it is a number."""
    array = array_of(link.operand if type(link) is Gone else link)
    is_number = isinstance(array, float | int | np.ndarray | np.generic) and np.ndim(array) == 0
    return repr(float(array)) if is_number else "other"


def _is_bool(link: Any) -> bool:
    return getattr(link, "dtype", None) == np.bool_
