"""The place where a value that is not finite came to be: which op, which element, from which operands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import PICK
from ..core.computing import compute
from ..core.op import Rule
from ..core.reader import Reader
from ..core.record import Gone, Record, link_name
from ..core.value import Lifted, Value, array_of
from ..dtypes import FLOAT_DTYPES, float64, widened
from ..errors import GradientError, NumtapeError
from .replay import ObstacleMet, argument_name


@dataclass(frozen=True)
class Seen:
    """An operand, or the cotangent that came in, as it was where the value was born."""

    name: str
    shape: tuple[int, ...]
    #: The element at that place; None if all elements may have taken part.
    value: float | None
    #: The least and the greatest element; None of an empty operand.
    span: tuple[float, float] | None
    #: What made it: an op and its line, or a tensor's name.
    maker: str = ""

    @property
    def is_finite(self) -> bool:
        """Whether the element at that place, or each of all elements, is finite."""
        return bool(np.isfinite(self.value if self.value is not None else self.span or 0.0).all())

    def __str__(self) -> str:
        made = f", {self.maker}" if self.maker else ""
        if self.value is not None:
            return f"{self.name} = {self.value:.6g}{made}"
        span = f" from {self.span[0]:.6g} to {self.span[1]:.6g}" if self.span else " without elements"
        return f"{self.name} of shape {self.shape}{span}{made}"


@dataclass(frozen=True)
class Birth:
    """The first value that is not finite, and what it was computed from."""

    record: Record
    direction: str
    #: "computed" from finite operands; "given" as the operand at `position`; "arrived" at the record as a cotangent;
    #: "rounded" when the gradient of the operand at `position` got its dtype; "added" when it was added to ``.grad``;
    #: "hooked" by a hook on that operand.
    how: str
    index: tuple[int, ...]
    value: float
    position: int | None = None
    operands: tuple[Seen, ...] = ()
    cotangent: Seen | None = None
    #: Backward, elementwise: the derivative at that place.
    derivative: float | None = None
    #: Backward, elementwise: the operands by name, repeated to the shape of the result, and where the derivative, or
    #: its product with the cotangent, is not finite.
    values: Mapping[str, NDArray] = field(default_factory=dict, compare=False)
    bad: NDArray | None = field(default=None, compare=False)
    #: Backward: the cotangent of the output that came in.
    g: Any = field(default=None, compare=False)
    #: Backward, of a batch of cotangents: the number of the one that this is about.
    member: tuple[int, ...] | None = None
    #: What it would be in a wider dtype, where that is finite.
    exact: Any = None
    #: Backward: whether a smaller cotangent would have given a finite one.
    is_overflow: bool = False
    #: Whether a larger parameter `eps`, which is added to what the op divides by, would have given a finite value.
    lacks_eps: bool = False
    #: Where an infinity that is among the operands came in.
    infinity: "Birth | None" = None
    #: Forward, if the value does not reach what was asked about: where a derivative read it.
    read_by: "Birth | None" = None
    #: Names the NumPy arrays that this was computed from again, if nothing tells whether they were written since.
    unsure: str = ""


def is_finite(x: Any) -> bool:
    """Say whether all elements of a value, of several outputs or of their cotangents are finite."""
    if x is None:
        return True
    if isinstance(x, list | tuple):
        return all(map(is_finite, x))
    return bool(np.isfinite(array_of(x)).all())


def first_bad(array: Any) -> tuple[tuple[int, ...], float]:
    """Return index and value of the first NaN, else of the first infinity; of several arrays, in the first with one."""
    if isinstance(array, list | tuple):
        array = next(part for part in array if not is_finite(part))
    array = np.asarray(array_of(array))
    bad = np.isnan(array)
    if not bad.any():
        bad = ~np.isfinite(array)
    index = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
    return index, float(array[index])


def given(record: Record, position: int, array: Any, out: Any) -> Birth:
    """Describe an operand that was not finite to begin with; elementwise, with its first place in the result."""
    shape = None
    if record.op.is_elementwise and not isinstance(out, tuple):
        shape = out.shape
        spread = np.broadcast_to(array, shape)
        # Where the result is finite, as what `where` did not select, the operand did nothing.
        told = np.where(np.isfinite(out), 0.0, spread)
        index, value = first_bad(spread if is_finite(told) else told)
    else:
        index, value = first_bad(array)
    seen = _see(record, position, array, index, shape)
    return Birth(record, "forward", "given", index, value, position, (seen,))


def computed(record: Record, operands: Sequence[Any], out: Any, infinity: Birth | None = None) -> Birth:
    """Describe an output that is not finite, while the operands are (or hold an infinity that was meant)."""
    part = next(i for i, x in enumerate(out) if not is_finite(x)) if type(out) is tuple else None
    array = out if part is None else out[part]
    index, value = first_bad(array)
    place = index if record.op.is_elementwise else None
    seen = [_see(record, i, x, place, array.shape) for i, x in enumerate(operands) if x is not None]
    exact = _exactly(record, operands, part, index, array.dtype)
    return Birth(
        record,
        "forward",
        "computed",
        index,
        value,
        None,
        tuple(seen),
        exact=exact,
        lacks_eps=_lacks_eps(record, operands),
        infinity=infinity,
    )


def _lacks_eps(record: Record, operands: Sequence[Any]) -> bool:
    """Say whether an op with a parameter `eps` gives finite values if that is 1."""
    params = record.params or {}
    return "eps" in params and is_finite(compute(record.op, list(operands), {**params, "eps": 1.0}))


def _see(
    record: Record, position: int, array: Any, index: tuple[int, ...] | None, shape: tuple[int, ...] | None = None
) -> Seen:
    """Describe an operand, with its element at `index` of `shape` (that of the operand itself by default)."""
    return _describe(argument_name(record, position), array, index, shape, _maker(record.inputs[position]))


def _describe(
    name: str, array: Any, index: tuple[int, ...] | None, shape: tuple[int, ...] | None = None, maker: str = ""
) -> Seen:
    if isinstance(array, tuple):  # All outputs of an op that has several; the next record picks one.
        array = np.concatenate([np.ravel(part) for part in array])
    array = np.asarray(array)
    value = None
    if index is not None:
        value = float((array if shape is None else np.broadcast_to(array, shape))[index])
    span = (float(array.min()), float(array.max())) if array.size else None
    return Seen(name, array.shape, value, span, maker)


def _maker(link: Any) -> str:
    link = link.operand if type(link) is Gone else link
    if type(link) is Record:
        return f"made by {link.op.name} at {link.site}"
    return f"the tensor {link_name(link)!r}" if isinstance(link, Value) and link.name else ""


def _exactly(record: Record, operands: Sequence[Any], part: int | None, index: tuple[int, ...], dtype: Any) -> Any:
    """Return the element as a wider dtype has it, if it is finite there."""
    for wide in (float64, np.longdouble):
        arrays = [_widened(x, wide) for x in operands]
        params = record.params or {}
        try:
            # The engine knows no wider dtype than float64, but the ufuncs behind elementwise ops may.
            out = compute(record.op, arrays, params) if wide is float64 else record.op.forward(*arrays, **params)
            exact = (out if part is None else out[part])[index]
        except (NumtapeError, TypeError, ValueError, IndexError):
            return None
        if np.isfinite(exact):
            return exact
        # An op that casts gives its own dtype, whatever it gets.
        for x in arrays if record.op.is_elementwise else ():
            if np.shape(x) == np.shape(out) and _exceeds(x[index], dtype):
                return x[index]
    return None


def _widened(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype in FLOAT_DTYPES else x


def _exceeds(value: Any, dtype: Any) -> bool:
    return bool(np.isfinite(value)) and abs(float(value)) > largest(dtype)


def largest(dtype: Any) -> float:
    """Return the largest finite number of a float dtype."""
    from ml_dtypes import finfo

    return float(finfo(dtype).max)  # type: ignore[no-untyped-call]


def pulled(record: Record, position: int, g: Any, cotangent: Any, reader: Reader) -> Birth:
    """Describe a cotangent of an operand that is not finite, while that of the output was.

    Args:
        record: the record whose rule ran.
        position: the operand.
        g: the cotangent of the output, finite.
        cotangent: that of the operand, with all that has arrived there.
        reader: reads what the rule reads.
    """
    index, value = first_bad(cotangent)
    if record.op is PICK:
        return Birth(record, "backward", "computed", index, value, position, is_overflow=True)
    member = None
    if isinstance(g, Lifted):
        extra = len(index) - len(record.inputs[position].shape)
        member, index = index[:extra], index[extra:]
        members = array_of(g)
        if members.shape[extra:] == record.shape:
            g = members[member]
        else:  # Not each has a cotangent of its own; the derivative tells as much.
            g, member = np.ones(record.shape, widened(record.dtype)), None
    g = [array_of(x) for x in g] if isinstance(g, list) else array_of(g)
    raw = array_of(_pull(record, position, g, reader))
    is_summed = is_finite(raw)
    is_overflow = is_summed or is_finite(_pull(record, position, _tiny(g), reader))
    arrays = [_operand(record, i, reader) for i in range(len(record.inputs))]
    is_local = record.op.is_elementwise and not is_summed and raw.shape == record.shape
    place = first_bad(raw)[0] if is_local else None
    derivative, values, bad = None, {}, None
    if place is not None:
        derivatives = array_of(_pull(record, position, np.ones_like(g), reader))
        derivative = float(derivatives[place])
        bad = ~(np.isfinite(derivatives) & np.isfinite(raw))
        values = {
            argument_name(record, i): np.broadcast_to(x, record.shape) for i, x in enumerate(arrays) if x is not None
        }
        index = _in_operand(place, np.shape(arrays[position]))
    shape = record.shape if is_local else None
    # Its gradient has the shape of the operand, so that this one is seen at the very place.
    places = [index if i == position and place is None else place for i in range(len(arrays))]
    seen = [_see(record, i, x, places[i], shape) for i, x in enumerate(arrays) if x is not None]
    incoming = None if isinstance(g, list) else _describe("the cotangent of its result", g, place)
    return Birth(
        record,
        "backward",
        "computed",
        index,
        value,
        position,
        tuple(seen),
        incoming,
        derivative,
        values,
        bad,
        g,
        is_overflow=is_overflow,
        member=member,
    )


def suspected(record: Record, reader: Reader) -> Birth | None:
    """Describe a derivative of an elementwise op that is not finite where its operands were, if there is one."""
    if not record.op.is_elementwise:
        return None
    ones = np.ones(record.shape, widened(record.dtype))
    for position in range(len(record.inputs)):
        if record.needs >> position & 1:
            derivative = _pull(record, position, ones, reader)
            if not is_finite(derivative):
                return pulled(record, position, ones, derivative, reader)
    return None


def _operand(record: Record, position: int, reader: Reader) -> Any:
    """Return an operand that the message shows; None if it cannot be had, which does not matter here."""
    link = record.inputs[position]
    try:
        return None if link is None else reader.operand(record, position)
    except (GradientError, ObstacleMet):
        return None


def _pull(record: Record, position: int, g: Any, reader: Reader) -> Any:
    """Run the rule of one operand alone: its result is not yet summed over the axes that were broadcast."""
    op = record.op
    rule = op.pull(position)
    assert isinstance(rule, Rule)
    g = tuple(g) if isinstance(g, list) else g
    if op.joint is not None and rule.function is op.joint.function:
        return op.joint.run(g, record, reader, 0)[position]
    return rule.run(g, record, reader, position)


def _tiny(g: Any) -> Any:
    """Return the smallest cotangents of the same signs: with them no product overflows, but 0 * inf is still nan."""
    if isinstance(g, list):
        return [None if x is None else _tiny(x) for x in g]
    return np.sign(g) * np.finfo(g.dtype).tiny


def _in_operand(place: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of the element that was repeated to `place`."""
    tail = place[len(place) - len(shape) :]
    return tuple(0 if length == 1 else i for i, length in zip(tail, shape, strict=True))


def rounded(record: Record, position: int, cotangent: NDArray, dtype: Any) -> Birth:
    """Describe a gradient that is finite until it gets the dtype of its tensor."""
    index, value = first_bad(cotangent.astype(dtype))
    return Birth(record, "backward", "rounded", index, value, position, exact=float(cotangent[index]))


def arrived(record: Record, g: Any) -> Birth:
    """Describe a cotangent that no rule made: a seed, or what a hook returned."""
    index, value = first_bad(g)
    return Birth(record, "backward", "arrived", index, value)


def added(record: Record, position: int, total: NDArray, dtype: Any) -> Birth:
    """Describe a gradient that is finite until it is added to what ``.grad`` holds; `total` is their wide sum."""
    index, value = first_bad(total.astype(dtype))
    return Birth(record, "backward", "added", index, value, position, exact=float(total[index]))


def hooked(record: Record, position: int, g: Any) -> Birth:
    """Describe the gradient of an operand, a leaf, that is finite until a hook of the leaf returns another one."""
    index, value = first_bad(g)
    return Birth(record, "backward", "hooked", index, value, position)
