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
#: The least number of times of which the least and the greatest hold the median as surely as asked.
FEWEST = math.ceil(1 - math.log2(1 - CONFIDENCE))


def spread(times: Sequence[float]) -> float:
    """Return the robust standard deviation: the median distance from the median, scaled."""
    middle = statistics.median(times)
    return _NORMAL * statistics.median(abs(time - middle) for time in times)


def outliers(times: Sequence[float]) -> int:
    """Count the times that lie far from the median."""
    middle, width = statistics.median(times), spread(times)
    return sum(abs(time - middle) > _FAR * width for time in times) if width else 0


def median_interval(times: Sequence[float]) -> tuple[float, float]:
    """Return a confidence interval of the median, from the ranks of the times alone.

    A time lies below the true median with probability 1/2, whatever the distribution; so the number that do is
    binomial. Below six times no two ranks are as sure as asked, and the interval has no end.
    """
    ordered = sorted(times)
    count = len(ordered)
    if count < FEWEST:
        return 0.0, math.inf
    tail, rank = 0.0, 0
    while True:
        tail += math.comb(count, rank) / 2**count
        if tail > (1 - CONFIDENCE) / 2 or rank >= count // 2:
            break
        rank += 1
    low = max(0, rank - 1)
    return ordered[low], ordered[count - 1 - low]


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
    medians: np.ndarray = np.median(array[generator.integers(0, len(array), (_RESAMPLES, len(array)))], axis=1)
    return medians
