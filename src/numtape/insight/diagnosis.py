"""Name the cause of a value that is not finite, and its repair, by what the values look like and what the op says."""

from collections.abc import Callable, Sequence
from math import isfinite, isinf, isnan
from typing import Any

import numpy as np

from .._typing import Dtype
from ..core.jacobian import size_of
from ..core.op import Op, shape_of
from ..core.record import Gone, Record, describe_site, link_name
from ..core.value import Value
from ..dtypes import float16, float64
from .birth import Birth, Seen, largest
from .repairs import cause_of, find_mask, is_in_domain, select_twice, select_where_differentiable
from .replay import argument_name

Diagnosis = tuple[str, str]


def diagnose(birth: Birth, records: Sequence[Record]) -> Diagnosis:
    """Return the cause of what is not finite, and the repair.

    Args:
        birth: where it began.
        records: the graph around, in which a mask may be found.
    """
    if birth.how != "computed":
        return _NOT_COMPUTED[birth.how](birth)
    return _in_backward(birth, records) if birth.direction == "backward" else _in_forward(birth)


def _given(birth: Birth) -> Diagnosis:
    record, position = birth.record, birth.position
    assert position is not None
    link = record.inputs[position]
    is_parameter = bool(record.needs >> position & 1)
    link = link.operand if type(link) is Gone else link
    name = argument_name(record, position)
    what = f"{name!r}, {link_name(link)}," if not np.isscalar(link) else f"the number {birth.value} given as {name!r}"
    cause = f"{what} was not finite before {record.op.name} read it{written(link)}."
    return cause, about_parameter() if is_parameter else _about_data(isinf(birth.value))


def written(link: object) -> str:
    """Say where a tensor was last written in place, if it was."""
    if isinstance(link, Value) and link.version is not None and link.version[0].count:
        version = link.version[0]
        return f"; it was last written at {describe_site(version.code, version.lasti)}"
    return ""


def about_parameter() -> str:
    """Return the repair for a parameter that is not finite."""
    return (
        "look at the step before, in which it became so: run that backward inside of nt.detect_anomaly(), which raises "
        "before the optimizer steps. Often the learning rate is too high, or nt.clip_grad_norm is missing."
    )


def _about_data(is_infinite: bool) -> str:
    if is_infinite:
        return "use a large finite number in its place, or mask it with nt.where before it is computed with."
    return "clean the data before it is used: drop such rows, or replace the elements with nt.nan_to_num."


def _arrived(birth: Birth) -> Diagnosis:
    notes = birth.record.notes
    if notes is not None and notes.hooks:
        return _by_hook(notes.hooks[0], f"the result of {birth.record.op.name}")
    return (
        "the gradient that the sweep started from is not finite.",
        "give backward a finite gradient, or none for ones.",
    )


def _hooked(birth: Birth) -> Diagnosis:
    assert birth.position is not None
    leaf: Any = birth.record.inputs[birth.position]
    return _by_hook(leaf.extras.hooks, link_name(leaf))


def _by_hook(hooks: dict[int, Any], of: str) -> Diagnosis:
    names = [_function_name(hook) for hook in hooks.values()]
    who = f"the hook {names[0]}" if len(names) == 1 else f"one of the hooks {', '.join(names)}"
    return (
        f"{who} on {of} returned a gradient that is not finite.",
        "look at what the hook computes; it was given a finite gradient.",
    )


def _function_name(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def _added(birth: Birth) -> Diagnosis:
    assert birth.position is not None
    dtype = birth.record.inputs[birth.position].dtype
    return (
        "overflow of .grad when this gradient was added to what it held from an earlier backward: the sum is "
        f"{_beyond(birth.exact, dtype)}.",
        "call zero_grad() before each backward; to add up gradients, scale the losses down or keep the tensor in "
        "float32.",
    )


def _rounded(birth: Birth) -> Diagnosis:
    assert birth.position is not None
    dtype = birth.record.inputs[birth.position].dtype
    return (
        "overflow of the gradient when it was rounded to the dtype of its tensor: it is "
        f"{_beyond(birth.exact, dtype)}.",
        "scale the loss down, keep the tensor in float32, or use bfloat16, which reaches as far as float32.",
    )


_NOT_COMPUTED: dict[str, Callable[[Birth], Diagnosis]] = {
    "given": _given,
    "arrived": _arrived,
    "hooked": _hooked,
    "rounded": _rounded,
    "added": _added,
}


def _in_forward(birth: Birth) -> Diagnosis:
    op = birth.record.op
    shown = _shown(birth.operands)
    if birth.infinity is None and not _is_inside(op, birth.operands):
        values = {seen.name: seen.value or 0.0 for seen in birth.operands}
        if is_in_domain(op, {name: float(f"{value:g}") for name, value in values.items()}):
            # Six digits do not show that it is outside, as of a cosine that was rounded to a little more than 1.
            shown = " and ".join(f"{name} = {float(value)!r}" for name, value in values.items())
        return (
            f"{op.name} is finite where {op.facts.domain}, and here {shown}.",
            "bound the operand before the op, with nt.clip or a small number that is added; or, if that element is not "
            f"used, {select_twice(birth)}",
        )
    if birth.lacks_eps:
        assert birth.record.params is not None
        return (
            f"division by a standard deviation of 0: elements that {op.name} divides by theirs are all equal, and eps "
            f"is {birth.record.params['eps']:g}.",
            "give a positive eps, such as 1e-5, or leave out what does not vary.",
        )
    if birth.exact is not None:
        dtype = birth.record.dtype[0] if isinstance(birth.record.dtype, list) else birth.record.dtype
        if abs(birth.exact) <= largest(dtype):
            return (
                f"overflow on the way: the value is {_short(birth.exact)}, but to get there {op.name} adds up or "
                f"multiplies numbers beyond the largest {dtype}, {largest(dtype):.4g}.",
                _about_overflow(dtype),
            )
        return (
            f"overflow: the value is {_beyond(birth.exact, dtype)}.",
            _about_overflow(dtype),
        )
    if birth.infinity is not None:
        source = birth.infinity
        assert source.position is not None
        name = argument_name(source.record, source.position)
        return (
            f"inf - inf, 0 * inf or inf / inf in {op.name}: among its operands are infinities, which came in as "
            f"{name!r} of {source.record.op.name} at {source.record.site}.",
            "if it is a mask, let no row be masked as a whole, or mask with a large finite number (-1e9); otherwise "
            "keep infinities out of the data.",
        )
    if any(0 in shape_of(link) for link in birth.record.inputs if link is not None):
        return (
            f"{op.name} of no elements: {shown}.",
            "look at what left none: a selection, a mask or an empty batch.",
        )
    params = birth.record.params or {}
    freedom = params.get("correction") or params.get("ddof") or 0
    if freedom and (count := size_of(birth.record.inputs[0]) // size_of(birth.record)) <= freedom:
        return (
            f"division by zero degrees of freedom: {op.name} is of {count} elements, and {freedom} are taken off.",
            "take ddof=0, or the deviation of more elements.",
        )
    return (
        f"{op.name} is not finite for these operands: {shown}.",
        "look at what made the operands: a wider dtype does not help.",
    )


def _about_overflow(dtype: Dtype) -> str:
    if dtype == float16:
        return "compute this in float32 (x.astype(nt.float32)) or bfloat16, or scale down before."
    wider = "" if dtype == float64 else ", or compute in float64"
    return (
        "keep the operands small: subtract the maximum before an exponential (nt.logsumexp, nt.softmax and "
        f"nt.log_softmax do), work with logarithms, take means instead of sums{wider}."
    )


def _in_backward(birth: Birth, records: Sequence[Record]) -> Diagnosis:
    op = birth.record.op
    assert birth.position is not None
    name = argument_name(birth.record, birth.position)
    derivative = f"the derivative of {op.name} by {name}"
    if birth.is_overflow:
        return (
            f"overflow: {derivative} times the cotangent that came in, or the sum of such products, exceeds the "
            "largest number of its dtype.",
            "scale the loss down, clip what grows on the way, or compute in a wider dtype.",
        )
    own = next((seen.value for seen in birth.operands if seen.name == name), None)
    if birth.derivative is None or isfinite(birth.derivative) or own is None:
        kinks = f" It has no derivative {op.facts.kinks}." if op.facts.kinks else ""
        return (
            f"{derivative} is not finite for these operands: {_shown(birth.operands)}.{kinks}",
            "keep the operands away from there, by a small number that is added or subtracted, or by nt.where, before "
            "the op.",
        )
    at = f"{derivative} is {birth.derivative:g} where {_shown(birth.operands)}"
    if birth.cotangent is not None and birth.cotangent.value == 0 and birth.member is None:
        mask = find_mask(birth.record, records)
        under, why, by = "", "what follows has the derivative 0 there, or does not use the result", ""
        if mask is not None:
            under, why = " under a mask", "the result is not used there"
            by = f" ({mask.record.op.name} at {mask.record.site} masks it)"
        return (
            f"0 * {birth.derivative:g}{under}: {at}; {why}, so the cotangent that comes in is 0{by}, and 0 times that "
            "is nan.",
            select_where_differentiable(birth, cause_of(birth), mask, is_used=mask is None),
        )
    name = cause_of(birth)
    own = next(seen.value for seen in birth.operands if seen.name == name)
    away = f"away from {own:g}, by a small number that is added or subtracted before the op"
    product = ""
    if birth.cotangent is not None and birth.cotangent.value == 0:
        number = ", ".join(map(str, birth.member or ()))
        product = (
            f"; the cotangent that comes in for row {number} of the derivative is 0 there, and 0 times that is nan"
        )
    return (
        f"{at}{product}.",
        f"keep {name} {'where that derivative exists' if isnan(birth.derivative) else away}; or, if that element is "
        f"not used, {select_where_differentiable(birth, name)}",
    )


def _short(number: Any) -> str:
    # Of a number beyond float64, `format` makes an infinity.
    return np.format_float_scientific(number, precision=3, trim="-").replace(".e", "e")


def _beyond(number: Any, dtype: Any) -> str:
    """Return a number and the largest one of a dtype, with so many digits that they differ."""
    most = largest(dtype)
    for precision in (3, 8, 16):
        number_text, most_text = (
            np.format_float_scientific(each, precision=precision, trim="-").replace(".e", "e")
            for each in (number, most)
        )
        if number_text != most_text:
            break
    return f"{number_text}, and the largest {dtype} is {f'{most:.4g}' if precision == 3 else most_text}"


def _shown(operands: Sequence[Seen]) -> str:
    return " and ".join(
        f"{seen.name} = {seen.value:g}"
        if seen.value is not None
        else f"{seen.name} of shape {seen.shape}" + (f" from {seen.span[0]:g} to {seen.span[1]:g}" if seen.span else "")
        for seen in operands
    )


def _is_inside(op: Op, operands: Sequence[Seen]) -> bool:
    """Say whether the operands lie where the op says that it is finite."""
    values = {seen.name: seen.value for seen in operands}
    if not op.facts.domain or None in values.values():
        return True
    return is_in_domain(op, values)
