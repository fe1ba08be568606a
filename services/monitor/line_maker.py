"""Makes the metrics lines of a run, to be written and for plug-ins."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

from aclearn.metrics import MetricsAggregator
from aclearn.metrics.indicators import Episode, IndicatorSet
from aclearn.wire import Heartbeat
from services.monitor.plugins import Plugins

#: Age of a line after which plug-ins get a new one, in seconds.
_MOST_AGE_S = 0.5
#: Most episodes between two lines; older ones are dropped.
_MOST_EPISODES = 65_536


class LineMaker:
    """Joins the metrics of roles, monitor, plug-ins and indicators.

    Args:
        metrics: aggregates the roles'.
        plugins: give gauges.
        indicators: computed last.
        figures: gives the monitor's own metrics.
        frames_per_step: emulator frames of an agent step; None where there is no emulator.
    """

    def __init__(
        self,
        metrics: MetricsAggregator,
        plugins: Plugins,
        indicators: IndicatorSet,
        figures: Callable[[], Mapping[str, Any]],
        *,
        frames_per_step: int | None = None,
    ) -> None:
        self._metrics, self._plugins, self._figures = metrics, plugins, figures
        self._indicators, self._frames_per_step = indicators, frames_per_step
        self._episodes: deque[Episode] = deque(maxlen=_MOST_EPISODES)
        self._made_at = float("-inf")
        self._wait_share: dict[str, Any] = {}
        self._line: dict[str, Any] = {}

    def observe_episodes(self, heartbeat: Heartbeat) -> None:
        """Add the episodes of a heartbeat to the next line."""
        returns, policies = heartbeat.episode_returns, heartbeat.episode_policies or repeat("")
        self._episodes += (
            Episode(float(return_), policy)
            for return_, policy in zip(returns, policies, strict=False)
            if math.isfinite(return_)
        )

    def make(self, now: float, wall: float, *, running: bool) -> dict[str, Any]:
        """The present line.

        Args:
            now: seconds of the roles' clock.
            wall: seconds of the run's own time.
            running: False once the end of the run has begun.
        """
        self._made_at = now
        self._line = line = self._metrics.line(wall)
        frames = self._frames_per_step
        line["frames_per_s"] = None if frames is None else frames * line["pps"]
        line |= self._figures()
        self._plugins.add_gauges(line)
        if running:
            self._wait_share = line["wait_share"]
        else:
            # roles that left keep their last shares from before the end
            line["wait_share"] = self._wait_share | line["wait_share"]
        self._indicators.add_figures(line, tuple(self._episodes))
        self._episodes.clear()
        return line

    def recent(self, now: float, wall: float) -> dict[str, Any]:
        """The newest line of a running run; a new one if that is too old for plug-ins."""
        if not 0.0 <= now - self._made_at < _MOST_AGE_S:
            self.make(now, wall, running=True)
        return self._line
