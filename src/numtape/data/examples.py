"""Small sets of data for examples: scikit-learn's digits, and points in the plane that are made here."""

import importlib
import math
from typing import Any

import numpy as np

from .._typing import DtypeLike, NDArray
from ..core.stream import stream_of
from ..counts import is_count
from ..errors import ArgumentError, MissingExtraError
from ..random_creation import normal, permutation
from ..tensors import Tensor
from .columns import Floats, to_tensor

#: Every fifth image of each digit is for testing.
_TEST_EVERY = 5


def digits(split: str | None = None, dtype: DtypeLike = None) -> tuple[Tensor, Tensor]:
    """Return 1,797 handwritten digits of 8 by 8 pixels, and which they are. Needs scikit-learn, which has them.

    Args:
        split: "train" for four fifths of the images of each digit, "test" for every fifth, None for all. It is always
            the same split.
        dtype: the dtype of the images; the default dtype without.

    Returns:
        Images of shape (n, 1, 8, 8) with values from 0 to 1, and int64 labels of shape (n,).

    Raises:
        MissingExtraError: without scikit-learn.

    Example:
        >>> images, labels = nt.data.digits("train")
        >>> images.shape, images.dtype, labels[:5].tolist()
        ((1442, 1, 8, 8), dtype('float32'), [0, 1, 2, 3, 4])
    """
    if split not in ("train", "test", None):
        raise ArgumentError(f"digits: split is {split!r}; it must be 'train', 'test' or None for all.")
    floats = Floats.of("digits", dtype)
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise MissingExtraError("digits: needs scikit-learn; pip install numtape[sklearn]") from error
    loaded = datasets.load_digits()
    images, labels = loaded.images[:, np.newaxis] / 16.0, loaded.target.astype(np.int64)
    if split is not None:
        chosen = _is_for_testing(labels) == (split == "test")
        images, labels = images[chosen], labels[chosen]
    return _tensors(images, labels, floats)


def _is_for_testing(labels: NDArray) -> NDArray:
    """Say for each image whether it is a fifth one of its digit."""
    marked = np.zeros(len(labels), bool)
    for digit in range(10):
        marked[np.flatnonzero(labels == digit)[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
    return marked


def two_moons(n: int = 200, noise: float = 0.1, rng: Any = None, dtype: DtypeLike = None) -> tuple[Tensor, Tensor]:
    """Return points of two half circles that reach into each other, in random order, and which each is of.

    Args:
        n: the number of points; half of them, rounded down, are of the first moon.
        noise: the standard deviation of the normal noise that is added to both coordinates.
        rng: a Generator, a seed, or None for the thread's stream.
        dtype: the dtype of the points; the default dtype without.

    Returns:
        Points of shape (n, 2), and int64 labels 0 or 1 of shape (n,).

    Example:
        >>> points, labels = nt.data.two_moons(100, noise=0.0, rng=0)
        >>> upper = points[labels.numpy() == 0]
        >>> bool(nt.allclose((upper**2).sum(axis=1), 1.0))
        True
    """
    _check("two_moons", n, noise)
    first, second = np.linspace(0.0, np.pi, n // 2), np.linspace(0.0, np.pi, n - n // 2)
    upper = np.stack([np.cos(first), np.sin(first)], axis=1)
    lower = np.stack([1.0 - np.cos(second), 0.5 - np.sin(second)], axis=1)
    labels = np.repeat([0, 1], [len(first), len(second)])
    return _scattered(np.concatenate([upper, lower]), labels, noise, rng, Floats.of("two_moons", dtype))


def spirals(
    n: int = 300, classes: int = 3, turns: float = 0.75, noise: float = 0.03, rng: Any = None, dtype: DtypeLike = None
) -> tuple[Tensor, Tensor]:
    """Return points of spiral arms that wind around the origin, in random order, and which arm each is of.

    Args:
        n: the number of points, dealt out to the arms in turn.
        classes: the number of arms.
        turns: how often each arm goes around.
        noise: the standard deviation of the normal noise that is added to both coordinates.
        rng: a Generator, a seed, or None for the thread's stream.
        dtype: the dtype of the points; the default dtype without.

    Returns:
        Points of shape (n, 2) about the unit disc, and int64 labels from 0 to classes - 1 of shape (n,).

    Example:
        >>> points, labels = nt.data.spirals(90, classes=3, rng=0)
        >>> points.shape, np.bincount(labels.numpy()).tolist()
        ((90, 2), [30, 30, 30])
    """
    _check("spirals", n, noise)
    if not isinstance(classes, int | np.integer) or classes < 1:
        raise ArgumentError(f"spirals: classes is {classes!r}; it must be an integer of at least 1.")
    labels = np.arange(n) % classes
    radius = (np.arange(n) + 1.0) / n
    angle = 2.0 * np.pi * (labels / classes + turns * radius)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return _scattered(points, labels, noise, rng, Floats.of("spirals", dtype))


def _check(name: str, n: Any, noise: Any) -> None:
    if not is_count(n, 2):
        raise ArgumentError(f"{name}: n is {n!r}; it must be an integer of at least 2.")
    if not isinstance(noise, float | int | np.number) or not 0.0 <= noise < math.inf:
        raise ArgumentError(f"{name}: noise is {noise!r}; a standard deviation is a number that is not negative.")


def _scattered(points: NDArray, labels: NDArray, noise: float, rng: Any, floats: Floats) -> tuple[Tensor, Tensor]:
    """Return points and labels in random order, with noise."""
    stream = stream_of(rng)
    order = permutation(len(points), rng=stream).numpy()
    shifts = normal(0.0, noise, points.shape, dtype="float64", rng=stream).numpy()
    return _tensors(points[order] + shifts, labels[order], floats)


def _tensors(points: NDArray, labels: NDArray, floats: Floats) -> tuple[Tensor, Tensor]:
    return to_tensor(points, floats.out(points.dtype, False)), to_tensor(labels, np.dtype(np.int64))
