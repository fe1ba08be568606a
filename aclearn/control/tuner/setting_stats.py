"""Estimated rates of the tuner's settings, and of the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aclearn.control.tuner.rate_model import RateModel

#: One count for each name, in one order.
Setting = tuple[int, ...]

#: Standard deviations of an outlier.
OUTLIER = 3.0
#: Sufficient standard deviation of a change.
PRECISE = 0.01
#: A window that is expected to raise the rate by less is not worth its time.
_WORTH_A_WINDOW = 0.001
#: Relative gain required for doubling a count: of equals the smaller is better.
_COST_OF_DOUBLING = 0.01
#: Windows of an estimate; beyond, its mean is exponentially weighted.
MOST_WINDOWS = 12.0
#: Prior relative standard deviation of a window, and its weight.
_PRIOR_NOISE, _PRIOR_WEIGHT = 0.05, 1.0
#: Readings of the noise estimate, and the least noise: batches are counted whole.
_MOST_READINGS, _LEAST_NOISE = 24.0, 0.002


@dataclass
class Estimate:
    """The mean rate per second of one setting over `windows` full windows (parts count in part)."""

    mean: float = 0.0
    windows: float = 0.0

    def add(self, rate: float, weight: float) -> None:
        """Add a window's rate; `weight` is its length in full windows."""
        self.windows = min(self.windows + weight, MOST_WINDOWS)
        self.mean += (rate - self.mean) * min(1.0, weight / self.windows)


class Noise:
    """The relative standard deviation of a full window, from repeated windows of one setting.

    A window of length t that deviates by r from a mean of n full windows has E[r²] = σ² (w/t +
    1/n); σ² is the exponentially weighted mean of r² / (w/t + 1/n), each limited to (3 σ)², so that
    one window spoiled by a checkpoint or another program does not dominate the next twenty.
    """

    def __init__(self) -> None:
        self._variance, self._weight = _PRIOR_NOISE**2, _PRIOR_WEIGHT

    @property
    def sd(self) -> float:
        """σ, as a share of the rate."""
        return max(_LEAST_NOISE, math.sqrt(self._variance))

    def add(self, estimate: Estimate, rate: float, weight: float) -> None:
        """Learn from a window of a setting with an earlier estimate."""
        if estimate.windows <= 0.0 or estimate.mean <= 0.0:
            return
        deviation = rate / estimate.mean - 1.0
        sample = deviation**2 / (1.0 / weight + 1.0 / estimate.windows)
        self._weight = min(self._weight + 1.0, _MOST_READINGS)
        sample = min(sample, (OUTLIER * self.sd) ** 2)
        self._variance += (sample - self._variance) / self._weight

    def of_change(self, one: float, other: float) -> float:
        """Standard deviation of the relative change between means of so many full windows."""
        return self.sd * math.sqrt(1.0 / one + 1.0 / other)


class SettingStats:
    """The settings from 1 to `most` of each count, and their estimates.

    Attributes:
        noise: of a window.
        unreachable: settings that the roles did not apply, or under which nothing was counted.
    """

    def __init__(self, most: Sequence[int]) -> None:
        self._most = tuple(most)
        self._estimates: dict[Setting, Estimate] = {}
        self.noise = Noise()
        self.unreachable: set[Setting] = set()

    def of(self, setting: Setting) -> Estimate:
        """The estimate of a setting; no windows before its first measurement."""
        return self._estimates.get(setting, Estimate())

    def rate(self, setting: Setting) -> float:
        """The estimated rate of a measured setting, per second."""
        return self._estimates[setting].mean

    def measured(self, windows: float = 0.0) -> list[Setting]:
        """The settings measured for at least so many windows, the best first."""
        known = [s for s, estimate in self._estimates.items() if estimate.windows >= windows]
        if not known:
            return []
        model = self.model(known)
        return sorted(known, key=lambda s: model.expected(s) - self.cost(known[0], s), reverse=True)

    def learn(self, setting: Setting, rate: float, weight: float) -> None:
        """Add a window's rate; `weight` is its length in full windows."""
        estimate = self._estimates.setdefault(setting, Estimate())
        self.noise.add(estimate, rate, weight)
        estimate.add(rate, weight)

    def restart(self, setting: Setting, rate: float, weight: float) -> None:
        """Replace the estimate of a setting by a window that contradicts it."""
        self.noise.add(self.of(setting), rate, weight)
        self._estimates[setting] = Estimate(rate, weight)

    def forget(self, *, but: Setting | None = None) -> None:
        """Forget every estimate, or all but one; without `but` also the unreachable settings."""
        self._estimates = {s: e for s, e in self._estimates.items() if s == but}
        if but is None:
            self.unreachable.clear()

    def neighbours(self, of: Setting) -> list[Setting]:
        """The reachable settings with one count doubled, halved, or a quarter (at least 1) away."""
        found = set[Setting]()
        for i, count in enumerate(of):
            near = max(1, count // 4)
            for other in (count // 2, count - near, count + near, 2 * count):
                if 1 <= other <= self._most[i]:
                    found.add((*of[:i], other, *of[i + 1 :]))
        return sorted(found - self.unreachable)

    def model(self, settings: Sequence[Setting]) -> RateModel:
        """The expected rates of some settings, by all measured ones."""
        sd, estimates = self.noise.sd, self._estimates.values()
        return RateModel(
            settings,
            list(self._estimates),
            [estimate.mean for estimate in estimates],
            [sd / math.sqrt(estimate.windows) for estimate in estimates],
        )

    def worth_trying(self, kept: Setting) -> dict[Setting, float]:
        """The neighbours that are worth a window (again), with its value as a share of the rate.

        The value is the expected gain of the best known setting.
        """
        others, best = self.neighbours(kept), self.measured()[0]
        model = self.model([best, *others])
        values = {
            other: model.value_of_window(best, other, self.noise.sd, cost=self.cost(best, other))
            for other in others
        }
        return {other: value for other, value in values.items() if value >= _WORTH_A_WINDOW}

    def compare(self, kept: Setting, other: Setting) -> tuple[float, float]:
        """Relative change of the rate from one setting to another, and its standard deviation."""
        return self.model([kept, other]).change(kept, other)

    def cost(self, kept: Setting, other: Setting) -> float:
        """The relative gain that must pay for the additional workers of another setting."""
        return _COST_OF_DOUBLING * sum(math.log2(b / a) for a, b in zip(kept, other, strict=True))


def steps_between(before: Setting, after: Setting) -> list[tuple[int, int]]:
    """Index and step of each count that differs."""
    return [(i, b - a) for i, (a, b) in enumerate(zip(before, after, strict=True)) if b != a]
