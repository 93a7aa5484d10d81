"""The op that a loop leaves as its one record: its forward, and derivatives that run the steps again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .. import tree
from .._typing import NDArray
from ..core.context import entered
from ..core.facts import Facts, Inside
from ..core.forward import forward
from ..core.gradients import link_of, sweep, tracked_again
from ..core.graph import collect, graph_of, is_moving, way_of
from ..core.op import Op
from ..core.record import Record, next_index
from ..core.value import Lifted, Value, wrap
from ..ops import clone
from ..tensors import Tensor
from .custom import per_output
from .loop_states import tensors_of, tracked, with_tensors
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
    """Return the cotangents of the first state and of captured tensors; None where nothing leads to one."""
    moved = list(g) if isinstance(g, tuple) else [g]
    if is_recorded((g, *operands)):
        return _pull_recorded(moved, operands, loop)
    with loop.replaying() as strangers, loop.as_first():
        return loop.pull(moved, strangers)


def _pull_recorded(moved: list[Any], operands: tuple[Any, ...], loop: "Loop") -> list[Any]:
    """Do the same on tensors, for higher orders: the whole loop runs on the tape."""
    since = next_index()
    state, sources = _run_recorded(operands, loop)
    pairs = [
        (out, g) for out, g in zip(tensors_of(state), moved, strict=True) if g is not None and out.node is not None
    ]
    if not pairs:
        return [None] * len(sources)
    outs, seeds = zip(*pairs, strict=True)
    found = sweep(outs, list(seeds), sources, create_graph=True, ends=set(map(link_of, sources)))
    return _without_stand_ins([found.get(link_of(source)) for source in sources], sources, since)


def _run_recorded(operands: tuple[Any, ...], loop: "Loop") -> tuple[Any, list[Value]]:
    """Run the whole loop on the tape; return the last state, and what stands for each operand."""
    # One tensor may be several operands, each with a derivative of its own: a part of the state is a copy.
    inputs = [clone(x) for x in operands[: len(operands) - len(loop.captured)]]
    with loop.replaying() as strangers, loop.as_recorded(), StandIns() as stand_ins:
        loop.go_back(loop.kept[0])
        state = with_tensors(loop.kept[0].state, inputs)
        for number in range(loop.length or 0):
            # Hooks that the first step may put on its state are not on the inputs: a sweep calls none of where it ends.
            state = loop.run_again(stand_ins.start(state), number, strangers)
    return state, [*inputs, *loop.captured]


class StandIns:
    """Begins steps that are recorded as they began first: each part of the state is tracked, and one of its own.

    What the records before lead to goes on by a copy. For a constant there is a leaf, as long as steps run.
    """

    def __enter__(self) -> Self:
        self._leaves: list[Any] = []
        return self

    def __exit__(self, *exc: object) -> None:
        for leaf in self._leaves:
            leaf.requires_grad = False

    def start(self, state: Any) -> Any:
        """Return the state that a step begins with, after that which the last one gave."""
        return tree.map(self._start_with, state)

    def _start_with(self, part: Any) -> Any:
        if isinstance(part, Value) and part.node is not None:
            own = clone(part)
            if isinstance(part, Lifted) or part.array.flags.c_contiguous:
                return own
            own.array = part.array.copy(order="K")  # BLAS goes by how it lies, to the last bit.
            return own
        own = tracked(part)
        if isinstance(own, Value) and own.node is not None:
            self._leaves.append(own)
        return own


def _without_stand_ins(moved: list[Any], sources: Sequence[Value], since: int) -> list[Any]:
    """Return (co)tangents recorded from an index on, as constants where nothing is behind them but stand-ins.

    These are tracked no more: what is, or was recorded before, is there without them.
    """
    links = [link_of(g) for g in moved if _is_recorded(g)]
    graph = graph_of(links, since=since)
    begins = {link for link in graph[1] if type(link) is Record or is_moving(link)}.union(map(link_of, sources))
    useful, _ = way_of(graph, begins)
    if useful is None:
        return moved
    useful |= begins
    return [wrap(Tensor, g.array) if _is_recorded(g) and g.node not in useful else g for g in moved]


def _is_recorded(g: Any) -> bool:
    """Say whether a (co)tangent is a tensor with a record; a batch of them is left alone."""
    return isinstance(g, Value) and not isinstance(g, Lifted) and type(g.node) is Record


def _push(t: Any, operands: tuple[Any, ...], index: int, loop: "Loop") -> Any:
    """Return the tangent of the last state, given that of one operand: steps run again, and take it along."""
    if is_recorded((t, *operands)):
        since = next_index()
        state, tensors = _run_recorded(operands, loop)
        sources = [link_of(x) for x in tensors]
        links = [link_of(x) for x in tensors_of(state) if x.node is not None]
        seed = wrap(Tensor, t) if isinstance(t, np.ndarray) else t
        with tracked_again(collect(links)), entered(grad=True):
            moved = pushed([(sources[index], seed)], state, set(sources), Tensor)
        moved = _without_stand_ins(moved, tensors, since)
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


def _inside(loop: "Loop") -> Inside:
    """Return what a backward holds: a step that runs again, beside states, of which only the first stays."""
    return Inside(loop.step_bytes, loop.held(1))


LOOP = Op(
    _loop,
    _loop,
    pulls={},
    pushes={"operands": _push},
    joint=_pull,
    is_variadic=True,
    facts=Facts(cost=per_output, inside=_inside),
)
