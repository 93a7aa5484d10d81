"""The public tapes: thin facades over the engine.

`Tape` watches every float tensor that is used inside it; `GradientTape` watches what it is told to. Both share one kind
of record with contexts, and a gradient follows the target's own graph, whoever recorded it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import tape_scopes
from .arguments import distinct
from .core.cells import FREED
from .core.context import entered
from .core.delivery import deliver
from .core.gradients import (
    as_tensor,
    check_target,
    is_freeable,
    link_of,
    ones_like,
    seed_of,
    sweep,
    why_untracked,
)
from .core.graph import collect
from .core.marks import PLAIN, marks
from .core.recompute import raise_freed
from .core.record import Record
from .core.reverse import Cotangents
from .core.stepping import backward_steps
from .core.value import Value
from .core.write import check_history
from .dtypes import HALF_DTYPES, widened
from .errors import ArgumentError, MemoryBudgetError, NotConnectedError, OperandError, TapeConsumedError
from .gradients import Gradients, ScaledGradients
from .insight import summary as summaries
from .tape_derivatives import TapeDerivatives, as_list, as_sources, like_sources
from .tensors import Tensor

if TYPE_CHECKING:
    from .config import AmpConfig, CheckpointConfig, DeterministicConfig
    from .schedule import HybridScheduler
    from .scheduler_config import SchedulerConfig, SchedulingStrategy
    from .transforms.planning import Plan


class Tape(TapeDerivatives):
    """Record ops and differentiate them.

    Inside ``with tape:`` every float tensor is watched on first use and every record is listed. Gradients follow the
    target's own graph, so they may also be taken of what was recorded elsewhere.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_all: whether float tensors are watched on first use.
        checkpoint: what is kept of the values recorded inside ``with``; the backward makes the others again.
        amp: in which precision ops run inside ``with``, and how `backward` and `gradient` scale what they compute. On
            overflow these deliver nothing, and `overflow` is True.
        deterministic: the same bits every time, inside ``with`` and in the derivatives that this tape computes.
        scheduler: how `jacobian` is computed: a `SchedulerConfig` or a `HybridScheduler`.

    Example:
        >>> x = nt.tensor([1.0, 2.0])
        >>> with nt.Tape() as tape:
        ...     loss = (x * x).sum()
        >>> tape.backward(loss)[x]
        tensor([2., 4.])
    """

    def __init__(
        self,
        persistent: bool = False,
        watch_all: bool = True,
        checkpoint: "CheckpointConfig | None" = None,
        amp: "AmpConfig | None" = None,
        deterministic: "DeterministicConfig | None" = None,
        scheduler: "HybridScheduler | SchedulerConfig | None" = None,
    ) -> None:
        self._dropping = tape_scopes.dropping_of(checkpoint)
        self._deterministic = tape_scopes.deterministic_of(deterministic)
        casting = tape_scopes.casting_of(amp)
        super().__init__(persistent, watch_all, tape_scopes.given(self._deterministic, self._dropping, casting))
        self._scaler = tape_scopes.scaler_of(amp)
        self._overflow = False
        #: The running statistics that moved on the way to what was differentiated last under loss scaling.
        self._statistics: Any = None
        if scheduler is not None:
            self.scheduler = scheduler

    @property
    def overflow(self) -> bool:
        """Whether the last `backward` or `gradient` overflowed under loss scaling, and so delivered nothing."""
        return self._overflow

    def gradient(
        self,
        targets: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected: str = "none",
        *,
        create_graph: bool = False,
    ) -> Any:
        """Return the derivatives of the targets by each source; targets that are not scalar count as their sum.

        Args:
            targets: a tensor, or an iterable of tensors whose derivatives are added.
            sources: a tensor (then one gradient is returned), a dict, whose values may be trees (then one like it is),
                or an iterable (then a list is).
            output_gradients: the cotangents of the targets, instead of ones.
            unconnected: what a source without influence gets: "none", "zero" or "error".
            create_graph: record the sweep itself, so that `backward` can differentiate what it gives. Without being
                asked this is so where another tape, or a transform, is around.

        Raises:
            TapeConsumedError: at the second call, unless the tape is persistent.
        """
        self._check_open("gradient")
        if unconnected not in ("none", "zero", "error"):
            raise ArgumentError(f'gradient: unconnected is {unconnected!r}; it must be "none", "zero" or "error".')
        if self._is_consumed:
            raise TapeConsumedError(
                "gradient: this tape was consumed by an earlier gradient(); use persistent=True to call it again, or "
                "give several targets in one call."
            )
        target_list = as_list("targets", targets)
        if not target_list:
            raise ArgumentError("gradient: there are no targets; give at least one tensor.")
        source_list = as_sources("sources", sources)
        given = [None] * len(target_list) if output_gradients is None else as_list("output_gradients", output_gradients)
        if len(given) != len(target_list):
            raise ArgumentError(
                f"gradient: {len(target_list)} targets and {len(given)} output_gradients were given; give one for each "
                "target, or None for ones."
            )
        for target in target_list:
            check_history("gradient", target)
        seeds = [seed_of("gradient", target, g) for target, g in zip(target_list, given, strict=True)]
        outer = self._outer_tapes()
        create_graph = create_graph or self._is_differentiated(outer, seeds, target_list)
        self._check_entered("GradientTape")
        graph, scales = marks.search([link_of(target) for target in target_list], given)
        with self._reproducibly(), entered(tapes=outer, watch_all=False):
            found = self._scaled_sweep(
                target_list, seeds, source_list, create_graph=create_graph, graph=graph, is_planned=True
            )
        if self._overflow:
            results = [None] * len(source_list)
        else:
            results = distinct([self._result(found, source, target_list, unconnected) for source in source_list])
            _mark_scaled(map(link_of, source_list), results, scales)
        if not self.persistent:
            self._consume()
        if self._scaler is not None and not isinstance(sources, Value | dict):
            return ScaledGradients(results, self._overflow, self._statistics)
        return like_sources(sources, results)

    def _scaled_sweep(
        self, targets: Sequence[Value], seeds: list[Any], sources: Sequence[Value] | None, **options: Any
    ) -> Cotangents:
        """Run the reverse sweep, by the tape's loss scaler if it has one; on overflow nothing is found."""
        scaler = self._scaler
        if scaler is None:
            return sweep(targets, seeds, sources, **options)
        seeds[:] = map(scaler.scaled_seed, seeds)
        with scaler.retaining(targets) as retained:
            found = sweep(targets, seeds, sources, **options)
        self._statistics = scaler.unscale_found(found, targets, retained if sources is None else None)
        self._overflow = self._statistics is None
        return found

    def _as_gradient(self, cotangent: Any, like: Any, cls: type[Value]) -> Any:
        """Return a cotangent as a gradient; one that was unscaled stays float32, as the half type may not hold it."""
        is_wide = self._scaler is not None and like.dtype in HALF_DTYPES
        return as_tensor(cotangent, cotangent if is_wide else like, cls)

    def _result(self, found: dict[Any, Any], source: Tensor, targets: Sequence[Value], unconnected: str) -> Any:
        link = link_of(source)
        if link in found:
            return self._as_gradient(found[link], source, source.plain)
        if unconnected == "zero":
            return self._as_gradient(np.zeros(source.shape, widened(source.dtype)), source, source.plain)
        if unconnected == "error":
            name = source.name or f"tensor{list(source.shape)}"
            untracked = next((target for target in targets if target.node is None), None)
            raise NotConnectedError(
                f"gradient: the targets do not depend on {name}"
                + (
                    f": {why_untracked(untracked)}"
                    if untracked is not None
                    else f"; was it watched before use?{self._left()}"
                )
            )
        return None

    def backward(
        self,
        loss: Any,
        gradient: Any = None,
        retain_graph: bool = False,
        create_graph: bool = False,
        keep: str = "leaves",
    ) -> Gradients:
        """Return the gradients of a loss by all leaves, and add them to ``.grad`` of those that require it.

        Args:
            loss: a tensor; if it is not scalar, its sum counts.
            gradient: the cotangent of the loss, instead of ones.
            retain_graph: keep the graph's arrays for another backward.
            create_graph: record the backward itself, so that the gradients can be differentiated.
            keep: "all" to get the gradients of intermediates as well.
        """
        self._check_open("backward")
        _check_keep("backward", keep)
        check_target("backward", loss)
        outer = self._outer_tapes()
        seeds = [seed_of("backward", loss, gradient)]
        create_graph = create_graph or self._is_differentiated(outer, seeds, [loss])
        is_last = not (retain_graph or create_graph or outer)
        free = is_last and is_freeable(loss)
        self._check_entered("GradientTape")
        graph, scales = marks.search([link_of(loss)], [gradient])
        with self._reproducibly(), entered(tapes=outer, watch_all=False):
            found = self._scaled_sweep(
                [loss],
                seeds,
                None,
                create_graph=create_graph,
                free=free,
                keep_all=self._keeps_all(keep),
                graph=graph,
                is_planned=True,
            )
        self._has_run_backward = True
        if is_last and not self.is_recording:
            # What is computed from them after this, new weights above all, is none of this tape's business.
            self._tape.unwatch_used()
        return self._gradients(found, loss.plain, keep, scales)

    def _gradients(
        self, found: dict[Any, Any], cls: type[Value], keep: str, scales: Mapping[int, float | None]
    ) -> Gradients:
        watched = {value.node: value for value in self._tape.watched_intermediates()}
        tensors: list[Any] = []
        gradients: list[Any] = []
        delivered = set()
        intermediates = {}
        coming = marks.coming([link for link in found if isinstance(link, Value) and link.requires_grad], scales)
        for link in list(found):
            if isinstance(link, Record) and link not in watched and keep != "all":
                continue
            gradient = self._as_gradient(found.pop(link), link, cls)  # Taken out: what nobody else holds is not copied.
            if isinstance(link, Record):
                if link in watched:
                    tensors.append(watched[link])
                    gradients.append(gradient)
                else:
                    intermediates[link] = gradient
                continue
            if link.requires_grad:
                deliver(link, gradient, is_unscaled=self._scaler is not None)
                delivered.add(link.id)
            tensors.append(link)
            gradients.append(gradient)
        marks.arrive(coming)
        _mark_scaled(map(link_of, tensors), gradients, scales)
        made = Gradients(tensors, gradients, delivered, self._left(), self._overflow)
        made._intermediates = intermediates
        made.statistics = self._statistics
        return made

    def checkpoint_plan(self, loss: Any, keep: str = "leaves") -> "Plan":
        """Return what a backward of a loss would keep, run again, and hold at most, given the tape's checkpointing.

        Args:
            loss: a tensor.
            keep: what `backward` will be asked to keep.

        Example:
            >>> x = nt.tensor([1.0, 2.0])
            >>> with nt.Tape(checkpoint=nt.CheckpointConfig("block", checkpoint_every_n=4)) as tape:
            ...     loss = nt.sin(nt.exp(nt.sin(nt.exp(x)))).sum()
            >>> tape.checkpoint_plan(loss).recomputed
            3
        """
        self._check_open("checkpoint_plan")
        _check_keep("checkpoint_plan", keep)
        check_target("checkpoint_plan", loss)
        self._check_entered("GradientTape")
        records = collect([link_of(loss)])
        if (freed := next((record for record in records if record.cell is FREED), None)) is not None:
            raise_freed(freed)
        keeps = set(records) if self._keeps_all(keep) else set()
        return tape_scopes.plan_of(self._dropping, records, is_freeable(loss), keeps)

    def _keeps_all(self, keep: str) -> bool:
        """Say whether a backward keeps the cotangents of all intermediates."""
        return keep == "all" or bool(self._tape.watched_intermediates())

    def _check_recorded(self) -> None:
        super()._check_recorded()
        try:
            tape_scopes.check_budget(self._dropping, self._tape.records, self._keeps_all("leaves"))
        except MemoryBudgetError:
            self._has_run_backward = True  # There will be none: what is recorded next begins anew.
            raise

    def backward_steps(self, loss: Any) -> Iterator[tuple[Record, Any, list[Any]]]:
        """Return the records of a loss's graph one by one, newest first, with the cotangents that came in and went out.

        For teaching and debugging: nothing is delivered and nothing is freed.

        Example:
            >>> x = nt.tensor(3.0)
            >>> with nt.Tape() as tape:
            ...     y = x * x + 1.0
            >>> [(record.op.name, float(g)) for record, g, _ in tape.backward_steps(y)]
            [('add', 1.0), ('mul', 1.0)]
        """
        self._check_open("backward_steps")
        check_target("backward_steps", loss)
        return self._steps(loss)

    def _steps(self, loss: Value) -> Iterator[tuple[Record, Any, list[Any]]]:
        steps = backward_steps(link_of(loss), ones_like(loss), is_planned=True)
        while True:
            with self._reproducibly():
                step = next(steps, None)
            if step is None:
                return
            yield step
            step = None  # What the caller has let go of goes now.

    def to_numpy_source(self, loss: Any = None, sources: Any = None, *, check: bool = True) -> Any:
        """Return what was recorded, and its gradient, as NumPy code that runs without numtape.

        Args:
            loss: the tensor to write; None for the one result on the tape that no other record reads.
            sources: the tensors by which to differentiate; None for all leaves.
            check: whether to run the code on what was recorded, and compare.

        Returns:
            The text of a module with `forward` and `gradient`; see `nt.to_numpy_source`.

        Example:
            >>> x = nt.tensor([1.0, 2.0], name="x")
            >>> with nt.Tape() as tape:
            ...     loss = (x * x).sum()
            >>> float(tape.to_numpy_source().load()["forward"](np.array([3.0, 4.0])))
            25.0
        """
        from .insight.source import tape_to_numpy_source  # Rarely used, and it needs the parser.

        return tape_to_numpy_source(self._tape.records, loss, sources, check)


class GradientTape(Tape):
    """A tape that watches only what it is told to.

    It works without being entered: watched tensors are recorded wherever they are used.

    Example:
        >>> tape = nt.GradientTape()
        >>> x = tape.watch(nt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> loss = (x * x).sum()
        >>> tape.gradient([loss], [x])
        [tensor([[2., 4.],
                [6., 8.]])]
    """

    def __init__(
        self,
        persistent: bool = False,
        watch_all: bool = False,
        checkpoint: "CheckpointConfig | None" = None,
        amp: "AmpConfig | None" = None,
        deterministic: "DeterministicConfig | None" = None,
        scheduler: "HybridScheduler | SchedulerConfig | None" = None,
    ) -> None:
        super().__init__(persistent, watch_all, checkpoint, amp, deterministic, scheduler)

    @classmethod
    def with_checkpoint_config(cls, config: "CheckpointConfig") -> "GradientTape":
        """Return a tape that keeps of its values what a `CheckpointConfig` says."""
        return cls(checkpoint=config)

    @classmethod
    def with_amp_config(cls, config: "AmpConfig") -> "GradientTape":
        """Return a tape that computes in mixed precision, and scales what it differentiates, as an `AmpConfig` says.

        Example:
            >>> w = nt.ones(2, 2, requires_grad=True)
            >>> with nt.GradientTape.with_amp_config(nt.AmpConfig(precision_mode="float16")) as tape:
            ...     loss = nt.sum(nt.ones(1, 2) @ w)
            >>> grads = tape.backward(loss)
            >>> grads.overflow, w.grad.tolist()
            (False, [[1.0, 1.0], [1.0, 1.0]])
        """
        return cls(amp=config)

    @classmethod
    def with_deterministic_config(cls, config: "DeterministicConfig") -> "GradientTape":
        """Return a tape that gives the same bits every time, as a `DeterministicConfig` says."""
        return cls(deterministic=config)

    @classmethod
    def with_scheduler_config(cls, config: "SchedulerConfig | SchedulingStrategy | str") -> "GradientTape":
        """Return a tape whose Jacobians are computed as a `SchedulerConfig` says."""
        from .scheduler_config import SchedulerConfig, SchedulingStrategy

        return cls(scheduler=SchedulerConfig(config) if isinstance(config, str | SchedulingStrategy) else config)


def _check_keep(name: str, keep: str) -> None:
    if keep not in ("leaves", "all"):
        raise ArgumentError(f'{name}: keep is {keep!r}; it must be "leaves" or "all".')


def _mark_scaled(links: Iterable[Any], gradients: Sequence[Any], scales: Mapping[int, float | None]) -> None:
    """Note the scales of gradients that are handed out, for optimizers and `accumulate_gradients`."""
    for link, gradient in zip(links, gradients, strict=True) if marks.is_in_use else ():
        if gradient is not None:
            marks.put(gradient, scales.get(id(link), PLAIN))


def records(loss: Tensor) -> list[Record]:
    """Return the records behind a tensor, oldest first; empty if it is untracked.

    Example:
        >>> x = nt.tensor(2.0, requires_grad=True)
        >>> [record.op.name for record in nt.records((x * x).exp())]
        ['mul', 'exp']
    """
    return _records("records", loss)


def _records(name: str, loss: Any) -> list[Record]:
    if not isinstance(loss, Value):
        raise OperandError(f"{name}: wants a tensor, not {type(loss).__name__}.")
    return collect([link_of(loss)])[::-1]


def summary(loss: Tensor) -> str:
    """Return the graph behind a tensor as a table, without a tape.

    Example:
        >>> x = nt.tensor(2.0, requires_grad=True)
        >>> print(nt.summary(x * x).splitlines()[-1])
        1 records, 4 bytes computed, 0 bytes kept for derivatives
    """
    return summaries.text(_records("summary", loss))
