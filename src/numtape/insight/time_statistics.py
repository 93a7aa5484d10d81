"""Statistics of times that a few slow calls do not move: medians, their spread, their confidence intervals."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

#: How sure an interval is.
CONFIDENCE = 0.95
#: A time that lies further from the median than this many robust standard deviations is an outlier.
_FAR = 5.0
#: The standard deviation of normally distributed times is this many times their median absolute deviation.
_NORMAL = 1.4826
_RESAMPLES = 2000
#: Up to so many times are drawn one by one.
_FEW = 1000
#: The least number of times of which the least and the greatest hold the median as surely as asked.
FEWEST = math.ceil(1 - math.log2(1 - CONFIDENCE))


def spread(times: Sequence[float]) -> float:
    """Return the robust standard deviation: the median distance from the median, scaled."""
    middle = statistics.median(times)
    return _NORMAL * statistics.median(abs(time - middle) for time in times)


def outliers(times: Sequence[float]) -> int:
    """Count the times that lie far from the median; if most are equal to it, all that are not."""
    middle, width = statistics.median(times), spread(times)
    return sum(abs(time - middle) > _FAR * width for time in times)


def median_interval(times: Sequence[float]) -> tuple[float, float]:
    """Return a confidence interval of the median, from the ranks of the times alone.

    A time lies below the true median with probability 1/2, whatever the distribution; so the number that do is
    binomial. Below six times no two ranks are as sure as asked, and the interval has no end.
    """
    ordered = sorted(times)
    count = len(ordered)
    if count < FEWEST:
        return 0.0, math.inf
    low = max(0, _tail_rank(count) - 1)
    return ordered[low], ordered[count - 1 - low]


def _tail_rank(count: int) -> int:
    """Return the least rank up to which a fair coin's heads of `count` throws lie too often to be left out."""
    # Below, all ranks together have a probability of 1e-18.
    rank = max(0, int(count / 2 - 4.5 * math.sqrt(count)))
    logarithm = math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1) - count * math.log(2)
    probability = tail = math.exp(logarithm)
    while tail <= (1 - CONFIDENCE) / 2 and rank < count // 2:
        probability *= (count - rank) / (rank + 1)
        rank += 1
        tail += probability
    return rank


def ratio_interval(times: Sequence[float], baseline: Sequence[float]) -> tuple[float, float]:
    """Return a confidence interval of the ratio of two medians, by resampling; the same at each call.

    It has no end if that of one of the medians has none.
    """
    if min(len(times), len(baseline)) < FEWEST:
        return 0.0, math.inf
    generator = np.random.default_rng(0)
    ratios = _resampled_medians(times, generator) / _resampled_medians(baseline, generator)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _resampled_medians(times: Sequence[float], generator: np.random.Generator) -> np.ndarray:
    array = np.asarray(times, np.float64)
    count = len(array)
    if count <= _FEW:
        medians: np.ndarray = np.median(array[generator.integers(0, count, (_RESAMPLES, count))], axis=1)
        return medians
    # Drawing is to take places at random; the order of the places is that of the times, and the place in the middle of
    # so many uniform ones has a beta distribution.
    below = (count + 1) // 2
    first = generator.beta(below, count - below + 1, _RESAMPLES)
    second = first if count % 2 else first + (1.0 - first) * generator.beta(1, count - below, _RESAMPLES)
    places = (np.array([first, second]) * count).astype(np.intp).clip(0, count - 1)
    halves: np.ndarray = np.sort(array)[places].mean(axis=0)
    return halves
