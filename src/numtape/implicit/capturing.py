"""Tensors that a function takes from outside: find them, lead them elsewhere, and notice what leaves the tape."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.apply import watch_on_use
from ..core.context import current, entered, settle
from ..core.gradients import link_of
from ..core.record import Record, call_site, describe_site
from ..core.scopes import Scope, aside
from ..core.value import Value
from ..errors import GradientError, LeavesTapeError
from ..exits import noted_exits
from ..transforms.custom import captured_by

#: What a user's line may call to ask for the array of a tensor.
_LIBRARIES = ("numtape", "numpy", "scipy")


class Watcher(Scope):
    """Notes the tracked tensors that ops take from outside; links to those that it knows it leads to stand-ins.

    A stand-in is a source of its own: what a sweep finds there is the part that went through this function alone,
    although the tensors that it stands for may be computed from one another.

    Args:
        inside: tensors that belong to the function.
        stand_ins: for links from outside, the tensors whose links to put in their place.
    """

    #: A loop that keeps states is one op, with what its steps take from outside as operands.
    skips_loops = True

    def __init__(self, inside: Iterable[Value] = (), stand_ins: Mapping[Any, Value] | None = None) -> None:
        self._stand_ins = {link: link_of(value) for link, value in (stand_ins or {}).items()}
        for value in (stand_ins or {}).values():
            if type(value.node) is Record:
                value.node.array = value.array  # Rules may read it there, and none said so when it was recorded.
        self._inside: set[Any] = {*map(link_of, inside), *self._stand_ins.values()}
        self._seen: dict[Any, Value] = {}

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Look at the operands of a record, and mend its links."""
        self._inside.add(record)
        for position, operand in enumerate(operands):
            if not isinstance(operand, Value) or operand.node is None:
                continue
            link = link_of(operand)
            if link in self._stand_ins:
                links = list(record.inputs)
                links[position] = self._stand_ins[link]
                record.inputs = tuple(links)
            elif link not in self._inside:
                self._seen.setdefault(link, operand)

    def look_at(self, results: Iterable[Any]) -> None:
        """Look at what a function returned: it may pass on a tensor from outside without any op."""
        for value in results:
            if isinstance(value, Value) and value.node is not None:
                link = link_of(value)
                if link not in self._inside and link not in self._stand_ins:
                    self._seen.setdefault(link, value)

    def led(self, value: Value) -> Any:
        """Return the link of a tensor, or that of its stand-in."""
        link = link_of(value)
        return self._stand_ins.get(link, link)

    def captured(self) -> list[Value]:
        """Return the tensors from outside that have no stand-in; not those that only a transform within tracked."""
        return [value for value in self._seen.values() if value.node is not None]


class Constants(Scope):
    """Makes constants of known tensors from outside, so that a solver may differentiate by its own variables alone."""

    def __init__(self, values: Iterable[Value]) -> None:
        self._links = set(map(link_of, values))

    def on_record(self, record: Record, operands: Sequence[Any]) -> None:
        """Put arrays in the place of links to the known tensors, and to what only depends on them."""
        links = list(record.inputs)
        for position, operand in enumerate(operands):
            if isinstance(operand, Value) and operand.node is not None and link_of(operand) in self._links:
                links[position] = operand.array
                record.needs &= ~(1 << position)
        record.inputs = tuple(links)
        if not record.needs:
            self._links.add(record)


@contextmanager
def cut_off(values: Iterable[Value]) -> Iterator[None]:
    """Let sweeps end at tensors that records of our own made, as if these were leaves."""
    settle(current())  # A tape that streams must pass these records while they are whole.
    records = [value.node for value in values if type(value.node) is Record]
    before = [(record.inputs, record.needs) for record in records]
    for record in records:
        record.inputs, record.needs = (), 0
    try:
        yield
    finally:
        for record, (inputs, needs) in zip(records, before, strict=True):
            record.inputs, record.needs = inputs, needs


@contextmanager
def on_tape(what: str) -> Iterator[None]:
    """Raise if a tracked tensor becomes a plain number or array inside: its part in derivatives would be lost."""
    try:
        with noted_exits() as noted:
            yield
    except LeavesTapeError as error:
        if error.how is None:
            raise  # Somebody inside has said already who did it.
        raise _named(what, error) from error
    # The function, since the time of a differential equation is a tensor in some runs and a number in others.
    noted.check(what, "Compute with nt or np functions, and take nt.detach of what is only looked at.")


def _named(what: str, error: LeavesTapeError) -> LeavesTapeError:
    """Return the error of a tensor that may not become an array, with the function and the line that asked for it."""
    return LeavesTapeError(
        f"{what} would leave the tape by {error.how} at {_site(error)}, so a part of its derivative would be "
        "lost. Join tensors by nt.stack([...]), or return them as a list, in the place of np.array([...]); compute "
        f"with nt or np functions, and take nt.detach of what is only looked at.{error.hint}"
    )


def _site(error: Exception) -> str:
    """Return the innermost line of a user's on the way to an error."""
    inner = error.__traceback__
    assert inner is not None
    while inner.tb_next is not None:
        inner = inner.tb_next
    frame = inner.tb_frame
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return describe_site(*call_site(frame))


def watch_captured(function: Callable[..., Any]) -> None:
    """Let tapes that watch everything watch what a function refers to: they do not see it run."""
    state = current()
    if state.grad and state.watch_all:
        for value in captured_by(function):
            watch_on_use(state, value)


def refers_to_tensors(function: Callable[..., Any]) -> bool:
    """Return whether a function refers to a tensor, tracked or not; by itself, or by functions of its closure."""
    known: set[Any] = set()
    waiting = [function] if inspect.isfunction(function) else []
    while waiting:
        each = waiting.pop()
        known.add(each)
        if next(captured_by(each), None) is not None:
            return True
        within = inspect.getclosurevars(each).nonlocals.values()
        waiting += [other for other in within if inspect.isfunction(other) and other not in known]
    return False


def check_known(what: str, watcher: Watcher) -> None:
    """Raise if a function that ran again took other tensors from outside than the first time."""
    for value in watcher.captured():
        shown = repr(value.name) if value.name else f"a tensor of shape {value.shape}"
        raise GradientError(
            f"{what} used {shown} when it ran again for its derivative, and did not when it ran first, so "
            "that gradient would be lost. Pass what changes as an argument."
        )


def alone(grad: bool) -> entered:
    """Return a block in which functions run for themselves, recorded or not: nobody outside differentiates them."""
    # What is recorded is differentiated here, as by a transform: tapes inside must record their gradients too.
    return aside(grad=grad, transforms=int(grad))
