"""Indicators from the returns of episodes: their slope, and the gap between two policies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from aclearn.metrics.indicators.episode_window import EpisodeSums, EpisodeWindow
from aclearn.metrics.indicators.indicator import Indicator, RunSample
from aclearn.metrics.names import COMPRESSED, GAP_FIGURES, RUNG, SLOPE_FIGURES

#: Fewer episodes have no slope, and no mean of one policy.
_LEAST_FOR_SLOPE: Final = 20
_LEAST_FOR_MEAN: Final = 10


class ReturnSlope(Indicator):
    """Slope of the return by least squares over the episodes of a window.

    An episode counts at the time of its report. The slope is null before there are 20 episodes that
    span half of the window, since the first to end are the shortest.

    Args:
        window_s: length of the window; it grows until it has 20 episodes.
    """

    names = SLOPE_FIGURES

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._window = EpisodeWindow(window_s, _LEAST_FOR_SLOPE)

    @override
    def observe(self, run: RunSample) -> Mapping[str, float | None]:
        window = self._window
        episodes = [("", episode.return_) for episode in run.episodes]
        window.add(run.line["time_s"], run.line["env_steps"], episodes)
        sums = window.sums
        enough = window.counts.get("", 0) >= _LEAST_FOR_SLOPE
        if not enough or sums[-1].time_s - sums[0].time_s < self._window_s / 2:
            return {}
        per_s = _slope([(each.time_s, each) for each in sums])
        per_step = _slope([(each.env_steps, each) for each in sums])
        return dict(zip(self.names, (per_s, per_step), strict=True))


class RewardGap(Indicator):
    """Mean return of episodes of the original policy minus that of the compressed one.

    Both means are of the same window, so that learning does not look like a gap. Episodes of both
    policies count for neither. The window begins again with the first artifact of another rung:
    earlier episodes are of another compressed policy. Nor do episodes count that end while a more
    faithful policy replaces the rung's: both policies may be the same then.

    Args:
        window_s: length of the window; it grows until it has 10 episodes of each policy that still
            plays.
    """

    names = GAP_FIGURES

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._window = EpisodeWindow(window_s, _LEAST_FOR_MEAN)
        self._rung: float | None = None
        self._plays = True  # whether the rung has an artifact

    @override
    def observe(self, run: RunSample) -> Mapping[str, float | None]:
        rung = run.line.get(RUNG, self._rung)
        if rung != self._rung:
            self._rung, self._plays = rung, False
            self._window = EpisodeWindow(self._window_s, _LEAST_FOR_MEAN)
        acts = run.line.get(COMPRESSED, 1.0) > 0.0
        self._plays = self._plays or acts
        if not self._plays:
            return {}
        played = [(episode.policy, episode.return_) for episode in run.episodes if acts]
        whole = [(policy, return_) for policy, return_ in played if policy in _POLICIES]
        self._window.add(run.line["time_s"], run.line["env_steps"], whole)
        original, compressed = (self._window.mean(policy) for policy in _POLICIES)
        gap = None if original is None or compressed is None else original - compressed
        return dict(zip(self.names, (original, compressed, gap), strict=True))


_POLICIES: Final = ("original", "compressed")


def _slope(points: list[tuple[float, EpisodeSums]]) -> float | None:
    """Least-squares slope of the returns; None if all have the same abscissa."""
    episodes = sum(m.count[""] for _, m in points)
    mean_x = math.fsum(x * m.count[""] for x, m in points) / episodes
    mean_y = math.fsum(m.total[""] for _, m in points) / episodes
    squares = math.fsum(m.count[""] * (x - mean_x) ** 2 for x, m in points)
    if squares == 0.0:
        return None
    products = ((x - mean_x) * (m.total[""] - m.count[""] * mean_y) for x, m in points)
    return math.fsum(products) / squares
