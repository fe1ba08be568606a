"""A metrics line from the latest heartbeats of all roles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aclearn.config import MAX_PROCESSES
from aclearn.metrics.episode_means import EpisodeMeans
from aclearn.metrics.names import (
    CHAIN_STEPS,
    EPISODES_FOR_TARGET,
    INFO,
    LEARNED_HERE,
    METRIC_NAMES,
    PART_SECONDS,
    TRAINER_COUNTS,
)
from aclearn.metrics.step_totals import StepTotals, count_of, counts_of
from aclearn.metrics.trainers import TrainerRanks, joined_gauges
from aclearn.metrics.wait_shares import WaitShares
from aclearn.runs import NO_NUMBERS
from aclearn.telemetry import CounterRate, SlidingRate, add_up
from aclearn.types import DEFAULT_POLICY

if TYPE_CHECKING:  # the wire imports sockets
    from aclearn.wire import Heartbeat

_PART_DIGITS: Final = 4
#: Seconds of the window of all rates and shares.
_WINDOW_S: Final = 10.0
#: Most characters of a note in a line.
_MOST_NOTE: Final = 400
#: Processes whose episode counts are remembered, all that may live among them; the one silent
#: longest is dropped first.
_PROCESSES_KEPT: Final = MAX_PROCESSES


@dataclass
class _Process:
    """The newest numbers of one living process."""

    role: str
    gauges: dict[str, float] = field(default_factory=dict)


class MetricsAggregator:
    """Aggregates the roles' heartbeats. Pure: time is an argument.

    Counters read: of the trainer `StepAccount.counters()`, `updates`, `batches` (if a
    batch is used more than once), `generation`, `policy_version`; of the actors `env_steps`,
    `episodes`; of actors with local inference and of predictors `predictions`. Waits before a
    trainer's first batch are no part of `wait_share`: then all roles wait for the start.

    Args:
        now: the clock's value at the start of the run, in seconds.
        resume_from: last metrics line of the resumed run: `time_s`, `episodes` and the trainer's
            counts continue.
        state: `state()` of the aggregator that wrote that line: agent steps and returns continue.

    Attributes:
        best_return: mean return of the trainer's best checkpoint; None before the first.

    Raises:
        ValueError: `state` is invalid.
    """

    def __init__(
        self,
        now: float,
        *,
        resume_from: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._started = now
        self._resumed = resume_from is not None
        previous = resume_from or {}
        self._time_base_s = float(previous.get("time_s") or 0.0)
        self._episodes = int(previous.get("episodes") or 0)
        self._episodes_of: dict[str, int] = {}
        self._means, self._totals = EpisodeMeans(), StepTotals()
        if state is not None:
            self._totals = StepTotals.from_state(state.get("totals", {}))
            self._means = EpisodeMeans(state.get("episodes", []))
            self._episodes_of = counts_of(state.get("episodes_of", {}))
            # it is written before the line
            self._episodes = count_of(state.get("episode_count", self._episodes))
        self._processes: dict[str, _Process] = {}
        self._trainers = TrainerRanks()
        self._superseded: set[str] = set()
        # A trainer takes seconds to load; until its first heartbeat its counts are those of the
        # last line.
        self._trainer_counters: dict[str, int] = {
            name: int(previous[name]) for name in TRAINER_COUNTS if name in previous
        }
        self._trainer_gauges: dict[str, float] = {}
        self._policy = DEFAULT_POLICY
        self._checkpoint_error: str | None = None
        self.best_return: float | None = previous.get("best_return")
        self._learned_at_start: int | None = None
        self._learned_here = 0
        self._parts: dict[str, tuple[str, dict[str, float]]] = {}
        self._env_steps_high = self._totals.env_steps
        self._env_steps_rate = SlidingRate(_WINDOW_S)
        self._waits = WaitShares(_WINDOW_S)
        self._rates = {
            name: CounterRate(_WINDOW_S) for name in ("learned_steps", "predictions", "batches")
        }

    @property
    def extra(self) -> dict[str, float]:
        """Gauges without a fixed name: the trainer's as they are, others' as `<role>_<gauge>`.

        Of several processes, the mean over those that report the gauge; of a `<gauge>_max` the
        largest.
        """
        collected: dict[str, list[float]] = {
            name: [value] for name, value in self._trainer_gauges.items()
        }
        for process in self._processes.values():
            if process.role != "trainer":
                for name, value in process.gauges.items():
                    collected.setdefault(f"{process.role}_{name}", []).append(value)
        return {
            name: value
            for name, value in joined_gauges(collected).items()
            if name not in METRIC_NAMES and name not in NO_NUMBERS
        }

    @property
    def mean_of_100(self) -> float | None:
        """Mean true return of the newest 100 episodes or more; None while there are fewer."""
        means = self._means
        return means.return_mean if means.episodes >= EPISODES_FOR_TARGET else None

    def state(self) -> dict[str, Any]:
        """The JSON-able state from which, with the last line, an aggregator continues exactly."""
        return {
            "totals": self._totals.state(),
            "episodes": self._means.state(),
            "episodes_of": dict(self._episodes_of),
            "episode_count": self._episodes,
        }

    def observe_heartbeat(
        self,
        role: str,
        incarnation: str,
        heartbeat: Heartbeat,
        now: float,
        *,
        clock_s: float | None = None,
        number: int = 0,
    ) -> None:
        """Add a heartbeat received at `now`; those of replaced trainers are ignored.

        Args:
            number: the process's number in its role; of a trainer its rank.
            now: seconds of the run's own time.
            clock_s: seconds of the roles' clock, by which episodes began; None: as `now`.
        """
        if incarnation in self._superseded:
            return
        first = incarnation not in self._processes
        process = self._processes.setdefault(incarnation, _Process(role))
        process.gauges = {
            name: float(value) for name, value in heartbeat.gauges.items() if math.isfinite(value)
        }
        self._waits.observe(incarnation, role, heartbeat.waits, now)
        if heartbeat.parts:
            self._observe_parts(role, incarnation, heartbeat.parts)
        if "predictions" in heartbeat.counters:
            self._rates["predictions"].observe(incarnation, heartbeat.counters["predictions"], now)
        if role == "trainer":
            self._observe_trainer(number, incarnation, heartbeat, now)
        elif role == "actor":
            self._totals.observe_actor(incarnation, heartbeat.counters.get("env_steps", 0))
        self._observe_episodes(incarnation, heartbeat)
        self._means.observe(
            incarnation,
            heartbeat,
            now if clock_s is None else clock_s,
            settles=role == "actor",
        )
        self._observe_env_steps(first, now)

    def observe_own_waits(self, role: str, waits: Mapping[str, float], now: float) -> None:
        """Add `WaitMeter.seconds()` of the monitor, which sends no heartbeat."""
        self._waits.observe(role, role, waits, now)

    def role_gone(self, incarnation: str) -> None:
        """Drop a dead or silent process; a later heartbeat brings it back.

        A trainer's numbers stay until the next trainer's first heartbeat.
        """
        process = self._processes.pop(incarnation, None)
        if process is None:
            return
        if process.role == "actor":
            self._totals.actor_gone(incarnation)
        self._means.forget(incarnation)
        self._waits.forget(incarnation)
        for rate in self._rates.values():
            rate.forget(incarnation)

    def time_s(self, now: float) -> float:
        """The run's clock at `now`; it stands still between the parts of a resumed run."""
        return self._time_base_s + max(0.0, now - self._started)

    def line(self, now: float) -> dict[str, Any]:
        """The metrics at `now`: all of `METRIC_NAMES`, then the gauges; JSON-able, no NaN."""
        totals = self._totals.totals()
        counters = self._trainer_counters
        fixed = {
            "time_s": self.time_s(now),
            "policy": self._policy,
            "env_steps": totals.env_steps,
            "accounted_env_steps": self._totals.accounted_env_steps,
            "learned_steps": totals.learned_steps,
            LEARNED_HERE: self._learned_here,
            "dropped_steps": totals.dropped_steps,
            "in_flight_steps": totals.in_flight_steps,
            **{name: counters.get(name, 0) for name in TRAINER_COUNTS},
            "checkpoint_error": self._checkpoint_error,
            "env_steps_per_s": self._env_steps_rate.per_s(now),
            "learned_steps_per_s": self._rates["learned_steps"].per_s(now),
            "pps": self._rates["predictions"].per_s(now),
            "tps": self._rates["batches"].per_s(now),
            "return_mean_100": self._means.return_mean,
            "best_return": self.best_return,
            "episode_length_mean": self._means.length_mean,
            "episodes_in_mean": self._means.episodes,
            "episodes": self._episodes,
            "lag_mean": self._trainer_gauges.get("lag_mean", 0.0),
            "lag_max": self._trainer_gauges.get("lag_max", 0.0),
            "wait_share": self._waits.by_role(now),
        }
        sums: dict[str, Any] = {PART_SECONDS: self._part_seconds()}
        prefix = f"{CHAIN_STEPS}."
        sums[CHAIN_STEPS] = {
            name.removeprefix(prefix): count
            for name, count in counters.items()
            if name.startswith(prefix)
        }
        info = {f"{INFO}{name}": mean for name, mean in self._means.info_means.items()}
        return fixed | {name: each for name, each in sums.items() if each} | info | self.extra

    def _observe_trainer(
        self, rank: int, incarnation: str, heartbeat: Heartbeat, now: float
    ) -> None:
        if not (heartbeat.counters or heartbeat.gauges):  # it waits for other ranks
            return
        if (replaced := self._trainers.observe(rank, incarnation, heartbeat)) is not None:
            self._superseded.add(replaced)
            self.role_gone(replaced)
            self._learned_at_start = None
        counters = heartbeat.counters
        if rank == 0:  # ranks learn their batches at the same time
            batches = counters.get("batches", counters.get("updates", 0))
            self._rates["batches"].observe(incarnation, batches, now)
        self._rates["learned_steps"].observe(incarnation, counters.get("learned_steps", 0), now)
        if (trainers := self._trainers.joined()) is None:
            return
        self._trainer_gauges = dict(trainers.gauges)
        self.best_return = trainers.gauges.get("best_return")
        self._trainer_counters = dict(trainers.counters)
        self._policy = heartbeat.policy
        self._checkpoint_error = trainers.note[:_MOST_NOTE] or None
        self._totals.observe_trainer(
            trainers.incarnation, trainers.counters, trainers.dropped, trainers.seen
        )
        learned_steps = trainers.counters.get("learned_steps", 0)
        if self._learned_at_start is None:
            self._learned_at_start = learned_steps
        self._learned_here = max(0, learned_steps - self._learned_at_start)
        if not self._learned_here:
            self._waits.restart()  # nothing learned yet

    def _observe_parts(self, role: str, incarnation: str, parts: Mapping[str, float]) -> None:
        # Kept after the process is gone, so that the sums of its role never fall.
        self._parts.pop(incarnation, None)
        self._parts[incarnation] = (role, dict(parts))
        if len(self._parts) > _PROCESSES_KEPT:
            del self._parts[next(iter(self._parts))]

    def _part_seconds(self) -> dict[str, dict[str, float]]:
        """Role → part → seconds of all its processes' threads since their starts."""
        sums: dict[str, dict[str, float]] = {}
        for role, parts in self._parts.values():
            sums[role] = add_up(sums.get(role, {}), parts)
        return {
            role: {part: round(seconds, _PART_DIGITS) for part, seconds in parts.items()}
            for role, parts in sums.items()
        }

    def _observe_episodes(self, incarnation: str, heartbeat: Heartbeat) -> None:
        ended = len(heartbeat.episode_returns)
        # Kept after the process is gone, so that nothing is counted again. Of a process that no
        # state names, an aggregator that continues another's has counted the earlier episodes.
        known = self._episodes_of.pop(incarnation, None)
        before = known if known is not None else 0
        reported = max(before, heartbeat.counters.get("episodes", before + ended))
        if known is None and self._resumed:
            before = max(0, reported - ended)
        self._episodes += reported - before
        self._episodes_of[incarnation] = reported
        if len(self._episodes_of) > _PROCESSES_KEPT:
            del self._episodes_of[next(iter(self._episodes_of))]

    def _observe_env_steps(self, first: bool, now: float) -> None:
        total = self._totals.env_steps
        # A first heartbeat includes earlier steps: it sets the mark and is no rate.
        self._env_steps_rate.add(0 if first else total - self._env_steps_high, now)
        # without actors the total is that of the trainer, which may begin before where one died
        self._env_steps_high = total if first else max(self._env_steps_high, total)
