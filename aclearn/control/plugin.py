"""Monitor plug-ins: indicators in, directives out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aclearn.control.directives import Payload


@dataclass(frozen=True)
class Directive:
    """A message to a role.

    It stays valid until the same plug-in gives another of its kind to the same `to`: processes that
    start later get it too. Repeating the same directive has no effect.

    Attributes:
        to: a role, e.g. "predictor" for each of its processes; a name, e.g. "predictor-1"; or
            "all" for every process of a role that the payload names.
        cause: the numbers that caused it, for the log.
        once: only for the processes that live now.
    """

    to: str
    payload: Payload
    cause: Mapping[str, Any] = field(default_factory=dict)
    once: bool = False

    def is_for(self, role: str, name: str = "") -> bool:
        """Whether a process of this role and name receives it."""
        roles = self.payload.roles
        obeys = role in roles if roles else role != "supervisor"
        return obeys and self.to in (role, name, "all")


@dataclass(frozen=True)
class MemberIndicators:
    """A living process, as of its newest heartbeat.

    Attributes:
        heard_s: time of that heartbeat on the run's clock; before the first one, of the hello.
        counters: cumulative: `learned_steps`, `updates` and `batches` of the trainer, `env_steps`
            of actors, `predictions` of actors or predictors.
    """

    role: str
    number: int
    incarnation: str
    host: str
    heard_s: float
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    final: bool = False

    @property
    def name(self) -> str:
        """Unique among the living processes, e.g. actor-3."""
        return f"{self.role}-{self.number}"

    @property
    def workers(self) -> int | None:
        """The number of its workers; None where it has none or has not reported it."""
        workers = self.gauges.get("workers")
        return None if workers is None else int(workers)


@dataclass(frozen=True)
class Indicators:
    """The run at one moment; read-only.

    Attributes:
        time_s: seconds of the run, as in its metrics; continues when the run is resumed.
        line: the run's figures, half a second old at most (docs/metrics.md has the names). Roles
            report theirs every `monitor.heartbeat_every_s`, actors less often in a large run.
        members: the living processes, in order of role and number.
        heartbeats: those received since the last `observe`, the oldest first.
        deaths: number of processes so far that left without a last heartbeat and came back.
        expected: role → configured number of processes.
    """

    time_s: float
    line: Mapping[str, Any]
    members: Sequence[MemberIndicators]
    heartbeats: Sequence[MemberIndicators]
    deaths: int
    expected: Mapping[str, int]

    def of_role(self, role: str) -> list[MemberIndicators]:
        """The living processes of one role."""
        return [member for member in self.members if member.role == role]


class MonitorPlugin:
    """Decides from indicators of the run. Pure: no socket, no thread, no clock.

    Its errors are counted and logged, and the run continues.
    """

    def observe(self, indicators: Indicators) -> Sequence[Directive]:
        """New directives; called up to ten times a second."""
        raise NotImplementedError

    def gauges(self) -> Mapping[str, Any]:
        """Numbers for the metrics line, which has them as `plugin_<name>`."""
        return {}

    def close(self) -> None:
        """Called when the run is over or the monitor ends."""
