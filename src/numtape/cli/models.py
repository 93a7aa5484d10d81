"""The models of the demo: four ways to read an image of a digit, and how to train each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import nn
from .._typing import Array
from ..random_creation import randn

#: Height and width of an image, and the number of digits.
SIZE, CLASSES = 8, 10


def mlp(rng: Any) -> nn.Module:
    """Return linear layers that see an image as 64 numbers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIZE * SIZE, 256, rng=rng),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 128, rng=rng),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, CLASSES, rng=rng),
    )


def cnn(rng: Any) -> nn.Module:
    """Return convolutions that look at neighbouring pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, rng=rng),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, rng=rng),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(32 * (SIZE // 2) ** 2, CLASSES, rng=rng),
    )


class RowReader(nn.Module):
    """An LSTM that reads an image row by row, downwards and upwards.

    Args:
        rng: what the first values are drawn from.
    """

    def __init__(self, rng: Any) -> None:
        self.lstm = nn.LSTM(SIZE, 48, batch_first=True, bidirectional=True, rng=rng)
        self.head = nn.Linear(2 * 48 * SIZE, CLASSES, rng=rng)

    def forward(self, images: Array) -> Array:
        """Return a score for each digit."""
        states, _ = self.lstm(images.reshape(-1, SIZE, SIZE))
        return self.head(states.reshape(len(states), -1))


class RowAttention(nn.Module):
    """A transformer whose words are the rows of an image.

    Args:
        rng: what the first values are drawn from.
    """

    def __init__(self, rng: Any) -> None:
        self.embed = nn.Linear(SIZE, 48, rng=rng)
        self.place = nn.Parameter(0.1 * randn(SIZE, 48, rng=rng))
        self.layers = nn.Sequential(*(self._layer(rng) for _ in range(2)))
        self.head = nn.Linear(48 * SIZE, CLASSES, rng=rng)

    @staticmethod
    def _layer(rng: Any) -> nn.Module:
        return nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True, norm_first=True, rng=rng)

    def forward(self, images: Array) -> Array:
        """Return a score for each digit."""
        words = self.embed(images.reshape(-1, SIZE, SIZE)) + self.place
        return self.head(self.layers(words).reshape(len(words), -1))


@dataclass(frozen=True)
class Recipe:
    """How a model of the demo is made and trained."""

    make: Callable[[Any], nn.Module]
    #: The largest learning rate, and how often to go through the data.
    rate: float
    epochs: int


#: By the name that `numtape demo --model` takes.
RECIPES = {
    "mlp": Recipe(mlp, 5e-3, 30),
    "cnn": Recipe(cnn, 5e-3, 15),
    "lstm": Recipe(RowReader, 1e-2, 10),
    "transformer": Recipe(RowAttention, 3e-3, 10),
}
