"""Write a graph and its gradient as NumPy code that runs without numtape."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.context import current, settle
from ..core.gradients import check_target, link_of
from ..core.record import Link, Record
from ..core.value import Value
from ..dtypes import HALF_DTYPES, float32
from ..errors import ArgumentError, FreedError, NotConnectedError, OperandError, OverwrittenError, UnsupportedError
from .doubts import find_doubts, values_in_use
from .replay import is_close
from .source_names import place_of
from .source_ops import READABLE
from .source_text import ModuleText
from .source_trace import Trace, Traced

#: How far, in units of the dtype's last digit, the code may be from the tape: 1e-12 in float64.
_TOLERANCE = 4096


class NumpySource(str):
    """The text of a module with the functions `forward` and `gradient`, and what they were recorded with.

    Attributes:
        arguments: the arrays of the recording, by the names of the functions' arguments.
        pasted: the names of the ops that are written as pasted kernels; the others are plain NumPy.
    """

    __slots__ = ("arguments", "pasted")

    arguments: dict[str, NDArray]
    pasted: tuple[str, ...]

    def load(self) -> dict[str, Any]:
        """Run the text in a namespace of its own, and return that: ``source.load()["gradient"](**arguments)``."""
        space: dict[str, Any] = {"__name__": "numpy_source"}
        exec(compile(self, "<numpy source>", "exec"), space)
        return space


def to_numpy_source(loss: Any, sources: Any = None, *, check: bool = True) -> NumpySource:
    """Return NumPy code of a tensor and of its derivatives, which runs without numtape.

    The code has a function ``forward(...)`` that returns the value, and ``gradient(...)`` that returns the value and a
    dictionary of its derivatives; the value's elements are summed if it is not scalar. Arguments are the leaves, under
    their names, named constants and large ones. Ops without a counterpart in NumPy are pasted with all that they use.
    What was not recorded is constant: shapes, indices, masks that the program computed, branches that it took, random
    keys. Masks that functions of numtape compute inside are computed again.

    Args:
        loss: a tensor.
        sources: the tensors by which to differentiate, one or several; None for all leaves.
        check: whether to run the code on what was recorded, and compare.

    Returns:
        The text, a string with the further attributes `arguments` and `pasted`.

    Raises:
        NotConnectedError: if the loss does not depend on something tracked, or not on a source.
        OverwrittenError: if a NumPy array was overwritten after an op had read it, as far as what is held can tell.
        UnsupportedError: if an op has no source that could be pasted, or the code does not compute what was recorded.

    Example:
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
        >>> source = nt.to_numpy_source((x * x).sum())
        >>> [line.strip() for line in source.splitlines() if line.startswith("    t1 =")]
        ['t1 = x * x', 't1 = x * x']
        >>> loss, gradients = source.load()["gradient"](np.array([3.0, 4.0]))
        >>> gradients["x"]
        array([6., 8.])
    """
    check_target("to_numpy_source", loss)
    return _write(link_of(loss), [loss], sources, check)


def tape_to_numpy_source(records: Sequence[Record], loss: Any, sources: Any, check: bool) -> NumpySource:
    """Return the code of what a tape recorded: of `loss`, or of the one result that no record of the tape reads."""
    if loss is not None:
        return to_numpy_source(loss, sources, check=check)
    read = {link for record in records for link in record.inputs if isinstance(link, Record)}
    results = [record for record in records if record not in read]
    if not results:
        raise ArgumentError("to_numpy_source: the tape is empty; record something first, or give the loss.")
    if len(results) > 1:
        places = "; ".join(place_of(record) for record in results[:3]) + ("; ..." if len(results) > 3 else "")
        raise ArgumentError(
            f"to_numpy_source: the tape has {len(results)} results that no op reads ({places}); give one as loss."
        )
    return _write(results[0], [], sources, check)


def _write(target: Link, given: Sequence[Value], sources: Any, check: bool) -> NumpySource:
    settle(current())
    try:
        trace = Trace(target)
    except FreedError as error:
        where = str(error).partition(": an earlier")[0]
        raise FreedError(
            f"to_numpy_source: {where} read a constant that a backward has freed; write the code before it, or call it "
            "with retain_graph=True."
        ) from error
    if check:
        _check_arrays(trace.records, given)
    loss = trace.values[target]
    if isinstance(loss, tuple) and isinstance(target, Record):
        raise ArgumentError(
            f"to_numpy_source: the last record, {target.op.name}, has several results; give one of them as loss."
        )
    # As in the tape's sweep, cotangents of halves are float32 until the end.
    seed = trace.given(np.ones(loss.shape, float32 if loss.dtype in HALF_DTYPES else loss.dtype))
    tensors = _as_tensors(sources)
    derivatives = _derivatives(trace, seed, tensors)
    pairs = ((link_of(tensor), tensor.name) for tensor in (*(tensors or ()), *given))
    names = {link: name for link, name in pairs if name is not None}
    expected = [loss.content, *(g.content for g in derivatives.values())]
    # Readable first; where rounding makes a difference, with NumPy functions that agree to the last bit only.
    for tolerance in (READABLE, 0.0):
        module = ModuleText(trace, loss, seed, derivatives, names, tolerance)
        source = NumpySource(module.text())
        source.arguments, source.pasted = module.arguments, module.pasted
        wrong = _wrong(source, expected) if check else None
        if wrong is None:
            return source
    raise UnsupportedError(
        f"to_numpy_source: the code written computes another {wrong} than the tape, which is a defect of numtape; "
        "check=False gives the code all the same."
    )


def _check_arrays(records: Sequence[Record], given: Sequence[Value]) -> None:
    """Raise if records, oldest first, read NumPy arrays that hold something else now: code of it would mislead."""
    with np.errstate(all="ignore"):
        doubts = find_doubts(records, values_in_use(records, *given))
    if doubts is not None and doubts.differing:
        found = doubts.obstacle(next(iter(doubts.differing)))
        raise OverwrittenError(
            f"to_numpy_source: {found.text}; write the code before that, or give a copy of it to the op. check=False "
            "gives code with what it holds now."
        )


def _derivatives(trace: Trace, seed: Traced, tensors: Sequence[Value] | None) -> dict[Link, Traced]:
    """Return the derivatives by each tensor, or by the leaves that the target depends on."""
    links = list(trace.leaves) if tensors is None else list(dict.fromkeys(map(link_of, tensors)))
    found = trace.run_backward(seed, links)
    for link in links if tensors is not None else ():
        if link not in found:
            shown = link.name if isinstance(link, Value) else None
            raise NotConnectedError(
                f"to_numpy_source: the loss does not depend on {shown or f'tensor{list(link.shape)}'}; watch it before "
                "it is used, and compute with nt or np functions outside of no_grad."
            )
    return {link: found[link] for link in links if link in found}


def _as_tensors(sources: Any) -> list[Value] | None:
    if sources is None:
        return None
    given = list(sources) if isinstance(sources, Iterable) and not isinstance(sources, Value | str) else [sources]
    for source in given:
        if not isinstance(source, Value):
            raise OperandError(
                f"to_numpy_source: sources must be a tensor or an iterable of tensors, but {type(source).__name__} was "
                "given."
            )
    return given


def _wrong(source: NumpySource, expected: Sequence[NDArray]) -> str | None:
    """Return the name of a result that the code computes otherwise than the tape."""
    space = source.load()
    with np.errstate(all="ignore"):
        value = space["forward"](**source.arguments)
        again, found = space["gradient"](**source.arguments)
    results = [("value", value), ("value", again), *((f"derivative by {name}", g) for name, g in found.items())]
    for (name, got), like in zip(results, [expected[0], *expected], strict=True):
        if not is_close(got, like, _TOLERANCE):
            return name
    return None
