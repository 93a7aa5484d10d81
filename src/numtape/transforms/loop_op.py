"""The op that a loop leaves as its one record: its forward, and derivatives that run the steps again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import NDArray
from ..core.context import current, entered
from ..core.forward import forward
from ..core.gradients import link_of, sweep, tracked_again
from ..core.graph import collect
from ..core.op import Facts, Op
from ..core.value import Value, wrap
from ..ops import clone
from ..tensors import Tensor
from .custom import per_output
from .loop_states import copied, tensors_of, with_tensors
from .loop_watching import Watcher
from .transposing import is_recorded

if TYPE_CHECKING:
    from .loops import Loop


def _loop(operands: tuple[NDArray, ...], /, *, loop: "Loop") -> Any:
    """Apply a step to a state many times.

    The tensors of the last state are those of the first run, or of another one from the first state.
    """
    outs = loop.fresh
    loop.fresh = None
    if outs is None:
        with loop.replaying() as strangers, loop.as_first():
            state = loop.advance(loop.kept[0], loop.length or 0, strangers).state
        outs = tuple(value.array for value in tensors_of(state))
    return outs if len(outs) > 1 else outs[0]


def _pull(g: Any, operands: tuple[Any, ...], loop: "Loop") -> list[Any]:
    """Return the cotangents of the first state and of captured tensors."""
    moved = list(g) if isinstance(g, tuple) else [g]
    if is_recorded((g, *operands)):
        found = _pull_recorded(moved, operands, loop)
    else:
        with loop.replaying() as strangers, loop.as_first():
            found = loop.pull(moved, strangers)
    return [np.zeros(x.shape, x.dtype) if part is None else part for part, x in zip(found, operands, strict=True)]


def _pull_recorded(moved: list[Any], operands: tuple[Any, ...], loop: "Loop") -> list[Any]:
    """Do the same on tensors, for higher orders: the whole loop runs on the tape."""
    state, sources = _run_recorded(operands, loop)
    pairs = [
        (out, g) for out, g in zip(tensors_of(state), moved, strict=True) if g is not None and out.node is not None
    ]
    if not pairs:
        return [None] * len(sources)
    outs, seeds = zip(*pairs, strict=True)
    found = sweep(outs, seeds, sources, create_graph=True, ends=set(map(link_of, sources)))
    return [found.get(link_of(source)) for source in sources]


def _run_recorded(operands: tuple[Any, ...], loop: "Loop") -> tuple[Any, list[Value]]:
    """Run the whole loop on the tape; return the last state, and what stands for each operand."""
    # One tensor may be several operands, each with a derivative of its own: a part of the state is a copy.
    inputs = [clone(x) for x in operands[: len(operands) - len(loop.captured)]]
    with loop.replaying() as strangers, entered(scopes=(*current().scopes, *loop.scopes)):
        loop.go_back(loop.kept[0])
        # Copied once more, since the first step may put hooks on its state: a sweep calls none of where it ends.
        state = with_tensors(copied(loop.kept[0].state), list(map(clone, inputs)))
        for number in range(loop.length or 0):
            with Watcher(state, strangers, number):
                state = loop.call(state, number)
            loop.ask_again(state)
    return state, [*inputs, *loop.captured]


def _push(t: Any, operands: tuple[Any, ...], index: int, loop: "Loop") -> Any:
    """Return the tangent of the last state, given that of one operand: steps run again, and take it along."""
    if is_recorded((t, *operands)):
        state, tensors = _run_recorded(operands, loop)
        sources = [link_of(x) for x in tensors]
        links = [link_of(x) for x in tensors_of(state) if x.node is not None]
        seed = wrap(Tensor, t) if isinstance(t, np.ndarray) else t
        with tracked_again(collect(links)), entered(grad=True):
            moved = pushed([(sources[index], seed)], state, set(sources), Tensor)
    else:
        with loop.replaying() as strangers, loop.as_first():
            moved, state = loop.push(t, index, strangers)
    outs = tensors_of(state)
    found = [np.zeros(x.shape, x.dtype) if part is None else part for part, x in zip(moved, outs, strict=True)]
    return tuple(found) if len(found) > 1 else found[0]


def pushed(
    seeds: Sequence[tuple[Any, Any]], state: Any, sources: set[Any], cls: type[Value] | None = None
) -> list[Any]:
    """Return the tangents of a state's tensors, given those of some sources; None where there is none."""
    outs = tensors_of(state)
    arrived = iter(forward(seeds, [link_of(x) for x in outs if x.node is not None], cls=cls, ends=sources))
    return [next(arrived) if x.node is not None else None for x in outs]


LOOP = Op(
    _loop,
    _loop,
    pulls={},
    pushes={"operands": _push},
    joint=_pull,
    is_variadic=True,
    facts=Facts(cost=per_output),
)
