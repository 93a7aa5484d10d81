"""Raise when a loss or a gradient is not finite, before anything is delivered, and name where it began."""

import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..core.context import Observer, current, entered
from ..core.reader import Reader
from ..core.record import Record
from ..core.value import Lifted, Value
from ..errors import NonFiniteError
from ..grad_mode import F, decorated
from .birth import Birth, hooked, is_finite
from .provenance import Explanation, explain_target, explained
from .search import Trail, first_of, leaf_hooks

#: How many sweeps within sweeps are followed. One that raises does not tell, and is forgotten after that many more.
_MOST_NESTED = 8


class _Sweep:
    """A reverse sweep that is being watched, known by the dictionary of its cotangents."""

    def __init__(self, records: Sequence[Record], cotangents: Any) -> None:
        self.records = records
        self.cotangents = cotangents
        self.trail = Trail(Reader(None))


class _Watch(Observer, threading.local):
    """Follows the sweeps of a thread."""

    def __init__(self) -> None:
        self._sweeps: deque[_Sweep] = deque(maxlen=_MOST_NESTED)
        self._records: Sequence[Record] = ()
        #: The sweep that took the last step: it is the one that ends next.
        self._latest: _Sweep | None = None
        #: The hooks that were added to leaves, each until it was called.
        self._looks: dict[Any, Any] = {}

    def on_targets(self, targets: Sequence[Value]) -> None:
        for target in targets:
            is_made = type(target.node) is Record and not isinstance(target, Lifted)
            if is_made and not is_finite(target.array):
                with entered(scopes=(), observers=()), np.errstate(all="ignore"):
                    raise_anomaly("the target of this backward is not finite", explain_target(target))

    def on_sweep(self, records: Sequence[Record]) -> None:
        self._records = records
        self._latest = None

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        sweep = self._latest
        if sweep is None or sweep.cotangents is not cotangents:
            sweep = next((each for each in self._sweeps if each.cotangents is cotangents), None)
            if sweep is None:
                sweep = _Sweep(self._records, cotangents)
                self._sweeps.append(sweep)
            self._latest = sweep
        sweep.trail.step(record, cotangent, cotangents)

    def on_end(self) -> None:
        sweep, self._latest = self._latest, None
        if sweep is None:
            return
        self._sweeps.remove(sweep)
        birth = first_of(sweep.trail.ends(sweep.cotangents)) or first_of(sweep.trail.sums(sweep.cotangents))
        if birth is not None:
            _raise_gradient(birth, sweep.records)
        for leaf in sweep.cotangents:
            if leaf_hooks(leaf) and leaf in sweep.trail.last:
                self._follow_hooks(leaf, sweep)

    def _follow_hooks(self, leaf: Any, sweep: _Sweep) -> None:
        """Look at what the hooks of a leaf return: they run once the sweep has ended, and this one is the last."""
        self._drop(leaf)

        def look(gradient: Value) -> None:
            self._drop(leaf)
            if not is_finite(gradient):
                _raise_gradient(hooked(*sweep.trail.last[leaf], gradient), sweep.records)

        self._looks[leaf] = leaf.register_hook(look)

    def _drop(self, leaf: Any) -> None:
        look = self._looks.pop(leaf, None)
        if look is not None:
            look.remove()

    def end(self) -> None:
        """Leave no hook behind, should one of the user's have raised."""
        for leaf in list(self._looks):
            self._drop(leaf)


def raise_anomaly(what: str, explanation: Explanation) -> None:
    """Raise for what is not finite, with the explanation of where it began."""
    raise NonFiniteError(f"detect_anomaly: {what}.\n{explanation}", explanation)


def _raise_gradient(birth: Birth, records: Sequence[Record]) -> None:
    with entered(scopes=(), observers=()), np.errstate(all="ignore"):
        raise_anomaly("a gradient of this backward is not finite", explained(birth, records))


class detect_anomaly:
    """Let every backward in a block or a function raise if its loss or one of its gradients is not finite.

    The error names what `nt.explain_nan` names, and has it as its `explanation`. It is raised before anything is added
    to ``.grad``. Ops run as fast as ever; each step of a backward is looked at. Values that are not finite on the way
    and reach neither the loss nor a gradient, such as the -inf of a mask, are left alone.

    Example:
        >>> x = nt.tensor([1.0, 0.0], requires_grad=True)
        >>> with nt.detect_anomaly():
        ...     try:
        ...         nt.sqrt(x).sum().backward()
        ...     except nt.errors.NonFiniteError as error:
        ...         print(error.explanation.op, error.explanation.cause)
        sqrt the derivative of sqrt by x is inf where x = 0.
        >>> x.grad is None
        True
    """

    def __init__(self) -> None:
        self._open: list[tuple[entered, _Watch]] = []

    def __enter__(self) -> Self:
        watch = _Watch()
        scope = entered(observers=(*current().observers, watch))
        scope.__enter__()
        self._open.append((scope, watch))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope, watch = self._open.pop()
        watch.end()
        scope.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        return decorated("detect_anomaly", function, detect_anomaly)
