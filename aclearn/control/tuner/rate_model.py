"""Rates of all settings from measured ones: a Gaussian process over the logarithms of counts.

The logarithm of the rate is modelled, since changes of a rate are relative, over the logarithm of
each count, since from 1 worker to 2 is as far as from 4 to 8. A window of one setting therefore
also says something of its neighbours, and noise is averaged over all windows near a setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Standard deviation of the logarithm of the rate over the settings, and its length scale in
#: doublings of a count.
_SPREAD, _REACH = 0.7, 1.5
#: Standard deviation of a single setting from the smooth surface of rates.
_PECULIAR = 0.05
#: Variance of the unknown level: any rate per second is possible.
_LEVEL_VARIANCE = 100.0

Array = NDArray[np.float64]


class RateModel:
    """The logarithm of the rate at some settings, given measured ones.

    Args:
        settings: those of interest.
        measured: settings with a rate; all of `settings` may be among them.
        rates: mean rate of each measured setting, above 0.
        deviations: relative standard deviation of each of these means.

    Attributes:
        mean: expected log rate of each of `settings`.
        covariance: of these.
    """

    def __init__(
        self,
        settings: Sequence[tuple[int, ...]],
        measured: Sequence[tuple[int, ...]],
        rates: Sequence[float],
        deviations: Sequence[float],
    ) -> None:
        self._index = {setting: i for i, setting in enumerate(settings)}
        prior, across = _covariance(settings, settings), _covariance(settings, measured)
        seen = _covariance(measured, measured) + np.diag(np.square(deviations))
        weights = np.linalg.solve(seen, across.T).T
        # the level is unknown: the first rate serves as origin, far within its prior
        logs = np.log(np.asarray(rates, np.float64))
        self.mean: Array = logs[0] + weights @ (logs - logs[0])
        self.covariance: Array = prior - weights @ across.T

    def expected(self, setting: tuple[int, ...]) -> float:
        """The expected logarithm of a setting's rate."""
        return float(self.mean[self._index[setting]])

    def change(self, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[float, float]:
        """Relative change of the rate from one setting to another, and its standard deviation."""
        one, two = self._index[before], self._index[after]
        c = self.covariance
        variance = c[one, one] + c[two, two] - 2.0 * c[one, two]
        change = math.expm1(self.mean[two] - self.mean[one])
        return change, math.sqrt(max(0.0, variance)) * (1.0 + change)

    def value_of_window(
        self, best: tuple[int, ...], at: tuple[int, ...], deviation: float, cost: float = 0.0
    ) -> float:
        """Expected gain from one more window at a setting, as a share of the rate.

        After the window, of this relative standard deviation, the better of two settings is known
        better; the value is by how much (the knowledge gradient). `cost` is the gain that `at` must
        have to be as good as `best`.
        """
        one, two = self._index[best], self._index[at]
        c = self.covariance
        learned = c[two, two] - c[one, two]
        sd = abs(float(learned)) / math.sqrt(float(c[two, two]) + deviation**2)
        if sd <= 0.0:
            return 0.0
        better = float(self.mean[two] - self.mean[one]) - cost
        z = abs(better) / sd
        density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        return sd * density - abs(better) * 0.5 * math.erfc(z / math.sqrt(2.0))


def _covariance(one: Sequence[tuple[int, ...]], two: Sequence[tuple[int, ...]]) -> Array:
    a, b = np.log2(np.asarray(one, np.float64)), np.log2(np.asarray(two, np.float64))
    far = np.square(a[:, None, :] - b[None, :, :]).sum(axis=-1)
    alike = _SPREAD**2 * np.exp(-far / (2.0 * _REACH**2))
    return np.asarray(alike + _PECULIAR**2 * (far == 0.0) + _LEVEL_VARIANCE)
