"""Explain a loss or a gradient that is not finite, after the fact: where it began, why, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.cells import FREED
from ..core.context import current, entered
from ..core.gradients import link_of, seed_of
from ..core.graph import collect, graph_of
from ..core.recompute import Made
from ..core.record import Link, Record, describe_site, link_name
from ..core.value import Lifted, Value
from ..errors import OperandError
from .birth import Birth, Seen, first_bad, is_finite
from .diagnosis import about_parameter, diagnose, written
from .doubts import find_doubts, is_current, values_in_use
from .loop_search import look_inside
from .replay import Obstacle
from .search import behind, has_hooks, search_cotangents, search_values


@dataclass(frozen=True)
class Explanation:
    """Where a value that is not finite began. It is false if everything is finite, and prints as a few lines.

    Attributes:
        direction: "forward", "backward", "unknown" if something that would tell is gone, or "none" if all is finite.
        number: the record, as `nt.summary` of the loss numbers them; None if no record made the value.
        op: the name of the op.
        site: the user's line that ran it.
        index: the first offending element, of the op's result; of an operand that was given so, if the op is not
            elementwise; of the operand's gradient in the backward; of what is still held if the direction is "unknown".
        value: that element.
        operands: the operands there, as they were; in the backward with the cotangent that came in, as the last.
        cause: what happened.
        repair: what to do about it.
    """

    direction: str
    cause: str
    repair: str = ""
    number: int | None = None
    op: str = ""
    site: str = ""
    index: tuple[int, ...] | None = None
    value: float | None = None
    operands: tuple[Seen, ...] = ()

    def __bool__(self) -> bool:
        return self.direction != "none"

    def __str__(self) -> str:
        if not self:
            return self.cause
        lines = [self._heading()]
        lines += [f"  {seen}" for seen in self.operands]
        lines += [f"Cause: {self.cause}", f"Repair: {self.repair}"]
        return "\n".join(lines)

    def _heading(self) -> str:
        record = f"record %{self.number}, {self.op} at {self.site}"
        if self.direction == "unknown":
            ended = f"The search ended at {record}." if self.number is not None else ""
            if self.value is None and self.number is not None:
                return f"Where a value stops being finite, if one does, cannot be said. {ended}"
            return f"What is not finite cannot be followed to where it began. {ended}".rstrip()
        element = f"{self.value:g} at index {self.index}" if self.index else f"{self.value:g}"
        if self.number is None:
            return f"{element} in a tensor that no op made" + (f", written at {self.site}." if self.site else ".")
        of = {"forward": "value", "backward": "gradient"}[self.direction]
        return f"The first {of} that is not finite is {element}, in the {self.direction} of {record}."


def explain_nan(tensor: Any, *, loss: Any = None, gradient: Any = None) -> Explanation:
    """Explain why a loss, a gradient or a parameter's gradient is not finite. Nothing needs to be switched on before.

    Values that were dropped, or that a backward has freed, are computed again; nothing is delivered, freed or changed.
    Hooks are called again only if nothing else explains it.
    What cannot be computed again, because an operand is gone or was overwritten since, is named and not guessed.

    Args:
        tensor: the loss; or a parameter or a tensor that retains its gradient, for its ``.grad``; or that gradient.
        loss: what a gradient is of. By default it is the target of the thread's last backward, while it is held.
        gradient: the cotangent that the backward of the loss started from. By default it is that of the thread's last
            backward, if it was of this loss, and else ones.

    Returns:
        An `Explanation`: false if everything is finite.

    Raises:
        OperandError: if `tensor` is not a tensor.

    Example:
        >>> x = nt.tensor([1.0, 0.0], requires_grad=True)
        >>> loss = nt.sqrt(x).sum()
        >>> loss.backward()
        >>> found = nt.explain_nan(loss)
        >>> found.direction, found.op, found.index
        ('backward', 'sqrt', (1,))
        >>> print(found.cause)
        the derivative of sqrt by x is inf where x = 0.
    """
    for name, given in (("tensor", tensor), ("loss", loss)):
        if (given is not None or name == "tensor") and (not isinstance(given, Value) or isinstance(given, Lifted)):
            raise OperandError(
                f"explain_nan: {name} must be a tensor (the loss, a gradient or a parameter), not "
                f"{type(given).__name__}."
            )
    with entered(scopes=(), observers=()), np.errstate(all="ignore"):
        retained = tensor.extras.grad if tensor.extras is not None else None
        # Of a tensor that kept its gradient, this is what is asked about, if its value is finite.
        if type(tensor.node) is Record and (is_finite(retained) or not is_finite(tensor.array)):
            found = explain_target(tensor, gradient)
            return found or _explain_delivered(tensor) or found
        return _explain_source(tensor, loss, gradient)


def explain_target(target: Any, gradient: Any = None, wanted: Link | None = None) -> Explanation:
    """Explain a tensor that ops made: its value if that is not finite, else its gradients (that of `wanted` only)."""
    records = collect([target.node])
    known = values_in_use(records, target)
    if is_current(target) and is_finite(target.array):
        delivered = _delivered(target, records)
        if gradient is None:
            gradient, is_gone = _last_seed(target)
            if is_gone:
                return _FINITE_SO_FAR if delivered and all(map(is_finite, delivered.values())) else _STARTED_ELSEWHERE
        seed = seed_of("explain_nan", target, gradient)
        origin = search_cotangents(records, seed, known, wanted, delivered=delivered)
        if isinstance(origin, Obstacle) and delivered and wanted is None and all(map(is_finite, delivered.values())):
            return _FINITE_SO_FAR
        if origin is None and has_hooks(records):
            origin = search_cotangents(records, seed, known, wanted, calls_hooks=True)
    else:
        origin = search_values(records[::-1], known)
        if isinstance(origin, Obstacle) and origin.value is None and not is_finite(target.array):
            index, value = first_bad(target.array)
            origin = replace(origin, index=index, value=value)
    if origin is not None:
        return explained(origin, records, known)
    return _all_finite(records)


def _delivered(target: Any, records: Sequence[Record]) -> dict[Value, NDArray] | None:
    """Return the gradients that a backward of a target gave to leaves and that are still so; None without one."""
    is_last = any(target is last for last in _last_target())
    if not is_last and target.node.cell is not FREED:
        return None
    if not is_last or has_hooks(records):
        return {}  # Others may be there instead.
    leaves = {link for record in records for link in record.inputs if isinstance(link, Value)}
    gradients = {leaf: leaf.extras.grad for leaf in leaves if leaf.extras is not None and leaf.extras.grad is not None}
    return {leaf: grad.array for leaf, grad in gradients.items() if grad.version is None or not grad.version[0].count}


def _all_finite(records: Sequence[Record]) -> Explanation:
    return Explanation("none", f"Every value of the {len(records)} records and every gradient of them is finite.")


#: What is said of a loss whose operands were overwritten since, as an optimizer's step does.
_FINITE_SO_FAR = Explanation(
    "none", "The loss and the gradients that its backward gave are finite; the rest can no longer be looked at."
)
#: What is said of a loss whose backward was given a gradient that nobody holds any more.
_STARTED_ELSEWHERE = Explanation(
    "unknown",
    "the backward started from a gradient that was given and is no longer held; what is not finite depends on it.",
    "give it here, too: nt.explain_nan(loss, gradient=gradient).",
)


def _explain_delivered(target: Value) -> Explanation:
    """Say whether gradients that a backward of a target delivered contradict those that are finite when run again."""
    records, leaves = graph_of([link_of(target)])
    if any(target is last for last in _last_target()):
        for leaf in leaves:
            if isinstance(leaf, Value) and leaf.extras is not None and not is_finite(leaf.extras.grad):
                return _explain_other(target, leaf)
    return _all_finite(records)


def explained(origin: Birth | Obstacle, records: Sequence[Record], known: Made | None = None) -> Explanation:
    """Put what a search found among some records into words; `known` are outputs that the caller has."""
    if isinstance(origin, Birth):
        origin = behind(origin, known or {})
    record = origin.record
    number = sum(other.index < record.index for other in records)
    if isinstance(origin, Obstacle):
        cause, repair = f"{origin.text}.", origin.repair
        if origin.lead is not None:
            suspicion, repair = diagnose(origin.lead, records)
            cause += f" What can still be computed points to {origin.lead.record.site}: {suspicion}"
        return Explanation("unknown", cause, repair, number, record.op.name, record.site, origin.index, origin.value)
    step = look_inside(origin)
    if step is not None:
        found = explained(step.origin, step.records)
        where = f"in step {step.number} of the {step.length} of {record.op.name} at {record.site}"
        return replace(found, number=number, cause=f"{where}: {found.cause}")
    cause, repair = diagnose(origin, records)
    if origin.read_by is not None:
        reader = origin.read_by
        cause += (
            f" It does not reach what was asked about, but the derivative of {reader.record.op.name} at "
            f"{reader.record.site} reads it, and becomes {reader.value:g}."
        )
    if origin.unsure:
        cause += f" That is so if {origin.unsure} was not written since: nothing that is held tells."
    operands = origin.operands if origin.cotangent is None else (*origin.operands, origin.cotangent)
    return Explanation(
        origin.direction, cause, repair, number, record.op.name, record.site, origin.index, origin.value, operands
    )


def _explain_source(tensor: Value, loss: Any, gradient: Any) -> Explanation:
    """Explain a gradient, or a tensor with one: a leaf, or what `retain_grad` was called of."""
    found = tensor.extras.grad if tensor.extras is not None else None
    if is_finite(tensor.array) and is_finite(found):
        return Explanation("none", "Every element of the tensor is finite, and so is its gradient, if it has one.")
    targets = [loss] if loss is not None else _last_target()
    for target in targets:
        owner = _owner_of(target, tensor)
        # What a step has made of the owner since is no reason not to look.
        if owner is not None and (owner is not tensor or is_finite(owner.array)):
            return explain_target(target, gradient, link_of(owner)) or _explain_other(target, owner)
    if not is_finite(tensor.array):
        return _explain_given(tensor, targets if loss is not None else [], gradient)
    reason, repair = _why_unknown()
    return Explanation("unknown", f"the gradient of {link_name(tensor)} is not finite, and {reason}.", repair)


def _why_unknown() -> tuple[str, str]:
    """Say why the loss of a gradient is not known, and what to do."""
    reference = current().thread.last_target
    if reference is None:
        reason = "no backward ran in this thread: it ran in another one, whose loss is not known here"
    elif reference() is None:
        reason = "the loss of this thread's last backward is no longer held"
        return reason, "keep the loss and ask for it: nt.explain_nan(loss)."
    else:
        reason = "the loss of this thread's last backward does not depend on it: it is of another one"
    return reason, "give the loss, too: nt.explain_nan(x, loss=loss)."


def _last_target() -> list[Any]:
    """Return the target of the thread's last reverse sweep, if somebody still holds it."""
    reference = current().thread.last_target
    target = None if reference is None else reference()
    return [] if target is None or type(target.node) is not Record else [target]


def _last_seed(target: Value) -> tuple[Any, bool]:
    """Return the cotangent that the thread's last backward of a tensor began with, None for ones; and if it is gone."""
    last = current().thread.last_target
    if last is None or last() is not target or last.seed is None:
        return None, False
    seed = last.seed if isinstance(last.seed, np.ndarray) else last.seed()
    return seed, seed is None


def _owner_of(target: Value, tensor: Value) -> Any:
    """Return the tensor behind a target that a tensor is, or that it is the gradient of."""
    records, owners = graph_of([link_of(target)])
    for record in records:
        retained = record.notes.retained() if record.notes is not None and record.notes.retained is not None else None
        owners.append(tensor if record is tensor.node else retained)
    for owner in owners:
        if isinstance(owner, Value) and (owner is tensor or (owner.extras is not None and owner.extras.grad is tensor)):
            return owner
    return None


def _explain_other(target: Value, owner: Value) -> Explanation:
    """Explain a gradient that is not finite while a backward of its target, run again, gives a finite one."""
    assert owner.extras is not None
    gradient = owner.extras.grad
    records = collect([link_of(target)])
    doubts = find_doubts(records[::-1], values_in_use(records, target))
    if doubts is not None and doubts.differing and gradient is not None:
        index, value = first_bad(gradient.array)
        obstacle = doubts.obstacle(next(iter(doubts.differing)))
        return explained(replace(obstacle, index=index, value=value), records)
    return Explanation(
        "unknown",
        f"computed again, the gradient of {link_name(owner)} by this loss is finite: what is not came from another "
        f"backward that was added to .grad, from a hook, or from a write{written(gradient)}; or a NumPy array "
        "that an op read was overwritten since.",
        "call zero_grad() before each backward, or ask after each one, before arrays are written; nt.detect_anomaly() "
        "raises at the first.",
    )


def _explain_given(tensor: Value, losses: Sequence[Any], gradient: Any) -> Explanation:
    """Explain a tensor that is not finite itself and has no history here."""
    for loss in losses:
        if type(loss.node) is Record:
            return explain_target(loss, gradient)
    index, value = first_bad(tensor.array)
    is_written = bool(written(tensor))
    site = ""
    if is_written:
        assert tensor.version is not None
        site = describe_site(tensor.version[0].code, tensor.version[0].lasti)
    is_parameter = tensor.requires_grad
    return Explanation(
        "forward",
        f"{link_name(tensor)} holds what it was given, or what was written to it; no op recorded how.",
        about_parameter()
        if is_parameter
        else "look at where it was made; of a gradient, ask with its loss: nt.explain_nan(gradient, loss=loss).",
        site=site,
        index=index,
        value=value,
    )
