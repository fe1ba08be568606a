"""Heartbeats of actors and trainers, for tests of the aggregator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aclearn.metrics import MetricsAggregator


@dataclass(frozen=True)
class Heartbeat:
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    episode_returns: tuple[float, ...] = ()


def actor_heartbeat(view: MetricsAggregator, incarnation: str, now: float, **counters: int) -> None:
    view.observe_heartbeat("actor", incarnation, Heartbeat(counters), now)


def trainer_heartbeat(
    view: MetricsAggregator, incarnation: str, now: float, **counters: int
) -> None:
    named = {name.replace("seen_", "seen."): value for name, value in counters.items()}
    view.observe_heartbeat("trainer", incarnation, Heartbeat(named), now)


def identity_holds(line: Mapping[str, object]) -> bool:
    dropped = line["dropped_steps"]
    assert isinstance(dropped, dict)
    parts = line["learned_steps"], sum(dropped.values()), line["in_flight_steps"]
    return line["env_steps"] == sum(parts)  # type: ignore[arg-type]
