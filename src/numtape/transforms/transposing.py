"""Transpose a linear rule: run it on tensors, and sweep back over the records that it leaves.

A VJP is linear in its cotangent and a JVP in its tangent, and each is the other's transpose: so one of them is enough.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.batching import Batched
from ..core.context import current, entered
from ..core.gradients import link_of, sweep
from ..core.reverse import reverse
from ..core.scopes import aside
from ..core.value import LEAF, Lifted, Value, array_of, wrap
from ..errors import GradientError, LeafWriteError, NotDifferentiableError
from ..exits import noted_exits
from ..tensors import Tensor

#: Takes and returns lists: tangents to tangents, or cotangents to cotangents.
Linear = Callable[[list[Any]], list[Any]]

#: Rules are run on small numbers, and checked for linearity on others that are far larger or smaller, so that a
#: threshold between them shows; powers of two, so that a linear rule passes without rounding. The sign shows `abs`.
_SMALL = 2.0**-10
_RATIOS = (-(2.0**20), 2.0**60, 2.0**-30)
#: A rule that is not linear misses by much more than float32 rounds.
_TOLERANCE = 1e-3


def is_recorded(values: Sequence[Any]) -> bool:
    """Say whether one of the values that a rule got is a tensor, alone or in a batch: then what it does is recorded."""
    return any(
        is_recorded(x) if isinstance(x, tuple | list) else isinstance(getattr(x, "members", x), Value) for x in values
    )


def own(moved: Any) -> Any:
    """Return (co)tangents as copies, recorded where they are tensors: a rule may write to what it gets, others read it.

    Batches and power series stay as they are, since nothing can be written to them.
    """
    if isinstance(moved, tuple):
        return tuple(map(own, moved))
    return moved.copy() if isinstance(moved, np.ndarray | Tensor) and not isinstance(moved, Lifted) else moved


def plain(moved: Any) -> Any:
    """Return a (co)tangent as an array, or a batch of them: a tensor would tell later rules that they are recorded."""
    return moved.of(array_of(moved)) if isinstance(moved, Batched) else array_of(moved)


def run_on_tape(run: Callable[[], Any], what: str, repair: str) -> Any:
    """Run what must be differentiable; raise if a tracked tensor becomes a plain number or array in it."""
    with noted_exits() as noted:
        try:
            out = run()
        except (TypeError, ValueError, AttributeError, GradientError) as error:
            if isinstance(error, GradientError) and type(error) not in (GradientError, LeafWriteError):
                raise  # It says what is wrong.
            raise NotDifferentiableError(f"{what} failed: {error} {repair}") from error
    noted.check(what, repair)
    return out


class Transpose:
    """The transpose of one rule, which is checked to be linear whenever it is used.

    Whether a rule is linear may depend on parameters and on values, so no check holds for another call.

    Args:
        what: the rule, in words.
        repair: what to do if it has no transpose.
    """

    __slots__ = ("repair", "what")

    def __init__(self, what: str, repair: str) -> None:
        self.what = what
        self.repair = repair

    def __call__(
        self, linear: Linear, shapes: Sequence[Any], cotangents: Sequence[Any], is_recorded: bool
    ) -> list[Any]:
        """Return the transpose of `linear`, at cotangents of what it returns.

        Args:
            linear: the rule; it takes as many tensors as there are shapes.
            shapes: of what it takes.
            cotangents: of what it returns, None where there is none.
            is_recorded: whether the result is to be differentiated itself.
        """
        dtype = next(c.dtype for c in cotangents if c is not None)
        starts = _starts(shapes, dtype)
        sources = [wrap(Tensor, x, LEAF) for x in starts]
        state = current()
        # One more transform is running: what is recorded here must keep its links until the sweep is done.
        changes: dict[str, Any] = {"grad": True, "transforms": state.transforms + 1}
        with entered(**changes) if is_recorded else aside(**changes):
            outs = run_on_tape(lambda: linear(sources), self.what, self.repair)
            pairs = [
                (y, seed)
                for y, seed in zip(outs, cotangents, strict=True)
                if seed is not None and isinstance(y, Value) and y.node is not None
            ]
            found = _sweep(pairs, sources, is_recorded) if pairs else {}
        for source in sources:  # Whoever watches what is recorded must not take them for a function's own.
            source.node = None
        pulled = [found[x] if x in found else np.zeros(x.shape, x.dtype) for x in sources]
        with aside(grad=False), np.errstate(all="ignore"):
            self._check_linear(outs, lambda ratio: linear([wrap(Tensor, ratio * x) for x in starts]))
            self._check_records(outs, cotangents, pulled, starts)
        return pulled

    def of_diagonal(self, linear: Linear, moved: Any) -> Any:
        """Return what `linear` takes a (co)tangent to: a rule whose Jacobian is diagonal is its own transpose."""
        starts = _starts([moved.shape], moved.dtype)
        with aside(grad=False), np.errstate(all="ignore"):
            # As arrays: such a rule need not run on tensors.
            self._check_linear(linear(starts), lambda ratio: linear([ratio * x for x in starts]))
        return linear([moved])[0]

    def _check_linear(self, outs: Sequence[Any], scaled: Callable[[float], Sequence[Any]]) -> None:
        """Raise unless the rule takes multiples of what it got to the multiples of what it returned."""
        for ratio in _RATIOS:
            for y, z in zip(map(_array, outs), map(_array, scaled(ratio)), strict=True):
                if not _is_close(z, ratio * y):
                    raise NotDifferentiableError(
                        f"{self.what} is not linear, so that it has no transpose. {self.repair}"
                    )

    def _check_records(
        self, outs: Sequence[Any], cotangents: Sequence[Any], pulled: Sequence[Any], starts: Sequence[NDArray]
    ) -> None:
        """Raise unless the records hold all of the rule: it is its own derivative, so <c, L x> = <L^T c, x>."""
        terms = [_products(c, y) for c, y in zip(cotangents, outs, strict=True) if c is not None]
        left = sum(term.sum(-1) for term in terms)
        size = sum(np.abs(term).sum(-1) for term in terms)
        right = sum(_products(p, x).sum(-1) for p, x in zip(pulled, starts, strict=True))
        if np.any(np.abs(left - right) > _TOLERANCE * size):
            raise NotDifferentiableError(
                f"{self.what} uses more of what it gets than its records tell: a value has left the tape. {self.repair}"
            )


def _starts(shapes: Sequence[Any], dtype: Any) -> list[NDArray]:
    """Return small numbers of both signs: linear rules have the same derivative everywhere, others show there."""
    rng = np.random.default_rng(0)
    return [np.asarray(_SMALL * rng.uniform(0.5, 1.0, s) * rng.choice([-1.0, 1.0], s), dtype) for s in shapes]


def _products(moved: Any, x: Any) -> NDArray:
    """Return the products of the elements of a (co)tangent and of an array, along the last axis; batches keep theirs.

    Of a power series the values count.
    """
    members, array = _array(moved), _array(x)
    return np.asarray(members * array).reshape((*members.shape[: members.ndim - len(moved.shape)], -1))


def _sweep(pairs: Sequence[tuple[Any, Any]], sources: Sequence[Any], is_recorded: bool) -> dict[Any, Any]:
    if is_recorded:
        return sweep([y for y, _ in pairs], [seed for _, seed in pairs], sources, create_graph=True)
    return reverse([(link_of(y), seed) for y, seed in pairs], sources)


def _array(x: Any) -> NDArray:
    return np.asarray(array_of(x))


def _is_close(a: Any, b: Any) -> bool:
    scale = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    is_finite = np.isfinite(a) & np.isfinite(b)
    return bool(np.all(np.abs(a - b)[is_finite] <= _TOLERANCE * scale)) if a.shape == b.shape else False
