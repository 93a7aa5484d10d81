"""What a function uses from outside: tensors that an open tape watches on first use, found before a solver starts."""

from collections.abc import Callable
from typing import Any

from .. import tree
from ..core.apply import is_tracked, watch_on_use
from ..core.context import current, entered
from ..core.effects import undoing
from ..core.tape import RecordingTape
from ..core.value import Value


class _Uses(RecordingTape):
    """Notes the tensors that open tapes would begin to watch, and watches none.

    Args:
        tapes: the open tapes.
    """

    def __init__(self, tapes: tuple[RecordingTape, ...]) -> None:
        super().__init__(watch_all=True)
        self._open = tapes
        self._noted: dict[int, Value] = {}

    def watch_on_use(self, value: Value) -> None:
        """Note a tensor that an op uses."""
        self.would_watch(value)

    def would_watch(self, value: Value) -> bool:
        """Note a tensor that somebody asks about; here it is a constant."""
        is_left_out = id(value) in self.watched_by_use
        if not is_left_out and any(tape.would_watch(value) for tape in self._open):
            self._noted[id(value)] = value
        return False

    def of(self, call: Callable[[], Any]) -> dict[int, Value]:
        """Return the tensors that a call uses or returns, by their ids."""
        self._noted = {}
        with undoing(), entered(tapes=(self,)):
            for leaf in tree.leaves(call()):
                if isinstance(leaf, Value):
                    is_tracked(leaf)  # It may pass on a tensor from outside without any op.
        return self._noted


def watch_used(call: Callable[[], Any]) -> None:
    """Let tapes that watch everything watch what a call uses from outside: they do not see a solver's calls.

    A tensor from outside is the same one in two calls; one that the function makes is another one each time.
    """
    state = current()
    if not (state.grad and state.watch_all and state.tapes):
        return
    uses = _Uses(state.tapes)
    first = uses.of(call)
    second = uses.of(call) if first else {}
    for value in first.values():
        if id(value) in second:
            watch_on_use(state, value)


def depends_on_outside(call: Callable[[], Any]) -> bool:
    """Say whether the results of a call, whose own arguments are constants, depend on what is tracked outside."""
    if not current().grad:
        return False
    watch_used(call)
    with undoing(), entered(tapes=()):
        leaves = tree.leaves(call())
    return any(isinstance(leaf, Value) and leaf.node is not None for leaf in leaves)
