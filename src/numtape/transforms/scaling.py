"""Loss scaling: multiply a loss so that small gradients survive a half dtype, divide them, skip what overflows.

`LossScaler.Dynamic` looks for the largest scale that does not overflow: it grows by `growth_factor` after
`growth_interval` good steps in a row, and shrinks by `backoff_factor` at each overflow. `LossScaler.Static` stays.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import tree
from ..config import AmpConfig, PrecisionMode
from ..core.gradients import link_of
from ..core.graph import collect, graph_of
from ..core.marks import PLAIN, UNSCALED, marks
from ..core.value import Value
from ..dtypes import HALF_DTYPES, float32
from ..errors import ArgumentError, GradientError, OperandError
from .overflow import first_overflow, is_finite, warn_of_skipped
from .retained import Retained
from .scaler_settings import as_backoff, as_count, as_growth, as_scale, check_bounds
from .unscaling import (
    Statistics,
    Step,
    check_given,
    check_not_late,
    check_not_scaled,
    mark_scaled,
    mark_unscaled,
    parameters_of,
    scale_of,
    unscale_gradient,
)


class LossScaler:
    """Scales losses, unscales gradients, and lets no optimizer step with gradients that are not finite.

    A step with one of its kinds, `LossScaler.Dynamic` or `LossScaler.Static`::

        scaler.scale(loss).backward()
        scaler.unscale(optimizer)       # only to look at gradients, or to clip them
        scaler.step(optimizer)          # does nothing if they overflowed
        scaler.update()

    Several optimizers may share one scaler and one update.
    """

    #: Grows and shrinks with what gradients allow.
    Dynamic: ClassVar[type["DynamicScaler"]]
    #: Stays as it is.
    Static: ClassVar[type["StaticScaler"]]

    def __init__(self, scale: float = 1.0, warn_after: int = 10) -> None:
        if type(self) is LossScaler:
            raise OperandError("LossScaler: there are two kinds; make an nt.LossScaler.Dynamic() or .Static(scale).")
        marks.is_in_use = True
        self._scale = scale
        self._warn_after = as_count("warn_after", warn_after)
        #: How many steps in a row were skipped.
        self.skipped = 0
        #: Whether the last update saw an overflow.
        self.overflow = False
        self._forget_step()

    def _end_round(self) -> None:
        """Forget the losses and steps since the last update; what was unscaled and did not step is skipped, too."""
        for step in self._steps.values():
            if step.overflow and not step.has_stepped:
                self._put_statistics_back(step)
        self._forget_step()

    def _forget_step(self) -> None:
        self._is_scaled = False
        self._steps: dict[int, Step] = {}
        #: The parameters whose gradients are unscaled, and whether these are finite: optimizers may share some.
        self._unscaled: dict[int, tuple[Value, bool]] = {}
        #: What the first loss was made by: the loss itself may be gone when a warning is to name an op.
        self._loss: Any = None
        #: What batch normalisation has changed on the way to losses.
        self._statistics = Statistics()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy continues from: all but the step that is under way, which belongs to this process."""
        fresh: dict[str, Any] = {"_is_scaled": False, "_loss": None, "_statistics": Statistics()}
        return {**self.__dict__, **fresh, "_steps": {}, "_unscaled": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        marks.is_in_use = True
        self.__dict__.update(state)

    def is_enabled(self) -> bool:
        """Say whether it does anything."""
        return True

    def get_scale(self) -> float:
        """Return the factor by which losses are multiplied now."""
        return self._scale

    def scale(self, loss: Any) -> Any:
        """Return a loss, or a tree of losses, times the scale; half ones become float32, which has room for it.

        Raises:
            GradientError: if it was scaled before.

        Example:
            >>> scaler = nt.LossScaler.Static(8.0)
            >>> scaler.scale(nt.tensor(2.0))
            tensor(16.)
        """
        losses: list[Any] = [None] if loss is None else tree.leaves(loss)
        for each in losses:
            if not isinstance(each, Value):
                raise OperandError(f"LossScaler.scale: wants the loss tensor, not {type(each).__name__}.")
        graphs = [graph_of([link_of(each)]) for each in losses]
        for records, _ in graphs:
            check_not_scaled(f"{type(self).__name__}.scale", records, "scale it once")
        if losses:
            self._is_scaled = True
            self._loss = link_of(losses[0]) if self._loss is None else self._loss
        for records, leaves in graphs:
            parameters = {id(leaf) for leaf in leaves if isinstance(leaf, Value) and leaf.requires_grad}
            # A loss that comes after the gradient of a parameter was unscaled has no part in its step.
            self._statistics.add(records, parameters.difference(self._unscaled))
        return tree.map(lambda each: mark_scaled(self._times_scale(each), self._scale), loss)

    def _times_scale(self, loss: Any) -> Any:
        return (loss.astype(float32) if loss.dtype in HALF_DTYPES else loss) * self._scale

    def unscale(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place, to look at them or to clip them.

        The gradients of half parameters become float32, since the half type may not hold what scaling has saved.

        Raises:
            GradientError: if that was done already, there is nothing to unscale, or scaled and unscaled losses were
                added up.
        """
        title = f"{type(self).__name__}.unscale"
        kind = type(optimizer).__name__
        known = self._steps.get(id(optimizer))
        if known is not None:
            done = "has stepped" if known.has_stepped else "had its gradients unscaled"
            raise GradientError(f"{title}: this {kind} {done} since the last update(); call update() first.")
        parameters = parameters_of(title, optimizer)
        if not self._is_scaled:
            raise GradientError(
                f"{title}: no loss was scaled since the last update(); call scaler.scale(loss).backward() first."
            )
        with_gradient = [p for p in parameters if p.extras is not None and p.extras.grad is not None]
        if not with_gradient:
            raise GradientError(
                f"{title}: no parameter of this {kind} has a gradient; call scaler.scale(loss).backward() first."
            )
        new = [p for p in with_gradient if id(p) not in self._unscaled]
        scales = [scale_of(title, parameter, self._scale) for parameter in new]
        found = {marks.of(p.extras.grad) for p in with_gradient}
        if len(new) == len(with_gradient) and self._scale != UNSCALED and found <= {UNSCALED, PLAIN}:
            raise GradientError(
                f"{title}: the gradients of this {kind} are those of the last step, or of a loss that was not scaled; "
                "call scaler.scale(loss).backward() first."
            )
        for parameter, scale in zip(new, scales, strict=True):
            self._unscaled[id(parameter)] = (parameter, unscale_gradient(parameter, 1.0 / scale))
        mark_unscaled(new)
        overflow = not all(self._unscaled[id(parameter)][1] for parameter in with_gradient)
        self._steps[id(optimizer)] = Step(optimizer, overflow)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients if need be, and let the optimizer step unless one of them is not finite.

        Args:
            optimizer: one with parameters of its own.
            *args: what its `step` takes, but no scaled gradients; a `closure` may be None, as in PyTorch.
            **kwargs: the same, by name.

        Returns:
            What the optimizer's `step` returns; None if it was skipped.

        Raises:
            GradientError: if it stepped already since the last update, there are no gradients, or a scaled loss was
                added to them after they were unscaled.
        """
        title = f"{type(self).__name__}.step"
        known = self._steps.get(id(optimizer))
        if known is not None and known.has_stepped:
            raise GradientError(
                f"{title}: this {type(optimizer).__name__} has stepped since the last update(); call update() after "
                "the optimizers have stepped."
            )
        closure = args[0] if args else kwargs.pop("closure", None)
        if callable(closure) and not isinstance(closure, Value):
            raise OperandError(f"{title}: a function that computes the loss cannot be scaled; call backward() first.")
        check_given(title, (*args, *kwargs.values()))
        if known is None:
            self.unscale(optimizer)
            known = self._steps[id(optimizer)]
        parameters = parameters_of(title, optimizer)
        check_not_late(title, parameters)
        mark_unscaled(parameters)  # They may have been clipped since.
        result = None
        if known.overflow:
            self._put_statistics_back(known)  # Now, before the forward of another loss moves them on.
        else:
            result = optimizer.step(*args, **kwargs)
        known.has_stepped = True
        return result

    def update(self) -> None:
        """End a step: adapt the scale to whether gradients overflowed. Once for all optimizers.

        Raises:
            GradientError: if no gradients were unscaled since the last update.
        """
        if not self._steps:
            raise GradientError(
                f"{type(self).__name__}.update: no gradients were unscaled since the last update(); call "
                "scaler.step(optimizer), instead of optimizer.step(), before it."
            )
        overflow = any(step.overflow for step in self._steps.values())
        bad = [parameter for parameter, is_fine in self._unscaled.values() if not is_fine]
        loss, scale = self._loss, self._scale
        self._end_round()
        self._end_step(overflow, lambda: first_overflow(loss, bad, scale))

    def _put_statistics_back(self, skipped: Step) -> None:
        """Leave running statistics as they were before the forward of an optimizer that does not step."""
        self._statistics.put_back(map(id, parameters_of(type(self).__name__, skipped.optimizer)))

    def _end_step(self, overflow: bool, find: Callable[[], str]) -> None:
        """Adapt the scale and count; `find` names the first op that overflowed, for a warning."""
        self.overflow = overflow
        self.skipped = self.skipped + 1 if overflow else 0
        self._adapt(overflow)
        if overflow and self.skipped % self._warn_after == 0:
            warn_of_skipped(self.skipped, self._scale, find())

    def _adapt(self, overflow: bool) -> None:
        """Change the scale after a step."""

    # What tapes do by themselves.
    def scaled_seed(self, seed: Any) -> Any:
        """Return the cotangent that a sweep starts from, times the scale."""
        return self._times_scale(seed)

    def retaining(self, targets: Sequence[Value]) -> Retained:
        """Return a block to sweep in: what retains its gradient gets it afterwards, from `unscale_found`.

        Raises:
            GradientError: if the targets were scaled already.
        """
        records = collect([link_of(target) for target in targets])
        check_not_scaled(type(self).__name__, records, "this tape scales it by itself, so give it the loss as it was")
        return Retained(targets)

    def unscale_found(
        self, found: dict[Any, Any], targets: Sequence[Value], retained: Retained | None = None
    ) -> Statistics | None:
        """Unscale what a sweep found, and adapt the scale. What is of halves stays in float32, in which it came.

        Returns:
            The running statistics that moved on the way; None if something overflowed. Then these were put back, and
            `found` is empty.
        """
        factor = 1.0 / self._scale
        bad = []
        with np.errstate(all="ignore"):
            for link in list(found):
                found[link] = found[link] * factor
                array = found[link].array if isinstance(found[link], Value) else found[link]
                if not is_finite(array):
                    bad.append(link)
            if retained is not None and not bad:
                retained.deliver(factor)
        statistics = Statistics()
        statistics.add(collect([link_of(target) for target in targets]), ())
        if bad:
            marks.overflows += 1
            found.clear()
            statistics.put_back()
        scale = self._scale
        self._end_step(bool(bad), lambda: first_overflow(link_of(targets[0]), bad, scale))
        return None if bad else statistics

    def state_dict(self) -> dict[str, Any]:
        """Return what it takes to continue elsewhere: the scale, the counts and the settings."""
        return {"scale": self._scale, "skipped": self.skipped, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned; nothing changes if it does not fit."""
        title = f"{type(self).__name__}.load_state_dict"
        expected = self.state_dict()
        if not isinstance(saved, dict) or not {*expected} - {"skipped"} <= {*saved} <= {*expected, "skipped"}:
            raise ArgumentError(f"{title}: the state of this scaler is a dict with {', '.join(map(repr, expected))}.")
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in saved.items()}
        skipped = as_count("skipped", plain.get("skipped", 0), least=0)
        self._load(plain)
        self.skipped = skipped
        self._forget_step()

    def _load(self, saved: dict[str, Any]) -> None:
        self._scale = as_scale("scale", saved["scale"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: scale {self._scale:g}, {self.skipped} steps skipped in a row>"


class StaticScaler(LossScaler):
    """Scale losses by a number that stays. Steps whose gradients are not finite are skipped all the same.

    Args:
        scale: the factor.
        warn_after: warn whenever so many steps in a row were skipped.

    Example:
        >>> nt.LossScaler.Static(128.0).get_scale()
        128.0
    """

    def __init__(self, scale: float, warn_after: int = 10) -> None:
        super().__init__(as_scale("scale", scale), warn_after)


class DynamicScaler(LossScaler):
    """Scale losses by a number that grows while gradients are finite, and shrinks when they are not.

    Args:
        init_scale: the first factor.
        growth_factor: what it is multiplied by after `growth_interval` good steps in a row.
        backoff_factor: what it is multiplied by after an overflow.
        growth_interval: after how many good steps in a row it grows.
        min_scale: the least factor.
        max_scale: the largest factor.
        warn_after: warn whenever so many steps in a row were skipped, and name the op where it began.

    Example:
        >>> scaler = nt.LossScaler.Dynamic(init_scale=1024.0)
        >>> w = nt.tensor([1.0], requires_grad=True)
        >>> optimizer = nt.optim.SGD([w], lr=0.5)
        >>> scaler.scale((w * w).sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> w.tolist()
        [0.0]
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        *,
        min_scale: float = 2.0**-32,
        max_scale: float = 2.0**64,
        warn_after: int = 10,
    ) -> None:
        super().__init__(as_scale("init_scale", init_scale), warn_after)
        self._set("init_scale", init_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale)
        #: How many good steps there were since the scale last changed.
        self.good_steps = 0

    def _set(self, name: str, scale: Any, growth: Any, backoff: Any, interval: Any, least: Any, most: Any) -> None:
        """Set the scale, which errors call `name`, and what it follows; nothing changes if something does not fit."""
        number = as_scale(name, scale)
        factors = as_growth(growth), as_backoff(backoff)
        count = as_count("growth_interval", interval)
        bounds = as_scale("min_scale", least), as_scale("max_scale", most)
        check_bounds(name, number, *bounds)
        self._scale = number
        self.growth_factor, self.backoff_factor = factors
        self.growth_interval = count
        self.min_scale, self.max_scale = bounds

    def _adapt(self, overflow: bool) -> None:
        if overflow:
            self.good_steps = 0
            self._scale = max(self._scale * self.backoff_factor, self.min_scale)
            return
        self.good_steps += 1
        if self.good_steps >= self.growth_interval:
            self.good_steps = 0
            self._scale = min(self._scale * self.growth_factor, self.max_scale)

    def _settings(self) -> dict[str, Any]:
        return {
            "good_steps": self.good_steps,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "min_scale": self.min_scale,
            "max_scale": self.max_scale,
        }

    def _load(self, saved: dict[str, Any]) -> None:
        good_steps = as_count("good_steps", saved["good_steps"], least=0)
        names = ("scale", "growth_factor", "backoff_factor", "growth_interval", "min_scale", "max_scale")
        self._set("scale", *(saved[name] for name in names))
        self.good_steps = good_steps


LossScaler.Dynamic = DynamicScaler
LossScaler.Static = StaticScaler


def scaler_of(config: AmpConfig) -> LossScaler | None:
    """Return the scaler of a configuration: its own for float16 if it names none; None if it scales nothing."""
    given: LossScaler | None = config.loss_scaler
    if not config.enabled:
        return None
    if given is None and config.precision_mode is PrecisionMode.FLOAT16:
        if not config.own_scaler:
            scaler = DynamicScaler()
            if config.loaded:
                try:
                    scaler.load_state_dict(config.loaded)
                except ArgumentError as error:
                    raise ArgumentError(
                        f"AmpConfig: the state that was loaded is none of its own scaler's. {error}"
                    ) from error
            config.own_scaler.append(scaler)
        return config.own_scaler[0]  # type: ignore[no-any-return]
    return given if given is not None and given.is_enabled() else None
