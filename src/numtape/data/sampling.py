"""Sampling: which sample comes when, as a function of a key, and how a dataset is dealt out at random."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.context import current
from ..core.stream import Stream, key_from, stream_of
from ..errors import ArgumentError
from ..kernels import random as kernels
from .datasets import Subset, as_dataset


def order_of(key: int, epoch: int, length: int) -> NDArray:
    """Return the order of an epoch; it depends on nothing that was drawn before."""
    return kernels.permutation(key_from(key, epoch), 0, length)


def order_from(sampler: Any, length: int) -> NDArray:
    """Return the order that a sampler gives, checked."""
    order = np.array(list(sampler))
    if order.size == 0:
        raise ArgumentError("DataLoader: the sampler gave no numbers; there is nothing to iterate over.")
    if order.ndim != 1 or order.dtype.kind not in "iu":
        raise ArgumentError(f"DataLoader: the sampler gave {order.tolist()[0]!r}; it must give numbers of samples.")
    if order.min() < 0 or order.max() >= length:
        wrong = order[(order < 0) | (order >= length)][0]
        raise ArgumentError(f"DataLoader: the sampler gave {wrong}, and there are {length} samples, from 0 on.")
    return order


def new_key(rng: Any) -> int:
    """Draw a key from what an ``rng=`` argument means, so that two loaders of one stream differ."""
    return key_from(*stream_of(rng).take(1))


@contextmanager
def drawing_from(*parts: int) -> Iterator[None]:
    """Let random functions without ``rng=`` draw from a stream that the parts of a key give, for a while."""
    thread = current().thread
    before = thread.stream
    thread.stream = Stream(key_from(*parts))
    try:
        yield
    finally:
        thread.stream = before


def random_split(dataset: Any, lengths: Sequence[float], rng: Any = None) -> list[Subset]:
    """Deal the samples of a dataset out at random, each to one part.

    Args:
        dataset: a dataset, or arrays as `DataLoader` takes them.
        lengths: the number of samples of each part, or fractions that add up to 1. Fractions are rounded down, and the
            samples left over go to the first parts, one to each.
        rng: a Generator, a seed, or None for the thread's stream.

    Returns:
        One `Subset` for each part.

    Raises:
        ArgumentError: if the lengths do not add up to the dataset's, or fractions not to 1.

    Example:
        >>> train, test = nt.data.random_split(np.arange(10.0), [0.8, 0.2], rng=0)
        >>> len(train), len(test)
        (8, 2)
    """
    data = as_dataset(dataset, "random_split")
    counts = _counts(list(lengths), len(data))
    key, counter = stream_of(rng).take(len(data))
    order = kernels.permutation(key, counter, len(data))
    ends = np.cumsum(counts)
    return [Subset(data, order[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def _counts(lengths: list[Any], total: int) -> list[int]:
    """Return how many samples each part gets."""
    if any(isinstance(length, bool) or not isinstance(length, float | int | np.number) for length in lengths):
        raise ArgumentError(f"random_split: lengths are {lengths}; they must be numbers of samples, or fractions.")
    if any(length < 0 for length in lengths):
        raise ArgumentError(f"random_split: lengths are {lengths}; none may be negative.")
    if all(isinstance(length, int | np.integer) for length in lengths):
        if sum(lengths) == total:
            return [int(length) for length in lengths]
        if sum(lengths) != 1:  # [1] and [1, 0] are fractions as well.
            raise ArgumentError(
                f"random_split: lengths are {lengths}, {sum(lengths)} in all, and the dataset has {total} samples; "
                "they must add up to them. Fractions, which add up to 1, work for any dataset."
            )
    if not math.isclose(sum(lengths), 1.0, abs_tol=1e-9):
        raise ArgumentError(f"random_split: fractions are {lengths}, {sum(lengths):g} in all; they must add up to 1.")
    # 0.29 * 100 is 28.999999999999996 and means 29.
    counts = [math.floor(total * length + 1e-9) for length in lengths]
    wanted = [i for i, length in enumerate(lengths) if length > 0]
    for i in range(total - sum(counts)):
        counts[wanted[i % len(wanted)]] += 1
    return counts
