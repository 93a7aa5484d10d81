"""What the demo says of a trained model, as text: its mistakes, its tape, and whether its gradients are right."""

import copy
from collections import Counter
from typing import Any

import numpy as np

from .. import insight, nn
from .._typing import NDArray
from ..grad_mode import no_grad
from ..tapes import Tape
from ..tensors import Tensor
from ..testing.gradients import check_gradients
from ..testing.report import GradientCheck
from ..train import ConfusionMatrix

#: How many images of mistakes are drawn, side by side.
MOST_MISTAKES = 4
#: How many epochs have a bar in the loss curve, and how long the longest is.
MOST_BARS, BAR_LENGTH = 15, 60
#: How dark each character is: from the background to the pen.
_SHADES = " .:-=+*#%@"


def accuracy(confusion: ConfusionMatrix) -> str:
    """Return the share of images that were read rightly."""
    counts = confusion.compute()
    return f"Test accuracy {counts.trace() / counts.sum():.2%}: {counts.trace()} of {counts.sum()} images"


def curve(losses: NDArray) -> str:
    """Return the losses of epochs as bars: of all, or of so many as there is room for."""
    top = losses.max(initial=0.0, where=np.isfinite(losses)) or 1.0
    chosen = np.unique(np.linspace(0, len(losses) - 1, min(len(losses), MOST_BARS)).astype(int)).tolist()
    lengths = np.nan_to_num(losses / top * BAR_LENGTH, posinf=BAR_LENGTH).round().astype(int)
    return "\n".join(f"epoch {i + 1:3}  {losses[i]:.4f}  {'#' * lengths[i]}".rstrip() for i in chosen)


def mistakes(model: nn.Module, images: Tensor, labels: Tensor) -> str:
    """Return pictures of the images that were misread with the greatest confidence; empty if there are none."""
    with no_grad():
        scores = model.eval()(images).numpy()
    truth, taken = labels.numpy(), scores.argmax(1)
    rows = np.arange(len(truth))
    margin = scores[rows, taken] - scores[rows, truth]
    worst = [i for i in np.argsort(-margin)[:MOST_MISTAKES] if margin[i] > 0]
    drawn = [[f"{truth[i]}, taken for {taken[i]}", *_drawing(images[int(i)].numpy())] for i in worst]
    return "\n".join("   ".join(line.ljust(16) for line in lines).rstrip() for lines in zip(*drawn, strict=True))


def _drawing(image: Any) -> list[str]:
    """Return the lines of an image of shape (1, height, width); two characters to a pixel make it a square."""
    shades = np.rint(image[0] * (len(_SHADES) - 1)).astype(int)
    return ["".join(2 * _SHADES[shade] for shade in row) for row in shades]


def step(model: nn.Module, images: Tensor, labels: Tensor) -> Tape:
    """Return the tape of one training step."""
    copied = copy.deepcopy(model).train()  # A step changes the averages of batch normalisation.
    with Tape() as tape:
        nn.functional.cross_entropy(copied(images), labels)
    return tape


def records(tape: Tape) -> str:
    """Return how many records a tape has, by op, and how many bytes they made and keep."""
    records, made, kept = Counter[str](), Counter[str](), Counter[str]()
    for record in tape.records:
        records[record.op.name] += 1
        made[record.op.name] += record.nbytes
        kept[record.op.name] += record.nbytes if record.is_kept else 0
    width = max(map(len, records))
    lines = [f"{'op':{width}}  {'records':>7}  {'bytes':>9}  {'kept':>9}"]
    lines += [f"{op:{width}}  {n:7}  {made[op]:9,}  {kept[op]:9,}" for op, n in records.most_common()]
    return "\n".join([*lines, insight.summary.total(tape.records)])


def check(model: nn.Module, images: Tensor) -> GradientCheck:
    """Certify the gradients of the scores of two images by the first bias, through the whole of the model."""
    exact = copy.deepcopy(model).to("float64").eval()
    path, parameter = next((path, p) for path, p in exact.named_parameters() if p.ndim == 1)
    bias = parameter.detach()
    bias.name = path
    pair = images[:2].to("float64")
    return check_gradients(lambda bias: nn.functional_call(exact, {path: bias}, pair), bias)
