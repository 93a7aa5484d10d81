"""Give a function a derivative of your own: `custom_gradient` by a pull function, `custom_op` by rules.

What either leaves on the tape is one record of an op, made as the library's own ops are. A pull function is a closure
by nature, and records hold none: the op of a `custom_gradient` function has the function itself as its forward, and its
rule runs it again to get a new pull function. So everything that works on records works on these, and in second order
the function runs on tensors and is differentiated through; the price is a second run, which `custom_op` avoids.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..api import takes
from ..core.apply import apply, tracked_operands, watch_on_use
from ..core.batching import Batched
from ..core.context import current, entered
from ..core.effects import effects, undoing
from ..core.facts import Facts
from ..core.graph import graph_of
from ..core.op import Op
from ..core.scopes import aside
from ..core.stream import thread_stream
from ..core.value import Value, wrap
from ..dtypes import is_float
from ..errors import ArgumentError, GradientError, OperandError, ShapeError
from ..tensors import Tensor
from .custom_calls import OPERAND, Call, arguments_of, bind, with_gaps
from .transposing import Transpose, is_recorded, own, plain, run_on_tape


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the derivative that it returns itself, beside its value.

    The function returns a pair: its value (a tensor or a tuple of tensors), and a pull function that takes the
    cotangent of the value (a tuple for a tuple) and returns the cotangent of the argument, or a tuple with one for each
    argument that holds float tensors or arrays; None stands for zeros. The cotangent of a tree has its form, and those
    in a dict go by their keys. Other arguments are passed on as they are.

    On the tape it is one op. Forward mode transposes the pull function, so that must be linear there. The function
    runs again when its derivative is taken: it must return the same for the same arguments. Random numbers of nt
    repeat; those of others must be drawn outside. Tracked tensors must be passed, not captured.

    Args:
        function: takes tensors, arrays and anything else; it sees tensors.

    Raises:
        GradientError: if a tracked tensor that is no argument takes part in the value, or a second run differs.

    Example:
        >>> @nt.custom_gradient
        ... def clip_gradient(x):
        ...     return x, lambda g: nt.clip(g, -1.0, 1.0)
        >>> nt.grad(lambda x: (3.0 * clip_gradient(x)).sum())(np.array([1.0, 2.0]))
        array([1., 1.])
    """
    if not callable(function):
        raise OperandError(
            f"custom_gradient: decorates functions, not {type(function).__name__}; the function returns its value and "
            "a function from cotangents to cotangents."
        )
    made = _CustomGradient(function)

    @functools.wraps(function)
    def face(*args: Any, **kwargs: Any) -> Any:
        return made.apply(args, kwargs)

    made.op.face = face
    face.op = made.op  # type: ignore[attr-defined]
    return face


class _CustomGradient:
    """One decorated function, and the op that it became."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.signature = inspect.signature(function)
        self.is_checked = False
        self.op = Op(
            self._forward,
            _declaration(self.name, function.__doc__),
            pulls={},
            pushes={"arguments": lambda t, arguments, index, call: self._push(t, arguments, index, call)},
            joint=lambda g, arguments, call: self._pull(g, arguments, call),
            is_variadic=True,
            facts=Facts(cost=per_output, is_linear_backward=False),
        )
        self.transpose = Transpose(
            f"{self.name}: forward mode transposes its pull function, which",
            "Write it with nt or np functions, linear in the cotangent, or use reverse mode.",
        )

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function as an op."""
        call, operands = self._bind(args, kwargs)
        state = current()
        if state.grad and state.watch_all:
            for value in captured_by(self.function):
                watch_on_use(state, value)
        if not operands:
            return self._run(call, operands)[0]
        out = apply(self.op, operands, {"call": call})
        if not self.is_checked and tracked_operands(self.op, operands, state):
            self._check_again(call, operands, out)
            self.is_checked = True
        return out

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, list[Any]]:
        """Take the float tensors and arrays out of the arguments."""
        bound = bind(self.name, self.signature, args, kwargs)
        operands: list[Any] = []

        def take(leaf: Any) -> Any:
            if isinstance(leaf, Value | np.ndarray) and is_float(leaf.dtype):
                operands.append(leaf)
                return OPERAND
            return leaf

        names, given = arguments_of(bound)
        values = tuple(tree.map(take, value) for value in given)
        return Call(tuple(names), values, len(bound.kwargs), thread_stream().copy()), operands

    def _forward(self, arrays: tuple[NDArray, ...], /, *, call: Call) -> Any:
        operands = [_read_only(x) for x in arrays]
        with aside(transforms=0):
            value, _ = self._run_again(call, operands) if call.drawn is not None else self._run_first(call, operands)
        outs = [self._own_array(part, arrays) for part in (value if isinstance(value, tuple) else (value,))]
        return tuple(outs) if isinstance(value, tuple) else outs[0]

    def _own_array(self, part: Any, arrays: tuple[NDArray, ...]) -> Any:
        """Return an output as an array with memory of its own; raise if something captured is tracked."""
        if not isinstance(part, Value):
            return np.asarray(part)
        if part.node is not None:
            raise GradientError(
                f"{self.name}: its value depends on {_leaf_name(part)}, a tracked tensor that is no argument, so the "
                "gradient of that would be lost. Pass it as an argument, or its detach() if it is a constant here."
            )
        array = part.array
        return array.copy() if any(np.may_share_memory(array, x) for x in arrays) else array

    def _run(self, call: Call, operands: Sequence[Any]) -> tuple[Any, Callable[..., Any]]:
        args, kwargs = call.fill(operands)
        pair = self.function(*args, **kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            got = f"a tuple of {len(pair)}" if isinstance(pair, tuple) else type(pair).__name__
            if isinstance(pair, tuple) and len(pair) == 2:
                got = f"a pair whose second part is {type(pair[1]).__name__}"
            raise OperandError(
                f"{self.name}: a custom_gradient function returns a pair, its value and a function from cotangents to "
                f"cotangents; it returned {got}."
            )
        value, pull = pair
        for part in value if isinstance(value, tuple) else (value,):
            if not isinstance(part, Value | np.ndarray | np.generic | float | int):
                raise OperandError(
                    f"{self.name}: the value of a custom_gradient function is a tensor or a tuple of tensors, not "
                    f"{type(part).__name__}."
                )
        return value, pull

    def _run_first(self, call: Call, operands: Sequence[Any]) -> tuple[Any, Callable[..., Any]]:
        with effects() as seen:
            pair = self._run(call, operands)
        call.drawn = seen.drawn
        self._check_same(call, operands, pair[0])
        return pair

    def _run_again(self, call: Call, operands: Sequence[Any]) -> tuple[Any, Callable[..., Any]]:
        """Run the function on the random numbers of its first run; what it changes besides its results is undone."""
        with undoing(keeps_new=True) as seen:
            for stream, place in ({} if call.drawn is None else dict(call.drawn)).items():
                seen.drawn[stream] = stream.place()  # It is about to be moved.
                stream.go_to(place)
            current().thread.stream = call.stream.copy()
            pair = self._run(call, operands)
        self._check_same(call, operands, pair[0])
        return pair

    def _check_again(self, call: Call, operands: Sequence[Any], out: Any) -> None:
        """Raise if a second run gives another value, whichever element it is; later runs look at a few."""
        with aside(grad=False, transforms=0):
            again, _ = self._run_again(call, [_read_only(_array(x)) for x in operands])
        pairs = zip(_parts(out), _parts(again), strict=True)
        is_same = all(np.allclose(_array(a), _array(b), rtol=1e-2, atol=1e-6, equal_nan=True) for a, b in pairs)
        self._refuse_unless(is_same)

    def _check_same(self, call: Call, operands: Sequence[Any], value: Any) -> None:
        """Raise if another run gives another value: then its pull function does not belong to the first."""
        self._refuse_unless(call.is_same(operands, _parts(value)))

    def _refuse_unless(self, is_same: bool) -> None:
        if not is_same:
            raise GradientError(
                f"{self.name}: a second run on the same arguments gave another value, but the function runs again for "
                "its derivative. Draw random numbers with nt, or outside of it, and keep no state in it."
            )

    def _pull(self, g: Any, operands: tuple[Any, ...], call: Call) -> list[Any]:
        """Return the cotangents of all operands."""
        tensors = [_as_tensor(x) for x in operands]
        # A pull function may write to what it gets, which others read.
        gs = tuple(
            wrap(Tensor, part.copy()) if isinstance(part, np.ndarray) else own(part)
            for part in (g if isinstance(g, tuple) else (g,))
        )
        moved = gs if isinstance(g, tuple) else gs[0]
        if is_recorded((g, *operands)):
            recorded: list[Any] = self._on_tape(lambda: self._pull_all(moved, tensors, call, lambda x: x))
            return recorded
        with aside(grad=False, transforms=0):
            return self._pull_all(moved, tensors, call, plain)

    def _on_tape(self, run: Callable[[], Any]) -> Any:
        """Run the function, or its pull function as well, where it must be differentiable itself."""
        return run_on_tape(
            run,
            f"{self.name}: higher derivatives run the function and its pull function on tensors, which",
            "Compute with nt or np functions in both, and use nt.stop_gradient for what is a constant.",
        )

    def _pull_all(self, g: Any, operands: Sequence[Any], call: Call, finish: Callable[[Any], Any]) -> list[Any]:
        """Return what is pulled, finished; if the pull function cannot do with a batch, of its members one by one."""
        batch = next((part for part in _parts(g) if isinstance(part, Batched)), None)
        try:
            return [finish(x) for x in self._pull_by(g, operands, call)]
        except Exception:  # Whatever is wrong with the function itself, its members will show as well.
            if batch is None:
                raise
        rows = []
        for i in range(len(batch.members)):
            member = tuple(own(_as_tensor(x.members[i]) if isinstance(x, Batched) else x) for x in _parts(g))
            pulled = self._pull_by(member if isinstance(g, tuple) else member[0], operands, call)
            rows.append([finish(x) for x in pulled])
        return [batch.of(np.stack(column)) for column in zip(*rows, strict=True)]

    def _pull_by(self, g: Any, operands: Sequence[Any], call: Call) -> list[Any]:
        value, pull = self._run_again(call, operands)
        if isinstance(value, tuple):
            g = tuple(
                wrap(Tensor, np.zeros(np.shape(y), _array(y).dtype)) if part is None else part
                for part, y in zip(g, value, strict=True)
            )
        return self._per_operand(self._pulled(pull, g), operands, call)

    def _pulled(self, pull: Callable[..., Any], g: Any) -> Any:
        """Call the pull function; explain an error that is due to its signature."""
        try:
            return pull(g)
        except TypeError as error:
            if takes(pull, 1):
                raise
            what = f"a tuple of {len(g)} cotangents, as its value is one" if isinstance(g, tuple) else "the cotangent"
            raise OperandError(f"{self.name}: its pull function must take one argument, {what}; {error}.") from error

    def _per_operand(self, pulled: Any, operands: Sequence[Any], call: Call) -> list[Any]:
        """Return what the pull function returned as one cotangent for each operand, checked."""
        counts = call.counts()
        holders = [i for i, count in enumerate(counts) if count]
        # A number before them might as well have been differentiated by: then it would have been the first's.
        is_clear = not any(isinstance(value, float) for value in call.values[: holders[-1]])
        if isinstance(pulled, tuple) and len(pulled) == len(counts):
            pulled = tuple(pulled[i] for i in holders)
        elif not is_clear:
            raise ArgumentError(
                f"{self.name}: its pull function returned fewer cotangents than there are arguments "
                f"({', '.join(call.names)}), and the first of these is a number now; return a tuple with one for each, "
                "None for zeros."
            )
        elif len(holders) == 1 and not (isinstance(pulled, tuple) and len(pulled) == 1):
            pulled = (pulled,)
        if not isinstance(pulled, tuple) or len(pulled) != len(holders):
            got = f"{len(pulled)} cotangents" if isinstance(pulled, tuple) else "one cotangent"
            names = ", ".join(call.names[i] for i in holders)
            raise ArgumentError(
                f"{self.name}: its pull function returned {got}, but {len(holders)} arguments have a derivative "
                f"({names}); return a tuple with one for each, None for zeros."
            )
        found: list[Any] = []
        for i, part in zip(holders, pulled, strict=True):
            found += self._of_argument(call, i, part, operands[len(found) : len(found) + counts[i]])
        return found

    def _of_argument(self, call: Call, index: int, part: Any, operands: Sequence[Any]) -> list[Any]:
        argument = call.names[index]
        if part is None:
            return [np.zeros(x.shape, x.dtype) for x in operands]
        leaves = tree.leaves(part)
        if len(leaves) != len(operands):
            raise ArgumentError(
                f"{self.name}: its pull function returned {len(leaves)} cotangents for argument {argument!r}, which "
                f"holds {len(operands)} tensors; return a tree of its form."
            )
        if len(leaves) > 1 or isinstance(part, dict):
            leaves = self._in_form(call, index, part)
        checked = [x if isinstance(x, Value) else np.asarray(x) for x in leaves]
        for leaf, operand in zip(checked, operands, strict=True):
            if leaf.dtype.kind not in "biuf" and not is_float(leaf.dtype):
                raise OperandError(
                    f"{self.name}: its pull function returned {part!r} for argument {argument!r}; it must be numbers."
                )
            if leaf.shape != operand.shape:
                raise ShapeError(
                    f"{self.name}: its pull function returned a cotangent of shape {leaf.shape} for argument "
                    f"{argument!r} of shape {operand.shape}; they must be equal."
                )
        return checked

    def _in_form(self, call: Call, index: int, part: Any) -> list[Any]:
        """Return cotangents in the order of the operands in an argument; dicts go by their keys."""
        form = tree.map(lambda leaf: leaf if leaf is OPERAND else None, call.values[index])
        try:
            return tree.leaves_like(form, with_gaps(form, part))
        except ArgumentError as error:
            raise ArgumentError(
                f"{self.name}: its pull function returned another form than that of argument {call.names[index]!r}; "
                f"{error}"
            ) from error

    def _push(self, t: Any, operands: tuple[Any, ...], index: int, call: Call) -> Any:
        """Return the tangent of the value, by transposing the pull function."""
        must_record = is_recorded((t, *operands))
        tensors = [_as_tensor(x) for x in operands]
        # One more transform is running: what the function records must keep its links until the sweep is done.
        with entered(grad=must_record, transforms=current().transforms + 1):
            if must_record:
                value, pull = self._on_tape(lambda: self._run_again(call, tensors))
            else:
                value, pull = self._run_again(call, tensors)
            is_tuple = isinstance(value, tuple)

            def linear(gs: list[Any]) -> list[Any]:
                g = own(tuple(gs) if is_tuple else gs[0])
                return [self._per_operand(self._pulled(pull, g), tensors, call)[index]]

            tangents = self.transpose(linear, [np.shape(y) for y in _parts(value)], [t], must_record)
        return tuple(tangents) if is_tuple else tangents[0]


def _declaration(name: str, doc: str | None) -> Callable[..., Any]:
    """Return a function whose signature declares the op of a custom_gradient function."""

    def declaration(arguments: Any, /, *, call: Call) -> Any:
        raise NotImplementedError

    declaration.__name__ = name
    declaration.__doc__ = doc
    return declaration


def captured_by(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield the tensors that a function refers to without getting them as arguments."""
    if inspect.isfunction(function):
        names = inspect.getclosurevars(function)
        for leaf in tree.leaves([*names.nonlocals.values(), *names.globals.values()]):
            if isinstance(leaf, Value):
                yield leaf


def _leaf_name(value: Value) -> str:
    """Return how messages call the tracked leaf that a value depends on."""
    _, leaves = graph_of([value.node])
    leaf = next((x for x in leaves if isinstance(x, Value) and x.node is not None), value)
    return repr(leaf.name) if leaf.name else f"a tensor of shape {leaf.shape}"


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _as_tensor(x: Any) -> Any:
    """Return a tensor as it is, and anything else as an untracked one."""
    return x if isinstance(x, Value) else _read_only(np.asarray(x))


def _read_only(array: NDArray) -> Any:
    """Return a tensor around an array that others hold: a function that would write to it must not."""
    view = array.view()
    view.setflags(write=False)
    return wrap(Tensor, view)


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Value) else np.asarray(x)


def per_output(out: Any, *shapes: Any, **params: Any) -> int:
    """One operation per element of the outputs: the cost of what nothing is known of."""
    return sum(math.prod(shape) for shape in (out if isinstance(out, list) else [out]))
