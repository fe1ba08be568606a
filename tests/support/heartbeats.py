"""Heartbeats of actors and trainers, for tests of the aggregator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aclearn.metrics import MetricsAggregator
from aclearn.types import EpisodeCohort


@dataclass(frozen=True)
class Heartbeat:
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    episode_returns: tuple[float, ...] = ()
    cohorts: tuple[EpisodeCohort, ...] = ()
    settled_s: float = 0.0
    clock_s: float = 0.0
    policy: str = "default"
    of_actors: Mapping[str, int] = field(default_factory=dict)

    def seen(self) -> dict[str, int]:
        return dict(self.of_actors)


def ended_episodes(returns: Sequence[float], length: int = 1, **info: float) -> dict[str, Any]:
    """Fields of an actor's heartbeat: one cohort of these episodes, and no running one."""
    count = len(returns)
    cohort = EpisodeCohort(
        0.0,
        count,
        sum(returns),
        count * length,
        {name: value * count for name, value in info.items()},
        dict.fromkeys(info, count),
    )
    return {"cohorts": [cohort], "settled_s": 1.0, "clock_s": 1.0}


def actor_heartbeat(view: MetricsAggregator, incarnation: str, now: float, **counters: int) -> None:
    view.observe_heartbeat("actor", incarnation, Heartbeat(counters), now)


def trainer_heartbeat(
    view: MetricsAggregator, incarnation: str, now: float, **counters: int
) -> None:
    seen = {name: steps for name, steps in counters.items() if name.startswith("seen_")}
    named = {name: count for name, count in counters.items() if name not in seen}
    of_actors = {name.removeprefix("seen_"): steps for name, steps in seen.items()}
    view.observe_heartbeat("trainer", incarnation, Heartbeat(named, of_actors=of_actors), now)


def identity_holds(line: Mapping[str, object]) -> bool:
    dropped = line["dropped_steps"]
    assert isinstance(dropped, dict)
    parts = line["learned_steps"], sum(dropped.values()), line["in_flight_steps"]
    return line["env_steps"] == sum(parts)  # type: ignore[arg-type]
