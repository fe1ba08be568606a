"""The metrics line of a run, made when it is written and for the plug-ins."""

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

#: Plug-ins get a new line when theirs is this old, in seconds.
_MOST_AGE_S = 0.5
#: Most episodes between two lines; older ones are forgotten.
_MOST_EPISODES = 65_536


class LineMaker:
    """Joins the figures of the roles with those of the monitor, plug-ins and indicators.

    Args:
        metrics: the figures of the roles.
        plugins: their gauges are in the line.
        indicators: computed last.
        figures: the monitor's own figures.
    """

    def __init__(
        self,
        metrics: MetricsAggregator,
        plugins: Plugins,
        indicators: IndicatorSet,
        figures: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._metrics, self._plugins, self._figures = metrics, plugins, figures
        self._indicators = indicators
        self._episodes: deque[Episode] = deque(maxlen=_MOST_EPISODES)
        self._made_at = float("-inf")
        self._wait_share: dict[str, Any] = {}
        self._line: dict[str, Any] = {}

    def observe_episodes(self, heartbeat: Heartbeat) -> None:
        """Take the episodes of a heartbeat, for the next line."""
        returns, policies = heartbeat.episode_returns, heartbeat.episode_policies or repeat("")
        self._episodes += (
            Episode(float(return_), policy)
            for return_, policy in zip(returns, policies, strict=False)
            if math.isfinite(return_)
        )

    def make(self, now: float, wall: float, *, running: bool) -> dict[str, Any]:
        """The line of this moment.

        Args:
            now: seconds, by the clock of the roles.
            wall: seconds of the run's own time.
            running: False once the end of the run has begun.
        """
        self._made_at = now
        self._line = line = self._metrics.line(wall)
        line |= self._figures()
        self._plugins.add_gauges(line)
        if running:
            self._wait_share = line["wait_share"]
        else:
            # roles that have left keep the shares that they had while the run went on
            line["wait_share"] = self._wait_share | line["wait_share"]
        self._indicators.add_figures(line, tuple(self._episodes))
        self._episodes.clear()
        return line

    def recent(self, now: float, wall: float) -> dict[str, Any]:
        """The newest line, or a new one where that is too old for a plug-in; of a running run."""
        if not 0.0 <= now - self._made_at < _MOST_AGE_S:
            self.make(now, wall, running=True)
        return self._line
