"""Train a model on handwritten digits and show what came of it: ``numtape demo``."""

import contextlib
import importlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from .. import data, nn, optim, streams, train
from ..errors import MissingExtraError, SavedFileError
from ..serialization import Checkpoints, save
from ..tapes import Tape
from ..tensors import Tensor
from ..verdicts.judging import Verdict
from . import report
from .models import CLASSES, RECIPES

BATCH_SIZE = 64
#: The exit code of a program that Ctrl-C ended.
INTERRUPTED = 130

_Images = tuple[Tensor, Tensor]


class DemoError(Exception):
    """The demo cannot run as it was asked to; the message says what to do."""


@dataclass(frozen=True)
class Settings:
    """What the numbers of a run depend on."""

    model: str
    epochs: int
    seed: int


class Folder:
    """Where a run writes to.

    Args:
        path: the folder; made when a run begins.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings = self.path / "demo.json"
        self.states = self.path / "states"
        self.model = self.path / "model.safetensors"
        self.plot = self.path / "loss.png"
        self.page = self.path / "tape.html"

    def begin(self, asked: Mapping[str, Any]) -> Settings:
        """Return what was asked for, and the usual for the rest; make the folder, and remove an earlier run from it."""
        if not self.settings.exists() and self.path.exists() and any(self.path.iterdir()):
            raise DemoError(f"{self.path} holds other things than a demo; give another folder with --out.")
        model = asked["model"] or "cnn"
        settings = Settings(model, asked["epochs"] or RECIPES[model].epochs, asked["seed"] or 0)
        self.states.mkdir(parents=True, exist_ok=True)
        for path in [*Checkpoints(self.states), self.model, self.plot, self.page]:
            path.unlink(missing_ok=True)
        self.settings.write_text(json.dumps(asdict(settings)) + "\n")
        return settings

    def recall(self, asked: Mapping[str, Any]) -> Settings:
        """Return the settings of the run in the folder; what is asked for must not differ from them."""
        try:
            known = Settings(**json.loads(self.settings.read_text()))
        except FileNotFoundError as error:
            raise DemoError(f"there is no run in {self.path} to go on with; leave --resume out.") from error
        except (ValueError, TypeError) as error:
            raise DemoError(f"{self.settings} is damaged; start anew, without --resume.") from error
        for name, value in asked.items():
            if value is not None and value != getattr(known, name):
                raise DemoError(
                    f"the run in {self.path} has --{name} {getattr(known, name)}, not {value}; leave --{name} out, or "
                    "start anew, without --resume."
                )
        return known


def run(asked: Mapping[str, Any], path: str | Path, resume: bool, out: TextIO) -> int:
    """Train, and write the report and the files; return 0, or 130 if a signal ended the run early.

    Args:
        asked: model, epochs and seed, or None for the usual.
        path: the folder to write to.
        resume: whether to go on with the run in the folder.
        out: where the report goes; progress goes to the standard error stream.

    Raises:
        DemoError: an extra is missing, or the folder is not what is wanted.
    """
    folder = Folder(path)
    try:
        images = data.digits("train"), data.digits("test")
        settings = folder.recall(asked) if resume else folder.begin(asked)
        with _one_blas_thread():
            return _run(settings, folder, images, resume, out)
    except MissingExtraError as error:
        raise DemoError(f'{error.args[0].partition(";")[0]}; pip install "numtape[demo]"') from error
    except (OSError, SavedFileError) as error:
        raise DemoError(str(error)) from error


def _one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Keep BLAS to one thread: more would wait for each other over matrices this small, and round differently."""
    limits: contextlib.AbstractContextManager[Any]
    limits = importlib.import_module("threadpoolctl").threadpool_limits(1, "blas")  # scikit-learn needs it, too.
    return limits


def _run(settings: Settings, folder: Folder, images: tuple[_Images, _Images], resume: bool, out: TextIO) -> int:
    """Train the model of the settings, and report."""
    recipe = RECIPES[settings.model]
    rng = streams.seed(settings.seed)
    model = recipe.make(rng)
    loader = data.DataLoader(images[0], BATCH_SIZE, shuffle=True, rng=rng)
    optimizer = optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.01)
    steps = settings.epochs * len(loader)
    confusion = train.ConfusionMatrix(CLASSES)

    title = f"{settings.model} on {len(images[0][0]):,} handwritten digits, {len(images[1][0])} others for testing"
    print(f"{title}; {settings.epochs} epochs, seed {settings.seed}", file=out, flush=True)
    started = time.perf_counter()
    history = train.fit(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        loader,
        settings.epochs,
        validation=data.DataLoader(images[1], len(images[1][0])),
        metrics=[train.Accuracy(), confusion],
        schedule=optim.WarmupCosineLR(optimizer, steps // 10, steps),
        schedule_by="step",
        folder=folder.states,
        resume=resume,
    )
    if history.is_interrupted:
        print(f"go on with: numtape demo --resume --out {folder.path}", file=out)
        return INTERRUPTED
    print(f"trained in {time.perf_counter() - started:.1f} s", file=out)
    few = images[1][0][:BATCH_SIZE], images[1][1][:BATCH_SIZE]
    tape = report.step(model, *few)
    is_right = _report(model, history, confusion, images[1], tape, out)
    print("\nWrote", *_write(folder, model, history, tape), sep="\n  ", file=out)
    if not folder.plot.exists():
        print('No plot, for want of Matplotlib: pip install "numtape[demo]"', file=out)
    return 0 if is_right else 1


def _report(
    model: nn.Module,
    history: train.History,
    confusion: train.ConfusionMatrix,
    test: _Images,
    tape: Tape,
    out: TextIO,
) -> bool:
    """Write what the model is, learned, does and leaves on a tape; say whether no gradient is wrong."""
    images, labels = test
    check = report.check(model, images)
    parts = {
        "The model": model.summary(images[:BATCH_SIZE]),
        "The loss": report.curve(history["loss"]),
        report.accuracy(confusion): confusion,
        "Mistakes, the worst first": report.mistakes(model, images, labels),
        f"The tape of one step with {BATCH_SIZE} images": report.records(tape),
        "Gradients against difference quotients, in float64": check,
    }
    for title, text in parts.items():
        if str(text):
            print(f"\n{title}\n{'=' * len(title)}\n{text}", file=out)
    return check.adjoint.is_equal and check.verdict is not Verdict.WRONG


def _write(folder: Folder, model: nn.Module, history: train.History, tape: Tape) -> list[Path]:
    """Write model, plot and the tape as a page; return what the folder has. Without Matplotlib there is no plot."""
    save(folder.model, model.state_dict())
    tape.to_html(folder.page, title="a training step")
    with contextlib.suppress(MissingExtraError):
        history.plot(folder.plot)
    return [path for path in (folder.model, folder.plot, folder.page, folder.states) if path.exists()]
