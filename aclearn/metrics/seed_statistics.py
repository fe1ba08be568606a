"""Statistics over the runs of one configuration, which differ by their seeds. Pure.

The numbers are rliable's (Agarwal et al. 2021) for one environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: With fewer runs nothing is cut off, and the mean is shown.
RUNS_FOR_INTERQUARTILE_MEAN: Final = 5
_RESAMPLES: Final = 10_000
#: Values that are drawn at a time: 64 MB with their indices.
_MOST_DRAWN: Final = 4_000_000
#: Percentiles of the 95 % interval.
_ENDS: Final = (2.5, 97.5)

#: A statistic along an axis of an array, which it removes.
Statistic = Callable[[NDArray[np.float64], int], NDArray[np.float64]]


class Estimate(NamedTuple):
    """A statistic over runs, of each point of their values.

    Attributes:
        name: "mean" or "interquartile mean"; "value" of a single run.
        low: the lower end of the 95 % interval; None of a single run. So is `high`, the upper end.
    """

    name: str
    value: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None


def estimate(values: ArrayLike, *, resamples: int = _RESAMPLES) -> Estimate:
    """The interquartile mean over runs, with fewer than five the mean, and its 95 % interval.

    The interval is of a percentile bootstrap over runs, with the same draws in every call.

    Args:
        values: `[runs, ...]`.
        resamples: number of draws.
    """
    rows = np.asarray(values, np.float64)
    runs = len(rows)
    if runs == 1:
        return Estimate("value", rows[0], None, None)
    enough = runs >= RUNS_FOR_INTERQUARTILE_MEAN
    name, statistic = ("interquartile mean", interquartile_mean) if enough else ("mean", np.mean)
    draws = np.random.default_rng(0).integers(runs, size=(resamples, runs))
    return Estimate(name, statistic(rows, 0), *bootstrap_interval(rows, statistic, draws))


def mean_interval(values: ArrayLike) -> tuple[float, float] | None:
    """The 95 % interval of the mean, by the bootstrap of `estimate`; None of a single value."""
    rows = np.asarray(values, np.float64)
    if len(rows) < 2:
        return None
    rng, means = np.random.default_rng(0), np.empty(_RESAMPLES)
    at_once = max(1, _MOST_DRAWN // len(rows))  # all draws of many values take gigabytes
    for begin in range(0, _RESAMPLES, at_once):
        some = means[begin : begin + at_once]
        some[:] = rows[rng.integers(len(rows), size=(len(some), len(rows)))].mean(1)
    low, high = np.percentile(means, _ENDS)
    return float(low), float(high)


def interquartile_mean(values: NDArray[np.float64], axis: int = 0) -> NDArray[np.float64]:
    """The mean without a quarter of the values, rounded down, at each end (a trimmed mean)."""
    ordered = np.sort(np.moveaxis(values, axis, 0), axis=0)
    cut = len(ordered) // 4
    return np.asarray(ordered[cut : len(ordered) - cut].mean(axis=0))


def bootstrap_interval(
    values: NDArray[np.float64], statistic: Statistic, draws: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the statistic's 95 % interval, by percentiles over the draws.

    Args:
        values: `[runs, ...]`.
        draws: `[resamples, runs]`, the indices of the runs in each draw.
    """
    points = values.reshape(len(values), -1).T
    # one point at a time: all draws of all points would be some hundred megabytes
    ends = [np.percentile(statistic(point[draws], 1), _ENDS) for point in points]
    low, high = np.array(ends).T.reshape(2, *values.shape[1:])
    return low, high


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The 25 %, 50 % and 75 % quantiles, interpolated; infinite where they need an infinite value.

    An infinite value is a goal that a run has not reached: it is later than all others.
    """
    ordered = sorted(values)
    low, middle, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return low, middle, high


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    # numpy subtracts the two, and infinite ones give NaN
    return below if below == above else below + (above - below) * (place - math.floor(place))
