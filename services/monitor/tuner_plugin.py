"""What the monitor does with the tuner: samples for it, its decisions in the log, the best kept."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.tuner import Tuner
from aclearn.errors import RunFolderError
from aclearn.metrics import TUNER_FROZEN, TUNER_TEMPERATURE, bottleneck_of
from aclearn.runs import MetricsWriter
from aclearn.wire import Heartbeat
from services.monitor.outgoing_message import OutgoingMessage
from services.monitor.registry import Member
from services.monitor.role_counts import RoleCounts, count_actors
from services.roles import TRAINER

_LOGGER = logging.getLogger(__name__)

#: Longest wait for all actors, from the trainer's first heartbeat, before the tuner begins without
#: them.
_ACTORS_WITHIN_S = 60.0

#: Takes a decision's number, from 1 on, and its numbers by name.
Show = Callable[[int, Mapping[str, Any]], None]


class Tuning:
    """The tuner in its run. No socket, no thread: heartbeats in, messages out.

    Args:
        tuner: decides.
        objective: of `tuner.objective`.
        actors: how many there will be; before that nothing is measured, for a minute at most.
        log: takes the decisions.
        time_s: the run's clock at a value of the tuner's.
        fixed: the counts that the tuner leaves alone, for who looks at the log.
        heartbeat_every_s: seconds between two heartbeats of a role.
        decided: how many decisions the log has; the next one's number is one more.
        remember: takes counts and rate when they have proved the best.
        show: takes each decision.
    """

    def __init__(
        self,
        tuner: Tuner,
        *,
        objective: str,
        actors: int,
        log: MetricsWriter,
        time_s: Callable[[float], float],
        fixed: Mapping[str, int],
        heartbeat_every_s: float,
        decided: int = 0,
        remember: Callable[[Mapping[str, int], float], bool] | None = None,
        show: Show | None = None,
    ) -> None:
        self._tuner, self._objective, self._log = tuner, objective, log
        self._time_s, self._remember, self._show = time_s, remember, show
        self._fixed, self._decided = dict(fixed), decided
        self._roles = RoleCounts(heartbeat_every_s=heartbeat_every_s)
        self._wanted = tuner.propose()
        self._actors = self._wanted.get("actors", actors)
        self._trainer_at: float | None = None
        self._complete = False
        self._remembered: dict[str, int] | None = None
        self._tried = False
        self._state = "searching"
        self._verdicts: Counter[str] = Counter()
        self._baseline: float | None = None
        self._noise = 0.0
        self.notes: deque[str] = deque(maxlen=10)

    @property
    def actors_wanted(self) -> int | None:
        """How many actors should run, None when that is not the tuner's to say."""
        return self._wanted.get("actors")

    def take(
        self,
        member: Member,
        heartbeat: Heartbeat,
        members: Sequence[Member],
        line: Mapping[str, Any],
        now: float,
    ) -> None:
        """Take a heartbeat; a trainer's is a sample of the objective.

        Args:
            member: who heartbeats.
            heartbeat: its heartbeat.
            members: the living.
            line: newest metrics line, for a hint where the run is held up.
            now: the clock's value.
        """
        self._roles.take(member, heartbeat, now)
        if heartbeat.final or member.role != TRAINER.name:
            return
        self._roles.meet(members, now)
        if not self._is_complete(members, now):
            return
        for decision in self._tuner.observe(
            self._counter(heartbeat),
            self._roles.running(members, self._wanted, now),
            source=member.incarnation,
            deaths=self._roles.deaths,
            silence_s=self._roles.silence_s(members, now),
        ):
            self._write(decision, now)
        wanted = self._tuner.propose(_bottleneck(line))
        if wanted != self._wanted:
            _LOGGER.info("event=tuner_wants counts=%r", wanted)
            if wanted.get("actors", 0) < self._wanted.get("actors", 0):
                self._roles.fewer_actors(now)
        self._wanted = wanted

    def messages(self, members: Sequence[Member], now: float) -> list[OutgoingMessage]:
        """What the roles must be told: a count that is not the one they reported."""
        return self._roles.messages(members, self._wanted, now)

    def gauges(self) -> dict[str, Any]:
        """What a metrics line says of the tuner: numbers, and how often each verdict was given.

        `tuner_rate` and `tuner_baseline` are there once they are known.
        """
        named = {f"tuner_{name}": float(count) for name, count in self._wanted.items()}
        rates = {"tuner_rate": self._tuner.rate, "tuner_baseline": self._baseline}
        state = {
            TUNER_TEMPERATURE: self._tuner.temperature,
            TUNER_FROZEN: float(self._tuner.frozen),
            "tuner_noise": self._noise,
            "tuner_verdicts": dict(self._verdicts),
        }
        return named | state | {name: rate for name, rate in rates.items() if rate is not None}

    def close(self) -> None:
        """Remember what proved best, and close the log."""
        if self._tried:
            self._keep()
        self._log.close()

    def note(self, text: str) -> None:
        """Something for the person who watches the run."""
        self.notes.append(text)
        _LOGGER.info("event=tuner text=%r", text)

    def _is_complete(self, members: Sequence[Member], now: float) -> bool:
        """Whether everybody has been there once; until then a rate would be that of a start."""
        if not self._complete:
            if self._trainer_at is None or now < self._trainer_at:
                self._trainer_at = now
            there = count_actors(members)
            self._complete = there >= self._actors
            self._roles.fewer_actors(now)  # a run may start with more actors than it ended with
            if not self._complete and now - self._trainer_at >= _ACTORS_WITHIN_S:
                self._complete = True
                self.note(f"tuner: begins with {there} of {self._actors} actors, see their logs")
        return self._complete

    def _counter(self, heartbeat: Heartbeat) -> int:
        counters = heartbeat.counters
        if self._objective == "tps":
            return counters.get("batches", counters.get("updates", 0))
        return counters.get("learned_steps", 0)

    def _write(self, decision: Decision, now: float) -> None:
        self._decided += 1
        line = {
            "decision": self._decided,
            "time_s": self._time_s(now),
            **decision.as_line(),
            "fixed": self._fixed,
        }
        if self._show is not None:
            self._show(self._decided, decision.as_scalars())
        try:
            self._log.write(line)
        except RunFolderError as error:
            _LOGGER.error("event=tuner_line_not_written reason=%r", str(error))
        self._verdicts[decision.verdict.replace(" ", "_")] += 1
        self._baseline, self._noise = decision.baseline, decision.noise
        kept = counts_in_words(decision.kept)
        if decision.verdict in ("accepted", "rejected"):
            self._tried = True
        if decision.verdict in ("restarted", "adopted", "given up"):
            counts = counts_in_words(decision.counts)
            self.note(f"tuner, {counts} {decision.verdict}: {decision.reason}")
        if decision.state == "frozen" and self._state != "frozen":
            self.note(f"tuner: {kept} pay best, {self._tuner.kept_estimate.mean:.4g}/s")
            self._keep()
        self._state = decision.state

    def _keep(self) -> None:
        best = self._tuner.best()
        if self._remember is None or best is None or best[0] == self._remembered:
            return
        if self._remember(*best):
            self._remembered = best[0]


def _bottleneck(line: Mapping[str, Any]) -> str | None:
    return bottleneck_of(line).role if line.get("wait_share") else None


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Worker counts as text, e.g. "2 trainers, 3 actors"."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())
