"""Indicators for plug-ins, gathered from heartbeats."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from aclearn.config import MAX_PROCESSES
from aclearn.control import Indicators, MemberIndicators
from aclearn.wire import Heartbeat
from services.monitor.registry import Member

#: Most heartbeats between two looks; older ones are dropped.
_MOST_HEARTBEATS = 4096


class IndicatorCollector:
    """Gathers heartbeats and counts deaths without a last heartbeat. Pure: time is an argument.

    Args:
        expected: role → configured number of processes.
    """

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
        self._meet(member, time_s)
        newest = _of(
            member,
            time_s,
            counters=heartbeat.counters,
            gauges=heartbeat.gauges,
            final=heartbeat.final,
        )
        self._newest[member.incarnation] = newest
        self._heartbeats.append(newest)
        if heartbeat.final:
            self._incarnations.pop(member.name, None)

    def look(self, members: Sequence[Member], line: Mapping[str, Any], time_s: float) -> Indicators:
        """The run at this moment, with the heartbeats since the last look."""
        alive = {member.incarnation for member in members}
        self._newest = {i: newest for i, newest in self._newest.items() if i in alive}
        for member in members:
            self._meet(member, time_s)
        if len(self._incarnations) > 2 * MAX_PROCESSES:  # some names are never used again
            living = {member.name for member in members}
            self._incarnations = {n: i for n, i in self._incarnations.items() if n in living}
        heartbeats = tuple(self._heartbeats)
        self._heartbeats.clear()
        return Indicators(
            time_s=time_s,
            line=MappingProxyType(dict(line)),
            members=tuple(self._newest[member.incarnation] for member in members),
            heartbeats=heartbeats,
            deaths=self.deaths,
            expected=self._expected,
        )

    def _meet(self, member: Member, time_s: float) -> None:
        """Count a death if the name's previous process sent no last heartbeat."""
        if self._incarnations.get(member.name, member.incarnation) != member.incarnation:
            self.deaths += 1
        self._incarnations[member.name] = member.incarnation
        if member.incarnation not in self._newest:
            self._newest[member.incarnation] = _of(member, time_s)


def _of(member: Member, time_s: float, **numbers: Any) -> MemberIndicators:
    return MemberIndicators(
        member.role, member.number, member.incarnation, member.host, time_s, **numbers
    )
