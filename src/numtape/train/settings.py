"""Check what `fit` is given, before it trains for an hour and fails."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from types import GeneratorType
from typing import Any

from .. import tree
from ..core.context import current
from ..counts import is_count
from ..errors import ArgumentError, GradientError, OperandError
from ..optim import ReduceLROnPlateau
from .loggers import Logger
from .metrics import Metric
from .stopping import EarlyStopping

#: What `fit` asks of a metric.
_METRIC = ("name", "reset", "update", "compute", "state_dict", "load_state_dict")
#: What is used up by one loop for certain; an iterator of another class may begin anew.
_ONCE = (GeneratorType, map, filter, zip, enumerate)


@dataclass(frozen=True, eq=False)
class Settings:
    """What `fit` was told to do. Raises if something cannot be used."""

    model: Any
    loss: Callable[[Any, Any], Any]
    optimizer: Any
    loader: Any
    epochs: int
    validation: Iterable[Any] | None
    metrics: Sequence[Metric]
    schedule: Any
    schedule_by: str
    clip_norm: float | None
    accumulate: int
    early_stopping: EarlyStopping | None
    keep: int
    save_every: int | None
    logger: Logger | None

    def __post_init__(self) -> None:
        if not current().grad:
            raise GradientError("fit: gradients are switched off here; call it outside of no_grad.")
        _wants("model", self.model, "an nn.Module", ("train", "eval", "modules", "parameters"))
        _wants("optimizer", self.optimizer, "an optimizer of nt.optim", ("step", "zero_grad", "param_groups"))
        _check_owner(self.model, self.optimizer)
        _wants("loader", self.loader, "an iterable of batches", ("__iter__",))
        if not callable(self.loss) or isinstance(self.loss, type):
            got = self.loss.__name__ if isinstance(self.loss, type) else type(self.loss).__name__
            raise OperandError(f"fit: loss is {got}; it must be a function of predictions and targets.")
        if self.logger is not None:
            _wants("logger", self.logger, "an object", ("start", "log", "finish"))
        _check_metrics(self.metrics)
        if self.early_stopping is not None and not isinstance(self.early_stopping, EarlyStopping):
            raise OperandError(
                f"fit: early_stopping is {type(self.early_stopping).__name__}; it must be an nt.train.EarlyStopping."
            )
        _check_monitor(self.early_stopping, [metric.name for metric in self.metrics], self.validation)
        _check_count("epochs", self.epochs)
        _check_count("accumulate", self.accumulate)
        _check_count("keep", self.keep)
        _check_lasting("loader", self.loader, self.epochs)
        _check_lasting("validation", self.validation, self.epochs)
        if self.save_every is not None:
            _check_count("save_every", self.save_every)
        clip = self.clip_norm
        if clip is not None and (isinstance(clip, bool) or not isinstance(clip, Real) or not float(clip) > 0):
            raise ArgumentError(f"fit: clip_norm is {clip!r}; it must be a positive number, or None.")
        if self.schedule is not None:
            _check_schedule(self.schedule, self.optimizer)
        if self.schedule_by not in ("epoch", "step"):
            raise ArgumentError(f'fit: schedule_by is {self.schedule_by!r}; it must be "epoch" or "step".')
        if self.schedule_by == "step" and isinstance(self.schedule, ReduceLROnPlateau):
            raise ArgumentError('fit: ReduceLROnPlateau looks at the numbers of an epoch; use schedule_by="epoch".')


def _check_metrics(metrics: Any) -> None:
    if not isinstance(metrics, list | tuple):
        raise OperandError(f"fit: metrics is {type(metrics).__name__}; it must be a list of metrics.")
    for metric in metrics:
        missing = [name for name in _METRIC if not hasattr(metric, name)]
        if isinstance(metric, type) or missing:
            raise OperandError(
                f"fit: {metric!r} is no metric; give an object such as nt.train.Accuracy(), with {', '.join(_METRIC)}."
            )
    _check_names([metric.name for metric in metrics])


def _check_lasting(name: str, batches: Any, epochs: int) -> None:
    """Raise if batches are used up after the first of several epochs."""
    if isinstance(batches, _ONCE) and epochs > 1:
        raise OperandError(
            f"fit: {name} is {type(batches).__name__}, which can be gone through once only, and there are {epochs} "
            "epochs; give a list, or an object whose __iter__ begins anew."
        )


def _check_schedule(schedule: Any, optimizer: Any) -> None:
    """Raise if a schedule is none, or sets the rates of another optimizer."""
    _wants("schedule", schedule, "a schedule of nt.optim", ("step",))
    own = getattr(schedule, "optimizer", optimizer)
    # What wraps an optimizer has the groups of the one inside.
    if own is not optimizer and getattr(own, "param_groups", None) is not optimizer.param_groups:
        raise ArgumentError(
            "fit: the schedule sets the learning rates of another optimizer, so that those of this one would stay as "
            f"they are; make it with the optimizer that fit is given, as in {type(schedule).__name__}(optimizer, ...)."
        )


def _check_monitor(stopping: EarlyStopping | None, metrics: list[str], validation: Any) -> None:
    """Raise if early stopping would look at a number that no epoch has."""
    known = ["loss", *(["val_loss"] if validation is not None else []), *metrics]
    if stopping is not None and stopping.monitor is not None and stopping.monitor not in known:
        raise ArgumentError(f"fit: there is no {stopping.monitor!r} to look at; there are {', '.join(known)}.")


def _wants(name: str, value: Any, what: str, members: tuple[str, ...]) -> None:
    missing = [member for member in members if not hasattr(value, member)]
    if missing or isinstance(value, type):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise OperandError(f"fit: {name} is {got}; it must be {what} with {', '.join(members)}.")


def _check_owner(model: Any, optimizer: Any) -> None:
    """Raise if a step of the optimizer could not change the model; some parameters may well be frozen."""
    own = [param for group in optimizer.param_groups for param in group["params"]]
    trained = set(model.parameters())
    if own and not any(param in trained for param in own):
        raise ArgumentError(
            f"fit: none of the optimizer's {len(own)} parameters is one of the model's {len(trained)}, so that nothing "
            "would be trained; make the optimizer with model.parameters(), after any change of the model's dtype or "
            "layers."
        )


def _check_names(names: list[str]) -> None:
    """Raise if a number of the history would overwrite another."""
    for name in names:
        if name in ("loss", "val_loss") or names.count(name) > 1:
            raise ArgumentError(
                f"fit: two numbers of the history would be called {name!r}; give each metric a name of its own, as in "
                'metric.name = "other".'
            )


def _check_count(name: str, value: Any) -> None:
    if not is_count(value):
        raise ArgumentError(f"fit: {name} is {value!r}; it must be a positive integer.")


def as_batch(batch: Any) -> tuple[Any, ...]:
    """Return a batch as a tuple of inputs and a target."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        got = f"{type(batch).__name__} of {len(batch)}" if isinstance(batch, tuple | list) else type(batch).__name__
        raise OperandError(f"fit: a batch is {got}; it must be a tuple of inputs and a target.")
    return tuple(batch)


def size_of(batch: Any) -> int:
    """Return the number of samples in a batch: the length of the first array of its target."""
    lengths = [len(leaf) for leaf in tree.leaves(as_batch(batch)[-1]) if getattr(leaf, "ndim", 0)]
    return lengths[0] if lengths else 1
