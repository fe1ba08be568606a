"""Takes members' heartbeats into the metrics, as far as their numbers can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from aclearn.metrics import MetricsAggregator
from aclearn.wire import Heartbeat
from services.monitor.claims import (
    MOST_GAUGES,
    MOST_LABEL_BYTES,
    MOST_LABELS,
    HeartbeatClaims,
    without_too_much,
)
from services.monitor.judge import Judge
from services.monitor.lines import Lines
from services.monitor.registry import Member
from services.monitor.status_report import StatusReport
from services.roles import EVALUATOR, TRAINER

#: Gauges of refusals that an event names once for each process.
_SAID_REFUSALS: Final[Mapping[str, str]] = {
    "refused_keys": "connections of keys that are unknown or revoked",
    "refused_rights": "messages for which the sender's key is not",
}


class Heartbeats:
    """Checks each heartbeat, and gives it to the metrics and the judge. Pure: time is an argument.

    Args:
        wall: the run's time at a time of the roles' clock, both in seconds.
        judge: of the evaluations; None without an evaluator.
        policies: names of several policies.

    Attributes:
        refused: number of heartbeats with implausible values.
    """

    def __init__(
        self,
        lines: Lines,
        metrics: MetricsAggregator,
        report: StatusReport,
        *,
        wall: Callable[[float], float],
        judge: Judge | None,
        policies: Collection[str],
    ) -> None:
        self._lines, self._metrics, self._report = lines, metrics, report
        self._wall, self._judge = wall, judge
        self._claims = HeartbeatClaims(policies)
        self.refused = 0

    def take(self, member: Member, heartbeat: Heartbeat, now: float) -> str | None:
        """Take a member's heartbeat; why it is refused, as text for its sender, or None."""
        incarnation = member.incarnation
        fitting = without_too_much(heartbeat)
        if fitting is not heartbeat:
            self._report.event_once(
                incarnation,
                "too much",
                f"{member.name} reports too much: at most {MOST_GAUGES} gauges and "
                f"{MOST_LABELS} labels of {MOST_LABEL_BYTES} bytes are allowed",
            )
        for figure, what in _SAID_REFUSALS.items():
            if fitting.gauges.get(figure):
                words = f"{member.name} refuses {what}; see {figure} in the metrics, and its log"
                self._report.event_once(incarnation, figure, words)
        fault = self._claims.fault(incarnation, fitting)
        if fault is None and heartbeat.actors and member.role != TRAINER.name:
            fault = "only a trainer counts the steps of actors"
        if fault is not None:
            self.refused += 1
            words = f"{member.name} reports implausible values: {fault}"
            self._report.event_once(incarnation, "cannot be", words)
            return fault
        self._lines.take(member, fitting, now, self._wall(now))
        if self._judge is not None and member.role == EVALUATOR.name:
            time_s = self._metrics.time_s(self._wall(now))
            self._judge.take(incarnation, fitting, time_s)
        first = member.role == TRAINER.name and member.number == 0
        # one whose ranks still find each other has no counters, and knows of no best yet
        if self._judge is not None and first and fitting.counters:
            self._judge.take_saved(member.generation, fitting.gauges.get("best_return"))
        return None

    def forget(self, incarnation: str, keep_metrics: bool) -> None:
        """Drop the numbers of a process that has left."""
        self._claims.forget(incarnation)
        if not keep_metrics:
            self._metrics.role_gone(incarnation)
