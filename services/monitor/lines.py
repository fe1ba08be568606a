"""Metrics lines of a run, and the indicators that its plug-ins see. Pure: time is an argument."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any

from aclearn.config import MAX_PROCESSES
from aclearn.control import Indicators, MemberIndicators
from aclearn.metrics import MetricsAggregator
from aclearn.metrics.indicators import Episode, IndicatorSet
from aclearn.wire import Heartbeat
from services.monitor.plugins import Plugins
from services.monitor.registry import Member

#: Age of a line after which plug-ins get a new one, in seconds.
_MOST_AGE_S = 0.5
#: Most episodes between two lines, and heartbeats between two looks; older ones are dropped.
_MOST_EPISODES, _MOST_HEARTBEATS = 65_536, 4096


class IndicatorCollector:
    """Gathers heartbeats for plug-ins, and counts deaths without a last heartbeat."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        self._expected = MappingProxyType(dict(expected))
        self._heartbeats: deque[MemberIndicators] = deque(maxlen=_MOST_HEARTBEATS)
        #: By incarnation.
        self._newest: dict[str, MemberIndicators] = {}
        #: Name → incarnation that has not sent its last heartbeat; bounded in `look`.
        self._incarnations: dict[str, str] = {}
        self.deaths = 0

    def take(self, member: Member, heartbeat: Heartbeat, time_s: float) -> None:
        """Add a heartbeat received at `time_s` of the run's clock."""
        self._meet(member)
        newest = _of(member, time_s, heartbeat.counters, heartbeat.gauges, heartbeat.final)
        self._newest[member.incarnation] = newest
        self._heartbeats.append(newest)
        if heartbeat.final:
            self._incarnations.pop(member.name, None)

    def look(self, members: Sequence[Member], line: Mapping[str, Any], time_s: float) -> Indicators:
        """The run at this moment, with the heartbeats since the last look."""
        for member in members:
            self._meet(member)
        present = {
            member.incarnation: self._newest.get(member.incarnation) or _of(member, time_s)
            for member in members
        }
        self._newest = present
        if len(self._incarnations) > 2 * MAX_PROCESSES:  # some names are never used again
            self._incarnations = {member.name: member.incarnation for member in members}
        heartbeats = tuple(self._heartbeats)
        self._heartbeats.clear()
        return Indicators(
            time_s=time_s,
            line=MappingProxyType(dict(line)),
            members=tuple(present.values()),
            heartbeats=heartbeats,
            deaths=self.deaths,
            expected=self._expected,
        )

    def _meet(self, member: Member) -> None:
        """Count a death if the name's previous process sent no last heartbeat."""
        before = self._incarnations.get(member.name, member.incarnation)
        self.deaths += before != member.incarnation
        self._incarnations[member.name] = member.incarnation


def _of(member: Member, *of_heartbeat: Any) -> MemberIndicators:
    return MemberIndicators(
        member.role, member.number, member.incarnation, member.host, *of_heartbeat
    )


class Lines:
    """Joins the metrics of roles, monitor, plug-ins and indicators.

    Args:
        figures: the monitor's own, for a line of the roles'.
        frames_per_step: emulator frames of an agent step; None where there is no emulator.
        judged: of several policies those whose episodes the indicators see.
    """

    def __init__(
        self,
        metrics: MetricsAggregator,
        plugins: Plugins,
        indicators: IndicatorSet,
        figures: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        expected: Mapping[str, int],
        *,
        frames_per_step: int | None = None,
        judged: Sequence[str] = (),
    ) -> None:
        self._judged = judged
        self._metrics, self._plugins, self._figures = metrics, plugins, figures
        self._indicators, self._frames_per_step = indicators, frames_per_step
        self._collector = IndicatorCollector(expected)
        self._episodes: deque[Episode] = deque(maxlen=_MOST_EPISODES)
        self._made_at = float("-inf")
        self._before_the_end: dict[str, Any] = {}
        self._line: dict[str, Any] = {}

    def take(self, member: Member, heartbeat: Heartbeat, now: float, wall: float) -> None:
        """Add a plausible heartbeat; `now` is on the roles' clock, `wall` on the run's own."""
        incarnation = member.incarnation
        self._metrics.observe_heartbeat(
            member.role, incarnation, heartbeat, wall, clock_s=now, number=member.number
        )
        own = (heartbeat.of_policy(each) for each in self._judged if each in heartbeat.policies)
        for part in (heartbeat, *own):
            policies = part.episode_policies or repeat("")
            self._episodes += (
                Episode(float(return_), policy)
                for return_, policy in zip(part.episode_returns, policies, strict=False)
                if math.isfinite(return_)
            )
        if self._plugins:
            self._collector.take(member, heartbeat, self._metrics.time_s(wall))

    def make(self, now: float, wall: float, *, running: bool) -> dict[str, Any]:
        """The present line; `running` is False once the end of the run has begun."""
        self._made_at = now
        self._line = line = self._metrics.line(wall)
        frames = self._frames_per_step
        line["frames_per_s"] = None if frames is None else frames * line["pps"]
        line |= self._figures(line)
        self._plugins.add_gauges(line)
        if running:
            self._before_the_end = dict(line)
        else:
            # roles that left keep their last figures from before the end, as a compressor its KL
            line |= self._before_the_end | line
            shares = self._before_the_end.get("wait_share", {})
            line["wait_share"] = shares | line["wait_share"]
        self._indicators.add_figures(line, tuple(self._episodes))
        self._episodes.clear()
        return line

    def indicators(self, members: Sequence[Member], now: float, wall: float) -> Indicators:
        """The running run for plug-ins, whose line is half a second old at most."""
        if not 0.0 <= now - self._made_at < _MOST_AGE_S:
            self.make(now, wall, running=True)
        return self._collector.look(members, self._line, self._metrics.time_s(wall))
