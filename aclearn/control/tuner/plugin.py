"""The tuner as a plug-in of the monitor: heartbeats in, worker counts out."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typing_extensions import override

from aclearn.config import TUNED_COUNTS, Config
from aclearn.control.decision_log import DecisionLog
from aclearn.control.directives import Note, SetActors, SetWorkers
from aclearn.control.plugin import Directive, Indicators, MemberIndicators, MonitorPlugin
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.remembered_counts import RememberedCounts, fit
from aclearn.control.tuner.tuner import Tuner
from aclearn.metrics import TUNER_FROZEN, TUNER_TEMPERATURE, find_bottleneck
from aclearn.metrics.names import HEARTBEAT_EVERY_S
from aclearn.runs import TUNER_FILE

_LOGGER = logging.getLogger(__name__)

#: Longest wait for all actors from the trainer's first heartbeat, in seconds.
_ACTORS_WITHIN_S = 60.0
#: Seconds in which surplus actors leave after a reduction, as in the supervisor. Dead ones are
#: members for longer, and those that were started by hand stay.
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
        config: `most_counts` of it is not empty.
        run_dir: gets the log of decisions.
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
        self._config, self._most, self._show = config, most_counts(config), show
        #: Count → the role that it counts.
        self._roles = {"actors": "actor", **workers_of}
        self._log = DecisionLog(run_dir / TUNER_FILE)
        self._memory = RememberedCounts(config) if config.tuner.remember else None
        self._notes: list[str] = []
        configured = {
            name: getattr(getattr(config, group), key)
            for name, (group, key) in TUNED_COUNTS.items()
        }
        if config.actors.inference != "predictor":
            configured["predictors"] = 0
        self._fixed = {name: count for name, count in configured.items() if name not in self._most}
        self._tuner = Tuner(
            self._start() or {name: configured[name] for name in self._most},
            self._most,
            config.tuner,
            random.Random(config.run.seed),
        )
        temperature = self._log.last_line.get("temperature")
        if isinstance(temperature, int | float) and 0.0 <= temperature <= config.tuner.temperature:
            self._tuner.temperature = float(temperature)
        self._trainer_s: float | None = None
        self._complete = False
        self._fewer_actors_s = float("-inf")
        self._last: Decision | None = None
        self._rate: float | None = None  # of the last window
        self._verdicts: Counter[str] = Counter()

    def _start(self) -> dict[str, int] | None:
        kept: Any = self._log.last_line.get("kept")
        if fit(kept, self._most):
            return dict(kept)
        if self._memory is None or (found := self._memory.read(self._most)) is None:
            return None
        counts = _in_words(found)
        self._note(f"tuner: starts from {counts}, the best of an earlier run ({self._memory.path})")
        return found

    @override
    def observe(self, indicators: Indicators) -> Sequence[Directive]:
        for heartbeat in indicators.heartbeats:
            # ranks learn at the same time: the first one's counts are a share of all
            first = (heartbeat.role, heartbeat.number) == ("trainer", 0)
            counts = first and not heartbeat.final
            if counts and self._is_complete(indicators, heartbeat.heard_s):
                self._sample(indicators, heartbeat)
        cause = self._last.cause() if self._last else {}
        directives = [
            Directive("supervisor", SetActors(count), cause)
            if name == "actors"
            else Directive(self._roles[name], SetWorkers(count), cause)
            for name, count in self._tuner.propose().items()
        ]
        notes, self._notes = self._notes, []
        return [*directives, *(Directive("monitor", Note(text)) for text in notes)]

    @override
    def gauges(self) -> dict[str, Any]:
        last, wanted = self._last, self._tuner.propose()
        gauges = {
            **{f"tuner_{name}": float(count) for name, count in wanted.items()},
            TUNER_TEMPERATURE: self._tuner.temperature,
            TUNER_FROZEN: float(self._tuner.frozen),
            "tuner_noise": last.noise if last else 0.0,
            "tuner_verdicts": dict(self._verdicts),
            "tuner_file_warnings": self._memory.warnings if self._memory else 0,
        }
        rates = {"tuner_rate": self._rate, "tuner_baseline": last and last.baseline}
        return gauges | {name: rate for name, rate in rates.items() if rate is not None}

    @override
    def close(self) -> None:
        if self._verdicts["accepted"] or self._verdicts["rejected"]:
            self._remember()
        self._log.close()

    def _note(self, text: str) -> None:
        """A message to the user."""
        self._notes.append(text)
        _LOGGER.info("event=tuner text=%r", text)

    def _sample(self, indicators: Indicators, trainer: MemberIndicators) -> None:
        now, counters = trainer.heard_s, trainer.counters
        counter = counters.get("learned_steps", 0)
        if self._config.tuner.objective == "tps":
            counter = counters.get("batches", counters.get("updates", 0))
        bottleneck = find_bottleneck(indicators.line).role
        before = self._tuner.propose()
        decision = self._tuner.observe(
            now,
            counter,
            self._running(indicators, now),
            incarnation=trainer.incarnation,
            deaths=indicators.deaths,
            silence_s=self._silence_s(indicators, now),
            hint=next((name for name, role in self._roles.items() if role == bottleneck), None),
        )
        if decision is not None:
            self._take(decision, now)
        if self._tuner.propose().get("actors", 0) < before.get("actors", 0):
            self._fewer_actors_s = now

    def _is_complete(self, indicators: Indicators, now: float) -> bool:
        """Whether every actor has reported once; before, the rate is that of a start."""
        if not self._complete:
            self._trainer_s = now if self._trainer_s is None else min(now, self._trainer_s)
            there = len(indicators.of_role("actor"))
            expected = self._tuner.propose().get("actors", indicators.expected["actor"])
            late = now - self._trainer_s >= _ACTORS_WITHIN_S
            self._complete = late or there >= expected
            self._fewer_actors_s = now  # a run may start with more actors than it ended with
            if there < expected and late:
                self._note(f"tuner: begins with {there} of {expected} actors, see their logs")
        return self._complete

    def _running(self, indicators: Indicators, now: float) -> dict[str, int]:
        """The running counts, without those of roles that have processes yet to report theirs."""
        running = {}
        for name, wanted in self._tuner.propose().items():
            members = indicators.of_role(self._roles[name])
            workers = [n for member in members if (n := member.workers) is not None]
            if name == "actors":
                leaving = 0.0 <= now - self._fewer_actors_s < _LEAVE_WITHIN_S
                running[name] = len(members) if leaving else min(len(members), wanted)
            elif workers and len(workers) == len(members):
                # a process with another count decides
                running[name] = min(workers, key=lambda count: count == wanted)
        return running

    def _silence_s(self, indicators: Indicators, now: float) -> float:
        """Seconds that the latest heartbeat is overdue: a death is noticed only then."""
        roles = self._roles.values()  # a compressor may be silent over a long chain
        heard = [member.heard_s for member in indicators.members if member.role in roles]
        # longer in a large run
        told_s = indicators.line.get(HEARTBEAT_EVERY_S) or 0.0
        late_s = _HEARTBEATS_LATE * max(self._config.monitor.heartbeat_every_s, told_s)
        return max(0.0, now - min(heard, default=now) - late_s)

    def _take(self, decision: Decision, now: float) -> None:
        self._log.write({"time_s": now, **asdict(decision), "fixed": self._fixed})
        if self._show is not None:
            self._show(self._log.last_line, decision.scalars())
        self._verdicts[decision.label] += 1
        if decision.verdict in ("restarted", "adopted", "given up"):
            counts = _in_words(decision.counts)
            self._note(f"tuner, {counts} {decision.verdict}: {decision.reason}")
        if decision.state == "frozen" and (self._last is None or self._last.state != "frozen"):
            counts, rate = _in_words(decision.kept), self._tuner.best()[1]
            self._note(f"tuner: {counts} are best, {rate:.4g}/s")
            self._remember()
        self._last = decision
        if decision.rate is not None:
            self._rate = decision.rate

    def _remember(self) -> None:
        if self._memory is not None:
            self._memory.write(*self._tuner.best())


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def most_counts(config: Config) -> dict[str, int]:
    """Count → upper bound, of those that the tuner may change; empty where it is off."""
    tuned = config.tuner.counts if config.tuner.enabled else ()
    names = [name for name in TUNED_COUNTS if name in tuned]
    if config.actors.inference != "predictor":
        names = [name for name in names if name != "predictors"]
    return {name: getattr(config.tuner, f"max_{name}") for name in names}
