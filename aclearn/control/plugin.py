"""What a plug-in of the monitor sees, and what it says: indicators in, directives out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aclearn.wire import SaveBest, SetActors, SetChain, SetMix, SetWorkers, StopRole, StopRun


@dataclass(frozen=True)
class Note:
    """A line for the person who watches the run; to the monitor."""

    text: str


#: What a directive may carry. `SetWorkers` goes to predictors or to the trainer, `SetActors` to the
#: supervisor, `SetChain` to compressors, `SetMix` to actors, `SaveBest` to the trainer, `StopRun`
#: and `Note` to the monitor. `StopRole` is the monitor's alone: a plug-in asks for the end of the
#: run with `StopRun`. A new kind is a message of `aclearn.wire`, and what its role does with it.
Payload = SetWorkers | SetActors | SetChain | SetMix | SaveBest | StopRole | StopRun | Note


@dataclass(frozen=True)
class Directive:
    """A message to a role.

    It stands until the same plug-in gives another of its kind to the same `to`: a process that is
    started later gets it as well. The same directive given again changes nothing.

    Attributes:
        to: a role, e.g. "predictor", which is each process of it; a name, e.g. "predictor-1"; or
            "all".
        payload: the message; its `id` is the monitor's to set.
        cause: the numbers that it follows from, for the log.
        once: only for the processes that live now.
    """

    to: str
    payload: Payload
    cause: Mapping[str, Any] = field(default_factory=dict)
    once: bool = False


@dataclass(frozen=True)
class MemberIndicators:
    """A living process, as of its newest heartbeat.

    Attributes:
        heard_s: time of that heartbeat on the run's clock; before the first one, when it was met.
        workers: that it runs; None where it has none, or has not said.
        counters: cumulative: `learned_steps`, `updates` and `batches` of the trainer, `env_steps`
            of actors, `predictions` of actors or predictors.
        gauges: newest values.
        final: whether the heartbeat was its last.
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
        """Unique among the living, e.g. actor-3."""
        return f"{self.role}-{self.number}"

    @property
    def workers(self) -> int | None:
        """The workers that it runs; None where it has not said."""
        workers = self.gauges.get("workers")
        return None if workers is None else int(workers)


@dataclass(frozen=True)
class Indicators:
    """The run at one moment; read-only.

    Attributes:
        time_s: seconds of the run, as in its metrics. It goes on where the run is resumed.
        line: the figures of the run, half a second old at most; docs/metrics.md has the names.
            Roles report theirs every `monitor.heartbeat_every_s`.
        members: the living, in order of role and number.
        heartbeats: those taken since the last `observe`, the oldest first.
        deaths: processes that left without a last heartbeat and came back, so far.
        expected: role → how many processes are configured.
    """

    time_s: float
    line: Mapping[str, Any]
    members: Sequence[MemberIndicators]
    heartbeats: Sequence[MemberIndicators]
    deaths: int
    expected: Mapping[str, int]

    def of_role(self, role: str) -> list[MemberIndicators]:
        """The living of one role."""
        return [member for member in self.members if member.role == role]


class MonitorPlugin:
    """Decides from what the monitor sees of the run. Pure: no socket, no thread, no clock.

    An error that it raises is counted and logged, and the run goes on.
    """

    def observe(self, indicators: Indicators) -> Sequence[Directive]:
        """What the roles are to do from now on; called up to ten times a second."""
        raise NotImplementedError

    def gauges(self) -> Mapping[str, Any]:
        """Numbers for the metrics line, which has them as `plugin_<name>`."""
        return {}

    def close(self) -> None:
        """The run is over, or the monitor ends."""
