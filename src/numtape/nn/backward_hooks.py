"""Functions that see the gradients of a module's outputs and inputs, and may replace those of its inputs.

The tracked inputs of a call are tied together by an op, and so are its outputs: an identity of several operands, whose
rule runs once, when the gradients of all of them are there, or will never come.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import tree
from .._typing import Dtype, NDArray, Shape
from ..core.apply import apply
from ..core.facts import Facts
from ..core.op import Op
from ..core.value import Lifted, Value, wrap
from ..errors import ArgumentError, ShapeError
from ..tensors import Tensor

if TYPE_CHECKING:
    from .module import Module

Hook = Callable[..., Any]
#: Called with the gradients of tied tensors, None for those that got none; returns what takes their place.
Seen = Callable[[tuple[Any, ...]], tuple[Any, ...]]


class BackwardPass:
    """One call of a module: it calls the hooks once the gradients of its tracked inputs are there.

    Without a tracked input it calls them once the gradients of the outputs are there, as it does those that come first.
    """

    def __init__(self, module: "Module", first: dict[int, Hook], then: dict[int, Hook]) -> None:
        self.module = module
        #: The hooks that see the gradients of the outputs alone, and those that see both.
        self.first = first
        self.then = then
        #: Which arguments are tracked, with their shapes and dtypes, and how many arguments there are.
        self.tracked: list[int] = []
        self.like: list[tuple[Shape, Dtype]] = []
        self.count = 0
        self.grad_output: tuple[Any, ...] = ()

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with copies of tracked tensors, whose gradients are those by this call alone."""
        found = list(args)
        self.tracked = _tie(found, self._arrived)
        self.like = [(found[place].shape, found[place].dtype) for place in self.tracked]
        self.count = len(args)
        return tuple(found)

    def leave(self, out: Any) -> Any:
        """Return the outputs of the call, with copies of tracked tensors."""
        parts: list[Any] = tree.leaves(out)
        count = len(parts)
        tracked = _tie(parts, lambda grads: self._left(grads, tracked, count))
        rest = iter(parts)
        return tree.map(lambda _: next(rest), out)

    def _left(self, grads: tuple[Any, ...], tracked: list[int], count: int) -> tuple[Any, ...]:
        got = _placed(grads, tracked, count)
        for hook in tuple(self.first.values()):
            got = self._changed(got, hook(self.module, got), "output")
        self.grad_output = got
        if not self.tracked:
            self._call((None,) * self.count)
        return tuple(got[place] for place in tracked)

    def _arrived(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        grads = tuple(
            wrap(Tensor, np.zeros(*like)) if grad is None else grad for grad, like in zip(grads, self.like, strict=True)
        )
        given = self._call(_placed(grads, self.tracked, self.count))
        return tuple(given[place] for place in self.tracked)

    def _call(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the hooks, and return the gradients of the arguments as they leave them."""
        for hook in tuple(self.then.values()):
            given = self._changed(given, hook(self.module, given, self.grad_output), "argument")
        return given

    def _changed(self, grads: tuple[Any, ...], returned: Any, what: str) -> tuple[Any, ...]:
        """Return the gradients as a hook leaves them, checked."""
        if returned is None:
            return grads
        changed = returned if isinstance(returned, tuple) else (returned,)
        title = f"{type(self.module).__name__}: a backward hook returned"
        if len(changed) != len(grads):
            raise ArgumentError(
                f"{title} {len(changed)} gradients for {len(grads)} {what}s; it returns None, or a tuple with a place "
                f"for each {what}."
            )
        for place, (before, after) in enumerate(zip(grads, changed, strict=True)):
            if before is None or after is None:
                continue
            if not isinstance(after, Value | np.ndarray) or after.shape != before.shape:
                shown = f"shape {after.shape}" if isinstance(after, Value | np.ndarray) else type(after).__name__
                raise ShapeError(f"{title} {shown} for the gradient of {what} {place}, which has shape {before.shape}.")
        return changed


def _placed(grads: tuple[Any, ...], places: list[int], count: int) -> tuple[Any, ...]:
    found: list[Any] = [None] * count
    for place, grad in zip(places, grads, strict=True):
        found[place] = grad
    return tuple(found)


def _tie(parts: list[Any], seen: Seen) -> list[int]:
    """Tie the tracked tensors of a list together in place, and return where they are."""
    places = [place for place, part in enumerate(parts) if isinstance(part, Value) and part.node is not None]
    if places:
        tied = apply(TIE, [parts[place] for place in places], {"seen": seen})
        for place, copied in zip(places, tied, strict=True):
            parts[place] = copied
    return places


def _tied(tensors: tuple[NDArray, ...], /, *, seen: Seen) -> tuple[NDArray, ...]:
    """Return copies of tensors whose gradients are seen together."""
    return tuple(x.copy() for x in tensors)


def _pull(g: tuple[Any, ...], tensors_shape: Any, seen: Seen) -> list[Any]:
    if not any(isinstance(part, Lifted) for part in g):  # Batches, which whole Jacobians are made of, pass by.
        is_recorded = any(isinstance(part, Value) for part in g)
        seen_parts = seen(tuple(part if part is None or isinstance(part, Value) else _shown(part) for part in g))
        g = seen_parts if is_recorded else tuple(x.array if isinstance(x, Value) else x for x in seen_parts)
    return [np.zeros(shape, np.float32) if part is None else part for part, shape in zip(g, tensors_shape, strict=True)]


def _shown(array: NDArray) -> Any:
    """Return a gradient as a tensor that cannot be written: other tensors may have the same memory for theirs."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return wrap(Tensor, view)


def _push(t: Any, tensors_shape: Any, index: int) -> tuple[Any, ...]:
    return tuple(t if i == index else np.zeros(shape, t.dtype) for i, shape in enumerate(tensors_shape))


TIE = Op(
    _tied,
    _tied,
    pulls={},
    pushes={"tensors": _push},
    joint=_pull,
    is_variadic=True,
    promoted=(),
    facts=Facts(cost=lambda out, *shapes, **params: 0, is_linear_backward=False),
)
