"""Ranks in a metrics line: sums of what each counts, one of what they do together."""

from __future__ import annotations

from aclearn.metrics import MetricsAggregator
from aclearn.types import pack_seen
from aclearn.wire import Heartbeat

_TOGETHER = {"updates": 7, "batches": 7, "policy_version": 7, "ranks": 2}


def _beat(generation: int, learned: int, *, actor: str, **gauges: float) -> Heartbeat:
    counters = {
        **_TOGETHER,
        "generation": generation,
        "env_steps": learned + 5,
        "learned_steps": learned,
        "in_flight_steps": 2,
    }
    names, steps = pack_seen({actor: learned + 5})
    return Heartbeat(
        counters=counters,
        dropped={"lag": 3},
        gauges=gauges,
        actors={"default": names},
        actor_steps={"default": steps},
    )


def test_ranks_add_their_steps_and_share_their_updates() -> None:
    metrics = MetricsAggregator(0.0)
    metrics.observe_heartbeat("trainer", "a", _beat(0, 100, actor="x", lag_mean=2, lag_max=3), 1.0)
    assert metrics.line(1.0)["learned_steps"] == 0  # the other rank's are not known yet
    other = _beat(0, 40, actor="y", lag_mean=4, lag_max=9, entropy=0.5)
    metrics.observe_heartbeat("trainer", "b", other, 2.0, number=1)
    line = metrics.line(2.0)
    assert (line["env_steps"], line["learned_steps"], line["in_flight_steps"]) == (150, 140, 4)
    assert line["dropped_steps"] == {"lag": 6} and line["updates"] == 7
    assert (line["lag_mean"], line["lag_max"], line["entropy"]) == (3.0, 9.0, 0.5)
    # an actor's newer count is added to what its own rank has seen
    metrics.observe_heartbeat("actor", "y", Heartbeat(counters={"env_steps": 60}), 3.0)
    assert metrics.line(3.0)["env_steps"] == 165
    later = _beat(0, 140, actor="y")
    metrics.observe_heartbeat("trainer", "b", later, 4.0, number=1)
    assert metrics.line(4.0)["learned_steps_per_s"] > 0


def test_a_new_generation_counts_once_all_its_ranks_are_there() -> None:
    metrics = MetricsAggregator(0.0)
    for number, name in enumerate("ab"):
        metrics.observe_heartbeat("trainer", name, _beat(0, 100, actor=name), 1.0, number=number)
    assert metrics.line(1.0)["learned_steps"] == 200
    metrics.observe_heartbeat("trainer", "c", Heartbeat(), 2.0)  # waits for the other one
    metrics.observe_heartbeat("trainer", "d", _beat(1, 70, actor="b"), 2.0, number=1)
    metrics.observe_heartbeat("trainer", "b", _beat(0, 120, actor="b"), 2.5, number=1)  # replaced
    line = metrics.line(2.5)
    assert (line["learned_steps"], line["generation"]) == (200, 0)
    metrics.observe_heartbeat("trainer", "c", _beat(1, 80, actor="a"), 3.0)
    line = metrics.line(3.0)
    assert (line["learned_steps"], line["generation"]) == (150, 1)
    known = line["learned_steps"] + line["in_flight_steps"] + sum(line["dropped_steps"].values())
    assert line["env_steps"] == known
