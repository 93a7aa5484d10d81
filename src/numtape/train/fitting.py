"""A thin training loop: progress, metrics, validation, schedules, saved states, and an end that loses nothing.

Everything that it does can be written in twelve lines; see docs/training.md.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..core.stream import thread_stream
from ..core.value import Value
from ..errors import ArgumentError, OperandError
from ..grad_mode import no_grad
from ..gradient_clipping import clip_grad_norm
from ..optim import ReduceLROnPlateau
from ..serialization import Checkpoints
from .history import History
from .interrupts import StopSignals
from .loggers import Logger
from .metrics import Metric
from .progress import Progress
from .settings import Settings, as_batch, size_of
from .stopping import EarlyStopping, watched


def fit(
    model: Any,
    loss: Callable[[Any, Any], Any],
    optimizer: Any,
    loader: Any,
    epochs: int = 1,
    *,
    validation: Iterable[Any] | None = None,
    metrics: Sequence[Metric] = (),
    schedule: Any = None,
    schedule_by: str = "epoch",
    clip_norm: float | None = None,
    accumulate: int = 1,
    early_stopping: EarlyStopping | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    keep: int = 3,
    save_every: int | None = None,
    progress: bool | None = None,
    logger: Logger | None = None,
) -> History:
    """Train a model and return the history of the run.

    A batch is a tuple whose last part is the target: ``loss(model(*inputs), target)`` is what falls. SIGINT (Ctrl-C)
    and SIGTERM let the step finish; with a `folder`, the state is then saved, and a run with ``resume=True`` goes on
    from there, bit for bit as if nothing had happened.

    Args:
        model: an `nn.Module`.
        loss: takes predictions and targets, and returns a scalar: the mean over the batch.
        optimizer: has the model's parameters.
        loader: an `nt.data.DataLoader`, or any iterable of batches that can be gone through again.
        epochs: how often to go through the data in all, what was done before a resume included.
        validation: batches for the validation loss and metrics, computed after each epoch.
        metrics: such as `Accuracy()`; of the validation data if there is any.
        schedule: changes the learning rate after each epoch, or each step.
        schedule_by: "epoch" or "step".
        clip_norm: the largest global norm of the gradients.
        accumulate: how many batches make one step. Each counts by its size, so that a loss which weights or ignores
            targets is not quite that of one large batch.
        early_stopping: ends a run that no longer improves.
        folder: where to save states: after each epoch, the `keep` latest ones, and the best one: by what
            `early_stopping` looks at, else by the validation loss, or the loss without validation.
        resume: whether to go on from the latest state in the folder.
        keep: how many states to keep.
        save_every: save after that many steps, too.
        progress: True for lines, False for silence; a bar on a terminal otherwise.
        logger: has the methods `start`, `log` and `finish`.

    Example:
        >>> _ = nt.seed(0)
        >>> model = nt.nn.Linear(1, 1)
        >>> x = np.linspace(-1.0, 1.0, 32, dtype=np.float32)[:, None]
        >>> loader = nt.data.DataLoader((x, 3.0 * x), batch_size=8, shuffle=True, rng=0)
        >>> optimizer = nt.optim.SGD(model.parameters(), lr=0.5)
        >>> history = nt.train.fit(model, nt.mse_loss, optimizer, loader, epochs=10, progress=False)
        >>> bool(history["loss"][-1] < 1e-4)
        True
    """
    given = Settings(
        model=model,
        loss=loss,
        optimizer=optimizer,
        loader=loader,
        epochs=epochs,
        validation=validation,
        metrics=metrics,
        schedule=schedule,
        schedule_by=schedule_by,
        clip_norm=clip_norm,
        accumulate=accumulate,
        early_stopping=early_stopping,
        keep=keep,
        save_every=save_every,
        logger=logger,
    )
    run = _Run(given)
    by = early_stopping or EarlyStopping()
    saved = Checkpoints(folder, keep=keep, mode="max" if by.maximize else "min") if folder is not None else None
    if early_stopping is not None:
        early_stopping.reset()
    if resume:
        if saved is None:
            raise ArgumentError("fit: resume is set, but there is no folder to resume from.")
        state = saved.load_latest()
        if state is not None:
            run.load_state_dict(state)
    elif saved is not None and saved.latest() is not None:
        raise ArgumentError(
            f"fit: {folder} holds the states of an earlier run; go on with resume=True, or give another folder."
        )
    shown = Progress(epochs, progress)
    if logger is not None:
        logger.start({"epochs": epochs, "is_resumed": run.step > 0, "epoch": run.epoch})

    def save(numbers: dict[str, float] | None = None) -> None:
        if saved is not None:
            metric = None if numbers is None else watched(by.monitor, numbers)
            saved.save(run.step, run.state_dict(), metric=metric)

    # Gradients from before are not of this run; a state is saved between steps, where there are none.
    optimizer.zero_grad()
    with StopSignals() as stop, run.modes_kept():
        while run.epoch < epochs and not run.is_over:
            for loss_value in run.steps(shown):
                shown.show_loss(loss_value)
                if stop:
                    break
                if save_every is not None and run.step % save_every == 0:
                    save()
            if stop:
                break
            numbers = run.end_epoch()
            shown.end_epoch(run.epoch, numbers)
            if logger is not None:
                logger.log(run.epoch, numbers)
            save(numbers)
        if stop and not run.is_over and run.epoch < epochs:
            run.history.is_interrupted = True
            save()
            where = (
                f"the state is in {folder}; go on with resume=True" if saved is not None else "give a folder to save"
            )
            shown.say(f"stopped by {stop.received.name if stop.received else ''} after step {run.step}: {where}")
    if logger is not None:
        logger.finish(run.history)
    return run.history


class _Run:
    """A run amid its epochs: all that must be saved to go on exactly."""

    def __init__(self, given: Settings) -> None:
        self.model = given.model
        self.loss = given.loss
        self.optimizer = given.optimizer
        self.loader = given.loader
        self.metrics = list(given.metrics)
        self.validation = given.validation
        self.schedule = given.schedule
        self.schedule_by = given.schedule_by
        self.clip_norm = given.clip_norm
        self.accumulate = given.accumulate
        self.early_stopping = given.early_stopping
        self.history = History()
        self.epoch = 0
        self.step = 0
        self.is_over = False
        #: Of the present epoch: batches done, sum of losses times sizes, and sizes.
        self.batches = 0
        self.loss_sum = 0.0
        self.samples = 0
        #: Where the thread's random stream stood when the present epoch began: a loader may draw its order from it.
        self.epoch_stream: dict[str, Any] | None = None
        #: Whether the loader said that the present epoch has no more batches: it is at the next one then.
        self.is_drained = False

    def steps(self, shown: Progress) -> Any:
        """Train on what is left of the present epoch; yield the loss after each step of the optimizer."""
        self.restore_modes()
        if self.is_drained:
            return
        if not self.batches:
            for metric in self.metrics:
                metric.reset()
        total = len(self.loader) if hasattr(self.loader, "__len__") else None
        rest = self._rest()
        for group in self._groups(shown.batches(self.epoch + 1, rest, total, self.batches)):
            # The mean over the group: a smaller batch counts less.
            sizes = [size_of(batch) for batch in group]
            weights = [size / max(1, sum(sizes)) for size in sizes]
            losses = [self._backward(*each) for each in zip(group, sizes, weights, strict=True)]
            self.batches += len(group)
            if self.clip_norm is not None:
                own = [param for settings in self.optimizer.param_groups for param in settings["params"]]
                clip_grad_norm(own, self.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self.schedule is not None and self.schedule_by == "step":
                self.schedule.step()
            loss = sum(value * weight for value, weight in zip(losses, weights, strict=True))
            self.history.add_step(loss)
            yield loss

    def _rest(self) -> Iterator[Any]:
        """Return the batches that are left of the present epoch."""
        stream = thread_stream()
        if not self.batches:
            self.epoch_stream = stream.place()
        if not self.batches or hasattr(self.loader, "state_dict"):
            whole: Iterator[Any] = iter(self.loader)  # One with a state goes on by itself.
            return whole
        # Others begin again where the epoch began, and give what was done already once more.
        here = stream.place()
        if self.epoch_stream is not None:
            stream.go_to(self.epoch_stream)
        rest: Iterator[Any] = iter(self.loader)
        for _ in itertools.islice(rest, self.batches):
            pass
        stream.go_to(here)
        return rest

    def _groups(self, batches: Iterable[Any]) -> Iterator[list[Any]]:
        """Yield batches in groups that make one step; the last group of an epoch may be smaller."""
        rest = iter(batches)
        while group := list(itertools.islice(rest, self.accumulate)):
            # Asked for more than it had, the loader has gone on to its next epoch, before the group is trained on.
            self.is_drained = len(group) < self.accumulate
            yield group

    def _backward(self, batch: Any, size: int, weight: float) -> float:
        *inputs, target = as_batch(batch)
        prediction = self.model(*inputs)
        loss: Any = self.loss(prediction, target)
        if not isinstance(loss, Value) or loss.array.size != 1:
            got = f"a tensor of shape {loss.shape}" if isinstance(loss, Value) else type(loss).__name__
            raise OperandError(f"fit: the loss function returned {got}; it must return a scalar tensor.")
        value = float(loss.array.item())
        if not math.isfinite(value):
            raise ArgumentError(
                f"fit: the loss is {value} at step {self.step + 1}; lower the learning rate, clip gradients, or look "
                "for the op with nt.records(loss)."
            )
        weighted: Any = loss
        if weight != 1.0:
            weighted = weighted * weight
        weighted.backward()
        self.loss_sum += value * size
        self.samples += size
        if self.validation is None:
            for metric in self.metrics:
                metric.update(prediction, target)
        return value

    @contextmanager
    def modes_kept(self) -> Iterator[None]:
        """Train in the modes that the modules have (a layer in eval mode stays frozen), and leave them as they were."""
        before = [(module, module.training) for module in self.model.modules()]
        if not self.model.training:
            self.model.train()
        self._modes = [(module, module.training) for module in self.model.modules()]
        try:
            yield
        finally:
            for module, is_training in before:
                module.training = is_training

    def restore_modes(self) -> None:
        """Put each module into the mode that it trains in."""
        for module, is_training in self._modes:
            module.training = is_training

    def end_epoch(self) -> dict[str, float]:
        """Validate, and return the numbers of the epoch."""
        if not self.samples:
            raise OperandError("fit: the loader gave no batches; an iterator can be gone through once only.")
        numbers = {"loss": self.loss_sum / self.samples}
        if self.validation is not None:
            numbers["val_loss"] = self._validate(self.validation)
        for metric in self.metrics:
            value = metric.compute()
            if np.ndim(value) == 0:
                numbers[metric.name] = float(value)
        self.history.add(numbers)
        self.epoch += 1
        self.batches, self.loss_sum, self.samples, self.is_drained = 0, 0.0, 0, False
        if self.schedule is not None and self.schedule_by == "epoch":
            if isinstance(self.schedule, ReduceLROnPlateau):
                self.schedule.step(watched(None, numbers))
            else:
                self.schedule.step()
        self.is_over = self.early_stopping is not None and self.early_stopping.should_stop(numbers)
        return numbers

    def _validate(self, batches: Iterable[Any]) -> float:
        for metric in self.metrics:
            metric.reset()
        self.model.eval()
        total, samples = 0.0, 0
        with no_grad():
            for batch in batches:
                *inputs, target = as_batch(batch)
                prediction = self.model(*inputs)
                size = size_of(batch)
                total += float(self.loss(prediction, target)) * size
                samples += size
                for metric in self.metrics:
                    metric.update(prediction, target)
        if not samples:
            raise OperandError("fit: the validation data gave no batches; an iterator can be gone through once only.")
        return total / samples

    def _parts(self) -> dict[str, Any]:
        """Return all that has a state of its own."""
        # The model last: what does not fit a saved state is found before it is changed.
        parts = {
            "loader": self.loader,
            "validation": self.validation,
            "schedule": self.schedule,
            "early_stopping": self.early_stopping,
            **{f"metric {i}": metric for i, metric in enumerate(self.metrics)},
            "history": self.history,
            "optimizer": self.optimizer,
            "model": self.model,
        }
        return {name: part for name, part in parts.items() if hasattr(part, "state_dict")}

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on exactly."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        state["run"] = {
            "epoch": self.epoch,
            "step": self.step,
            "batches": self.batches,
            "loss_sum": self.loss_sum,
            "samples": self.samples,
            "is_over": self.is_over,
            "is_drained": self.is_drained,
            "accumulate": self.accumulate,
            "epoch_stream": self.epoch_stream,
        }
        state["stream"] = thread_stream().place()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        parts = self._parts()
        for name in {*parts, *state} - {"run", "stream"}:
            if name not in state or name not in parts:
                has = "has" if name in state else "has no"
                raise ArgumentError(f"fit: the saved state {has} {name!r}; resume with the settings of the first run.")
        accumulated = state["run"].get("accumulate", self.accumulate)
        if state["run"]["batches"] and accumulated != self.accumulate:
            raise ArgumentError(
                f"fit: the saved state stands amid an epoch with accumulate={accumulated}, and now it is "
                f"{self.accumulate}; resume with the settings of the first run."
            )
        for name, part in parts.items():
            part.load_state_dict(state[name])
        for name, value in state["run"].items():
            if name != "accumulate":  # Between epochs it may change.
                setattr(self, name, value)
        thread_stream().go_to(state["stream"])
