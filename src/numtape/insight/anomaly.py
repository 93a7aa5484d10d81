"""Raise when a loss or a gradient is not finite, before anything is delivered, and name where it began."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..core.context import current, entered
from ..core.reader import Reader
from ..core.record import Record
from ..core.scopes import Follower, Observer
from ..core.value import Lifted, Value
from ..errors import NonFiniteError
from ..grad_mode import F, decorated
from .birth import Birth, hooked, is_finite
from .provenance import Explanation, explain_target, explained
from .rule_sites import RuleSites
from .search import Trail, first_of, leaf_hooks


class _Watch(Observer):
    """Looks at what sweeps start from and deliver. What rules do inside of a sweep shows in what it delivers."""

    looks_inside = False

    def __init__(self) -> None:
        #: The hooks that were added to leaves, each until it was called.
        self.looks: dict[Any, Any] = {}
        self.rules = RuleSites()

    def on_targets(self, targets: Sequence[Value]) -> None:
        for target in targets:
            is_made = type(target.node) is Record and not isinstance(target, Lifted)
            if is_made and not is_finite(target.array):
                with entered(scopes=(), observers=()), np.errstate(all="ignore"):
                    raise_anomaly("the target of this backward is not finite", explain_target(target))

    def on_sweep(self, records: Sequence[Record]) -> Follower:
        return _Sweep(self, records)

    def drop(self, leaf: Any) -> None:
        """Take back the hook that was added to a leaf, if there is one."""
        look = self.looks.pop(leaf, None)
        if look is not None:
            look.remove()

    def end(self) -> None:
        """Leave no hook behind, should one of the user's have raised."""
        for leaf in list(self.looks):
            self.drop(leaf)


class _Sweep(Follower):
    """Follows one sweep, and raises at its end if something that it delivers is not finite."""

    def __init__(self, watch: _Watch, records: Sequence[Record]) -> None:
        self._watch = watch
        self._records = records
        self._passes = watch.rules.follow()
        self._trail = Trail(Reader(None))
        self._cotangents: dict[Any, Any] = {}

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        self._cotangents = cotangents
        self._passes(record)
        self._trail.step(record, cotangent, cotangents)

    def on_end(self) -> None:
        trail, cotangents = self._trail, self._cotangents
        birth = first_of(trail.ends(cotangents)) or first_of(trail.sums(cotangents))
        if birth is not None:
            self._raise(birth)
        for leaf in cotangents:
            if leaf_hooks(leaf) and leaf in trail.last:
                self._follow_hooks(leaf)

    def _follow_hooks(self, leaf: Any) -> None:
        """Look at what the hooks of a leaf return: they run once the sweep has ended, and this one is the last."""
        watch = self._watch
        watch.drop(leaf)

        def look(gradient: Value) -> None:
            watch.drop(leaf)
            if not is_finite(gradient):
                self._raise(hooked(*self._trail.last[leaf], gradient))

        watch.looks[leaf] = leaf.register_hook(look)

    def _raise(self, birth: Birth) -> None:
        with entered(scopes=(), observers=()), np.errstate(all="ignore"):
            found = explained(birth, self._records)
            raise_anomaly("a gradient of this backward is not finite", self._watch.rules.located(found, birth.record))


def raise_anomaly(what: str, explanation: Explanation) -> None:
    """Raise for what is not finite, with the explanation of where it began."""
    raise NonFiniteError(f"detect_anomaly: {what}.\n{explanation}", explanation)


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
        self._entered = entered()

    def __enter__(self) -> Self:
        watch = _Watch()
        self._entered.enter({"observers": (*current().observers, watch)}, note=watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._entered.innermost()
        if entry is not None:
            entry.note.end()
        self._entered.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        return decorated("detect_anomaly", function, detect_anomaly)
