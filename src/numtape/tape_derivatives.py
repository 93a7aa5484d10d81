"""Derivatives that a tape computes and that consume nothing: in forward mode, and whole Jacobians."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import tree
from .arguments import depends_on_running
from .core.apply import watch_on_use
from .core.context import current, entered
from .core.gradients import as_tensor, check_target, link_of, push_forward
from .core.graph import graph_of, is_reached
from .core.tape import RecordingTape, watched_by_others
from .core.value import Value, wrap
from .directions import as_moved
from .dtypes import is_float
from .errors import ArgumentError, DtypeError, NotConnectedError, OperandError
from .recording import Recording

if TYPE_CHECKING:
    from .schedule import HybridScheduler


class TapeDerivatives(Recording):
    """What a tape knows of derivatives by each element, and of who differentiates what it computes."""

    # Made when it is asked for, as few tapes compute Jacobians, and what that takes is imported here and there below.
    _scheduler: "HybridScheduler | None" = None

    @property
    def scheduler(self) -> "HybridScheduler":
        """Chooses how `jacobian` is computed; ask it for `last_decision` and `explain()`."""
        if self._scheduler is None:
            self.scheduler = None
        assert self._scheduler is not None
        return self._scheduler

    @scheduler.setter
    def scheduler(self, given: Any) -> None:
        from .schedule import HybridScheduler

        self._scheduler = given if isinstance(given, HybridScheduler) else HybridScheduler(given)

    def forward_gradient(self, source: Any, target: Any, tangent: Any = None, *, create_graph: bool = False) -> Any:
        """Return the derivative of a target by a source in forward mode. Consumes nothing.

        Args:
            source: a tensor, a dict, whose values may be trees, or an iterable of tensors.
            target: a tensor that was computed from it, or an iterable of such (then a list is returned).
            tangent: a direction of the source's shape, for an iterable one for each, for a dict a dict; None for the
                derivatives by each element.
            create_graph: as for `gradient`.

        Returns:
            With a tangent, the directional derivative, of the target's shape; otherwise all derivatives, of shape
            ``target.shape + source.shape``, in a list for an iterable of sources and in a dict for a dict.

        Example:
            >>> tape = nt.GradientTape()
            >>> x = tape.watch(nt.tensor(2.0))
            >>> tape.forward_gradient(x, nt.stack([x, x * x]))
            tensor([1., 4.])
        """
        from .jacobians import scheduler_for

        name = "forward_gradient"
        self._check_open(name)
        sources = as_sources("source", source, name)
        targets = as_list("target", target, name)
        for one, other in itertools.product(targets, sources):
            self._check_connected(name, one, other)
        if tangent is None:
            scheduler = scheduler_for(name, "forward", None)
            found = [
                like_sources(source, [self._jacobian(one, x, scheduler, create_graph) for x in sources])
                for one in targets
            ]
        else:
            seeds = self._tangents(name, source, sources, tangent)
            found = [self._pushed(one, sources, seeds, create_graph) for one in targets]
        return found[0] if isinstance(target, Value) else found

    def _tangents(self, name: str, source: Any, sources: Sequence[Any], tangent: Any) -> list[Any]:
        """Return a tangent for each source, checked."""
        if isinstance(source, Value):
            tangents = [tangent]
        elif isinstance(source, dict) and isinstance(tangent, dict):
            try:
                tangents = tree.leaves_like(source, tangent)
            except ArgumentError as error:
                raise ArgumentError(f"{name}: the tangents have another structure than the sources; {error}") from error
        elif isinstance(tangent, Iterable) and not isinstance(tangent, dict):
            tangents = list(tangent)
        else:
            raise ArgumentError(
                f"{name}: {len(sources)} sources and the tangent {tangent!r} were given; give a list of tangents, one "
                "for each source."
            )
        if len(tangents) != len(sources):
            raise ArgumentError(
                f"{name}: {len(sources)} sources and {len(tangents)} tangents were given; give one for each."
            )
        return [
            as_moved(t, x, "tangent", functools.partial("{}: tangent {}".format, name, i))
            for i, (t, x) in enumerate(zip(tangents, sources, strict=True))
        ]

    def _pushed(self, target: Any, sources: Sequence[Any], seeds: Sequence[Any], create_graph: bool) -> Any:
        """Return the directional derivative of a target."""
        outer = self._outer_tapes()
        create_graph = create_graph or self._is_differentiated(outer, seeds, [target])
        with self._reproducibly(), entered(tapes=outer, watch_all=False):
            (pushed,) = push_forward([target], sources, seeds, create_graph=create_graph)
        return as_tensor(pushed, target, target.plain)

    def jacobian(
        self,
        target: Any,
        source: Any,
        mode: str = "auto",
        chunk_size: int | None = None,
        *,
        create_graph: bool = False,
    ) -> Any:
        """Return the derivatives of a target by each element of a source: shape ``target.shape + source.shape``.

        Consumes nothing.

        Args:
            target: a tensor.
            source: a tensor (then one Jacobian is returned), a dict, whose values may be trees (then one like it is),
                or an iterable of tensors (then a list is).
            mode: "auto" (as the tape's scheduler says), "forward", "reverse" or "mixed".
            chunk_size: how many rows or columns are computed at once; None for as many as memory allows.
            create_graph: as for `gradient`.

        Example:
            >>> x = nt.tensor([1.0, 2.0])
            >>> with nt.Tape() as tape:
            ...     y = x * x
            >>> tape.jacobian(y, x)
            tensor([[2., 0.],
                    [0., 4.]])
        """
        from .jacobians import check_chunk_size, scheduler_for
        from .scheduler_config import SchedulingStrategy, as_member

        name = "jacobian"
        self._check_open(name)
        check_chunk_size(name, chunk_size)
        strategy = as_member(name, "mode", SchedulingStrategy, mode)
        scheduler = self.scheduler if strategy is SchedulingStrategy.AUTO else scheduler_for(name, mode, None)
        sources = as_sources("source", source, name)
        for one in sources:
            self._check_connected(name, target, one)
        found = [self._jacobian(target, one, scheduler, create_graph, chunk_size) for one in sources]
        self.scheduler.last_decision = scheduler.last_decision
        return like_sources(source, found)

    def _jacobian(
        self,
        target: Any,
        source: Any,
        scheduler: "HybridScheduler",
        create_graph: bool,
        chunk_size: int | None = None,
    ) -> Any:
        from .jacobians import matrix_blocks

        outer = self._outer_tapes()
        is_recorded = create_graph or self._is_differentiated(outer, [], [target])
        with self._reproducibly(), entered(tapes=outer, watch_all=False):
            ((block,),) = matrix_blocks([target], [source], scheduler, chunk_size, is_recorded)
            shape = (*target.shape, *source.shape)
            if isinstance(block, Value):
                return as_tensor(block.reshape(shape), source, source.plain)  # type: ignore[attr-defined]
        if block is None:
            block = np.zeros(shape, source.dtype)
        return wrap(source.plain, np.asarray(block, source.dtype).reshape(shape))

    def _check_connected(self, name: str, target: Any, source: Any) -> None:
        """Raise unless a target was computed from a source."""
        for what, given in (("target", target), ("source", source)):
            if not isinstance(given, Value):
                raise OperandError(f"{name}: the {what} must be a tensor, but {type(given).__name__} was given.")
        check_target(name, target)
        if not is_float(source.dtype):
            raise DtypeError(
                f"{name}: the source is a tensor of {source.dtype}, which has no derivative; compute with its "
                "astype(nt.float32), and watch that."
            )
        if not is_reached(link_of(target), link_of(source)):
            if source.node is not None and is_reached(link_of(source), link_of(target)):
                order = "(source, target)" if name == "forward_gradient" else "(target, source)"
                raise NotConnectedError(
                    f"{name}: the source was computed from the target, and not the other way round; the order is "
                    f"{name}{order}."
                )
            raise NotConnectedError(
                f"{name}: the target does not depend on {source.name or f'tensor{list(source.shape)}'}; watch it "
                f"before it is used, and compute with nt or np functions outside of no_grad.{self._left()}"
            )

    def _outer_tapes(self) -> tuple[RecordingTape, ...]:
        """Return the tapes that record around this one: those entered before it, or all if it is not entered."""
        tapes = tuple(tape for tape in current().tapes if not tape.is_ended or tape is self._tape)
        return tapes[: tapes.index(self._tape)] if self._tape in tapes else tapes

    def _is_differentiated(
        self, outer: tuple[RecordingTape, ...], seeds: Sequence[Any], targets: Sequence[Value]
    ) -> bool:
        """Say whether something around differentiates what this tape computes; tapes then watch the seeds as well."""
        state = current()
        if not state.grad:
            return False
        for seed in seeds:
            if isinstance(seed, Value) and seed.node is None and state.watch_all:
                watch_on_use(state, seed)
        if outer or state.transforms or depends_on_running(targets):
            return True
        others = watched_by_others(self._tape)
        if not others:  # As most often.
            return False
        records, leaves = graph_of([link_of(target) for target in targets])
        return not {*records, *leaves}.isdisjoint(map(link_of, others))


def as_list(what: str, given: Any, name: str = "gradient") -> list[Any]:
    """Return a tensor or an iterable of tensors as a list."""
    is_single = isinstance(given, Value | np.ndarray | str) or not isinstance(given, Iterable)
    items = [given] if is_single else list(given)
    for item in items:
        if not isinstance(item, Value) and not (what == "output_gradients"):
            raise OperandError(
                f"{name}: {what} must be a tensor or an iterable of tensors, but {type(item).__name__} was given."
            )
    return items


def as_sources(what: str, given: Any, name: str = "gradient") -> list[Any]:
    """Return a tensor, a dict of trees of tensors or an iterable of tensors as a list."""
    return as_list(what, tree.leaves(given) if isinstance(given, dict) else given, name)


def like_sources(given: Any, results: list[Any]) -> Any:
    """Return results, one for each source, in the form in which the sources were given."""
    if isinstance(given, Value):
        return results[0]
    return tree.unflatten(given, results) if isinstance(given, dict) else results
