"""Measured rates of the tuner's settings, their noise, and the settings worth a trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: One count for each name, in one order.
Setting = tuple[int, ...]

#: Standard deviations of an outlier.
OUTLIER = 3.0
#: Relative gain required for doubling a count: of equals the smaller is better.
_COST_OF_DOUBLING = 0.01
#: Windows of a setting before it is called the best; then a setting within the noise is tried no
#: more; beyond the last number the mean of its rate is exponentially weighted.
_BEST, _ENOUGH, MOST_WINDOWS = 1.5, 3.0, 12.0
#: Prior relative standard deviation of a window, and its weight in readings.
_PRIOR_NOISE, _PRIOR_WEIGHT = 0.05, 0.5
#: Readings of the noise estimate, and the least noise: batches are counted whole.
_MOST_READINGS, _LEAST_NOISE = 24.0, 0.002


@dataclass
class Estimate:
    """The mean rate per second of one setting over `windows` full windows (parts count in part)."""

    mean: float = 0.0
    windows: float = 0.0


class SettingStats:
    """The settings from 1 to `most` of each count, and their estimates.

    Attributes:
        unreachable: settings that the roles did not apply, or that could not be measured.
    """

    def __init__(self, most: Sequence[int]) -> None:
        self._most = tuple(most)
        self._variance, self._readings = _PRIOR_NOISE**2, _PRIOR_WEIGHT
        self.forget()

    def forget(self) -> None:
        """Forget every rate and the unreachable settings, but not the noise."""
        self._estimates: dict[Setting, Estimate] = {}
        self.unreachable: set[Setting] = set()
        #: Last measured gain from doubling each count.
        self._slopes: list[float | None] = [None] * len(self._most)

    @property
    def noise(self) -> float:
        """Standard deviation of a full window, as a share of the rate."""
        return max(_LEAST_NOISE, math.sqrt(self._variance))

    def noise_of_change(self, one: float, other: float) -> float:
        """Standard deviation of the relative change between means of so many full windows."""
        return self.noise * math.sqrt(1.0 / one + 1.0 / other)

    def of(self, setting: Setting) -> Estimate:
        """The estimate of a setting; no windows before its first measurement."""
        return self._estimates.get(setting, Estimate())

    def is_known(self, setting: Setting) -> bool:
        """Whether others can be compared with it: the noise is known, and a whole window of it."""
        return self._readings > _PRIOR_WEIGHT and self.of(setting).windows >= 1.0

    def learn(self, setting: Setting, rate: float, weight: float, *, replace: bool = False) -> None:
        """Add a window's rate, of `weight` full windows; `replace` forgets earlier ones.

        A window of length t that deviates by r from a mean of n full windows has E[r²] = σ² (w/t +
        1/n). The noise σ² is a moving mean of r² / (w/t + 1/n), each limited to (3 σ)²: a window
        spoiled by a checkpoint must not dominate the next twenty.
        """
        estimate = self._estimates.setdefault(setting, Estimate())
        if estimate.windows > 0.0:
            r = rate / estimate.mean - 1.0
            sample = r**2 / (1.0 / weight + 1.0 / estimate.windows)
            self._readings = min(self._readings + 1.0, _MOST_READINGS)
            limited = min(sample, (OUTLIER * self.noise) ** 2)
            self._variance += (limited - self._variance) / self._readings
        estimate.windows = min((0.0 if replace else estimate.windows) + weight, MOST_WINDOWS)
        estimate.mean += (rate - estimate.mean) * min(1.0, weight / estimate.windows)

    def learn_slope(self, kept: Setting, trial: Setting) -> None:
        """Remember by how much a trial's count raised the rate."""
        doublings = [math.log2(b / a) for a, b in zip(kept, trial, strict=True)]
        [i] = [i for i, far in enumerate(doublings) if far]
        self._slopes[i] = self.compare(kept, trial)[0] / doublings[i]

    def compare(self, kept: Setting, other: Setting) -> tuple[float, float]:
        """Relative change of the rate from one setting to another, and its standard deviation."""
        one, two = self.of(kept), self.of(other)
        return two.mean / one.mean - 1.0, self.noise_of_change(one.windows, two.windows)

    def gain(self, kept: Setting, other: Setting) -> float:
        """Relative change of the rate, less what additional workers must bring."""
        doublings = sum(math.log2(b / a) for a, b in zip(kept, other, strict=True))
        return self.compare(kept, other)[0] - _COST_OF_DOUBLING * doublings

    def best(self, kept: Setting) -> Setting:
        """The best reachable setting that was measured well; the kept one if there is none."""
        known = [s for s, e in self._estimates.items() if e.windows >= _BEST]
        known = [s for s in known if s not in self.unreachable]
        fastest = max(known, key=lambda s: self.of(s).mean, default=kept)
        return max(known, key=lambda s: self.gain(fastest, s), default=kept)

    def is_open(self, kept: Setting, other: Setting) -> bool:
        """Whether another window could show that a measured setting is the better one."""
        hope = self.gain(kept, other) + 0.5 * self.compare(kept, other)[1]
        return hope > 0.0 and self.of(other).windows < _ENOUGH

    def is_allowed(self, setting: Setting) -> bool:
        """Whether each count is within its bounds, and the roles can run them."""
        within = all(1 <= count <= most for count, most in zip(setting, self._most, strict=True))
        return within and setting not in self.unreachable

    def worth_trying(self, kept: Setting) -> dict[Setting, float]:
        """The neighbours that may be better, and the gain that the last trials make expect.

        A neighbour has one count a quarter (at least 1) away, halved or doubled. One beyond a
        neighbour that is worse is not worth a trial.
        """
        found = dict[Setting, float]()
        for i, count in enumerate(kept):
            near, slope = max(1, count // 4), self._slopes[i]
            for way in ((count - near, count // 2), (count + near, 2 * count)):
                for other in way:
                    setting = (*kept[:i], other, *kept[i + 1 :])
                    if not self.is_allowed(setting):
                        continue
                    if not self.of(setting).windows or self.is_open(kept, setting):
                        doublings = math.log2(other / count)
                        # while nothing is known, much may be gained either way
                        found[setting] = abs(doublings) if slope is None else slope * doublings
                    elif self.gain(kept, setting) <= 0.0:
                        break
        return found
