"""The ambient state: which context and tapes record, whether gradients are on, which scopes act around ops.

Invariants:
- `current()` is one `State`, read once per op. A scope replaces it and puts the old one back, whatever happens inside.
- Outside of every scope the state is the thread's base. Bare calls (`set_grad_enabled(False)`, `start_recording()`)
  change the base in place, so they survive where the ContextVar does not: notebook cells run in fresh contexts.
- A new thread starts from its own base, with its own context 0.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

from .cells import Cell

if TYPE_CHECKING:
    from .effects import Written
    from .scopes import Observer, Scope
    from .tape import RecordingTape


class Context:
    """A place in which ops are recorded; context 0 is each thread's default."""

    __slots__ = ("cell", "id", "is_closed")

    def __init__(self, id: int) -> None:
        self.id = id
        self.is_closed = False
        self.cell = Cell(f"context {id}")

    def clear(self) -> None:
        """Invalidate what was recorded here and start a new generation. O(1), idempotent."""
        self.cell.kill()
        self.cell = Cell(f"context {self.id}")

    def close(self) -> None:
        """Clear for good."""
        self.clear()
        self.is_closed = True


class Target(weakref.ref[Any]):
    """A weak reference to what a reverse sweep began with."""

    __slots__ = ("seed",)

    #: Its cotangent: a copy if that is small, None for ones, or a weak reference to an array or a tensor.
    seed: Any


#: Where tracked tensors became plain numbers or arrays: code, instruction, and by what. The last place is the last one.
Exit = tuple[CodeType, int, str]
Exits = dict[Exit, None]
#: The conversion that functions of numbers call, and stores into arrays: it may be one that nobody wrote.
BY_CALLS = "float()"
#: Gradients that go there are constants, whatever they depend on.
BY_GRAD = ".grad"
#: So many places are remembered.
_MOST_EXITS = 32


class Thread:
    """What belongs to a thread for its whole life, shared by all of its states."""

    __slots__ = ("default_context", "drawn", "exits", "ident", "last_target", "stream", "written")

    def __init__(self) -> None:
        self.default_context = Context(0)
        #: While somebody notes them: the random streams drawn from, and where each stood before.
        self.drawn: weakref.WeakKeyDictionary[Any, dict[str, Any]] | None = None
        self.ident = threading.get_ident()
        #: For errors and warnings about lost derivatives. A transform puts its own in their place while it runs.
        self.exits: Exits = {}
        #: The target of the last reverse sweep, so that a gradient can be explained afterwards.
        self.last_target: Target | None = None
        #: The thread's random stream; set on first use by `streams`.
        self.stream: Any = None
        #: While somebody watches `effects`: what was written to, and what it held before.
        self.written: Written | None = None

    @property
    def last_exit(self) -> Exit | None:
        """Where a tracked tensor was last converted to a plain number or array."""
        return next(reversed(self.exits), None)

    def note_exit(self, code: CodeType, lasti: int, how: str) -> None:
        """Remember that a tracked tensor is converted."""
        place = (code, lasti, how)
        self.exits.pop(place, None)
        self.exits[place] = None
        if len(self.exits) > _MOST_EXITS:
            del self.exits[next(iter(self.exits))]

    def end_exits(self, before: Exits) -> None:
        """Put back what was in the place of `exits`, and add these."""
        exits, self.exits = self.exits, before
        for place in exits:
            self.note_exit(*place)


class Entry:
    """A block that was entered."""

    __slots__ = ("changed", "is_lost", "note", "owner")

    #: What the block is of; None outside of all blocks.
    owner: "entered | None"
    #: Whether it was left in another context than it was entered in.
    is_lost: bool
    #: What its owner wants to know when it is left.
    note: Any
    #: The fields of the state that were changed for it, or in it.
    changed: Iterable[str]


class State:
    """What an op needs to know about its surroundings. Immutable, except for a thread's base state."""

    __slots__ = (
        "context",
        "entry",
        "grad",
        "observers",
        "outer",
        "scopes",
        "tapes",
        "thread",
        "transforms",
        "watch_all",
    )

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.context = thread.default_context
        self.grad = True
        #: The explicit tapes that list records, outermost first.
        self.tapes: tuple[RecordingTape, ...] = ()
        #: Whether one of them watches every float tensor on first use.
        self.watch_all = False
        self.scopes: tuple[Scope, ...] = ()
        self.observers: tuple[Observer, ...] = ()
        #: How many functional transforms (grad, vjp) are running.
        self.transforms = 0
        #: The state to return to; None for the base.
        self.outer: State | None = None
        #: That of the block that made this state.
        self.entry = Entry()
        self.entry.owner = None
        self.entry.is_lost = False
        self.entry.changed = ()

    def copied(self, outer: "State | None", entry: Entry) -> "State":
        """Return one like this, made by a block that was entered in another one. It may change until others see it."""
        state = State.__new__(State)
        state.outer = outer
        state.entry = entry
        state.thread = self.thread
        state.context = self.context
        state.grad = self.grad
        state.tapes = self.tapes
        state.watch_all = self.watch_all
        state.scopes = self.scopes
        state.observers = self.observers
        state.transforms = self.transforms
        return state

    def outlasting(self, outer: "State") -> "State":
        """Return one for a block that outlasts the one around it: what it has not changed itself is as outside."""
        state = outer.copied(outer, self.entry)
        for name in self.entry.changed:
            setattr(state, name, getattr(self, name))
        return state

    def change(self, changes: dict[str, Any]) -> None:
        """Set fields by their names."""
        self.entry.changed = {*self.entry.changed, *changes}
        for name, value in changes.items():
            setattr(self, name, value)


_STATE: ContextVar[State | None] = ContextVar("numtape_state", default=None)
_BASE = threading.local()

#: Return the state, or None in a context that has not seen numtape yet. For hot paths; others call `current`.
peek = _STATE.get


def current() -> State:
    """Return the state of this thread and context."""
    state = _STATE.get()
    if state is None:
        state = getattr(_BASE, "state", None)
        if state is None:
            state = _BASE.state = State(Thread())
        _STATE.set(state)
    return state


def change(**changes: Any) -> None:
    """Change the current state until the enclosing scope ends; outside of scopes, until it is changed again."""
    state = current()
    # A context copied to another thread brings that thread's base along, which is not ours to change.
    if state.outer is not None or state is not getattr(_BASE, "state", None):
        state = state.copied(state.outer, state.entry)
    state.change(changes)
    _STATE.set(state)


def settle(state: State) -> None:
    """Let the tapes of a state finish what they put off, before something around them changes."""
    for tape in state.tapes:
        tape.settle()


def _left(state: State, entry: Entry) -> State:
    """Return the state after a block was left: that outside of it, or one like `state` with a way out past it."""
    if entry is state.entry and state.outer is not None:
        return state.outer
    inside: list[State] = []
    place: State | None = state
    while place is not None and place.entry is not entry:
        inside.append(place)
        place = place.outer
    if place is None or place.outer is None:
        # A generator is closed elsewhere than where it entered: whoever comes to its state goes on.
        entry.is_lost = True
        return state
    outside = place.outer
    for each in reversed(inside):
        outside = each.outlasting(outside)
    return outside


def inside(outer: State, owner: "entered | None" = None) -> State:
    """Return the state of a block that begins now in another one, for whoever enters it to change first."""
    if outer.tapes:
        settle(outer)
    entry = Entry()
    entry.owner = owner
    entry.is_lost = False
    entry.changed = ()
    return outer.copied(outer, entry)


def _leave(state: State, entry: Entry | None) -> None:
    """Leave a block whose entry is found in a state, the current one."""
    if entry is not None:
        state = _left(state, entry)
    while state.entry.is_lost and state.outer is not None:
        state = state.outer
    _STATE.set(state)


def call_in(inner: State, function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function in the state of a block: what `entered` does around the call, without an object for it."""
    _STATE.set(inner)
    try:
        result = function(*args, **kwargs)
        state = peek() or current()
        if state.tapes:
            settle(state)
        return result
    finally:
        state = peek() or current()
        outer = inner.outer
        if state is inner and outer is not None and not outer.entry.is_lost:  # As most often.
            _STATE.set(outer)
        else:
            _leave(state, inner.entry)


class entered:
    """Run a block in a state with `changes`: ``with entered(grad=False): ...``. Can be entered again and again.

    Threads and tasks may share it: the entry to leave is looked for in the current state. Leaving goes back to the
    state that the block was entered in, also if blocks around it were left meanwhile in another context. In this one a
    block may be left before those inside of it, as generators do: the states of these then end where it began.
    """

    __slots__ = ("_entries", "changes")

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        #: Those that were not left, in any thread, in order.
        self._entries: dict[Entry, None] = {}

    def enter(self, changes: dict[str, Any] | None = None, note: Any = None) -> State:
        """Begin a block, with other changes this once if they are given; `innermost` has the note."""
        inner = inside(peek() or current(), self)
        inner.change(self.changes if changes is None else changes)
        inner.entry.note = note
        self._entries[inner.entry] = None
        _STATE.set(inner)
        return inner

    __enter__ = enter

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        state = peek() or current()
        try:
            if state.tapes and kind is None:
                settle(state)  # Rules may raise, and enter scopes of their own: this one is left after them.
        finally:
            entry: Entry | None = state.entry
            if state.entry.owner is not self:
                entry = self.innermost()
            if entry is not None:
                self._entries.pop(entry, None)
            _leave(state, entry)

    def innermost(self) -> Entry | None:
        """Return the entry that would be left now; None if none is open."""
        state: State | None = current()
        while state is not None:
            if state.entry.owner is self:
                return state.entry
            state = state.outer
        return next(reversed(self._entries), None)

    @property
    def is_open(self) -> bool:
        """Whether some block, in any thread, was not left."""
        return bool(self._entries)
