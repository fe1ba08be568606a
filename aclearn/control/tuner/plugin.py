"""The tuner as a plug-in of the monitor: heartbeats in, worker counts out."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.control.decision_log import DecisionLog
from aclearn.control.directives import Note, SetActors, SetWorkers
from aclearn.control.plugin import Directive, Indicators, MemberIndicators, MonitorPlugin
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.remembered_counts import RememberedCounts
from aclearn.control.tuner.tuner import Tuner
from aclearn.metrics import TUNER_FROZEN, TUNER_TEMPERATURE, find_bottleneck
from aclearn.runs import TUNER_FILE

_LOGGER = logging.getLogger(__name__)

#: Longest wait for all actors from the trainer's first heartbeat.
_ACTORS_WITHIN_S = 60.0
#: Seconds in which surplus actors leave after a reduction, as in the supervisor.
_LEAVE_WITHIN_S = 10.0
#: A heartbeat is overdue after this many intervals.
_HEARTBEATS_LATE = 1.5

#: Takes a decision as in the log, and its numbers by name.
Show = Callable[[Mapping[str, Any], Mapping[str, Any]], None]


class TunerPlugin(MonitorPlugin):
    """Feeds the trainer's heartbeats to a tuner and directs the roles to its counts.

    The first counts are the run's last kept ones (a resumed run, a restarted monitor). A new run
    takes the best ones of earlier runs of this machine and configuration, or the configured ones.

    Args:
        config: of the run; `most_counts` is not empty.
        run_dir: the run's folder, which gets the decisions.
        workers_of: count of workers → the role that runs them.
        show: takes each decision.

    Raises:
        RunFolderError: the log of decisions cannot be opened.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        workers_of: Mapping[str, str],
        *,
        show: Show | None = None,
    ) -> None:
        tuner, most = config.tuner, most_counts(config)
        self._objective, self._workers_of, self._show = tuner.objective, dict(workers_of), show
        #: Which count to raise when this role is the bottleneck.
        self._count_of = {role: count for count, role in workers_of.items()} | {"actor": "actors"}
        self._late_after_s = _HEARTBEATS_LATE * config.monitor.heartbeat_every_s
        self._log = DecisionLog(run_dir / TUNER_FILE)
        self._memory = RememberedCounts(config) if tuner.remember else None
        self._notes: list[str] = []
        configured = {
            "predictors": config.predictor.workers if _has_predictors(config) else 0,
            "trainers": config.trainer.workers,
            "actors": config.actors.processes,
        }
        self._fixed = {name: count for name, count in configured.items() if name not in most}
        last = self._log.last_line
        self._tuner = Tuner(
            self._start(last.get("kept"), most, configured),
            most,
            every_s=tuner.every_s,
            settle_s=tuner.settle_s,
            longest_gap_s=tuner.longest_gap_s,
            temperature=tuner.temperature,
            cooling=tuner.cooling,
            restart_search_share=tuner.restart_search_share,
            rng=random.Random(config.run.seed),
        )
        temperature = last.get("temperature")
        if isinstance(temperature, int | float) and 0.0 <= temperature <= tuner.temperature:
            self._tuner.temperature = float(temperature)
        self._wanted = self._tuner.propose()
        self._trainer_s: float | None = None
        self._complete = False
        self._fewer_actors_s = float("-inf")
        self._remembered: dict[str, int] | None = None
        self._tried = False
        self._last: Decision | None = None
        self._verdicts: Counter[str] = Counter()

    def _start(
        self, kept: Any, most: Mapping[str, int], configured: Mapping[str, int]
    ) -> dict[str, int]:
        if _fits(kept, most):
            return dict(kept)
        found = self._memory.read() if self._memory else None
        if self._memory is not None and found is not None and _fits(found, most):
            counts = counts_in_words(found)
            self._note(
                f"tuner: starts from {counts}, the best of an earlier run ({self._memory.path})"
            )
            return found
        return {name: configured[name] for name in most}

    def observe(self, indicators: Indicators) -> Sequence[Directive]:
        """Directives after new heartbeats; each of the trainer's is a sample of the objective."""
        for heartbeat in indicators.heartbeats:
            counts = heartbeat.role == "trainer" and not heartbeat.final
            if counts and self._is_complete(indicators, heartbeat.heard_s):
                self._sample(indicators, heartbeat)
        notes, self._notes = self._notes, []
        return [*self._directives(), *(Directive("monitor", Note(text)) for text in notes)]

    def gauges(self) -> dict[str, Any]:
        """Current numbers, and the count of each verdict.

        `tuner_rate` and `tuner_baseline` appear once they are known.
        """
        last = self._last
        gauges = {f"tuner_{name}": float(count) for name, count in self._wanted.items()} | {
            TUNER_TEMPERATURE: self._tuner.temperature,
            TUNER_FROZEN: float(self._tuner.frozen),
            "tuner_noise": last.noise if last else 0.0,
            "tuner_verdicts": dict(self._verdicts),
            "tuner_file_warnings": self._memory.warnings if self._memory else 0,
        }
        rates = {"tuner_rate": self._tuner.rate, "tuner_baseline": last and last.baseline}
        return gauges | {name: rate for name, rate in rates.items() if rate is not None}

    def close(self) -> None:
        """Save the best counts and close the log."""
        if self._tried:
            self._remember()
        self._log.close()

    def _note(self, text: str) -> None:
        """A message to the user."""
        self._notes.append(text)
        _LOGGER.info("event=tuner text=%r", text)

    def _directives(self) -> list[Directive]:
        cause = self._last.cause() if self._last else {}
        return [
            Directive(self._workers_of[name], SetWorkers(count), cause)
            if name in self._workers_of
            else Directive("supervisor", SetActors(count), cause)
            for name, count in self._wanted.items()
        ]

    def _sample(self, indicators: Indicators, trainer: MemberIndicators) -> None:
        now = trainer.heard_s
        for decision in self._tuner.observe(
            now,
            self._counter(trainer),
            self._running(indicators, now),
            incarnation=trainer.incarnation,
            deaths=indicators.deaths,
            silence_s=self._silence_s(indicators, now),
        ):
            self._take(decision, now)
        bottleneck = find_bottleneck(indicators.line).role
        wanted = self._tuner.propose(self._count_of.get(bottleneck or ""))
        if wanted.get("actors", 0) < self._wanted.get("actors", 0):
            self._fewer_actors_s = now
        self._wanted = wanted

    def _is_complete(self, indicators: Indicators, now: float) -> bool:
        """Whether every role has reported once; before, the rate is that of a start."""
        if not self._complete:
            if self._trainer_s is None or now < self._trainer_s:
                self._trainer_s = now
            there = len(indicators.of_role("actor"))
            expected = self._wanted.get("actors", indicators.expected["actor"])
            self._complete = there >= expected
            self._fewer_actors_s = now  # a run may start with more actors than it ended with
            if not self._complete and now - self._trainer_s >= _ACTORS_WITHIN_S:
                self._complete = True
                self._note(f"tuner: begins with {there} of {expected} actors, see their logs")
        return self._complete

    def _running(self, indicators: Indicators, now: float) -> dict[str, int]:
        """The running counts, without those of roles that have processes yet to report theirs."""
        there = len(indicators.of_role("actor"))
        if not 0.0 <= now - self._fewer_actors_s < _LEAVE_WITHIN_S:
            # more were started by hand; the supervisor controls its own only
            there = min(there, self._wanted.get("actors", 0))
        running = {"actors": there}
        for name, role in self._workers_of.items():
            workers = [member.workers for member in indicators.of_role(role)]
            # a process with another count decides
            other = [count for count in workers if count != self._wanted.get(name)]
            count = other[0] if other else self._wanted.get(name)
            if workers and count is not None and None not in workers:
                running[name] = count
        return running

    def _silence_s(self, indicators: Indicators, now: float) -> float:
        """Seconds that the latest heartbeat is overdue: a death is noticed only then."""
        roles = {
            "actor",
            *self._workers_of.values(),
        }  # a compressor may be silent over a long chain
        heard = [member.heard_s for member in indicators.members if member.role in roles]
        return max(0.0, now - min(heard, default=now) - self._late_after_s)

    def _counter(self, trainer: MemberIndicators) -> int:
        counters = trainer.counters
        if self._objective == "tps":
            return counters.get("batches", counters.get("updates", 0))
        return counters.get("learned_steps", 0)

    def _take(self, decision: Decision, now: float) -> None:
        self._log.write({"time_s": now, **asdict(decision), "fixed": self._fixed})
        if self._show is not None:
            self._show(self._log.last_line, decision.scalars())
        self._verdicts[decision.label] += 1
        if decision.verdict in ("accepted", "rejected"):
            self._tried = True
        if decision.verdict in ("restarted", "adopted", "given up"):
            counts = counts_in_words(decision.counts)
            self._note(f"tuner, {counts} {decision.verdict}: {decision.reason}")
        if decision.state == "frozen" and (self._last is None or self._last.state != "frozen"):
            kept = counts_in_words(decision.kept)
            self._note(f"tuner: {kept} are best, {self._tuner.kept_estimate.mean:.4g}/s")
            self._remember()
        self._last = decision

    def _remember(self) -> None:
        best = self._tuner.best()
        if self._memory is None or best is None or best[0] == self._remembered:
            return
        if self._memory.write(*best):
            self._remembered = best[0]


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Worker counts as text, e.g. "2 trainers, 3 actors"."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def most_counts(config: Config) -> dict[str, int]:
    """Count → upper bound, of those that the tuner may change; empty where it is off."""
    tuner = config.tuner
    most = {
        "predictors": tuner.max_predictors if _has_predictors(config) else 0,
        "trainers": tuner.max_trainers,
        "actors": tuner.max_actors,
    }
    tuned = tuner.counts if tuner.enabled else []
    return {name: bound for name, bound in most.items() if bound and name in tuned}


def _has_predictors(config: Config) -> bool:
    return config.actors.inference == "predictor"


def _fits(counts: Any, most: Mapping[str, int]) -> bool:
    """Whether counts from a file have the same names and lie within the bounds."""
    return (
        isinstance(counts, dict)
        and counts.keys() == most.keys()
        and all(type(counts[name]) is int and 1 <= counts[name] <= most[name] for name in most)
    )
