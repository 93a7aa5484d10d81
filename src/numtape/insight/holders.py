"""Find out who holds an object: a chain of references from a name in the program to it."""

import gc
import sys
from collections.abc import Iterator, Sequence
from inspect import CO_OPTIMIZED
from types import CellType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

#: How many references away a name is looked for.
MOST_LINKS = 12
_PACKAGE = __package__.partition(".")[0]


class Names:
    """Where a chain can end: local variables of running functions, and namespaces. It holds ids, no objects."""

    def __init__(self) -> None:
        self.locals: dict[int, str] = {}
        self.namespaces: dict[int, str] = {}
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType):
                self.namespaces.setdefault(id(vars(module)), f"module {name}")
        frames = _frames()
        # Our own is among them: one that is held by its own variable stays, and all variables of its callers with it.
        while frames:
            frame = frames.pop()
            code = frame.f_code
            self.namespaces.setdefault(id(frame.f_globals), f"the namespace of {code.co_filename}")
            if not code.co_flags & CO_OPTIMIZED:
                self.namespaces.setdefault(id(frame.f_locals), f"the namespace of {code.co_filename}")
            elif frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
                self._add_locals(frame)
        del frame

    def _add_locals(self, frame: FrameType) -> None:
        found = frame.f_locals
        for name, value in found.items():
            self.locals.setdefault(id(value), _local(name, frame))
        _forget(found)


def _local(name: str, frame: FrameType) -> str:
    return f"local {name!r} of {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


def _forget(found: Any) -> None:
    """Empty the variables that a frame of a function gave."""
    if sys.version_info < (3, 13):
        # A copy of the variables, which the frame would keep, and so what they held, until it ends.
        found.clear()


def _frames() -> list[FrameType]:
    """Return the frames of all threads, innermost last."""
    frames: list[FrameType] = []
    own = sys._getframe()
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost if innermost is not own else innermost.f_back
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
    del own, innermost
    return frames[::-1]


def chain_to(target: Any, names: Names, ignored: set[int]) -> str:
    """Return the shortest chain of references from a name to `target`, as ``name -> list[3] -> Tensor``.

    Args:
        target: the object.
        names: where chains can end.
        ignored: ids of containers that do not count, such as those of the caller.
    """
    ignored = {*ignored, id(names.locals), id(names.namespaces)}
    #: For each object met, the one that it holds, which is nearer to the target; None for the target.
    held: dict[int, Any] = {id(target): None}
    layer: list[Any] = [target]
    ignored |= {id(held)}
    last = target
    function: FunctionType | None = None
    links = 0
    while links < MOST_LINKS:
        for held_object in layer:
            # Who holds the function says more than its name; that is for a function which nobody seems to hold.
            function = held_object if function is None and isinstance(held_object, FunctionType) else function
            end = _end(held_object, held[id(held_object)], names)
            if end is not None:
                # The name of a global already says where in its namespace it is.
                start = held[id(held_object)] if id(held_object) in names.namespaces else held_object
                return " -> ".join([end, *_path(start, held)])
        last = layer[0]
        # A traceback has a link for each call that the exception left: together they are one.
        links += not any(isinstance(item, TracebackType) for item in layer)
        layer = _holders_of(layer, held, ignored)
        if not layer:
            break
    if function is not None:
        return " -> ".join([f"function {function.__qualname__}", *_path(function, held)])
    return " -> ".join(["an unnamed place", *_path(last, held, True)])


def _holders_of(layer: list[Any], held: dict[int, Any], ignored: set[int]) -> list[Any]:
    """Return the objects that hold one of a layer and were not met before; note in `held` what they hold."""
    inside = {id(item): item for item in layer}
    referrers = gc.get_referrers(*layer)
    ignored |= {id(layer), id(inside), id(referrers)}
    outer: list[Any] = []
    ignored.add(id(outer))
    for referrer in referrers:
        if id(referrer) in held or id(referrer) in ignored:
            continue
        held[id(referrer)] = next((inside[id(x)] for x in gc.get_referents(referrer) if id(x) in inside), None)
        outer.append(referrer)
    referrers.clear()  # Our own frame may be among them, and would hold the list that holds it.
    return outer


def _end(item: Any, inner: Any, names: Names) -> str | None:
    """Return the name of a place in the program where a chain ends, or None."""
    if id(item) in names.locals:
        return names.locals[id(item)]
    if isinstance(item, dict) and id(item) in names.namespaces:
        key = next((key for key, value in item.items() if value is inner), None)
        return f"global {key!r} of {names.namespaces[id(item)]}"
    return None


def _path(item: Any, held: dict[int, Any], is_inclusive: bool = False) -> list[str]:
    """Return the steps from an object down to the target, each with its place in the one before."""
    steps = [type(item).__name__] if is_inclusive else []
    function: FunctionType | None = None
    inner = held[id(item)]
    while inner is not None:
        function = item if isinstance(item, FunctionType) else function
        step = _captured(function, item, inner) if isinstance(item, CellType) else _step(item, inner)
        if step:
            steps.append(step)
        item, inner = inner, held[id(inner)]
    return steps


def _captured(function: FunctionType | None, cell: CellType, inner: Any) -> str:
    """Return the variable of a function around that a cell stands for."""
    kind = type(inner).__name__
    cells = function.__closure__ or () if function is not None else ()
    if function is None or not any(each is cell for each in cells):
        return kind
    return f"captured {function.__code__.co_freevars[_position(cells, cell)]!r} {kind}"


def _step(outer: Any, inner: Any) -> str:
    """Return how `outer` names `inner`, with its type; nothing for what is only Python's own machinery."""
    kind = f"function {inner.__name__}" if isinstance(inner, FunctionType) else type(inner).__name__
    if isinstance(outer, FrameType):
        return _variable(outer, inner)
    if isinstance(outer, TracebackType):
        return ""
    if isinstance(inner, CellType) or (isinstance(outer, FunctionType) and isinstance(inner, tuple)):
        return ""
    if isinstance(outer, list | tuple):
        return f"[{_position(outer, inner)}] {kind}"
    if isinstance(outer, dict):
        key = next((key for key, value in outer.items() if value is inner), None)
        return kind if key is None else f"[{key!r}] {kind}"
    if isinstance(inner, dict) and inner is getattr(outer, "__dict__", None):
        return ""
    if isinstance(inner, TracebackType):
        return "traceback"
    name = next((name for name in _slots(outer) if getattr(outer, name, None) is inner), None)
    return f".{name} {kind}" if name else kind


def _variable(frame: FrameType, inner: Any) -> str:
    """Return the variable of a function that has ended by an exception; its frame is kept by the traceback."""
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return ""  # Its variables are a namespace, which names what it holds.
    value = inner.cell_contents if isinstance(inner, CellType) else inner
    found = frame.f_locals
    name = next((name for name, each in found.items() if each is value), None)
    _forget(found)
    # What is in none of its variables is a call around it.
    return "" if name is None else _local(name, frame)


def _position(outer: Sequence[Any], inner: Any) -> int:
    return next((i for i, value in enumerate(outer) if value is inner), -1)


def _slots(item: Any) -> Iterator[str]:
    for cls in type(item).__mro__:
        yield from vars(cls).get("__slots__", ())
    yield from getattr(item, "__dict__", ())
